// Model::load and the questions a model answers without computing.
//
// Workspaces are lent, not owned by sessions: many sessions may wait on one model, and a workspace
// (arena, logits of a pass) is far bigger than what an idle session needs.
#include "engine/model_impl.h"

#include <fmt/format.h>

#include <algorithm>
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

WorkspaceLease::WorkspaceLease(const ModelImpl& model, uint64_t bytes) : model_(&model) {
  {
    const std::lock_guard lock(model.idle_mutex_);
    if (!model.idle_.empty()) {
      counted_ = std::move(model.idle_.back());
      model.idle_.pop_back();
    }
  }
  const uint64_t needed = std::max(bytes, model.info().workspace_bytes);
  if (needed > counted_.bytes) {
    if (!model.loaded().memory->charge(needed - counted_.bytes)) {
      give_back();
      throw std::bad_alloc();
    }
    counted_.bytes = needed;
  }
  if (!counted_.workspace) counted_.workspace = model.executor().make_workspace();
  if (!counted_.workspace) {
    model.loaded().memory->discharge(counted_.bytes);
    throw std::bad_alloc();
  }
}

WorkspaceLease::~WorkspaceLease() { give_back(); }

void WorkspaceLease::give_back() {
  if (!counted_.workspace) return;
  const std::lock_guard lock(model_->idle_mutex_);
  model_->idle_.push_back(std::move(counted_));
}

Result<void> ModelImpl::run(backend::Workspace& workspace,
                            std::span<const backend::SequenceChunk> batch,
                            std::span<backend::OpCost> op_costs) const {
  const std::lock_guard lock(pass_mutex_);
  return executor().run(workspace, batch, op_costs);
}

bool ModelImpl::is_finite(std::span<const float> row) const {
  float max = 0;
  int64_t at = 0;
  int finite = 0;
  loaded_->kernels.max_index(row.data(), static_cast<int64_t>(row.size()), &max, &at, &finite);
  return finite != 0;
}

MemoryAccount ModelImpl::memory() const {
  MemoryAccount account;
  account.limit = loaded_->memory_limit == 0 ? UINT64_MAX : loaded_->memory_limit;
  if (!loaded_->memory) return account;
  const cache::MemoryPool::Account pool = loaded_->memory->account();
  account.weights = info().packed_bytes + info().converted_bytes;
  account.workspaces = pool.charged;
  account.used = pool.used;
  account.spare = pool.spare;
  return account;
}

void ModelImpl::trim_memory() const {
  if (!loaded_->memory) return;
  std::vector<CountedWorkspace> idle;
  {
    const std::lock_guard lock(idle_mutex_);
    idle.swap(idle_);
  }
  for (const CountedWorkspace& counted : idle) loaded_->memory->discharge(counted.bytes);
  loaded_->memory->trim();
}

std::string ModelImpl::explain() const {
  std::function<std::string(size_t)> note;
  if (loaded_->executor) note = [this](size_t op) { return plan_note(executor(), op); };
  return plan::explain(loaded_->compiled.plan, loaded_->tensors(), note);
}

}  // namespace engine

Result<std::shared_ptr<const Model>> Model::load(const std::string& path,
                                                 const ModelOptions& options) {
  const model::LoadedModel* target = options.target ? &options.target->impl().loaded() : nullptr;
  CULET_TRY(auto loaded, model::load(path, options, target));
  return std::shared_ptr<const Model>(
      new Model(std::make_unique<engine::ModelImpl>(std::move(loaded), options.target)));
}

Model::Model(std::unique_ptr<engine::ModelImpl> impl) : impl_(std::move(impl)) {}
Model::~Model() = default;
const ModelInfo& Model::info() const { return impl_->info(); }
const Vocabulary& Model::vocabulary() const { return impl_->vocabulary(); }
std::string Model::explain() const { return impl_->explain(); }
MemoryAccount Model::memory() const { return impl_->memory(); }
void Model::trim_memory() const { impl_->trim_memory(); }

std::vector<std::pair<std::string, bool>> instruction_sets() {
  std::vector<std::pair<std::string, bool>> sets;
  for (const kernels::IsaLevel* level = kernels::isa_levels(); level->name; ++level) {
    sets.emplace_back(level->name, level->usable != 0);
  }
  return sets;
}

std::string_view version() { return CULET_VERSION; }

}  // namespace culet
