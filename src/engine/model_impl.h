// The Model that Model::load makes: a LoadedModel and what its sessions share while they compute.
#pragma once

#include "backend/executor.h"
#include "culet/engine.h"
#include "kernels/kernels.h"
#include "model/model.h"

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace culet::engine {

class ModelImpl;

// Outputs of plans.
constexpr std::string_view kLogits = "logits", kHidden = "hidden", kPooled = "pooled";

// A workspace borrowed for one call; goes back when it is destroyed. Out of memory: std::bad_alloc.
class WorkspaceLease {
 public:
  explicit WorkspaceLease(const ModelImpl& model);
  ~WorkspaceLease();
  WorkspaceLease(const WorkspaceLease&) = delete;
  WorkspaceLease& operator=(const WorkspaceLease&) = delete;
  backend::Workspace& get() { return *workspace_; }

 private:
  const ModelImpl* model_;
  backend::WorkspacePtr workspace_;
};

// Threads: any number of callers; the two mutexes are never held together or across a callback.
class ModelImpl final : public Model {
 public:
  // target: of a drafter, whose `loaded` refers to it.
  ModelImpl(std::unique_ptr<model::LoadedModel> loaded, std::shared_ptr<const Model> target)
      : target_(std::move(target)), loaded_(std::move(loaded)) {}

  const ModelInfo& info() const override { return loaded_->info; }
  std::string explain() const override;
  Result<std::vector<Token>> tokenize(std::string_view text, bool add_special,
                                      bool parse_special) const override;
  Result<std::vector<Token>> tokenize_part(std::string_view text, bool first) const override;
  std::string detokenize(std::span<const Token> ids, bool special) const override;
  std::string piece(Token id, bool special) const override;
  bool is_end_of_generation(Token id) const override;
  Result<std::vector<Token>> render_chat(std::span<const Message> messages,
                                         const ChatOptions& options) const override;
  Result<std::string> render_chat_text(std::span<const Message> messages,
                                       const ChatOptions& options) const override;

  const model::LoadedModel& loaded() const { return *loaded_; }
  const backend::Executor& executor() const { return *loaded_->executor; }
  const Model* target() const { return target_.get(); }
  // Whether no number of a row is NaN or an infinity.
  bool is_finite(std::span<const float> row) const;
  // One pass at a time: a second caller waits.
  Result<void> run(backend::Workspace& workspace, std::span<const backend::Segment> batch) const;
  // From now on passes add what their ops take to costs, [ops of the plan]; empty: no more.
  void measure_ops(std::span<backend::OpCost> costs) const;

 private:
  friend class WorkspaceLease;

  std::shared_ptr<const Model> target_;
  std::unique_ptr<model::LoadedModel> loaded_;
  mutable std::mutex pass_mutex_;
  mutable std::span<backend::OpCost> costs_;  // guarded by pass_mutex_
  mutable std::mutex idle_mutex_;
  mutable std::vector<backend::WorkspacePtr> idle_;  // guarded by idle_mutex_
};

inline kernels::KvType kv_type(KvType type) {
  constexpr kernels::KvType kTypes[] = {kernels::kKvF32, kernels::kKvF16, kernels::kKvBf16,
                                        kernels::kKvQ8};
  return kTypes[static_cast<size_t>(type)];
}

// Every Model is a ModelImpl: only Model::load makes them.
const ModelImpl& impl(const Model& model);

}  // namespace culet::engine
