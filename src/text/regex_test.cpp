#include "text/regex.h"

#include <gtest/gtest.h>

#include <string>

namespace culet::text {
namespace {

std::string split(std::string_view pattern, std::string_view text) {
  auto regex = Regex::compile(pattern);
  EXPECT_TRUE(regex) << regex.error().message;
  std::vector<Span> spans = {{0, text.size()}};
  const auto done = regex->split(text, &spans);
  EXPECT_TRUE(done) << done.error().message;
  std::string out;
  for (const Span& span : spans)
    out += "[" + std::string(text.substr(span.begin, span.end - span.begin)) + "]";
  return out;
}

TEST(Regex, MatchesAndTheGapsBetweenThem) {
  EXPECT_EQ(split("[0-9]+", "ab12c3"), "[ab][12][c][3]");
  EXPECT_EQ(split("x", "abc"), "[abc]");
  EXPECT_EQ(split("x", ""), "");
}

TEST(Regex, SeesCodePointsAndProperties) {
  EXPECT_EQ(split(R"(\p{L}+)", "\xc3\xa9t\xc3\xa9 1"), "[\xc3\xa9t\xc3\xa9][ 1]");
  EXPECT_EQ(split(".", "\xf0\x9f\x98\x80\xc3\xa9"), "[\xf0\x9f\x98\x80][\xc3\xa9]");
}

TEST(Regex, ASpanIsATextOfItsOwn) {
  auto regex = Regex::compile(" +(?! )");
  ASSERT_TRUE(regex);
  const std::string text = "a  b";
  std::vector<Span> spans = {{0, 2}, {2, 4}};
  ASSERT_TRUE(regex->split(text, &spans));
  EXPECT_EQ(spans, (std::vector<Span>{{0, 1}, {1, 2}, {2, 3}, {3, 4}}));
}

TEST(Regex, AnEmptyMatchEndsTheSearch) { EXPECT_EQ(split("x*", "abc"), "[abc]"); }

TEST(Regex, AWrongPatternIsAnErrorThatSaysWhere) {
  const auto regex = Regex::compile("a(b");
  ASSERT_FALSE(regex);
  EXPECT_EQ(regex.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(regex.error().message.find("byte 3"), std::string::npos) << regex.error().message;
}

TEST(Regex, AnExplodingPatternIsAnError) {
  auto regex = Regex::compile("(?:a|aa)+[xy]");
  ASSERT_TRUE(regex);
  const std::string text(200, 'a');
  std::vector<Span> spans = {{0, text.size()}};
  const auto done = regex->split(text, &spans);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::kExhausted);
}

}  // namespace
}  // namespace culet::text
