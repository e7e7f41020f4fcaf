#include "expr/evaluator.h"
#include "expr/parser.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace culet::expr {
namespace {

class List : public Thing {
 public:
  std::string_view kind() const override { return "a list"; }
  std::string show() const override { return "list of 2"; }
};

// a = 2, s = "text", l: a list, w = window(4); gone: absent; f(x) = x + 1. Counts what it is asked.
class TestHost : public Host {
 public:
  Result<void> enter(const Expr&) override {
    ++depth;
    return {};
  }
  void leave() override { --depth; }
  Result<Value> name(const Expr& e) override {
    if (e.text == "a") return Value{2.0};
    if (e.text == "s") return Value{std::string("text")};
    if (e.text == "l") return Value{std::make_shared<List>()};
    if (e.text == "w") return Value{Word{"window", 4}};
    if (e.text == "gone") return Value{Absent{"gone"}};
    if (e.text == "large") return Value{1e308};
    return error(e, "no name " + e.text);
  }
  Result<Value> before_default(const Expr& e) override {
    return e.text == "s" ? name(e) : Result<Value>(Value{Absent{e.text}});
  }
  Result<std::optional<Value>> call(const Expr& e) override {
    if (e.text != "f") return std::optional<Value>();
    return Value{e.kids[0]->number + 1};
  }
  std::string functions() const override { return "f"; }
  Result<Value> other(const Expr& e) override { return error(e, "no meaning"); }
  tl::unexpected<Error> error(const Expr& e, std::string_view message,
                              ErrorCode code = ErrorCode::kInvalidArgument) const override {
    return fail(code, std::to_string(e.location.column) + ": " + std::string(message));
  }

