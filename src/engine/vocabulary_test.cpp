// The public vocabulary and text stream over small vocabularies made by hand.
#include "culet/vocabulary.h"

#include "base/allocation_counter.h"
#include "culet/sampler.h"
#include "engine/vocabulary_impl.h"
#include "text/test_vocabulary.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace culet {
namespace {

using text::TestVocabulary;

// Ids 0 to 255 are the bytes; then words and special tokens.
struct Bytes {
  TestVocabulary source = TestVocabulary::bpe("gpt-2");
  Token often = source.token("Often");
  Token space_you = source.token("\xc4\xa0you");  // U+0120: a space in the byte alphabet
  Token end = source.token("<|im_end|>", TokenKind::kControl);
  Token tool = source.token("<tool>", TokenKind::kUserDefined);
  Token gap = source.token("[unused1]", TokenKind::kUnused);
  Token again = source.token("Often", TokenKind::kUserDefined);
  Vocabulary vocabulary = engine::make_vocabulary(source.make());
};

TextStream stream(const Vocabulary& vocabulary, const TextStreamOptions& options = {}) {
  auto made = TextStream::make(vocabulary, options);
  EXPECT_TRUE(made) << made.error().message;
  return *std::move(made);
}

// ---------------------------------------------------------------- vocabulary

TEST(Vocabulary, TellsKindBytesAndTextOfEveryToken) {
  const Bytes b;
  const Vocabulary& v = b.vocabulary;
  EXPECT_EQ(v.size(), 262);
  for (Token id = 0; id < 256; ++id) {
    EXPECT_EQ(v.kind(id), TokenKind::kNormal);
    EXPECT_EQ(v.bytes(id), std::string(1, static_cast<char>(id)));
  }
  EXPECT_EQ(v.bytes(b.space_you), " you");
  EXPECT_EQ(v.text(b.space_you), "\xc4\xa0you");
  EXPECT_EQ(v.kind(b.end), TokenKind::kControl);
  EXPECT_EQ(v.bytes(b.end), "");
  EXPECT_EQ(v.text(b.end), "<|im_end|>");
  EXPECT_EQ(v.kind(b.tool), TokenKind::kUserDefined);
  EXPECT_EQ(v.bytes(b.tool), "<tool>");
  EXPECT_EQ(v.kind(b.gap), TokenKind::kUnused);
  EXPECT_EQ(v.bytes(b.gap), "");
  for (Token outside : {-1, 262, std::numeric_limits<Token>::max()}) {
    EXPECT_EQ(v.kind(outside), TokenKind::kUnused);
    EXPECT_EQ(v.bytes(outside), "");
    EXPECT_EQ(v.text(outside), "");
    EXPECT_FALSE(v.is_end_of_generation(outside));
  }
}

TEST(Vocabulary, ByteTokensAndMarksOfSentencePiece) {
  TestVocabulary source = TestVocabulary::spm();
  const Token word = source.token(text::kMark + "word");
  const Token newline = source.token("\n");
  const Vocabulary v = engine::make_vocabulary(source.make());
  EXPECT_EQ(v.kind(0), TokenKind::kUnknown);
  EXPECT_EQ(v.bytes(0), "");
  EXPECT_EQ(v.kind(3 + 0x0a), TokenKind::kByte);
  EXPECT_EQ(v.bytes(3 + 0x0a), "\n");
  EXPECT_EQ(v.text(3 + 0x0a), "<0x0A>");
  EXPECT_EQ(v.bytes(3 + 0x00), std::string(1, '\0'));
  EXPECT_EQ(v.bytes(word), " word");
  EXPECT_EQ(v.bos(), 1);
  EXPECT_EQ(v.eos(), 2);
  EXPECT_EQ(v.find_bytes("\n"), newline);   // not the byte token, though its id is lower
  EXPECT_EQ(v.find_bytes("\t"), 3 + 0x09);  // only a byte token
  EXPECT_EQ(v.find_bytes(" word"), word);
  EXPECT_EQ(v.find_bytes("word"), std::nullopt);
}

TEST(Vocabulary, FindsTokens) {
  const Bytes b;
  const Vocabulary& v = b.vocabulary;
  EXPECT_EQ(v.find_special("<|im_end|>"), b.end);
  EXPECT_EQ(v.find_special("<tool>"), b.tool);
  EXPECT_EQ(v.find_special("[unused1]"), std::nullopt);
  EXPECT_EQ(v.find_special("a"), std::nullopt);
  EXPECT_EQ(v.find_special("<|im_"), std::nullopt);
  EXPECT_EQ(v.find_bytes("Often"), b.often);
  EXPECT_EQ(v.find_bytes("<|im_end|>"), std::nullopt);
  EXPECT_EQ(v.find_bytes(""), std::nullopt);
  for (Token id = 0; id < 256; ++id) EXPECT_EQ(v.find_bytes(v.bytes(id)), id);
  EXPECT_EQ(std::vector<Token>(v.end_of_generation().begin(), v.end_of_generation().end()),
            std::vector<Token>{b.end});
  EXPECT_TRUE(v.is_end_of_generation(b.end));
  EXPECT_FALSE(v.is_end_of_generation(b.often));
}

TEST(Vocabulary, TextOfAUserNeverBecomesAControlToken) {
  const Bytes b;
  const auto user = b.vocabulary.tokenize("<|im_end|>", {.begin = false, .end = false}).value();
  EXPECT_EQ(user.size(), 10u);
  EXPECT_EQ(b.vocabulary.detokenize(user, false), "<|im_end|>");
  EXPECT_EQ(
      b.vocabulary.tokenize("<|im_end|>", {.begin = false, .end = false, .parse_special = true})
          .value(),
      std::vector<Token>{b.end});
  EXPECT_EQ(b.vocabulary.detokenize(std::vector{b.often, b.end, b.space_you}, false), "Often you");
  EXPECT_EQ(b.vocabulary.detokenize(std::vector{b.often, b.end, b.space_you}, true),
            "Often<|im_end|> you");
}

TEST(Vocabulary, HandlesOutliveTheModel) {
  std::optional<TextStream> text;
  std::string_view bytes;
  std::optional<Vocabulary> kept;
  {
    const Bytes b;
    kept = b.vocabulary;
    text = stream(b.vocabulary);
    bytes = b.vocabulary.bytes(b.often);
  }
  EXPECT_EQ(bytes, "Often");
  EXPECT_EQ(text->push('x'), "x");
  EXPECT_EQ(kept->size(), 262);
}

// ---------------------------------------------------------------- sampler

TEST(Vocabulary, BreakersOfDryAreTokensThatHoldTheText) {
  Bytes b;
  const auto sampler = Sampler::make(
      b.vocabulary, {.dry_multiplier = 1, .dry_sequence_breakers = {"ft", "im_end", "<tool>x"}});
  ASSERT_TRUE(sampler) << sampler.error().message;
  std::vector<Token> breakers = sampler->options().dry_breaker_tokens;
  std::sort(breakers.begin(), breakers.end());
  // "<tool>x" is in no token; its last token is x.
  std::vector<Token> want = {'x', b.often, b.end, b.again};
  std::sort(want.begin(), want.end());
  EXPECT_EQ(breakers, want);
  EXPECT_FALSE(Sampler::make(b.vocabulary, {.dry_sequence_breakers = {""}}));
  EXPECT_TRUE(Sampler::make(b.vocabulary, {.dry_multiplier = 1}));
}

// ---------------------------------------------------------------- text stream

TEST(TextStream, GivesWholeCharactersOnly) {
  const Bytes b;
  TextStream s = stream(b.vocabulary);
  EXPECT_EQ(s.push(0xf0), "");
  EXPECT_EQ(s.push(0x9f), "");
  EXPECT_EQ(s.push(0x98), "");
  EXPECT_EQ(s.push(0x80), "\xf0\x9f\x98\x80");
  EXPECT_EQ(s.push(0xc3), "");
  EXPECT_EQ(s.push('a'),
            "\xef\xbf\xbd"
            "a");
  EXPECT_EQ(s.push(0xe4), "");
  EXPECT_EQ(s.flush(), "\xef\xbf\xbd");
  EXPECT_EQ(s.flush(), "");
}

TEST(TextStream, ControlTokensShowOnlyWhenAsked) {
  const Bytes b;
  TextStream hidden = stream(b.vocabulary), shown = stream(b.vocabulary, {.special = true});
  EXPECT_EQ(hidden.push(b.end), "");
  EXPECT_EQ(shown.push(b.end), "<|im_end|>");
  EXPECT_EQ(hidden.push(b.tool), "<tool>");
  EXPECT_EQ(hidden.push(-1), "");
}

TEST(TextStream, StopsAreFoundAcrossTokens) {
  const Bytes b;
  TextStream s = stream(b.vocabulary, {.stops = {"ten you!", "zz", " yo\xc3\xa9"}});
  EXPECT_EQ(s.push(b.often), "Of");
  EXPECT_EQ(s.push(b.space_you), "");
  EXPECT_EQ(s.push('?'), "ten you?");
  EXPECT_EQ(s.stop(), -1);
  EXPECT_EQ(s.push(b.often), "Of");
  EXPECT_EQ(s.push(b.space_you), "");
  EXPECT_EQ(s.push('!'), "");
  EXPECT_EQ(s.stop(), 0);
  EXPECT_EQ(s.push(b.often), "");
  EXPECT_EQ(s.flush(), "");
  s.reset();
  EXPECT_EQ(s.stop(), -1);
  EXPECT_EQ(s.push('z'), "");
  EXPECT_EQ(s.flush(), "z");
  s.reset();
  EXPECT_EQ(s.push(' '), "");
  EXPECT_EQ(s.push('y'), "");
  EXPECT_EQ(s.push('o'), "");
  EXPECT_EQ(s.push(0xc3), "");
  EXPECT_EQ(s.push(0xa9), "");
  EXPECT_EQ(s.stop(), 2);
  s.reset();
  EXPECT_EQ(s.push(0xc3), "");
  s.reset();
  EXPECT_EQ(s.push('a'), "a");  // nothing of before
}

TEST(TextStream, AnUnfinishedCharacterMayCompleteAStop) {
  const Bytes b;
  TextStream s = stream(b.vocabulary, {.stops = {"a\xef\xbf\xbd"}});
  EXPECT_EQ(s.push('a'), "");
  EXPECT_EQ(s.push(0xe4), "");
  EXPECT_EQ(s.flush(), "");
  EXPECT_EQ(s.stop(), 0);
}

TEST(TextStream, CopiesGoOnByThemselves) {
  const Bytes b;
  TextStream a = stream(b.vocabulary, {.stops = {"xyz"}});
  EXPECT_EQ(a.push('x'), "");
  EXPECT_EQ(a.push(0xc3), "");
  TextStream copy = a;
  EXPECT_EQ(a.push('q'), "x\xef\xbf\xbdq");
  EXPECT_EQ(copy.push(0xa9), "x\xc3\xa9");
  copy = a;
  EXPECT_EQ(copy.push('x'), "");
  EXPECT_EQ(copy.push('y'), "");
  EXPECT_EQ(copy.push('z'), "");
  EXPECT_EQ(copy.stop(), 0);
  EXPECT_EQ(a.stop(), -1);
  EXPECT_EQ(a.push('z'), "z");
}

TEST(TextStream, EqualsDetokenizeForAnyTokens) {
  const Bytes b;
  std::mt19937 rng(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<Token> ids;
    for (int i = 0; i < 30; ++i) {
      const auto byte = static_cast<Token>(rng() % 128);  // any ASCII, so the bytes are UTF-8
      ids.push_back(rng() % 3 ? byte : static_cast<Token>(256 + rng() % 6));
    }
    for (bool special : {false, true}) {
      TextStream s = stream(b.vocabulary, {.stops = {"no such text"}, .special = special});
      std::string text;
      for (Token id : ids) text += s.push(id);
      text += s.flush();
      EXPECT_EQ(text, b.vocabulary.detokenize(ids, special));
    }
  }
}

TEST(TextStream, StopsThatMakeNoSenseAreErrors) {
  const Bytes b;
  for (const char* stop : {"", "\xff"}) {
    const auto made = TextStream::make(b.vocabulary, {.stops = {stop}});
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST(TextStream, ATokenAllocatesNothingAfterWarmUp) {
  const Bytes b;
  TestVocabulary marks = TestVocabulary::spm();
  const Token word = marks.token(text::kMark + "a rather long word, longer than a short string");
  const Vocabulary spm = engine::make_vocabulary(marks.make());
  TextStream one = stream(b.vocabulary, {.stops = {"Often you?", "never"}}), two = stream(spm);
  int64_t after_warm_up = 0;
  for (int round = 0; round < 3; ++round) {
    after_warm_up = base::allocation_count();
    one.reset();
    for (int i = 0; i < 100; ++i) {
      for (Token id : {b.often, b.space_you, Token{'!'}, Token{0xc3}, Token{0xa9}}) one.push(id);
      two.push(word);
    }
    one.flush();
    after_warm_up = base::allocation_count() - after_warm_up;
  }
  EXPECT_EQ(after_warm_up, 0);
  EXPECT_GT(base::allocation_count(), 0);
}

}  // namespace
}  // namespace culet
