// The vocabulary of a model: what each token is, text to tokens and back, whole or token by token.
//
//   const culet::Vocabulary& vocabulary = model->vocabulary();
//   auto ids = vocabulary.tokenize("Hello", true, false);
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

// Immutable; any number of threads may use it. A copy is another handle of the same vocabulary, and
// outlives the model. Ids outside the vocabulary are of kind kUnused and have no text.
class Vocabulary final {
 public:
  int64_t size() const;
  TokenKind kind(Token id) const;
  // The exact bytes that the token adds to a text, perhaps a part of a character only. Empty for
  // tokens that stand for no text: control, unknown and unused ones. The view lives as long as any
  // handle of the vocabulary.
  std::string_view bytes(Token id) const;
  // The token as the file spells it: "<|im_end|>" of a control token, but marks in place of spaces
  // or bytes in others. The view lives as bytes() does.
  std::string_view text(Token id) const;
  // What a reader is shown of one token: bytes(), and text() of a token that has none.
  std::string_view piece(Token id) const;

  std::optional<Token> bos() const;
  std::optional<Token> eos() const;
  // Every token that ends an answer (the end of a text, a turn, a call), ascending.
  std::span<const Token> end_of_generation() const;
  bool is_end_of_generation(Token id) const;
  // The control or user-defined token of this text, such as "<|im_end|>".
  std::optional<Token> find_special(std::string_view text) const;
  // The token with exactly these bytes; of several the lowest id that is not a byte token, else the
  // byte token.
  std::optional<Token> find_bytes(std::string_view bytes) const;

  // add_special: with the tokens that the file wants at the start and the end of a text.
  // parse_special: text that spells a control token becomes that token; else it stays text.
  Result<std::vector<Token>> tokenize(std::string_view text, bool add_special,
                                      bool parse_special) const;
  // The same for a text that comes in parts, without control tokens: only the first part gets what
  // the file wants at the start of a text, no part what it wants at the end. No token spans two
  // parts; split in front of a line to keep the ids of the whole text.
  Result<std::vector<Token>> tokenize_part(std::string_view text, bool first) const;
  // The text of a sequence. special: with the texts of control tokens. Bytes may be no UTF-8.
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
  bool special = false;  // with the texts of control tokens, which are left out otherwise
};

// Tokens in, text out: whole UTF-8 characters only (invalid bytes become U+FFFD), and nothing of a
// stop text. What may become a stop is held back until that is decided. One thread at a time. A
// copy goes on from the same place by itself. Short texts allocate nothing after warm-up.
class TextStream final {
 public:
  // kInvalidArgument: a stop that is empty, too long or no UTF-8, or too many of them.
  static Result<TextStream> make(const Vocabulary& vocabulary,
                                 const TextStreamOptions& options = {});
  TextStream(const TextStream& other);
  TextStream(TextStream&& other) noexcept;
  TextStream& operator=(const TextStream& other);
  TextStream& operator=(TextStream&& other) noexcept;
  ~TextStream();

  // What can be shown now; may be empty. After a stop: what is in front of it, then nothing more.
  // The view is valid until the next call of a member that is not const.
  std::string_view push(Token id);
  // At the end: an unfinished character (as U+FFFD), and what was held back for a stop. The bytes
  // of the character may still complete a stop.
  std::string_view flush();
  // Which stop ended the stream, as an index into TextStreamOptions::stops; -1: none.
  int stop() const;
  void reset();  // as new

 private:
  struct Impl;
  explicit TextStream(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace culet
