// The scalar table against simple float64 oracles, with stated bounds.
#include "kernels/test_data.h"

#include <gtest/gtest.h>

#include <cmath>
#include <iostream>

namespace culet::kernels {
namespace {

using namespace test;  // NOLINT

std::vector<float> dequantized(const Matrix& m, int64_t n, int64_t k, TensorType type) {
  std::vector<float> w(static_cast<size_t>(n * k));
  quant::dequantize_fn(type)(m.source.data(), n * k / quant::type_info(type).block, w.data());
  return w;
}

TEST(Scalar, MatmulFEqualsAscendingFmaOfDequantizedWeights) {
  const Kernels kernels = scalar();
  std::mt19937 rng(1);
  const int64_t n = 37, k = 512, rows = 3;
  int tested = 0;
  for (TensorType type : all_types()) {
    if (!quant::dequantize_fn(type)) {
      std::cout << type_name(type) << ": quant cannot dequantize it yet, packing untested here\n";
      continue;
    }
    tested++;
    Matrix m(type, n, k, rng);
    const std::vector<float> w = dequantized(m, n, k, type), x = random_floats(rows * k, rng);
    std::vector<float> out(rows * n);
    kernels.matmul_f[m.view.type](&m.view, x.data(), k, 0, rows, 0, 3, out.data(), n);
    for (int64_t r = 0; r < rows; r++)
      for (int64_t o = 0; o < n; o++) {
        float acc = 0;
        for (int64_t i = 0; i < k; i++) acc = std::fmaf(w[o * k + i], x[r * k + i], acc);
        ASSERT_EQ(acc, out[r * n + o]) << type_name(type) << " row " << r << " output " << o;
      }
  }
  EXPECT_GE(tested, 6);
}

// The integer path differs from exact products of its own operands only by float32 roundings.
// Requirement arithmetic.products-of-quantized-rows "products of quantized rows": int8 rows, exact
// integer sums of 32; near the float64 product, and the same bits from every instruction set
TEST(Scalar, MatmulQMatchesFloat64Dot) {
  const Kernels kernels = scalar();
  std::mt19937 rng(2);
  const int64_t n = 33, rows = 2;
  for (TensorType type : quantized_types()) {
    const int64_t k = quant::type_info(type).block == 256 ? 768 : 32 * 21;
    Matrix m(type, n, k, rng);
    // Weights by products with unit rows, so that types without a dequantizer are covered too.
    std::vector<float> unit(k * k), w(k * n);
    for (int64_t i = 0; i < k; i++) unit[i * k + i] = 1;
    kernels.matmul_f[m.view.type](&m.view, unit.data(), k, 0, k, 0, 3, w.data(), n);
    const std::vector<float> x = random_floats(rows * k, rng);
    const Rows a(kernels, x, rows, k);
    std::vector<float> out(rows * n);
    kernels.matmul_q[m.view.type](&m.view, &a.view, 0, rows, 0, 3, out.data(), n);
    for (int64_t r = 0; r < rows; r++)
      for (int64_t o = 0; o < n; o++) {
        double dot = 0, size = 0;
        for (int64_t i = 0; i < k; i++) {
          const double p = double(w[i * n + o]) * a.q[r * k + i] * a.d[(r * k + i) / 32];
          dot += p;
          size += std::abs(p);
        }
        ASSERT_NEAR(out[r * n + o], dot, size * 4e-6 + 1e-30) << type_name(type) << " " << o;
      }
  }
}

TEST(Scalar, QuantizeDefinition) {
  const Kernels kernels = scalar();
  std::mt19937 rng(3);
  const int64_t k = 256;
  std::vector<float> x = random_floats(k, rng);
  for (int i = 0; i < 32; i++) x[32 + i] = 0;
  for (int i = 0; i < 32; i++) x[64 + i] = 0x1p-65f;  // below the floor of 2^-64
  x[96 + 5] = NAN;
  x[128 + 9] = -INFINITY;
  const Rows a(kernels, x, 1, k);
  EXPECT_EQ(a.d[1], 0);
  EXPECT_EQ(a.d[2], 0);
  EXPECT_TRUE(std::isnan(a.d[3]));
  EXPECT_TRUE(std::isnan(a.d[4]));
  for (int i = 32; i < 160; i++) EXPECT_EQ(a.q[i], 0);
  for (int64_t b : {0, 5, 6, 7}) {
    float amax = 0;
    int sums[2] = {0, 0};
    for (int i = 0; i < 32; i++) amax = std::max(amax, std::abs(x[b * 32 + i]));
    EXPECT_EQ(a.d[b], amax / 127.0f);
    for (int i = 0; i < 32; i++) {
      EXPECT_EQ(a.q[b * 32 + i], std::nearbyintf(x[b * 32 + i] * (127.0f / amax)));
      sums[i / 16] += a.q[b * 32 + i];
    }
    EXPECT_EQ(a.sums[2 * b], sums[0]);
    EXPECT_EQ(a.sums[2 * b + 1], sums[1]);
  }
}

TEST(Scalar, Norms) {
  const Kernels kernels = scalar();
  std::mt19937 rng(4);
  for (int64_t n : {1, 15, 576, 1000}) {
    const std::vector<float> x = random_floats(n, rng), w = random_floats(n, rng),
                             b = random_floats(n, rng);
    std::vector<float> rms(n), layer(n);
    kernels.rms_norm(x.data(), w.data(), 1e-6f, n, rms.data());
    kernels.layer_norm(x.data(), w.data(), b.data(), 1e-5f, n, layer.data());
    double squares = 0, mean = 0, variance = 0;
    for (float v : x) squares += double(v) * v, mean += v;
    mean /= n;
    for (float v : x) variance += (v - mean) * (v - mean);
    for (int64_t i = 0; i < n; i++) {
      const double r = x[i] / std::sqrt(squares / n + 1e-6) * w[i];
      const double l = (x[i] - mean) / std::sqrt(variance / n + 1e-5) * w[i] + b[i];
      ASSERT_NEAR(rms[i], r, 1e-6 * (1 + std::abs(r))) << n;
      ASSERT_NEAR(layer[i], l, n == 1 ? 1e-3 : 4e-6 * (1 + std::abs(l))) << n;
    }
  }
}

TEST(Scalar, AddScaledRoundsOnce) {
  const Kernels kernels = scalar();
  std::mt19937 rng(9);
  const std::vector<float> x = test::random_floats(37, rng), y = test::random_floats(37, rng);
  std::vector<float> got = y;
  kernels.add_scaled(0.3f, x.data(), 37, got.data());
  for (size_t i = 0; i < 37; i++) EXPECT_EQ(got[i], std::fma(0.3f, x[i], y[i])) << i;
}

TEST(Scalar, MaxIndexAndExpSums) {
  const Kernels kernels = scalar();
  std::vector<float> x = {-1, 3, -INFINITY, 3, 2};
  float max;
  int64_t index;
  int finite;
  kernels.max_index(x.data(), 5, &max, &index, &finite);
  EXPECT_EQ(max, 3);
  EXPECT_EQ(index, 1);
  EXPECT_EQ(finite, 0);
  double sum, weighted;
  kernels.exp_sums(x.data(), max, 5, &sum, &weighted);
  EXPECT_NEAR(sum, 2 + std::exp(-4.0) + std::exp(-1.0), 1e-6);
  EXPECT_NEAR(weighted, -4 * std::exp(-4.0) - std::exp(-1.0), 1e-6);
  x[4] = NAN;
  kernels.max_index(x.data(), 5, &max, &index, &finite);
  EXPECT_EQ(index, 1);
  EXPECT_EQ(finite, 0);
}

// Verifies language.rotation.
TEST(Scalar, RopeTurnsPairs) {
  const Kernels kernels = scalar();
  const float cs[4] = {std::cos(0.5f), std::cos(0.25f), std::sin(0.5f), std::sin(0.25f)};
  const float x[6] = {1, 2, 3, 4, 5, 6};
  float y[6];
  kernels.rope(x, cs, 4, 6, 0, y);
  EXPECT_NEAR(y[0], 1 * cs[0] - 3 * cs[2], 1e-6);
  EXPECT_NEAR(y[2], 1 * cs[2] + 3 * cs[0], 1e-6);
  EXPECT_NEAR(y[3], 2 * cs[3] + 4 * cs[1], 1e-6);
  EXPECT_EQ(y[5], 6);
  kernels.rope(x, cs, 4, 6, 1, y);
  EXPECT_NEAR(y[0], 1 * cs[0] - 2 * cs[2], 1e-6);
  EXPECT_NEAR(y[3], 3 * cs[3] + 4 * cs[1], 1e-6);
}

// float32 rounding of sin and cos (6e-8) bounds the whole error, at any position.
TEST(Scalar, RopeTableIsExactAtAnyPosition) {
  for (int dims : {64, 128, 256})
    for (double base : {10000.0, 1e6, 500000.0}) {
      std::vector<double> theta(dims / 2);
      rope_frequencies(base, dims, {}, nullptr, theta.data());
      for (int i = 0; i < dims / 2; i++) {
        const long double t = powl(base, -2.0L * i / dims);
        ASSERT_NEAR(double(theta[i] / t), 1.0, 2e-15) << base << " " << i;
      }
      std::vector<float> out(dims);
      for (int64_t position :
           {0LL, 1LL, 10LL, 511LL, 4096LL, 131071LL, 10000019LL, 100000000LL, 999999999LL}) {
        rope_table(theta.data(), dims, position, 1.0, out.data());
        for (int i = 0; i < dims / 2; i++) {
          const long double angle = static_cast<long double>(position) * theta[i];
          ASSERT_NEAR(out[i], double(cosl(angle)), 6e-8) << position << " " << i;
          ASSERT_NEAR(out[dims / 2 + i], double(sinl(angle)), 6e-8) << position << " " << i;
        }
      }
    }
  double scaled[2];
  const float factors[2] = {1.0f, 4.0f};
  rope_frequencies(100.0, 4, {0.5}, factors, scaled);
  EXPECT_DOUBLE_EQ(scaled[0], 0.5);
  EXPECT_DOUBLE_EQ(scaled[1], 0.1 * 0.5 / 4);
}

TEST(Scalar, ForcedLevels) {
  Kernels kernels;
  EXPECT_STREQ(select_kernels("sse9", &kernels), "is not an instruction set of this build");
  EXPECT_STREQ(isa_levels()[0].name, "scalar");
  for (const IsaLevel* l = isa_levels(); l->name; l++)
    EXPECT_EQ(select_kernels(l->name, &kernels) == nullptr, l->usable != 0) << l->name;
}

// A q8_0 row read back by hand, from keys and from values, against its definition.
struct Q8Row {
  std::vector<int> q;
  std::vector<float> d;
};

Q8Row stored_q8(const Kernels& kernels, const std::vector<float>& x, bool keys) {
  const auto dim = static_cast<int32_t>(x.size());
  const int32_t heads = 2, row = 19, blocks = (dim + 31) / 32;
  std::vector<float> two(x.begin(), x.end());
  two.insert(two.end(), x.begin(), x.end());
  const size_t head_bytes = kv_head_bytes(kKvQ8, dim);
  std::vector<uint8_t> k(heads * head_bytes), v = k;
  kernels.kv_store(kKvQ8, kKvQ8, two.data(), two.data(), heads, dim, dim, k.data(), v.data(), row);
  const uint8_t* head = (keys ? k : v).data() + head_bytes;  // the second
  Q8Row out;
  for (int32_t i = 0; i < dim; i++)
    out.q.push_back(static_cast<int8_t>(head[keys ? i * 32 + row : row * dim + i]));
  for (int32_t b = 0; b < blocks; b++) {
    uint16_t h;
    std::memcpy(&h, head + 32 * dim + 2 * (keys ? b * 32 + row : row * blocks + b), 2);
    out.d.push_back(quant::half_to_float(h));
  }
  return out;
}

TEST(Scalar, Q8RowsAreWithinHalfAStep) {
  const Kernels kernels = scalar();
  std::mt19937 rng(31);
  for (size_t dim : {1, 7, 32, 33, 64, 80, 256})
    for (float size :
         {0.0f, 1e-44f, 1e-30f, 3e-8f, 1e-6f, 4e-6f, 1e-5f, 1e-3f, 0.01f, 1.0f, 300.0f, 1e6f})
      for (bool keys : {true, false}) {
        const std::vector<float> x = random_floats(dim, rng, size);
        const Q8Row row = stored_q8(kernels, x, keys);
        for (size_t i = 0; i < dim; i++) {
          const double d = row.d[i / 32];
          float amax = 0;
          for (size_t j = i / 32 * 32; j < dim && j < i / 32 * 32 + 32; j++)
            amax = std::max(amax, std::fabs(x[j]));
          EXPECT_EQ(d > 0, amax > 0);
          EXPECT_NEAR(d, amax / 127.0, std::max(amax / 127.0 / 2048, 0x1p-24));
          EXPECT_LE(std::abs(row.q[i]), 127);
          // The half step, and what the float32 division of x by d may round to a tie.
          EXPECT_LE(std::fabs(x[i] - row.q[i] * d), d / 2 * (1 + 1e-5))
              << "element " << i << " of " << dim << ", size " << size;
        }
      }
}

TEST(Scalar, Q8RowsShowWhatCannotBeStored) {
  const Kernels kernels = scalar();
  for (float bad : {NAN, -INFINITY, INFINITY, 1e7f})
    for (bool keys : {true, false}) {
      std::vector<float> x(80, 1.0f);
      x[40] = bad;
      const Q8Row row = stored_q8(kernels, x, keys);
      EXPECT_TRUE(std::isnan(row.d[1])) << bad;
      for (size_t i = 32; i < 64; i++) EXPECT_EQ(row.q[i], 0);
      EXPECT_GT(row.d[0], 0);
      EXPECT_EQ(row.q[79], 127);
    }
}

TEST(Scalar, KvHeadBytes) {
  EXPECT_EQ(kv_head_bytes(kKvF32, 64), 32 * 64 * 4);
  EXPECT_EQ(kv_head_bytes(kKvF16, 64), 32 * 64 * 2);
  EXPECT_EQ(kv_head_bytes(kKvBf16, 80), 32 * 80 * 2);
  EXPECT_EQ(kv_head_bytes(kKvQ8, 64), 32 * (64 + 2 * 2));
  EXPECT_EQ(kv_head_bytes(kKvQ8, 80), 32 * (80 + 3 * 2));
}

}  // namespace
}  // namespace culet::kernels
