// Operators, loosest first; each level is one function of the parser:
//   if-then-else, or alternatives with 'default' and 'as';  or;  and;  comparisons;  + -;  * / mod;
//   unary minus;  ? [] and .member;  numbers, strings, names, calls, parentheses
#include "expr/parser.h"

#include <fmt/format.h>

namespace culet::expr {
namespace {

constexpr int kMaxNesting = 60;   // of parentheses, conditionals, 'not' and '-'
constexpr int kMaxHeight = 200;   // of a tree, chains such as a + b + c included
constexpr size_t kMaxKids = 256;  // operands of one call, numbers of one shape, ...

using Kind = Expr::Kind;

struct Level {
  bool word;
  std::vector<std::string_view> operators;
};
const std::vector<Level>& levels() {
  static const std::vector<Level> kLevels = {{true, {"or"}},
                                             {true, {"and"}},
                                             {false, {"==", "!=", "<=", ">=", "<", ">"}},
                                             {false, {"+", "-"}},
                                             {false, {"*", "/", "mod"}}};
  return kLevels;
}
constexpr size_t kComparison = 2, kSum = 3;

constexpr std::string_view kTooDeep = "this expression is nested too deeply";

}  // namespace

ExprPtr ExpressionParser::node(Kind kind, SourceLocation p, std::string text) {
  auto e = std::make_unique<Expr>();
  e->kind = kind;
  e->location = p;
  e->text = std::move(text);
  return e;
}

ExprPtr ExpressionParser::operator_node(Kind kind) {
  const SourceLocation p = in_.location();
  return node(kind, p, in_.take_token().text);
}

Result<void> ExpressionParser::adopt(Expr* parent, ExprPtr kid) {
  parent->height = std::max(parent->height, kid->height + 1);
  parent->kids.push_back(std::move(kid));
  if (parent->height > kMaxHeight || parent->kids.size() > kMaxKids)
    return in_.error(parent->location,
                     "this expression is too long or nested too deeply; split it");
  return {};
}

Result<void> ExpressionParser::kid(Expr* parent) {
  CULET_TRY(ExprPtr e, expression());
  return adopt(parent, std::move(e));
}

Result<ExprPtr> ExpressionParser::expression() {
  if (++depth_ > kMaxNesting) return in_.error(in_.location(), kTooDeep);
  auto r = loosest();
  --depth_;
  return r;
}

Result<ExprPtr> ExpressionParser::conditional(SourceLocation p) {
  ExprPtr e = node(Kind::kIf, p);
  CULET_TRY_VOID(kid(e.get()));
  if (!in_.accept_word("then")) return in_.expected("'then'");
  CULET_TRY_VOID(kid(e.get()));
  if (!in_.accept_word("else")) return in_.expected("'else'; a conditional has both sides");
  CULET_TRY_VOID(kid(e.get()));
  return e;
}

Result<ExprPtr> ExpressionParser::loosest() {
  const SourceLocation p = in_.location();
  if (in_.accept_word("if")) return conditional(p);
  CULET_TRY(ExprPtr e, binary(0));
  if (in_.is_symbol("|")) {
    ExprPtr all = node(Kind::kAlternative, p);
    CULET_TRY_VOID(adopt(all.get(), std::move(e)));
    while (in_.accept_symbol("|")) {
      CULET_TRY(ExprPtr next, binary(0));
      CULET_TRY_VOID(adopt(all.get(), std::move(next)));
    }
    e = std::move(all);
  }
  if (in_.accept_word("default")) {
    ExprPtr d = node(Kind::kDefault, p);
    CULET_TRY_VOID(adopt(d.get(), std::move(e)));
    CULET_TRY_VOID(kid(d.get()));
    e = std::move(d);
  }
  if (in_.accept_word("as")) {
    ExprPtr a = node(Kind::kAs, p);
    CULET_TRY_VOID(adopt(a.get(), std::move(e)));
    CULET_TRY_VOID(in_.want_symbol("["));
    do CULET_TRY_VOID(kid(a.get()));
    while (in_.accept_symbol(","));
    CULET_TRY_VOID(in_.want_symbol("]"));
    e = std::move(a);
  }
  return e;
}

Result<ExprPtr> ExpressionParser::binary(size_t level) {
  if (level == levels().size()) return unary();
  if (level == kComparison && in_.is_word("not")) {
    ExprPtr e = operator_node(Kind::kUnary);
    if (++depth_ > kMaxNesting) return in_.error(in_.location(), kTooDeep);
    CULET_TRY(ExprPtr operand, binary(level));
    --depth_;
    CULET_TRY_VOID(adopt(e.get(), std::move(operand)));
    return e;
  }
  CULET_TRY(ExprPtr left, binary(level + 1));
  for (;;) {
    const auto& ops = levels()[level].operators;
    const bool word = in_.peek().kind == LexToken::Kind::kName;
    if ((!word && in_.peek().kind != LexToken::Kind::kSymbol) ||
        std::find(ops.begin(), ops.end(), in_.peek().text) == ops.end())
      return left;
    ExprPtr e = operator_node(Kind::kBinary);
    CULET_TRY(ExprPtr right, binary(level + 1));
    CULET_TRY_VOID(adopt(e.get(), std::move(left)));
    CULET_TRY_VOID(adopt(e.get(), std::move(right)));
    left = std::move(e);
  }
}

Result<ExprPtr> ExpressionParser::unary() {
  if (!in_.is_symbol("-")) return postfix();
  ExprPtr e = operator_node(Kind::kUnary);
  if (++depth_ > kMaxNesting) return in_.error(in_.location(), kTooDeep);
  CULET_TRY(ExprPtr operand, unary());
  --depth_;
  CULET_TRY_VOID(adopt(e.get(), std::move(operand)));
  return e;
}

Result<ExprPtr> ExpressionParser::postfix() {
  CULET_TRY(ExprPtr e, primary());
  for (;;) {
    const SourceLocation p = in_.location();
    if (in_.accept_symbol("?")) {
      ExprPtr o = node(Kind::kOptional, p);
      CULET_TRY_VOID(adopt(o.get(), std::move(e)));
      e = std::move(o);
    } else if (in_.accept_symbol("[")) {
      ExprPtr x = node(Kind::kIndex, p);
      CULET_TRY_VOID(adopt(x.get(), std::move(e)));
      CULET_TRY_VOID(kid(x.get()));
      CULET_TRY_VOID(in_.want_symbol("]"));
      e = std::move(x);
    } else if (in_.accept_symbol(".")) {
      ExprPtr m = node(Kind::kMember, p);
      CULET_TRY_VOID(adopt(m.get(), std::move(e)));
      CULET_TRY(m->text, in_.want_name("a member's name"));
      e = std::move(m);
    } else {
      return e;
    }
  }
}

Result<ExprPtr> ExpressionParser::parentheses(SourceLocation p) {
  CULET_TRY(ExprPtr e, expression());
  if (in_.is_symbol(",")) {
    ExprPtr tuple = node(Kind::kTuple, p);
    CULET_TRY_VOID(adopt(tuple.get(), std::move(e)));
    while (in_.accept_symbol(",")) CULET_TRY_VOID(kid(tuple.get()));
    e = std::move(tuple);
  }
  CULET_TRY_VOID(in_.want_symbol(")"));
  return e;
}

Result<ExprPtr> ExpressionParser::primary() {
  const SourceLocation p = in_.location();
  if (in_.accept_symbol("(")) return parentheses(p);
  if (in_.peek().kind == LexToken::Kind::kNumber) {
    ExprPtr e = node(Kind::kNumber, p, in_.peek().text);
    e->number = in_.take_token().number;
    return e;
  }
  if (in_.peek().kind == LexToken::Kind::kString)
    return node(Kind::kString, p, in_.take_token().text);
  if (in_.peek().kind != LexToken::Kind::kName) return in_.expected("a name, a number or '('");
  std::string name = in_.take_token().text;
  if (!in_.is_symbol("(")) return node(Kind::kName, p, std::move(name));
  if (name == "last" || name == "target.last") return last(p, name == "target.last");
  return call(p, std::move(name));
}

// last(j < n where condition)
Result<ExprPtr> ExpressionParser::last(SourceLocation p, bool on_target) {
  in_.take_token();
  ExprPtr e = node(Kind::kLast, p);
  e->on_target = on_target;
  CULET_TRY(e->text, in_.want_plain_name("the layer variable, as in last(j < n where ...)"));
  CULET_TRY_VOID(in_.want_symbol("<"));
  CULET_TRY(ExprPtr bound, binary(kSum));
  CULET_TRY_VOID(adopt(e.get(), std::move(bound)));
  if (!in_.accept_word("where")) return in_.expected("'where' and a condition");
  CULET_TRY_VOID(kid(e.get()));
  CULET_TRY_VOID(in_.want_symbol(")"));
  return e;
}

Result<ExprPtr> ExpressionParser::call(SourceLocation p, std::string name) {
  in_.take_token();
  ExprPtr e = node(Kind::kCall, p, std::move(name));
  while (!in_.is_symbol(")")) {
    if (in_.peek().kind == LexToken::Kind::kName && in_.is_symbol("=", 1)) {
      NamedArgument a;
      a.location = in_.location();
      a.name = in_.take_token().text;
      in_.take_token();
      for (const NamedArgument& other : e->named)
        if (other.name == a.name)
          return in_.error(a.location, fmt::format("'{}=' is given twice", a.name));
      CULET_TRY(a.value, expression());
      e->height = std::max(e->height, a.value->height + 1);
      e->named.push_back(std::move(a));
      if (e->height > kMaxHeight || e->named.size() > kMaxKids)
        return in_.error(p, "this call is too long or nested too deeply");
    } else {
      if (!e->named.empty())
        return in_.error(in_.location(), "operands stand before the named hyperparameters");
      CULET_TRY_VOID(kid(e.get()));
    }
    if (!in_.accept_symbol(",")) break;
    if (in_.is_symbol(")")) return in_.expected("another operand after ','");
  }
  CULET_TRY_VOID(in_.want_symbol(")"));
  return e;
}

Result<ExprPtr> parse_expression(const std::vector<SourceFile>& files, int file, size_t begin,
                                 size_t end) {
  CULET_TRY(std::vector<LexLine> lines, lex_part(files, file, begin, end));
  TokenReader in(files, file, std::move(lines));
  if (!in.more_lines()) return in.error(in.here(), "an expression is missing here");
  CULET_TRY(ExprPtr e, ExpressionParser(in).expression());
  CULET_TRY_VOID(in.end_of_line());
  if (in.more_lines()) return in.expected("the end of the expression");
  return e;
}

}  // namespace culet::expr
