#include "text/test_vocabulary.h"

#include <gtest/gtest.h>

#include <string>

namespace culet::text {
namespace {

// One vocabulary in both spellings: `begins` and `continues` are put in front of the pieces.
struct Words {
  explicit Words(const std::string& begins, const std::string& continues) {
    v->model = "bert";
    unk = v.token("[UNK]", TokenKind::kControl);
    cls = v.token("[CLS]", TokenKind::kControl);
    sep = v.token("[SEP]", TokenKind::kControl);
    un = v.token(begins + "un");
    unaffable = v.token(begins + "unaffable");
    aff = v.token(continues + "aff");
    able = v.token(continues + "able");
    a = v.token(begins + "a");
    more_a = v.token(continues + "a");
    comma = v.token(begins + ",");
  }
  TestVocabulary v;
  Token unk, cls, sep, un, unaffable, aff, able, a, more_a, comma;
};

TEST(WordPiece, TakesTheLongestPieceInEitherSpelling) {
  for (const auto& [begins, continues] : {std::pair(kMark, std::string()), {"", "##"}}) {
    Words w(begins, continues);
    const auto t = w.v.make();
    ASSERT_TRUE(t);
    EXPECT_EQ(ids_of(*t, "unaffable"), (Ids{w.unaffable}));
    EXPECT_EQ(ids_of(*t, "Unaffaffable, un"), (Ids{w.un, w.aff, w.aff, w.able, w.comma, w.un}));
    EXPECT_EQ(ids_of(*t, "aff"), (Ids{w.unk}));         // it never begins a word
    EXPECT_EQ(ids_of(*t, "unz a"), (Ids{w.unk, w.a}));  // what matched so far goes too
    EXPECT_EQ(ids_of(*t, ""), Ids{});
    EXPECT_EQ(t->detokenize(ids_of(*t, "unaff un a"), false, false), "unaff un a");
  }
}

TEST(WordPiece, AWordOfMoreThanAHundredCharactersIsUnknown) {
  Words w(kMark, "");
  const auto t = w.v.make();
  ASSERT_TRUE(t);
  EXPECT_EQ(ids_of(*t, std::string(100, 'a')).size(), 100u);
  EXPECT_EQ(ids_of(*t, std::string(101, 'a')), (Ids{w.unk}));
}

TEST(WordPiece, ClsAndSepAreAddedUnlessTheFileSaysNo) {
  Words w(kMark, "");
  auto t = w.v.make();
  ASSERT_TRUE(t);
  EXPECT_EQ(ids_of(*t, "a", true), (Ids{w.cls, w.a, w.sep}));
  EXPECT_EQ(ids_of(*t, "[CLS]a[SEP]", false, true), (Ids{w.cls, w.a, w.sep}));
  EXPECT_EQ(ids_of(*t, "[SEP]"), (Ids{w.unk, w.unk, w.unk}));
  EXPECT_EQ(t->bos(), w.cls);
  w.v->add_bos = false;
  w.v->add_sep = false;
  t = w.v.make();
  ASSERT_TRUE(t);
  EXPECT_EQ(ids_of(*t, "a", true), (Ids{w.a}));
}

TEST(WordPiece, NeedsAnUnknownToken) {
  Words w(kMark, "");
  w.v->tokens[0] = "other";
  const auto refused = Tokenizer::make(*w.v);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kCorrupt);
  w.v->unk = w.a;
  EXPECT_TRUE(Tokenizer::make(*w.v));
}

TEST(WordPiece, NormalizationIsTheFiles) {
  Words w(kMark, "");
  const Token capital = w.v.token(kMark + "U"), accent = w.v.token(kMark + "\xc3\xa9");
  w.v->lowercase = false;
  const auto t = w.v.make();
  ASSERT_TRUE(t);
  EXPECT_EQ(ids_of(*t, "U \xc3\xa9 un"), (Ids{capital, accent, w.un}));
}

}  // namespace
}  // namespace culet::text
