// The interpreter: walks statements, writing text with provenance into a buffer.
//
// Every statement and expression costs a step of fuel and every started 64 bytes of text another;
// what is live is held against the memory of the budget. Recursion is counted: nested blocks and
// macros against `depth`, the evaluator's own frames against ten times that, which is what the
// stack allows. Errors travel as results; the innermost node that failed gives the position.
//
// Scopes follow jinja2: loops, macros, with, block sets, filters and call blocks have their own, an
// if has not. A macro sees the scope it was defined in, so such scopes are kept until the end.
#include "template/eval.h"

#include "template/builtins.h"
#include "template/lexer.h"

#include <algorithm>

namespace culet::chat {

namespace {

constexpr int kFramesPerLevel = 10;
constexpr size_t kScopeBytes = 256, kVariableBytes = 96, kNamespaceBytes = 256;

}  // namespace

// A scope of its own for as long as it lives; kept by the interpreter when a macro captured it.
class Interpreter::NewScope {
 public:
  NewScope(Interpreter& in, Scope* parent)
      : in_(in), outer_(in.scope_), scope_(std::make_unique<Scope>()) {
    scope_->parent = parent;
    in_.scope_ = scope_.get();
  }
  explicit NewScope(Interpreter& in) : NewScope(in, in.scope_) {}
  ~NewScope() {
    in_.scope_ = outer_;
    if (!scope_->captured) return;
    in_.factory_.budget().hold(kScopeBytes + scope_->variables.size() * kVariableBytes);
    in_.kept_scopes_.push_back(std::move(scope_));
  }
  NewScope(const NewScope&) = delete;
  NewScope& operator=(const NewScope&) = delete;
  Scope& operator*() const { return *scope_; }

 private:
  Interpreter& in_;
  Scope* outer_;
  std::unique_ptr<Scope> scope_;
};

// One more level of a counter for as long as it lives.
class Interpreter::Nested {
 public:
  explicit Nested(int& level) : level_(level) { ++level_; }
  ~Nested() { --level_; }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;

