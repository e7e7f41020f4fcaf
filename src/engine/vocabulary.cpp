#include "culet/vocabulary.h"

#include "text/tokenizer.h"

namespace culet {

Vocabulary::Vocabulary(std::shared_ptr<const text::Tokenizer> tokenizer)
    : tokenizer_(std::move(tokenizer)) {}
int64_t Vocabulary::size() const { return tokenizer_->size(); }

Result<std::vector<Token>> Vocabulary::tokenize(std::string_view text, bool add_special,
                                               bool parse_special) const {
  return tokenizer_->tokenize(text,
                                      {.add_special = add_special, .parse_special = parse_special});
}

Result<std::vector<Token>> Vocabulary::tokenize_part(std::string_view text, bool first) const {
  return tokenizer_->tokenize(text,
                                      {.part = first ? text::Part::kFirst : text::Part::kLater});
}

std::string Vocabulary::detokenize(std::span<const Token> ids, bool special) const {
  return tokenizer_->detokenize(ids, false, special);
}

std::string Vocabulary::piece(Token id, bool special) const {
  return tokenizer_->piece(id, special);
}

bool Vocabulary::is_end_of_generation(Token id) const {
  return tokenizer_->is_end_of_generation(id);
}

}  // namespace culet
