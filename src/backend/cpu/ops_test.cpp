// Every op that works row by row against a plain double-precision formula; and the same bits for
// any number of threads and any cut of the rows into passes.
#include "backend/cpu/test_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>

namespace culet::backend::test {
namespace {

using Row = std::vector<double>;

// y = op(inputs of `dims`): each input is a float table of its own, picked by token.
struct OpCase {
  OpKind kind;
  std::vector<std::vector<int32_t>> in, out;  // shapes of a row
  std::vector<int64_t> vectors = {};          // sizes of float operands; -1: left out
  Attributes attr = {};
  // out[j] = oracle(in rows, vectors)[j], concatenated
  std::function<Row(const std::vector<Row>&, const std::vector<Row>&)> oracle = {};
};

int32_t width(const std::vector<int32_t>& dims) {
  int32_t n = 1;
  for (int32_t d : dims) n *= d;
  return n;
}

struct OpModel {
  explicit OpModel(const OpCase& c) {
    std::vector<ValueId> in, out;
    for (const auto& dims : c.in) {
      tables.push_back(model.matrix(TensorType::F32, kSomeTokens, width(dims)));
      in.push_back(model.value(dims));
      model.op(OpKind::embed, {}, {in.back()}, {tables.back()});
    }
    std::vector<TensorId> weights;
    for (int64_t n : c.vectors) weights.push_back(n < 0 ? plan::kNone : model.vector(n));
    for (const auto& dims : c.out) out.push_back(model.value(dims));
    model.op(c.kind, in, out, weights, c.attr);
    for (size_t i = 0; i < out.size(); ++i) {
      const ValueId wanted = model.value(c.out[i], TokenSet::kOutputs);
      model.op(OpKind::select_rows, {out[i]}, {wanted});
      model.plan.outputs.push_back({"y" + std::to_string(i), wanted});
    }
    model.finish();
    for (size_t i = 0; i < c.vectors.size(); ++i) {
      vectors.emplace_back();
      if (c.vectors[i] < 0) continue;
      for (float x : model.dequantized(weights[i]))
        vectors.back().push_back(static_cast<double>(x));
    }
  }
  std::vector<Row> inputs(const OpCase& c, int32_t token) const {
    std::vector<Row> rows;
    for (size_t i = 0; i < tables.size(); ++i) {
      const std::vector<float> table = model.dequantized(tables[i]);
      const auto n = static_cast<size_t>(width(c.in[i]));
      const auto first =
          table.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(token) * n);
      rows.emplace_back(first, first + static_cast<std::ptrdiff_t>(n));
    }
    return rows;
  }

  TestModel model;
  std::vector<TensorId> tables;
  std::vector<Row> vectors;
};

void expect_oracle(const OpCase& c, const OpModel& m, double tolerance) {
  Prepared p(m.model, 1);
  const std::vector<int32_t> tokens = some_tokens(9);
  std::vector<std::vector<float>> outputs;
  for (size_t i = 0; i < c.out.size(); ++i)
    outputs.push_back(p.run(nullptr, tokens, 9, "y" + std::to_string(i)));
  for (size_t t = 0; t < tokens.size(); ++t) {
    const Row want = c.oracle(m.inputs(c, tokens[t]), m.vectors);
    size_t at = 0;
    for (size_t i = 0; i < c.out.size(); ++i) {
      const auto n = static_cast<size_t>(width(c.out[i]));
      for (size_t j = 0; j < n; ++j, ++at) {
        ASSERT_NEAR(outputs[i][t * n + j], want[at], tolerance * (1 + std::abs(want[at])))
            << "token " << t << " output " << i << " column " << j;
      }
    }
  }
}

void expect_same_bits(const OpModel& m) {
  const std::vector<int32_t> tokens = some_tokens(200);
  Limits limits{256, 256};
  const std::vector<float> want = Prepared(m.model, 1, limits).run(nullptr, tokens, 200, "y0");
  for (int threads : {2, 4}) {
    Prepared p(m.model, threads, limits);
    EXPECT_EQ(kernels::test::first_difference(p.run(nullptr, tokens, 200, "y0"), want), want.size())
        << threads;
    EXPECT_EQ(kernels::test::first_difference(p.run(nullptr, tokens, 1, "y0"), want), want.size())
        << threads;
    EXPECT_EQ(kernels::test::first_difference(p.run(nullptr, tokens, 67, "y0"), want), want.size())
        << threads;
  }
}

void check(const OpCase& c, double tolerance = 1e-6) {
  OpModel m(c);
  expect_oracle(c, m, tolerance);
  expect_same_bits(m);
}

Row map(const Row& x, const std::function<double(double)>& f) {
  Row y;
  for (double v : x) y.push_back(f(v));
  return y;
}

TEST(Ops, Embed) {
  check({OpKind::slice,
         {{100}},
         {{100}},
         {},
         plan::ColumnsAttributes{.count = 100},
         [](const auto& in, const auto&) { return in[0]; }},
        0);
}

Row rms(const Row& x, size_t n, const Row& w, double eps) {
  Row y(x.size());
  for (size_t v = 0; v < x.size(); v += n) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += x[v + i] * x[v + i];
    for (size_t i = 0; i < n; ++i) {
      y[v + i] = x[v + i] / std::sqrt(sum / static_cast<double>(n) + eps) * (w.empty() ? 1 : w[i]);
    }
  }
  return y;
}

