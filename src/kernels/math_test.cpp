// culet's exp, tanh, sigmoid, erf, activations and fma over a stride of all float32 patterns: the
// stated error bounds against float64, special values, and the same bits on every level.
#include "kernels/scalar_math.h"
#include "kernels/test_data.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <iostream>
#include <numbers>
#include <vector>

namespace culet::kernels {
namespace {

using namespace test;  // NOLINT

// A prime stride meets every exponent about 10^4 times (10^3 with small tests) and all low mantissa
// bits.
const uint64_t kStride = small_tests() ? 27617 : 1381;

template <class F>
void for_all_floats(F f) {
  for (uint64_t b = 0; b < (uint64_t{1} << 32); b += kStride)
    f(std::bit_cast<float>(static_cast<uint32_t>(b)));
}

// |y - want| in units of the last place of want (of the smallest normal below that).
double ulps(float y, double want) {
  const double size = std::max(std::abs(want), 0x1p-126);
  return std::abs(double(y) - want) / std::ldexp(1.0, std::ilogb(size) - 23);
}

struct Worst {
  double error = 0;
  float x = 0;
  void add(double e, float at) {
    if (e > error) error = e, x = at;
  }
};

TEST(Math, ExpError) {
  Worst worst;
  for_all_floats([&](float x) {
    const float y = exp1(x);
    if (x != x) {
      ASSERT_TRUE(std::isnan(y));
    } else if (x > 88.72284f) {
      ASSERT_EQ(y, INFINITY) << x;
    } else if (double(x) < -60 * std::numbers::ln2) {
      ASSERT_TRUE(same_bits(y, 0.0f)) << x;
    } else {
      ASSERT_GE(y, 0x1p-60f) << x;
      worst.add(ulps(y, std::exp(double(x))), x);
    }
  });
  std::cout << "exp: " << worst.error << " ulp at " << worst.x << "\n";
  EXPECT_LE(worst.error, 0.95);
  EXPECT_EQ(exp1(0.0f), 1.0f);
  EXPECT_EQ(exp1(-0.0f), 1.0f);
  EXPECT_EQ(exp1(-INFINITY), 0.0f);
  EXPECT_EQ(exp1(INFINITY), INFINITY);
}

const float kBelowExpLow = std::nextafter(kExpLow, -INFINITY);
const float kAboveExpLow = std::nextafter(kExpLow, 0.0f);

TEST(Math, ExpFloorIsTheFirstFloatFrom60Halvings) {
  EXPECT_GE(double(kExpLow), -60 * std::numbers::ln2);
  EXPECT_LT(double(kBelowExpLow), -60 * std::numbers::ln2);
  EXPECT_EQ(exp1(kExpLow), 0x1.00001ep-60f);
  EXPECT_EQ(exp1(kAboveExpLow), 0x1.00005ep-60f);
  for (float x : {kBelowExpLow, -42.0f, -87.0f, -88.0f, -103.9f, -104.1f, -1e9f, -3e38f, -INFINITY})
    EXPECT_TRUE(same_bits(exp1(x), 0.0f)) << x;
}

// exp_sums gives exp of a single value as it is; in every lane, with and without neighbours.
TEST(Math, ExpFloorOnEveryLevel) {
  for (const IsaLevel* l = isa_levels(); l->name; l++) {
    Kernels kernels;
    if (!l->usable || select_kernels(l->name, &kernels)) continue;
    for (float x : {kBelowExpLow, kExpLow, kAboveExpLow, -42.0f, -87.5f, -103.9f, -1e30f, -INFINITY,
                    -0.0f, 0.0f, -0x1p-140f, 1.0f, 88.5f, 100.0f, INFINITY, NAN})
      for (int64_t n : {1, 7, 8, 9, 16, 17, 40})
        for (int64_t at = 0; at < n; at++) {
          std::vector<float> row(n, kBelowExpLow);
          row[at] = x;
          double sum, weighted;
          kernels.exp_sums(row.data(), 0.0f, n, &sum, &weighted);
          const double want = double(exp1(x)), want_weighted = want == 0 ? 0 : want * double(x);
          ASSERT_TRUE(sum == want || (x != x && sum != sum)) << l->name << " " << x << " " << sum;
          ASSERT_TRUE(weighted == want_weighted || (x != x && weighted != weighted))
              << l->name << " " << x << " " << weighted;
        }
    // Where exp(-x) is 0 or too small to count, sigmoid is 1.
    for (float x : {-kAboveExpLow, -kExpLow, -kBelowExpLow, 104.0f, INFINITY}) {
      float y[17], in[17];
      for (float& v : in) v = x;
      kernels.unary(kSigmoid, in, 17, y);
      for (float v : y) ASSERT_EQ(v, 1.0f) << l->name << " " << x;
      kernels.unary(kSilu, in, 17, y);
      for (float v : y) ASSERT_EQ(v, x) << l->name;
    }
  }
}

template <class F, class G>
double worst_ulps(const char* name, F f, G want) {
  Worst worst;
  for_all_floats([&](float x) {
    const float y = f(x);
    if (x != x)
      EXPECT_TRUE(std::isnan(y)) << name;
    else
      worst.add(ulps(y, want(double(x))), x);
  });
  std::cout << name << ": " << worst.error << " ulp at " << worst.x << "\n";
  return worst.error;
}

TEST(Math, TanhErfError) {
  EXPECT_LE(worst_ulps("tanh", tanh1, [](double x) { return std::tanh(x); }), 1.5);
  EXPECT_LE(worst_ulps("erf", erf1, [](double x) { return std::erf(x); }), 1.5);
  for (float x : {0.0f, INFINITY})
    for (float s : {1.0f, -1.0f}) {
      EXPECT_TRUE(same_bits(tanh1(s * x), s * (x == 0 ? 0.0f : 1.0f)));
      EXPECT_TRUE(same_bits(erf1(s * x), s * (x == 0 ? 0.0f : 1.0f)));
    }
}

// Activations by absolute error in units of max(|x|, 1); sigmoid underflows to 0 below -88.7.
TEST(Math, ActivationError) {
  Worst sigmoid, silu, gelu, gelu_erf;
  for_all_floats([&](float x) {
    if (!std::isfinite(x)) return;
    const double d = x, size = std::max(1.0, std::abs(d)) * 0x1p-24;
    const double s = 1 / (1 + std::exp(-d));
    const double t = std::tanh(0.7978845608 * (d + 0.044715 * d * d * d));
    sigmoid.add(x > -88 ? ulps(sigmoid1(x), s) : 0, x);
    silu.add(std::abs(silu1(x) - d * s) / size, x);
    gelu.add(std::abs(gelu1(x) - 0.5 * d * (1 + t)) / size, x);
    gelu_erf.add(std::abs(gelu_erf1(x) - 0.5 * d * (1 + std::erf(d * std::sqrt(0.5)))) / size, x);
  });
  std::cout << "sigmoid " << sigmoid.error << " ulp at " << sigmoid.x << "; silu " << silu.error
            << ", gelu " << gelu.error << ", gelu_erf " << gelu_erf.error
            << " * 2^-24 max(1, |x|)\n";
  EXPECT_LE(sigmoid.error, 2.5);
  EXPECT_LE(silu.error, 4);
  EXPECT_LE(gelu.error, 4);
  EXPECT_LE(gelu_erf.error, 4);
  for (float (*f)(float) : {silu1, gelu1, gelu_erf1, relu1, sigmoid1})
    EXPECT_TRUE(std::isnan(f(NAN)));
  EXPECT_TRUE(std::isnan(softcap1(NAN, 30.0f)));
}

// Exactly rounded, subnormals and ties included: against the C library's fma.
TEST(Math, FmaIsExactlyRounded) {
  std::mt19937 rng(1);
  auto check = [](float x, float y, float z) {
    const float got = fma1(x, y, z), want = std::fmaf(x, y, z);
    ASSERT_TRUE(same_bits(got, want))
        << std::hexfloat << x << " " << y << " " << z << ": " << got << " for " << want;
  };
  for (int i = 0; i < 2000000; i++)
    check(std::bit_cast<float>(uint32_t(rng())), std::bit_cast<float>(uint32_t(rng())),
          std::bit_cast<float>(uint32_t(rng())));
  for (int i = 0; i < 2000000; i++) {  // close exponents, short mantissas: ties and cancellation
    auto pick = [&](int low, int high) {
      const int e = low + int(rng() % uint32_t(high - low));
      const float m = float(int(rng() % 4096) - 2048) + (rng() % 4 ? 0.0f : 0.5f);
      return std::ldexp(m, e);
    };
    check(pick(-20, 4), pick(-20, 4), pick(-40, 4));
    check(pick(-100, -60), pick(-90, -60), pick(-170, -130));  // subnormal results
  }
}

TEST(Math, EveryLevelHasTheSameBits) {
  Kernels base;
  ASSERT_EQ(select_kernels("scalar", &base), nullptr);
  for (const IsaLevel* l = isa_levels(); l->name; l++) {
    Kernels kernels;
    if (!l->usable || select_kernels(l->name, &kernels)) continue;
    std::vector<float> x;
    for (uint64_t b = 0; b < (uint64_t{1} << 32); b += kStride * 3)
      x.push_back(std::bit_cast<float>(static_cast<uint32_t>(b)));
    const int64_t n = int64_t(x.size());
    std::vector<float> want(x.size()), got(x.size());
    for (uint32_t op = 0; op < kUnaryCount; op++) {
      base.unary(Unary(op), x.data(), n, want.data());
      kernels.unary(Unary(op), x.data(), n, got.data());
      const size_t at = first_difference(got, want);
      ASSERT_EQ(at, x.size()) << l->name << " unary " << op << " at " << x[at];
    }
    base.softcap(x.data(), 50.0f, n, want.data());
    kernels.softcap(x.data(), 50.0f, n, got.data());
    ASSERT_EQ(first_difference(got, want), x.size()) << l->name;
  }
}

// H y = sum over j of (-1)^(bits that i and j share) x[j] / sqrt(m), in pieces of m.
TEST(Hadamard, IsItsDefinition) {
  for (const int64_t n : {1, 2, 24, 64, 80, 96, 128, 256}) {
    const auto size = static_cast<size_t>(n);
    const int64_t m = n & -n;
    std::vector<float> x(size), y(size);
    for (size_t i = 0; i < size; ++i) x[i] = static_cast<float>((i * 37 + 11) % 64) - 32;
    hadamard(x.data(), n, y.data());
    for (int64_t i = 0; i < n; ++i) {
      double want = 0;
      for (int64_t j = 0; j < m; ++j) {
        const bool odd = std::popcount(static_cast<uint64_t>(i % m & j)) % 2 != 0;
        want += (odd ? -1 : 1) * static_cast<double>(x[static_cast<size_t>(i / m * m + j)]);
      }
      EXPECT_NEAR(y[static_cast<size_t>(i)], want / std::sqrt(static_cast<double>(m)), 1e-4)
          << n << ' ' << i;
    }
    hadamard(x.data(), n, x.data());
    EXPECT_EQ(x, y) << "in place";
  }
}

}  // namespace
}  // namespace culet::kernels
