// What running a model costs: in numbers from its plan, and in time.
//
// Threads: as in session.h. What takes time needs the machine for itself to mean anything.
#pragma once

#include "culet/result.h"
#include "culet/session.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace culet {

// From the plan alone. An operation is a multiplication or an addition of a matrix product.
struct Costs {
  uint64_t token_bytes = 0;  // weights, as they lie in memory, that a token generated alone reads
  uint64_t row_operations = 0;     // of every token
  uint64_t logits_operations = 0;  // the same of a token whose logits are computed, on top
  std::string logits_type;         // of the weights of the last product: "Q6_K"
};
Costs costs(const Model& model);

// Bytes of keys and values that the token at `position` (from 0) reads: windows count as far as
// they reach, a cache that several layers read counts for each.
uint64_t kv_bytes_read(const Model& model, const SessionOptions& options, int64_t position);

// Bytes a second that a plain loop reads, with the model's threads, from a buffer that no cache
// holds: the fastest of several sweeps. Takes about half a second. kExhausted: no memory for it.
Result<double> read_bandwidth(const Model& model);

// One operation of the plan, or several that run as one (q, k and v of one input).
struct OpTime {
  size_t op = 0;            // index of the first in the plan
  int32_t layer = -1;       // -1: outside the layers
  int32_t line = 0;         // of the flattened architecture text
  std::string names;        // "linear", "linear + linear + linear"
  std::string kernel;       // "matmul_q Q4_K"
  std::string source;       // the line of the architecture text, "(with line 38)" of joined ones
  double seconds = 0;       // of all passes together, like the next two
  uint64_t bytes = 0;       // weights, keys and values read, at the least
  uint64_t operations = 0;  // of products and attention
};
struct PhaseProfile {
  int64_t tokens = 0;
  double seconds = 0;  // wall time; what the ops leave over is spent around them
  std::vector<OpTime> ops;
};
struct Profile {
  PhaseProfile prefill, decode;
};
// Appends the prompt at once, then the continuation token by token, and times every operation. The
// session holds them afterwards, with the same bits as after two appends. Passes of other sessions
// of this model are counted too if there are any. Errors: those of Session::append.
Result<Profile> profile(Session& session, std::span<const Token> prompt,
                        std::span<const Token> continuation, const ProgressFn& progress = {});

}  // namespace culet
