// The executor: prepare() turns a plan into a Program, run() walks it over the rows of one batch.
//
// A pass: check the batch, reserve cache rows in every session (or undo and report), lay out the
// rows, make the angle tables, then call each op's function down the list, layer by layer, and
// commit. Nothing in the list is conditional and nothing is allocated: an arena is reserved address
// space, of which a pass of one row touches only the beginning, because value v of a set of R rows
// starts at offset * R.
#include "backend/executor.h"

#include "backend/cpu/bind.h"
#include "base/float_mode.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

namespace culet::backend {

constexpr int kAll = static_cast<int>(plan::TokenSet::kAll);
constexpr int kOutputs = static_cast<int>(plan::TokenSet::kOutputs);
constexpr int64_t kMostBytes = int64_t{1} << 42;  // address space of a workspace
constexpr int64_t kLookedUpRows = 64;  // rows, before the pages of their embeddings are given back

struct Workspace {
  Region arena[kTokenSets], scratch, shared, tables, own_keys;
  std::vector<int32_t> tokens;
  std::vector<int64_t> positions[kTokenSets], sink_positions;  // sinks: of all rows
  std::vector<int64_t> reach;
  std::vector<int32_t> source[kTokenSets];
  std::vector<SequenceRows> sequences[kTokenSets];
  std::vector<const float*> rope_tables, sink_tables;
  std::vector<kernels::KvEntry> entries;
  std::vector<AttendChunk> attend_chunks;
  int64_t looked_up = 0;  // rows since pages were given back
};

void WorkspaceDeleter::operator()(Workspace* workspace) const { delete workspace; }

// The parts of a workspace, in bytes: what memory() promises is what make_workspace() takes.
struct WorkspaceSizes {
  int64_t arena[kTokenSets] = {};
  int64_t tables = 0;          // of own and sink positions
  int64_t worker_scratch = 0;  // of one worker
  int64_t scratch = 0;         // of all
  int64_t shared = 0;          // of the calling thread
  int64_t own_keys = 0;

  uint64_t sum() const {
    return static_cast<uint64_t>(arena[kAll] + arena[kOutputs] + tables + scratch + shared +
                                 own_keys);
  }
};

namespace {

// Whole blocks for the rows of one pass.
int64_t own_blocks(int64_t rows) {
  return (rows + kernels::kKvBlockRows - 1) / kernels::kKvBlockRows;
}

WorkspaceSizes workspace_sizes(const Binder& binder, const Limits& limits, int threads) {
  const plan::Plan& plan = binder.plan;
  WorkspaceSizes sizes;
  sizes.arena[kAll] = limits.tokens * plan.arena_token_bytes;
  sizes.arena[kOutputs] = limits.outputs * plan.arena_output_bytes;
  for (const plan::RopeSpec& rope : plan.ropes) sizes.tables += 2 * limits.tokens * rope.dims * 4;
  sizes.worker_scratch = scratch_bytes(binder, limits.tokens);
  sizes.scratch = sizes.worker_scratch * threads;
  sizes.shared = shared_bytes(binder, limits.tokens, threads);
  sizes.own_keys = own_blocks(limits.tokens) * own_key_bytes(plan);
  return sizes;
}

}  // namespace

struct Executor::Impl {
  const plan::Plan* plan;
  const format::GgufFile* file;
  const kernels::Kernels* kernels;
  base::ThreadPool* pool;
  Limits limits;
  Weights weights;
  Program program;
  WorkspaceSizes sizes;

