#include "culet/chat.h"

#include "base/json.h"
#include "engine/model_impl.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace culet {
namespace engine {
namespace {

using Json = nlohmann::ordered_json;

// Variables that extra_json may not name, with where they come from instead.
constexpr struct {
  const char* name;
  const char* instead;
} kOwnVariables[] = {
    {"messages", "pass the messages as such"},
    {"add_generation_prompt", "set ChatOptions::add_generation_prompt"},
    {"bos_token", "it is the model file's own"},
    {"eos_token", "it is the model file's own"},
};

// The variables that come from the conversation; their text is never the template's own.
Result<Json> template_data(std::span<const Message> messages, const ChatOptions& options) {
  Json data = Json::object();
  if (!options.extra_json.empty()) {
    CULET_TRY(data, base::parse_json(options.extra_json));
    if (!data.is_object()) {
      return fail(ErrorCode::kInvalidArgument,
                  "the additional template variables must be one JSON object");
    }
    for (const auto& own : kOwnVariables) {
      if (!data.contains(own.name)) continue;
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("the additional template variables must not contain \"{}\"; {}",
                              own.name, own.instead));
    }
  }
  Json list = Json::array();
  for (const Message& message : messages) {
    list.push_back(Json{{"role", message.role}, {"content", message.content}});
  }
  data["messages"] = std::move(list);
  return data;
}

// Stands for the answer that a session holds; what the template writes behind it is wanted.
constexpr std::string_view kAnswerBefore = "(the answer before)";

Result<std::vector<chat::Piece>> after_answer(std::vector<chat::Piece> pieces) {
  for (size_t i = 0; i < pieces.size(); ++i) {
    const size_t at =
        pieces[i].is_template ? std::string::npos : pieces[i].text.find(kAnswerBefore);
    if (at == std::string::npos) continue;
    pieces[i].text.erase(0, at + kAnswerBefore.size());
    pieces.erase(pieces.begin(), pieces.begin() + static_cast<std::ptrdiff_t>(i));
    return pieces;
  }
  return fail(ErrorCode::kUnsupported,
              "the chat template does not show answers as they are, so a conversation cannot go on "
              "from a session's tokens; send the whole conversation instead");
}

Json template_constants(const text::Tokenizer& tokenizer, const ChatOptions& options) {
  const auto spelled = [&](std::optional<Token> token) {
    return token ? tokenizer.piece(*token, true) : std::string();
  };
  return Json{{"bos_token", spelled(tokenizer.bos())},
              {"eos_token", spelled(tokenizer.eos())},
              {"add_generation_prompt", options.add_generation_prompt}};
}

Result<std::vector<chat::Piece>> render(const ModelImpl& model, std::span<const Message> messages,
                                                   const ChatOptions& options) {
  const model::LoadedModel& loaded = model.loaded();
  if (!loaded.chat) {
    const std::string why = loaded.chat_error.empty()
                                ? "has no chat template"
                                : "has a chat template that cannot be used: " + loaded.chat_error;
    return fail(ErrorCode::kUnsupported,
                fmt::format("{} {}; continue plain text instead (--raw)", loaded.info.path, why));
  }
  std::vector<Message> all(messages.begin(), messages.end());
  if (options.after_answer)
    all.insert(all.begin(), {{"user", "?"}, {"assistant", std::string(kAnswerBefore)}});
  CULET_TRY(const Json data, template_data(all, options));
  auto pieces = loaded.chat->render(data, template_constants(*loaded.tokenizer, options));
  if (!pieces || !options.after_answer) return pieces;
  return after_answer(*std::move(pieces));
}

}  // namespace
}  // namespace engine

Result<std::vector<Token>> render_chat(const Model& model, std::span<const Message> messages,
                                       const ChatOptions& options) {
  CULET_TRY(const std::vector<chat::Piece> pieces,
            engine::render(model.impl(), messages, options));
  std::vector<text::Tokenizer::Piece> views;
  views.reserve(pieces.size());
  for (const chat::Piece& piece : pieces) views.push_back({piece.text, piece.is_template});
  return model.impl().loaded().tokenizer->tokenize_pieces(views, !options.after_answer);
}

Result<std::string> render_chat_text(const Model& model, std::span<const Message> messages,
                                     const ChatOptions& options) {
  CULET_TRY(const std::vector<chat::Piece> pieces,
            engine::render(model.impl(), messages, options));
  std::string text;
  for (const chat::Piece& piece : pieces) text += piece.text;
  return text;
}

}  // namespace culet
