// Probabilities from raw logits, for whoever holds a row: checks the row's size against the model
// and leaves the arithmetic to sample/logprobs.
#include "culet/logprobs.h"

#include "base/float_mode.h"
#include "engine/model_impl.h"
#include "sample/logprobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace culet {
namespace {

Result<sample::LogProbs> start(const Model& model, std::span<const float> logits) {
  if (static_cast<int64_t>(logits.size()) != model.info().vocabulary_size) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} logits were given, but the vocabulary has {} tokens", logits.size(),
                            model.info().vocabulary_size));
  }
  base::set_float_mode();
  sample::LogProbs row(model.impl().loaded().kernels);
  CULET_TRY_VOID(row.start(logits));
  return row;
}

}  // namespace

Result<double> logprob(const Model& model, std::span<const float> logits, Token id) {
  CULET_TRY(const sample::LogProbs row, start(model, logits));
  if (id < 0 || static_cast<size_t>(id) >= logits.size()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("token {} is outside the vocabulary of {}", id, logits.size()));
  }
  return row.logprob(id);
}

Result<Distribution> distribution(const Model& model, std::span<const float> logits, int top) {
  CULET_TRY(sample::LogProbs row, start(model, logits));
  std::vector<sample::LogProb> best;
  row.top(static_cast<size_t>(std::max(top, 0)), &best);
  Distribution result{row.entropy(), {}};
  result.top.reserve(best.size());
  for (const sample::LogProb& candidate : best) {
    result.top.push_back({candidate.id, static_cast<float>(candidate.logprob)});
  }
  return result;
}

// With p of the first row and both rows' logarithms of their sums: sum of p (x - y), less the
// difference of the two. A token that cannot come has no part in it.
Result<double> divergence(const Model& model, std::span<const float> logits,
                          std::span<const float> other) {
  CULET_TRY(const sample::LogProbs p, start(model, logits));
  CULET_TRY(const sample::LogProbs q, start(model, other));
  double sum = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double logprob = p.logprob(static_cast<int32_t>(i));
    const double weight = std::exp(logprob);
    if (weight > 0) sum += weight * (logprob - q.logprob(static_cast<int32_t>(i)));
  }
  return std::max(sum, 0.0);
}

}  // namespace culet
