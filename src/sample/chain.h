// From a row of raw logits to the distribution that a token is drawn from: a pure function of the
// arguments of prepare(), the same on every machine, instruction set and number of threads.
#pragma once

#include "culet/sampler.h"
#include "kernels/kernels.h"
#include "sample/changes.h"
#include "sample/ranking.h"

#include <cstdint>
#include <span>
#include <vector>

namespace culet::sample {

// What the steps of the chain (chain.cpp) work on: `count` candidates of the ranking from `begin`
// on, or those of `chosen` once a step has kept some that are no run of the ranking.
struct Remaining {
  const kernels::Kernels* kernels;
  std::span<const float> logits;
  float max;          // highest logit that is left
  float temperature;  // 1 until the temperature's own step
  size_t begin, count;
  Ranking ranking;
  std::vector<Ranked> chosen;  // in ranking order; empty: the ranking itself
  std::vector<float> scaled;   // [vocabulary], only where weights of the whole row are summed
  struct Typical {
    Ranked candidate;
    size_t rank;
    double x, weight, distance;
  };
  std::vector<Typical> typical;  // memory of typical_p

  Ranked candidate(size_t i);        // i < count
  double weight(float logit) const;  // exp((logit - max) / temperature)
  // Sum of the weights; weighted: sum of weight * (logit - max) / temperature.
  double sum_weights(double* weighted = nullptr);
  void keep_from(size_t first);  // drops the best `first`
};

// One thread at a time. Keeps its memory from row to row.
class Chain {
 public:
  // What outlives the chain: kernels, options that are valid, DRY's breakers as sorted ids.
  Chain(const kernels::Kernels& kernels, const SamplerOptions& options,
        std::span<const Token> breakers);

  struct Input {
    std::span<const float> logits;  // [vocabulary]
    std::span<const Token> history;
    const TokenMask* mask = nullptr;  // of the row's size
    uint64_t seed = 0, draw = 0;      // XTC's chance
    double mirostat_mu = 0;
  };
  // After an error there is no distribution.
  Result<void> prepare(const Input& input);

  // From a prepared distribution; u in [0, 1).
  Token draw(double u);
  // From max(0, p - q) divided by its sum; q: [vocabulary], by id. Where nothing is left but
  // rounding, from p.
  Token draw_residual(double u, std::span<const double> q);
  double probability(Token id);
  std::span<const TokenProbability> candidates();
  // The row that prepare() got may change or go from now on.
  void detach();
  void clear();  // no distribution

 private:
  void list_candidates();
  bool remains(const Ranked& token);

  const SamplerOptions* options_;
  std::span<const Token> breakers_;
  Changes changes_;
  Remaining left_;
  double total_ = 0;       // of the weights; 0: no distribution
  bool listed_ = false;    // list_ is of this distribution
  bool row_gone_ = false;  // only list_ is left
  std::vector<TokenProbability> list_;
};

}  // namespace culet::sample
