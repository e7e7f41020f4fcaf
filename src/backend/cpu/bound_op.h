// An op of the plan bound to its operands and one function, and the step that it runs in.
//
// prepare() makes the BoundOps once; after that nothing in them changes. run() makes a Step for
// each pass and calls fn(op, step) down the list. Op families: ops_linear.cpp (products and
// quantize's consumers), ops_rows.cpp (everything that works row by row), ops_attention.cpp
// (append, attend), ops_memory.cpp (short_conv), ops_experts.cpp (route, experts), ops_pool.cpp
// (pool).
#pragma once

#include "backend/cpu/region.h"
#include "backend/cpu/weights.h"
#include "backend/executor.h"
#include "base/check.h"
#include "base/thread_pool.h"
#include "culet/result.h"
#include "kernels/kernels.h"
#include "plan/plan.h"
#include "quant/tensor_type.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace culet::backend {

constexpr int kTokenSets = 2;  // plan::TokenSet as an index

// Where a value lies. With R rows of its set in this step, value v of set s starts at
// arena[s] + offset * R; its rows follow each other without gaps: [R, width] floats.
struct Slot {
  int64_t offset = 0;
  int64_t row_bytes = 0;
  int32_t width = 0;
  int32_t last = 0;  // length of the last axis; width / last vectors a row
  plan::TokenSet rows = plan::TokenSet::kAll;
  plan::Form form = plan::Form::kF32;
};

// One matrix product of an op, or those of all experts with matrices of one shape.
struct Product {
  kernels::PackedMatrix w{};     // no data where it stays mapped
  int64_t count = 1;             // matrices; w is the first, the others follow without gaps
  const float* bias = nullptr;   // [n], added in a rounding of its own; null: none
  kernels::MatmulQ q = nullptr;  // one of the two, by the input's form
  kernels::MatmulF f = nullptr;
  Slot out;  // where the product itself is written (linear)
  // Not repacked: the tensor's own rows, and the worker's scratch that packs two groups of them.
  const std::byte* source = nullptr;
  int64_t row_bytes = 0;   // of the source
  int64_t pack_bytes = 0;  // 0: repacked
};

struct Step;
struct BoundOp;
using OpFn = void (*)(const BoundOp&, Step&);

struct BoundOp {
  OpFn fn = nullptr;
  std::vector<Slot> in, out;
  std::vector<Product> products;      // linear: one for each of the neighbors that share the input
  std::vector<const float*> vectors;  // float operands by weight index; null: left out
  std::vector<int64_t> vector_sizes;
  plan::Attributes attr;
  const format::TensorInfo* rows_of = nullptr;  // embed, gather
  quant::DequantizeFn dequantize = nullptr;     // embed, gather
  std::span<const int32_t> tokens;              // suppress: of the plan
  std::vector<float> constant;  // arithmetic with the scalar first: that scalar, kConstantRun times
  int32_t op = 0;               // index in the plan
};

// A sequence's rows in one row set.
struct SequenceRows {
  int64_t first = 0, count = 0;
};

// A sequence's entries in Step::entries.
struct AttendChunk {
  size_t first = 0, count = 0;
};

// One pass: what is true for all of its ops. Pointers into the Workspace.
struct Step {
  const kernels::Kernels* k;
  base::ThreadPool* pool;
  std::span<const SequenceChunk> batch;
  int64_t rows[kTokenSets];  // rows of each set
  uint8_t* arena[kTokenSets];
  const int32_t* tokens;                      // [rows of kAll]
  const int64_t* positions[kTokenSets];       // [rows]
  const int32_t* source[kTokenSets];          // [rows] the row's index among all rows
  const SequenceRows* sequences[kTokenSets];  // [batch]
  const float* const* rope_tables;            // by Plan::ropes: [rows of kAll, dims]
  const float* const* sink_tables;            // the same at the sink position; rows of streams only
  const int32_t* rope_dims;
  std::vector<kernels::KvEntry>* entries;  // scratch of attend
  std::vector<AttendChunk>* attend_chunks;
  int64_t* reach;     // scratch of attend without a cache: [rows of kAll]
  uint8_t* own_keys;  // likewise: room for own_blocks blocks of keys and values
  int64_t own_blocks;
  uint8_t* scratch;         // pool size x scratch_bytes
  int64_t scratch_bytes;    // of one worker
  uint8_t* shared_scratch;  // of the calling thread, for results that tasks hand over
  uint64_t chosen_bytes;    // weights read by choice: ops add to it (experts)

