#include "text/test_vocabulary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

namespace culet::text {
namespace {

constexpr Token kUnk = 0, kBos = 1, kEos = 2, kBytes = 3, kMarker = 259;

// With no space in front and no BOS, so that ids are those of the text alone.
TestVocabulary plain(bool byte_tokens = true) {
  TestVocabulary v = TestVocabulary::spm(byte_tokens);
  v->add_space_prefix = false;
  v->add_bos = false;
  return v;
}

// Requirement text.sentencepiece "SentencePiece": highest score first, leftmost among equals, bytes
// for what is no token; the reference's ids
TEST(Spm, HighestScoreFirstLeftmostAmongEquals) {
  TestVocabulary v = plain();
  const Token a = v.token("a", TokenKind::kNormal, -9), b = v.token("b", TokenKind::kNormal, -9);
  const Token c = v.token("c", TokenKind::kNormal, -9);
  const Token ab = v.token("ab", TokenKind::kNormal, -2);
  const Token bc = v.token("bc", TokenKind::kNormal, -1);
  const Token aa = v.token("aa", TokenKind::kNormal, -3);
  const auto t = v.make();
  ASSERT_TRUE(t);
  EXPECT_EQ(ids_of(*t, "abc"), (Ids{a, bc}));
  EXPECT_EQ(ids_of(*t, "abab"), (Ids{ab, ab}));
  EXPECT_EQ(ids_of(*t, "aaa"), (Ids{aa, a}));
  EXPECT_EQ(ids_of(*t, "cb"), (Ids{c, b}));
}

// Ranks as scores: the sum of scores would prefer the two halves.
// Verifies text.sentencepiece.
TEST(Spm, IsNotASearchForTheBestSum) {
  TestVocabulary v = plain();
  v.token("t", TokenKind::kNormal, -50);
  const Token he = v.token("he", TokenKind::kNormal, -5);
  v.token("h", TokenKind::kNormal, -60);
  v.token("e", TokenKind::kNormal, -61);
  const Token the = v.token("the", TokenKind::kNormal, -175);
  const auto t = v.make();
  ASSERT_TRUE(t);
  EXPECT_EQ(ids_of(*t, "the"), (Ids{the}));
  EXPECT_EQ(ids_of(*t, "he"), (Ids{he}));
}

TEST(Spm, PositiveZeroAndNegativeScoresAreOrdered) {
  for (const auto& [low, high] :
       {std::pair(-1.0f, 0.0f), {0.0f, 1.0f}, {-2.0f, -1.0f}, {1.0f, 2.0f}, {-1e30f, 1e-30f}}) {
    TestVocabulary v = plain();
    const Token a = v.token("a");
    v.token("b");
    v.token("c");
    v.token("ab", TokenKind::kNormal, low);
    const Token bc = v.token("bc", TokenKind::kNormal, high);
    EXPECT_EQ(ids_of(*v.make(), "abc"), (Ids{a, bc})) << low << " " << high;
  }
}

// Verifies text.sentencepiece.
TEST(Spm, WhatIsNoTokenFallsBackToBytes) {
  const auto t = plain().make();
  ASSERT_TRUE(t);
  EXPECT_EQ(ids_of(*t, "A"), (Ids{kBytes + 'A'}));
  EXPECT_EQ(ids_of(*t, "\xc3\xa9"), (Ids{kBytes + 0xc3, kBytes + 0xa9}));
  EXPECT_EQ(t->detokenize(ids_of(*t, "\xc3\xa9"), false, false), "\xc3\xa9");
}

TEST(Spm, WithoutByteTokensACharacterIsOneUnknown) {
  const auto t = plain(false).make();
  ASSERT_TRUE(t);
  EXPECT_EQ(ids_of(*t, "\xc3\xa9 A"), (Ids{kUnk, 3, kUnk}));
}

TEST(Spm, SpacesBecomeTheMarker) {
  TestVocabulary v = plain();
  const Token marked = v.token(kMark + "x");
  v.token("x", TokenKind::kNormal, -1);
  const auto t = v.make();
  ASSERT_TRUE(t);
  EXPECT_EQ(ids_of(*t, "  x"), (Ids{kMarker, marked}));
  EXPECT_EQ(t->detokenize(Ids{kMarker, marked}, false, false), "  x");
}

TEST(Spm, ThePrefixComesAtTheStartAndAfterEachSpecialToken) {
  TestVocabulary v = TestVocabulary::spm();
  v->add_bos = true;
  const Token x = v.token("x"), marked = v.token(kMark + "x");
  const Token tag = v.token("<tag>", TokenKind::kUserDefined);
  const auto t = v.make();
  ASSERT_TRUE(t);
  EXPECT_EQ(ids_of(*t, "x"), (Ids{marked}));
  EXPECT_EQ(ids_of(*t, "xx", true), (Ids{kBos, marked, x}));
  EXPECT_EQ(ids_of(*t, " x"), (Ids{kMarker, marked}));
  EXPECT_EQ(ids_of(*t, "x</s>x<tag>x", false, true), (Ids{marked, kEos, marked, tag, marked}));
  EXPECT_EQ(ids_of(*t, ""), Ids{});
  EXPECT_EQ(ids_of(*t, "<tag>"), Ids{tag});
  for (const char* text : {"x", " x", "x</s>x<tag>x", "", "x x", "   "}) {
    EXPECT_EQ(t->detokenize(ids_of(*t, text, true, true), true, true), text);
  }
}

TEST(Spm, InvalidBytesComeBackUnchangedAndTakeInNoSpace) {
  const auto t = plain().make();
  ASSERT_TRUE(t);
  for (const std::string text : {"\xff", "\xff  x", "\xe4\xbd", "\xe4 \xbd", "a\xf0",
                                 "\xf0\x9f\x98 ", "\x80\x80", "\xc3(", "\xed\xa0\x80"}) {
    EXPECT_EQ(t->detokenize(ids_of(*t, text), false, false), text);
  }
}

// Requirement reports-bits.llama.cpp#8349 "ggml-org/llama.cpp#8349: a user-defined token not
// matched": such tokens are matched before anything else happens to the text
TEST(Spm, UserDefinedTokensAreMatchedBeforeSpacesAreMarked) {
  TestVocabulary v = plain();
  const Token three = v.token("   ", TokenKind::kUserDefined);
  const auto t = v.make();
  ASSERT_TRUE(t);
  EXPECT_EQ(ids_of(*t, "    "), (Ids{three, kMarker}));
  EXPECT_EQ(t->piece(three, false), "   ");
  const Token marked = v.token(kMark + kMark, TokenKind::kUserDefined, 5);
  EXPECT_EQ(ids_of(*v.make(), "x  "), (Ids{kBytes + 'x', marked}));
  EXPECT_EQ(v.make()->piece(marked, false), "  ");
}

TEST(Spm, MergingNeverMakesAControlUnusedOrByteToken) {
  TestVocabulary v = plain();
  const Token a = v.token("<"), b = v.token("s>");
  v.token("s");
  v.token(">");
  v.token("<s", TokenKind::kUnused, 9);
  const auto t = v.make();
  ASSERT_TRUE(t);
  EXPECT_EQ(ids_of(*t, "<s>"), (Ids{a, b}));
  EXPECT_EQ(ids_of(*t, "<s>", false, true), (Ids{kBos}));
}

// Verifies reports-loading.llama.cpp#25969.
TEST(Spm, BadScoresAndByteTokensAreRefused) {
  TestVocabulary few = plain();
  few->scores.pop_back();
  ASSERT_FALSE(Tokenizer::make(*few));
  EXPECT_NE(Tokenizer::make(*few).error().message.find("scores"), std::string::npos);
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    TestVocabulary v = plain();
    v->scores[7] = bad;
    const auto t = Tokenizer::make(*v);
    ASSERT_FALSE(t);
    EXPECT_NE(t.error().message.find("token 7"), std::string::npos);
  }
  TestVocabulary v = plain();
  v.token("<0xZZ>", TokenKind::kByte);
  ASSERT_FALSE(Tokenizer::make(*v));
  EXPECT_EQ(Tokenizer::make(*v).error().code, ErrorCode::kCorrupt);
}

TEST(Spm, AMillionOfOneCharacter) {
  TestVocabulary v = plain();
  v.token("a");
  v.token("aa", TokenKind::kNormal, 1);
  const Token four = v.token("aaaa", TokenKind::kNormal, 2);
  const auto t = v.make();
  ASSERT_TRUE(t);
  const Ids ids = ids_of(*t, std::string(1'000'000, 'a'));
  EXPECT_EQ(ids, Ids(250'000, four));
}

// The file has scores too, and they would merge the other pair first.
TestVocabulary gemma4() {
  TestVocabulary v = TestVocabulary::spm();
  v->model = "gemma4";
  v->add_bos = false;
  for (const char* text : {"a", "b", "c", "\n", "\xc3\xa9"}) v.token(text);
  v->scores.assign(v->tokens.size(), 0);
  return v;
}

// Requirement reports-bits.notorch#44 "ariannamethod/notorch#44: a file with merges and scores;
// guessing picks the wrong algorithm": `tokenizer.ggml.model` alone chooses; ids are compared, not
// text
TEST(Gemma4, MergesDecideAndScoresDoNot) {
  TestVocabulary v = gemma4();
  const Token bc = v.merge("b", "c"), ab = v.merge("a", "b");
  const Token marked = v.merge(kMark, "a");
  v->scores.resize(v->tokens.size(), 0);
  v->scores[static_cast<size_t>(ab)] = 100;
  const auto t = v.make();
  ASSERT_TRUE(t);
  const Token a = *t->find("a");
  EXPECT_EQ(ids_of(*t, "abc"), (Ids{a, bc}));
  EXPECT_EQ(ids_of(*t, "ab a"), (Ids{ab, marked}));  // and no space is put in front
  EXPECT_EQ(t->detokenize(ids_of(*t, "ab a"), false, false), "ab a");
}

// Verifies reports-bits.llama.cpp#21343.
TEST(Gemma4, NewlinesMergeAndOtherBytesFallBack) {
  TestVocabulary v = gemma4();
  const Token two = v.merge("\n", "\n"), four = v.merge("\n\n", "\n\n");
  const auto t = v.make();
  ASSERT_TRUE(t);
  EXPECT_EQ(ids_of(*t, "\n\n\n\n\n\n"), (Ids{four, two}));
  EXPECT_EQ(ids_of(*t, "\xc3\xa9\xc3"), (Ids{*t->find("\xc3\xa9"), kBytes + 0xc3}));
}

TEST(Gemma4, MergesThatDoNotFitAreRefused) {
  TestVocabulary v = gemma4();
  v->merges.push_back("a z");
  const auto refused = Tokenizer::make(*v);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kCorrupt);
  EXPECT_NE(refused.error().message.find("merges[0]"), std::string::npos);
}

}  // namespace
}  // namespace culet::text
