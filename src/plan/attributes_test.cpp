#include "plan/attribute_fields.h"
#include "plan/signature.h"

#include <gtest/gtest.h>

namespace culet::plan {
namespace {

TEST(Attributes, EveryAttributeThatAFileCanWriteHasAField) {
  using K = AttributeRule::Kind;
  for (const Signature& s : signatures()) {
    for (const AttributeRule& rule : s.attributes) {
      Attributes attributes = attributes_of(s.kind);
      RopeSpec rope;
      const AttributeTarget target{s.kind, &attributes, &rope};
      if (rule.kind == K::kTensor) continue;  // an operand
      if (rule.kind == K::kWord || rule.kind == K::kMask) {
        const auto set = set_word(target, rule.name, {"nonsense", 0});
        ASSERT_FALSE(set);
        EXPECT_TRUE(set.error().message.starts_with(rule.name + "= is 'nonsense'; it is one of: "));
        EXPECT_TRUE(!rule.has_default || set_word(target, rule.name, {rule.default_text, 0}))
            << rule.name;
      } else {
        set_number(target, rule.name, 1);  // aborts where there is none
      }
    }
  }
}

TEST(Attributes, NumbersAndWordsReachTheStructOfTheirOperation) {
  Attributes attend = attributes_of(OpKind::attend), route = attributes_of(OpKind::route);
  RopeSpec rope;
  set_number({OpKind::attend, &attend, &rope}, "scale", 0.25);
  set_number({OpKind::route, &route, &rope}, "scale", 3);
  ASSERT_TRUE(set_word({OpKind::attend, &attend, &rope}, "mask", {"band", 7}));
  EXPECT_EQ(attend.as<AttendAttributes>().scale, 0.25f);
  EXPECT_EQ(attend.as<AttendAttributes>().mask, Mask::kBand);
  EXPECT_EQ(attend.as<AttendAttributes>().band, 7);
  EXPECT_EQ(route.as<RouteAttributes>().scale, 3.0f);
  EXPECT_EQ(rope.scale, 1);
}

TEST(Attributes, OnlyTheOperationsOwnStructCanBeRead) {
  const Op op = make_op(OpKind::softcap, kNone, 1);
  EXPECT_EQ(op.attr.as<SoftcapAttributes>().cap, 0);
  EXPECT_EQ(op.attr.get_if<AttendAttributes>(), nullptr);
  EXPECT_EQ(cache_of(op), kNone);
  EXPECT_DEATH((void)op.attr.as<AttendAttributes>(), "found != nullptr");
  EXPECT_TRUE(op.attr.same_kind(attributes_of(OpKind::softcap)));
  EXPECT_FALSE(op.attr.same_kind(attributes_of(OpKind::linear)));
}

}  // namespace
}  // namespace culet::plan
