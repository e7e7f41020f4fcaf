#include "culet/vocabulary.h"

#include "sample/stops.h"
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

struct TextStream::Impl {
  text::Detokenizer d; sample::StopFilter s; std::vector<std::string> stops; std::string out;
};
TextStream::TextStream() = default;
TextStream::TextStream(TextStream&&) noexcept = default;
TextStream::~TextStream() = default;
Result<TextStream> TextStream::make(const Vocabulary& v, std::span<const std::string> stops) {
  CULET_TRY_VOID(sample::check_stops(stops));
  TextStream t;
  t.impl_.reset(new Impl{text::Detokenizer(*v.tokenizer_), sample::StopFilter(stops), {stops.begin(), stops.end()}, {}});
  return t;
}
std::string_view TextStream::push(Token token) { return impl_->out = impl_->s.push(impl_->d.push(token)); }
std::string_view TextStream::flush() { std::string r = impl_->s.push(impl_->d.flush()); r += impl_->s.flush(); return impl_->out = r; }
bool TextStream::stopped() const { return impl_->s.matched() >= 0; }
const std::string& TextStream::stop() const { return impl_->stops[static_cast<size_t>(impl_->s.matched())]; }

}  // namespace culet