TEST(Ops, RmsNorm) {
  const plan::NormAttributes attr{.eps = 1e-5f};
  check({OpKind::rms_norm, {{200}}, {{200}}, {200}, attr, [](const auto& in, const auto& w) {
           return rms(in[0], 200, w[0], 1e-5);
         }});
  check({OpKind::rms_norm, {{3, 64}}, {{3, 64}}, {64}, attr, [](const auto& in, const auto& w) {
           return rms(in[0], 64, w[0], 1e-5);
         }});
  check({OpKind::rms_norm, {{100}}, {{100}}, {-1}, attr, [](const auto& in, const auto&) {
           return rms(in[0], 100, {}, 1e-5);
         }});
}

TEST(Ops, LayerNorm) {
  const auto oracle = [](const std::vector<Row>& in, const std::vector<Row>& w) {
    double mean = 0, var = 0;
    const auto n = static_cast<double>(in[0].size());
    for (double x : in[0]) mean += x / n;
    for (double x : in[0]) var += (x - mean) * (x - mean) / n;
    Row y;
    for (size_t i = 0; i < in[0].size(); ++i) {
      const double v = (in[0][i] - mean) / std::sqrt(var + 1e-5);
      y.push_back(v * w[0][i] + (w[1].empty() ? 0 : w[1][i]));
    }
    return y;
  };
  check({OpKind::layer_norm, {{90}}, {{90}}, {90, 90}, plan::NormAttributes{.eps = 1e-5f}, oracle});
  check({OpKind::layer_norm, {{90}}, {{90}}, {90, -1}, plan::NormAttributes{.eps = 1e-5f}, oracle});
}

TEST(Ops, Unary) {
  const std::pair<OpKind, double (*)(double)> functions[] = {
      {OpKind::silu, [](double x) { return x / (1 + std::exp(-x)); }},
      {OpKind::gelu,
       [](double x) {
         return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
       }},
      {OpKind::gelu_erf, [](double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }},
      {OpKind::relu, [](double x) { return std::max(x, 0.0); }},
      {OpKind::sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }},
      {OpKind::tanh, [](double x) { return std::tanh(x); }},
  };
  for (const auto& [kind, f] : functions) {
    const auto fn = f;
    check({kind,
           {{333}},
           {{333}},
           {},
           {},
           [fn](const auto& in, const auto&) { return map(in[0], fn); }},
          2e-6);
  }
}

TEST(Ops, Softcap) {
  check({OpKind::softcap,
         {{77}},
         {{77}},
         {},
         plan::SoftcapAttributes{0.05},
         [](const auto& in, const auto&) {
           return map(in[0], [](double x) { return 0.05 * std::tanh(x / 0.05); });
         }},
        2e-6);
}

double apply(plan::Arithmetic a, double x, double y) {
  switch (a) {
    case plan::Arithmetic::kAdd:
      return x + y;
    case plan::Arithmetic::kSub:
      return x - y;
    case plan::Arithmetic::kMul:
      return x * y;
    case plan::Arithmetic::kDiv:
      return x / y;
  }
  return 0;
}

