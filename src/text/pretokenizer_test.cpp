#include "text/pretokenizer.h"

#include <gtest/gtest.h>

#include <string>

namespace culet::text {
namespace {

std::string words(std::string_view name, std::string_view text) {
  const PretokenizerRow* row = find_pretokenizer(name);
  EXPECT_NE(row, nullptr) << name;
  const auto spans = Pretokenizer(*row).split(text);
  EXPECT_TRUE(spans);
  std::string out;
  size_t end = 0;
  for (const Span& span : *spans) {
    EXPECT_EQ(span.begin, end);
    EXPECT_LT(span.begin, span.end);
    end = span.end;
    out += "[" + std::string(text.substr(span.begin, span.end - span.begin)) + "]";
  }
  EXPECT_EQ(end, text.size());
  return out;
}

TEST(Pretokenizer, Gpt2) {
  EXPECT_EQ(words("gpt-2", "I'll say  hi 123!?\n\nok"),
            "[I]['ll][ say][ ][ hi][ 123][!?][\n][\n][ok]");
  EXPECT_EQ(words("gpt-2", "tail  "), "[tail][  ]");
  EXPECT_EQ(words("gpt-2", "\tx"), "[\t][x]");
  EXPECT_EQ(words("gpt-2", ""), "");
}

TEST(Pretokenizer, SmolLmSplitsDigitsFirst) {
  EXPECT_EQ(words("smollm", "a 12"), "[a][ ][1][2]");
  EXPECT_EQ(words("smollm", "x  7"), "[x][  ][7]");
}

TEST(Pretokenizer, Qwen2) {
  EXPECT_EQ(words("qwen2", "I'LL go(x) 42\r\n  y"), "[I]['LL][ go][(x][)][ ][4][2][\r\n][ ][ y]");
  EXPECT_EQ(words("qwen2", "a.\n\nb"), "[a][.\n\n][b]");
  EXPECT_EQ(words("qwen2", "'\xc5\xbf"), "['\xc5\xbf]");  // (?i:'s) folds U+017F to s
}

TEST(Pretokenizer, DefaultCutsPunctuationAndGroupsDigits) {
  EXPECT_EQ(words("default", "a, b==1234567"), "[a][,][ b][==][123][456][7]");
  EXPECT_EQ(words("default", " 12 x"), "[ ][12][ x]");
}

// U+180E is no white space in Unicode, though PCRE2's \s has it; U+0085 and U+3000 are.
TEST(Pretokenizer, WhiteSpaceIsUnicodes) {
  EXPECT_EQ(words("gpt-2", "\xe1\xa0\x8e\xe1\xa0\x8e!"), "[\xe1\xa0\x8e\xe1\xa0\x8e!]");
  EXPECT_EQ(words("gpt-2", "!\xe3\x80\x80\xc2\x85"), "[!][\xe3\x80\x80\xc2\x85]");
}

TEST(Pretokenizer, EveryRowCompilesAndHasAName) {
  EXPECT_GE(pretokenizer_rows().size(), 4u);
  for (const PretokenizerRow& row : pretokenizer_rows()) {
    EXPECT_EQ(find_pretokenizer(row.name), &row);
    EXPECT_FALSE(words(row.name, "a b").empty());
  }
  EXPECT_EQ(find_pretokenizer(""), find_pretokenizer("default"));
  EXPECT_EQ(find_pretokenizer("no-such"), nullptr);
  EXPECT_NE(pretokenizer_names().find("qwen2"), std::string::npos);
}

}  // namespace
}  // namespace culet::text