  Result<void> check(std::span<const SequenceChunk> batch) const;
  Result<void> reserve(std::span<const SequenceChunk> batch) const;
  void lay_out(std::span<const SequenceChunk> batch, Workspace* w) const;
  void make_tables(Workspace* w, Step* step) const;
  Step step(std::span<const SequenceChunk> batch, Workspace* w) const;
};

Executor::Executor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Executor::~Executor() = default;

const Limits& Executor::limits() const { return impl_->limits; }
Executor::OpNote Executor::note(size_t op) const { return impl_->program.notes.at(op); }
size_t Executor::runs_with(size_t op) const {
  const std::vector<BoundOp>& ops = impl_->program.ops;  // ascending in the plan's indices
  const auto after = std::upper_bound(ops.begin(), ops.end(), op, [](size_t at, const BoundOp& b) {
    return at < static_cast<size_t>(b.op);
  });
  CULET_CHECK(after != ops.begin());
  return static_cast<size_t>(std::prev(after)->op);
}
uint64_t Executor::packed_bytes() const { return impl_->weights.packed_bytes(); }
uint64_t Executor::workspace_bytes() const { return impl_->sizes.sum(); }
int64_t Executor::positions() const { return impl_->program.positions; }

Result<std::unique_ptr<Executor>> Executor::prepare(const plan::Plan& plan,
                                                    const plan::Tensors& tensors,
                                                    const kernels::Kernels& kernels,
                                                    base::ThreadPool& pool,
                                                    const PrepareOptions& options) {
  const Limits& limits = options.limits;
  const int64_t row_bytes = plan.arena_token_bytes + plan.arena_output_bytes + 1;
  if (limits.tokens < 1 || limits.outputs < 1 ||
      std::max(limits.tokens, limits.outputs) > kMostBytes / row_bytes) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("passes of {} rows with {} wanted cannot be prepared; use 256 and 64",
                            limits.tokens, limits.outputs));
  }
  CULET_TRY_VOID(check_supported(plan));
  base::set_float_mode();
  auto impl = std::make_unique<Impl>();
  impl->plan = &plan;
  impl->file = &tensors.file();
  impl->kernels = &kernels;
  impl->pool = &pool;
  impl->limits = limits;
  CULET_TRY(impl->weights, Weights::load(plan, tensors, pool, options.repack, options.progress));
  const Binder binder{plan, tensors, kernels, impl->weights, options.repack};
  CULET_TRY(impl->program, bind(binder));
  impl->sizes = workspace_sizes(binder, limits, pool.size());
  return std::unique_ptr<Executor>(new Executor(std::move(impl)));
}

Result<void> Executor::check(const plan::Plan& plan, const plan::Tensors& tensors) {
  CULET_TRY_VOID(check_supported(plan));
  return Weights::check(plan, tensors);
}

Executor::Memory Executor::memory(const plan::Plan& plan, const plan::Tensors& tensors,
                                  const kernels::Kernels& kernels, int threads,
                                  const PrepareOptions& options) {
  const Weights::Sizes sizes = Weights::sizes(plan, tensors, options.repack);
  const Weights none;
  const Binder binder{plan, tensors, kernels, none, options.repack};
  return {sizes.packed, sizes.converted, sizes.mapped,
          workspace_sizes(binder, options.limits, threads).sum()};
}

WorkspacePtr Executor::make_workspace() const {
  const Impl& impl = *impl_;
  WorkspacePtr w(new Workspace);
  const auto allocate = [](Region* region, int64_t bytes) {
    constexpr size_t kTail = 4096;  // kernels may read past a row's end
    return region->allocate(static_cast<size_t>(bytes) + kTail, Region::kSparse);
  };
  const WorkspaceSizes& sizes = impl.sizes;
  bool done = allocate(&w->scratch, sizes.scratch) && allocate(&w->shared, sizes.shared) &&
              allocate(&w->tables, sizes.tables);
  if (sizes.own_keys > 0) {
    done = done && allocate(&w->own_keys, sizes.own_keys);
    w->reach.resize(static_cast<size_t>(impl.limits.tokens));
  }
  for (int set = 0; set < kTokenSets; ++set) {
    const auto rows = static_cast<size_t>(set == kAll ? impl.limits.tokens : impl.limits.outputs);
    done = done && allocate(&w->arena[set], sizes.arena[set]);
    w->positions[set].reserve(rows);
    w->source[set].reserve(rows);
    w->sequences[set].reserve(static_cast<size_t>(impl.limits.tokens));
  }
  if (!done) return nullptr;
  w->tokens.reserve(static_cast<size_t>(impl.limits.tokens));
  w->attend_chunks.reserve(static_cast<size_t>(impl.limits.tokens));
  w->entries.reserve(1024);
  w->rope_tables.reserve(impl.program.rope_dims.size());
  w->sink_tables.reserve(impl.program.rope_dims.size());
  w->sink_positions.reserve(static_cast<size_t>(impl.limits.tokens));
  return w;
}

// ---------------------------------------------------------------- a pass

