#include "text/token_table.h"

#include "text/hash.h"

#include <gtest/gtest.h>

#include <string>

namespace culet::text {
namespace {

Result<TokenTable> table(std::vector<std::string_view> tokens, std::vector<TokenKind> kinds = {}) {
  Vocabulary v;
  v.tokens = std::move(tokens);
  v.kinds = std::move(kinds);
  return TokenTable::make(v);
}

TEST(TokenTable, LooksUpBothWays) {
  const auto t = table({"a", "", "bc", "a-rather-long-token-text"});
  ASSERT_TRUE(t);
  EXPECT_EQ(t->size(), 4);
  for (Token i = 0; i < 4; ++i) EXPECT_EQ(t->find(t->text(i)), i);
  EXPECT_EQ(t->find("b"), kNoToken);
  EXPECT_EQ(t->longest(), 24u);
  EXPECT_TRUE(t->contains(3));
  EXPECT_FALSE(t->contains(4));
  EXPECT_FALSE(t->contains(-1));
}

TEST(TokenTable, DuplicatesKeepTheLowestId) {
  const auto t = table({"x", "y", "x", "y"});
  ASSERT_TRUE(t);
  EXPECT_EQ(t->find("x"), 0);
  EXPECT_EQ(t->find("y"), 1);
  EXPECT_EQ(t->text(2), "x");
}

TEST(TokenTable, OnlyNormalAndUserDefinedTokensArePlain) {
  const auto t = table({"a", "b", "c", "d", "e", "<0x41>"},
                       {TokenKind::kNormal, TokenKind::kUnknown, TokenKind::kControl,
                        TokenKind::kUserDefined, TokenKind::kUnused, TokenKind::kByte});
  ASSERT_TRUE(t);
  EXPECT_EQ(t->find_plain("a"), 0);
  EXPECT_EQ(t->find_plain("d"), 3);
  for (const char* text : {"b", "c", "e", "<0x41>"}) EXPECT_EQ(t->find_plain(text), kNoToken);
  EXPECT_EQ(t->find("c"), 2);
}

// Requirement reports-loading.llama.cpp#25969 "ggml-org/llama.cpp#25969, #26511, #27226: the byte
// token `<0x-1>` writes at index -1": two hexadecimal digits and nothing else
TEST(TokenTable, ByteTextsAreParsedStrictly) {
  const auto t = table({"<0x0A>", "<0xff>", "<0xG0>", "<0x0A", "<0x0A> ", "0x0A", "<0x 1>", ""});
  ASSERT_TRUE(t);
  EXPECT_EQ(t->byte(0), 10);
  EXPECT_EQ(t->byte(1), 255);
  for (Token i = 2; i < 8; ++i) EXPECT_EQ(t->byte(i), std::nullopt) << t->text(i);
}

// Verifies reports-loading.CVE-2025-49847.
TEST(TokenTable, RefusesWhatCannotBe) {
  EXPECT_EQ(table({}).error().code, ErrorCode::kCorrupt);
  const auto few = table({"a", "b"}, {TokenKind::kNormal});
  ASSERT_FALSE(few);
  EXPECT_NE(few.error().message.find("1 token types"), std::string::npos) << few.error().message;
  for (const int kind : {0, 7, 255}) {
    const auto bad = table({"a"}, {static_cast<TokenKind>(kind)});
    ASSERT_FALSE(bad);
    EXPECT_NE(bad.error().message.find("token 0 has type"), std::string::npos);
  }
}

TEST(NumberMap, KeepsTheFirstAndGrows) {
  NumberMap map;
  for (int32_t i = 0; i < 5000; ++i) {
    EXPECT_TRUE(map.insert(static_cast<uint64_t>(i) << 20, i));
    EXPECT_FALSE(map.insert(static_cast<uint64_t>(i) << 20, i + 1));
  }
  for (int32_t i = 0; i < 5000; ++i) EXPECT_EQ(map.find(static_cast<uint64_t>(i) << 20), i);
  EXPECT_EQ(map.find(1), NumberMap::kNone);
}

}  // namespace
}  // namespace culet::text
