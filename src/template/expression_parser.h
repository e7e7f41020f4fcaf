// The expressions of the template language: the lower half of the parser (parser.cpp is the upper).
//
// Recursive descent, one method for each level of the grammar, loosest first. Two limits keep
// hostile templates harmless: the recursion of the parser itself, and the height of the tree it
// builds (a.b.c.d... grows without recursion here, but evaluating it recurses).
#pragma once

#include "template/builtins.h"
#include "template/lexer.h"
#include "template/parser.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>

namespace culet::chat {

using Words = std::initializer_list<std::string_view>;

class ExpressionParser {
 public:
  ExpressionParser(ParsedTemplate& out, std::vector<Token> tokens, int depth)
      : out_(out), tokens_(std::move(tokens)), max_depth_(depth) {}

 protected:
  // One level of recursion for as long as it lives.
  class Level {
   public:
    explicit Level(int& depth) : depth_(depth) { ++depth_; }
    ~Level() { --depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    int& depth_;
  };

  const Token& current() const { return tokens_[next_]; }
  const Token& ahead() const { return tokens_[std::min(next_ + 1, tokens_.size() - 1)]; }
  Token& take() { return tokens_[next_ + 1 < tokens_.size() ? next_++ : next_]; }

  bool skip_op(std::string_view op) {
    if (!current().is_op(op)) return false;
    take();
    return true;
  }
  bool skip_name(std::string_view name) {
    if (!current().is_name(name)) return false;
    take();
    return true;
  }

  tl::unexpected<Error> error(Position at, const std::string& what) const {
    return fail(ErrorCode::kInvalidArgument, "The chat template cannot be read at " +
                                                 describe_position(out_.source, at) + ": " + what +
                                                 ".");
  }
  tl::unexpected<Error> too_deep() const {
    return error(current().at, "it nests deeper than " + std::to_string(max_depth_) + " levels");
  }

  std::string describe_current() const {
    const Token& t = current();
    switch (t.kind) {
      case TokenKind::kEnd:
        return "the end of the template";
      case TokenKind::kText:
        return "text";
      case TokenKind::kPrintBegin:
        return "'{{'";
      case TokenKind::kPrintEnd:
        return "'}}'";
      case TokenKind::kBlockBegin:
        return "'{%'";
      case TokenKind::kBlockEnd:
        return "'%}'";
      case TokenKind::kString:
        return "a string";
      case TokenKind::kInteger:
      case TokenKind::kFloat:
        return "a number";
      default:
        return "'" + t.value + "'";
    }
  }
  tl::unexpected<Error> expected(const std::string& what) const {
    return error(current().at, "expected " + what + " but found " + describe_current());
  }

  Result<void> expect_op(std::string_view op) {
    if (!skip_op(op)) return expected("'" + std::string(op) + "'");
    return {};
  }
  Result<void> expect_word(std::string_view word) {
    if (!skip_name(word)) return expected("'" + std::string(word) + "'");
    return {};
  }
  Result<void> expect_block_end() {
    if (current().kind != TokenKind::kBlockEnd) return expected("'%}'");
    take();
    return {};
  }
  Result<const Name*> expect_name() {
    if (current().kind != TokenKind::kName) return expected("a name");
    return out_.names.intern(take().value);
  }

  // ---- expressions ----

  ExpressionPtr make(ExpressionKind kind, Position at) {
    auto e = std::make_unique<Expression>();
    e->kind = kind;
    e->at = at;
    return e;
  }

  // Sets the height of a finished node; every node passes here.
  Result<ExpressionPtr> finish(ExpressionPtr e) {
    int height = 0;
    for (const ExpressionPtr& o : e->operands) height = std::max(height, o ? o->height : 0);
    for (const Argument& a : e->arguments) height = std::max(height, a.value->height);
    e->height = height + 1;
    if (e->height > max_depth_) return too_deep();
    return e;
  }

