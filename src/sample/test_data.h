// For the tests of this folder: kernels and rows of logits.
#pragma once

#include "kernels/kernels.h"
#include "sample/chain.h"
#include "sample/numbers.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace culet::sample {

constexpr float kInf = std::numeric_limits<float>::infinity();

inline kernels::Kernels table(const char* isa = nullptr) {
  kernels::Kernels k{};
  EXPECT_EQ(kernels::select_kernels(isa, &k), nullptr);
  return k;
}

inline std::vector<float> random_row(size_t n, uint32_t seed, float scale = 3) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> row(n);
  for (float& x : row) x = normal(rng);
  return row;
}

// What draw number `n` picks, without the public class around the chain.
inline Result<Token> pick_at(const kernels::Kernels& kernels, const SamplerOptions& options,
                             const std::vector<float>& row, uint64_t n,
                             const std::vector<Token>& history = {}) {
  Chain chain(kernels, options, options.dry_breaker_tokens);
  CULET_TRY_VOID(chain.prepare({.logits = row,
                                .history = history,
                                .seed = options.seed,
                                .draw = n,
                                .mirostat_mu = 2 * static_cast<double>(options.mirostat_tau)}));
  return chain.draw(uniform(options.seed, n));
}

}  // namespace culet::sample
