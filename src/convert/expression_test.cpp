#include "convert/expression.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <string>

namespace culet::convert {
namespace {

const nlohmann::ordered_json kConfig = nlohmann::ordered_json::parse(R"({
  "width": 64, "heads": 4, "nothing": null, "name": "gelu", "tied": true,
  "rope": {"kind": "linear", "factor": 8.5}, "twin": {"kind": "linear", "factor": 8.5},
  "single": ["a"], "parts": {"05": {"kind": "five"}, "12": {"kind": "twelve"}, "x": 1},
  "types": ["window", "full", "window"], "inner": {"width": 32, "only": 1},
  "layers": [{"kind": "a"}, {"kind": "b"}]})");

Scope scope() {
  Scope made(&kConfig);
  const auto define = [&made](const char* name, const char* text) {
    made.define(name, *Expression::parse(text));
  };
  define("head", "head_dim default width / heads");
  define("local", "types[i] == \"window\"");
  define("loop", "loop + 1");
  define("twice", "head + head");
  return made;
}

// The value as text, or the error.
std::string value(const std::string& text, std::optional<int64_t> index = {}) {
  const auto parsed = Expression::parse(text);
  if (!parsed) return parsed.error().message;
  const auto result = scope().value(*parsed, index);
  return result ? result->show() : result.error().message;
}

TEST(Expression, Arithmetic) {
  EXPECT_EQ(value("1 + 2 * 3 - 8 / 4"), "5");
  EXPECT_EQ(value("(1 + 2) * -3"), "-9");
  EXPECT_EQ(value("7 mod 3"), "1");
  EXPECT_EQ(value("1e-12"), "1e-12");
  EXPECT_EQ(value("floor(7 / 2) + ceil(1.5) + sqrt(9) + pow(2, 3) + max(1, 2) + min(1, 2)"), "19");
  EXPECT_EQ(value("ln(1)"), "0");
  EXPECT_EQ(value("width / 0"), "division of 64 by zero (in: width / 0)");
  EXPECT_EQ(value("name + 1"),
            "a number is needed here, but this is a string (\"gelu\") (in: name + 1)");
}

TEST(Expression, NamesAndWhatIsMissing) {
  EXPECT_EQ(value("rope.factor"), "8.5");
  EXPECT_EQ(value("layers[1].kind"), "\"b\"");
  EXPECT_EQ(value("layers[0].kind.none"), "none");
  EXPECT_EQ(value("types[1]"), "\"full\"");
  for (const char* text : {"head_dim", "nothing", "rope.none", "none", "types[3]", "other.member",
                           "head_dim * 2", "nothing == 3", "types[-1]"}) {
    EXPECT_EQ(value(text), "none") << text;
  }
  EXPECT_EQ(value("nothing default head_dim default 3"), "3");
  EXPECT_EQ(value("head"), "16");
  EXPECT_EQ(value("twice"), "32");
  EXPECT_EQ(value("has(width) and not has(head_dim)"), "yes");
  EXPECT_EQ(value("loop"), "the definition of loop needs itself (in: loop)");
}

TEST(Expression, Conditions) {
  EXPECT_EQ(value("if width > 32 then \"wide\" else \"narrow\""), "\"wide\"");
  EXPECT_EQ(value("width >= 64 and width <= 64 and width != 63 and not width < 64"), "yes");
  EXPECT_EQ(value("nothing or tied"), "yes");
  EXPECT_EQ(value("nothing and 1"), "no");
  EXPECT_EQ(value("name == \"gelu\""), "yes");
  EXPECT_EQ(value("name == 3"), "a string is compared with a number (in: name == 3)");
  EXPECT_EQ(value("types == types"),
            "an array cannot be compared; has(NAME) says whether something is there (in: types == "
            "types)");
  EXPECT_EQ(
      value("width and tied"),
      "a condition (yes or no) is needed here, but this is a number (64) (in: width and tied)");
}

TEST(Expression, Layers) {
  EXPECT_EQ(value("local", 0), "yes");
  EXPECT_EQ(value("local", 1), "no");
  EXPECT_EQ(value("i"), "none");
  EXPECT_EQ(value("first(types, \"full\") + 1"), "2");
  EXPECT_EQ(value("first(types, \"none\") default 6"), "6");
}

TEST(Expression, InnerObjectsAreLookedInFirst) {
  Scope made(&kConfig);
  made.look_first_in(&kConfig["inner"]);
  made.name("other", &kConfig["rope"]);
  const auto number = [&made](const char* text) { return *made.number(*Expression::parse(text)); };
  EXPECT_EQ(number("width"), 32);
  EXPECT_EQ(number("only"), 1);
  EXPECT_EQ(number("heads"), 4);
  EXPECT_EQ(number("other.factor"), 8.5);
}

TEST(Expression, KindsThatAreAskedFor) {
  const auto parsed = [](const char* text) { return *Expression::parse(text); };
  const Scope made = scope();
  EXPECT_EQ(*made.integer(parsed("width")), 64);
  EXPECT_EQ(made.integer(parsed("rope.factor")).error().message,
            "8.5 is not a whole number (in: rope.factor)");
  EXPECT_EQ(made.number(parsed("head_dim * 2")).error().message,
            "the configuration has no head_dim (for: head_dim * 2)");
  EXPECT_EQ(made.number(parsed("name")).error().message,
            "a number is needed here, but this is a string (\"gelu\") (in: name)");
  EXPECT_FALSE(*made.holds(parsed("nothing")));
  EXPECT_FALSE(made.holds(parsed("width")));
}

TEST(Expression, Functions) {
  EXPECT_EQ(value("count(types)"), "3");
  EXPECT_EQ(value("count(none)"), "none");
  EXPECT_EQ(value("only(single)"), "\"a\"");
  EXPECT_EQ(value("only(name)"), "\"gelu\"");
  EXPECT_EQ(value("same(only(types), \"a\")"), "no");
  EXPECT_EQ(value("same(rope, twin)"), "yes");
  EXPECT_EQ(value("same(rope, inner)"), "no");
  EXPECT_EQ(value("numbered(parts, i).kind", 5), "\"five\"");
  EXPECT_EQ(value("numbered(parts, i).kind", 12), "\"twelve\"");
  EXPECT_EQ(value("numbered(parts, i).kind", 1), "none");
  EXPECT_EQ(value("has_tensor(\"a\")"), "no");  // without a checkpoint there are none
}

TEST(Expression, DefaultsAreForWhatIsNotThereAndNotForNull) {
  Scope made = scope();
  made.set_default("nothing", *Expression::parse("30"), std::nullopt);
  made.set_default("absent", *Expression::parse("1"), *Expression::parse("width == 1"));
  made.set_default("absent", *Expression::parse("width * 2"), std::nullopt);
  made.set_default("round", *Expression::parse("round + 1"), std::nullopt);
  made.alias("heads", "num_heads");
  const auto shown = [&made](const char* text) {
    const auto result = made.value(*Expression::parse(text));
    return result ? result->show() : result.error().message;
  };
  EXPECT_EQ(shown("nothing"), "none");
  EXPECT_EQ(shown("nothing default 0"), "0");
  EXPECT_EQ(shown("absent"), "128");
  EXPECT_EQ(shown("num_heads"), "4");
  EXPECT_EQ(shown("round"), "the default of round needs itself (in: round)");
}

TEST(Expression, WhatWasReadIsRemembered) {
  const Scope made = scope();
  const auto read = [&made](const char* text, std::optional<int64_t> index = {}) {
    ASSERT_TRUE(made.value(*Expression::parse(text), index));
  };
  const auto& rope = kConfig.at("rope");
  read("rope.factor default rope.kind");
  EXPECT_TRUE(made.was_read(&rope.at("factor")));
  EXPECT_FALSE(made.was_read(&rope.at("kind")));
  EXPECT_FALSE(made.was_read(&rope));  // an object is judged by its parts
  read("has(heads) or name == 1");
  EXPECT_TRUE(made.was_read(&kConfig.at("heads")));
  EXPECT_FALSE(made.was_read(&kConfig.at("name")));  // not evaluated
  read("types[i]", 1);
  EXPECT_TRUE(made.was_read(&kConfig.at("types")[1]));
  EXPECT_FALSE(made.was_read(&kConfig.at("types")[2]));
  read("first(types, \"full\")");
  EXPECT_TRUE(made.was_read(&kConfig.at("types")));
}

TEST(Expression, Mistakes) {
  EXPECT_EQ(value("1 +"),
            "expression:1:4: expected a name, a number or '(', found 'end of line' (in: 1 +)");
  EXPECT_EQ(value("1 2"), "expression:1:3: expected the end of the line, found '2' (in: 1 2)");
  EXPECT_EQ(value(""), "expression:1:1: an expression is missing here");
  EXPECT_EQ(value("1\n2"), "expression:2:1: expected the end of the expression, found '2' (in: 2)");
  EXPECT_EQ(value("'text'"), "expression:1:1: ''' has no meaning here (in: 'text')");
  EXPECT_EQ(value("pow(2)"), "pow takes 2 argument(s) (in: pow(2))");
  EXPECT_EQ(
      value("log(2)"),
      "there is no function 'log' (functions: has, first, count, only, same, numbered, has_tensor, "
      "same_tensors, sqrt, floor, ceil, ln, pow, min, max) (in: log(2))");
  EXPECT_EQ(value("width[0]"), "a number (64) has no elements (in: width[0])");
  EXPECT_EQ(value("width as [1]"), "this has no meaning in a family file (in: width as [1])");
  EXPECT_EQ(value("last(j < 2 where yes)"),
            "this has no meaning in a family file (in: last(j < 2 where yes))");
}

TEST(Expression, DefinitionsThatUseEachOtherAreBounded) {
  Scope deep(&kConfig), wide(&kConfig);
  deep.define("d0", *Expression::parse("1"));
  wide.define("d0", *Expression::parse("1"));
  for (int k = 1; k < 2000; ++k) {
    const std::string before = "d" + std::to_string(k - 1), name = "d" + std::to_string(k);
    deep.define(name, *Expression::parse(before + " + 1"));
    wide.define(name, *Expression::parse(before + " + " + before));
  }
  EXPECT_NE(deep.value(*Expression::parse("d1999")).error().message.find("too deeply"),
            std::string::npos);
  EXPECT_NE(wide.value(*Expression::parse("d40")).error().message.find("too many steps"),
            std::string::npos);
}

}  // namespace
}  // namespace culet::convert