TEST(Ops, Arithmetic) {
  for (auto a : {plan::Arithmetic::kAdd, plan::Arithmetic::kSub, plan::Arithmetic::kMul,
                 plan::Arithmetic::kDiv}) {
    const plan::ArithmeticAttributes attr{.arithmetic = a};
    const auto with = [a](auto pick) {  // pick(inputs, vectors, column): the second operand
      return [a, pick](const std::vector<Row>& in, const std::vector<Row>& w) {
        Row y;
        for (size_t i = 0; i < in[0].size(); ++i) y.push_back(apply(a, in[0][i], pick(in, w, i)));
        return y;
      };
    };
    check(
        {OpKind::arithmetic, {{500}, {500}}, {{500}}, {}, attr, with([](auto& in, auto&, size_t i) {
           return in[1][i];
         })});
    check({OpKind::arithmetic, {{500}, {1}}, {{500}}, {}, attr, with([](auto& in, auto&, size_t) {
             return in[1][0];
           })});
    check({OpKind::arithmetic,
           {{5, 20}, {5, 1}},
           {{5, 20}},
           {},
           attr,
           with([](auto& in, auto&, size_t i) { return in[1][i / 20]; })});
    check({OpKind::arithmetic, {{50}}, {{50}}, {50}, attr, with([](auto&, auto& w, size_t i) {
             return w[0][i];
           })});
    check({OpKind::arithmetic, {{4, 16}}, {{4, 16}}, {16}, attr, with([](auto&, auto& w, size_t i) {
             return w[0][i % 16];
           })});
    check({OpKind::arithmetic, {{50}}, {{50}}, {1}, attr, with([](auto&, auto& w, size_t) {
             return w[0][0];
           })});
    plan::ArithmeticAttributes scalar = attr;
    scalar.scalar = 0.3;
    check({OpKind::arithmetic, {{700}}, {{700}}, {}, scalar, with([](auto&, auto&, size_t) {
             return 0.3;
           })});
    scalar.scalar_first = true;
    check({OpKind::arithmetic, {{700}}, {{700}}, {}, scalar, [a](const auto& in, const auto&) {
             return map(in[0], [a](double x) { return apply(a, 0.3, x); });
           }});
  }
}

// One vector beside a value of several: for all of them. (A number for each: Ops.Arithmetic.)
TEST(Ops, ArithmeticWithOneVectorForAll) {
  for (auto a : {plan::Arithmetic::kAdd, plan::Arithmetic::kSub, plan::Arithmetic::kMul,
                 plan::Arithmetic::kDiv}) {
    for (const int32_t n : {5, 20, 33}) {
      check({OpKind::arithmetic,
             {{5, n}, {n}},
             {{5, n}},
             {},
             plan::ArithmeticAttributes{.arithmetic = a},
             [a, n](const auto& in, const auto&) {
               Row y;
               for (size_t i = 0; i < in[0].size(); ++i)
                 y.push_back(apply(a, in[0][i], in[1][i % static_cast<size_t>(n)]));
               return y;
             }});
    }
  }
}

TEST(Ops, Sqrt) {
  TestModel m;
  const ValueId x = m.value({1000}), y = m.value({1000});
  std::vector<float> rows = kernels::test::random_floats(1000 * 3, m.rng);
  for (float& v : rows) v = std::abs(v);
  rows[0] = 0, rows[1] = std::numeric_limits<float>::infinity(), rows[2] = 1e-40f, rows[3] = 2;
  m.op(OpKind::embed, {}, {x}, {m.table(rows, 1000)});
  m.op(OpKind::sqrt, {x}, {y});
  m.plan.outputs.push_back({"y", y});
  m.finish();
  std::vector<float> want;
  for (const float v : rows) want.push_back(static_cast<float>(std::sqrt(static_cast<double>(v))));
  for (const int threads : {1, 3}) {
    Prepared p(m, threads);
    expect_bits(p.run(nullptr, {0, 1, 2}, 3), want, std::to_string(threads) + " threads");
  }
}

// ---------------------------------------------------------------- softmax

TEST(Softmax, IsOverTheLastAxis) {
  for (const int32_t n : {1, 7, 16, 50, 3000}) {
    check({OpKind::softmax, {{3, n}}, {{3, n}}, {}, {}, [n](const auto& in, const auto&) {
             Row y(in[0].size());
             const auto width = static_cast<size_t>(n);
             for (size_t v = 0; v < y.size(); v += width) {
               const auto first = in[0].begin() + static_cast<std::ptrdiff_t>(v);
               const double most = *std::max_element(first, first + n);
               double sum = 0;
               for (size_t i = v; i < v + width; ++i) sum += y[i] = std::exp(in[0][i] - most);
               for (size_t i = v; i < v + width; ++i) y[i] /= sum;
             }
             return y;
           }});
  }
}

