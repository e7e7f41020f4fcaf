// Tokenizers of small vocabularies over any bytes.
//
// Input: one byte that chooses (bits 0-1 and 5 the vocabulary, bit 2 parse_special, bit 3
// add_special, bit 4 a second piece from the middle on), then the text. What must hold: no crash;
// ids inside the vocabulary; the text comes back when it is valid UTF-8 (for SentencePiece with
// byte tokens always; WordPiece normalizes); a user's piece never makes a control token; the
// streaming detokenizer gives valid UTF-8 and the same text as the other one.
#include "base/utf8.h"
#include "text/byte_alphabet.h"
#include "text/charsmap.h"
#include "text/tokenizer.h"

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using culet::text::Token;
using culet::text::Tokenizer;
using culet::text::TokenKind;
using culet::text::Vocabulary;

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

struct Builder {
  std::deque<std::string> kept;
  Vocabulary vocabulary;

  void token(std::string text, TokenKind kind = TokenKind::kNormal, float score = 0) {
    vocabulary.tokens.push_back(kept.emplace_back(std::move(text)));
    vocabulary.kinds.push_back(kind);
    if (vocabulary.model == "llama" || vocabulary.model == "t5") vocabulary.scores.push_back(score);
  }
  void merge(const std::string& left, const std::string& right) {
    vocabulary.merges.push_back(kept.emplace_back(left + " " + right));
    token(left + right);
  }
  void specials() {
    token("<|end|>", TokenKind::kControl);
    token("<|", TokenKind::kControl);
    token("<tag>", TokenKind::kUserDefined);
    token("\n\n", TokenKind::kUserDefined);
    token("   ", TokenKind::kUserDefined);
    token("<spare>", TokenKind::kUnused);
  }
  std::shared_ptr<const Tokenizer> make() {
    auto tokenizer = Tokenizer::make(vocabulary);
    require(tokenizer.has_value(), "the vocabulary is good");
    return *tokenizer;
  }
};

std::shared_ptr<const Tokenizer> make_bpe(const char* pre) {
  Builder b;
  b.vocabulary.model = "gpt2";
  b.vocabulary.pre = pre;
  for (const char32_t code : culet::text::kByteAlphabet.code) {
    b.token(culet::base::utf8_encode(code));
  }
  const std::string space = "\xc4\xa0", newline = "\xc4\x8a";  // U+0120, U+010A
  b.merge(space, space);
  b.merge(space + space, space + space);
  b.merge("a", "b");
  b.merge("b", "c");
  b.merge("a", "a");
  b.merge("aa", "aa");
  b.merge(space, "a");
  b.merge("ab", "ab");
  b.merge(newline, newline);
  b.merge("\xc3\x83", "\xc2\xa9");  // the two bytes of U+00E9
  b.specials();
  return b.make();
}

std::shared_ptr<const Tokenizer> make_spm() {
  Builder b;
  b.vocabulary.model = "llama";
  b.token("<unk>", TokenKind::kUnknown);
  b.token("<s>", TokenKind::kControl);
  b.token("</s>", TokenKind::kControl);
  for (int byte = 0; byte < 256; ++byte) {
    const char* digits = "0123456789ABCDEF";
    b.token(std::string("<0x") + digits[byte >> 4] + digits[byte & 15] + ">", TokenKind::kByte);
  }
  const std::string mark = "\xe2\x96\x81";
  float score = 0;
  for (const std::string& text :
       {std::string("ab"), std::string("bc"), std::string("aa"), std::string("aaaa"), mark + "a",
        mark + mark, mark + mark + mark + mark, std::string("abab"), mark, std::string("a"),
        std::string("b"), std::string("c"), std::string("\xc3\xa9")}) {
    b.token(text, TokenKind::kNormal, score);
    score -= 1;
  }
  b.specials();
  return b.make();
}

std::shared_ptr<const Tokenizer> make_gemma4() {
  Builder b;
  b.vocabulary.model = "gemma4";
  b.token("<unk>", TokenKind::kUnknown);
  for (int byte = 0; byte < 256; ++byte) {
    const char* digits = "0123456789ABCDEF";
    b.token(std::string("<0x") + digits[byte >> 4] + digits[byte & 15] + ">", TokenKind::kByte);
  }
  const std::string mark = "\xe2\x96\x81";
  for (const std::string& text : {std::string("\n"), mark, std::string("a"), std::string("b"),
                                  std::string("c"), std::string("\xc3\xa9")}) {
    b.token(text);
  }
  b.merge("\n", "\n");
  b.merge("\n\n", "\n");
  b.merge("a", "b");
  b.merge("b", "c");
  b.merge("a", "a");
  b.merge(mark, "a");
  b.merge(mark, mark);
  b.merge("ab", "c");
  b.specials();
  return b.make();
}

