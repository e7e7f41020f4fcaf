// Conversations: from messages, tools and template variables to the tokens of a prompt.
//
//   culet::ChatRequest request;
//   request.messages = R"([{"role": "user", "content": "What is the weather in Paris?"}])";
//   request.tools = R"([{"type": "function", "function": {"name": "get_weather", ...}}])";
//   auto prompt = culet::render_chat(*model, request);          // Result<ChatPrompt>
//   culet::generate(**session, prompt->tokens, {}, on_event);
//
// The chat template in the model file (Jinja) decides what the prompt looks like. culet runs the
// template; it has no built-in chat formats. Two rules hold for every template:
// - Text of the conversation never becomes a control token. This includes contents, tool results,
//   arguments, descriptions of tools and template variables. Only the template's own text can,
//   joined with roles, names of tools and keys of their descriptions. The same holds for other
//   tokens that the template uses as marks, such as <tool_call>.
// - Nothing disappears silently. ChatPrompt::unused lists what the template left out, and
//   check_used() makes an error of it. A member that is not understood is an error that names it.
//
// Answers are not parsed: a tool call in an answer is text, in the form that the model was trained
// to write. The caller reads it.
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

// A conversation in the shape of the OpenAI chat API, as JSON texts in UTF-8. Limits: 32 MiB and 64
// levels for each text.
struct ChatRequest {
  // An array of messages, each an object with
  //   role               a plain word (letters, digits, "_", "-", "."), such as "system",
  //                      "developer", "user", "assistant" or "tool"
  //   content            a string, or an array of parts {"type": "text", "text": ...}; null or
  //                      absent only in an answer that has tool_calls or reasoning
  //   name               optional; of a tool's result: the tool's name
  //   tool_call_id       of a tool's result: the id of an earlier call (with after_answer: any)
  //   tool_calls         of an answer: [{"id", "type": "function", "function": {"name",
  //                      "arguments"}}]; arguments is a JSON object, or a string that holds one
  //   reasoning_content  of an answer: what the model thought ("reasoning" and "thinking" are
  //                      other names of it)
  // An answer may have "refusal", "audio", "function_call" and "annotations" if they are null or
  // empty. Any other member is an error.
  std::string messages{};
  // An array of {"type": "function", "function": {"name", "description", "parameters", ...}};
  // "", null or an empty array: none. Names of tools are plain words.
  std::string tools{};
  // An object with variables of the template, for example {"enable_thinking": false}; "" : none.
  // The names messages, add_generation_prompt and those of special tokens (bos_token, eos_token,
  // ...) are errors. "tools" is allowed if the member above is empty.
  std::string variables{};
  // True: the prompt ends where the answer of the assistant begins.
  bool add_generation_prompt = true;
  // True: for a session that already holds the conversation and an answer. Renders only what
  // follows: the template's end of an answer, then `messages` (there may be none).
  bool after_answer = false;
};

struct PromptPiece {
  std::string text;
  // True: text of the template, in which control tokens are recognized. False: text of the
  // conversation.
  bool from_template = false;
};

enum class ChatPart : uint8_t {
  kSystem,     // content of a system or developer message
  kMessage,    // content of any other message that is not the model's own
  kAnswer,     // content of an assistant message
  kReasoning,  // reasoning of an assistant message; templates leave out that of earlier turns
  kToolCall,   // a call in an assistant message
  kTool,       // a tool
  kVariable,   // a template variable that the template did not read
  kName,       // the name of a message: of a speaker, or of the tool of a result
  kId,         // the tool_call_id of a result; few templates show it
};

// A part of the request that left no text in the prompt. Empty parts and white space are not
// listed.
struct UnusedPart {
  ChatPart part;
  std::string path;  // "messages[0].content", "tools[1]", "variables.enable_thinkin"
};

struct ChatPrompt {
  std::vector<Token> tokens;         // begins with BOS if the file wants it; no end token
  std::vector<PromptPiece> pieces;   // the same as text; adjacent pieces differ in from_template
  std::vector<UnusedPart> unused{};  // in the order of the request
  std::string text() const;          // the pieces joined
};

// Renders a conversation by the model's chat template.
//
// If the file has a second template named "tool_use", it is used for conversations with tools.
// Templates expect some members in different forms. culet finds out which form this template wants
// by rendering small conversations, and converts:
//   content parts are joined with a line feed, unless the template reads parts;
//   arguments become an object, or a string if the template reads only strings;
//   "developer" becomes "system" if the template does not know the role;
//   reasoning gets the name that the template reads.
//
// Errors: kInvalidArgument (the request, naming the member: "messages[2].tool_calls[0]...", or what
// the template itself refuses), kUnsupported (no template, or one that cannot be used; content that
// is not text; after_answer with a template that changes answers), kExhausted (the limits of a
// rendering: steps, nesting, output).
Result<ChatPrompt> render_chat(const Model& model, const ChatRequest& request);

// The same for messages that are plain text.
struct Message {
  std::string role, content;
};
struct ChatOptions {  // as in ChatRequest
  bool add_generation_prompt = true, after_answer = false;
  std::string variables{};
};
Result<ChatPrompt> render_chat(const Model& model, std::span<const Message> messages,
                               const ChatOptions& options = {});

// Fails with kUnsupported if the template left out something that matters: a system message,
// another message, a tool or a tool call. The error names the first one. Reasoning, text beside a
// tool call, names, ids and variables do not fail; the caller may warn about them.
Result<void> check_used(const ChatPrompt& prompt);

// What the model's chat template can do, found out by rendering small conversations.
struct ChatTemplateInfo {
  std::string source{};  // the Jinja text; "" : the file has none
  std::string error{};   // why it cannot be used; "" : it can
  // The Jinja text of the second template, for conversations with tools; "" : there is none.
  std::string tool_source{};
  bool system = false;               // shows system messages
  bool tools = false;                // shows the tools
  bool tool_calls = false;           // shows calls in answers
  bool tool_results = false;         // shows messages of the role "tool"
  bool parallel_tool_calls = false;  // shows several calls of one answer
  bool reasoning = false;            // shows the reasoning of an answer, at least of the last one
  // The variable that switches thinking on and off ("enable_thinking", "thinking"); "" : none.
  std::string thinking_variable{};

  bool usable() const { return !source.empty() && error.empty(); }
};
ChatTemplateInfo chat_template_info(const Model& model);

}  // namespace culet