// As attention: a NaN reaches the whole row, and so does a row in which nothing is to be seen.
TEST(Softmax, RowsWithoutAnAnswerAreNan) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr int64_t kWidth = 20;
  std::vector<float> rows(kWidth * 5, 1.0f);
  rows[3] = kNan;                                                                          // row 0
  std::fill_n(rows.begin() + kWidth, kWidth, -kInfinity);                                  // row 1
  rows[2 * kWidth + 19] = kInfinity;                                                       // row 2
  std::fill_n(rows.begin() + 3 * kWidth + 1, kWidth - 1, -kInfinity);                      // row 3
  for (int64_t i = 0; i < kWidth; ++i) rows[static_cast<size_t>(4 * kWidth + i)] = 3e38f;  // row 4
  TestModel m;
  const ValueId x = m.value({kWidth}), y = m.value({kWidth});
  m.op(OpKind::embed, {}, {x}, {m.table(rows, kWidth)});
  m.op(OpKind::softmax, {x}, {y});
  m.plan.outputs.push_back({"y", y});
  m.finish();
  for (const int threads : {1, 2}) {
    Prepared p(m, threads);
    const std::vector<float> out = p.run(nullptr, {0, 1, 2, 3, 4}, 5);
    for (size_t i = 0; i < 3 * kWidth; ++i) EXPECT_TRUE(std::isnan(out[i])) << i;
    for (size_t i = 0; i < kWidth; ++i) {
      EXPECT_EQ(out[3 * kWidth + i], i == 0 ? 1.0f : 0.0f);
      EXPECT_EQ(out[4 * kWidth + i], 1.0f / kWidth);
    }
  }
}

// ---------------------------------------------------------------- matmul

TEST(Matmul, IsTheProductOfTwoValuesOfARow) {
  for (const auto& [m, n, k] : {std::array{4, 4, 48}, {3, 1, 200}, {1, 9, 5}, {7, 20, 33}}) {
    const auto inner = static_cast<size_t>(n), columns = static_cast<size_t>(k);
    check({OpKind::matmul,
           {{m, n}, {n, k}},
           {{m, k}},
           {},
           {},
           [inner, columns](const auto& in, const auto&) {
             Row y(in[0].size() / inner * columns, 0);
             for (size_t i = 0; i < in[0].size(); ++i)
               for (size_t c = 0; c < columns; ++c)
                 y[i / inner * columns + c] += in[0][i] * in[1][i % inner * columns + c];
             return y;
           }});
  }
}

TEST(Ops, Copies) {
  check({OpKind::concat,
         {{10}, {3}, {20}},
         {{33}},
         {},
         {},
         [](const auto& in, const auto&) {
           Row y = in[0];
           for (size_t i : {1, 2}) y.insert(y.end(), in[i].begin(), in[i].end());
           return y;
         }},
        0);
  check({OpKind::split,
         {{48}},
         {{2, 8}, {16}, {16}},
         {},
         {},
         [](const auto& in, const auto&) { return in[0]; }},
        0);
  check({OpKind::slice,
         {{48}},
         {{7}},
         {},
         plan::ColumnsAttributes{.first = 9, .count = 7},
         [](const auto& in, const auto&) { return Row(in[0].begin() + 9, in[0].begin() + 16); }},
        0);
  check({OpKind::view_layer,
         {{6, 8}},
         {{8}},
         {},
         plan::ColumnsAttributes{.first = 16, .count = 8},
         [](const auto& in, const auto&) { return Row(in[0].begin() + 16, in[0].begin() + 24); }},
        0);
}

TEST(Ops, RowMean) {
  check({OpKind::row_mean, {{4, 25}}, {{4, 1}}, {}, {}, [](const auto& in, const auto&) {
           Row y(4, 0);
           for (size_t i = 0; i < 100; ++i) y[i / 25] += in[0][i] / 25;
           return y;
         }});
}

// ---------------------------------------------------------------- gather, suppress

