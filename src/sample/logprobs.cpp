// log p(i) = (x_i - max) - log(S), S = sum exp(x - max);  entropy = log(S) - sum exp(x - max) (x -
// max) / S. Both sums come from kernels.exp_sums in one pass. Suppressed entries are taken out
// first, because exp(-inf) * -inf is not a number.
#include "sample/logprobs.h"

#include "sample/numbers.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace culet::sample {

bool only_suppressed(std::span<const float> logits) {
  return std::all_of(logits.begin(), logits.end(), [](float x) {
    return x <= std::numeric_limits<float>::max();  // false for NaN and +infinity
  });
}

Result<void> LogProbs::start(std::span<const float> logits) {
  if (logits.empty()) return fail(ErrorCode::kInvalidArgument, "there are no logits");
  logits_ = logits;
  std::span<const float> row = logits;
  int64_t index = 0;
  int finite = 0;
  kernels_->max_index(row.data(), static_cast<int64_t>(row.size()), &max_, &index, &finite);
  if (!finite) {
    finite_.clear();
    std::copy_if(row.begin(), row.end(), std::back_inserter(finite_),
                 [](float x) { return x != kSuppressed; });
    row = finite_;
    if (!row.empty()) {
      kernels_->max_index(row.data(), static_cast<int64_t>(row.size()), &max_, &index, &finite);
    }
    if (!finite) {
      return fail(ErrorCode::kNumeric,
                  "a logit is NaN or +infinity, or every one is -infinity, so there are no "
                  "probabilities; the model file may be damaged, or try --precise");
    }
  }
  double sum = 0, weighted = 0;
  kernels_->exp_sums(row.data(), max_, static_cast<int64_t>(row.size()), &sum, &weighted);
  log_sum_ = natural_log(sum);
  entropy_ = std::max(0.0, log_sum_ - weighted / sum);
  ranking_.start(logits);
  return {};
}

double LogProbs::logprob(int32_t id) const {
  return (static_cast<double>(logits_[static_cast<size_t>(id)]) - static_cast<double>(max_)) -
         log_sum_;
}

void LogProbs::top(size_t n, std::vector<LogProb>* out) {
  out->clear();
  for (const Ranked& c : ranking_.best(n)) {
    if (c.logit != kSuppressed) out->push_back({c.id, logprob(c.id)});
  }
}

}  // namespace culet::sample
