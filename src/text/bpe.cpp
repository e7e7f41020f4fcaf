// Byte-level BPE: takes text, gives ids.
//
// The text is cut into words (pretokenizer.h); a word starts as one symbol a byte, and pairs of
// symbols merge by the rank of their rule (merge_rules.h) until none applies.
//
// The words must be valid UTF-8, for the patterns and because the vocabularies are trained on it.
// Bytes that are not become U+FFFD one by one, as the reference engine does (which, unlike us, lets
// overlong forms and surrogates through, and refuses what lies above U+10FFFF). Some vocabularies
// lack tokens for a few bytes (SmolLM2 has none for U+0004); a character with such a byte becomes
// U+FFFD too, where others drop it silently.
#include "base/utf8.h"
#include "text/byte_alphabet.h"
#include "text/encoder.h"
#include "text/merge_list.h"
#include "text/merge_rules.h"
#include "text/pretokenizer.h"

#include <fmt/format.h>

#include <array>
#include <optional>
#include <string>
#include <utility>

namespace culet::text {
namespace {

constexpr std::string_view kReplacementBytes = "\xef\xbf\xbd";

class Bpe final : public Encoder {
 public:
  Bpe(const Vocabulary& vocabulary, const TokenTable& table, MergeRules rules)
      : table_(table), rules_(std::move(rules)) {
    pre_ = vocabulary.pre;
    if (const PretokenizerRow* row = find_pretokenizer(vocabulary.pre)) {
      words_.emplace(*row);
      ignore_merges_ = row->ignore_merges;
    }
    for (size_t b = 0; b < 256; ++b) {
      byte_tokens_[b] = table.find_plain(base::utf8_encode(kByteAlphabet.code[b]));
      all_bytes_ = all_bytes_ && byte_tokens_[b] != kNoToken;
    }
  }

  Result<void> encode(std::string_view text, bool, std::vector<Token>* out) const override {
    if (!words_) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("the pre-tokenizer `{}` (tokenizer.ggml.pre) is not known, so text "
                              "cannot be tokenized; give token ids instead of text, or use a model "
                              "with one of: {}",
                              pre_, pretokenizer_names()));
    }
    std::string replaced;
    CULET_TRY(const std::string_view clean, cleaned(text, &replaced));
    CULET_TRY(const std::vector<Span> words, words_->split(clean));
    MergeList list;
    std::string spelled;
    for (const Span word : words) {
      encode_word(clean.substr(word.begin, word.end - word.begin), &list, &spelled, out);
    }
    return {};
  }

  void append_text(Token t, std::string* out) const override {
    const std::string_view text = table_.text(t);
    for (size_t pos = 0; pos < text.size();) {
      const base::Utf8Step step = base::utf8_step(text, pos);
      const int16_t byte =
          step.valid && step.code < kAlphabetEnd ? kByteAlphabet.byte_of[step.code] : -1;
      if (byte >= 0) {
        out->push_back(static_cast<char>(byte));
      } else {
        out->append(text.substr(pos, static_cast<size_t>(step.length)));
      }
      pos += static_cast<size_t>(step.length);
    }
  }

 private:
  bool has_tokens(std::string_view bytes) const {
    for (const char c : bytes) {
      if (byte_tokens_[static_cast<uint8_t>(c)] == kNoToken) return false;
    }
    return true;
  }

  // The text with U+FFFD for what cannot be tokenized; in *storage if anything was.
  Result<std::string_view> cleaned(std::string_view text, std::string* storage) const {
    if (all_bytes_ && base::utf8_valid(text)) return text;
    storage->reserve(text.size());
    for (size_t pos = 0; pos < text.size();) {
      const base::Utf8Step step = base::utf8_step(text, pos);
      const std::string_view bytes = text.substr(pos, static_cast<size_t>(step.length));
      if (step.valid && has_tokens(bytes)) {
        storage->append(bytes);
      } else if (has_tokens(kReplacementBytes)) {
        storage->append(kReplacementBytes);
      } else {
        return fail(ErrorCode::kUnsupported,
                    fmt::format("the vocabulary has no token for the byte at position {} of the "
                                "text, nor for U+FFFD; leave the character out",
                                pos));
      }
      pos += bytes.size();
    }
    return std::string_view(*storage);
  }

  void encode_word(std::string_view word, MergeList* list, std::string* spelled,
                   std::vector<Token>* out) const {
    if (ignore_merges_) {
      spelled->clear();
      for (const char c : word) {
        base::utf8_append(kByteAlphabet.code[static_cast<uint8_t>(c)], spelled);
      }
      if (const Token whole = table_.find_plain(*spelled); whole != kNoToken) {
        out->push_back(whole);
        return;
      }
    }
    list->clear();
    for (size_t i = 0; i < word.size(); ++i) {
      list->add(static_cast<uint32_t>(i), 1, byte_tokens_[static_cast<uint8_t>(word[i])]);
    }
    list->run([this](const MergeList::Symbol& left, const MergeList::Symbol& right) {
      return rules_.find(left.token, right.token);
    });
    list->for_each([out](const MergeList::Symbol& symbol) { out->push_back(symbol.token); });
  }

  const TokenTable& table_;
  MergeRules rules_;
  std::string pre_;
  std::optional<Pretokenizer> words_;  // nullopt: unknown pre-tokenizer
  bool ignore_merges_ = false;
  std::array<Token, 256> byte_tokens_{};
  bool all_bytes_ = true;
};

}  // namespace

Result<std::unique_ptr<Encoder>> make_bpe(const Vocabulary& vocabulary, const TokenTable& table) {
  CULET_TRY(MergeRules rules, MergeRules::make(vocabulary, table));
  return std::make_unique<Bpe>(vocabulary, table, std::move(rules));
}

}  // namespace culet::text