TEST(Gather, IsRowsOfTheTable) {
  for (const TensorType type : {TensorType::F32, TensorType::Q8_0, TensorType::Q6_K}) {
    TestModel m;
    const TensorId table = m.matrix(type, kSomeTokens, 256);
    const ValueId x = m.value({256}), y = m.value({256}, TokenSet::kOutputs);
    m.op(OpKind::gather, {}, {x}, {table});
    m.op(OpKind::select_rows, {x}, {y});
    m.plan.outputs.push_back({"y", y});
    m.finish();
    const std::vector<float> rows = m.dequantized(table);
    const std::vector<int32_t> tokens = some_tokens(120);
    std::vector<float> want;
    for (const int32_t t : tokens)
      want.insert(want.end(), rows.begin() + t * 256, rows.begin() + (t + 1) * 256);
    for (const int threads : {1, 3}) {
      for (const size_t pass : {120, 50, 1}) {
        Prepared p(m, threads, {256, 256});
        expect_bits(p.run(nullptr, tokens, pass), want, std::string(quant::type_info(type).name));
      }
    }
    Prepared p(m, 1);
    EXPECT_LE(p.executor->packed_bytes(), 64u);
    const std::vector<int32_t> outside = {kSomeTokens};
    const SequenceChunk s{nullptr, 0, outside, {}};
    EXPECT_FALSE(p.executor->run(*p.workspace, {&s, 1}));
  }
}

TEST(Embed, ByPositionAndByType) {
  TestModel m;
  const TensorId positions = m.matrix(TensorType::F16, 40, 64);
  const TensorId types = m.matrix(TensorType::F32, 2, 64);
  const ValueId a = m.value({64}), b = m.value({64}), y = m.value({64});
  m.op(OpKind::embed, {}, {a}, {positions},
       plan::EmbedAttributes{plan::EmbedAttributes::By::kPosition});
  m.op(OpKind::embed, {}, {b}, {types}, plan::EmbedAttributes{plan::EmbedAttributes::By::kType});
  m.op(OpKind::arithmetic, {a, b}, {y});
  m.plan.outputs.push_back({"y", y});
  m.finish();
  Prepared p(m, 2);
  EXPECT_EQ(p.executor->positions(), 40);
  const std::vector<int32_t> long_one(33, 1000), short_one(5, 7);
  const SequenceChunk batch[] = {{nullptr, 0, long_one, {}}, {nullptr, 0, short_one, {}}};
  ASSERT_TRUE(p.executor->run(*p.workspace, batch));
  const auto rows = p.executor->output(*p.workspace, "y");
  ASSERT_EQ(rows.size(), 38u * 64);
  const std::vector<float> by_position = m.dequantized(positions), by_type = m.dequantized(types);
  for (size_t r = 0; r < 38; ++r) {
    for (size_t i = 0; i < 64; ++i) {
      ASSERT_EQ(rows[r * 64 + i], by_position[r % 33 * 64 + i] + by_type[i]) << r << " " << i;
    }
  }
  const std::vector<int32_t> too_long(41, 1);
  const SequenceChunk sequence{nullptr, 0, too_long, {}};
  const auto refused = p.executor->run(*p.workspace, {&sequence, 1});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
}

// A row of each sequence that wants one, whatever else is in the pass.
TEST(Pool, IsTheMeanOrTheFirstOfASegmentsRows) {
  constexpr size_t kWidth = 200;  // no multiple of a task's columns
  for (const bool mean : {true, false}) {
    TestModel m;
    const TensorId table = m.matrix(TensorType::F32, kSomeTokens, kWidth);
    const ValueId x = m.value({kWidth}), y = m.value({kWidth}, TokenSet::kOutputs);
    m.op(OpKind::embed, {}, {x}, {table});
    m.op(OpKind::pool, {x}, {y}, {}, plan::PoolAttributes{mean});
    m.plan.outputs.push_back({"y", y});
    m.finish();
    const std::vector<float> rows = m.dequantized(table);
    const std::vector<int32_t> one = {0};
    std::vector<std::vector<int32_t>> sequences;
    std::vector<SequenceChunk> batch;
    for (const size_t n : {1, 70, 3, 16, 17, 33}) sequences.push_back(some_tokens(n, 5));
    for (const auto& tokens : sequences) batch.push_back({nullptr, 0, tokens, one});
    batch[2].outputs = {};
    std::vector<float> want;
    for (const int threads : {1, 3}) {
      Prepared p(m, threads);
      ASSERT_TRUE(p.executor->run(*p.workspace, batch));
      const auto output = p.executor->output(*p.workspace, "y");
      const std::vector<float> got(output.begin(), output.end());
      ASSERT_EQ(got.size(), 5 * kWidth);
      size_t at = 0;
      for (const SequenceChunk& sequence : batch) {
        if (sequence.outputs.empty()) continue;
        for (size_t c = 0; c < kWidth; ++c, ++at) {
          double sum = 0;
          for (const int32_t t : sequence.tokens)
            sum += static_cast<double>(rows[static_cast<size_t>(t) * kWidth + c]);
          const auto first = static_cast<size_t>(sequence.tokens[0]);
          const double expected = mean ? sum / static_cast<double>(sequence.tokens.size())
                                       : static_cast<double>(rows[first * kWidth + c]);
          ASSERT_NEAR(got[at], expected, mean ? 1e-6 : 0) << at;
        }
      }
      if (want.empty()) want = got;
      expect_bits(got, want, std::to_string(threads) + " threads");
      ASSERT_TRUE(p.executor->run(*p.workspace, {batch.data() + 2, 1}));
      EXPECT_TRUE(p.executor->output(*p.workspace, "y").empty());
    }
  }
}