  Result<ExpressionPtr> parse_expression() {
    const Level level(depth_);
    if (depth_ > max_depth_) return too_deep();
    CULET_TRY(ExpressionPtr value, parse_or());
    while (current().is_name("if")) {
      ExpressionPtr e = make(ExpressionKind::kCondition, take().at);
      CULET_TRY(ExpressionPtr condition, parse_or());
      ExpressionPtr other;
      if (skip_name("else")) {
        CULET_TRY(other, parse_expression());
      }
      e->operands.push_back(std::move(value));
      e->operands.push_back(std::move(condition));
      e->operands.push_back(std::move(other));
      CULET_TRY(value, finish(std::move(e)));
    }
    return value;
  }

  using Parse = Result<ExpressionPtr> (ExpressionParser::*)();

  // left (word left)*, as one node.
  Result<ExpressionPtr> parse_words(std::string_view word, ExpressionKind kind, Parse operand) {
    CULET_TRY(ExpressionPtr first, (this->*operand)());
    if (!current().is_name(word)) return first;
    ExpressionPtr e = make(kind, current().at);
    e->operands.push_back(std::move(first));
    while (skip_name(word)) {
      CULET_TRY(ExpressionPtr next, (this->*operand)());
      e->operands.push_back(std::move(next));
    }
    return finish(std::move(e));
  }

  Result<ExpressionPtr> parse_or() {
    return parse_words("or", ExpressionKind::kOr, &ExpressionParser::parse_and);
  }
  Result<ExpressionPtr> parse_and() {
    return parse_words("and", ExpressionKind::kAnd, &ExpressionParser::parse_not);
  }

  Result<ExpressionPtr> parse_not() {
    if (!current().is_name("not")) return parse_compare();
    const Level level(depth_);
    if (depth_ > max_depth_) return too_deep();
    ExpressionPtr e = make(ExpressionKind::kNot, take().at);
    CULET_TRY(ExpressionPtr operand, parse_not());
    e->operands.push_back(std::move(operand));
    return finish(std::move(e));
  }

  struct Operator {
    std::string_view text;
    Op op;
  };

  std::optional<Op> take_op(std::initializer_list<Operator> operators) {
    for (const Operator& o : operators) {
      if (skip_op(o.text)) return o.op;
    }
    return std::nullopt;
  }

  std::optional<Op> take_comparison() {
    if (skip_name("in")) return Op::kIn;
    if (current().is_name("not") && ahead().is_name("in")) {
      take();
      take();
      return Op::kNotIn;
    }
    return take_op({{"==", Op::kEq},
                    {"!=", Op::kNe},
                    {"<", Op::kLt},
                    {"<=", Op::kLe},
                    {">", Op::kGt},
                    {">=", Op::kGe}});
  }
  std::optional<Op> take_sum() { return take_op({{"+", Op::kAdd}, {"-", Op::kSub}}); }
  std::optional<Op> take_product() {
    return take_op({{"*", Op::kMul}, {"/", Op::kDiv}, {"//", Op::kFloorDiv}, {"%", Op::kMod}});
  }
  std::optional<Op> take_power() { return take_op({{"**", Op::kPow}}); }

  // left (operator left)*, as one node.
  Result<ExpressionPtr> parse_ops(ExpressionKind kind,
                                  std::optional<Op> (ExpressionParser::*take_one)(),
                                  Parse operand) {
    CULET_TRY(ExpressionPtr first, (this->*operand)());
    Position at = current().at;
    std::optional<Op> op = (this->*take_one)();
    if (!op) return first;
    ExpressionPtr e = make(kind, at);
    e->operands.push_back(std::move(first));
    for (; op; op = (this->*take_one)()) {
      CULET_TRY(ExpressionPtr next, (this->*operand)());
      e->operands.push_back(std::move(next));
      e->ops.push_back(*op);
    }
    return finish(std::move(e));
  }

  Result<ExpressionPtr> parse_compare() {
    return parse_ops(ExpressionKind::kCompare, &ExpressionParser::take_comparison,
                     &ExpressionParser::parse_sum);
  }
  Result<ExpressionPtr> parse_sum() {
    return parse_ops(ExpressionKind::kArithmetic, &ExpressionParser::take_sum,
                     &ExpressionParser::parse_concat);
  }

