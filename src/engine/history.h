// The tokens of one timeline. A stream forgets the oldest ones, and keeps a digest of them, so that
// a later question "do these tokens begin with what you have read?" still has an exact answer.
#pragma once

#include "culet/token.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace culet::engine {

class History {
 public:
  static constexpr int64_t kChunk = 1024;  // tokens are forgotten in chunks of this

  History() = default;
  // As it was when digest(), forgotten() and kept() were asked. Nothing: these do not go together.
  static std::optional<History> restored(int64_t forgotten, std::string digest,
                                         std::vector<Token> kept);

  int64_t length() const { return forgotten_ + static_cast<int64_t>(kept_.size()); }
  int64_t forgotten() const { return forgotten_; }
  const std::string& digest() const { return digest_; }  // of the forgotten ones; "" of none
  std::span<const Token> kept() const { return kept_; }

  void append(std::span<const Token> tokens);
  // False, and nothing changed, when some of the tokens below `length` are forgotten.
  bool resize(int64_t length);
  void clear() { *this = History(); }
  void forget_all_but(int64_t last);  // at least the last `last` stay
  // Whether it begins with all tokens of the other one; false, too, when the two have not forgotten
  // the same tokens.
  bool begins_with(const History& other) const;
  // How many tokens both have in common from the start; 0 when what is forgotten differs.
  int64_t common_prefix(std::span<const Token> tokens) const;

 private:
  int64_t forgotten_ = 0;  // a multiple of kChunk
  std::string digest_;     // sha256 of the digest before and the chunk, chunk after chunk
  std::vector<Token> kept_;
};

}  // namespace culet::engine
