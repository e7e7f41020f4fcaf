// The vocabulary of a model: what each token is, text to tokens and back, whole or token by token.
//
//   const culet::Vocabulary& vocabulary = model->vocabulary();
//   auto ids = vocabulary.tokenize("Hello");
//   auto stream = culet::TextStream::make(vocabulary, {.stops = {"\nUser:"}});
//   for (culet::Token id : answer) std::cout << stream->push(id);
//   std::cout << stream->flush();
#pragma once

#include "culet/result.h"
#include "culet/token.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace culet {

// How a text becomes tokens. The defaults are for a whole text that a user typed.
struct TokenizeOptions {
  // Add the tokens that the file wants before a text (BOS, CLS) and behind it (EOS, SEP). A prompt
  // that is to be continued has no end: {.end = false}.
  bool begin = true;
  bool end = true;
  // Text that spells a control token becomes that token. Otherwise it stays text, which is right
  // for everything that a user typed.
  bool parse_special = false;
  // The text goes on behind an earlier one, so it gets nothing before it: no begin tokens, and not
  // the space that some tokenizers put before a text. No token spans the two. Split after a
  // newline, before a line that does not begin with white space, to keep the ids of the whole.
  bool continued = false;
};

// Immutable; any number of threads may use it. A copy is another handle of the same vocabulary and
// may outlive the model. Ids outside the vocabulary have the kind kUnused and no text.
class Vocabulary final {
 public:
  int64_t size() const;
  TokenKind kind(Token id) const;
  // The exact bytes that the token adds to a text, which may be a part of a character. Empty for
  // tokens without text: control, unknown and unused ones. Valid as long as any handle of the
  // vocabulary exists.
  std::string_view bytes(Token id) const;
  // The token as the file spells it: "<|im_end|>" for a control token; other tokens may have marks
  // in place of spaces or bytes. Valid as bytes() is.
  std::string_view text(Token id) const;
  // For display: bytes(), or text() if there are none.
  std::string_view piece(Token id) const;

  std::optional<Token> bos() const;
  std::optional<Token> eos() const;
  // Every token that ends an answer (llama.cpp: EOG), in ascending order: the end of a text, a
  // turn, a tool call.
  std::span<const Token> end_of_generation() const;
  bool is_end_of_generation(Token id) const;
  // The control or user-defined token with exactly this text, such as "<|im_end|>".
  std::optional<Token> find_special(std::string_view text) const;
  // The token with exactly these bytes. If there are several: the lowest id that is not a byte
  // token.
  std::optional<Token> find_bytes(std::string_view bytes) const;

  // Begin and end tokens that the text spells already are not doubled. Errors: kUnsupported (an
  // unknown pre-tokenizer, or bytes that the vocabulary has no token for), kInvalidArgument (the
  // text is too long), kExhausted (memory, or the limits of the pre-tokenizer).
  Result<std::vector<Token>> tokenize(std::string_view text,
                                      const TokenizeOptions& options = {}) const;
  // The text of a sequence. special: with the texts of control tokens. The result may not be UTF-8.
  std::string detokenize(std::span<const Token> ids, bool special) const;

  struct Impl;
  explicit Vocabulary(std::shared_ptr<const Impl> impl);  // made by the model

 private:
  friend class TextStream;
  std::shared_ptr<const Impl> impl_;
};

struct TextStreamOptions {
  // Texts that end the stream, also across tokens. At most 64 of 1024 bytes each, in UTF-8.
  std::vector<std::string> stops{};
  bool special = false;  // true: the texts of control tokens are part of the output
};

// Tokens in, text out. The text consists of whole UTF-8 characters (invalid bytes become U+FFFD)
// and contains nothing of a stop text: text that may become a stop is held back until that is
// decided. One thread at a time. A copy continues independently from the same point. Tokens of
// ordinary length allocate nothing after warm-up.
class TextStream final {
 public:
  // Error: kInvalidArgument (a stop that is empty, too long or not UTF-8, or more than 64 stops).
  static Result<TextStream> make(const Vocabulary& vocabulary,
                                 const TextStreamOptions& options = {});
  TextStream(const TextStream& other);
  TextStream(TextStream&& other) noexcept;
  TextStream& operator=(const TextStream& other);
  TextStream& operator=(TextStream&& other) noexcept;
  ~TextStream();

  // Adds a token and returns the text that can be shown now; may be empty. When a stop is complete:
  // the text before it; after that always empty. Valid until the next call of push, flush or reset.
  std::string_view push(Token id);
  // At the end of the tokens: returns what was held back, an unfinished character as U+FFFD. This
  // text may still complete a stop.
  std::string_view flush();
  // Which stop ended the stream, as an index into TextStreamOptions::stops; -1: none.
  int stop() const;
  void reset();  // as after make()

 private:
  struct Impl;
  explicit TextStream(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace culet
