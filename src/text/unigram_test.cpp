#include "text/charsmap.h"
#include "text/test_vocabulary.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <map>
#include <random>
#include <string>

namespace culet::text {
namespace {

constexpr Token kUnknown = 2, kMarkToken = 3;

TestVocabulary plain() {
  TestVocabulary v = TestVocabulary::unigram();
  v->add_space_prefix = false;
  return v;
}

TEST(Unigram, TheHighestSumIsTaken) {
  TestVocabulary v = plain();
  const Token a = v.token("a", TokenKind::kNormal, -1), b = v.token("b", TokenKind::kNormal, -1);
  const Token ab = v.token("ab", TokenKind::kNormal, -3);
  const Token abb = v.token("abb", TokenKind::kNormal, -2.5f);
  const auto t = v.make();
  ASSERT_TRUE(t);
  EXPECT_EQ(ids_of(*t, "ab"), (Ids{a, b}));  // -2 against -3
  EXPECT_EQ(ids_of(*t, "abb"), (Ids{abb}));  // -2.5 against -3
  EXPECT_EQ(ids_of(*t, "aabba"), (Ids{a, abb, a}));
  EXPECT_NE(ab, abb);
}

// Of all cuttings, tried one by one, none has a higher sum.
// Requirement text.unigram "unigram": the cutting with the highest sum of scores, after the file's
// table of characters; SentencePiece's own ids
TEST(Unigram, NoCuttingIsBetter) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    TestVocabulary v = plain();
    std::map<std::string, float> score;
    for (int i = 0; i < 12; ++i) {
      std::string text;
      for (uint32_t n = 1 + random() % 4; n > 0; --n) text += static_cast<char>('a' + random() % 3);
      const float s = -static_cast<float>(random() % 1000) / 100;
      if (score.emplace(text, s).second) v.token(text, TokenKind::kNormal, s);
    }
    const auto t = v.make();
    ASSERT_TRUE(t);
    float least = -3;  // of the space marker
    for (const auto& [text, s] : score) least = std::min(least, s);
    std::string text;
    for (int i = 0; i < 9; ++i) text += static_cast<char>('a' + random() % 3);
    std::vector<float> best(text.size() + 1, -1e9f);
    best[0] = 0;
    for (size_t at = 0; at < text.size(); ++at) {
      for (size_t n = 1; at + n <= text.size(); ++n) {
        const auto found = score.find(text.substr(at, n));
        if (found != score.end()) best[at + n] = std::max(best[at + n], best[at] + found->second);
      }
      if (!score.count(text.substr(at, 1)))
        best[at + 1] = std::max(best[at + 1], best[at] + least - 10);
    }
    float sum = 0;
    std::string back;
    bool unknown = false;
    for (const Token id : ids_of(*t, text)) {
      unknown = unknown || id == kUnknown;
      sum += id == kUnknown ? 0 : score.at(t->piece(id, false));
      back += t->piece(id, false);
    }
    if (unknown) continue;  // how many characters one stands for cannot be seen
    EXPECT_EQ(back, text);
    EXPECT_NEAR(sum, best.back(), 1e-4) << text;
  }
}

TEST(Unigram, UnknownCharactersInARowAreOne) {
  TestVocabulary v = plain();
  const Token a = v.token("a");
  const auto t = v.make();
  ASSERT_TRUE(t);
  EXPECT_EQ(ids_of(*t, "xy\xc3\xa9"), Ids{kUnknown});
  EXPECT_EQ(ids_of(*t, "xay"), (Ids{kUnknown, a, kUnknown}));
  EXPECT_EQ(ids_of(*t, "\xff\xfe"), Ids{kUnknown});
}

TEST(Unigram, WithATokenForEveryByteNothingIsUnknown) {
  TestVocabulary v = plain();
  const Token bytes = v.token("<0x00>", TokenKind::kByte);
  for (int b = 1; b < 256; ++b) v.token(fmt::format("<0x{:02X}>", b), TokenKind::kByte);
  const Token a = v.token("a");
  const auto t = v.make();
  ASSERT_TRUE(t);
  EXPECT_EQ(ids_of(*t, "a\xc3\xa9"), (Ids{a, bytes + 0xc3, bytes + 0xa9}));
  EXPECT_EQ(t->detokenize(ids_of(*t, "a\xc3\xa9"), false, false), "a\xc3\xa9");
}

