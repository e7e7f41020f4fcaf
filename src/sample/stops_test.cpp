// Stops against a plain search in the whole text, over every way to cut the text into pieces.
#include "sample/stops.h"

#include <gtest/gtest.h>

#include <random>

namespace culet::sample {
namespace {

// The text before the first place where a stop ends; of those that end there the longest.
std::string plain(const std::string& text, const std::vector<std::string>& stops, int* which) {
  *which = -1;
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (size_t i = 0; i < stops.size(); ++i) {
      const size_t n = stops[i].size();
      if (n > longest && n <= end && text.compare(end - n, n, stops[i]) == 0) {
        longest = n;
        *which = static_cast<int>(i);
      }
    }
    if (longest > 0) return text.substr(0, end - longest);
  }
  return text;
}

TEST(Stops, AreFoundAcrossEveryCut) {
  const std::vector<std::vector<std::string>> sets = {
      {"ab"}, {"aab", "b"}, {"abab", "ba", "bb"}, {"aaaa"}, {"abc", "bcd", "c"}, {}};
  std::mt19937 rng(1);
  for (int round = 0; round < 3000; ++round) {
    const auto& stops = sets[rng() % sets.size()];
    ASSERT_TRUE(check_stops(stops));
    std::string text;
    for (size_t i = rng() % 20; i > 0; --i) text += static_cast<char>('a' + rng() % 4);
    StopFilter filter(stops);
    std::string shown;
    for (size_t at = 0; at < text.size();) {
      const size_t n = 1 + rng() % 4;
      shown += filter.push(std::string_view(text).substr(at, n));
      at += n;
    }
    int which = -1;
    const std::string want = plain(text, stops, &which);
    shown += filter.flush();
    EXPECT_EQ(shown, want) << text;
    EXPECT_EQ(filter.matched(), which) << text;
  }
}

TEST(Stops, OnlyWhatMayBeAStopIsHeldBack) {
  const std::vector<std::string> stops = {"\nUser:"};
  StopFilter filter(stops);
  EXPECT_EQ(filter.push("Hello"), "Hello");
  EXPECT_EQ(filter.push(" you\n"), " you");
  EXPECT_EQ(filter.push("Us"), "");
  EXPECT_EQ(filter.push("ual"), "\nUsual");
  EXPECT_EQ(filter.push("\nUse"), "");
  EXPECT_EQ(filter.push("r: more"), "");
  EXPECT_EQ(filter.matched(), 0);
  EXPECT_EQ(filter.push("more"), "");
  EXPECT_EQ(filter.flush(), "");
}

TEST(Stops, WhatWasFlushedIsNoBeginningAnyMore) {
  const std::vector<std::string> stops = {"abc"};
  StopFilter filter(stops);
  EXPECT_EQ(filter.push("ab"), "");
  EXPECT_EQ(filter.flush(), "ab");
  EXPECT_EQ(filter.push("c"), "c");
  EXPECT_EQ(filter.matched(), -1);
  EXPECT_EQ(filter.push("xabc"), "x");
  EXPECT_EQ(filter.matched(), 0);
}

TEST(Stops, HostileTextTakesLinearTime) {
  const std::string half(500, 'a');
  const std::vector<std::string> stops(64, half + "b" + half);
  StopFilter filter(stops);
  std::string shown;
  for (int i = 0; i < 2000; ++i) shown += filter.push("aaaaaaaaaa");
  EXPECT_EQ(shown.size(), 20000u - 500);
  EXPECT_EQ(filter.flush().size(), 500u);
}

TEST(Stops, ThatMakeNoSenseAreRefused) {
  const std::vector<std::string> bad[] = {
      {""}, {std::string(1025, 'x')}, {"\xff"}, std::vector<std::string>(65, "x")};
  for (const auto& stops : bad) {
    const auto result = check_stops(stops);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace culet::sample