  int64_t count(const Slot& s) const { return rows[static_cast<int>(s.rows)]; }
  uint8_t* base(const Slot& s) const {
    const int set = static_cast<int>(s.rows);
    return arena[set] + s.offset * rows[set];
  }
  float* floats(const Slot& s) const { return reinterpret_cast<float*>(base(s)); }
  kernels::QuantRows quantized(const Slot& s) const;
  float* worker_scratch(int worker) const {
    return reinterpret_cast<float*>(scratch + worker * scratch_bytes);
  }
};

// The caches that a sequence's rows read; null for an encoder.
inline const cache::CacheSet* caches_of(const SequenceChunk& sequence) {
  return sequence.target != nullptr ? sequence.target : sequence.caches;
}
// Whether a sequence's session follows an endless stream.
inline bool streams(const SequenceChunk& sequence) {
  return caches_of(sequence) != nullptr && caches_of(sequence)->options().stream.has_value();
}

// Work below this many floats (or as much in other units) stays on the calling thread: waking
// others costs more than it saves. About 4 us at one float a nanosecond and core.
constexpr int64_t kInlineFloats = 8192;
constexpr int64_t kConstantRun = 256;

// Calls fn(first row, last row + 1, worker) over `rows` rows of `cost` floats each.
template <class F>
void for_rows(const Step& step, int64_t rows, int64_t cost, F&& fn) {
  if (rows * cost < kInlineFloats || rows == 1 || step.pool->size() == 1) {
    if (rows > 0) fn(int64_t{0}, rows, 0);
    return;
  }
  const int64_t most = 4 * static_cast<int64_t>(step.pool->size());
  const int64_t tasks = std::min({rows, most, rows * cost / (kInlineFloats / 4)});
  step.pool->run(tasks, [&](int64_t task, int worker) {
    fn(rows * task / tasks, rows * (task + 1) / tasks, worker);
  });
}

// What binding an op may look at.
struct Binder {
  const plan::Plan& plan;
  plan::Tensors tensors;
  const kernels::Kernels& kernels;
  const Weights& weights;
  bool repack = true;

  Slot slot(plan::ValueId id) const;
  const format::TensorInfo& tensor(plan::TensorId id) const { return tensors.at(id); }
};

// The error "this backend has no kernel for ..." with the op's place in the architecture file.
tl::unexpected<Error> unsupported(const plan::Plan& plan, const plan::Op& op,
                                  const std::string& why);

// A row of the table of ops: how it is bound, and what it may need of a worker's scratch memory
// (bytes; null: nothing) when a pass has `rows` rows.
struct OpEntry {
  plan::OpKind kind;
  Result<void> (*bind)(const Binder&, const plan::Op&, BoundOp*);
  int64_t (*scratch)(const Binder&, const plan::Op&, int64_t rows);
};
std::span<const OpEntry> linear_ops();
std::span<const OpEntry> row_ops();
std::span<const OpEntry> attention_ops();
std::span<const OpEntry> memory_ops();
std::span<const OpEntry> expert_ops();
std::span<const OpEntry> pool_ops();

// ops_linear.cpp: whether `next` may join `run`, a linear before it with the same input.
bool can_join(const BoundOp& run, const BoundOp& next);
// ops_rows.cpp: y = softmax(x): exp(x - max) over its sum in 16 lanes; x == y allowed. All NaN
// where x has a NaN or +infinity, or is -infinity throughout.
void softmax(const kernels::Kernels& k, const float* x, int64_t n, float* y);
// ops_attention.cpp: bytes of Step::shared_scratch that attend needs.
int64_t attend_shared_bytes(const plan::Op& op, int threads);
// ops_experts.cpp: likewise, in passes of `rows` rows.
int64_t experts_shared_bytes(const Binder& b, const plan::Op& op, int64_t rows);
// ops_attention.cpp: bytes of a block of Step::own_keys; 0: the op needs none.
int64_t own_block_bytes(const plan::Op& op);

}  // namespace culet::backend
