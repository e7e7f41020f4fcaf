#include "text/special_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace culet::text {
namespace {

std::string found(const std::vector<std::string>& texts, std::string_view text) {
  SpecialMatcher matcher;
  for (size_t i = 0; i < texts.size(); ++i) matcher.add(texts[i], static_cast<Token>(i));
  matcher.build();
  std::string out;
  for (const SpecialMatcher::Match& match : matcher.find(text)) {
    EXPECT_EQ(text.substr(match.begin, match.size), texts[static_cast<size_t>(match.token)]);
    out += std::to_string(match.begin) + ":" + texts[static_cast<size_t>(match.token)] + " ";
  }
  return out;
}

// The plain way: at each position the longest text that fits.
std::string expected(const std::vector<std::string>& texts, std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    size_t best = 0;
    for (const std::string& t : texts) {
      if (text.substr(i, t.size()) == t) best = std::max(best, t.size());
    }
    if (best > 0) out += std::to_string(i) + ":" + std::string(text.substr(i, best)) + " ";
    i += std::max<size_t>(best, 1);
  }
  return out;
}

// Verifies reports-bits.llama.cpp#8349.
TEST(SpecialMatcher, LongestAtEachPositionLeftmostFirst) {
  EXPECT_EQ(found({"a", "ab", "abcd", "cd"}, "xabcabcd"), "1:ab 4:abcd ");
  EXPECT_EQ(found({"\n", "\n\n"}, "\n\n\nx\n"), "0:\n\n 2:\n 4:\n ");
  EXPECT_EQ(found({"abab"}, "abababab"), "0:abab 4:abab ");
}

TEST(SpecialMatcher, FallsBackToShorterTextsInside) {
  EXPECT_EQ(found({"abcde", "bc"}, "abcdx"), "1:bc ");
  EXPECT_EQ(found({"b", "abc"}, "abab"), "1:b 3:b ");
}

TEST(SpecialMatcher, NothingToFind) {
  EXPECT_EQ(found({}, "abc"), "");
  EXPECT_EQ(found({""}, "abc"), "");
  EXPECT_EQ(found({"abc"}, ""), "");
  EXPECT_EQ(found({"abc"}, "ab"), "");
}

TEST(SpecialMatcher, TheFirstOfEqualTextsStays) {
  SpecialMatcher matcher;
  matcher.add("x", 5);
  matcher.add("x", 3);
  matcher.build();
  EXPECT_EQ(matcher.find("x").at(0).token, 5);
}

TEST(SpecialMatcher, EqualsThePlainSearchOnEveryShortText) {
  const std::vector<std::vector<std::string>> sets = {
      {"a", "bab", "abba"}, {"ab", "ba", "aab", "bbbb"}, {"aaa", "aaaab"}, {"abab", "b", "baa"}};
  for (const auto& texts : sets) {
    for (uint32_t bits = 0; bits < 1u << 12; ++bits) {
      std::string text;
      for (int i = 0; i < 12; ++i) text.push_back((bits >> i & 1) != 0 ? 'a' : 'b');
      ASSERT_EQ(found(texts, text), expected(texts, text)) << text;
    }
  }
}

}  // namespace
}  // namespace culet::text
