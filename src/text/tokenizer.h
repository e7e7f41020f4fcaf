// Text <-> token ids, for the vocabularies that GGUF files carry.
//
// A Tokenizer is immutable and may be used from any number of threads. Input may be any bytes;
// invalid UTF-8 is handled, never dropped. Text that spells a control token stays text unless the
// caller says parse_special.
#pragma once

#include "culet/result.h"
#include "culet/token.h"
#include "culet/vocabulary.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace culet::text {

using culet::Token;
using culet::TokenizeOptions;
using culet::TokenKind;

// What a file says about its vocabulary; views stay owned by the caller until make_tokenizer
// returns.
struct Vocabulary {
  // tokenizer.ggml.model: "llama" (SPM), "gemma4", "gpt2" (BPE), "bert" (WordPiece), "t5" (unigram)
  std::string_view model;
  std::string_view pre;  // tokenizer.ggml.pre; "" or "default" when absent
  std::vector<std::string_view> tokens;
  std::vector<float> scores;             // empty or one a token
  std::vector<TokenKind> kinds;          // empty or one a token
  std::vector<std::string_view> merges;  // BPE: "left right"
  std::optional<Token> bos, eos, unk, sep, pad, cls, eot, eom;
  std::optional<bool> add_bos, add_eos, add_sep, add_space_prefix;
  std::optional<bool> lowercase, strip_accents;  // "bert": how text is normalized; true when absent
  std::string charsmap;                          // "t5": precompiled_charsmap; empty when absent
  std::optional<bool> remove_extra_whitespaces;  // "t5"
};

class Tokenizer {
 public:
  // Errors: kCorrupt (sizes, kinds, merges that break the format), kUnsupported (unknown model).
  // An unknown pre-tokenizer is not an error here, but tokenize() then refuses text.
  static Result<std::shared_ptr<const Tokenizer>> make(const Vocabulary& vocabulary);
  virtual ~Tokenizer() = default;

  // As culet::Vocabulary::tokenize.
  virtual Result<std::vector<Token>> tokenize(std::string_view text,
                                              const TokenizeOptions& options) const = 0;
  // Pieces of a rendered chat: special tokens are honoured in template pieces only, and so are the
  // user-defined tokens that mark the template's format (<tool_call>, <|"|>): those whose text,
  // between punctuation, a template piece or `source`, the text of the template, spells. BOS if
  // `begin`; one that the template itself wrote is not doubled. No EOS is added: a prompt is there
  // to be continued.
  struct Piece {
    std::string_view text;
    bool is_template;
  };
  virtual Result<std::vector<Token>> tokenize_pieces(std::span<const Piece> pieces, bool begin,
                                                     std::string_view source = {}) const = 0;

  virtual int32_t size() const = 0;  // tokens in the vocabulary
  virtual bool is_control(Token t) const = 0;
  virtual bool is_end_of_generation(Token t) const = 0;  // eos, eot and their kin
  virtual std::optional<Token> bos() const = 0;
  virtual std::optional<Token> eos() const = 0;
  virtual std::optional<Token> find(
      std::string_view token_text) const = 0;  // exact vocabulary entry
  // Bytes of one token by itself. Control tokens give "" unless `special`. Invalid id: "".
  virtual std::string piece(Token t, bool special) const = 0;
  virtual void append_piece(Token t, bool special, std::string* out) const = 0;
  virtual TokenKind kind(Token t) const = 0;         // invalid id: kUnused
  virtual std::string_view text(Token t) const = 0;  // as the file spells it; invalid id: ""
  // The whole text of ids: joins pieces and strips the leading space an SPM tokenizer added.
  // remove_special drops a leading BOS / trailing EOS the way tokenize() adds them.
  virtual std::string detokenize(std::span<const Token> ids, bool remove_special,
                                 bool special) const = 0;
};

// Turns a stream of tokens into a stream of whole UTF-8 characters: holds back the bytes of an
// unfinished character; invalid bytes pass as U+FFFD. Constant work per token.
class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer, bool special = false)
      : tokenizer_(&tokenizer), special_(special) {}
  // Appends the text that is complete now (perhaps none).
  void push(Token t, std::string* out);
  // Appends what is left at the end, and starts anew.
  void flush(std::string* out);

  std::string push(Token t) {
    std::string out;
    push(t, &out);
    return out;
  }
  std::string flush() {
    std::string out;
    flush(&out);
    return out;
  }

 private:
  const Tokenizer* tokenizer_;
  bool special_;
  std::string pending_;
};

}  // namespace culet::text
