// Tokens to text that can be shown: the detokenizer holds back unfinished characters, the filter
// what may become a stop.
#include "culet/vocabulary.h"
#include "engine/vocabulary_impl.h"
#include "sample/stops.h"

#include <utility>

namespace culet {

struct TextStream::Impl {
  Vocabulary vocabulary;  // keeps the tokenizer
  bool special;
  text::Detokenizer detokenizer;
  sample::StopFilter stops;
  std::string characters{}, shown{};
};

Result<TextStream> TextStream::make(const Vocabulary& vocabulary,
                                    const TextStreamOptions& options) {
  CULET_TRY_VOID(sample::check_stops(options.stops));
  const text::Tokenizer& tokenizer = *vocabulary.impl_->tokenizer;
  return TextStream(std::unique_ptr<Impl>(new Impl{vocabulary, options.special,
                                                   text::Detokenizer(tokenizer, options.special),
                                                   sample::StopFilter(options.stops)}));
}

TextStream::TextStream(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TextStream::TextStream(const TextStream& other) : impl_(std::make_unique<Impl>(*other.impl_)) {}
TextStream::TextStream(TextStream&& other) noexcept = default;
TextStream& TextStream::operator=(TextStream&& other) noexcept = default;
TextStream::~TextStream() = default;

TextStream& TextStream::operator=(const TextStream& other) {
  if (this != &other) impl_ = std::make_unique<Impl>(*other.impl_);
  return *this;
}

std::string_view TextStream::push(Token id) {
  impl_->characters.clear();
  impl_->shown.clear();
  impl_->detokenizer.push(id, &impl_->characters);
  impl_->stops.push(impl_->characters, &impl_->shown);
  return impl_->shown;
}

std::string_view TextStream::flush() {
  impl_->characters.clear();
  impl_->shown.clear();
  impl_->detokenizer.flush(&impl_->characters);
  impl_->stops.push(impl_->characters, &impl_->shown);
  impl_->stops.flush(&impl_->shown);
  return impl_->shown;
}

int TextStream::stop() const { return impl_->stops.matched(); }

void TextStream::reset() {
  impl_->characters.clear();
  impl_->detokenizer.flush(&impl_->characters);
  impl_->stops.reset();
  impl_->characters.clear();
}

}  // namespace culet
