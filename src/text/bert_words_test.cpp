#include "text/bert_words.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace culet::text {
namespace {

std::string words(std::string_view text, BertWordsOptions options = {}) {
  std::string out;
  for_each_bert_word(text, options,
                     [&](std::string_view word) { out += "[" + std::string(word) + "]"; });
  return out;
}

TEST(BertWords, SpacesSeparateAndPunctuationStandsAlone) {
  EXPECT_EQ(words(" Hello,\tWORLD!\r\n a+b$c "), "[hello][,][world][!][a][+][b][$][c]");
  EXPECT_EQ(words("\xe2\x80\x9cquote\xe2\x80\x9d"), "[\xe2\x80\x9c][quote][\xe2\x80\x9d]");
  EXPECT_EQ(words("a\xe2\x82\xac"), "[a\xe2\x82\xac]");  // a symbol that is not ASCII is a letter
  EXPECT_EQ(words("a\xe3\x80\x80\x62\xc2\xa0\x63\xe2\x80\xa8"
                  "d"),
            "[a][b][c][d]");
  EXPECT_EQ(words(""), "");
}

TEST(BertWords, ControlAndInvalidBytesAreLeftOut) {
  EXPECT_EQ(words(std::string_view("a\0b\x0b"
                                   "c\x7f"
                                   "d",
                                   7)),
            "[abcd]");
  EXPECT_EQ(words("a\xe2\x80\x8b"
                  "b\xe2\x80\x8d"
                  "c\xef\xbf\xbd"
                  "d\xee\x80\x80"
                  "e"),
            "[abcde]");
  EXPECT_EQ(words("a\xff\xc3(b"), "[a][(][b]");
}

TEST(BertWords, AccentsGoAndLettersBecomeLowerCase) {
  EXPECT_EQ(words("\xc3\x89\x63ole e\xcc\x81 \xc3\x85 \xc5\x81 \xc4\xb0"),
            "[ecole][e][a][\xc5\x82][i]");
  EXPECT_EQ(words("\xce\x91\xce\xa3"), "[\xce\xb1\xcf\x83]");  // no final sigma
  EXPECT_EQ(words("\xc3\x89", {.lowercase = true, .strip_accents = false}), "[\xc3\xa9]");
  EXPECT_EQ(words("\xc3\x89", {.lowercase = false, .strip_accents = true}), "[E]");
  EXPECT_EQ(words("\xc4\xb0", {.lowercase = true, .strip_accents = false}), "[i\xcc\x87]");
}

TEST(BertWords, DecompositionIsCanonical) {
  EXPECT_EQ(words("\xea\xb0\x80"),
            "[\xe1\x84\x80\xe1\x85\xa1]");             // a Hangul syllable is its letters
  EXPECT_EQ(words("\xef\xac\x81"), "[\xef\xac\x81]");  // a ligature stays
  EXPECT_EQ(words("a\xcd\xbe"
                  "b"),
            "[a][;][b]");  // U+037E is a semicolon
  // Spacing marks stay, in the order of their classes: U+302E (224) before U+302F, as they came.
  EXPECT_EQ(words("x\xe3\x80\xaf\xcc\x81\xe3\x80\xae"), "[x\xe3\x80\xaf\xe3\x80\xae]");
}

TEST(BertWords, AnIdeographIsAWord) {
  EXPECT_EQ(words("ab\xe4\xbd\xa0\xe5\xa5\xbd"
                  "cd"),
            "[ab][\xe4\xbd\xa0][\xe5\xa5\xbd][cd]");
  EXPECT_EQ(words("\xe3\x81\x82\xe3\x81\x84"), "[\xe3\x81\x82\xe3\x81\x84]");  // kana are letters
}

// Sorting marks by insertion would take minutes.
TEST(BertWords, ALongRunOfMarksIsNoTrouble) {
  std::string text = "a";
  for (int i = 0; i < 200'000; ++i) text += i % 2 == 0 ? "\xe3\x80\xae" : "\xcc\xa7";
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(words(text).size(), 3u + 3 * 100'000u);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

}  // namespace
}  // namespace culet::text
