// Two tables, each in the order in which its steps run; a step whose option is off is left out.
// kChanges adds to or scales single logits, kSteps narrows the candidates. Weights are exp((logit -
// max) / temperature), so top_p looks at the distribution that is drawn from. All sums run over
// candidates in ranking order (or, over a whole vocabulary, in the 16 lanes of kernels.exp_sums),
// so their bits are the same everywhere.
//
// A draw walks the remaining candidates until the running sum of weights passes u * total.
#include "sample/chain.h"

#include "sample/logprobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace culet::sample {
namespace {

using State = Sampler::State;

constexpr float kMostPenalty = 100, kMostBias = 1e6f;

struct Change {
  const char* name;
  bool (*active)(const SamplingOptions&);
  // `window`: the tokens that penalties look at, sorted.
  void (*apply)(const SamplingOptions&, std::span<const int32_t> window, std::span<float> row);
};

struct Step {
  const char* name;
  bool (*active)(const SamplingOptions&);
  void (*apply)(const SamplingOptions&, State&);
};

// ---------------------------------------------------------------- changes of single logits

void add_bias(const SamplingOptions& options, std::span<const int32_t>, std::span<float> row) {
  for (const LogitBias& b : options.logit_bias) row[static_cast<size_t>(b.id)] += b.bias;
}

// Calls fn(logit, number of times in the window) for each token of the window that the row has.
template <class F>
void for_window(std::span<const int32_t> window, std::span<float> row, F&& fn) {
  for (size_t i = 0, end = 0; i < window.size(); i = end) {
    while (end < window.size() && window[end] == window[i]) ++end;
    if (window[i] < 0 || static_cast<size_t>(window[i]) >= row.size()) continue;
    fn(row[static_cast<size_t>(window[i])], static_cast<float>(end - i));
  }
}

// Source: Keskar et al., CTRL, 2019 (4.1), with the sign cared for.
void penalize_repeats(const SamplingOptions& options, std::span<const int32_t> window,
                      std::span<float> row) {
  for_window(window, row, [&](float& logit, float) {
    logit = logit > 0 ? logit / options.repeat_penalty : logit * options.repeat_penalty;
  });
}

void penalize_presence(const SamplingOptions& options, std::span<const int32_t> window,
                       std::span<float> row) {
  for_window(window, row, [&](float& logit, float) { logit -= options.presence_penalty; });
}

void penalize_frequency(const SamplingOptions& options, std::span<const int32_t> window,
                        std::span<float> row) {
  for_window(window, row,
             [&](float& logit, float times) { logit -= times * options.frequency_penalty; });
}

constexpr Change kChanges[] = {
    {"logit_bias", [](const SamplingOptions& o) { return !o.logit_bias.empty(); }, add_bias},
    {"repeat_penalty", [](const SamplingOptions& o) { return o.repeat_penalty != 1; },
     penalize_repeats},
    {"presence_penalty", [](const SamplingOptions& o) { return o.presence_penalty != 0; },
     penalize_presence},
    {"frequency_penalty", [](const SamplingOptions& o) { return o.frequency_penalty != 0; },
     penalize_frequency},
};

// ---------------------------------------------------------------- steps that narrow

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
    sum += state.weight(state.candidate(kept).logit);
    ++kept;
  }
  state.count = kept;
  state.total = sum;
}

// Those whose surprise is nearest to the mean surprise (the entropy), until their weights reach
// `typical` of the total; at least one. Surprise is log(total) - x with x = (logit - max) /
// temperature, so its distance from the mean is that of x from its own mean, and no logarithm is
// needed. Source: Meister et al., Locally Typical Sampling, 2022.
void keep_typical(const SamplingOptions& options, State& state) {
  struct Item {
    Candidate candidate;
    size_t rank;
    double x, weight, distance;
  };
  std::vector<Item> items;
  double total = 0, sum = 0;
  for (size_t i = 0; i < state.count; ++i) {
    const Candidate c = state.candidate(i);
    const double weight = state.weight(c.logit);
    if (weight == 0) break;  // nor has any that follows
    const double x = (c.logit - state.max) / state.temperature;
    items.push_back({c, i, x, weight, 0});
    total += weight;
    sum += weight * x;
  }
  for (Item& item : items) item.distance = std::fabs(item.x - sum / total);
  std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
    return a.distance != b.distance ? a.distance < b.distance : a.rank < b.rank;
  });
  const double limit = static_cast<double>(options.typical) * total;
  double kept = 0;
  size_t count = 0;
  while (count < items.size() && (count == 0 || kept < limit)) kept += items[count++].weight;
  items.resize(count);
  std::sort(items.begin(), items.end(),
            [](const Item& a, const Item& b) { return a.rank < b.rank; });
  state.chosen.clear();
  for (const Item& item : items) state.chosen.push_back(item.candidate);
  state.count = count;
  state.total = state.sum_weights();
}