TEST(Suppress, ListedColumnsAreMinusInfinityAndOthersAreUntouched) {
  TestModel m;
  const TensorId table = m.matrix(TensorType::F32, kSomeTokens, 40000);
  const ValueId x = m.value({40000}), wanted = m.value({40000}, TokenSet::kOutputs),
                y = m.value({40000}, TokenSet::kOutputs);
  m.op(OpKind::embed, {}, {x}, {table});
  m.op(OpKind::select_rows, {x}, {wanted});
  const plan::SuppressAttributes attr{.tokens = 1};
  m.plan.token_lists = {{5}, {0, 17, 39999, 17}};
  m.op(OpKind::suppress, {wanted}, {y}, {}, attr);
  m.plan.outputs.push_back({"y", y});
  m.finish();
  const std::vector<float> rows = m.dequantized(table);
  const std::vector<int32_t> tokens = some_tokens(7);
  std::vector<float> want;
  for (const int32_t t : tokens) {
    want.insert(want.end(), rows.begin() + t * 40000, rows.begin() + (t + 1) * 40000);
    for (const int32_t c : m.plan.token_lists[1])
      *(want.end() - 40000 + c) = -std::numeric_limits<float>::infinity();
  }
  for (const int threads : {1, 3}) {
    for (const size_t pass : {7, 1}) {
      Prepared p(m, threads);
      expect_bits(p.run(nullptr, tokens, pass), want, std::to_string(threads) + " threads");
    }
  }
}

// ---------------------------------------------------------------- products

enum class Fused { kLinear, kGated, kLinearAdd };

// y = a product of x = embed(...), unfused or fused, with int8 or float rows, with or without
// biases.
struct ProductModel {
  ProductModel(TensorType type, Fused what, bool fused, bool integer, bool bias,
               bool rows_wanted = false) {
    constexpr int32_t k = 256, n = 200;
    const TokenSet set = rows_wanted ? TokenSet::kOutputs : TokenSet::kAll;
    const TensorId table = model.matrix(TensorType::F32, kSomeTokens, k),
                   residual_table = model.matrix(TensorType::F32, kSomeTokens, n);
    const TensorId norm = model.vector(k);
    gate = model.matrix(type, n, k), up = model.matrix(type, n, k);
    const TensorId gate_bias = bias ? model.vector(n) : plan::kNone,
                   up_bias = bias ? model.vector(n) : plan::kNone;
    ValueId x = model.value({k}), r = model.value({n});
    model.op(OpKind::embed, {}, {x}, {table});
    model.op(OpKind::embed, {}, {r}, {residual_table});
    if (rows_wanted)
      x = through(OpKind::select_rows, x, set, Form::kF32),
      r = through(OpKind::select_rows, r, set, Form::kF32);
    const plan::NormAttributes eps{.eps = 1e-6f};
    if (integer && fused) {
      x = through(OpKind::rms_norm_quantize, x, set, Form::kQuantized, {norm}, eps);
    } else {
      x = through(OpKind::rms_norm, x, set, Form::kF32, {norm}, eps);
      if (integer) x = through(OpKind::quantize, x, set, Form::kQuantized);
    }
    ValueId y = model.value({n}, set);
    const auto linear = [&](TensorId w, TensorId b) {
      const ValueId v = model.value({n}, set);
      model.op(OpKind::linear, {x}, {v}, {w, b});
      return v;
    };
    if (what == Fused::kLinear) {
      model.op(OpKind::linear, {x}, {y}, {gate, gate_bias});
    } else if (what == Fused::kGated && fused) {
      model.op(OpKind::gated_linear, {x}, {y}, {gate, up, gate_bias, up_bias},
               plan::ActivationAttributes{plan::Activation::kSilu});
    } else if (what == Fused::kGated) {
      const ValueId g = linear(gate, gate_bias);
      const ValueId u = linear(up, up_bias);
      const ValueId a = model.value({n}, set);
      model.op(OpKind::silu, {g}, {a});
      model.op(OpKind::arithmetic, {a, u}, {y}, {},
               plan::ArithmeticAttributes{.arithmetic = plan::Arithmetic::kMul});
    } else if (fused) {
      model.op(OpKind::linear_add, {r, x}, {y}, {gate, gate_bias});
    } else {
      const ValueId v = linear(gate, gate_bias);
      model.op(OpKind::arithmetic, {r, v}, {y}, {},
               plan::ArithmeticAttributes{.arithmetic = plan::Arithmetic::kAdd});
    }
    if (!rows_wanted) y = through(OpKind::select_rows, y, TokenSet::kOutputs, Form::kF32);
    model.plan.outputs.push_back({"y", y});
    model.finish();
  }
  ValueId through(OpKind kind, ValueId in, TokenSet rows, Form form, std::vector<TensorId> w = {},
                  Attributes a = {}) {
    const ValueId out = model.value({model.plan.values[static_cast<size_t>(in)].width}, rows, form);
    model.op(kind, {in}, {out}, std::move(w), a);
    return out;
  }
  TestModel model;
  TensorId gate, up;
};