TEST(Unigram, SpacesAsTheFileSays) {
  TestVocabulary v = TestVocabulary::unigram();
  const Token a = v.token("a", TokenKind::kNormal, -5);
  const Token marked = v.token(kMark + "a", TokenKind::kNormal, -1);
  const auto kept = v.make();
  EXPECT_EQ(ids_of(*kept, "a"), Ids{marked});
  EXPECT_EQ(ids_of(*kept, "  a "), (Ids{kMarkToken, kMarkToken, marked, kMarkToken}));
  EXPECT_EQ(ids_of(*kept, ""), Ids{});
  EXPECT_EQ(kept->detokenize(ids_of(*kept, " a a"), false, false), " a a");
  v->remove_extra_whitespaces = true;
  const auto one = v.make();
  EXPECT_EQ(ids_of(*one, "  a   aa  "), (Ids{marked, marked, a}));
  EXPECT_EQ(ids_of(*one, "    "), Ids{});
}

TEST(Unigram, EosIsAddedUnlessTheFileSaysNo) {
  TestVocabulary v = plain();
  const Token a = v.token("a");
  EXPECT_EQ(ids_of(*v.make(), "a", true), (Ids{a, 1}));
  v->bos = 0;
  v->add_bos = true;
  v->add_eos = false;
  EXPECT_EQ(ids_of(*v.make(), "a", true), (Ids{0, a}));
}

TEST(Unigram, TextMakesNoControlToken) {
  TestVocabulary v = plain();
  for (const char* text : {"<", "/", "s", ">"}) v.token(text, TokenKind::kNormal, -9);
  const auto t = v.make();
  EXPECT_EQ(ids_of(*t, "</s>"), (Ids{4, 5, 6, 7}));
  EXPECT_EQ(ids_of(*t, "</s>", false, true), Ids{1});
}

TEST(Unigram, DamagedVocabulariesAreRefused) {
  const auto message = [](TestVocabulary& v) {
    const auto t = Tokenizer::make(*v);
    EXPECT_FALSE(t);
    return t ? std::string() : t.error().message;
  };
  TestVocabulary v = plain();
  v->scores.pop_back();
  EXPECT_NE(message(v).find("scores"), std::string::npos);
  v = plain();
  v.token("x", TokenKind::kNormal, NAN);
  EXPECT_NE(message(v).find("token 4"), std::string::npos);
  v = plain();
  v.token(std::string(257, 'x'));
  EXPECT_NE(message(v).find("256 bytes"), std::string::npos);
  v = plain();
  v->charsmap = "\1";
  EXPECT_NE(message(v).find("precompiled_charsmap"), std::string::npos);
}

TEST(Unigram, AMillionOfOneCharacterTakesLinearTime) {
  TestVocabulary v = plain();
  Token longest = 0;
  for (size_t n = 1; n <= 256; ++n) {
    longest = v.token(std::string(n, 'a'), TokenKind::kNormal, -1 - static_cast<float>(n) / 1024);
  }
  const auto t = v.make();
  const auto start = std::chrono::steady_clock::now();
  const size_t longest_words =
      std::getenv("CULET_TEST_SIZE") != nullptr ? 400 : 4000;  // NOLINT(concurrency-mt-unsafe)
  const Ids ids = ids_of(*t, std::string(256 * longest_words, 'a'));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
  EXPECT_EQ(ids, Ids(longest_words, longest));
}

// ---------------------------------------------------------------- the table of characters

