// Chat templates: the Jinja that model files carry, run with fuel, depth and output limits.
//
// Rendering gives pieces, each marked as the template's own text or as data that came from the
// messages, so that the tokenizer can keep text of users from becoming control tokens.
#pragma once

#include "culet/result.h"

#include <nlohmann/json_fwd.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace culet::chat {

struct Piece {
  std::string text;
  bool is_template;  // false: the text came from the data (messages, tools, other arguments)
};

struct Limits {
  int64_t fuel = 10'000'000;  // evaluation steps
  int depth = 200;            // nesting of expressions, macros and loops
  size_t output = 16 << 20;   // bytes
};

class ChatTemplate {
 public:
  // Errors: kInvalidArgument with line and column of the template.
  static Result<std::shared_ptr<const ChatTemplate>> parse(std::string_view source,
                                                           Limits limits = {});
  ~ChatTemplate();

  // `data` is a JSON object of the variables that come from the conversation (messages, tools,
  // ...): text taken from its strings is user text, also after filters, slices and concatenation.
  // `constants` are variables of the model and the caller's own (bos_token, eos_token,
  // add_generation_prompt, enable_thinking): their text counts as the template's.
  // Neighbouring pieces of one kind are joined.
  // Errors: what the template raises itself (raise_exception), unknown names, limits.
  Result<std::vector<Piece>> render(const nlohmann::ordered_json& data,
                                    const nlohmann::ordered_json& constants) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

}  // namespace culet::chat
