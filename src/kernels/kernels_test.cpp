// Every instruction set that this CPU can run against the scalar table, bit for bit, and the
// promise that a row's result depends neither on the other rows nor on how the work is split.
#include "kernels/kernels.h"

#include "kernels/attention_test_data.h"
#include "kernels/math_constants.h"

#include <gtest/gtest.h>

#include <array>
#include <iostream>

namespace culet::kernels {
namespace {

using namespace test;  // NOLINT

struct Table {
  std::string name;
  Kernels kernels;
};

// Usable levels but scalar; the first call prints which of this build's levels run.
const std::vector<Table>& tables() {
  static const std::vector<Table> all = [] {
    std::vector<Table> list;
    for (const IsaLevel* l = isa_levels(); l->name; l++) {
      std::cout << "*** level " << l->name << (l->usable ? ": tested" : ": THIS CPU CANNOT RUN IT")
                << " ***\n";
      Table t{l->name, {}};
      if (!l->usable || t.name == "scalar") continue;
      EXPECT_EQ(select_kernels(l->name, &t.kernels), nullptr);
      EXPECT_EQ(t.kernels.isa, t.name);
      list.push_back(t);
    }
    return list;
  }();
  return all;
}

// Values that find rounding and special-case differences: ordinary, tiny, huge, exact zeros.
std::vector<float> awkward_floats(size_t n, std::mt19937& rng, bool specials) {
  std::vector<float> x = random_floats(n, rng, 3.0f);
  for (size_t i = 0; i < n; i++) {
    switch (rng() % (specials ? 24 : 12)) {
      case 0:
        x[i] = 0;
        break;
      case 1:
        x[i] = -0.0f;
        break;
      case 2:
        x[i] *= 1e-39f;
        break;
      case 3:
        x[i] *= 1e20f;
        break;
      case 4:
        x[i] *= 30;
        break;
      case 13:
        x[i] = INFINITY;
        break;
      case 14:
        x[i] = -INFINITY;
        break;
      case 15:
        x[i] = NAN;
        break;
    }
  }
  return x;
}

testing::AssertionResult same(const std::string& level, const std::vector<float>& got,
                              const std::vector<float>& want) {
  const size_t at = first_difference(got, want);
  if (at == got.size() && at == want.size()) return testing::AssertionSuccess();
  return testing::AssertionFailure() << level << ": element " << at << " of " << got.size()
                                     << " is " << got[at] << ", scalar has " << want[at] << " ";
}

#define EXPECT_SAME(got, want) ASSERT_TRUE(same(t.name, got, want))

const int64_t kLengths[] = {1, 2, 15, 16, 17, 31, 33, 64, 100, 576, 1001};

// Verifies arithmetic.products-of-quantized-rows.
TEST(Levels, MatmulQ) {
  const Kernels base = scalar();
  std::mt19937 rng(11);
  for (TensorType type : quantized_types()) {
    const bool super = quant::type_info(type).block == 256;
    for (int64_t k : {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{9}}) {
      const int64_t width = k * (super ? 256 : 32), n = 16 * (k + 1) + (k % 2 ? 5 : 0), rows = 19;
      Matrix m(type, n, width, rng);
      std::vector<float> x = random_floats(rows * width, rng);
      x[width * 3 + 7] = NAN;
      for (int i = 0; i < 32; i++) x[width * 2 + i] *= 1e-40f;
      const Rows a(base, x, rows, width);
      const int64_t groups = (n + 15) / 16;
      std::vector<float> want(rows * n);
      base.matmul_q[m.view.type](&m.view, &a.view, 0, rows, 0, groups, want.data(), n);
      for (const Table& t : tables())
        for (int64_t count = 1; count <= rows; count++) {
          std::vector<float> got(want.begin(), want.begin() + count * n);
          for (float& v : got) v = 77;
          t.kernels.matmul_q[m.view.type](&m.view, &a.view, 0, count, 0, groups, got.data(), n);
          EXPECT_SAME(got, std::vector<float>(want.begin(), want.begin() + count * n))
              << type_name(type);
        }
    }
  }
}

// Row ranges, group ranges and a k so long that the kernels cut it into chunks.
TEST(Levels, MatmulRangesAndLongK) {
  std::mt19937 rng(12);
  const Kernels base = scalar();
  std::vector<Table> all = tables();
  all.push_back({"scalar", base});
  for (TensorType type : {TensorType::Q4_1, TensorType::Q8_0, TensorType::Q6_K, TensorType::Q4_K,
                          TensorType::Q2_K, TensorType::F32}) {
    const int64_t k = (small_tests() ? 3 : 9) * 1024, n = 75, rows = 40, groups = 5;
    Matrix m(type, n, k, rng);
    const std::vector<float> x = random_floats(rows * k, rng);
    const Rows a(base, x, rows, k);
    for (bool q : {true, false}) {
      if (q && !base.matmul_q[m.view.type]) continue;
      auto run = [&](const Kernels& kernels, int64_t r0, int64_t r1, int64_t g0, int64_t g1) {
        std::vector<float> out((r1 - r0) * 100, 5.0f);
        if (q)
          kernels.matmul_q[m.view.type](&m.view, &a.view, r0, r1, g0, g1, out.data(), 100);
        else
          kernels.matmul_f[m.view.type](&m.view, x.data(), k, r0, r1, g0, g1, out.data(), 100);
        return out;
      };
      const std::vector<float> whole = run(base, 0, rows, 0, groups);
      for (const Table& t : all) {
        if (t.name == "scalar" && !q) continue;  // slow, and its code has no tiles to differ
        EXPECT_SAME(run(t.kernels, 0, rows, 0, groups), whole) << type_name(type) << q;
        for (auto [r0, r1, g0, g1] : {std::array<int64_t, 4>{3, 20, 1, 4},
                                      {39, 40, 0, 5},
                                      {0, 2, 2, 3},
                                      {5, 12, 4, 5},
                                      {0, 33, 0, 2}}) {
          const std::vector<float> part = run(t.kernels, r0, r1, g0, g1);
          for (int64_t r = r0; r < r1; r++)
            for (int64_t o = 0; o < 100; o++) {
              const bool inside = o < (g1 - g0) * 16 && o + g0 * 16 < n;
              const float want = inside ? whole[r * 100 + g0 * 16 + o] : 5.0f;
              ASSERT_TRUE(same_bits(part[(r - r0) * 100 + o], want))
                  << t.name << " " << type_name(type) << " row " << r << " column " << o;
            }
        }
      }
    }
  }
}

TEST(Levels, MatmulF) {
  const Kernels base = scalar();
  std::mt19937 rng(13);
  for (TensorType type : all_types()) {
    const int64_t block = quant::type_info(type).block;
    for (int64_t k :
         {block == 1 ? int64_t{37} : block, block == 256 ? int64_t{768} : int64_t{320}}) {
      const int64_t n = 39, rows = 19, groups = 3;
      Matrix m(type, n, k, rng);
      std::vector<float> x = awkward_floats(rows * k, rng, false);
      x[k * 2] = NAN;
      std::vector<float> want(rows * n);
      base.matmul_f[m.view.type](&m.view, x.data(), k, 0, rows, 0, groups, want.data(), n);
      for (const Table& t : tables())
        for (int64_t count = 1; count <= rows; count++) {
          std::vector<float> got(count * n, 77);
          t.kernels.matmul_f[m.view.type](&m.view, x.data(), k, 0, count, 0, groups, got.data(), n);
          EXPECT_SAME(got, std::vector<float>(want.begin(), want.begin() + count * n))
              << type_name(type);
        }
    }
  }
}

TEST(Levels, Quantize) {
  const Kernels base = scalar();
  std::mt19937 rng(14);
  for (const Table& t : tables())
    for (int64_t k : {32, 64, 96, 576, 1024}) {
      for (bool specials : {false, true}) {
        std::vector<float> x = awkward_floats(5 * k, rng, specials);
        if (!specials)  // ties of the rounding
          for (int i = 0; i < 32; i++) x[i] = float(i % 2 ? i : -i) * 0.5f + (i == 31 ? 111.5f : 0);
        const Rows a(base, x, 5, k), b(t.kernels, x, 5, k);
        EXPECT_SAME(b.d, a.d);
        EXPECT_EQ(b.q, a.q) << t.name;
        EXPECT_EQ(b.sums, a.sums) << t.name;
      }
    }
}

// Blocks on both sides of the floor of 2^-64, the largest value at every place of a block.
TEST(Levels, QuantizeFloor) {
  const float low = 0x1p-64f, below = std::nextafter(low, 0.0f), above = std::nextafter(low, 1.0f);
  std::vector<Table> all = tables();
  all.push_back({"scalar", scalar()});
  for (const Table& t : all)
    for (size_t at = 0; at < 32; at++)
      for (float sign : {1.0f, -1.0f}) {
        auto quantized = [&](float largest, float rest) {
          std::vector<float> x(96, rest);
          x[32 + at] = sign * largest;
          return Rows(t.kernels, x, 1, 96);
        };
        for (float largest : {0.0f, 0x1p-149f, 0x1p-126f, 0x1p-120f, below})
          for (float rest : {0.0f, -0.0f, 0x1p-149f, -0x1p-130f}) {
            const Rows a = quantized(largest, rest);
            for (float d : a.d) EXPECT_TRUE(same_bits(d, 0.0f)) << t.name << " " << largest;
            for (int8_t q : a.q) EXPECT_EQ(q, 0) << t.name << " " << largest;
            for (int16_t s : a.sums) EXPECT_EQ(s, 0) << t.name << " " << largest;
          }
        for (float largest : {low, above}) {
          const Rows a = quantized(largest, -largest / 127.0f);
          EXPECT_EQ(a.d[0], 0.0f) << t.name;
          EXPECT_EQ(a.d[1], largest / 127.0f) << t.name;
          for (size_t i = 0; i < 32; i++)
            EXPECT_EQ(a.q[32 + i], i == at ? sign * 127 : -1) << t.name << " " << largest;
          EXPECT_EQ(a.sums[2] + a.sums[3], sign * 127 - 31) << t.name;
        }
        for (float bad : {NAN, INFINITY}) {
          const Rows a = quantized(bad, 0x1p-140f);
          EXPECT_EQ(a.d[0], 0.0f) << t.name;
          EXPECT_TRUE(std::isnan(a.d[1])) << t.name << " " << bad;
          for (int8_t q : a.q) EXPECT_EQ(q, 0) << t.name;
          for (int16_t s : a.sums) EXPECT_EQ(s, 0) << t.name;
        }
      }
}

TEST(Levels, Rows) {
  const Kernels base = scalar();
  std::mt19937 rng(15);
  for (const Table& t : tables())
    for (int64_t n : kLengths)
      for (bool specials : {false, true}) {
        const std::vector<float> x = awkward_floats(n, rng, specials),
                                 y = awkward_floats(n, rng, specials);
        std::vector<float> want(n), got(n);
        for (const float* w : {static_cast<const float*>(nullptr), y.data()}) {
          base.rms_norm(x.data(), w, 1e-6f, n, want.data());
          t.kernels.rms_norm(x.data(), w, 1e-6f, n, got.data());
          EXPECT_SAME(got, want);
          base.layer_norm(x.data(), w, w, 1e-5f, n, want.data());
          t.kernels.layer_norm(x.data(), w, w, 1e-5f, n, got.data());
          EXPECT_SAME(got, want);
        }
        for (uint32_t op = 0; op < kUnaryCount; op++) {
          base.unary(Unary(op), x.data(), n, want.data());
          got = x;
          t.kernels.unary(Unary(op), got.data(), n, got.data());
          EXPECT_SAME(got, want) << "unary " << op;
        }
        for (uint32_t op = 0; op < kBinaryCount; op++) {
          base.binary(Binary(op), x.data(), y.data(), n, want.data());
          t.kernels.binary(Binary(op), x.data(), y.data(), n, got.data());
          EXPECT_SAME(got, want) << "binary " << op;
          base.binary_scalar(Binary(op), x.data(), 1.7f, n, want.data());
          t.kernels.binary_scalar(Binary(op), x.data(), 1.7f, n, got.data());
          EXPECT_SAME(got, want) << "binary_scalar " << op;
        }
        want = got = y;
        base.add_scaled(-1.7f, x.data(), n, want.data());
        t.kernels.add_scaled(-1.7f, x.data(), n, got.data());
        EXPECT_SAME(got, want);
        base.softcap(x.data(), 30.0f, n, want.data());
        t.kernels.softcap(x.data(), 30.0f, n, got.data());
        EXPECT_SAME(got, want);
      }
}

TEST(Levels, Rope) {
  const Kernels base = scalar();
  std::mt19937 rng(16);
  for (const Table& t : tables())
    for (auto [dims, head] :
         {std::pair{32, 32}, {64, 64}, {20, 64}, {80, 80}, {128, 128}, {2, 256}, {256, 256}})
      for (int adjacent : {0, 1}) {
        const std::vector<float> x = random_floats(head, rng), cs = random_floats(dims, rng);
        std::vector<float> want(head), got = x;
        base.rope(x.data(), cs.data(), dims, head, adjacent, want.data());
        t.kernels.rope(got.data(), cs.data(), dims, head, adjacent, got.data());
        EXPECT_SAME(got, want) << dims;
      }
}

TEST(Levels, Reductions) {
  const Kernels base = scalar();
  std::mt19937 rng(17);
  for (const Table& t : tables())
    for (int64_t n : kLengths)
      for (int kind = 0; kind < 4; kind++) {
        std::vector<float> x =
            kind == 3 ? std::vector<float>(n) : awkward_floats(n, rng, kind == 1);
        if (kind == 2)
          for (float& v : x) v = float(rng() % 3);
        if (kind == 3)
          for (float& v : x) v = rng() % 2 ? -0.0f : 0.0f;
        float max[2];
        int64_t index[2];
        int finite[2];
        base.max_index(x.data(), n, &max[0], &index[0], &finite[0]);
        t.kernels.max_index(x.data(), n, &max[1], &index[1], &finite[1]);
        ASSERT_TRUE(same_bits(max[0], max[1])) << t.name << n;
        ASSERT_EQ(index[0], index[1]) << t.name << n;
        ASSERT_EQ(finite[0], finite[1]) << t.name << n;
        double s[2], w[2];
        base.exp_sums(x.data(), max[0], n, &s[0], &w[0]);
        t.kernels.exp_sums(x.data(), max[0], n, &s[1], &w[1]);
        ASSERT_TRUE(s[0] == s[1] || (s[0] != s[0] && s[1] != s[1])) << t.name << n;
        ASSERT_TRUE(w[0] == w[1] || (w[0] != w[0] && w[1] != w[1])) << t.name << n;
      }
}

constexpr KvType kKvTypes[] = {kKvF32, kKvF16, kKvBf16, kKvQ8};
static_assert(std::size(kKvTypes) == kKvTypeCount);

std::vector<AttentionShape> attention_shapes() {
  std::vector<AttentionShape> shapes;
  for (int32_t head : {32, 64, 80, 128, 256})
    for (int64_t rows : {1, 2, 7, 19})
      shapes.push_back(
          {.rows = rows, .length = 70, .heads_per_kv = 3, .head_dim = head, .value_dim = head});
  for (KvType k : kKvTypes)
    for (KvType v : kKvTypes)
      for (auto [head, value, heads] :
           {std::array<int32_t, 3>{64, 40, 7}, {80, 96, 1}, {20, 7, 3}, {256, 144, 2}})
        shapes.push_back({.rows = heads == 1 ? 1 : 5,
                          .length = 100,
                          .heads_per_kv = heads,
                          .head_dim = head,
                          .value_dim = value,
                          .k_type = k,
                          .v_type = v});
  // The block of the last sink comes as two entries with a query each.
  for (KvType k : kKvTypes)
    shapes.push_back({.rows = 11,
                      .length = 200,
                      .heads_per_kv = 2,
                      .head_dim = 48,
                      .value_dim = 64,
                      .k_type = k,
                      .v_type = kKvTypes[(k + 1) % kKvTypeCount],
                      .window = 170,
                      .sinks = 37});
  shapes.push_back({.rows = 33, .length = 33, .heads_per_kv = 4, .head_dim = 32, .value_dim = 48});
  shapes.push_back(
      {.rows = 40, .length = 90, .heads_per_kv = 2, .head_dim = 32, .value_dim = 32, .window = 17});
  shapes.push_back({.rows = 3, .length = 90, .head_dim = 32, .value_dim = 16, .window = 1});
  shapes.push_back({.rows = 40,
                    .length = 130,
                    .heads_per_kv = 2,
                    .head_dim = 32,
                    .value_dim = 32,
                    .window = 40,
                    .sinks = 5});
  shapes.push_back({.rows = 9,
                    .length = 300,
                    .heads_per_kv = 2,
                    .head_dim = 32,
                    .value_dim = 32,
                    .window = 70,
                    .sinks = 37,
                    .dropped = 3});
  shapes.push_back({.rows = 4,
                    .length = 1100,
                    .heads_per_kv = 3,
                    .head_dim = 32,
                    .value_dim = 32,
                    .softcap = 2.0f});
  shapes.push_back({.rows = 2,
                    .length = 2100,
                    .heads_per_kv = 2,
                    .head_dim = 32,
                    .value_dim = 32,
                    .window = 900});
  for (AttentionShape& s : shapes) s.poison = NAN;
  return shapes;
}

// How far a type's rounding of values of about 1 may move a result.
double bound_of(KvType type) { return type == kKvF32 ? 1e-5 : type == kKvF16 ? 1e-2 : 3e-2; }

TEST(Attention, ScalarMatchesFloat64Softmax) {
  const Kernels base = scalar();
  uint32_t seed = 100;
  for (const AttentionShape& s : attention_shapes()) {
    const AttentionCase c(s, seed++);
    for (int32_t g = 0; g < s.kv_heads; g++) {
      const std::vector<float> out = c.run(base, g, nullptr);
      for (int64_t r = 0; r < s.rows; r++)
        for (int32_t h = 0; h < s.heads_per_kv; h++) {
          std::vector<double> sum(s.value_dim);
          double total = 0;
          for (int64_t p = 0; p <= c.positions[r]; p++) {
            if (!c.visible(p, c.positions[r])) continue;
            const std::vector<float>& q = c.queries[p < s.sinks ? 1 : 0];
            double dot = 0;
            for (int32_t d = 0; d < s.head_dim; d++)
              dot +=
                  double(q[(r * s.kv_heads * s.heads_per_kv + g * s.heads_per_kv + h) * s.head_dim +
                           d]) *
                  c.k[(p * s.kv_heads + g) * s.head_dim + d];
            dot *= c.args.scale;
            if (s.softcap > 0) dot = s.softcap * std::tanh(dot / s.softcap);
            const double w = std::exp(dot);
            total += w;
            for (int32_t d = 0; d < s.value_dim; d++)
              sum[d] += w * c.v[(p * s.kv_heads + g) * s.value_dim + d];
          }
          const double bound = std::max(bound_of(s.k_type), bound_of(s.v_type));
          for (int32_t d = 0; d < s.value_dim; d++)
            ASSERT_NEAR(out[(r * s.heads_per_kv + h) * s.value_dim + d], sum[d] / total, bound)
                << "row " << r << " of " << s.rows << ", length " << s.length;
        }
    }
  }
}

TEST(Attention, LevelsEqualScalar) {
  const Kernels base = scalar();
  for (const Table& t : tables()) {
    uint32_t seed = 200;
    for (const AttentionShape& s : attention_shapes()) {
      const AttentionCase c(s, seed++);
      for (int32_t g = 0; g < s.kv_heads; g++) {
        std::vector<float> raw, want_raw;
        const std::vector<float> want = c.run(base, g, &want_raw), got = c.run(t.kernels, g, &raw);
        EXPECT_SAME(raw, want_raw)
            << "head_dim " << s.head_dim << " rows " << s.rows << " length " << s.length;
        EXPECT_SAME(got, want);
      }
    }
  }
}

// A row alone gives the bits it has in a batch, on every level.
TEST(Attention, RowIsIndependentOfItsBatch) {
  std::vector<Table> all = tables();
  all.push_back({"scalar", scalar()});
  for (const Table& t : all) {
    const AttentionShape s{
        .rows = 37, .length = 95, .heads_per_kv = 3, .head_dim = 64, .value_dim = 64, .window = 50};
    const AttentionCase c(s, 7);
    const std::vector<float> whole = c.run(t.kernels, 1, nullptr);
    const int64_t row_values = s.heads_per_kv * s.value_dim;
    for (int64_t r = 0; r < s.rows; r++) {
      AttentionCase one(s, 7);
      one.shape.rows = one.args.rows = 1;
      one.args.positions += r;
      one.args.q[0] += r * one.args.q_stride;
      one.args.q[1] += r * one.args.q_stride;
      const std::vector<float> got = one.run(t.kernels, 1, nullptr);
      EXPECT_SAME(got, std::vector<float>(whole.begin() + r * row_values,
                                          whole.begin() + (r + 1) * row_values));
    }
  }
}

// Rows may see the same keys, or up to one that is not there: what a full mask and a band ask for.
TEST(Attention, RowsMaySeeAhead) {
  std::vector<Table> all = tables();
  all.push_back({"scalar", scalar()});
  const AttentionShape s{
      .rows = 30, .length = 70, .heads_per_kv = 5, .head_dim = 32, .value_dim = 24, .window = 41};
  for (const bool full : {true, false}) {
    AttentionCase c(s, 9);
    for (size_t r = 0; r < c.positions.size(); r++)
      c.positions[r] = full ? s.length - 1 : int64_t(r) + 20;
    if (full) c.args.window = std::numeric_limits<int64_t>::max();
    const std::vector<float> want = c.run(scalar(), 1, nullptr);
    for (const Table& t : all) EXPECT_SAME(c.run(t.kernels, 1, nullptr), want) << full;
    // Alone, with the same keys.
    for (int64_t r = 0; r < s.rows; r += 7) {
      AttentionCase one(s, 9);
      one.positions = c.positions;
      one.shape.rows = one.args.rows = 1;
      one.args.window = c.args.window;
      one.args.positions = one.positions.data() + r;
      one.args.q[0] += r * one.args.q_stride;
      one.args.q[1] += r * one.args.q_stride;
      const int64_t values = s.heads_per_kv * s.value_dim;
      for (const Table& t : all)
        EXPECT_SAME(one.run(t.kernels, 1, nullptr),
                    std::vector<float>(want.begin() + r * values, want.begin() + (r + 1) * values));
    }
  }
}

// Weights, the rescaling between blocks and that between parts are exp of a difference of scores:
// one key with the score `low` below that of another, for every way in which they can meet.
TEST(Attention, ExpFloor) {
  std::vector<Table> all = tables();
  all.push_back({"scalar", scalar()});
  const int32_t dim = 40;
  const float at = 0x1.00001ep-60f;  // exp(kExpLow), see math_test.cpp
  const std::pair<float, float> differences[] = {{std::nextafter(kExpLow, -INFINITY), 0.0f},
                                                 {kExpLow, at},
                                                 {std::nextafter(kExpLow, 0.0f), 0x1.00005ep-60f},
                                                 {-103.9f, 0.0f}};
  // Positions of the key with the lower score and of the key with score 0: in one block, before
  // and after it in another block, and in another part.
  const std::pair<int64_t, int64_t> places[] = {{1, 0},  {0, 1},    {21, 3},   {3, 40},
                                                {40, 3}, {5, 1030}, {1030, 5}, {1030, 1031}};
  for (const Table& t : all)
    for (auto [low, weight] : differences)
      for (auto [lower, higher] : places) {
        AttentionCase c({.rows = 1,
                         .length = 1040,
                         .heads_per_kv = 3,
                         .kv_heads = 1,
                         .head_dim = dim,
                         .value_dim = dim,
                         .k_type = kKvF32,
                         .v_type = kKvF32},
                        3);
        for (int64_t p = 0; p < 1040; p++) {  // all others are out of reach
          std::vector<float> k(dim), v(dim, 1e9f);
          k[7] = p == lower ? low : p == higher ? 0.0f : -1e6f;
          if (p == lower) v.assign(dim, 1.0f);
          if (p == higher) v.assign(dim, 0.0f);
          t.kernels.kv_store(kKvF32, kKvF32, k.data(), v.data(), 1, dim, dim,
                             c.k_blocks[p / 32].data(), c.v_blocks[p / 32].data(), int32_t(p % 32));
        }
        std::vector<float> q(3 * dim);
        for (int h = 0; h < 3; h++) q[h * dim + 7] = 1.0f;
        c.args.q[0] = q.data();
        c.args.scale = 1.0f;
        for (float y : c.run(t.kernels, 0, nullptr))
          ASSERT_TRUE(same_bits(y, weight))
              << t.name << " " << low << " at " << lower << ", 0 at " << higher << ": " << y;
      }
}

// Splitting a block into two entries changes nothing when both name the same query.
TEST(Attention, SplitEntriesEqualOneEntry) {
  std::vector<Table> all = tables();
  all.push_back({"scalar", scalar()});
  for (const Table& t : all) {
    const AttentionCase c(
        {.rows = 6, .length = 64, .heads_per_kv = 2, .head_dim = 32, .value_dim = 32}, 9);
    AttentionCase split(
        {.rows = 6, .length = 64, .heads_per_kv = 2, .head_dim = 32, .value_dim = 32}, 9);
    std::vector<KvEntry> entries;
    for (KvEntry e : split.entries) {
      KvEntry tail = e;
      e.rows = 11;
      tail.first += 11;
      tail.position += 11;
      tail.rows -= 11;
      entries.push_back(e);
      entries.push_back(tail);
    }
    split.entries = entries;
    split.args.entries = split.entries.data();
    split.args.n_entries = int64_t(split.entries.size());
    EXPECT_SAME(split.run(t.kernels, 0, nullptr), c.run(t.kernels, 0, nullptr));
  }
}

TEST(Attention, NothingVisibleAndNan) {
  std::vector<Table> all = tables();
  all.push_back({"scalar", scalar()});
  for (const Table& t : all) {
    // Position 0 with keys that all come later: an empty softmax.
    AttentionCase c({.rows = 1, .length = 64, .head_dim = 32, .value_dim = 32}, 3);
    for (KvEntry& e : c.entries) e.position += 100;
    std::vector<float> raw;
    const std::vector<float> out = c.run(t.kernels, 0, &raw);
    EXPECT_EQ(raw[0], -INFINITY) << t.name;
    EXPECT_EQ(raw[1], 0) << t.name;
    EXPECT_TRUE(std::isnan(out[0])) << t.name;
    // A NaN or infinity in a visible key or value reaches the output of the rows that see it.
    for (KvType type : kKvTypes)
      for (float bad : {NAN, INFINITY})
        for (bool key : {true, false}) {
          AttentionCase n({.rows = 2,
                           .length = 70,
                           .head_dim = 40,
                           .value_dim = 40,
                           .k_type = type,
                           .v_type = type},
                          4);
          std::vector<float> k(2 * 40, 1.0f), v = k;  // key 69: only the last row sees it
          (key ? k : v)[3] = bad;
          t.kernels.kv_store(type, type, k.data(), v.data(), 2, 40, 40, n.k_blocks[2].data(),
                             n.v_blocks[2].data(), 5);
          const std::vector<float> both = n.run(t.kernels, 0, nullptr);
          EXPECT_TRUE(std::isfinite(both[3])) << t.name << " type " << type;
          EXPECT_FALSE(std::isfinite(both[40 + 3])) << t.name << " type " << type << " key " << key;
        }
  }
}

TEST(Levels, KvStore) {
  const Kernels base = scalar();
  std::mt19937 rng(21);
  for (const Table& t : tables())
    for (KvType k_type : kKvTypes)
      for (KvType v_type : kKvTypes)
        for (auto [head, value] : {std::pair{32, 32}, {80, 40}, {20, 7}, {40, 80}, {7, 256}})
          for (bool specials : {false, true}) {
            const size_t offset = size_t(3) * kv_head_bytes(k_type, head);
            std::vector<uint8_t> want(offset + size_t(3) * kv_head_bytes(v_type, value), 0xab);
            std::vector<uint8_t> got = want;
            for (int32_t r : {0, 13, 31}) {
              std::vector<float> k = awkward_floats(3 * head, rng, specials),
                                 v = awkward_floats(3 * value, rng, specials);
              k[0] = 1e-7f, k[1] = 65520.0f, k[2] = 6e-8f, k[3] = 3.1e-5f, v[0] = -INFINITY;
              base.kv_store(k_type, v_type, k.data(), v.data(), 3, head, value, want.data(),
                            want.data() + offset, r);
              t.kernels.kv_store(k_type, v_type, k.data(), v.data(), 3, head, value, got.data(),
                                 got.data() + offset, r);
            }
            EXPECT_EQ(want, got) << t.name << " types " << k_type << " " << v_type << " head_dim "
                                 << head << " value_dim " << value;
          }
}

// The equality of levels within one machine, carried over to other machines: a digest of results
// of every kernel that all processors must reach.
class Digest {
 public:
  void add(const void* data, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
      value_ = (value_ ^ static_cast<const uint8_t*>(data)[i]) * 0x100000001b3u;
  }
  template <class T>
  void add(const std::vector<T>& v) {
    add(v.data(), v.size() * sizeof(T));
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325u;
};

void add_products(const Kernels& kernels, std::mt19937& rng, Digest* digest) {
  for (TensorType type : all_types()) {
    const int64_t n = 21, k = 512, rows = 3;
    const Matrix m(type, n, k, rng);
    const std::vector<float> x = random_floats(rows * k, rng);
    const Rows a(kernels, x, rows, k);
    digest->add(a.q), digest->add(a.d), digest->add(a.sums);
    std::vector<float> out(rows * n);
    kernels.matmul_f[m.view.type](&m.view, x.data(), k, 0, rows, 0, 2, out.data(), n);
    digest->add(out);
    if (!kernels.matmul_q[m.view.type]) continue;
    kernels.matmul_q[m.view.type](&m.view, &a.view, 0, rows, 0, 2, out.data(), n);
    digest->add(out);
  }
}

void add_rows(const Kernels& kernels, std::mt19937& rng, Digest* digest) {
  const int64_t n = 333;
  const std::vector<float> x = random_floats(n, rng, 4.0f), y = random_floats(n, rng);
  std::vector<float> out(n);
  for (uint32_t op = 0; op < kUnaryCount; op++) {
    kernels.unary(Unary(op), x.data(), n, out.data());
    digest->add(out);
  }
  kernels.rms_norm(x.data(), y.data(), 1e-6f, n, out.data());
  digest->add(out);
  kernels.layer_norm(x.data(), y.data(), y.data(), 1e-5f, n, out.data());
  digest->add(out);
  kernels.softcap(x.data(), 3.0f, n, out.data());
  digest->add(out);
  double theta[32], sums[2];
  std::vector<float> rotated(64), table(64);
  rope_frequencies(10000.0, 64, {}, nullptr, theta);
  rope_table(theta, 64, 123457, 1.0, table.data());
  kernels.rope(x.data(), table.data(), 64, 64, 0, rotated.data());
  digest->add(rotated);
  kernels.exp_sums(x.data(), 9.0f, n, &sums[0], &sums[1]);
  digest->add(sums, sizeof(sums));
}

// Rows as they are stored, and attention over them; dimensions that no vector divides.
void add_cache(const Kernels& kernels, KvType type, Digest* digest) {
  AttentionCase c({.rows = 3,
                   .length = 70,
                   .heads_per_kv = 3,
                   .head_dim = 48,
                   .value_dim = 40,
                   .k_type = type,
                   .v_type = type,
                   .window = 50,
                   .sinks = 5},
                  24);
  for (int64_t p = 0; p < 70; p++)  // as this level stores them
    kernels.kv_store(type, type, &c.k[p * 2 * 48], &c.v[p * 2 * 40], 2, 48, 40,
                     c.k_blocks[p / 32].data(), c.v_blocks[p / 32].data(), int32_t(p % 32));
  digest->add(c.k_blocks[0].data(), 2 * kv_head_bytes(type, 48));
  digest->add(c.v_blocks[0].data(), 2 * kv_head_bytes(type, 40));
  digest->add(c.run(kernels, 1, nullptr));
}

// Verifies arithmetic.instruction-sets.
TEST(Levels, SameBitsOnEveryMachine) {
  std::vector<Table> all = tables();
  all.push_back({"scalar", scalar()});
  for (const Table& t : all) {
    std::mt19937 rng(22);
    Digest digest;
    add_products(t.kernels, rng, &digest);
    add_rows(t.kernels, rng, &digest);
    const AttentionShape shape{
        .rows = 3, .length = 1100, .heads_per_kv = 3, .head_dim = 32, .value_dim = 40};
    digest.add(AttentionCase(shape, 23).run(t.kernels, 1, nullptr));
    for (KvType type : kKvTypes) add_cache(t.kernels, type, &digest);
    EXPECT_EQ(digest.value(), 0xf29ba6692e093767u) << t.name;
  }
}

}  // namespace
}  // namespace culet::kernels
