// Probabilities from raw logits, for whoever holds a row: checks the row's size against the model
// and leaves the arithmetic to sample/logprobs.
#include "base/float_mode.h"
#include "culet/engine.h"
#include "engine/model_impl.h"
#include "sample/logprobs.h"

#include <fmt/format.h>

#include <algorithm>

namespace culet {
namespace {

Result<sample::LogProbs> start(const Model& model, std::span<const float> logits) {
  if (static_cast<int64_t>(logits.size()) != model.info().vocabulary) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} logits were given, but the vocabulary has {} tokens", logits.size(),
                            model.info().vocabulary));
  }
  base::set_float_mode();
  sample::LogProbs row(engine::impl(model).loaded().kernels);
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

}  // namespace culet