std::shared_ptr<const Tokenizer> make_wordpiece() {
  Builder b;
  b.vocabulary.model = "bert";
  b.token("[UNK]", TokenKind::kUnknown);
  b.token("[CLS]", TokenKind::kControl);
  b.token("[SEP]", TokenKind::kControl);
  const std::string mark = "\xe2\x96\x81";
  for (const char* text : {"a", "b", "ab", "e", "\xe4\xbd\xa0", ".", "\xe1\x84\x80"}) {
    b.token(mark + text);
    b.token(text);
  }
  b.specials();
  return b.make();
}

std::shared_ptr<const Tokenizer> make_unigram() {
  Builder b;
  b.vocabulary.model = "t5";
  b.vocabulary.remove_extra_whitespaces = true;
  b.token("<pad>", TokenKind::kControl);
  b.token("</s>", TokenKind::kControl);
  b.token("<unk>", TokenKind::kUnknown);
  const std::string mark = "\xe2\x96\x81";
  for (const std::string& text : {mark, std::string("a"), std::string("b"), std::string("ab"),
                                  mark + "a", std::string("aaaa"), std::string("\xc3\xa9")}) {
    b.token(text, TokenKind::kNormal, -static_cast<float>(text.size()));
  }
  b.specials();
  return b.make();
}

constexpr size_t kSpm = 3, kGemma4 = 6, kWordPiece = 7, kUnigram = 8;

const std::array<std::shared_ptr<const Tokenizer>, 9>& tokenizers() {
  static const std::array<std::shared_ptr<const Tokenizer>, 9> all = {
      make_bpe("default"), make_bpe("smollm"),    make_bpe("qwen2"),
      make_spm(),          make_bpe("llama-bpe"), make_bpe("deepseek-llm"),
      make_gemma4(),       make_wordpiece(),      make_unigram()};
  return all;
}

// SentencePiece cannot tell U+2581 from a space.
std::string unmarked(std::string text) {
  for (size_t at = 0; (at = text.find("\xe2\x96\x81", at)) != std::string::npos;) {
    text.replace(at, 3, " ");
  }
  return text;
}

void check_stream(const Tokenizer& tokenizer, const std::vector<Token>& ids) {
  culet::text::Detokenizer stream(tokenizer, true);
  std::string streamed, whole;
  for (const Token t : ids) {
    const std::string part = stream.push(t);
    require(culet::base::utf8_valid(part), "streamed text is valid UTF-8");
    streamed += part;
    whole += tokenizer.piece(t, true);
  }
  streamed += stream.flush();
  if (culet::base::utf8_valid(whole)) require(streamed == whole, "streaming loses nothing");
}

// The first half as a table of characters, looked up all along the second.
void check_charsmap(std::string_view bytes) {
  const auto map = culet::text::Charsmap::make(bytes.substr(0, bytes.size() / 2));
  if (!map) return;
  for (size_t at = bytes.size() / 2; at < bytes.size(); ++at) {
    const auto found = map->find(bytes.substr(at));
    require(found.size <= bytes.size() - at, "a key lies inside the text");
    require(found.text.size() <= 256, "a character stands for little text");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0 || size > 1 << 16) return 0;
  const uint8_t choice = data[0];
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t which = (choice & 64) != 0 ? kUnigram : (choice & 3) | (choice >> 3 & 4);
  const Tokenizer& tokenizer = *tokenizers()[which];
  if (choice >= 128) check_charsmap(text);
  const bool parse = (choice & 4) != 0, add = (choice & 8) != 0;

  std::vector<Tokenizer::Piece> pieces = {{text, parse}};
  if ((choice & 16) != 0) {
    pieces = {{text.substr(0, text.size() / 2), parse}, {text.substr(text.size() / 2), !parse}};
  }
  const auto ids = tokenizer.tokenize_pieces(pieces, add);
  require(ids.has_value(), "any bytes can be tokenized");
  for (const Token t : *ids) {
    require(t >= 0 && t < tokenizer.size(), "ids are inside the vocabulary");
    if (!parse && pieces.size() == 1 && !add) {
      require(!tokenizer.is_control(t), "text makes no control token");
    }
  }
  const bool spm = which == kSpm || which == kGemma4;
  // A BOS that the text itself spells is not told from one that was added: add nothing here.
  if (!add && which < kWordPiece && (spm || culet::base::utf8_valid(text))) {
    const std::string back = tokenizer.detokenize(*ids, false, true);
    require(spm ? unmarked(back) == unmarked(std::string(text)) : back == text,
            "the text comes back");
  }
  check_stream(tokenizer, *ids);
  return 0;
}
