#pragma once

#include "culet/model.h"

#include <span>
#include <string>
#include <vector>

namespace culet {

struct Message {
  std::string role, content;
};
struct ChatOptions {
  bool add_generation_prompt = true;
  bool after_answer = false;
  std::string extra_json{};
};
Result<std::vector<Token>> render_chat(const Model& model, std::span<const Message> messages,
                                       const ChatOptions& options);
Result<std::string> render_chat_text(const Model& model, std::span<const Message> messages,
                                     const ChatOptions& options);

}  // namespace culet