Result<void> Executor::Impl::check(std::span<const SequenceChunk> batch) const {
  int64_t rows = 0, wanted = 0;
  for (const SequenceChunk& sequence : batch) {
    rows += static_cast<int64_t>(sequence.tokens.size());
    wanted += static_cast<int64_t>(sequence.outputs.size());
    const cache::CacheSet* caches = caches_of(sequence);
    CULET_CHECK(caches != nullptr ? sequence.start == caches->length()
                                  : plan->caches.empty() && plan->states.empty());
    CULET_CHECK(sequence.target == nullptr || sequence.tokens.size() == 1);
    int32_t last = -1;
    for (int32_t w : sequence.outputs) {
      CULET_CHECK(w > last && static_cast<size_t>(w) < sequence.tokens.size());
      last = w;
    }
    if (sequence.start + static_cast<int64_t>(sequence.tokens.size()) > program.positions) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} tokens are more than the {} positions that the model has",
                              sequence.tokens.size(), program.positions));
    }
    for (int32_t token : sequence.tokens) {
      if (token < 0 || token >= program.vocabulary) {
        return fail(
            ErrorCode::kInvalidArgument,
            fmt::format("token {} is outside the vocabulary of {}", token, program.vocabulary));
      }
    }
  }
  CULET_CHECK(rows <= limits.tokens && wanted <= limits.outputs);
  return {};
}

Result<void> Executor::Impl::reserve(std::span<const SequenceChunk> batch) const {
  for (size_t i = 0; i < batch.size(); ++i) {
    if (batch[i].caches == nullptr) continue;
    auto done = batch[i].caches->reserve(static_cast<int64_t>(batch[i].tokens.size()));
    if (done) continue;
    for (size_t undo = 0; undo < i; ++undo) {
      if (batch[undo].caches != nullptr) batch[undo].caches->truncate(batch[undo].caches->length());
    }
    return done;
  }
  return {};
}

void Executor::Impl::lay_out(std::span<const SequenceChunk> batch, Workspace* w) const {
  w->tokens.clear();
  w->sink_positions.clear();
  for (int set = 0; set < kTokenSets; ++set) {
    w->positions[set].clear();
    w->source[set].clear();
    w->sequences[set].clear();
  }
  const auto add = [w](int set, int64_t position, int32_t source) {
    w->positions[set].push_back(position);
    w->source[set].push_back(source);
  };
  for (const SequenceChunk& sequence : batch) {
    const auto first = static_cast<int32_t>(w->tokens.size());
    const auto count = static_cast<int32_t>(sequence.tokens.size());
    w->sequences[kAll].push_back({first, count});
    w->sequences[kOutputs].push_back({static_cast<int64_t>(w->source[kOutputs].size()),
                                      static_cast<int64_t>(sequence.outputs.size())});
    w->tokens.insert(w->tokens.end(), sequence.tokens.begin(), sequence.tokens.end());
    for (int32_t r = 0; r < count; ++r) {
      const int64_t p = sequence.start + r;
      add(kAll, p, first + r);
      w->sink_positions.push_back(streams(sequence) ? caches_of(sequence)->sink_query_position(p)
                                                    : p);
    }
    for (int32_t r : sequence.outputs) add(kOutputs, sequence.start + r, first + r);
  }
}

Step Executor::Impl::step(std::span<const SequenceChunk> batch, Workspace* w) const {
  Step s{};
  s.k = kernels;
  s.pool = pool;
  s.batch = batch;
  for (int set = 0; set < kTokenSets; ++set) {
    s.rows[set] = static_cast<int64_t>(w->positions[set].size());
    s.arena[set] = w->arena[set].data();
    s.positions[set] = w->positions[set].data();
    s.source[set] = w->source[set].data();
    s.sequences[set] = w->sequences[set].data();
  }
  s.tokens = w->tokens.data();
  s.rope_dims = program.rope_dims.data();
  s.entries = &w->entries;
  s.attend_chunks = &w->attend_chunks;
  s.reach = w->reach.data();
  s.own_keys = w->own_keys.data();
  s.own_blocks = own_blocks(limits.tokens);
  s.scratch = w->scratch.data();
  s.scratch_bytes = sizes.worker_scratch;
  s.shared_scratch = w->shared.data();
  return s;
}