// A double array with a block of 256 units for the children of every node; key -> text.
std::string charsmap(const std::map<std::string, std::string>& rules) {
  std::vector<uint32_t> units(256, 0x80000000u);  // no unit is reached by its own place
  std::map<std::string, uint32_t> block;          // of the children of a prefix
  std::string texts;
  const auto children = [&](const std::string& prefix) {
    const auto [at, fresh] = block.emplace(prefix, 0);
    if (fresh) {
      at->second = static_cast<uint32_t>(units.size());
      units.resize(units.size() + 256, 0x80000000u);
    }
    return at->second;
  };
  units[0] = children("") << 10;
  std::map<std::string, uint32_t> place{{"", 0}};
  for (const auto& [key, text] : rules) {
    for (size_t n = 1; n <= key.size(); ++n) {
      const std::string prefix = key.substr(0, n);
      const auto byte = static_cast<uint8_t>(prefix.back());
      const uint32_t at = children(prefix.substr(0, n - 1)) ^ byte;
      place[prefix] = at;
      units[at] =
          (at ^ children(prefix)) << 10 | (units[at] & 0x80000000u ? 0 : units[at] & 0x100) | byte;
    }
    units[place[key]] |= 0x100;
    units[children(key)] = 0x80000000u | static_cast<uint32_t>(texts.size());
    texts += text + '\0';
  }
  std::string out;
  const auto put = [&out](uint32_t x) { out.append(reinterpret_cast<const char*>(&x), 4); };
  put(static_cast<uint32_t>(units.size() * 4));
  for (const uint32_t unit : units) put(unit);
  return out + texts;
}

TEST(Charsmap, TheLongestKeyCounts) {
  const auto map =
      Charsmap::make(charsmap({{"a", "x"}, {"ab", "yy"}, {"abcd", ""}, {"\xc3\xa9", "e"}}));
  ASSERT_TRUE(map) << map.error().message;
  const auto found = [&](std::string_view text) {
    const Charsmap::Found f = map->find(text);
    return fmt::format("{} {}", f.size, f.text);
  };
  EXPECT_EQ(found("a"), "1 x");
  EXPECT_EQ(found("abc"), "2 yy");
  EXPECT_EQ(found("abcde"), "4 ");
  EXPECT_EQ(found("\xc3\xa9"), "2 e");
  EXPECT_EQ(found("\xc3"), "0 ");
  EXPECT_EQ(found("b"), "0 ");
  EXPECT_EQ(found(""), "0 ");
  EXPECT_EQ(Charsmap().find("a").size, 0u);
}

TEST(Charsmap, RewritesTheTextOfATokenizer) {
  TestVocabulary v = plain();
  const Token a = v.token("a", TokenKind::kNormal, -1), b = v.token("b", TokenKind::kNormal, -1);
  v->charsmap = charsmap({{"A", "a"}, {"\t", " "}, {"(", "ab"}, {"\r", ""}});
  v->remove_extra_whitespaces = true;
  EXPECT_EQ(ids_of(*v.make(), "\tA\t \t(\r"), (Ids{a, kMarkToken, a, b}));
}

TEST(Charsmap, DamagedTablesAreRefused) {
  const std::string good = charsmap({{"a", "x"}});
  EXPECT_TRUE(Charsmap::make(good));
  EXPECT_TRUE(Charsmap::make(""));
  for (const std::string& bad :
       {std::string("abc"), good.substr(0, 100), good.substr(0, good.size() - 1),
        std::string("\3\0\0\0abc", 7), std::string("\xff\xff\xff\xff", 4),
        charsmap({{"a", std::string(300, 'x')}})}) {
    const auto map = Charsmap::make(bad);
    ASSERT_FALSE(map);
    EXPECT_EQ(map.error().code, ErrorCode::kCorrupt);
  }
}

// Any units at all: no read outside, no endless search.
// Verifies text.unigram.
TEST(Charsmap, AnyBytesAreBounded) {
  std::mt19937 random(9);
  for (int round = 0; round < 300; ++round) {
    std::string bytes = charsmap({{"ab", "x"}, {"b", "yz"}});
    for (int i = 0; i < 2000; ++i) {
      bytes[4 + random() % (bytes.size() - 4)] = static_cast<char>(random());
    }
    bytes.back() = '\0';
    const auto map = Charsmap::make(bytes);
    if (!map) continue;
    for (int i = 0; i < 200; ++i) {
      std::string text;
      for (int n = 0; n < 80; ++n)
        text += static_cast<char>(random() % 4 ? 'a' + random() % 2 : random());
      const Charsmap::Found found = map->find(text);
      EXPECT_LE(found.size, 64u);
      EXPECT_LE(found.text.size(), 256u);
    }
  }
}

}  // namespace
}  // namespace culet::text
