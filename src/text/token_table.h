// The vocabulary's entries: text and kind by id, id by text. Immutable; owns copies of everything.
#pragma once

#include "culet/result.h"
#include "text/tokenizer.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace culet::text {

constexpr Token kNoToken = -1;

class TokenTable {
 public:
  // Errors: kCorrupt (no tokens, too many, kinds that are not one a token or not of the format).
  static Result<TokenTable> make(const Vocabulary& vocabulary);

  int32_t size() const { return static_cast<int32_t>(offsets_.size()) - 1; }
  bool contains(Token t) const { return t >= 0 && t < size(); }
  std::string_view text(Token t) const {  // contains(t)
    const size_t i = static_cast<size_t>(t);
    return std::string_view(bytes_).substr(offsets_[i], offsets_[i + 1] - offsets_[i]);
  }
  TokenKind kind(Token t) const {
    return kinds_.empty() ? TokenKind::kNormal : kinds_[static_cast<size_t>(t)];
  }
  // The lowest id with exactly this text, or kNoToken.
  Token find(std::string_view text) const;
  // The same, but only a token that plain text may become: normal or user-defined. So neither
  // merges nor fallbacks can make a control token of text that merely spells one.
  Token find_plain(std::string_view text) const {
    const Token t = find(text);
    return t != kNoToken && is_plain(t) ? t : kNoToken;
  }
  bool is_plain(Token t) const {
    return kind(t) == TokenKind::kNormal || kind(t) == TokenKind::kUserDefined;
  }
  size_t longest() const { return longest_; }  // bytes of the longest text

  // The byte that a token of kind kByte stands for ("<0x0A>"), nullopt when its text is not so.
  std::optional<uint8_t> byte(Token t) const;

 private:
  std::string bytes_;
  std::vector<size_t> offsets_;  // size() + 1
  std::vector<TokenKind> kinds_;
  std::vector<Token> slots_;  // open addressing over the texts
  uint64_t key_ = 0;
  size_t longest_ = 0;
};

}  // namespace culet::text
