// Conversations: from messages, tools and template variables to the tokens of a prompt.
//
//   culet::ChatRequest request;
//   request.messages = R"([{"role": "user", "content": "What is the weather in Paris?"}])";
//   request.tools = R"([{"type": "function", "function": {"name": "get_weather", ...}}])";
//   auto prompt = culet::render_chat(*model, request);          // Result<ChatPrompt>
//   culet::generate(**session, prompt->tokens, {}, on_event);
//
// The chat template that the model file carries decides what the prompt looks like; it is run, not
// recognized. Two things hold for every template:
// - Text of the conversation never becomes a control token: not a content, a tool's result, an
//   argument of a call, a description of a tool or a template variable. Only what the template
//   itself spells, joined with roles, names of tools and keys of their descriptions, can. The same
//   holds for other tokens that the template uses as marks, such as <tool_call>.
// - Nothing that was given disappears silently: ChatPrompt::unused lists what the template left
//   out, and a member that is not understood is an error that names it.
//
// Threads: all functions may be called by any number of threads on one Model.
#pragma once

#include "culet/model.h"
#include "culet/result.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace culet {

// A conversation in the shape of the OpenAI chat API, as JSON texts.
struct ChatRequest {
  // An array of messages, each an object with
  //   role               a plain word (letters, digits, "_", "-", "."), such as "system",
  //                      "developer", "user", "assistant" or "tool"
  //   content            a string, or an array of parts {"type": "text", "text": ...}; null or
  //                      absent only in an answer that has tool_calls or reasoning
  //   name               optional; of a tool's result: the tool's name
  //   tool_call_id       of a tool's result: the id of an earlier call
  //   tool_calls         of an answer: [{"id", "type": "function", "function": {"name",
  //                      "arguments"}}]; arguments is a JSON object, or a string that holds one
  //   reasoning_content  of an answer: what the model thought ("reasoning" and "thinking" are
  //                      other names of it)
  // An answer's "refusal", "audio", "function_call" and "annotations" may be there if they are null
  // or empty. Anything else is an error.
  std::string messages{};
  // An array of {"type": "function", "function": {"name", "description", "parameters", ...}};
  // "", null or an empty array: none. Names of tools are plain words.
  std::string tools{};
  // An object of further variables for the template, for example {"enable_thinking": false};
  // "" : none. It may not name what comes from elsewhere: messages, add_generation_prompt and the
  // special tokens (bos_token, eos_token, ...). "tools" is taken if the member above is empty.
  std::string variables{};
  // Ends the prompt where the answer is to begin.
  bool add_generation_prompt = true;
  // Renders only what follows an answer that a session already holds: how the template ends an
  // answer, then the messages (there may be none).
  bool after_answer = false;
};

struct PromptPiece {
  std::string text;
  // True: spelled by the template; control tokens are recognized. False: text of the conversation.
  bool from_template = false;
};

enum class ChatPart : uint8_t {
  kSystem,     // content of a system or developer message
  kMessage,    // content of any other message that is not the model's own
  kAnswer,     // content of an assistant message
  kReasoning,  // reasoning of an assistant message; templates leave out that of earlier turns
  kToolCall,   // a call in an assistant message
  kTool,       // a tool
  kVariable,   // a template variable that the template did not look at
};

// A part of the request of which the template put nothing into the prompt. Parts that are empty or
// white space are not listed.
struct UnusedPart {
  ChatPart part;
  std::string path;  // "messages[0].content", "tools[1]", "variables.enable_thinkin"
};

struct ChatPrompt {
  std::vector<Token> tokens;         // with the file's token for the start of a text; no end token
  std::vector<PromptPiece> pieces;   // the same as text; neighbours differ in from_template
  std::vector<UnusedPart> unused{};  // in the order of the request
  std::string text() const;          // the pieces joined
};

// Renders a conversation by the model's chat template.
//
// A conversation with tools goes through the file's template of the name "tool_use", if it has one
// beside its ordinary one. What the request leaves open is settled as the template wants it, found
// out by trial: parts of a content are joined with a line feed unless the template takes them as
// they are; arguments become an object, or a string for a template that takes only strings; a
// "developer" message is a system message for a template that does not know the role; reasoning
// goes by the name that the template reads.
//
// Errors: kInvalidArgument (the request, naming the member: "messages[2].tool_calls[0]..."; or what
// the template itself refuses), kUnsupported (the file has no template, or none that can be used;
// content that is not text; after_answer with a template that does not show answers as they are),
// kExhausted (the template's limits on steps, depth and output).
Result<ChatPrompt> render_chat(const Model& model, const ChatRequest& request);

// The same for messages that are only text.
struct Message {
  std::string role, content;
};
struct ChatOptions {  // as in ChatRequest
  bool add_generation_prompt = true, after_answer = false;
  std::string variables{};
};
Result<ChatPrompt> render_chat(const Model& model, std::span<const Message> messages,
                               const ChatOptions& options = {});

// An error (kUnsupported) that names the first part that the template left out and that an answer
// cannot do without: a system message, another message, a tool or a call. Reasoning, text beside a
// call and variables are left to the caller, who may warn.
Result<void> check_used(const ChatPrompt& prompt);

// What a model's chat template does with a conversation, found out by rendering small ones.
struct ChatTemplateInfo {
  std::string source{};  // the Jinja text; "" : the file has none
  std::string error{};   // why it cannot be used; "" : it can
  std::string
      tool_source{};        // of a second template, used where there are tools; "" : there is none
  bool system = false;      // shows system messages
  bool tools = false;       // shows the tools
  bool tool_calls = false;  // shows calls in answers
  bool tool_results = false;         // shows messages of the role "tool"
  bool parallel_tool_calls = false;  // shows several calls of one answer
  bool reasoning = false;            // shows the reasoning of an answer, at least of the last one
  // The variable that switches thinking on and off by changing the prompt ("enable_thinking",
  // "thinking"); "" : there is none.
  std::string thinking_variable{};

  bool usable() const { return !source.empty() && error.empty(); }
};
ChatTemplateInfo chat_template_info(const Model& model);

}  // namespace culet