  int depth = 0;
};

std::vector<SourceFile> file(const std::string& text) { return {{"file", text, 0}}; }

std::string value(const std::string& text, AbsentRule rule = AbsentRule::kIsAValue) {
  const auto files = file(text);
  const auto e = parse_expression(files, 0, 0, text.size());
  if (!e) return e.error().message;
  TestHost host;
  const auto result = Evaluator(host, rule).eval(**e);
  EXPECT_EQ(host.depth, 0) << text;
  return result ? result->show() : result.error().message;
}

// The tree with every operator in parentheses.
std::string tree(const Expr& e) {
  std::string out = e.text;
  for (const ExprPtr& kid : e.kids) out += " " + tree(*kid);
  for (const NamedArgument& a : e.named) out += " " + a.name + "=" + tree(*a.value);
  return e.kids.empty() && e.named.empty() ? out : "(" + out + ")";
}
std::string tree_of(const std::string& text) {
  const auto files = file(text);
  const auto e = parse_expression(files, 0, 0, text.size());
  return e ? tree(**e) : e.error().message;
}

TEST(Expr, BindsAsTheGrammarSays) {
  EXPECT_EQ(tree_of("1 + 2 * 3 - 4"), "(- (+ 1 (* 2 3)) 4)");
  EXPECT_EQ(tree_of("-a * b mod c"), "(mod (* (- a) b) c)");
  EXPECT_EQ(tree_of("not a == b and c or d"), "(or (and (not (== a b)) c) d)");
  EXPECT_EQ(tree_of("a.b[i + 1].c"), "(c ( a.b (+ i 1)))");
  EXPECT_EQ(tree_of("f(a, b, k=1 + 2)"), "(f a b k=(+ 1 2))");
  EXPECT_EQ(tree_of("if a then b else c default d"), "( a b ( c d))");
  EXPECT_EQ(tree_of("last(j < n + 1 where j == 2)"), "(j (+ n 1) (== j 2))");
  EXPECT_EQ(tree_of("(a, b)"), "( a b)");
  EXPECT_EQ(tree_of("a | b? as [2, n]"), "( ( a ( b)) 2 n)");
  EXPECT_EQ(tree_of("(1\n + 2)"), "(+ 1 2)");
}

TEST(Expr, MistakesHaveALocation) {
  EXPECT_EQ(tree_of("1 +"),
            "file:1:4: expected a name, a number or '(', found 'end of line' (in: 1 +)");
  EXPECT_EQ(tree_of("(1"), "file:1:1: this parenthesis is never closed (in: (1)");
  EXPECT_EQ(tree_of("a[1)"), "file:1:4: expected ']', found ')' (in: a[1))");
  EXPECT_EQ(tree_of("1 2"), "file:1:3: expected the end of the line, found '2' (in: 1 2)");
  EXPECT_EQ(tree_of("\"text"),
            "file:1:1: this string has no closing quote on its line (in: \"text)");
  EXPECT_EQ(tree_of("if 1 then 2"),
            "file:1:12: expected 'else'; a conditional has both sides, found 'end of line' (in: "
            "if 1 then 2)");
  EXPECT_EQ(tree_of("1 ; 2"), "file:1:3: ';' has no meaning here (in: 1 ; 2)");
  EXPECT_EQ(tree_of("1.5.2"), "file:1:5: expected a member's name, found '2' (in: 1.5.2)");
  EXPECT_EQ(tree_of(" # nothing"), "file:1:1: an expression is missing here (in: # nothing)");
  const auto part = [](const std::string& text, const std::string& of) {
    const auto files = file(text);
    const auto e = parse_expression(files, 0, text.find(of), text.find(of) + of.size());
    return e ? tree(**e) : e.error().message;
  };
  EXPECT_EQ(part("one\nlet a = b + 1 when c", "b + 1"), "(+ b 1)");
  EXPECT_EQ(part("one\nlet a = b + when c", "b +"),
            "file:2:12: expected a name, a number or '(', found 'end of line' (in: let a = b + "
            "when c)");
}

TEST(Expr, DeepAndLongOnesAreRefused) {
  const auto refused = [](const std::string& text) {
    return tree_of(text).find("nested too deeply") != std::string::npos;
  };
  EXPECT_TRUE(refused(std::string(900, '(') + "1" + std::string(900, ')')));
  EXPECT_TRUE(refused(std::string(900, '-') + "1"));
  std::string nots = "yes", chain = "0", members = "a[0]";
  for (int k = 0; k < 900; ++k) nots.insert(0, "not "), chain += "+1", members += ".b";
  EXPECT_TRUE(refused(nots));
  EXPECT_TRUE(refused(chain));
  EXPECT_TRUE(refused("f(" + chain + ")"));
  EXPECT_NE(tree_of(members).find("longer than 256 bytes"), std::string::npos);
}

TEST(Expr, NumbersConditionsAndFunctions) {
  EXPECT_EQ(value("1 + a * 3 - 8 / 4"), "5");
  EXPECT_EQ(value("(1 + 2) * -3"), "-9");
  EXPECT_EQ(value("7 mod 3 + -1 mod 3"), "3");
  EXPECT_EQ(value("sqrt(9) + floor(1.5) + ceil(1.5) + ln(1) + pow(a, 3) + min(1, 2) + max(1, 2)"),
            "17");
  EXPECT_EQ(value("floor(pi * 100)"), "314");
  EXPECT_EQ(value("f(4)"), "5");
  EXPECT_EQ(value("if a > 1 and not a >= 3 then \"yes\" else s"), "\"yes\"");
  EXPECT_EQ(value("s == \"text\" and w == w and yes != no and true == yes"), "yes");
  EXPECT_EQ(value("no and l"), "no");  // not looked at
  EXPECT_EQ(value("s default 1"), "\"text\"");
  EXPECT_EQ(value("t default a + 1"), "3");
  EXPECT_EQ(value("a + s"), "5: a number is needed here, but this is a string (\"text\")");
  EXPECT_EQ(value("a and yes"),
            "1: a condition (yes or no) is needed here, but this is a number (2)");
  EXPECT_EQ(value("a == s"), "3: a number is compared with a string");
  EXPECT_EQ(value("l == l"),
            "3: a list cannot be compared; has(NAME) says whether something is there");
  EXPECT_EQ(value("a / 0"), "3: division of 2 by zero");
  EXPECT_EQ(value("a mod 0"), "3: division of 2 by zero");
  EXPECT_EQ(value("large * 10"), "7: the result of this is no finite number");
  EXPECT_EQ(value("sqrt(-1)"), "1: the result of this is no finite number");
  EXPECT_EQ(value("sqrt(1, 2)"), "1: sqrt takes 1 argument(s)");
  EXPECT_EQ(value("g(1)"),
            "1: there is no function 'g' (functions: f, sqrt, floor, ceil, ln, pow, min, max)");
  EXPECT_EQ(value("a?"), "2: no meaning");
}

TEST(Expr, WhatIsAbsentIsAValueOrSpreads) {
  EXPECT_EQ(value("gone == none"), "yes");
  EXPECT_EQ(value("gone == 1"), "no");
  EXPECT_EQ(value("gone + 1"), "1: a number is needed here, but this is none (none)");
  EXPECT_EQ(value("if gone then 1 else 2"),
            "4: a condition (yes or no) is needed here, but this is none (none)");
  for (const char* text : {"gone", "gone + 1", "-gone", "gone == 1", "1 < gone", "sqrt(gone)"}) {
    EXPECT_EQ(value(text, AbsentRule::kSpreads), "none") << text;
  }
  EXPECT_EQ(value("gone or yes", AbsentRule::kSpreads), "yes");
  EXPECT_EQ(value("not gone", AbsentRule::kSpreads), "yes");
  EXPECT_EQ(value("if gone == 1 then 1 else 2", AbsentRule::kSpreads), "2");
}

}  // namespace
}  // namespace culet::expr
