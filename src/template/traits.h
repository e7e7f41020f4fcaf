// What a chat template does with the parts of a conversation, found out by rendering small ones.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace culet::chat {

class ChatTemplate;

enum class Speaker : uint8_t { kSystem, kUser, kAssistant, kTool };

struct ChatTraits {
  bool system = false;          // shows system messages
  bool developer = false;       // treats the role "developer" unlike a word that it does not know
  bool tools = false;           // shows the tools
  bool tool_calls = false;      // shows calls in answers
  bool tool_results = false;    // shows the contents of messages of the role "tool"
  bool parallel_calls = false;  // shows several calls in one answer
  bool reasoning = false;       // shows the reasoning of an answer, at least of the last one

  // How it wants what can be said in more than one way.
  bool text_content = true;            // shows contents that are strings
  std::array<bool, 4> part_content{};  // [Speaker]: shows contents that are lists of text parts
  bool null_content = false;           // beside calls: null instead of an empty string
  bool text_arguments = false;         // arguments of calls as a string instead of an object
  std::string reasoning_member = "reasoning_content";
  std::string thinking_variable;  // boolean that changes the prompt; "" : none
};

// Renders about twenty conversations of a few words, each with limits of its own.
ChatTraits probe(const ChatTemplate& chat);

}  // namespace culet::chat