constexpr TensorType kTypes[] = {TensorType::Q8_0, TensorType::Q5_0, TensorType::Q4_K,
                                 TensorType::Q6_K};

TEST(Products, LinearAgainstTheOracle) {
  for (TensorType type : kTypes) {
    for (bool integer : {false, true}) {
      ProductModel m(type, Fused::kLinear, false, integer, true);
      Prepared p(m.model, 2);
      const std::vector<float> y = p.run(nullptr, {7}, 1);
      const std::vector<float> w = m.model.dequantized(m.gate), table = m.model.dequantized(0),
                               norm = m.model.dequantized(2), bias = m.model.dequantized(5);
      Row x(table.begin() + 7 * 256, table.begin() + 8 * 256);
      x = rms(x, 256, Row(norm.begin(), norm.end()), 1e-6);
      for (size_t o = 0; o < 200; ++o) {
        double want = bias[o], size = 0;
        for (size_t i = 0; i < 256; ++i) {
          want += static_cast<double>(w[o * 256 + i]) * x[i];
          size += std::abs(static_cast<double>(w[o * 256 + i]) * x[i]);
        }
        ASSERT_NEAR(y[o], want, (integer ? 4e-3 : 1e-6) * size)
            << quant::type_info(type).name << " " << o;
      }
    }
  }
}

TEST(Products, FusedEqualsUnfused) {
  const std::vector<int32_t> tokens = some_tokens(70);
  for (Fused what : {Fused::kLinear, Fused::kGated, Fused::kLinearAdd}) {
    for (bool integer : {false, true}) {
      for (bool bias : {false, true}) {
        for (bool wanted : {false, true}) {
          const TensorType type = kTypes[static_cast<size_t>(what) + (bias ? 1 : 0)];
          ProductModel plain(type, what, false, integer, bias, wanted),
              fused(type, what, true, integer, bias, wanted);
          const std::vector<float> want =
              Prepared(plain.model, 1, {256, 256}).run(nullptr, tokens, 70);
          for (int threads : {1, 2, 4}) {
            for (size_t pass : {70, 31, 1}) {
              if (pass == 1 && threads != 2) continue;
              Prepared a(plain.model, threads, {256, 256}), b(fused.model, threads, {256, 256});
              EXPECT_EQ(kernels::test::first_difference(a.run(nullptr, tokens, pass), want),
                        want.size());
              EXPECT_EQ(kernels::test::first_difference(b.run(nullptr, tokens, pass), want),
                        want.size());
            }
          }
        }
      }
    }
  }
}

// y[i] = x[i] * W[i]^T, or x * W[i]^T where all matrices read one vector.
struct GroupedModel {
  GroupedModel(TensorType type, int64_t count, int32_t n, int32_t k, bool one) {
    const int32_t in = one ? k : static_cast<int32_t>(count) * k;
    table = model.matrix(TensorType::F32, kSomeTokens, in);
    const auto groups = static_cast<int32_t>(count);
    const ValueId x = one ? model.value({k}) : model.value({groups, k});
    const ValueId y = model.value({groups, n});
    model.op(OpKind::embed, {}, {x}, {table});
    weights = model.experts(type, count, n, k);
    model.op(OpKind::grouped_linear, {x}, {y}, {weights});
    const ValueId wanted = model.value({groups, n}, TokenSet::kOutputs);
    model.op(OpKind::select_rows, {y}, {wanted});
    model.plan.outputs.push_back({"y", wanted});
    model.finish();
  }
  TestModel model;
  TensorId table, weights;
};

