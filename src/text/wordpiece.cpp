// WordPiece: takes text, gives ids.
//
// Words (bert_words.h) are taken apart greedily: the longest token that begins the word, then the
// longest that continues it, and so on; if the rest of a word matches nothing, or if it has more
// than 100 characters, the whole word is the unknown token (the published algorithm, with its
// default limit). Files spell "begins a word" and "continues one" in two ways: converters to GGUF
// mark beginnings with U+2581, the models' own vocab.txt marks continuations with "##". Which one
// it is shows in the vocabulary: one without a single U+2581 in front is of the second kind.
#include "base/utf8.h"
#include "text/bert_words.h"
#include "text/encoder.h"
#include "text/space_marker.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace culet::text {
namespace {

constexpr std::string_view kContinues = "##";
constexpr int kMostCharacters = 100;

bool is_inside_character(char c) { return (static_cast<uint8_t>(c) & 0xc0) == 0x80; }

class WordPiece final : public Encoder {
 public:
  WordPiece(const Vocabulary& vocabulary, const TokenTable& table, Token unknown)
      : table_(table), unknown_(unknown) {
    options_.lowercase = vocabulary.lowercase.value_or(true);
    options_.strip_accents = vocabulary.strip_accents.value_or(options_.lowercase);
    for (Token t = 0; t < table.size() && !marked_; ++t)
      marked_ = table.text(t).starts_with(kSpaceMarker);
  }

  Result<void> encode(std::string_view text, bool, std::vector<Token>* out) const override {
    std::string spelled;
    for_each_bert_word(text, options_,
                       [&](std::string_view word) { encode_word(word, &spelled, out); });
    return {};
  }

  void append_text(Token t, std::string* out) const override {
    std::string_view text = table_.text(t);
    const std::string_view mark = marked_ ? kSpaceMarker : kContinues;
    const bool has_mark = text.starts_with(mark);
    if (has_mark == marked_) out->push_back(' ');
    if (has_mark) text.remove_prefix(mark.size());
    out->append(text);
  }

 private:
  void encode_word(std::string_view word, std::string* spelled, std::vector<Token>* out) const {
    const size_t before = out->size();
    const auto characters =
        std::count_if(word.begin(), word.end(), [](char c) { return !is_inside_character(c); });
    std::string_view rest = characters > kMostCharacters ? std::string_view() : word;
    while (!rest.empty()) {
      const size_t size = take(rest, rest.size() == word.size(), spelled, out);
      if (size == 0) break;
      rest.remove_prefix(size);
    }
    if (rest.empty() && out->size() > before) return;
    out->resize(before);
    out->push_back(unknown_);
  }

  // Appends the longest token that `rest` begins with; how much it covers, 0 when there is none.
  size_t take(std::string_view rest, bool begins_word, std::string* spelled,
              std::vector<Token>* out) const {
    std::string_view mark;
    if (marked_ && begins_word) mark = kSpaceMarker;
    if (!marked_ && !begins_word) mark = kContinues;
    spelled->assign(mark).append(rest);
    for (size_t size = rest.size(); size > 0; --size) {
      if (size < rest.size() && is_inside_character(rest[size])) continue;
      const Token t = table_.find_plain(std::string_view(*spelled).substr(0, mark.size() + size));
      if (t == kNoToken) continue;
      out->push_back(t);
      return size;
    }
    return 0;
  }

  const TokenTable& table_;
  Token unknown_;
  BertWordsOptions options_;
  bool marked_ = false;  // beginnings carry kSpaceMarker; else continuations carry kContinues
};

}  // namespace

std::unique_ptr<Encoder> make_wordpiece(const Vocabulary& vocabulary, const TokenTable& table,
                                        Token unknown) {
  return std::make_unique<WordPiece>(vocabulary, table, unknown);
}

}  // namespace culet::text
