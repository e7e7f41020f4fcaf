// Small vocabularies for the tests of this layer. The storage must outlive Tokenizer::make only.
#pragma once

#include "base/utf8.h"
#include "text/byte_alphabet.h"
#include "text/space_marker.h"
#include "text/tokenizer.h"

#include <fmt/format.h>

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace culet::text {

inline const std::string kMark(kSpaceMarker);

class TestVocabulary {
 public:
  // Ids 0..255 are the bytes themselves.
  static TestVocabulary bpe(std::string_view pre) {
    TestVocabulary v;
    v.data_.model = "gpt2";
    v.data_.pre = v.keep(std::string(pre));
    for (int b = 0; b < 256; ++b) {
      v.token(base::utf8_encode(kByteAlphabet.code[static_cast<size_t>(b)]));
    }
    return v;
  }
  // Ids 0 <unk>, 1 <s>, 2 </s>, 3..258 byte tokens, 259 the space marker.
  static TestVocabulary spm(bool byte_tokens = true) {
    TestVocabulary v;
    v.data_.model = "llama";
    v.token("<unk>", TokenKind::kUnknown);
    v.token("<s>", TokenKind::kControl);
    v.token("</s>", TokenKind::kControl);
    for (int b = 0; b < 256 && byte_tokens; ++b) {
      v.token(fmt::format("<0x{:02X}>", b), TokenKind::kByte);
    }
    v.token(kMark, TokenKind::kNormal, -1000);
    return v;
  }

  // Ids 0 <pad>, 1 </s>, 2 <unk>, 3 the space marker; no table of characters.
  static TestVocabulary unigram() {
    TestVocabulary v;
    v.data_.model = "t5";
    v.token("<pad>", TokenKind::kControl);
    v.token("</s>", TokenKind::kControl);
    v.token("<unk>", TokenKind::kUnknown);
    v.token(kMark, TokenKind::kNormal, -3);
    return v;
  }

  Token token(std::string text, TokenKind kind = TokenKind::kNormal, float score = 0) {
    data_.tokens.push_back(keep(std::move(text)));
    data_.kinds.push_back(kind);
    if (data_.model == "llama" || data_.model == "t5") data_.scores.push_back(score);
    return static_cast<Token>(data_.tokens.size()) - 1;
  }
  // The rule "left right" and, unless it is there already, the token it makes. The sides and the
  // result are spelled in the byte alphabet.
  Token merge(const std::string& left, const std::string& right) {
    data_.merges.push_back(keep(left + " " + right));
    for (size_t i = 0; i < data_.tokens.size(); ++i) {
      if (data_.tokens[i] == left + right) return static_cast<Token>(i);
    }
    return token(left + right);
  }

  Vocabulary& operator*() { return data_; }
  Vocabulary* operator->() { return &data_; }
  std::shared_ptr<const Tokenizer> make() {
    auto tokenizer = Tokenizer::make(data_);
    return tokenizer ? *tokenizer : nullptr;
  }

 private:
  std::string_view keep(std::string text) { return kept_.emplace_back(std::move(text)); }

  std::deque<std::string> kept_;
  Vocabulary data_;
};

using Ids = std::vector<Token>;

inline Ids ids_of(const Tokenizer& tokenizer, std::string_view text, bool special = false,
                  bool parse = false) {
  return tokenizer.tokenize(text, {.begin = special, .end = special, .parse_special = parse})
      .value();
}

}  // namespace culet::text