TEST(GroupedLinear, EachMatrixHasItsOwnVectorOrAllHaveOne) {
  const auto n = size_t{50}, k = size_t{64}, count = size_t{3};
  for (const TensorType type : {TensorType::F32, TensorType::F16, TensorType::Q8_0}) {
    for (const bool one : {false, true}) {
      const GroupedModel m(type, count, n, k, one);
      const std::vector<float> w = m.model.dequantized(m.weights);
      const std::vector<float> table = m.model.dequantized(m.table);
      Prepared p(m.model, 2);
      const std::vector<int32_t> tokens = some_tokens(5);
      const std::vector<float> y = p.run(nullptr, tokens, 5);
      for (size_t r = 0; r < tokens.size(); ++r) {
        const auto token = static_cast<size_t>(tokens[r]);
        for (size_t o = 0; o < count * n; ++o) {
          const float* x = table.data() + (one ? token : token * count + o / n) * k;
          double want = 0, size = 0;
          for (size_t i = 0; i < k; ++i) {
            want += static_cast<double>(w[o * k + i]) * static_cast<double>(x[i]);
            size += std::abs(static_cast<double>(w[o * k + i]) * static_cast<double>(x[i]));
          }
          ASSERT_NEAR(y[r * count * n + o], want, 1e-6 * size)
              << quant::type_info(type).name << " row " << r << " output " << o;
        }
      }
    }
  }
}

TEST(GroupedLinear, SameBitsOnEverySetForThreadsPassesAndMappedWeights) {
  const std::vector<int32_t> tokens = some_tokens(kernels::test::small_tests() ? 19 : 70);
  for (const TensorType type : {TensorType::F32, TensorType::BF16, TensorType::Q4_0}) {
    for (const bool one : {false, true}) {
      const GroupedModel m(type, 4, 200, 96, one);
      const Limits limits{256, 256};
      const std::vector<float> want =
          Prepared(m.model, 1, limits, "scalar").run(nullptr, tokens, 70);
      for (const kernels::IsaLevel* level = kernels::isa_levels(); level->name; ++level) {
        if (!level->usable) continue;
        for (const int threads : {1, 3}) {
          if (kernels::test::small_tests() && (threads == 1 || level == kernels::isa_levels()))
            continue;
          for (const bool repack : {true, false}) {
            for (const size_t pass : {size_t{70}, size_t{1}}) {
              Prepared p(m.model, threads, limits, level->name, repack);
              expect_bits(p.run(nullptr, tokens, pass), want, level->name);
            }
          }
        }
      }
    }
  }
}

TEST(Products, NeighborsWithOneInputAreOneRegion) {
  TestModel m;
  const ValueId x = m.value({64}), a = m.value({48}), b = m.value({16}), c = m.value({64});
  m.op(OpKind::embed, {}, {x}, {m.matrix(TensorType::F32, kSomeTokens, 64)});
  const TensorId wa = m.matrix(TensorType::Q8_0, 48, 64), wb = m.matrix(TensorType::Q5_0, 16, 64);
  m.op(OpKind::linear, {x}, {a}, {wa, plan::kNone});
  m.op(OpKind::linear, {x}, {b}, {wb, m.vector(16)});
  m.op(OpKind::concat, {a, b}, {c});
  const ValueId y = m.value({64}, TokenSet::kOutputs);
  m.op(OpKind::select_rows, {c}, {y});
  m.plan.outputs.push_back({"y", y});
  m.finish();
  Prepared p(m, 2);
  const std::vector<float> out = p.run(nullptr, {3}, 1);
  const std::vector<float> table = m.dequantized(0), first = m.dequantized(1),
                           second = m.dequantized(2), bias = m.dequantized(3);
  for (size_t o = 0; o < 64; ++o) {
    double want = o < 48 ? 0 : bias[o - 48];
    for (size_t i = 0; i < 64; ++i) {
      want += static_cast<double>(table[3 * 64 + i]) *
              (o < 48 ? first[o * 64 + i] : second[(o - 48) * 64 + i]);
    }
    EXPECT_NEAR(out[o], want, 1e-5);
  }
  EXPECT_EQ(p.executor->note(1).kernel, "matmul_f Q8_0");
  EXPECT_EQ(p.executor->note(2).kernel, "matmul_f Q5_0");
}

}  // namespace
}  // namespace culet::backend::test