  Result<ExpressionPtr> parse_concat() {
    CULET_TRY(ExpressionPtr first, parse_product());
    if (!current().is_op("~")) return first;
    ExpressionPtr e = make(ExpressionKind::kConcat, current().at);
    e->operands.push_back(std::move(first));
    while (skip_op("~")) {
      CULET_TRY(ExpressionPtr next, parse_product());
      e->operands.push_back(std::move(next));
    }
    return finish(std::move(e));
  }

  Result<ExpressionPtr> parse_product() {
    return parse_ops(ExpressionKind::kArithmetic, &ExpressionParser::take_product,
                     &ExpressionParser::parse_power);
  }
  Result<ExpressionPtr> parse_power() {
    return parse_ops(ExpressionKind::kArithmetic, &ExpressionParser::take_power,
                     &ExpressionParser::parse_filtered);
  }

  Result<ExpressionPtr> parse_filtered() {
    CULET_TRY(ExpressionPtr e, parse_unary());
    while (true) {
      if (current().is_op("|")) {
        CULET_TRY(e, parse_filter(std::move(e)));
      } else if (current().is_name("is")) {
        CULET_TRY(e, parse_test(std::move(e)));
      } else if (current().is_op("(")) {
        CULET_TRY(e, parse_call(std::move(e)));
      } else {
        return e;
      }
    }
  }

  Result<ExpressionPtr> parse_unary() {
    ExpressionPtr e;
    if (current().is_op("-") || current().is_op("+")) {
      const Level level(depth_);
      if (depth_ > max_depth_) return too_deep();
      const bool minus = current().is_op("-");
      e = make(minus ? ExpressionKind::kNegative : ExpressionKind::kPositive, take().at);
      CULET_TRY(ExpressionPtr operand, parse_unary());
      e->operands.push_back(std::move(operand));
      CULET_TRY(e, finish(std::move(e)));
    } else {
      CULET_TRY(e, parse_primary());
    }
    return parse_postfix(std::move(e));
  }

  Result<ExpressionPtr> parse_postfix(ExpressionPtr e) {
    while (true) {
      if (current().is_op(".")) {
        CULET_TRY(e, parse_attribute(std::move(e)));
      } else if (current().is_op("[")) {
        CULET_TRY(e, parse_item(std::move(e)));
      } else if (current().is_op("(")) {
        CULET_TRY(e, parse_call(std::move(e)));
      } else {
        return e;
      }
    }
  }

  Result<ExpressionPtr> parse_attribute(ExpressionPtr object) {
    const Position at = take().at;
    if (current().kind == TokenKind::kInteger) {
      ExpressionPtr index = make(ExpressionKind::kConstant, current().at);
      index->constant = Value(take().integer);
      ExpressionPtr e = make(ExpressionKind::kItem, at);
      e->operands.push_back(std::move(object));
      e->operands.push_back(std::move(index));
      return finish(std::move(e));
    }
    ExpressionPtr e = make(ExpressionKind::kAttribute, at);
    CULET_TRY(e->name, expect_name());
    e->operands.push_back(std::move(object));
    return finish(std::move(e));
  }

  Result<ExpressionPtr> parse_item(ExpressionPtr object) {
    const Position at = take().at;
    std::array<ExpressionPtr, 3> parts;
    size_t colons = 0;
    while (!current().is_op("]")) {
      if (skip_op(":")) {
        if (++colons > 2) return expected("']'");
        continue;
      }
      if (parts[colons]) return expected("']'");
      CULET_TRY(parts[colons], parse_expression());
    }
    if (colons == 0 && !parts[0]) return expected("an index");
    take();
    ExpressionPtr e = make(colons == 0 ? ExpressionKind::kItem : ExpressionKind::kSlice, at);
    e->operands.push_back(std::move(object));
    for (ExpressionPtr& part : parts) {
      if (colons > 0 || part) e->operands.push_back(std::move(part));
    }
    return finish(std::move(e));
  }

