// Model::load and the questions a model answers without computing: its plan and text.
//
// Workspaces are lent, not owned by sessions: many sessions may wait on one model, and a workspace
// (arena, logits of a pass) is far bigger than what an idle session needs.
#include "engine/model_impl.h"

#include "base/check.h"
#include "culet/chat.h"

#include <fmt/format.h>

#include <functional>
#include <new>
#include <utility>

namespace culet {
namespace engine {
namespace {

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

Result<std::vector<Token>> ModelImpl::render_chat(std::span<const Message> messages,
                                                  const ChatOptions& options) const {
  CULET_TRY(ChatPrompt prompt, culet::render_chat(*this, messages, options));
  return std::move(prompt.tokens);
}

Result<std::string> ModelImpl::render_chat_text(std::span<const Message> messages,
                                                const ChatOptions& options) const {
  CULET_TRY(const ChatPrompt prompt, culet::render_chat(*this, messages, options));
  return prompt.text();
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
