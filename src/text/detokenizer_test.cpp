#include "text/test_vocabulary.h"

#include <gtest/gtest.h>

#include <string>

namespace culet::text {
namespace {

// Pushes bytes as byte tokens; '|' marks the ends of the pushes, '$' what flush() gave.
std::string streamed(std::string_view bytes) {
  const auto t = TestVocabulary::bpe("gpt-2").make();
  Detokenizer stream(*t);
  std::string out;
  for (const char c : bytes) out += stream.push(static_cast<uint8_t>(c)) + "|";
  return out + "$" + stream.flush();
}

const std::string kBad = "\xef\xbf\xbd";

// Verifies answers.stream.
TEST(Detokenizer, HoldsBackUnfinishedCharacters) {
  EXPECT_EQ(streamed("ab"), "a|b|$");
  EXPECT_EQ(streamed("\xc3\xa9"), "|\xc3\xa9|$");
  EXPECT_EQ(streamed("\xf0\x9f\x98\x80z"), "|||\xf0\x9f\x98\x80|z|$");
}

TEST(Detokenizer, InvalidBytesBecomeReplacementCharacters) {
  EXPECT_EQ(streamed("\xff"), kBad + "|$");
  EXPECT_EQ(streamed("\xc3"
                     "a"),
            "|" + kBad + "a|$");
  EXPECT_EQ(streamed("\xe4\xbd"), "||$" + kBad + kBad);
  EXPECT_EQ(streamed("\xed\xa0"), "|" + kBad + kBad + "|$");
}

TEST(Detokenizer, FlushStartsAnew) {
  const auto t = TestVocabulary::bpe("gpt-2").make();
  Detokenizer stream(*t);
  EXPECT_EQ(stream.push(0xc3), "");
  EXPECT_EQ(stream.flush(), kBad);
  EXPECT_EQ(stream.flush(), "");
  EXPECT_EQ(stream.push('a'), "a");
}

TEST(Detokenizer, ControlTokensShowOnlyWhenAsked) {
  TestVocabulary v = TestVocabulary::bpe("gpt-2");
  const Token end = v.token("<|end|>", TokenKind::kControl);
  const auto t = v.make();
  EXPECT_EQ(Detokenizer(*t).push(end), "");
  EXPECT_EQ(Detokenizer(*t, true).push(end), "<|end|>");
  EXPECT_EQ(Detokenizer(*t).push(-1), "");
  EXPECT_EQ(Detokenizer(*t).push(1 << 20), "");
}

}  // namespace
}  // namespace culet::text