  Result<ExpressionPtr> parse_call(ExpressionPtr callee) {
    ExpressionPtr e = make(ExpressionKind::kCall, current().at);
    e->operands.push_back(std::move(callee));
    CULET_TRY(e->arguments, parse_arguments());
    return finish(std::move(e));
  }

  Result<std::vector<Argument>> parse_arguments() {
    std::vector<Argument> arguments;
    CULET_TRY_VOID(expect_op("("));
    while (!current().is_op(")")) {
      if (!arguments.empty()) {
        CULET_TRY_VOID(expect_op(","));
        if (current().is_op(")")) break;
      }
      Argument a{Argument::Kind::kPlain, nullptr, nullptr};
      if (skip_op("*")) {
        a.kind = Argument::Kind::kSpreadList;
      } else if (skip_op("**")) {
        a.kind = Argument::Kind::kSpreadDict;
      } else if (current().kind == TokenKind::kName && ahead().is_op("=")) {
        a.kind = Argument::Kind::kNamed;
        a.name = out_.names.intern(take().value);
        take();
      }
      if (!arguments.empty() && arguments.back().kind > a.kind) {
        return error(current().at, "positional arguments stand after named ones");
      }
      CULET_TRY(a.value, parse_expression());
      arguments.push_back(std::move(a));
    }
    take();
    return arguments;
  }

  Result<ExpressionPtr> parse_filter(ExpressionPtr value) {
    take();
    return parse_filter_name(std::move(value));
  }

  // The name and arguments of a filter; `value` is null for the text of a block.
  Result<ExpressionPtr> parse_filter_name(ExpressionPtr value) {
    ExpressionPtr e = make(ExpressionKind::kFilter, current().at);
    CULET_TRY(e->name, expect_dotted());
    e->native = find_filter(e->name->text);
    e->operands.push_back(std::move(value));
    if (current().is_op("(")) {
      CULET_TRY(e->arguments, parse_arguments());
    }
    return finish(std::move(e));
  }

  Result<const Name*> expect_dotted() {
    CULET_TRY(const Name* name, expect_name());
    while (skip_op(".")) {
      CULET_TRY(const Name* part, expect_name());
      name = out_.names.intern(name->text + "." + part->text);
    }
    return name;
  }

  bool starts_test_argument() const {
    const Token& t = current();
    switch (t.kind) {
      case TokenKind::kName:
        return !t.is_name("else") && !t.is_name("or") && !t.is_name("and");
      case TokenKind::kString:
      case TokenKind::kInteger:
      case TokenKind::kFloat:
        return true;
      default:
        return t.is_op("[") || t.is_op("{");
    }
  }

  Result<ExpressionPtr> parse_test(ExpressionPtr value) {
    ExpressionPtr e = make(ExpressionKind::kTest, take().at);
    const bool negated = skip_name("not");
    CULET_TRY(e->name, expect_dotted());
    e->native = find_test(e->name->text);
    e->operands.push_back(std::move(value));
    if (current().is_op("(")) {
      CULET_TRY(e->arguments, parse_arguments());
    } else if (starts_test_argument()) {
      if (current().is_name("is")) return error(current().at, "tests cannot be chained with 'is'");
      CULET_TRY(ExpressionPtr primary, parse_primary());
      CULET_TRY(ExpressionPtr argument, parse_postfix(std::move(primary)));
      e->arguments.push_back({Argument::Kind::kPlain, nullptr, std::move(argument)});
    }
    CULET_TRY(e, finish(std::move(e)));
    if (!negated) return e;
    ExpressionPtr negation = make(ExpressionKind::kNot, e->at);
    negation->operands.push_back(std::move(e));
    return finish(std::move(negation));
  }

