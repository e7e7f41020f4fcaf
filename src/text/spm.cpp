// SentencePiece-style vocabularies: takes text, gives ids.
//
// Spaces become U+2581, every character starts as a symbol, and neighbours merge until none can.
// What is no token in the end is written byte by byte with the byte tokens (<0x00> ... <0xFF>).
//
// Which neighbours merge is the difference between two kinds. "llama": those whose joined text is a
// token, the highest score first and the leftmost among equals. Scores may be ranks or log
// probabilities: only their order counts, which is why this is not a search for the best sum.
// "gemma4": those of the merge list, in its order; such files carry scores too, which say something
// else, so the declared name decides and never what is there. Its published tokenizer cuts no words
// (a rule for spaces acts after these have become U+2581), so runs of newlines need no care either.
//
// Invalid UTF-8 is cut as its lead bytes announce (what the reference engine does), so those bytes
// go through as byte tokens and come back unchanged; a symbol never takes in a space.
#include "text/encoder.h"
#include "text/merge_list.h"
#include "text/merge_rules.h"
#include "text/space_marker.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

namespace culet::text {
namespace {

// Lower is better: the order of floats turned around, as unsigned numbers.
uint32_t priority_of(float score) {
  const uint32_t bits = std::bit_cast<uint32_t>(score + 0.0f);  // -0 and 0 are one
  const uint32_t ascending = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return ~ascending;
}

size_t announced_length(uint8_t lead) {
  if (lead < 0xc0) return 1;
  if (lead < 0xe0) return 2;
  return lead < 0xf0 ? 3 : 4;
}

// Bytes of the symbol at the start of `text`, which begins with no space.
size_t symbol_length(std::string_view text) {
  const size_t most = std::min(announced_length(static_cast<uint8_t>(text[0])), text.size());
  size_t length = 1;
  while (length < most && text[length] != ' ') ++length;
  return length;
}

class Spm final : public Encoder {
 public:
  Spm(const TokenTable& table, bool space_prefix, Token unknown)
      : table_(table), space_prefix_(space_prefix), unknown_(unknown) {
    byte_tokens_.fill(kNoToken);
    for (Token t = 0; t < table.size(); ++t) {
      if (table.kind(t) != TokenKind::kByte) continue;
      Token& slot = byte_tokens_[*table.byte(t)];  // checked by Tokenizer::make
      if (slot == kNoToken) slot = t;
    }
  }

  void use_rules(MergeRules rules) { rules_ = std::move(rules); }

  Result<void> read_scores(const Vocabulary& vocabulary) {
    const size_t n = static_cast<size_t>(table_.size());
    if (vocabulary.scores.size() != n) {
      return fail(ErrorCode::kCorrupt,
                  fmt::format("the vocabulary has {} tokens but {} scores; a `llama` tokenizer "
                              "needs one a token, so convert the model again",
                              n, vocabulary.scores.size()));
    }
    priorities_.reserve(n);
    for (size_t i = 0; i < n; ++i) {
      if (!std::isfinite(vocabulary.scores[i])) {
        return fail(ErrorCode::kCorrupt,
                    fmt::format("the score of token {} is not a finite number; the file is "
                                "damaged, fetch it again",
                                i));
      }
      priorities_.push_back(priority_of(vocabulary.scores[i]));
    }
    return {};
  }

  Result<void> encode(std::string_view text, bool starts_text,
                      std::vector<Token>* out) const override {
    std::string marked;
    MergeList list;
    const auto add = [&](std::string_view symbol) {
      list.add(static_cast<uint32_t>(marked.size()), static_cast<uint32_t>(symbol.size()),
               table_.find_plain(symbol));
      marked += symbol;
    };
    marked.reserve(text.size() + text.size() / 2 + kSpaceMarker.size());
    if (space_prefix_ && starts_text) add(kSpaceMarker);
    for (size_t pos = 0; pos < text.size();) {
      const size_t length = text[pos] == ' ' ? 1 : symbol_length(text.substr(pos));
      add(text[pos] == ' ' ? kSpaceMarker : text.substr(pos, length));
      pos += length;
    }
    list.run([&](const MergeList::Symbol& left, const MergeList::Symbol& right) {
      if (rules_) return rules_->find(left.token, right.token);
      return merge_of(std::string_view(marked).substr(left.begin, left.size + right.size));
    });
    list.for_each([&](const MergeList::Symbol& symbol) {
      if (symbol.token != kNoToken) {
        out->push_back(symbol.token);
      } else {
        fall_back(std::string_view(marked).substr(symbol.begin, symbol.size), out);
      }
    });
    return {};
  }

  void append_text(Token t, std::string* out) const override {
    append_unmarked(table_.text(t), out);
  }

 private:
  MergeList::Merge merge_of(std::string_view joined) const {
    const Token t = table_.find_plain(joined);
    if (t == kNoToken) return {MergeList::kNever, kNoToken};
    return {priorities_[static_cast<size_t>(t)], t};
  }

  void fall_back(std::string_view symbol, std::vector<Token>* out) const {
    for (const char c : symbol) {
      if (byte_tokens_[static_cast<uint8_t>(c)] == kNoToken) {
        out->push_back(unknown_);
        return;
      }
    }
    for (const char c : symbol) out->push_back(byte_tokens_[static_cast<uint8_t>(c)]);
  }

  const TokenTable& table_;
  bool space_prefix_;
  Token unknown_;
  std::optional<MergeRules> rules_;   // nullopt: scores decide
  std::vector<uint32_t> priorities_;  // by token
  std::array<Token, 256> byte_tokens_;
};

}  // namespace

Result<std::unique_ptr<Encoder>> make_spm(const Vocabulary& vocabulary, const TokenTable& table,
                                          bool space_prefix, Token unknown) {
  auto spm = std::make_unique<Spm>(table, space_prefix, unknown);
  CULET_TRY_VOID(spm->read_scores(vocabulary));
  return spm;
}

Result<std::unique_ptr<Encoder>> make_gemma4(const Vocabulary& vocabulary, const TokenTable& table,
                                             bool space_prefix, Token unknown) {
  auto spm = std::make_unique<Spm>(table, space_prefix, unknown);
  CULET_TRY(MergeRules rules, MergeRules::make(vocabulary, table));
  spm->use_rules(std::move(rules));
  return spm;
}

}  // namespace culet::text