// Angles of every row's own position, and of its sink position for the rows of streams.
void Executor::Impl::make_tables(Workspace* w, Step* step) const {
  constexpr int64_t kAngleCost = 32;  // an angle against a float of an elementwise op, about
  w->rope_tables.clear();
  w->sink_tables.clear();
  auto* next = reinterpret_cast<float*>(w->tables.data());
  const auto fill = [&](size_t i, const int64_t* positions, int64_t row0, int64_t count) {
    const int32_t dims = program.rope_dims[i];
    for_rows(*step, count, dims * kAngleCost, [&](int64_t first, int64_t end, int) {
      for (int64_t r = row0 + first; r < row0 + end; ++r) {
        kernels::rope_table(program.thetas[i].data(), dims, positions[r],
                            plan->ropes[i].attn_factor, next + r * dims);
      }
    });
  };
  for (size_t i = 0; i < program.rope_dims.size(); ++i) {
    const int64_t table = step->rows[kAll] * program.rope_dims[i];
    fill(i, step->positions[kAll], 0, step->rows[kAll]);
    w->rope_tables.push_back(std::exchange(next, next + table));
    for (size_t s = 0; s < step->batch.size() && program.sinks[i]; ++s) {
      const SequenceRows& rows = step->sequences[kAll][s];
      if (streams(step->batch[s])) fill(i, w->sink_positions.data(), rows.first, rows.count);
    }
    w->sink_tables.push_back(std::exchange(next, next + table));
  }
  step->rope_tables = w->rope_tables.data();
  step->sink_tables = w->sink_tables.data();
}

Result<void> Executor::run(Workspace& workspace, std::span<const SequenceChunk> batch,
                           std::span<OpCost> costs) const {
  using Clock = std::chrono::steady_clock;
  const Impl& impl = *impl_;
  CULET_CHECK(costs.empty() || costs.size() == impl.plan->ops.size());
  CULET_TRY_VOID(impl.check(batch));
  CULET_TRY_VOID(impl.reserve(batch));
  base::set_float_mode();
  impl.lay_out(batch, &workspace);
  Step step = impl.step(batch, &workspace);
  impl.make_tables(&workspace, &step);

  const Program& program = impl.program;
  const auto run_ops = [&](int32_t first, int32_t count) {
    for (int32_t i = first; i < first + count; ++i) {
      const BoundOp& op = program.ops[static_cast<size_t>(i)];
      if (costs.empty()) {
        op.fn(op, step);
        continue;
      }
      const Clock::time_point start = Clock::now();
      op.fn(op, step);
      OpCost& cost = costs[static_cast<size_t>(op.op)];
      cost.seconds += std::chrono::duration<double>(Clock::now() - start).count();
      cost.chosen_bytes += std::exchange(step.chosen_bytes, 0);
    }
  };
  int32_t next = program.prologue;
  run_ops(0, program.prologue);
  for (const plan::LayerRange& layer : program.layers) {
    run_ops(layer.first, layer.count);
    next = layer.first + layer.count;
  }
  run_ops(next, static_cast<int32_t>(program.ops.size()) - next);

  workspace.looked_up += step.rows[kAll];
  if (workspace.looked_up >= kLookedUpRows) {
    impl.weights.give_back(*impl.file);
    workspace.looked_up = 0;
  }
  for (const SequenceChunk& sequence : batch) {
    if (sequence.caches != nullptr)
      sequence.caches->commit(static_cast<int64_t>(sequence.tokens.size()));
  }
  return {};
}

std::span<const float> Executor::output(const Workspace& workspace, std::string_view name) const {
  const plan::ValueId id = impl_->plan->output(name);
  CULET_CHECK(id != plan::kNone);
  const plan::Value& value = impl_->plan->values[static_cast<size_t>(id)];
  const int set = static_cast<int>(value.rows);
  const size_t rows = workspace.positions[set].size();
  const uint8_t* start = workspace.arena[set].data() + value.offset * static_cast<int64_t>(rows);
  return {reinterpret_cast<const float*>(start), rows * static_cast<size_t>(value.width)};
}

int32_t Executor::output_width(std::string_view name) const {
  const plan::ValueId id = impl_->plan->output(name);
  return id == plan::kNone ? 0 : impl_->plan->values[static_cast<size_t>(id)].width;
}

}  // namespace culet::backend