  Result<ExpressionPtr> parse_primary() {
    const Level level(depth_);
    if (depth_ > max_depth_) return too_deep();
    ExpressionPtr e = make(ExpressionKind::kConstant, current().at);
    switch (current().kind) {
      case TokenKind::kName:
        return parse_name();
      case TokenKind::kInteger:
        e->constant = Value(take().integer);
        return e;
      case TokenKind::kFloat:
        e->constant = Value(take().real);
        return e;
      case TokenKind::kString: {
        std::string text;
        while (current().kind == TokenKind::kString) text += take().value;
        e->constant = constant_string(std::move(text));
        return e;
      }
      default:
        break;
    }
    if (current().is_op("(")) {
      take();
      CULET_TRY(e, parse_tuple({}, true));
      CULET_TRY_VOID(expect_op(")"));
      return e;
    }
    if (current().is_op("[")) return parse_list();
    if (current().is_op("{")) return parse_dict();
    return expected("an expression");
  }

  Result<ExpressionPtr> parse_name() {
    const Token& t = take();
    ExpressionPtr e = make(ExpressionKind::kConstant, t.at);
    if (t.value == "true" || t.value == "True") {
      e->constant = Value(true);
    } else if (t.value == "false" || t.value == "False") {
      e->constant = Value(false);
    } else if (t.value == "none" || t.value == "None") {
      e->constant = Value(None{});
    } else {
      e->kind = ExpressionKind::kName;
      e->name = out_.names.intern(t.value);
      for (MacroNode* macro : macros_) note_special_name(*macro, t.value);
    }
    return e;
  }

  static void note_special_name(MacroNode& macro, std::string_view name) {
    if (name == "caller") macro.uses_caller = true;
    if (name == "varargs") macro.uses_varargs = true;
    if (name == "kwargs") macro.uses_kwargs = true;
  }

  // One expression, or several with commas; `end` are the words that may follow.
  Result<ExpressionPtr> parse_tuple(Words end, bool may_be_empty, bool condition = true) {
    const Position at = current().at;
    std::vector<ExpressionPtr> items;
    bool comma = false;
    while (!at_tuple_end(end)) {
      CULET_TRY(ExpressionPtr item, condition ? parse_expression() : parse_or());
      items.push_back(std::move(item));
      if (!skip_op(",")) break;
      comma = true;
    }
    if (!comma && items.size() == 1) return std::move(items[0]);
    if (items.empty() && !may_be_empty) return expected("an expression");
    ExpressionPtr e = make(ExpressionKind::kTuple, at);
    e->operands = std::move(items);
    return finish(std::move(e));
  }

  bool at_tuple_end(Words end) const {
    const Token& t = current();
    if (t.kind == TokenKind::kPrintEnd || t.kind == TokenKind::kBlockEnd || t.is_op(")")) {
      return true;
    }
    return std::any_of(end.begin(), end.end(), [&](std::string_view w) { return t.is_name(w); });
  }

  Result<ExpressionPtr> parse_list() {
    ExpressionPtr e = make(ExpressionKind::kList, take().at);
    while (!current().is_op("]")) {
      if (!e->operands.empty()) {
        CULET_TRY_VOID(expect_op(","));
        if (current().is_op("]")) break;
      }
      CULET_TRY(ExpressionPtr item, parse_expression());
      e->operands.push_back(std::move(item));
    }
    take();
    return finish(std::move(e));
  }

  Result<ExpressionPtr> parse_dict() {
    ExpressionPtr e = make(ExpressionKind::kDict, take().at);
    while (!current().is_op("}")) {
      if (!e->operands.empty()) {
        CULET_TRY_VOID(expect_op(","));
        if (current().is_op("}")) break;
      }
      CULET_TRY(ExpressionPtr key, parse_expression());
      CULET_TRY_VOID(expect_op(":"));
      CULET_TRY(ExpressionPtr value, parse_expression());
      e->operands.push_back(std::move(key));
      e->operands.push_back(std::move(value));
    }
    take();
    return finish(std::move(e));
  }

  ParsedTemplate& out_;
  std::vector<Token> tokens_;
  size_t next_ = 0;
  int depth_ = 0;
  int max_depth_;
  std::vector<MacroNode*> macros_;
};

}  // namespace culet::chat