// Those at least min_p times as likely as the likeliest that is left.
void keep_min_p(const SamplingOptions& options, State& state) {
  const double least = static_cast<double>(options.min_p) * state.weight(state.candidate(0).logit);
  double sum = 0;
  size_t kept = 0;
  for (; kept < state.count; ++kept) {
    const double weight = state.weight(state.candidate(kept).logit);
    if (kept > 0 && weight < least) break;
    sum += weight;
  }
  state.count = kept;
  state.total = sum;
}

constexpr Step kSteps[] = {
    {"top_k", [](const SamplingOptions& o) { return o.top_k > 0; }, keep_top_k},
    {"typical", [](const SamplingOptions& o) { return o.typical < 1; }, keep_typical},
    {"top_p", [](const SamplingOptions& o) { return o.top_p < 1; }, keep_top_p},
    {"min_p", [](const SamplingOptions& o) { return o.min_p > 0; }, keep_min_p},
};

int32_t draw(State& state, double u) {
  const double target = u * state.total;
  double sum = 0;
  Candidate last = state.candidate(0);
  for (size_t i = 0; i < state.count; ++i) {
    const Candidate c = state.candidate(i);
    const double weight = state.weight(c.logit);
    if (weight == 0) break;  // rounding left a rest: nothing behind this can come
    sum += weight;
    last = c;
    if (sum > target) break;
  }
  return last.id;
}

}  // namespace

Result<void> check(const SamplingOptions& options, int64_t vocabulary) {
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
  if (!(options.min_p >= 0 && options.min_p <= 1)) {
    return wrong("min_p", options.min_p, "from 0 (off) to 1");
  }
  if (!(options.typical > 0 && options.typical <= 1)) {
    return wrong("typical", options.typical, "above 0 and at most 1 (off)");
  }
  if (!(options.repeat_penalty >= 0.01f && options.repeat_penalty <= 100)) {
    return wrong("repeat_penalty", options.repeat_penalty, "from 0.01 to 100; 1 is off");
  }
  for (const auto& [name, value] : {std::pair("presence_penalty", options.presence_penalty),
                                    std::pair("frequency_penalty", options.frequency_penalty)}) {
    if (!(std::fabs(value) <= kMostPenalty)) {
      return wrong(name, value, "from -100 to 100; 0 is off");
    }
  }
  if (options.repeat_window < -1) {
    return wrong("repeat_window", options.repeat_window, "a number of tokens, or -1 (all)");
  }
  for (const LogitBias& b : options.logit_bias) {
    if (b.id < 0 || b.id >= vocabulary) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("logit_bias names token {}, but the vocabulary has ids 0 to {}", b.id,
                              vocabulary - 1));
    }
    const bool never = b.bias == -std::numeric_limits<float>::infinity();
    if (!never && !(std::fabs(b.bias) <= kMostBias)) {
      return wrong("logit_bias", b.bias, "from -1000000 to 1000000, or -infinity (never)");
    }
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

Candidate State::candidate(size_t i) { return chosen.empty() ? ranking.best(i + 1)[i] : chosen[i]; }

double State::weight(float logit) const {
  const float x = (logit - max) / temperature;
  double sum = 0, weighted = 0;
  kernels->exp_sums(&x, 0, 1, &sum, &weighted);
  return sum;
}

double State::sum_weights() {
  double sum = 0;
  if (count < logits.size() || !chosen.empty()) {
    for (size_t i = 0; i < count; ++i) sum += weight(candidate(i).logit);
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
    : options_(options), state_{&kernels, {}, 0, options.temperature, 0, 0, {}, {}, {}} {}

// The logits after kChanges: themselves where none is active.
std::span<const float> Sampler::adjusted(std::span<const float> logits,
                                         std::span<const int32_t> history) {
  window_.clear();
  bool copied = false;
  for (const Change& change : kChanges) {
    if (!change.active(options_)) continue;
    if (!copied) {
      const size_t most =
          options_.repeat_window < 0 ? history.size() : static_cast<size_t>(options_.repeat_window);
      const auto last = history.last(std::min(most, history.size()));
      window_.assign(last.begin(), last.end());
      std::sort(window_.begin(), window_.end());
      row_.assign(logits.begin(), logits.end());
      copied = true;
    }
    change.apply(options_, window_, row_);
  }
  return copied ? std::span<const float>(row_) : logits;
}

Result<int32_t> Sampler::pick(std::span<const float> logits, uint64_t n,
                              std::span<const int32_t> history) {
  if (logits.empty())
    return fail(ErrorCode::kInvalidArgument, "there are no logits to sample from");
  logits = adjusted(logits, history);
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
  state_.chosen.clear();
  state_.count = logits.size();
  if (options_.top_k == 0) state_.total = state_.sum_weights();
  for (const Step& step : kSteps) {
    if (step.active(options_)) step.apply(options_, state_);
  }
  return draw(state_, uniform(options_.seed, n));
}

}  // namespace culet::sample
