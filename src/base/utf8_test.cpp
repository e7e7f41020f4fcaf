#include "base/utf8.h"

#include "culet/result.h"

#include <gtest/gtest.h>

namespace culet::base {
namespace {

TEST(Utf8, EveryCodePointRoundTrips) {
  for (char32_t c = 0; c <= 0x10ffff; ++c) {
    if (c == 0xd800) c = 0xe000;
    const std::string text = utf8_encode(c);
    const Utf8Step step = utf8_step(text, 0);
    ASSERT_TRUE(step.valid && step.code == c && step.length == int(text.size())) << uint32_t(c);
    for (size_t cut = 0; cut < text.size(); ++cut) {
      ASSERT_EQ(utf8_incomplete_tail(text.substr(0, cut)), int(cut)) << uint32_t(c);
      ASSERT_EQ(utf8_valid(text.substr(0, cut)), cut == 0);
    }
    ASSERT_EQ(utf8_incomplete_tail(text), 0);
  }
}

TEST(Utf8, InvalidForms) {
  const char* const bad[] = {
      "\x80",         "\xbf",         "\xc0\x80",         "\xc1\xbf",         "\xe0\x9f\xbf",
      "\xed\xa0\x80", "\xed\xbf\xbf", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80",
      "\xff",         "\xc3\x41",     "\xe2\x82\x41"};
  for (const char* text : bad) {
    const Utf8Step step = utf8_step(text, 0);
    EXPECT_FALSE(step.valid) << text;
    EXPECT_EQ(step.length, 1);
    EXPECT_EQ(step.code, kReplacement);
    EXPECT_FALSE(utf8_valid(text));
    EXPECT_EQ(utf8_incomplete_tail(text), 0) << text;
  }
}

TEST(Utf8, EndAndReplacement) {
  EXPECT_EQ(utf8_step("a", 1).length, 0);
  EXPECT_EQ(utf8_incomplete_tail("ab\xf0\x9f"), 2);
  EXPECT_EQ(utf8_incomplete_tail("\x80\x80\x80\x80"), 0);
  EXPECT_EQ(utf8_encode(0xd800), "\xef\xbf\xbd");
  EXPECT_EQ(utf8_encode(0x110000), "\xef\xbf\xbd");
}

TEST(Utf8, NamesInMessages) {
  EXPECT_EQ(utf8_shown("a\tb\x1b[31m\xff\x7f\xc2\x85 \xc3\xa9"), "a?b?[31m??? \xc3\xa9");
  EXPECT_EQ(utf8_shown(std::string("l\0ma", 4)), "l?ma");
  EXPECT_EQ(utf8_shown("abc\xc3\xa9", 4), "abc...");
  EXPECT_EQ(utf8_shown("abc\xc3\xa9", 5), "abc\xc3\xa9");
}

TEST(Result, MessagesHoldNoControlCharacters) {
  EXPECT_EQ(fail(ErrorCode::kCorrupt, "a\x1b[2J\n\x7f" + std::string(1, '\0')).value().message,
            "a?[2J\n??");
}

}  // namespace
}  // namespace culet::base
