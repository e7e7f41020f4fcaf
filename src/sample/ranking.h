// The candidates of a row of logits, best first: higher logit, then lower id. Found only as far as
// somebody asks, because the first few of 262,144 cost one pass and a sort of all costs twenty.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace culet::sample {

// The logit of a token that cannot come.
constexpr float kSuppressed = -std::numeric_limits<float>::infinity();

struct Ranked {
  int32_t id;
  float logit;
};

// The order of the ranking.
inline bool better(const Ranked& a, const Ranked& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// One thread at a time. Keeps its memory from row to row.
class Ranking {
 public:
  // `logits` must outlive the calls of best() and hold no NaN.
  void start(std::span<const float> logits);
  // The same row is now elsewhere.
  void moved(std::span<const float> logits) { logits_ = logits; }
  size_t size() const { return logits_.size(); }
  // The best min(n, size()) candidates. Valid until the next call.
  std::span<const Ranked> best(size_t n);

 private:
  void find(size_t n);

  std::span<const float> logits_;
  std::vector<Ranked> found_;  // sorted
};

}  // namespace culet::sample
