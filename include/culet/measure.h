// The cost of running a model: operations and bytes from its plan, and measured times.
//
// Threads: as in session.h. Measured times mean something only on an idle machine.
#pragma once

#include "culet/result.h"
#include "culet/session.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace culet {

// From the plan; nothing runs. An operation is one multiplication or one addition of a matrix
// product.
struct Costs {
  uint64_t token_bytes = 0;        // bytes of weights in memory that decoding one token reads
  uint64_t row_operations = 0;     // per token
  uint64_t logits_operations = 0;  // in addition, per token whose logits are computed
  std::string logits_type;         // type of the output matrix: "Q6_K"
};
Costs costs(const Model& model);

// Bytes of keys and values that the token at `position` (from 0) reads. Layers with a window count
// the window only. A cache that several layers read counts for each of them.
uint64_t kv_bytes_read(const Model& model, const SessionOptions& options, int64_t position);

// Read bandwidth in bytes per second: the fastest of several sweeps of a plain loop, with the
// model's threads, over a buffer larger than the last-level cache. Takes about half a second.
// Error: kExhausted.
Result<double> read_bandwidth(const Model& model);

// The time of one operation of the plan, or of several that run as one (q, k and v of one input).
struct OpTime {
  size_t op = 0;            // index of the first in the plan
  int32_t layer = -1;       // -1: outside the layers
  int32_t line = 0;         // of the flattened architecture text
  std::string names;        // "linear", "linear + linear + linear"
  std::string kernel;       // "matmul_q Q4_K"
  std::string source;       // the line of the architecture text; joined ones add "(with line 38)"
  double seconds = 0;       // of all forward passes together, like the next two
  uint64_t bytes = 0;       // weights, keys and values read, at least
  uint64_t operations = 0;  // of products and attention
};
struct PhaseProfile {
  int64_t tokens = 0;
  double seconds = 0;  // wall time, time between operations included
  std::vector<OpTime> ops;
};
struct Profile {
  PhaseProfile prefill, decode;
};
// Appends the prompt at once, then the continuation token by token, and measures the time of every
// operation. The session holds both afterwards, with the same bits as after two appends. Progress:
// stage "profile", in tokens. Errors: those of Session::append.
Result<Profile> profile(Session& session, std::span<const Token> prompt,
                        std::span<const Token> continuation, const ProgressFn& progress = {});

}  // namespace culet
