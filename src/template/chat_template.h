// Chat templates: the Jinja that model files carry, run with fuel, depth and output limits.
//
// Rendering gives text that remembers byte by byte where it came from, so that the tokenizer can
// keep text of users from becoming control tokens, and so that the caller can tell which parts of
// the conversation the template left out. A ChatTemplate never changes; any number of threads may
// use it.
#pragma once

#include "culet/result.h"
#include "template/value.h"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace culet::chat {

struct ChatTraits;

struct Piece {
  std::string text;
  bool is_template;  // false: the text came from the data (contents, results, arguments, ...)
};

struct Limits {
  int64_t fuel = 10'000'000;  // evaluation steps
  int depth = 200;            // nesting of expressions, macros and loops
  size_t output = 16 << 20;   // bytes
};

// What is known of a node of the data, and of the nodes below it that have no mark of their own.
struct Mark {
  uint32_t origin = 0;        // number of the part of the conversation; 0: none in particular
  bool program = false;       // a string (this node alone) that counts as the template's text
  bool program_keys = false;  // so do keys of objects that are plain words
};
// By address: the data must not change between marking and rendering.
using Marks = std::unordered_map<const nlohmann::ordered_json*, Mark>;

// Letters, digits, "_", "-" and "." of ASCII, at least one.
bool is_plain_word(std::string_view text);

struct Rendering {
  Text text;
  std::vector<std::string> unread;  // members of the data that the template did not look at
};

class ChatTemplate {
 public:
  // Errors: kInvalidArgument with line and column of the template.
  static Result<std::shared_ptr<const ChatTemplate>> parse(std::string_view source,
                                                           Limits limits = {});
  ~ChatTemplate();

  // The text that it was made of.
  const std::string& source() const;

  // `data` is a JSON object of the variables that come from the conversation (messages, tools,
  // ...): text taken from its strings is user text, also after filters, slices and concatenation,
  // except where `marks` says that the program wrote it.
  // `constants` are variables of the model and the caller's own (bos_token, eos_token,
  // add_generation_prompt): their text counts as the template's. They win over data.
  // Errors: what the template raises itself (raise_exception), unknown names, limits.
  Result<Rendering> render(const nlohmann::ordered_json& data,
                           const nlohmann::ordered_json& constants, const Marks& marks) const;
  // The same without marks, as pieces; neighbouring pieces of one kind are joined.
  Result<std::vector<Piece>> render(const nlohmann::ordered_json& data,
                                    const nlohmann::ordered_json& constants) const;

  // What it does with the parts of a conversation, found out by rendering some; see traits.h.
  // Computed on the first call.
  const ChatTraits& traits() const;

 private:
  struct Impl;
  explicit ChatTemplate(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  friend class Prober;
  Result<Rendering> render(const nlohmann::ordered_json& data,
                           const nlohmann::ordered_json& constants, const Marks& marks,
                           const Limits& limits) const;
  std::shared_ptr<const Impl> impl_;
};

// The text cut where template and data meet; neighbours of one kind are joined.
std::vector<Piece> pieces_of(const Text& text);

}  // namespace culet::chat
