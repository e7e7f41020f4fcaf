// From a conversation to the tokens of a prompt: the request is checked and shaped (template/),
// rendered by the file's template, and tokenized with control tokens in the template's text only.
#include "culet/chat.h"

#include "engine/model_impl.h"
#include "template/conversation.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <utility>

namespace culet {
namespace {

using Json = nlohmann::ordered_json;
using model::LoadedModel;

struct RenderOptions {
  bool add_generation_prompt = true;
  bool after_answer = false;
};

// Special tokens that templates know by name, with the key of a GGUF file that holds the id. Where
// a file does not name one, the variable is not bound, as in the reference.
constexpr struct {
  const char* variable;
  const char* key;
} kSpecialTokens[] = {
    {"bos_token", "tokenizer.ggml.bos_token_id"},
    {"eos_token", "tokenizer.ggml.eos_token_id"},
    {"unk_token", "tokenizer.ggml.unknown_token_id"},
    {"pad_token", "tokenizer.ggml.padding_token_id"},
    {"sep_token", "tokenizer.ggml.seperator_token_id"},
    {"cls_token", "tokenizer.ggml.cls_token_id"},
    {"mask_token", "tokenizer.ggml.mask_token_id"},
};

Json constants_of(const LoadedModel& model, const RenderOptions& options) {
  const text::Tokenizer& tokenizer = *model.tokenizer;
  Json constants = {{"add_generation_prompt", options.add_generation_prompt}};
  for (const auto& special : kSpecialTokens) {
    const format::MetaValue* value = model.file.find(special.key);
    const auto id = value ? value->as_number() : std::nullopt;
    if (!id || *id < 0 || *id >= tokenizer.size()) continue;
    constants[special.variable] = tokenizer.piece(static_cast<Token>(*id), true);
  }
  // The tokenizer's own, where it has them without a key of the file.
  if (tokenizer.bos()) constants["bos_token"] = tokenizer.piece(*tokenizer.bos(), true);
  if (tokenizer.eos()) constants["eos_token"] = tokenizer.piece(*tokenizer.eos(), true);
  return constants;
}

// Stands for the answer that a session holds; what the template writes behind it is wanted.
constexpr std::string_view kAnswerBefore = "(the answer before)";
constexpr size_t kHidden = 2;  // messages put before the caller's: a question and that answer

// The text behind the last byte of the answer, whose content is the part `origin`.
Result<chat::Text> behind_answer(const chat::Text& text, uint32_t origin) {
  std::string answer;
  size_t from = 0, end = 0;
  for (const chat::Text::Run& run : text.runs()) {
    if (run.source.origin == origin) {
      answer += text.bytes().substr(from, run.end - from);
      end = run.end;
    }
    from = run.end;
  }
  if (answer == kAnswerBefore) return text.slice(end, text.size() - end);
  return fail(ErrorCode::kUnsupported,
              "the chat template changes answers, so a conversation cannot continue from a "
              "session's tokens; send the whole conversation instead");
}

Result<const chat::ChatTemplate*> template_of(const LoadedModel& model, bool with_tools) {
  if (with_tools && model.chat_tools) return model.chat_tools.get();
  if (model.chat) return model.chat.get();
  const std::string why = model.chat_error.empty()
                              ? "has no chat template"
                              : "has a chat template that cannot be used: " + model.chat_error;
  return fail(ErrorCode::kUnsupported,
              fmt::format("{} {}; load it with a template of your own, or give it plain text",
                          model.info.path, why));
}

Result<ChatPrompt> make_prompt(const LoadedModel& model, const chat::Text& text,
                               const chat::ChatTemplate& chat, bool whole) {
  ChatPrompt prompt;
  std::vector<text::Tokenizer::Piece> views;
  for (chat::Piece& piece : chat::pieces_of(text)) {
    prompt.pieces.push_back({std::move(piece.text), piece.is_template});
  }
  views.reserve(prompt.pieces.size());
  for (const PromptPiece& piece : prompt.pieces) views.push_back({piece.text, piece.from_template});
  CULET_TRY(prompt.tokens, model.tokenizer->tokenize_pieces(views, whole, chat.source()));
  return prompt;
}

Result<ChatPrompt> render(const LoadedModel& model, chat::Conversation conversation,
                          const RenderOptions& options) {
  CULET_TRY(const chat::ChatTemplate* chat, template_of(model, !conversation.tools.is_null()));
  if (options.after_answer) {
    Json& messages = conversation.messages;
    messages.insert(messages.begin(), Json{{"role", "assistant"}, {"content", kAnswerBefore}});
    messages.insert(messages.begin(), Json{{"role", "user"}, {"content", "?"}});
  }
  const Json data = chat::template_data(conversation, chat->traits());
  const chat::Labels labels = chat::label(data, options.after_answer ? kHidden : 0);
  CULET_TRY(chat::Rendering rendering,
            chat->render(data, constants_of(model, options), labels.marks));
  if (options.after_answer) {
    const uint32_t answer = labels.marks.at(&data["messages"][1]["content"]).origin;
    CULET_TRY(rendering.text, behind_answer(rendering.text, answer));
  }
  CULET_TRY(ChatPrompt prompt, make_prompt(model, rendering.text, *chat, !options.after_answer));
  prompt.unused = chat::unused_parts(conversation, labels, rendering);
  return prompt;
}

std::string_view name_of(ChatPart part) {
  switch (part) {
    case ChatPart::kSystem:
      return "the system message";
    case ChatPart::kMessage:
      return "the message";
    case ChatPart::kAnswer:
      return "the answer";
    case ChatPart::kReasoning:
      return "the reasoning";
    case ChatPart::kToolCall:
      return "the tool call";
    case ChatPart::kTool:
      return "the tool";
    case ChatPart::kVariable:
      return "the variable";
    case ChatPart::kName:
      return "the name";
    case ChatPart::kId:
      return "the id";
  }
  return "";
}

}  // namespace

std::string ChatPrompt::text() const {
  std::string text;
  for (const PromptPiece& piece : pieces) text += piece.text;
  return text;
}

Result<ChatPrompt> render_chat(const Model& model, const ChatRequest& request) {
  CULET_TRY(chat::Conversation conversation,
            chat::read_conversation(request.messages, request.tools, request.variables,
                                    request.after_answer));
  return render(model.impl().loaded(), std::move(conversation),
                {request.add_generation_prompt, request.after_answer});
}

Result<ChatPrompt> render_chat(const Model& model, std::span<const Message> messages,
                               const ChatOptions& options) {
  Json list = Json::array();
  for (const Message& message : messages) {
    list.push_back(Json{{"role", message.role}, {"content", message.content}});
  }
  CULET_TRY(chat::Conversation conversation,
            chat::make_conversation(std::move(list), options.variables));
  return render(model.impl().loaded(), std::move(conversation),
                {options.add_generation_prompt, options.after_answer});
}

Result<void> check_used(const ChatPrompt& prompt) {
  for (const UnusedPart& unused : prompt.unused) {
    const bool needed = unused.part == ChatPart::kSystem || unused.part == ChatPart::kMessage ||
                        unused.part == ChatPart::kToolCall || unused.part == ChatPart::kTool;
    if (!needed) continue;
    return fail(ErrorCode::kUnsupported,
                fmt::format("the chat template leaves out {} ({}); drop it, put its text into "
                            "another message, or give a template that shows it",
                            name_of(unused.part), unused.path));
  }
  return {};
}

ChatTemplateInfo chat_template_info(const Model& model) {
  const LoadedModel& loaded = model.impl().loaded();
  ChatTemplateInfo info;
  if (!loaded.chat) {
    const format::MetaValue* value = loaded.file.find("tokenizer.chat_template");
    const auto source = value ? value->as_string() : std::nullopt;
    if (source) info.source = *source;
    info.error = loaded.chat_error;
    return info;
  }
  const chat::ChatTraits& traits = loaded.chat->traits();
  const chat::ChatTraits& with_tools = loaded.chat_tools ? loaded.chat_tools->traits() : traits;
  info.source = loaded.chat->source();
  if (loaded.chat_tools) info.tool_source = loaded.chat_tools->source();
  info.system = traits.system;
  info.tools = with_tools.tools;
  info.tool_calls = with_tools.tool_calls;
  info.tool_results = with_tools.tool_results;
  info.parallel_tool_calls = with_tools.parallel_calls;
  info.reasoning = traits.reasoning;
  info.thinking_variable = traits.thinking_variable;
  return info;
}

}  // namespace culet
