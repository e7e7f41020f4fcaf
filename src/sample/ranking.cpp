// One pass over the row with a threshold: whatever is above it is collected; when twice as many as
// asked for are there, the better half stays and gives the new threshold. Ids ascend during the
// pass, so a later value equal to the threshold can never be among the best. A row that is asked
// for again gets several times as many, so repeated questions stay linear; a large part of the row
// is found by sorting all of it.
#include "sample/ranking.h"

#include <algorithm>
#include <cmath>

namespace culet::sample {
namespace {

constexpr size_t kFirst = 64;  // never look for fewer
constexpr size_t kGrowth = 8;
constexpr size_t kBlock = 16;  // values compared at once

bool any_above(const float* x, float threshold) {
  int any = 0;
  for (size_t i = 0; i < kBlock; ++i) any |= x[i] > threshold;
  return any != 0;
}

}  // namespace

void Ranking::start(std::span<const float> logits) {
  logits_ = logits;
  found_.clear();
}

std::span<const Ranked> Ranking::best(size_t n) {
  n = std::min(n, logits_.size());
  if (n > found_.size()) {
    const size_t wanted = std::max({n, kFirst, found_.size() * kGrowth});
    find(wanted >= logits_.size() / 8 ? logits_.size() : wanted);
  }
  return std::span<const Ranked>(found_).first(n);
}

void Ranking::find(size_t n) {
  found_.clear();
  found_.reserve(std::min(2 * n + kBlock, logits_.size()));
  size_t i = 0;
  for (; i < logits_.size() && found_.size() < n; ++i) {
    found_.push_back({static_cast<int32_t>(i), logits_[i]});
  }
  if (i < logits_.size()) {
    float threshold =
        std::min_element(found_.begin(), found_.end(), [](const auto& a, const auto& b) {
          return a.logit < b.logit;
        })->logit;
    while (i < logits_.size()) {
      const size_t stop = std::min(i + kBlock, logits_.size());
      if (stop - i == kBlock && !any_above(&logits_[i], threshold)) {
        i = stop;
        continue;
      }
      for (; i < stop; ++i) {
        if (logits_[i] > threshold) found_.push_back({static_cast<int32_t>(i), logits_[i]});
      }
      if (found_.size() >= 2 * n) {
        std::nth_element(found_.begin(), found_.begin() + static_cast<std::ptrdiff_t>(n - 1),
                         found_.end(), better);
        found_.resize(n);
        threshold = found_.back().logit;
      }
    }
  }
  std::sort(found_.begin(), found_.end(), better);
  found_.resize(std::min(n, found_.size()));
}

}  // namespace culet::sample