 private:
  int& level_;
};

Interpreter::Interpreter(const ParsedTemplate& parsed, Budget& budget, int depth, size_t output)
    : parsed_(parsed),
      factory_(budget, depth),
      max_depth_(depth),
      max_output_(output),
      loop_name_(parsed.names.find("loop")),
      caller_name_(parsed.names.find("caller")),
      varargs_name_(parsed.names.find("varargs")),
      kwargs_name_(parsed.names.find("kwargs")) {}

Interpreter::~Interpreter() = default;

Result<Text> Interpreter::run() {
  Result<Flow> done = execute(parsed_.body);
  if (!done) return tl::unexpected<Error>(describe(std::move(done.error())));
  return std::move(output_.text);
}

Error Interpreter::raised(std::string message) {
  raised_ = true;
  return Error{ErrorCode::kInvalidArgument, std::move(message)};
}

Error Interpreter::describe(Error e) const {
  const std::string where = " at " + describe_position(parsed_.source, failed_at_) + ": ";
  if (raised_) {
    e.message = "The chat template refuses this conversation" + where + e.message;
  } else if (e.code == ErrorCode::kExhausted) {
    e.message = "The chat template stopped" + where + "it " + e.message + ".";
  } else {
    e.message = "The chat template failed" + where + e.message + ".";
  }
  return e;
}

template <class T>
Result<T> Interpreter::noted(Result<T> result, Position at) {
  if (!result && !failed_) {
    failed_ = true;
    failed_at_ = at;
  }
  return result;
}

Result<void> Interpreter::enter(Position at) {
  if (!factory_.budget().spend(1)) {
    return noted<void>(tl::unexpected<Error>(factory_.limit_error()), at);
  }
  if (depth_ <= max_depth_ * kFramesPerLevel && blocks_ <= max_depth_) return {};
  return noted<void>(fail(ErrorCode::kExhausted, "nests macros, loops or expressions too deeply"),
                     at);
}

Namespace* Interpreter::new_namespace() {
  factory_.budget().hold(kNamespaceBytes);
  namespaces_.push_back(std::make_unique<Namespace>());
  return namespaces_.back().get();
}

// ---- statements ----

Result<Interpreter::Flow> Interpreter::execute(const Body& body) {
  for (const std::unique_ptr<Statement>& s : body) {
    CULET_TRY(const Flow flow, execute(*s));
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Result<Interpreter::Flow> Interpreter::execute(const Statement& s) {
  const Nested nested(depth_);
  CULET_TRY_VOID(enter(s.at));
  return noted(execute_inner(s), s.at);
}

Result<Interpreter::Flow> Interpreter::execute_inner(const Statement& s) {
  switch (s.kind) {
    case StatementKind::kText:
      CULET_TRY_VOID(write(*s.text.text()));
      break;
    case StatementKind::kPrint:
      CULET_TRY_VOID(execute_print(s));
      break;
    case StatementKind::kIf:
      return execute_if(s);
    case StatementKind::kFor:
      return execute_for(s);
    case StatementKind::kSet: {
      CULET_TRY(const Value value, evaluate(*s.expression));
      CULET_TRY_VOID(assign(s.target, value));
      break;
    }
    case StatementKind::kSetBlock:
      return execute_set_block(s);
    case StatementKind::kWith:
      return execute_with(s);
    case StatementKind::kMacro:
      scope_->variables[s.macro->name->id] = make_macro(*s.macro);
      break;
    case StatementKind::kCall:
      CULET_TRY_VOID(execute_call(s));
      break;
    case StatementKind::kFilter:
      return execute_filter(s);
    case StatementKind::kScope:
      return execute_scope(s.body);
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNormal;
}

Result<void> Interpreter::write(const Text& text) {
  Budget& budget = factory_.budget();
  if (text.size() > max_output_ - std::min(max_output_, out_->text.size())) {
    return fail(ErrorCode::kExhausted,
                "prints more than " + std::to_string(max_output_) + " bytes");
  }
  const size_t bytes = text.footprint();
  if (!budget.spend_bytes(bytes) || !budget.fits(bytes)) {
    return tl::unexpected<Error>(factory_.limit_error());
  }
  budget.hold(bytes);
  out_->held += bytes;
  out_->text.append(text);
  return {};
}

Result<void> Interpreter::execute_print(const Statement& s) {
  CULET_TRY(const Value value, evaluate(*s.expression));
  if (const Text* text = value.text()) return write(*text);
  CULET_TRY(const Text text, to_text(factory_, value));
  return write(text);
}

Result<Interpreter::Flow> Interpreter::execute_if(const Statement& s) {
  for (const Branch& branch : s.branches) {
    CULET_TRY(const Value condition, evaluate(*branch.condition));
    if (truth(condition)) return execute(branch.body);
  }
  return execute(s.body);
}

Result<Interpreter::Flow> Interpreter::execute_for(const Statement& s) {
  CULET_TRY(const Value source, evaluate(*s.expression));
  auto loop = std::make_shared<LoopState>();
  CULET_TRY(loop->source, iterate(factory_, source));
  loop->source_height = source.height();
  if (loop->source_height >= max_depth_) {
    return fail(ErrorCode::kExhausted, "nests loops too deeply");
  }
  loop->statement = &s;
  loop->outside = scope_;
  loop->level = loops_;
  Result<Flow> flow = run_loop(s, loop);
  loop->statement = nullptr;
  loop->changed.reset();
  return flow;
}

Result<Interpreter::Flow> Interpreter::run_loop(const Statement& s,
                                                const std::shared_ptr<LoopState>& loop) {
  const Nested block(blocks_);
  CULET_TRY_VOID(enter(s.at));
  bool completed = false;  // an iteration that continues or breaks does not count, as in jinja2
  while (true) {
    CULET_TRY(const std::optional<Value> item, loop_item(*loop, 0));
    if (!item) break;
    CULET_TRY_VOID(enter(s.at));
    const Nested inside(loops_);
    const NewScope scope(*this);
    if (loop_name_ != nullptr) (*scope).variables[loop_name_->id] = Value(loop);
    CULET_TRY_VOID(assign(s.target, *item));
    CULET_TRY(const Flow flow, execute(s.body));
    if (flow == Flow::kBreak) break;
    completed = completed || flow == Flow::kNormal;
    ++loop->index;
  }
  return !completed ? execute_scope(s.orelse) : Flow::kNormal;
}

// Lets one more item of the source through the loop's filter; false when there is none.
Result<bool> Interpreter::pass_next(LoopState& loop) {
  while (loop.next_source < loop.source.size()) {
    if (loop.statement == nullptr) return false;
    const Value& item = loop.source[loop.next_source++];
    if (loop.statement->condition) {
      const NewScope scope(*this, loop.outside);
      CULET_TRY_VOID(assign(loop.statement->target, item));
      CULET_TRY(const Value passes, evaluate(*loop.statement->condition));
      if (!truth(passes)) continue;
    }
    loop.passed.push_back(item);
    return true;
  }
  return false;
}

Result<std::optional<Value>> Interpreter::loop_item(LoopState& loop, int64_t offset) {
  const int64_t at = static_cast<int64_t>(loop.index) + offset;
  if (at < 0) return std::nullopt;
  while (static_cast<size_t>(at) >= loop.passed.size()) {
    CULET_TRY(const bool more, pass_next(loop));
    if (!more) return std::nullopt;
  }
  return loop.passed[static_cast<size_t>(at)];
}

Result<int64_t> Interpreter::loop_length(LoopState& loop) {
  while (true) {
    CULET_TRY(const bool more, pass_next(loop));
    if (!more) return static_cast<int64_t>(loop.passed.size());
  }
}

// Runs a body in a scope and a buffer of its own.
Result<Interpreter::Flow> Interpreter::capture(const Body& body, Value& text) {
  const Nested block(blocks_);
  const NewScope scope(*this);
  Buffer buffer;
  Buffer* outer = std::exchange(out_, &buffer);
  Result<Flow> flow = execute(body);
  out_ = outer;
  factory_.budget().release(buffer.held);
  if (!flow) return flow;
  CULET_TRY(text, factory_.string(std::move(buffer.text)));
  return flow;
}

Result<Interpreter::Flow> Interpreter::execute_scope(const Body& body) {
  const NewScope scope(*this);
  return execute(body);
}

Result<Interpreter::Flow> Interpreter::execute_set_block(const Statement& s) {
  Value text;
  CULET_TRY(const Flow flow, capture(s.body, text));
  if (flow != Flow::kNormal) return flow;
  if (s.expression) {
    const Value* outer = std::exchange(block_, &text);
    Result<Value> filtered = evaluate(*s.expression);
    block_ = outer;
    CULET_TRY(text, std::move(filtered));
  }
  CULET_TRY_VOID(assign(s.target, text));
  return flow;
}

Result<Interpreter::Flow> Interpreter::execute_filter(const Statement& s) {
  Value text;
  CULET_TRY(const Flow flow, capture(s.body, text));
  if (flow != Flow::kNormal) return flow;
  const Value* outer = std::exchange(block_, &text);
  Result<Value> filtered = evaluate(*s.expression);
  block_ = outer;
  CULET_TRY(const Value result, std::move(filtered));
  CULET_TRY(const Text printed, to_text(factory_, result));
  CULET_TRY_VOID(write(printed));
  return flow;
}

Result<Interpreter::Flow> Interpreter::execute_with(const Statement& s) {
  std::vector<Value> values;
  for (const ExpressionPtr& e : s.expression->operands) {
    CULET_TRY(Value value, evaluate(*e));
    values.push_back(std::move(value));
  }
  const NewScope scope(*this);
  for (size_t i = 0; i < values.size(); ++i) CULET_TRY_VOID(assign(s.targets[i], values[i]));
  return execute(s.body);
}

Result<void> Interpreter::execute_call(const Statement& s) {
  const Value caller = make_macro(*s.macro);
  CULET_TRY(const Value result, evaluate_call(*s.expression, &caller));
  CULET_TRY(const Text text, to_text(factory_, result));
  return write(text);
}

Value Interpreter::make_macro(const MacroNode& node) {
  for (Scope* s = scope_; s != nullptr && !s->captured; s = s->parent) s->captured = true;
  return Value(std::make_shared<const Macro>(Macro{&node, scope_}));
}

Result<void> Interpreter::assign(const Target& target, const Value& value) {
  if (target.name == nullptr) {
    CULET_TRY(const std::vector<Value> parts, iterate(factory_, value));
    if (parts.size() != target.parts.size()) {
      return error("a value with " + std::to_string(parts.size()) + " parts is assigned to " +
                   std::to_string(target.parts.size()) + " names");
    }
    for (size_t i = 0; i < parts.size(); ++i) CULET_TRY_VOID(assign(target.parts[i], parts[i]));
    return {};
  }
  if (target.attribute == nullptr) {
    scope_->variables[target.name->id] = value;
    return {};
  }
  CULET_TRY(const Value object, evaluate_name(*target.name));
  Namespace* space = object.name_space();
  if (space == nullptr) {
    return error("'" + target.name->text + "' is no namespace, so its attributes cannot be set");
  }
  if (space->items.find(target.attribute->text) == space->items.end()) {
    factory_.budget().hold(kVariableBytes + target.attribute->text.size());
  }
  space->items[target.attribute->text] = value;
  return {};
}

// ---- expressions ----

Result<Value> Interpreter::evaluate(const Expression& e) {
  const Nested nested(depth_);
  CULET_TRY_VOID(enter(e.at));
  return noted(evaluate_inner(e), e.at);
}

Result<Value> Interpreter::evaluate_inner(const Expression& e) {
  switch (e.kind) {
    case ExpressionKind::kConstant:
      return e.constant;
    case ExpressionKind::kName:
      return evaluate_name(*e.name);
    case ExpressionKind::kList:
      return evaluate_items(e, Flavor::kList);
    case ExpressionKind::kTuple:
      return evaluate_items(e, Flavor::kTuple);
    case ExpressionKind::kDict:
      return evaluate_dict(e);
    case ExpressionKind::kSlice:
      return evaluate_slice(e);
    case ExpressionKind::kCall:
      return evaluate_call(e, nullptr);
    case ExpressionKind::kFilter:
      return evaluate_filter(e);
    case ExpressionKind::kTest:
      return evaluate_test(e);
    case ExpressionKind::kArithmetic:
      return evaluate_arithmetic(e);
    case ExpressionKind::kConcat:
      return evaluate_concat(e);
    case ExpressionKind::kCompare:
      return evaluate_compare(e);
    case ExpressionKind::kAnd:
    case ExpressionKind::kOr:
      return evaluate_logic(e);
    case ExpressionKind::kCondition:
      return evaluate_condition(e);
    default:
      return evaluate_unary(e);
  }
}

// Attributes, items, and operators of one operand.
Result<Value> Interpreter::evaluate_unary(const Expression& e) {
  CULET_TRY(const Value operand, evaluate(*e.operands[0]));
  switch (e.kind) {
    case ExpressionKind::kAttribute:
      return get_attribute(*this, operand, *e.name);
    case ExpressionKind::kItem: {
      CULET_TRY(const Value key, evaluate(*e.operands[1]));
      return get_item(*this, operand, key);
    }
    case ExpressionKind::kNot:
      return Value(!truth(operand));
    case ExpressionKind::kNegative:
      return negate(operand);
    default:
      break;  // +x
  }
  if (!operand.is_number()) return error("'+' needs a number");
  return operand.is_bool() ? Value(operand.as_int()) : operand;
}

Result<Value> Interpreter::evaluate_name(const Name& name) {
  for (const Scope* s = scope_; s != nullptr; s = s->parent) {
    const auto at = s->variables.find(name.id);
    if (at != s->variables.end()) return at->second;
  }
  const auto global = globals_.find(name.id);
  if (global != globals_.end()) {
    read_.insert(name.id);
    return global->second;
  }
  if (const NativeEntry* function = find_function(name.text)) return Value(function);
  return Value(Undefined{&name.text});
}

Result<Value> Interpreter::evaluate_items(const Expression& e, Flavor flavor) {
  std::vector<Value> items;
  for (const ExpressionPtr& operand : e.operands) {
    CULET_TRY(Value item, evaluate(*operand));
    items.push_back(std::move(item));
  }
  return factory_.list(std::move(items), flavor);
}

Result<Value> Interpreter::evaluate_dict(const Expression& e) {
  std::vector<std::pair<Value, Value>> items;
  for (size_t i = 0; i < e.operands.size(); i += 2) {
    CULET_TRY(Value key, evaluate(*e.operands[i]));
    CULET_TRY(Value value, evaluate(*e.operands[i + 1]));
    items.emplace_back(std::move(key), std::move(value));
  }
  return factory_.dict(std::move(items));
}

Result<Value> Interpreter::evaluate_slice(const Expression& e) {
  Value parts[4] = {Value(None{}), Value(None{}), Value(None{}), Value(None{})};
  for (size_t i = 0; i < e.operands.size(); ++i) {
    if (e.operands[i]) {
      CULET_TRY(parts[i], evaluate(*e.operands[i]));
    }
  }
  return slice(factory_, parts[0], parts[1], parts[2], parts[3]);
}

Result<Arguments> Interpreter::evaluate_arguments(const std::vector<Argument>& arguments) {
  Arguments out;
  for (const Argument& a : arguments) {
    CULET_TRY(Value value, evaluate(*a.value));
    switch (a.kind) {
      case Argument::Kind::kPlain:
        out.positional.push_back(std::move(value));
        break;
      case Argument::Kind::kNamed:
        out.named.emplace_back(a.name->text, std::move(value));
        break;
      case Argument::Kind::kSpreadList: {
        CULET_TRY(std::vector<Value> items, iterate(factory_, value));
        for (Value& item : items) out.positional.push_back(std::move(item));
        break;
      }
      case Argument::Kind::kSpreadDict: {
        if (value.dict() == nullptr) return error("'**' needs a dict");
        for (const auto& [key, item] : value.dict()->items) {
          if (key.text() == nullptr) return error("'**' needs a dict with strings as keys");
          out.named.emplace_back(key.text()->bytes(), item);
        }
      }
    }
  }
  return out;
}

Result<Value> Interpreter::evaluate_call(const Expression& e, const Value* caller) {
  CULET_TRY(const Value callee, evaluate(*e.operands[0]));
  CULET_TRY(Arguments arguments, evaluate_arguments(e.arguments));
  if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
  return call(callee, std::move(arguments));
}

Result<Value> Interpreter::evaluate_filter(const Expression& e) {
  Value value;
  if (e.operands[0]) {
    CULET_TRY(value, evaluate(*e.operands[0]));
  } else {
    value = *block_;
  }
  if (e.native == nullptr) return error("there is no filter named '" + e.name->text + "'");
  CULET_TRY(Arguments arguments, evaluate_arguments(e.arguments));
  return call_native(*e.native, std::move(value), std::move(arguments));
}

Result<Value> Interpreter::evaluate_test(const Expression& e) {
  CULET_TRY(Value value, evaluate(*e.operands[0]));
  if (e.native == nullptr) return error("there is no test named '" + e.name->text + "'");
  CULET_TRY(Arguments arguments, evaluate_arguments(e.arguments));
  return call_native(*e.native, std::move(value), std::move(arguments));
}

Result<Value> Interpreter::evaluate_arithmetic(const Expression& e) {
  CULET_TRY(Value left, evaluate(*e.operands[0]));
  for (size_t i = 0; i < e.ops.size(); ++i) {
    CULET_TRY(const Value right, evaluate(*e.operands[i + 1]));
    CULET_TRY(left, arithmetic(factory_, e.ops[i], left, right));
  }
  return left;
}

Result<Value> Interpreter::evaluate_concat(const Expression& e) {
  Text out;
  for (const ExpressionPtr& operand : e.operands) {
    CULET_TRY(const Value value, evaluate(*operand));
    CULET_TRY_VOID(append_str(factory_, out, value));
    if (!factory_.budget().fits(out.footprint())) {
      return tl::unexpected<Error>(factory_.limit_error());
    }
  }
  return factory_.string(std::move(out));
}

Result<Value> Interpreter::evaluate_compare(const Expression& e) {
  CULET_TRY(Value left, evaluate(*e.operands[0]));
  for (size_t i = 0; i < e.ops.size(); ++i) {
    CULET_TRY(Value right, evaluate(*e.operands[i + 1]));
    CULET_TRY(const bool holds, compare(factory_, e.ops[i], left, right));
    if (!holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Result<Value> Interpreter::evaluate_logic(const Expression& e) {
  const bool decisive = e.kind == ExpressionKind::kOr;
  Value value;
  for (const ExpressionPtr& operand : e.operands) {
    CULET_TRY(value, evaluate(*operand));
    if (truth(value) == decisive) break;
  }
  return value;
}

Result<Value> Interpreter::evaluate_condition(const Expression& e) {
  CULET_TRY(const Value condition, evaluate(*e.operands[1]));
  if (truth(condition)) return evaluate(*e.operands[0]);
  return e.operands[2] ? evaluate(*e.operands[2]) : Value();
}

// ---- calls ----

Result<Value> Interpreter::call(const Value& callee, Arguments arguments) {
  if (const NativeEntry* function = callee.function()) {
    return call_native(*function, Value(), std::move(arguments));
  }
  if (const Method* method = callee.method()) {
    return call_native(*method->entry, method->self, std::move(arguments));
  }
  if (const Macro* macro = callee.macro()) return call_macro(*macro, std::move(arguments));
  if (const Undefined* u = callee.undefined()) {
    return error(u->name != nullptr ? "'" + *u->name + "' is undefined, so it cannot be called"
                                    : std::string("a value that is undefined is called"));
  }
  return error(std::string("a value of type '") + callee.type_name() + "' cannot be called");
}

Result<Value> Interpreter::call_native(const NativeEntry& entry, Value self, Arguments arguments) {
  const Nested nested(depth_);
  if (depth_ > max_depth_ * kFramesPerLevel) {
    return fail(ErrorCode::kExhausted, "nests calls too deeply");
  }
  if (!factory_.budget().spend(1)) return tl::unexpected<Error>(factory_.limit_error());
  Call call{*this, entry, std::move(self), std::move(arguments), {}};
  CULET_TRY_VOID(bind(call));
  return entry.run(call);
}

Result<Value> Interpreter::apply_filter(std::string_view name, const Value& value,
                                        Arguments arguments) {
  const NativeEntry* entry = find_filter(name);
  if (entry == nullptr) {
    return error("there is no filter named '" + std::string(name.substr(0, 100)) + "'");
  }
  return call_native(*entry, value, std::move(arguments));
}

Result<bool> Interpreter::apply_test(std::string_view name, const Value& value,
                                     Arguments arguments) {
  const NativeEntry* entry = find_test(name);
  if (entry == nullptr) {
    return error("there is no test named '" + std::string(name.substr(0, 100)) + "'");
  }
  CULET_TRY(const Value passed, call_native(*entry, value, std::move(arguments)));
  return truth(passed);
}

Result<void> Interpreter::bind_macro(const MacroNode& node, Arguments& arguments, Scope& scope) {
  const std::string name = node.name != nullptr ? node.name->text : "caller";
  const auto take_named = [&](std::string_view wanted) -> std::optional<Value> {
    for (auto at = arguments.named.begin(); at != arguments.named.end(); ++at) {
      if (at->first != wanted) continue;
      Value value = std::move(at->second);
      arguments.named.erase(at);
      return value;
    }
    return std::nullopt;
  };
  for (size_t i = 0; i < node.parameters.size(); ++i) {
    const MacroNode::Parameter& p = node.parameters[i];
    std::optional<Value> value;
    if (i < arguments.positional.size()) {
      value = arguments.positional[i];
    } else {
      value = take_named(p.name->text);
    }
    if (!value && p.fallback) {
      CULET_TRY(value, evaluate(*p.fallback));
    }
    scope.variables[p.name->id] = value ? std::move(*value) : Value(Undefined{&p.name->text});
  }
  if (node.uses_caller) {
    std::optional<Value> caller = take_named("caller");
    if (caller || scope.variables.count(caller_name_->id) == 0) {
      scope.variables[caller_name_->id] =
          caller ? std::move(*caller) : Value(Undefined{&caller_name_->text});
    }
  }
  return bind_rest(node, name, arguments, scope);
}

// What no parameter took: varargs and kwargs if the macro uses them, else an error.
Result<void> Interpreter::bind_rest(const MacroNode& node, const std::string& name,
                                    Arguments& arguments, Scope& scope) {
  const size_t taken = node.parameters.size();
  if (node.uses_varargs) {
    std::vector<Value> rest;
    for (size_t i = taken; i < arguments.positional.size(); ++i) {
      rest.push_back(arguments.positional[i]);
    }
    CULET_TRY(scope.variables[varargs_name_->id], factory_.list(std::move(rest), Flavor::kTuple));
  } else if (arguments.positional.size() > taken) {
    return error("the macro '" + name + "' takes at most " + std::to_string(taken) + " arguments");
  }
  if (node.uses_kwargs) {
    std::vector<std::pair<Value, Value>> rest;
    for (auto& [key, value] : arguments.named) {
      CULET_TRY(Value key_value, factory_.string(key));
      rest.emplace_back(std::move(key_value), std::move(value));
    }
    CULET_TRY(scope.variables[kwargs_name_->id], factory_.dict(std::move(rest)));
  } else if (!arguments.named.empty()) {
    return error("the macro '" + name + "' has no argument named '" +
                 arguments.named.front().first.substr(0, 100) + "'");
  }
  return {};
}

Result<Value> Interpreter::call_macro(const Macro& macro, Arguments arguments) {
  const Nested block(blocks_);
  const NewScope scope(*this, macro.scope);
  CULET_TRY_VOID(bind_macro(*macro.node, arguments, *scope));
  const int loops = std::exchange(loops_, 0);
  Value text;
  Result<Flow> flow = capture(macro.node->body, text);
  loops_ = loops;
  if (!flow) return tl::unexpected<Error>(flow.error());
  return text;
}

}  // namespace culet::chat
