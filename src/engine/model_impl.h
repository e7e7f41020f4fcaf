// The Model that Model::load makes: a LoadedModel and what its sessions share while they compute.
#pragma once

#include "backend/executor.h"
#include "culet/model.h"
#include "culet/session.h"
#include "engine/vocabulary_impl.h"
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

// A workspace of a forward pass, and what it counts as in the account of the model.
struct CountedWorkspace {
  backend::WorkspacePtr workspace;
  uint64_t bytes = 0;  // of the longest pass that it was used for
};

// A workspace borrowed for one call; goes back when it is destroyed. std::bad_alloc: the system or
// the memory limit has no room for it.
class WorkspaceLease {
 public:
  // For passes of ubatch_size tokens, or of `bytes`, if they are more.
  explicit WorkspaceLease(const ModelImpl& model, uint64_t bytes = 0);
  ~WorkspaceLease();
  WorkspaceLease(const WorkspaceLease&) = delete;
  WorkspaceLease& operator=(const WorkspaceLease&) = delete;
  backend::Workspace& get() { return *counted_.workspace; }

 private:
  void give_back();

  const ModelImpl* model_;
  CountedWorkspace counted_;
};

// Threads: any number of callers; the two mutexes are never held together or across a callback.
class ModelImpl final {
 public:
  // target: of a draft model, whose `loaded` refers to it.
  ModelImpl(std::unique_ptr<model::LoadedModel> loaded, std::shared_ptr<const Model> target)
      : target_(std::move(target)),
        loaded_(std::move(loaded)),
        vocabulary_(make_vocabulary(loaded_->tokenizer)) {}

  const ModelInfo& info() const { return loaded_->info; }
  const Vocabulary& vocabulary() const { return vocabulary_; }
  std::string explain() const;
  MemoryAccount memory() const;
  void trim_memory() const;

  const model::LoadedModel& loaded() const { return *loaded_; }
  const backend::Executor& executor() const { return *loaded_->executor; }
  const Model* target() const { return target_.get(); }
  // Whether no number of a row is NaN or an infinity.
  bool is_finite(std::span<const float> row) const;
  // One forward pass at a time: a second caller waits. op_costs, [ops of the plan] or empty: what
  // each op takes is added to it.
  Result<void> run(backend::Workspace& workspace, std::span<const backend::SequenceChunk> batch,
                   std::span<backend::OpCost> op_costs = {}) const;

 private:
  friend class WorkspaceLease;

  std::shared_ptr<const Model> target_;
  std::unique_ptr<model::LoadedModel> loaded_;
  Vocabulary vocabulary_;
  mutable std::mutex pass_mutex_;
  mutable std::mutex idle_mutex_;
  mutable std::vector<CountedWorkspace> idle_;  // guarded by idle_mutex_
};

inline kernels::KvType kv_type(KvType type) {
  constexpr kernels::KvType kTypes[] = {kernels::kKvF32, kernels::kKvF16, kernels::kKvBf16,
                                        kernels::kKvQ8};
  return kTypes[static_cast<size_t>(type)];
}

}  // namespace culet::engine
