#include "text/test_vocabulary.h"

#include <gtest/gtest.h>

#include <string>

namespace culet::text {
namespace {

const std::string kSpace = "\xc4\xa0";  // how the alphabet spells a space (U+0120)

TEST(Bpe, MergesByRank) {
  TestVocabulary v = TestVocabulary::bpe("gpt-2");
  const Token bc = v.merge("b", "c"), ab = v.merge("a", "b"), abc = v.merge("ab", "c");
  const auto t = v.make();
  ASSERT_TRUE(t);
  EXPECT_EQ(ids_of(*t, "abc"), (Ids{'a', bc}));
  EXPECT_EQ(ids_of(*t, "abab"), (Ids{ab, ab}));
  EXPECT_NE(abc, bc);
}

TEST(Bpe, WordsDoNotMergeAcrossTheirBorders) {
  TestVocabulary v = TestVocabulary::bpe("gpt-2");
  const Token dot_a = v.merge(".", "a"), space_a = v.merge(kSpace, "a");
  const auto t = v.make();
  ASSERT_TRUE(t);
  EXPECT_EQ(ids_of(*t, "x.a"), (Ids{'x', '.', 'a'}));
  EXPECT_EQ(ids_of(*t, "x a"), (Ids{'x', space_a}));
  EXPECT_NE(dot_a, space_a);
}

TEST(Bpe, InvalidBytesBecomeReplacementCharacters) {
  const auto t = TestVocabulary::bpe("gpt-2").make();
  ASSERT_TRUE(t);
  EXPECT_EQ(ids_of(*t,
                   "\xff"
                   "a"),
            (Ids{0xef, 0xbf, 0xbd, 'a'}));
  EXPECT_EQ(ids_of(*t, "\xe4\xbd"), (Ids{0xef, 0xbf, 0xbd, 0xef, 0xbf, 0xbd}));
}

TEST(Bpe, ACharacterWithAByteThatHasNoTokenIsReplacedNotLost) {
  TestVocabulary v = TestVocabulary::bpe("gpt-2");
  v->tokens[4] = "unused";
  const auto t = v.make();
  ASSERT_TRUE(t);
  EXPECT_EQ(ids_of(*t, "a\x04"), (Ids{'a', 0xef, 0xbf, 0xbd}));
  v->tokens[0xbd] = "unused too";
  const auto refused = v.make()->tokenize("a\x04", {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(refused.error().message.find("position 1"), std::string::npos);
}

TEST(Bpe, AnUnknownPretokenizerRefusesTextButNotIds) {
  TestVocabulary v = TestVocabulary::bpe("no-such-pre");
  const auto t = v.make();
  ASSERT_TRUE(t);
  const auto refused = t->tokenize("hi", {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(refused.error().message.find("no-such-pre"), std::string::npos);
  EXPECT_NE(refused.error().message.find("qwen2"), std::string::npos);
  EXPECT_EQ(ids_of(*t, ""), Ids{});
  EXPECT_EQ(t->detokenize(Ids{'h', 'i'}, false, false), "hi");
}

TEST(Bpe, MergesNeverMakeAControlToken) {
  TestVocabulary v = TestVocabulary::bpe("gpt-2");
  const Token ab = v.merge("a", "b");
  v->kinds[static_cast<size_t>(ab)] = TokenKind::kControl;
  const auto t = v.make();
  ASSERT_TRUE(t);
  EXPECT_EQ(ids_of(*t, "ab"), (Ids{'a', 'b'}));
  EXPECT_EQ(ids_of(*t, "ab", false, true), (Ids{ab}));
}

TEST(Bpe, BadMergesAreNamed) {
  const auto message = [](std::string_view merge) {
    TestVocabulary v = TestVocabulary::bpe("gpt-2");
    v.merge("a", "b");
    v->merges.push_back(merge);
    const auto t = Tokenizer::make(*v);
    EXPECT_FALSE(t) << merge;
    if (t) return std::string();
    EXPECT_EQ(t.error().code, ErrorCode::kCorrupt);
    return t.error().message;
  };
  for (const char* bad : {"ab", "", "a b c", "a  b", " ab", "ab ", " ", "a zz", "b a"}) {
    EXPECT_NE(message(bad).find("tokenizer.ggml.merges[1]"), std::string::npos) << bad;
  }
}

TEST(Bpe, TheFirstOfEqualMergesCounts) {
  TestVocabulary v = TestVocabulary::bpe("gpt-2");
  const Token ab = v.merge("a", "b");
  v.merge("b", "c");
  v.merge("a", "b");
  const auto t = v.make();
  ASSERT_TRUE(t);
  EXPECT_EQ(ids_of(*t, "abc"), (Ids{ab, 'c'}));
}

TEST(Bpe, AWordThatIsATokenNeedsNoMergesWhereThePretokenizerSaysSo) {
  for (const char* pre : {"llama-bpe", "qwen2"}) {
    TestVocabulary v = TestVocabulary::bpe(pre);
    const Token hi = v.token(kSpace + "hi"), ab = v.merge("a", "b");
    v.token("abc");
    v->kinds.back() = TokenKind::kControl;
    const auto t = v.make();
    ASSERT_TRUE(t);
    const bool whole = std::string(pre) == "llama-bpe";
    EXPECT_EQ(ids_of(*t, "x hi"), whole ? (Ids{'x', hi}) : (Ids{'x', ' ', 'h', 'i'})) << pre;
    EXPECT_EQ(ids_of(*t, "abc"), (Ids{ab, 'c'})) << pre;  // never a control token
  }
}

TEST(Bpe, AMillionOfOneCharacterIsOneWord) {
  TestVocabulary v = TestVocabulary::bpe("gpt-2");
  const Token aa = v.merge("a", "a");
  const auto t = v.make();
  ASSERT_TRUE(t);
  const Ids ids = ids_of(*t, std::string(1'000'001, 'a'));
  EXPECT_EQ(ids.size(), 500'001u);
  EXPECT_EQ(ids.front(), aa);
  EXPECT_EQ(ids.back(), 'a');
}

TEST(Bpe, EveryByteComesBack) {
  const auto t = TestVocabulary::bpe("qwen2").make();
  ASSERT_TRUE(t);
  std::string text;
  for (int code = 0; code < 0x800; ++code) base::utf8_append(static_cast<char32_t>(code), &text);
  EXPECT_EQ(t->detokenize(ids_of(*t, text), false, false), text);
  for (int b = 0; b < 256; ++b) {
    EXPECT_EQ(t->piece(b, false), std::string(1, static_cast<char>(b)));
  }
}

// docs/decisions/0007: no composition, also where the published tokenizer composes.
// Verifies text.byte-level-bpe.
TEST(Bpe, TextIsNotNormalized) {
  const auto t = TestVocabulary::bpe("qwen2").make();
  ASSERT_TRUE(t);
  const std::string composed = "caf\xc3\xa9", decomposed = "cafe\xcc\x81";
  EXPECT_EQ(ids_of(*t, composed), (Ids{'c', 'a', 'f', 0xc3, 0xa9}));
  EXPECT_EQ(ids_of(*t, decomposed), (Ids{'c', 'a', 'f', 'e', 0xcc, 0x81}));
  EXPECT_EQ(t->detokenize(ids_of(*t, decomposed), false, false), decomposed);
}

TEST(Bpe, TokensOutsideTheAlphabetAreTheirText) {
  TestVocabulary v = TestVocabulary::bpe("gpt-2");
  const Token odd = v.token("a b\xe2\x96\x81");
  const auto t = v.make();
  ASSERT_TRUE(t);
  EXPECT_EQ(t->piece(odd, false), "a b\xe2\x96\x81");
}

}  // namespace
}  // namespace culet::text
