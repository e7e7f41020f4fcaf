// Byte-level BPE: takes text, gives ids.
//
// The text is cut into words (pretokenizer.h); a word starts as one symbol a byte, and pairs of
// symbols merge by the rank of their rule until none applies. Rules are kept by the ids of their
// two sides, so no text is built while merging. A rule whose result is a control, unknown or unused
// token is checked but never applied: text must not become one.
//
// The words must be valid UTF-8, for the patterns and because the vocabularies are trained on it.
// Bytes that are not become U+FFFD one by one, as the reference engine does (which, unlike us, lets
// overlong forms and surrogates through, and refuses what lies above U+10FFFF). Some vocabularies
// lack tokens for a few bytes (SmolLM2 has none for U+0004); a character with such a byte becomes
// U+FFFD too, where others drop it silently.
#include "base/utf8.h"
#include "text/byte_alphabet.h"
#include "text/encoder.h"
#include "text/hash.h"
#include "text/merge_list.h"
#include "text/pretokenizer.h"

#include <fmt/format.h>

#include <array>
#include <optional>
#include <string>
#include <utility>

namespace culet::text {
namespace {

constexpr std::string_view kReplacementBytes = "\xef\xbf\xbd";

uint64_t pair_key(Token left, Token right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

tl::unexpected<Error> bad_merge(size_t index, std::string_view problem) {
  return fail(ErrorCode::kCorrupt,
              fmt::format("tokenizer.ggml.merges[{}] {}; the file is damaged or badly converted, "
                          "fetch it again",
                          index, problem));
}

class Bpe final : public Encoder {
 public:
  Bpe(const Vocabulary& vocabulary, const TokenTable& table) : table_(table) {
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

  Result<void> read_merges(const Vocabulary& vocabulary) {
    const std::vector<std::string_view>& merges = vocabulary.merges;
    if (merges.size() > size_t{1} << 30) return bad_merge(merges.size() - 1, "is one too many");
    rules_.reserve(merges.size());
    results_.reserve(merges.size());
    std::string joined;
    for (size_t i = 0; i < merges.size(); ++i) {
      const size_t space = merges[i].find(' ');
      if (space == std::string_view::npos || space != merges[i].rfind(' ')) {
        return bad_merge(i, "is not two texts with one space between them");
      }
      const std::string_view left = merges[i].substr(0, space), right = merges[i].substr(space + 1);
      if (left.empty() || right.empty()) return bad_merge(i, "has an empty side");
      const Token a = table_.find(left), b = table_.find(right);
      joined.assign(left).append(right);
      const Token result = table_.find(joined);
      if (a == kNoToken || b == kNoToken || result == kNoToken) {
        return bad_merge(i, "joins or makes a text that is not in the vocabulary");
      }
      results_.push_back(result);
      if (table_.is_plain(result)) rules_.insert(pair_key(a, b), static_cast<int32_t>(i));
    }
    return {};
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
      const int32_t rank = rules_.find(pair_key(left.token, right.token));
      if (rank == NumberMap::kNone) return MergeList::Merge{MergeList::kNever, kNoToken};
      return MergeList::Merge{static_cast<uint32_t>(rank), results_[static_cast<size_t>(rank)]};
    });
    list->for_each([out](const MergeList::Symbol& symbol) { out->push_back(symbol.token); });
  }

  const TokenTable& table_;
  std::string pre_;
  std::optional<Pretokenizer> words_;  // nullopt: unknown pre-tokenizer
  bool ignore_merges_ = false;
  std::array<Token, 256> byte_tokens_{};
  bool all_bytes_ = true;
  NumberMap rules_;             // the ids of two sides -> rank
  std::vector<Token> results_;  // by rank
};

}  // namespace

Result<std::unique_ptr<Encoder>> make_bpe(const Vocabulary& vocabulary, const TokenTable& table) {
  auto bpe = std::make_unique<Bpe>(vocabulary, table);
  CULET_TRY_VOID(bpe->read_merges(vocabulary));
  return bpe;
}

}  // namespace culet::text
