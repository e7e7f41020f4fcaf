#include "convert/family.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace culet::convert {
namespace {

std::string mistake(std::string_view text) {
  const auto family = parse_family("test", text, builtin_families());
  return family ? "" : family.error().message;
}

TEST(Family, EveryBuiltInFileIsRead) {
  std::set<std::string> names, models;
  for (const FamilyText& entry : builtin_families()) {
    const auto family = parse_family(entry.name, entry.text, builtin_families());
    ASSERT_TRUE(family) << family.error().message;
    if (family->models.empty()) continue;  // a part of others
    EXPECT_TRUE(names.insert(family->name).second) << entry.name;
    for (const std::string& model : family->models) {
      EXPECT_TRUE(models.insert(model).second) << model;
      EXPECT_EQ(find_family(model, builtin_families())->name, family->name);
    }
    EXPECT_FALSE(family->tensors.empty()) << entry.name;
  }
  EXPECT_EQ(names.size(), 18u);
}

TEST(Family, LaterRowsReplaceIncludedOnes) {
  const FamilyText library[] = {
      {"base",
       "let a = 1\nmeta u32 x = a\nmeta u32 y = a\ntensor from -> one\ntensor from -> two\n"},
      {"test",
       "family f\nmodels A, B\ninclude base\nlet a = 2  # another\nmeta f32 x = a when a > 1\n"
       "meta f32 x = 3 when a < 1\ntensor other.{i} -> one? : rotate(a), plus_one when a == 2\n"
       "without two\n"}};
  const auto family = parse_family("test", library[1].text, library);
  ASSERT_TRUE(family) << family.error().message;
  EXPECT_EQ(family->models, (std::vector<std::string>{"A", "B"}));
  EXPECT_EQ(family->definitions.at("a").text(), "2");
  ASSERT_EQ(family->metadata.size(), 3u);
  EXPECT_EQ(family->metadata[0].key, "y");
  EXPECT_EQ(family->metadata[1].kind, MetaKind::kFloat32);
  ASSERT_EQ(family->tensors.size(), 1u);
  const TensorRow& row = family->tensors[0];
  EXPECT_EQ(row.from, "other.{i}");
  EXPECT_TRUE(row.optional);
  ASSERT_EQ(row.transforms.size(), 2u);
  EXPECT_EQ(row.transforms[0].kind, Transform::Kind::kRotate);
  EXPECT_EQ(row.transforms[1].kind, Transform::Kind::kPlusOne);
  EXPECT_EQ(row.when->text(), "a == 2");
}

TEST(Family, MistakesHaveTheirPlace) {
  EXPECT_EQ(mistake("family a\n\nfamly b\n"), "test.family:3: there is no statement 'famly'");
  EXPECT_EQ(mistake("include none"), "test.family:1: there is no family file 'none'");
  EXPECT_EQ(mistake("meta u16 x = 1"), "test.family:1: 'u16' is not a kind of value");
  EXPECT_EQ(mistake("meta u32 x"), "test.family:1: 'meta' needs KIND KEY = EXPRESSION");
  EXPECT_EQ(mistake("family a\n  let a = 1 +  # more"),
            "test.family:2:14: expected a name, a number or '(', found 'end of line' (in: let a = "
            "1 +  # more)");
  EXPECT_EQ(mistake("tensor a"), "test.family:1: 'tensor' needs FROM -> TO");
  EXPECT_EQ(mistake("tensor a -> b : turn"), "test.family:1: there is no change of tensors 'turn'");
  EXPECT_EQ(mistake("tensor a -> b : part(1)"), "test.family:1: 'part' takes 2 operands");
  EXPECT_EQ(mistake("require a"), "test.family:1: 'require' needs EXPRESSION : MESSAGE");
  EXPECT_EQ(mistake("values a = 1"), "test.family:1: 'values' needs NAME [COUNT] = EXPRESSION");
  EXPECT_EQ(mistake("without a"), "test.family:1: there is no tensor 'a' so far");
  EXPECT_EQ(mistake("models"), "test.family:1: 'models' needs something after it");
  const FamilyText circle[] = {{"test", "include test"}};
  EXPECT_EQ(parse_family("test", "include test", circle).error().message,
            "test.family:1: files include each other too deeply");
}

}  // namespace
}  // namespace culet::convert
