// The chain is the table kSteps: each step narrows the candidates, in this order, and is left out
// where its option is off. Weights are exp((logit - max) / temperature), so top_p looks at the
// distribution that is drawn from. All sums run over candidates in ranking order (or, over a whole
// vocabulary, in the 16 lanes of kernels.exp_sums), so their bits are the same everywhere.
//
// A draw walks the remaining candidates until the running sum of weights passes u * total.
#include "sample/chain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace culet::sample {
namespace {

using State = Sampler::State;

struct Step {
  const char* name;
  bool (*active)(const SamplingOptions&);
  void (*apply)(const SamplingOptions&, State&);
};

void keep_top_k(const SamplingOptions& options, State& state) {
  state.count = std::min(state.count, static_cast<size_t>(options.top_k));
  state.total = state.sum_weights();
}

// The fewest best candidates whose weights reach top_p of the total; at least one.
void keep_top_p(const SamplingOptions& options, State& state) {
  const double limit = static_cast<double>(options.top_p) * state.total;
  double sum = 0;
  size_t kept = 0;
  while (kept < state.count && (kept == 0 || sum < limit)) {
    sum += state.weight(state.ranking.best(kept + 1)[kept].logit);
    ++kept;
  }
  state.count = kept;
  state.total = sum;
}

constexpr Step kSteps[] = {
    {"top_k", [](const SamplingOptions& o) { return o.top_k > 0; }, keep_top_k},
    {"top_p", [](const SamplingOptions& o) { return o.top_p < 1; }, keep_top_p},
};

bool only_suppressed(std::span<const float> logits) {
  return std::all_of(logits.begin(), logits.end(), [](float x) {
    return x <= std::numeric_limits<float>::max();  // false for NaN and +infinity
  });
}

int32_t draw(State& state, double u) {
  const double target = u * state.total;
  double sum = 0;
  size_t i = 0;
  for (; i + 1 < state.count; ++i) {
    const double weight = state.weight(state.ranking.best(i + 1)[i].logit);
    if (weight == 0) break;  // rounding left a rest: nothing behind this can come
    sum += weight;
    if (sum > target) return state.ranking.best(i + 1)[i].id;
  }
  const std::span<const Candidate> best = state.ranking.best(i + 1);
  return state.weight(best[i].logit) > 0 || i == 0 ? best[i].id : best[i - 1].id;
}

}  // namespace

Result<void> check(const SamplingOptions& options) {
  const auto wrong = [](const char* name, double value, const char* range) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} is {}; it must be {}", name, value, range));
  };
  if (!(options.temperature >= 0) || std::isinf(options.temperature)) {
    return wrong("temperature", options.temperature, "0 (greedy) or a positive number");
  }
  if (options.top_k < 0) return wrong("top_k", options.top_k, "0 (off) or a positive number");
  if (!(options.top_p > 0 && options.top_p <= 1)) {
    return wrong("top_p", options.top_p, "above 0 and at most 1 (off)");
  }
  return {};
}

// Source: Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014 (SplitMix64).
double uniform(uint64_t seed, uint64_t n) {
  uint64_t z = seed + (n + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1p-53;
}

double State::weight(float logit) const {
  const float x = (logit - max) / temperature;
  double sum = 0, weighted = 0;
  kernels->exp_sums(&x, 0, 1, &sum, &weighted);
  return sum;
}

double State::sum_weights() {
  double sum = 0;
  if (count < logits.size()) {
    for (const Candidate& c : ranking.best(count)) sum += weight(c.logit);
    return sum;
  }
  const auto n = static_cast<int64_t>(logits.size());
  double weighted = 0;
  scaled.resize(logits.size());
  kernels->binary_scalar(kernels::kSub, logits.data(), max, n, scaled.data());
  kernels->binary_scalar(kernels::kDiv, scaled.data(), temperature, n, scaled.data());
  kernels->exp_sums(scaled.data(), 0, n, &sum, &weighted);
  return sum;
}

Sampler::Sampler(const kernels::Kernels& kernels, const SamplingOptions& options)
    : options_(options), state_{&kernels, {}, 0, options.temperature, 0, 0, {}, {}} {}

Result<int32_t> Sampler::pick(std::span<const float> logits, uint64_t n) {
  if (logits.empty())
    return fail(ErrorCode::kInvalidArgument, "there are no logits to sample from");
  int64_t best = 0;
  int finite = 0;
  state_.kernels->max_index(logits.data(), static_cast<int64_t>(logits.size()), &state_.max, &best,
                            &finite);
  if (!finite && !only_suppressed(logits)) {
    return fail(
        ErrorCode::kNumeric,
        "the logits hold a NaN or an infinity; the model file may be damaged, or try --precise");
  }
  if (std::isinf(state_.max)) {
    return fail(ErrorCode::kNumeric, "every token is suppressed; allow at least one");
  }
  if (options_.temperature == 0 || options_.top_k == 1) return static_cast<int32_t>(best);

  state_.logits = logits;
  state_.ranking.start(logits);
  state_.count = logits.size();
  if (options_.top_k == 0) state_.total = state_.sum_weights();
  for (const Step& step : kSteps) {
    if (step.active(options_)) step.apply(options_, state_);
  }
  return draw(state_, uniform(options_.seed, n));
}

}  // namespace culet::sample
