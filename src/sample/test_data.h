// For the tests of this folder: kernels and rows of logits.
#pragma once

#include "kernels/kernels.h"

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

}  // namespace culet::sample
