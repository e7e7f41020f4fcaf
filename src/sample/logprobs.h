// The distribution that raw logits describe: natural logarithms, no temperature. The same digits on
// every machine: sums are those of the kernel table, the logarithm is our own.
#pragma once

#include "culet/result.h"
#include "kernels/kernels.h"
#include "sample/ranking.h"

#include <cstdint>
#include <span>
#include <vector>

namespace culet::sample {

struct LogProb {
  int32_t id;
  double logprob;
};

// One row. -infinity marks a suppressed token: its probability is 0 and it never is among the top.
// Keeps scratch memory; one thread at a time.
class LogProbs {
 public:
  explicit LogProbs(const kernels::Kernels& kernels) : kernels_(&kernels) {}

  // kNumeric: a NaN or +infinity, or every token is suppressed. `logits` must outlive the
  // questions.
  Result<void> start(std::span<const float> logits);
  double logprob(int32_t id) const;  // id inside the row
  double log_sum_exp() const { return max_ + log_sum_; }
  double entropy() const { return entropy_; }     // nats
  void top(size_t n, std::vector<LogProb>* out);  // best first; equal logits: lower id first

 private:
  const kernels::Kernels* kernels_;
  std::span<const float> logits_;
  std::vector<float> finite_;  // the row without -infinity, where there is one
  Ranking ranking_;
  float max_ = 0;
  double log_sum_ = 0, entropy_ = 0;  // log_sum_: of exp(x - max)
};

// Whether every logit that is not finite is -infinity, the mark of a suppressed token.
bool only_suppressed(std::span<const float> logits);

}  // namespace culet::sample
