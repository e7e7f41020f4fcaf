// What differs between kinds of vocabulary: text without special tokens -> ids, and an id -> bytes.
#pragma once

#include "culet/result.h"
#include "text/token_table.h"
#include "text/tokenizer.h"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace culet::text {

// Immutable; any number of threads. `table` must outlive it.
class Encoder {
 public:
  virtual ~Encoder() = default;
  // Appends the ids of any bytes. starts_text: nothing precedes, or a special token does.
  virtual Result<void> encode(std::string_view text, bool starts_text,
                              std::vector<Token>* out) const = 0;
  // Appends the bytes of a token of kind normal.
  virtual void append_text(Token t, std::string* out) const = 0;
};

// "gpt2". Errors: kCorrupt (merges that break the format).
Result<std::unique_ptr<Encoder>> make_bpe(const Vocabulary& vocabulary, const TokenTable& table);

// "llama". space_prefix: text gets a space in front where it starts. `unknown` stands for text that
// has no token. Errors: kCorrupt (scores that are missing or not numbers, byte tokens).
Result<std::unique_ptr<Encoder>> make_spm(const Vocabulary& vocabulary, const TokenTable& table,
                                          bool space_prefix, Token unknown);

// "gemma4": the same text and fallbacks, but a merge list instead of scores. Errors: kCorrupt
// (merges that break the format).
Result<std::unique_ptr<Encoder>> make_gemma4(const Vocabulary& vocabulary, const TokenTable& table,
                                             bool space_prefix, Token unknown);

// "t5" (unigram). space_prefix: text gets a space in front where it starts. `unknown` stands for
// characters that have no token. Errors: kCorrupt (scores, the table of characters).
Result<std::unique_ptr<Encoder>> make_unigram(const Vocabulary& vocabulary, const TokenTable& table,
                                              bool space_prefix, Token unknown);

// "bert" (WordPiece). `unknown` stands for a word that has no tokens.
std::unique_ptr<Encoder> make_wordpiece(const Vocabulary& vocabulary, const TokenTable& table,
                                        Token unknown);

}  // namespace culet::text
