#pragma once

#include "culet/result.h"
#include "culet/token.h"

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace culet {

namespace text {
class Tokenizer;
}

class Vocabulary final {
 public:
  explicit Vocabulary(std::shared_ptr<const text::Tokenizer> tokenizer);
  int64_t size() const;
  Result<std::vector<Token>> tokenize(std::string_view text, bool add_special,
                                      bool parse_special) const;
  Result<std::vector<Token>> tokenize_part(std::string_view text, bool first) const;
  std::string detokenize(std::span<const Token> ids, bool special) const;
  std::string piece(Token id, bool special) const;
  bool is_end_of_generation(Token id) const;

 public:
  std::shared_ptr<const text::Tokenizer> tokenizer_;
};

class TextStream final {
 public:
  static Result<TextStream> make(const Vocabulary& vocabulary, std::span<const std::string> stops);
  TextStream(TextStream&&) noexcept;
  ~TextStream();
  std::string_view push(Token token);
  std::string_view flush();
  bool stopped() const;
  const std::string& stop() const;
 private:
  TextStream();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace culet
