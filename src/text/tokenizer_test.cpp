#include "text/tokenizer.h"

#include "text/test_vocabulary.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace culet::text {
namespace {

using Piece = Tokenizer::Piece;

// A chat vocabulary: <|a|> and <|b|> are control tokens, <tag> and double newlines user-defined.
struct Chat {
  TestVocabulary v = TestVocabulary::bpe("qwen2");
  Token a = v.token("<|a|>", TokenKind::kControl);
  Token b = v.token("<|b|>", TokenKind::kControl);
  Token tag = v.token("<tag>", TokenKind::kUserDefined);
  Token lines = v.token("\n\n", TokenKind::kUserDefined);
  Token hi = v.merge("H", "i");
  Token unused = v.token("<spare>", TokenKind::kUnused);

  Ids pieces(const std::vector<Piece>& list, bool add_special = false) {
    return v.make()->tokenize_pieces(list, add_special).value();
  }
};

TEST(Tokenizer, ControlTokensAreMatchedOnlyWhenParsed) {
  Chat c;
  const auto t = c.v.make();
  ASSERT_TRUE(t);
  EXPECT_EQ(ids_of(*t, "<|a|>Hi<|b|>", false, true), (Ids{c.a, c.hi, c.b}));
  EXPECT_EQ(ids_of(*t, "<|a|>"), (Ids{'<', '|', 'a', '|', '>'}));
  EXPECT_EQ(ids_of(*t, "<tag>Hi"), (Ids{c.tag, c.hi}));
  EXPECT_EQ(ids_of(*t, "<spare>", false, true).size(), 7u);
}

TEST(Tokenizer, AUserCannotSpellControlTokens) {
  Chat c;
  EXPECT_EQ(c.pieces({{"<|a|>", true}, {"Hi<|b|>", false}, {"<|b|>", true}}),
            (Ids{c.a, c.hi, '<', '|', 'b', '|', '>', c.b}));
  // Nor half of one, together with the template.
  EXPECT_EQ(c.pieces({{"<|", true}, {"a|>", false}}), (Ids{'<', '|', 'a', '|', '>'}));
  EXPECT_EQ(c.pieces({{"<|a", false}, {"|>", true}}), (Ids{'<', '|', 'a', '|', '>'}));
  // User-defined tokens are text, whoever writes them.
  EXPECT_EQ(c.pieces({{"<tag>", false}}), (Ids{c.tag}));
}

TEST(Tokenizer, MarksOfTheTemplateAreTokensWhereItWroteThemOnly) {
  Chat c;
  const Ids spelled{'<', 't', 'a', 'g', '>'};
  Ids expected{c.tag};
  expected.insert(expected.end(), spelled.begin(), spelled.end());
  EXPECT_EQ(c.pieces({{"<tag>", true}, {"<tag>", false}}), expected);
  // Also where this prompt does not show the mark, but the template has it.
  const auto t = c.v.make();
  const Piece text{"<tag>\n\n", false};
  EXPECT_EQ(t->tokenize_pieces({&text, 1}, false, "{{ '<tag>' }}").value(),
            (Ids{'<', 't', 'a', 'g', '>', c.lines}));
  EXPECT_EQ(t->tokenize_pieces({&text, 1}, false, "").value(), (Ids{c.tag, c.lines}));
  // White space is none.
  EXPECT_EQ(c.pieces({{"\n\n", true}, {"x\n\n", false}}), (Ids{c.lines, 'x', c.lines}));
}

TEST(Tokenizer, ATokenMayLieAcrossTemplatePieces) {
  Chat c;
  EXPECT_EQ(c.pieces({{"<|", true}, {"", false}, {"a|", true}, {">", true}}), (Ids{c.a}));
}

TEST(Tokenizer, TextRunsAcrossTheBordersOfPieces) {
  Chat c;
  EXPECT_EQ(c.pieces({{"H", true}, {"i", false}}), (Ids{c.hi}));
  EXPECT_EQ(c.pieces({{"x\n", true}, {"\ny", false}}), (Ids{'x', c.lines, 'y'}));
  const auto t = c.v.make();
  EXPECT_EQ(c.pieces({{"<|a|>x y\n", true}, {"Hi  there 12", false}, {" .<|b|>", true}}),
            ids_of(*t, "<|a|>x y\nHi  there 12 .<|b|>", false, true));
  EXPECT_EQ(c.pieces({}), Ids{});
}

TEST(Tokenizer, ATextTokenNeverSwallowsAControlTokenOfTheTemplate) {
  Chat c;
  c.v.token("x<|", TokenKind::kUserDefined);
  EXPECT_EQ(c.pieces({{"x", false}, {"<|a|>", true}}), (Ids{'x', c.a}));
}

// Requirement text.bos "BOS": what the file says, else yes for SentencePiece and no for BPE; never
// twice
TEST(Tokenizer, BosAndEosAsTheFileAsks) {
  Chat c;
  c.v->bos = c.a;
  c.v->eos = c.b;
  EXPECT_EQ(ids_of(*c.v.make(), "Hi", true), Ids{c.hi});  // gpt2: none unless the file says so
  c.v->add_bos = true;
  c.v->add_eos = true;
  const auto t = c.v.make();
  EXPECT_EQ(ids_of(*t, "Hi", true), (Ids{c.a, c.hi, c.b}));
  EXPECT_EQ(ids_of(*t, "", true), (Ids{c.a, c.b}));
  EXPECT_EQ(ids_of(*t, "Hi", false), Ids{c.hi});
  // What the text spells is not doubled.
  EXPECT_EQ(ids_of(*t, "<|a|>Hi<|b|>", true, true), (Ids{c.a, c.hi, c.b}));
  // A prompt is there to be continued: no end behind it.
  EXPECT_EQ(c.pieces({{"<|a|>", true}, {"Hi", false}}, true), (Ids{c.a, c.hi}));
  EXPECT_EQ(c.pieces({{"Hi", false}}, true), (Ids{c.a, c.hi}));
  EXPECT_EQ(t->detokenize(Ids{c.a, c.hi, c.b}, true, true), "Hi");
  EXPECT_EQ(t->detokenize(Ids{c.a, c.hi, c.b}, false, true), "<|a|>Hi<|b|>");
  EXPECT_EQ(t->detokenize(Ids{c.a, c.hi, c.b}, false, false), "Hi");
}

// Verifies text.bos.
TEST(Tokenizer, SentencePieceDefaults) {
  TestVocabulary v = TestVocabulary::spm();
  const auto t = v.make();
  ASSERT_TRUE(t);
  EXPECT_EQ(t->bos(), 1);
  EXPECT_EQ(t->eos(), 2);
  EXPECT_TRUE(t->is_end_of_generation(2));
  EXPECT_EQ(ids_of(*t, "", true), Ids{1});
  v->kinds[1] = TokenKind::kNormal;  // then it is no BOS, unless the file says so
  EXPECT_EQ(v.make()->bos(), std::nullopt);
  v->bos = 1;
  EXPECT_EQ(v.make()->bos(), 1);
}

TEST(Tokenizer, EndOfGenerationByIdAndByText) {
  Chat c;
  const Token turn = c.v.token("<|im_end|>", TokenKind::kControl);
  const Token html = c.v.token("</s>", TokenKind::kUserDefined);
  const Token phi = c.v.token("<|end|>", TokenKind::kUserDefined);
  const Token plain = c.v.token("<eos>", TokenKind::kNormal);
  c.v->eot = c.a;
  c.v->eom = c.b;
  c.v->eos = c.tag;
  const auto t = c.v.make();
  ASSERT_TRUE(t);
  for (const Token end : {turn, phi, c.a, c.b, c.tag}) EXPECT_TRUE(t->is_end_of_generation(end));
  for (const Token no : {html, plain, c.hi, -1, t->size()}) {
    EXPECT_FALSE(t->is_end_of_generation(no));
  }
  EXPECT_TRUE(t->is_control(turn));
  EXPECT_FALSE(t->is_control(phi));
  EXPECT_FALSE(t->is_control(-1));
}

TEST(Tokenizer, FindIsExactAndPiecesOfOddIdsAreEmpty) {
  Chat c;
  const auto t = c.v.make();
  EXPECT_EQ(t->find("<|a|>"), c.a);
  EXPECT_EQ(t->find("<|a|"), std::nullopt);
  EXPECT_EQ(t->piece(-1, true), "");
  EXPECT_EQ(t->piece(t->size(), true), "");
  EXPECT_EQ(t->piece(c.unused, true), "");
  EXPECT_EQ(t->piece(c.a, false), "");
  EXPECT_EQ(t->piece(c.a, true), "<|a|>");
  EXPECT_EQ(t->piece(c.tag, false), "<tag>");
}

// Verifies reports-bits.notorch#44.
TEST(Tokenizer, WrongModelsAndIdsAreRefused) {
  Chat c;
  c.v->model = "wordpiece";
  const auto model = Tokenizer::make(*c.v);
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(model.error().message.find("wordpiece"), std::string::npos);
  for (const Token bad : {-1, 100'000}) {
    Chat d;
    d.v->eot = bad;
    const auto ids = Tokenizer::make(*d.v);
    ASSERT_FALSE(ids);
    EXPECT_EQ(ids.error().code, ErrorCode::kCorrupt);
    EXPECT_NE(ids.error().message.find("eot_token_id"), std::string::npos);
  }
}

TEST(Tokenizer, KeepsNothingOfTheVocabularyItWasMadeFrom) {
  std::shared_ptr<const Tokenizer> t;
  {
    Chat c;
    t = c.v.make();
  }
  EXPECT_EQ(t->detokenize(ids_of(*t, "<|a|>Hi\n\n", false, true), false, true), "<|a|>Hi\n\n");
}

}  // namespace
}  // namespace culet::text
