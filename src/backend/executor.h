// Executor: a Plan bound to weights and kernels on the CPU, and the loop that runs it.
//
//   prepare: every op of the plan gets one kernel; an op without one is refused by name.
//   run:     prologue, then the explicit layer loop, then the epilogue, over the rows of one Batch.
//
// An Executor is immutable after prepare() and shared; a Workspace holds what one running pass
// writes (arena, scratch, angle tables) and belongs to one thread at a time.
#pragma once

#include "base/thread_pool.h"
#include "cache/cache_set.h"
#include "culet/result.h"
#include "kernels/kernels.h"
#include "plan/plan.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace culet::backend {

// The most that one forward pass takes.
struct Limits {
  // Longer inputs are computed in several passes, which never changes a bit. A sequence of an
  // encoder is never cut: its tokens are one chunk.
  int32_t tokens = 256;
  int32_t outputs = 64;  // tokens whose outputs are computed
};

// Consecutive tokens of one sequence in a forward pass.
struct SequenceChunk {
  cache::CacheSet* caches;  // null for encoders and draft models
  // Absolute position of the first token: the length of caches, or of a draft model's target;
  // encoder: 0.
  int64_t start;
  std::span<const int32_t> tokens;
  std::span<const int32_t> outputs;  // ascending indices into tokens whose outputs are computed
  // A draft model's one token: the target's caches, which are only read, and the target's hidden
  // values.
  const cache::CacheSet* target = nullptr;
  std::span<const float> hidden{};
};

struct Workspace;  // opaque; see executor.cpp
struct WorkspaceDeleter {
  void operator()(Workspace*) const;
};
using WorkspacePtr = std::unique_ptr<Workspace, WorkspaceDeleter>;

// Weights repacked for products, keyed by tensor; everything else is read from the file's mapping.
class Weights;

struct PrepareOptions {
  Limits limits;
  bool precise = false;  // the plan was lowered without quantize ops: products take float rows
  bool repack = true;    // false: products read the file's mapping; slower, same bits
  // Called with (bytes done, bytes in all) while weights are repacked; may be empty. False: stop.
  std::function<bool(uint64_t, uint64_t)> progress;
};

// What one op took, added up over passes.
struct OpCost {
  double seconds = 0;
  uint64_t chosen_bytes = 0;  // weights that were read because a row chose them: experts
};

class Executor {
 public:
  // plan, files and pool outlive the result. Errors: kUnsupported (an op or tensor type this
  // backend has no kernel for, by name, with the line of the architecture file), kExhausted.
  static Result<std::unique_ptr<Executor>> prepare(const plan::Plan& plan,
                                                   const plan::Tensors& tensors,
                                                   const kernels::Kernels& kernels,
                                                   base::ThreadPool& pool,
                                                   const PrepareOptions& options);
  // prepare()'s errors of the kind kUnsupported that a plan and the types of its tensors tell.
  static Result<void> check(const plan::Plan& plan, const plan::Tensors& tensors);
  ~Executor();

  const Limits& limits() const;
  WorkspacePtr make_workspace() const;  // null: out of memory
  // Runs one forward pass within limits(). Reserves cache memory first: an error (kExhausted) then
  // leaves every session as it was. After success the tokens are committed. Outputs that are not
  // finite are no error here: the caller checks what it reads.
  // costs, by op of the plan: what each op took is added to its entry; empty when nobody asks (then
  // it costs nothing). Measuring never changes a bit.
  Result<void> run(Workspace& workspace, std::span<const SequenceChunk> batch,
                   std::span<OpCost> costs = {}) const;
  // Output `name` of the output tokens of the last run, in batch order: [outputs, width]; of every
  // token where the plan makes it for all (encoders). Valid until the next run.
  std::span<const float> output(const Workspace& workspace, std::string_view name) const;
  int32_t output_width(std::string_view name) const;
  // Positions that every table of positions has a row for; INT64_MAX: there is no such table.
  int64_t positions() const;

  // What explain prints beside each op: the kernel's name, and the bytes of weights that a pass
  // reads; of embed, gather and experts those of one row.
  struct OpNote {
    std::string kernel;
    uint64_t weight_bytes;
  };
  OpNote note(size_t op) const;
  // The op whose function does this op's work: itself, or the first of a run of joined ones. Its
  // entry in run()'s costs has the time of all.
  size_t runs_with(size_t op) const;
  uint64_t packed_bytes() const;
  uint64_t workspace_bytes() const;

  // What prepare() and the workspace of a pass will need, in bytes, without preparing anything.
  struct Memory {
    uint64_t packed = 0, converted = 0;  // the repacked copy; vectors as float32
    uint64_t mapped = 0;                 // of the model's file, read while it runs
    uint64_t workspace = 0;              // of one pass
  };
  static Memory memory(const plan::Plan& plan, const plan::Tensors& tensors,
                       const kernels::Kernels& kernels, int threads, const PrepareOptions& options);

 private:
  struct Impl;
  explicit Executor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace culet::backend
