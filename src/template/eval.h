// Runs a parsed template over variables: the interpreter behind ChatTemplate::render.
#pragma once

#include "template/parser.h"
#include "template/runtime.h"

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace culet::chat {

// Variables by name id; what a template does not name is never converted.
using Variables = std::map<int, Value>;

// One rendering. Not reusable, not for several threads.
class Interpreter {
 public:
  // `parsed`, `budget` outlive the interpreter. `output` bounds the bytes printed, `depth` the
  // nesting of macros, loops and blocks.
  Interpreter(const ParsedTemplate& parsed, Budget& budget, int depth, size_t output);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  void set_variables(Variables variables) { globals_ = std::move(variables); }
  // Whether the rendering looked at the variable of that name so far.
  bool has_read(const Name& name) const { return read_.count(name.id) != 0; }
  // Errors: kInvalidArgument for what the template does wrong, kExhausted for limits; both with
  // line and column.
  Result<Text> run();

  // ---- for natives ----
  const Factory& factory() const { return factory_; }
  const NameTable& names() const { return parsed_.names; }
  Result<Value> call(const Value& callee, Arguments arguments);
  Result<Value> apply_filter(std::string_view name, const Value& value, Arguments arguments);
  Result<bool> apply_test(std::string_view name, const Value& value, Arguments arguments);
  Namespace* new_namespace();
  // An item of the loop relative to the current one; nullopt when there is none.
  Result<std::optional<Value>> loop_item(LoopState& loop, int64_t offset);
  Result<int64_t> loop_length(LoopState& loop);
  // The error of raise_exception(), whose message is the template's own.
  Error raised(std::string message);

 private:
  enum class Flow : uint8_t { kNormal, kBreak, kContinue };
  class NewScope;
  class Nested;
  // Text being written: the output, or what a macro or a block will give.
  struct Buffer {
    Text text;
    size_t held = 0;
  };

  Error describe(Error error) const;
  Result<void> enter(Position at);
  tl::unexpected<Error> error(std::string what) const { return type_failure(std::move(what)); }
  template <class T>
  Result<T> noted(Result<T> result, Position at);

  Result<Flow> execute(const Body& body);
  Result<Flow> execute(const Statement& s);
  Result<Flow> execute_inner(const Statement& s);
  Result<Flow> execute_if(const Statement& s);
  Result<Flow> execute_for(const Statement& s);
  Result<Flow> run_loop(const Statement& s, const std::shared_ptr<LoopState>& loop);
  Result<Flow> execute_set_block(const Statement& s);
  Result<Flow> execute_with(const Statement& s);
  Result<Flow> execute_filter(const Statement& s);
  Result<Flow> execute_scope(const Body& body);
  Result<void> execute_print(const Statement& s);
  Result<void> execute_call(const Statement& s);
  Result<Flow> capture(const Body& body, Value& text);
  Result<void> assign(const Target& target, const Value& value);
  Result<void> write(const Text& text);
  Value make_macro(const MacroNode& node);
  Result<bool> pass_next(LoopState& loop);

  Result<Value> evaluate(const Expression& e);
  Result<Value> evaluate_inner(const Expression& e);
  Result<Value> evaluate_unary(const Expression& e);
  Result<Value> evaluate_name(const Name& name);
  Result<Value> evaluate_items(const Expression& e, Flavor flavor);
  Result<Value> evaluate_dict(const Expression& e);
  Result<Value> evaluate_slice(const Expression& e);
  Result<Value> evaluate_call(const Expression& e, const Value* caller);
  Result<Value> evaluate_filter(const Expression& e);
  Result<Value> evaluate_test(const Expression& e);
  Result<Value> evaluate_arithmetic(const Expression& e);
  Result<Value> evaluate_concat(const Expression& e);
  Result<Value> evaluate_compare(const Expression& e);
  Result<Value> evaluate_logic(const Expression& e);
  Result<Value> evaluate_condition(const Expression& e);
  Result<Arguments> evaluate_arguments(const std::vector<Argument>& arguments);

  Result<Value> call_macro(const Macro& macro, Arguments arguments);
  Result<void> bind_macro(const MacroNode& node, Arguments& arguments, Scope& scope);
  Result<void> bind_rest(const MacroNode& node, const std::string& name, Arguments& arguments,
                         Scope& scope);
  Result<Value> call_native(const NativeEntry& entry, Value self, Arguments arguments);

  const ParsedTemplate& parsed_;
  Factory factory_;
  int max_depth_;
  size_t max_output_;
  Variables globals_;
  std::set<int> read_;  // those of them that were looked at
  Scope root_{nullptr, {}, true};
  Scope* scope_ = &root_;
  Buffer output_;
  Buffer* out_ = &output_;        // the buffer being written
  const Value* block_ = nullptr;  // the text that a filter of a block starts from
  int depth_ = 0;                 // of the evaluator's own recursion
  int blocks_ = 0;                // macros, loops and captured blocks around
  int loops_ = 0;
  bool raised_ = false;
  bool failed_ = false;
  Position failed_at_ = 0;  // of the innermost node that failed
  std::vector<std::unique_ptr<Scope>> kept_scopes_;
  std::vector<std::unique_ptr<Namespace>> namespaces_;
  const Name *loop_name_, *caller_name_, *varargs_name_, *kwargs_name_;
};

}  // namespace culet::chat
