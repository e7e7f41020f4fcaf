// Model::load and the questions a model answers without computing: its plan, text and templates.
//
// Workspaces are lent, not owned by sessions: many sessions may wait on one model, and a workspace
// (arena, logits of a pass) is far bigger than what an idle session needs.
#include "engine/model_impl.h"

#include "base/check.h"
#include "base/json.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <functional>
#include <new>
#include <utility>

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

std::string plan_note(const backend::Executor& executor, size_t op) {
  const backend::Executor::OpNote note = executor.note(op);
  if (note.weight_bytes == 0) return note.kernel;
  return fmt::format("{} {} B", note.kernel, note.weight_bytes);
}

}  // namespace

WorkspaceLease::WorkspaceLease(const ModelImpl& model) : model_(&model) {
  {
    const std::lock_guard lock(model.idle_mutex_);
    if (!model.idle_.empty()) {
      workspace_ = std::move(model.idle_.back());
      model.idle_.pop_back();
    }
  }
  if (!workspace_) workspace_ = model.executor().make_workspace();
  if (!workspace_) throw std::bad_alloc();
}

WorkspaceLease::~WorkspaceLease() {
  const std::lock_guard lock(model_->idle_mutex_);
  model_->idle_.push_back(std::move(workspace_));
}

Result<void> ModelImpl::run(backend::Workspace& workspace,
                            std::span<const backend::Segment> batch) const {
  const std::lock_guard lock(pass_mutex_);
  return executor().run(workspace, batch, costs_);
}

bool ModelImpl::is_finite(std::span<const float> row) const {
  float max = 0;
  int64_t at = 0;
  int finite = 0;
  loaded_->kernels.max_index(row.data(), static_cast<int64_t>(row.size()), &max, &at, &finite);
  return finite != 0;
}

void ModelImpl::measure_ops(std::span<backend::OpCost> costs) const {
  const std::lock_guard lock(pass_mutex_);
  costs_ = costs;
}

std::string ModelImpl::explain() const {
  std::function<std::string(size_t)> note;
  if (loaded_->executor) note = [this](size_t op) { return plan_note(executor(), op); };
  return plan::explain(loaded_->compiled.plan, loaded_->tensors(), note);
}

Result<std::vector<Token>> ModelImpl::tokenize(std::string_view text, bool add_special,
                                               bool parse_special) const {
  return loaded_->tokenizer->tokenize(text,
                                      {.add_special = add_special, .parse_special = parse_special});
}

Result<std::vector<Token>> ModelImpl::tokenize_part(std::string_view text, bool first) const {
  return loaded_->tokenizer->tokenize(text,
                                      {.part = first ? text::Part::kFirst : text::Part::kLater});
}

std::string ModelImpl::detokenize(std::span<const Token> ids, bool special) const {
  return loaded_->tokenizer->detokenize(ids, false, special);
}

std::string ModelImpl::piece(Token id, bool special) const {
  return loaded_->tokenizer->piece(id, special);
}

bool ModelImpl::is_end_of_generation(Token id) const {
  return loaded_->tokenizer->is_end_of_generation(id);
}

Result<std::vector<chat::Piece>> ModelImpl::render(std::span<const Message> messages,
                                                   const ChatOptions& options) const {
  if (!loaded_->chat) {
    const std::string why = loaded_->chat_error.empty()
                                ? "has no chat template"
                                : "has a chat template that cannot be used: " + loaded_->chat_error;
    return fail(ErrorCode::kUnsupported,
                fmt::format("{} {}; continue plain text instead (--raw)", info().path, why));
  }
  std::vector<Message> all(messages.begin(), messages.end());
  if (options.after_answer)
    all.insert(all.begin(), {{"user", "?"}, {"assistant", std::string(kAnswerBefore)}});
  CULET_TRY(const Json data, template_data(all, options));
  auto pieces = loaded_->chat->render(data, template_constants(*loaded_->tokenizer, options));
  if (!pieces || !options.after_answer) return pieces;
  return after_answer(*std::move(pieces));
}

Result<std::vector<Token>> ModelImpl::render_chat(std::span<const Message> messages,
                                                  const ChatOptions& options) const {
  CULET_TRY(const std::vector<chat::Piece> pieces, render(messages, options));
  std::vector<text::Tokenizer::Piece> views;
  views.reserve(pieces.size());
  for (const chat::Piece& piece : pieces) views.push_back({piece.text, piece.is_template});
  return loaded_->tokenizer->tokenize_pieces(views, !options.after_answer);
}

Result<std::string> ModelImpl::render_chat_text(std::span<const Message> messages,
                                                const ChatOptions& options) const {
  CULET_TRY(const std::vector<chat::Piece> pieces, render(messages, options));
  std::string text;
  for (const chat::Piece& piece : pieces) text += piece.text;
  return text;
}

const ModelImpl& impl(const Model& model) {
  const auto* implementation = dynamic_cast<const ModelImpl*>(&model);
  CULET_CHECK(implementation != nullptr);
  return *implementation;
}

}  // namespace engine

Result<std::shared_ptr<const Model>> Model::load(const std::string& path,
                                                 const ModelOptions& options) {
  const model::LoadedModel* target =
      options.target ? &engine::impl(*options.target).loaded() : nullptr;
  CULET_TRY(auto loaded, model::load(path, options, target));
  return std::make_shared<const engine::ModelImpl>(std::move(loaded), options.target);
}

std::vector<std::pair<std::string, bool>> instruction_sets() {
  std::vector<std::pair<std::string, bool>> sets;
  for (const kernels::IsaLevel* level = kernels::isa_levels(); level->name; ++level) {
    sets.emplace_back(level->name, level->usable != 0);
  }
  return sets;
}

std::string_view version() { return CULET_VERSION; }

}  // namespace culet
