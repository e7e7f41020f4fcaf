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

TEST(Pretokenizer, Llama3GroupsDigits) {
  EXPECT_EQ(words("llama-bpe", "I'LL pay 12345.67\n\n  ok"),
            "[I]['LL][ pay][ ][123][45][.][67][\n\n][ ][ ok]");
  EXPECT_EQ(words("llama-bpe", " (x)\r\n"), "[ (][x][)\r\n]");
}

TEST(Pretokenizer, Qwen35KeepsMarksWithTheirLetters) {
  EXPECT_EQ(words("qwen2", "e\xcc\x81x"), "[e][\xcc\x81x]");
  EXPECT_EQ(words("qwen35", "e\xcc\x81x"), "[e\xcc\x81x]");
}

TEST(Pretokenizer, DeepSeekSplitsByScript) {
  EXPECT_EQ(words("deepseek-llm", "ab cd!? 12  \n\xe4\xbd\xa0\xe5\xa5\xbd"),
            "[ab][ cd][!?][ ][1][2][  ][\n][\xe4\xbd\xa0\xe5\xa5\xbd]");
  EXPECT_EQ(words("deepseek-coder", "ab cd!? 12\n\n"), "[ab][ cd][!?][ ][1][2][\n][\n]");
  EXPECT_EQ(words("deepseek-v3", "x.y 1234 \xe3\x81\x82z"),
            "[x][.y][ ][123][4][ ][\xe3\x81\x82][z]");
}

TEST(Pretokenizer, Falcon) {
  EXPECT_EQ(words("falcon", "a, b `x` 12345"), "[a][,][ b][ ][`][x][`][ ][123][45]");
}

TEST(Pretokenizer, CaseEndsAWord) {
  EXPECT_EQ(words("gpt-4o", "camelCase XMLFile it's"), "[camel][Case][ XMLFile][ it's]");
  EXPECT_EQ(words("tekken", "camelCase it's 12"), "[camel][Case][ it]['s][ ][1][2]");
}

// No pattern takes time quadratic in a run.
TEST(Pretokenizer, LongRunsTakeLinearTime) {
  std::string runs;
  for (const char* unit : {" ", "\n", "A", "a", "9", ".", "\t ", "\xe4\xbd\xa0", "\xcc\x81", "'"}) {
    for (int i = 0; i < 30'000; ++i) runs += unit;
    runs += "\xe0\xb8\x81";  // a letter of no case
  }
  for (const PretokenizerRow& row : pretokenizer_rows()) {
    SCOPED_TRACE(row.name);
    const auto spans = Pretokenizer(row).split(runs);
    ASSERT_TRUE(spans) << spans.error().message;
    EXPECT_EQ(spans->back().end, runs.size());
  }
}

// U+180E is no white space in Unicode, though PCRE2's \s has it; U+0085 and U+3000 are.
// Verifies reports-bits.llama.cpp#8338.
TEST(Pretokenizer, WhiteSpaceIsUnicodes) {
  EXPECT_EQ(words("gpt-2", "\xe1\xa0\x8e\xe1\xa0\x8e!"), "[\xe1\xa0\x8e\xe1\xa0\x8e!]");
  EXPECT_EQ(words("gpt-2", "!\xe3\x80\x80\xc2\x85"), "[!][\xe3\x80\x80\xc2\x85]");
}

// Verifies text.byte-level-bpe.
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
