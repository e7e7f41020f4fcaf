// What a culet::Vocabulary is a handle of.
#pragma once

#include "culet/vocabulary.h"
#include "text/tokenizer.h"

#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace culet {

struct Vocabulary::Impl {
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::vector<Token> ends;  // of generation, ascending

  // Made when somebody asks first: few programs ever do.
  struct Bytes {
    std::string all;              // of all tokens, one behind another
    std::vector<size_t> offsets;  // [size + 1]
    std::string_view of(Token id) const {
      const auto i = static_cast<size_t>(id);
      return std::string_view(all).substr(offsets[i], offsets[i + 1] - offsets[i]);
    }
  };
  const Bytes& bytes() const;
  const std::vector<Token>& sorted() const;  // tokens with bytes, by (bytes, byte tokens last, id)

 private:
  mutable std::once_flag bytes_once_, sorted_once_;
  mutable Bytes bytes_;
  mutable std::vector<Token> sorted_;
};

namespace engine {

Vocabulary make_vocabulary(std::shared_ptr<const text::Tokenizer> tokenizer);

}  // namespace engine
}  // namespace culet
