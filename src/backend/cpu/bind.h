// From a plan to bound ops: prepare()'s work.
#pragma once

#include "backend/cpu/bound_op.h"

#include <string>
#include <vector>

namespace culet::backend {

struct Program {
  std::vector<BoundOp> ops;  // prologue, layers, epilogue; joined ops are one
  int32_t prologue = 0;      // ops [0, prologue) run before the layers
  std::vector<plan::LayerRange> layers;
  std::vector<Executor::OpNote> notes;      // by op of the plan
  std::vector<std::vector<double>> thetas;  // by Plan::ropes: [dims / 2]
  std::vector<int32_t> rope_dims;
  std::vector<bool> sinks;  // by Plan::ropes: some query is also rotated at its sink position
  int64_t vocabulary = INT32_MAX;  // tokens that every embed has a row for
  int64_t positions = INT64_MAX;   // positions likewise
};

// kUnsupported for an op without a kernel, before any weight is touched.
Result<void> check_supported(const plan::Plan& plan);
Result<Program> bind(const Binder& binder);
// Scratch bytes of one worker, and of the calling thread, for passes of `rows` rows.
int64_t scratch_bytes(const Binder& binder, int64_t rows);
int64_t shared_bytes(const Binder& binder, int64_t rows, int threads);
// Bytes of the keys and values of one block of 32 rows where attention has no cache; else 0.
int64_t own_key_bytes(const plan::Plan& plan);

}  // namespace culet::backend
