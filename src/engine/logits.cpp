// Probabilities from raw logits: natural logarithms, sums in the fixed order of the kernel table,
// so that the same logits give the same digits on every instruction set.
//
//   log p(i) = x_i - max - log(sum_j exp(x_j - max))
//   entropy  = log(sum) - sum_j exp(x_j - max) (x_j - max) / sum
#include "base/float_mode.h"
#include "culet/engine.h"
#include "engine/model_impl.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace culet {
namespace {

struct Normalizer {
  double max, log_sum, entropy;
};

Result<Normalizer> normalize(const Model& model, std::span<const float> logits) {
  base::set_float_mode();
  const kernels::Kernels& kernels = engine::impl(model).loaded().kernels;
  const auto n = static_cast<int64_t>(logits.size());
  if (n != model.info().vocabulary) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} logits were given, but the vocabulary has {} tokens", n,
                            model.info().vocabulary));
  }
  float max = 0;
  int64_t index = 0;
  int finite = 0;
  kernels.max_index(logits.data(), n, &max, &index, &finite);
  if (!finite) {
    return fail(ErrorCode::kNumeric,
                "a logit is not a finite number, so there are no probabilities");
  }
  double sum = 0, weighted = 0;
  kernels.exp_sums(logits.data(), max, n, &sum, &weighted);
  const double log_sum = std::log(sum);
  return Normalizer{max, log_sum, std::max(0.0, log_sum - weighted / sum)};
}

std::vector<Token> highest(std::span<const float> logits, int top) {
  std::vector<Token> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto keep = static_cast<std::ptrdiff_t>(
      std::clamp<size_t>(top < 0 ? 0 : static_cast<size_t>(top), 0, ids.size()));
  std::partial_sort(ids.begin(), ids.begin() + keep, ids.end(), [&](Token a, Token b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  });
  ids.resize(static_cast<size_t>(keep));
  return ids;
}

}  // namespace

Result<double> logprob(const Model& model, std::span<const float> logits, Token id) {
  CULET_TRY(const Normalizer norm, normalize(model, logits));
  if (id < 0 || static_cast<size_t>(id) >= logits.size()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("token {} is outside the vocabulary of {}", id, logits.size()));
  }
  return (static_cast<double>(logits[static_cast<size_t>(id)]) - norm.max) - norm.log_sum;
}

Result<Distribution> distribution(const Model& model, std::span<const float> logits, int top) {
  CULET_TRY(const Normalizer norm, normalize(model, logits));
  Distribution result{norm.entropy, {}};
  for (const Token id : highest(logits, top)) {
    const double logit = logits[static_cast<size_t>(id)];
    result.top.push_back({id, static_cast<float>((logit - norm.max) - norm.log_sum)});
  }
  return result;
}

}  // namespace culet
