// From a row of raw logits to one token. A pure function of (logits, options, number of the draw):
// the same on every machine, instruction set and number of threads (docs/formats/sampling.md).
#pragma once

#include "culet/result.h"
#include "kernels/kernels.h"
#include "sample/ranking.h"

#include <cstdint>
#include <span>
#include <vector>

namespace culet::sample {

struct LogitBias {
  int32_t id;
  float bias;  // added to the logit; -infinity: the token never comes
};

struct SamplingOptions {
  float temperature = 0.8f;  // 0: greedy, the lowest id on ties
  int32_t top_k = 40;        // 0: off
  float top_p = 0.95f;       // 1: off
  uint64_t seed = 0;
  float min_p = 0;                             // 0: off
  float typical = 1;                           // 1: off
  float repeat_penalty = 1;                    // 1: off
  float presence_penalty = 0;                  // 0: off
  float frequency_penalty = 0;                 // 0: off
  int32_t repeat_window = 64;                  // last tokens that the penalties look at; -1: all
  std::span<const LogitBias> logit_bias = {};  // outlives the sampler
};

// kInvalidArgument names the option that makes no sense and the range it must be in.
Result<void> check(const SamplingOptions& options, int64_t vocabulary);

// The n-th number (from 0) of the stream `seed`, uniform in [0, 1), a multiple of 2^-53.
double uniform(uint64_t seed, uint64_t n);

// One thread at a time; only scratch memory is kept between calls.
class Sampler {
 public:
  // `kernels` outlives the sampler; `options` have passed check().
  Sampler(const kernels::Kernels& kernels, const SamplingOptions& options);
  // The token of draw `n` (a session counts its generated tokens) after the tokens `history`, which
  // only penalties read. -infinity marks a token that cannot come. kNumeric: a NaN or +infinity, or
  // no token is left.
  Result<int32_t> pick(std::span<const float> logits, uint64_t n,
                       std::span<const int32_t> history = {});
  const SamplingOptions& options() const { return options_; }

  // What the steps of the chain (chain.cpp) work on: the first `count` candidates of the ranking,
  // or of `chosen` once a step has kept some that are not the best.
  struct State {
    const kernels::Kernels* kernels;
    std::span<const float> logits;
    float max;  // highest logit
    float temperature;
    size_t count;  // candidates left
    double total;  // sum of their weights
    Ranking ranking;
    std::vector<float> scaled;      // [vocabulary], only where all weights are summed
    std::vector<Candidate> chosen;  // in ranking order; empty: the ranking itself

    Candidate candidate(size_t i);     // i < count
    double weight(float logit) const;  // exp((logit - max) / temperature)
    double sum_weights();              // of the first `count`
  };

 private:
  std::span<const float> adjusted(std::span<const float> logits, std::span<const int32_t> history);

  SamplingOptions options_;
  State state_;
  std::vector<float> row_;       // [vocabulary], only where logits are changed
  std::vector<int32_t> window_;  // sorted
};

}  // namespace culet::sample
