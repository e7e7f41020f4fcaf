// The public vocabulary over text::Tokenizer, and the sampler that is made with one.
#include "culet/vocabulary.h"

#include "culet/sampler.h"
#include "engine/vocabulary_impl.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace culet {
namespace {

bool inside(const text::Tokenizer& tokenizer, Token id) { return id >= 0 && id < tokenizer.size(); }

// Every token whose bytes (of a control token: its text) contain `text`; where there is none, the
// last token of the text's tokenization.
Result<void> add_breakers(const Vocabulary& vocabulary, const std::string& text,
                          std::vector<Token>* breakers) {
  const size_t before = breakers->size();
  for (Token id = 0; id < vocabulary.size(); ++id) {
    const bool control = vocabulary.kind(id) == TokenKind::kControl;
    const std::string_view own = control ? vocabulary.text(id) : vocabulary.bytes(id);
    if (own.find(text) != std::string_view::npos) breakers->push_back(id);
  }
  if (breakers->size() > before) return {};
  CULET_TRY(const std::vector<Token> ids,
            vocabulary.tokenize(text, {.begin = false, .end = false}));
  if (!ids.empty()) breakers->push_back(ids.back());
  return {};
}

}  // namespace

// ---------------------------------------------------------------- tables made when asked for

const Vocabulary::Impl::Bytes& Vocabulary::Impl::bytes() const {
  std::call_once(bytes_once_, [this] {
    bytes_.offsets.reserve(static_cast<size_t>(tokenizer->size()) + 1);
    bytes_.offsets.push_back(0);
    for (Token id = 0; id < tokenizer->size(); ++id) {
      tokenizer->append_piece(id, false, &bytes_.all);
      bytes_.offsets.push_back(bytes_.all.size());
    }
  });
  return bytes_;
}

const std::vector<Token>& Vocabulary::Impl::sorted() const {
  const Bytes& all = bytes();
  std::call_once(sorted_once_, [&] {
    for (Token id = 0; id < tokenizer->size(); ++id) {
      if (!all.of(id).empty()) sorted_.push_back(id);
    }
    const auto key = [&](Token id) {
      return std::tuple(all.of(id), tokenizer->kind(id) == TokenKind::kByte, id);
    };
    std::sort(sorted_.begin(), sorted_.end(), [&](Token a, Token b) { return key(a) < key(b); });
  });
  return sorted_;
}

// ---------------------------------------------------------------- the vocabulary

Vocabulary engine::make_vocabulary(std::shared_ptr<const text::Tokenizer> tokenizer) {
  auto impl = std::make_shared<Vocabulary::Impl>();
  for (Token id = 0; id < tokenizer->size(); ++id) {
    if (tokenizer->is_end_of_generation(id)) impl->ends.push_back(id);
  }
  impl->tokenizer = std::move(tokenizer);
  return Vocabulary(std::move(impl));
}

Vocabulary::Vocabulary(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

int64_t Vocabulary::size() const { return impl_->tokenizer->size(); }

TokenKind Vocabulary::kind(Token id) const { return impl_->tokenizer->kind(id); }

std::string_view Vocabulary::bytes(Token id) const {
  return inside(*impl_->tokenizer, id) ? impl_->bytes().of(id) : std::string_view();
}

std::string_view Vocabulary::text(Token id) const { return impl_->tokenizer->text(id); }

std::string_view Vocabulary::piece(Token id) const {
  const std::string_view own = bytes(id);
  return own.empty() ? text(id) : own;
}

std::optional<Token> Vocabulary::bos() const { return impl_->tokenizer->bos(); }

std::optional<Token> Vocabulary::eos() const { return impl_->tokenizer->eos(); }

std::span<const Token> Vocabulary::end_of_generation() const { return impl_->ends; }

bool Vocabulary::is_end_of_generation(Token id) const {
  return impl_->tokenizer->is_end_of_generation(id);
}

std::optional<Token> Vocabulary::find_special(std::string_view text) const {
  const std::optional<Token> id = impl_->tokenizer->find(text);
  if (!id) return std::nullopt;
  const TokenKind found = kind(*id);
  const bool special = found == TokenKind::kControl || found == TokenKind::kUserDefined;
  return special ? id : std::nullopt;
}

std::optional<Token> Vocabulary::find_bytes(std::string_view bytes) const {
  const std::vector<Token>& sorted = impl_->sorted();
  const Impl::Bytes& all = impl_->bytes();
  const auto at =
      std::lower_bound(sorted.begin(), sorted.end(), bytes,
                       [&](Token id, std::string_view wanted) { return all.of(id) < wanted; });
  if (at == sorted.end() || all.of(*at) != bytes) return std::nullopt;
  return *at;
}

Result<std::vector<Token>> Vocabulary::tokenize(std::string_view text,
                                                const TokenizeOptions& options) const {
  return impl_->tokenizer->tokenize(text, options);
}

std::string Vocabulary::detokenize(std::span<const Token> ids, bool special) const {
  return impl_->tokenizer->detokenize(ids, false, special);
}

// ---------------------------------------------------------------- the sampler

Result<Sampler> Sampler::make(const Vocabulary& vocabulary, const SamplerOptions& options) {
  CULET_TRY_VOID(validate(options, vocabulary.size()));
  SamplerOptions resolved = options;
  resolved.dry_sequence_breakers.clear();
  if (options.dry_multiplier > 0) {
    for (const std::string& text : options.dry_sequence_breakers) {
      CULET_TRY_VOID(add_breakers(vocabulary, text, &resolved.dry_breaker_tokens));
    }
  }
  return make(vocabulary.size(), resolved);
}

}  // namespace culet
