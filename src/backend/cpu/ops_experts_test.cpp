// route and experts against their definitions: route to a plain double-precision formula, experts
// to one in double and, for every type of weights, to the bit; whatever the passes, the threads,
// the instruction set, and whether weights were repacked. And what nobody chose is not read.
#include "backend/cpu/test_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <numeric>
#include <sys/mman.h>
#include <unistd.h>

namespace culet::backend::test {
namespace {

// ---------------------------------------------------------------- route

struct RouteModel {
  RouteModel(int32_t n, plan::RouteAttributes attributes, bool with_bias,
             std::vector<float> scores = {})
      : experts(n), attr(attributes) {
    if (scores.empty()) {
      table = model.matrix(TensorType::F32, kSomeTokens, n);
    } else {
      table = model.table(scores, n);
    }
    if (with_bias) bias = model.vector(n);
    const ValueId x = model.value({n}), y = model.value({attr.top, 2});
    const ValueId wanted = model.value({attr.top, 2}, TokenSet::kOutputs);
    model.op(OpKind::embed, {}, {x}, {table});
    model.op(OpKind::route, {x}, {y}, {bias}, attr);
    model.op(OpKind::select_rows, {y}, {wanted});
    model.plan.outputs.push_back({"y", wanted});
    model.finish();
  }

  // (index, weight) pairs of one token.
  std::vector<double> expected(int32_t token) const {
    const std::vector<float> all = model.dequantized(table);
    const float* x = all.data() + static_cast<size_t>(token) * static_cast<size_t>(experts);
    std::vector<double> score(static_cast<size_t>(experts)), key;
    double sum = 0;
    for (size_t i = 0; i < score.size(); ++i) {
      const auto v = static_cast<double>(x[i]);
      score[i] = attr.sigmoid ? 1 / (1 + std::exp(-v)) : std::exp(v);
      sum += score[i];
    }
    if (!attr.sigmoid)
      for (double& s : score) s /= sum;
    key = score;
    if (bias != plan::kNone) {
      const std::vector<float> b = model.dequantized(bias);
      for (size_t i = 0; i < key.size(); ++i) key[i] += static_cast<double>(b[i]);
    }
    std::vector<size_t> chosen;
    for (int32_t i = 0; i < attr.top; ++i) {
      const auto best = std::max_element(key.begin(), key.end());  // the first of equal ones
      chosen.push_back(static_cast<size_t>(best - key.begin()));
      *best = -std::numeric_limits<double>::infinity();
    }
    std::sort(chosen.begin(), chosen.end());
    double of_chosen = 0;
    for (size_t c : chosen) of_chosen += score[c];
    std::vector<double> pairs;
    for (size_t c : chosen) {
      pairs.push_back(static_cast<double>(c));
      pairs.push_back((attr.renormalise ? score[c] / of_chosen : score[c]) *
                      static_cast<double>(attr.scale));
    }
    return pairs;
  }

  int32_t experts;
  plan::RouteAttributes attr;
  TestModel model;
  TensorId table = plan::kNone, bias = plan::kNone;
};

void check_route(const RouteModel& m, const std::string& what) {
  Prepared p(m.model, 1, {256, 256});
  std::vector<int32_t> tokens(kSomeTokens);
  std::iota(tokens.begin(), tokens.end(), 0);
  const std::vector<float> got = p.run(nullptr, tokens, tokens.size());
  const auto width = static_cast<size_t>(2 * m.attr.top);
  for (int32_t t : tokens) {
    const std::vector<double> want = m.expected(t);
    for (size_t i = 0; i < width; ++i) {
      ASSERT_NEAR(static_cast<double>(got[static_cast<size_t>(t) * width + i]), want[i], 1e-6)
          << what << " token " << t << " number " << i;
    }
  }
  for (const int threads : {1, 3}) {
    for (const size_t pass : {40, 7, 1}) {
      Prepared other(m.model, threads, {256, 256});
      expect_bits(other.run(nullptr, tokens, pass), got, what);
    }
  }
}

TEST(Route, IsItsFormula) {
  for (const int32_t n : {1, 5, 40, 131}) {
    for (const bool sigmoid : {false, true}) {
      for (const bool renormalise : {false, true}) {
        for (const bool bias : {false, true}) {
          plan::RouteAttributes attr{.top = std::min(n, 6), .scale = renormalise ? 2.5f : 1.0f};
          attr.sigmoid = sigmoid, attr.renormalise = renormalise;
          check_route(RouteModel(n, attr, bias),
                      std::to_string(n) + " experts" + (sigmoid ? ", sigmoid" : ", softmax") +
                          (renormalise ? ", renormalised" : "") + (bias ? ", bias" : ""));
        }
      }
    }
  }
}

// Requirement arithmetic.experts "experts": rows grouped by expert, so that a pass is matrix by
// matrix; what no row chose is not read; ties of the router go to the lowest index; sums in
// ascending order of the expert, the same bits however rows are passed
TEST(Route, TiesTakeTheLowestIndex) {
  constexpr int32_t kExperts = 9;
  std::vector<float> scores;
  std::mt19937 rng(8);
  for (int32_t i = 0; i < kSomeTokens * kExperts; ++i) {
    scores.push_back(static_cast<float>(i < kExperts ? 0 : rng() % 3));  // the first row: all equal
  }
  const RouteModel m(kExperts, {.top = 4}, false, scores);
  check_route(m, "ties");
  Prepared p(m.model, 1);
  const std::vector<float> row = p.run(nullptr, {0}, 1);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(row[2 * i], static_cast<float>(i));
}

TEST(Route, WhatIsNoNumberIsSeen) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::vector<float> scores(static_cast<size_t>(kSomeTokens) * 6, 0.5f);
  scores[4] = kNan;
  for (size_t i = 0; i < 6; ++i) scores[6 + i] = -kInf;
  scores[12 + 3] = kInf;
  for (size_t i = 0; i < 6; ++i) scores[18 + i] = -200;  // sigmoids of nearly 0: the sum is held up
  for (const bool sigmoid : {false, true}) {
    plan::RouteAttributes attr{.top = 2};
    attr.sigmoid = sigmoid, attr.renormalise = true;
    const RouteModel m(6, attr, false, scores);
    Prepared p(m.model, 1, {256, 256});
    const std::vector<float> got = p.run(nullptr, {0, 1, 2, 3}, 4);
    EXPECT_TRUE(std::isnan(got[1]) || std::isnan(got[3])) << sigmoid;
    for (size_t i = 0; i < got.size(); i += 2) {
      EXPECT_TRUE(got[i] >= 0 && got[i] < 6) << sigmoid << " " << i;
    }
    for (size_t i = 13; sigmoid && i < 16; i += 2) EXPECT_TRUE(got[i] >= 0 && got[i] < 1e-6f);
  }
}

// ---------------------------------------------------------------- experts

struct ExpertShape {
  int32_t width, hidden, experts, top;
};

struct ExpertsModel {
  ExpertsModel(ExpertShape s, TensorType up_type, TensorType down_type, bool with_joined,
               bool with_scale, bool as_int8, plan::Activation function = plan::Activation::kSilu,
               std::vector<float> scores = {})
      : shape(s), joined(with_joined), int8(as_int8) {
    table = model.matrix(TensorType::F32, kSomeTokens, s.width);
    score_table = scores.empty() ? model.matrix(TensorType::F32, kSomeTokens, s.experts)
                                 : model.table(scores, s.experts);
    const ValueId x = model.value({s.width}), scores_of = model.value({s.experts}),
                  routed = model.value({s.top, 2}), y = model.value({s.width});
    model.op(OpKind::embed, {}, {x}, {table});
    model.op(OpKind::embed, {}, {scores_of}, {score_table});
    const plan::RouteAttributes route{.top = s.top, .scale = 40};
    model.op(OpKind::route, {scores_of}, {routed}, {plan::kNone}, route);
    weights.assign(5, plan::kNone);
    if (joined) {
      weights[2] = model.experts(up_type, s.experts, 2 * s.hidden, s.width);
    } else {
      weights[0] = model.experts(up_type, s.experts, s.hidden, s.width);
      weights[1] = model.experts(up_type, s.experts, s.hidden, s.width);
    }
    weights[3] = model.experts(down_type, s.experts, s.width, s.hidden);
    if (with_scale) weights[4] = model.vector(s.experts);
    attr.activation = function;
    ValueId in = x;
    if (int8 && integer(up_type)) {
      in = model.value({s.width}, TokenSet::kAll, Form::kQuantized);
      model.op(OpKind::quantize, {x}, {in});
    }
    attr.quantize_hidden = int8 && integer(down_type);
    op = model.plan.ops.size();
    model.op(OpKind::experts, {in, routed}, {y}, weights, attr);
    const ValueId wanted = model.value({s.width}, TokenSet::kOutputs);
    const ValueId wanted_route = model.value({s.top, 2}, TokenSet::kOutputs);
    model.op(OpKind::select_rows, {y}, {wanted});
    model.op(OpKind::select_rows, {routed}, {wanted_route});
    model.plan.outputs.push_back({"y", wanted});
    model.plan.outputs.push_back({"route", wanted_route});
    model.finish();
  }

  static bool integer(TensorType t) {
    return t != TensorType::F32 && t != TensorType::F16 && t != TensorType::BF16;
  }
  const std::byte* data(TensorId id) const {
    return model.file.tensors()[static_cast<size_t>(id)].data;
  }
  uint64_t expert_bytes(TensorId id) const {
    return model.file.tensors()[static_cast<size_t>(id)].bytes /
           static_cast<uint64_t>(shape.experts);
  }

  ExpertShape shape;
  bool joined, int8;
  TestModel model;
  plan::ExpertsAttributes attr;
  TensorId table = plan::kNone, score_table = plan::kNone;
  std::vector<TensorId> weights;
  size_t op = 0;
};

// One row through one matrix, rows [first, first + n) of the tensor, by the scalar kernels.
std::vector<float> multiply(const kernels::Kernels& k, const ExpertsModel& m, TensorId id,
                            int64_t first, int64_t n, const std::vector<float>& x, bool int8) {
  const format::TensorInfo& t = m.model.file.tensors()[static_cast<size_t>(id)];
  const auto width = static_cast<int64_t>(x.size());
  const quant::TypeInfo& type = quant::type_info(t.type);
  const std::byte* rows = t.data + first * (width / type.block * type.block_bytes);
  kernels::test::Buffer packed(kernels::packed_bytes(t.type, n, width));
  kernels::pack_groups(t.type, rows, n, width, 0, (n + 15) / 16, packed.data());
  const kernels::PackedMatrix w{static_cast<uint32_t>(t.type), n, width,
                                static_cast<int64_t>(kernels::packed_group_bytes(t.type, width)),
                                packed.data()};
  std::vector<float> out(static_cast<size_t>(n));
  if (int8 && ExpertsModel::integer(t.type)) {
    const kernels::test::Rows q(k, x, 1, width);
    k.matmul_q[w.type](&w, &q.view, 0, 1, 0, (n + 15) / 16, out.data(), n);
  } else {
    k.matmul_f[w.type](&w, x.data(), width, 0, 1, 0, (n + 15) / 16, out.data(), n);
  }
  return out;
}

// The definition: experts ascending, each one's hidden row by itself, acc = fma(g * s, y, acc).
std::vector<float> defined(const ExpertsModel& m, const std::vector<int32_t>& tokens,
                           const std::vector<float>& routes) {
  const kernels::Kernels k = kernel_table("scalar");
  const std::vector<float> table = m.model.dequantized(m.table);
  const std::vector<float> scale =
      m.weights[4] == plan::kNone ? std::vector<float>() : m.model.dequantized(m.weights[4]);
  const auto function = static_cast<kernels::Unary>(static_cast<int>(m.attr.activation) - 1);
  const auto top = static_cast<size_t>(m.shape.top);
  const int64_t hidden = m.shape.hidden, step = m.joined ? 2 * hidden : hidden;
  const auto result = [&](const std::vector<float>& x, int64_t e) {
    std::vector<float> gate =
        multiply(k, m, m.weights[m.joined ? 2 : 0], e * step, hidden, x, m.int8);
    const std::vector<float> up = multiply(k, m, m.weights[m.joined ? 2 : 1],
                                           e * step + (m.joined ? hidden : 0), hidden, x, m.int8);
    k.unary(function, gate.data(), hidden, gate.data());
    k.binary(kernels::kMul, gate.data(), up.data(), hidden, gate.data());
    return multiply(k, m, m.weights[3], e * m.shape.width, m.shape.width, gate, m.int8);
  };
  std::map<std::pair<int32_t, int64_t>, std::vector<float>> known;  // by token and expert
  std::vector<float> all;
  for (size_t t = 0; t < tokens.size(); ++t) {
    const auto at = table.begin() + std::ptrdiff_t{tokens[t]} * m.shape.width;
    const std::vector<float> x(at, at + m.shape.width);
    std::vector<float> acc(x.size(), 0.0f);
    for (size_t c = 0; c < top; ++c) {
      const float* pair = routes.data() + 2 * (t * top + c);
      const auto e = static_cast<int64_t>(pair[0]);
      std::vector<float>& y = known[{tokens[t], e}];
      if (y.empty()) y = result(x, e);
      const float g = scale.empty() ? pair[1] : pair[1] * scale[static_cast<size_t>(e)];
      for (size_t i = 0; i < acc.size(); ++i) acc[i] = std::fma(g, y[i], acc[i]);
    }
    all.insert(all.end(), acc.begin(), acc.end());
  }
  return all;
}

double act(plan::Activation a, double x) {
  switch (a) {
    case plan::Activation::kSilu:
      return x / (1 + std::exp(-x));
    case plan::Activation::kGelu:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case plan::Activation::kGeluErf:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    default:
      return std::max(x, 0.0);
  }
}

// y = W x, rows [first, first + n) of w.
std::vector<double> product(const std::vector<float>& w, int64_t first, int64_t n,
                            const std::vector<double>& x) {
  std::vector<double> y(static_cast<size_t>(n));
  for (size_t o = 0; o < y.size(); ++o) {
    const float* row = w.data() + (static_cast<size_t>(first) + o) * x.size();
    for (size_t i = 0; i < x.size(); ++i) y[o] += static_cast<double>(row[i]) * x[i];
  }
  return y;
}

std::vector<double> in_double(const ExpertsModel& m, int32_t token, const float* route) {
  const std::vector<float> table = m.model.dequantized(m.table);
  const auto at = table.begin() + std::ptrdiff_t{token} * m.shape.width;
  const std::vector<double> x(at, at + m.shape.width);
  const int64_t hidden = m.shape.hidden, width = m.shape.width;
  std::vector<double> sum(x.size(), 0.0);
  for (int32_t c = 0; c < m.shape.top; ++c) {
    const auto e = static_cast<int64_t>(route[2 * c]);
    std::vector<double> gate, up;
    if (m.joined) {
      const std::vector<double> both =
          product(m.model.dequantized(m.weights[2]), e * 2 * hidden, 2 * hidden, x);
      gate.assign(both.begin(), both.begin() + hidden);
      up.assign(both.begin() + hidden, both.end());
    } else {
      gate = product(m.model.dequantized(m.weights[0]), e * hidden, hidden, x);
      up = product(m.model.dequantized(m.weights[1]), e * hidden, hidden, x);
    }
    for (size_t i = 0; i < gate.size(); ++i) gate[i] = act(m.attr.activation, gate[i]) * up[i];
    const std::vector<double> y =
        product(m.model.dequantized(m.weights[3]), e * width, width, gate);
    double g = static_cast<double>(route[2 * c + 1]);
    if (m.weights[4] != plan::kNone)
      g *= static_cast<double>(m.model.dequantized(m.weights[4])[static_cast<size_t>(e)]);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += g * y[i];
  }
  return sum;
}

// Verifies arithmetic.experts.
TEST(Experts, AreTheirFormula) {
  const std::vector<int32_t> tokens = some_tokens(11);
  for (const auto function : {plan::Activation::kSilu, plan::Activation::kGelu,
                              plan::Activation::kGeluErf, plan::Activation::kRelu}) {
    for (const ExpertShape s : {ExpertShape{37, 21, 5, 2}, {8, 40, 3, 3}, {100, 1, 7, 1}}) {
      for (const bool joined : {false, true}) {
        for (const bool scale : {false, true}) {
          const ExpertsModel m(s, TensorType::F32, TensorType::F32, joined, scale, false, function);
          Prepared p(m.model, 1);
          const std::vector<float> got = p.run(nullptr, tokens, 11);
          const std::vector<float> routes = p.run(nullptr, tokens, 11, "route");
          double largest = 0;
          for (size_t t = 0; t < tokens.size(); ++t) {
            const std::vector<double> want =
                in_double(m, tokens[t], routes.data() + t * 2 * static_cast<size_t>(s.top));
            double size = 0;
            for (double v : want) size = std::max(size, std::abs(v));
            largest = std::max(largest, size);
            for (size_t i = 0; i < want.size(); ++i) {
              ASSERT_NEAR(static_cast<double>(got[t * want.size() + i]), want[i], 1e-5 * size)
                  << s.width << " " << joined << scale << " token " << t << " number " << i;
            }
          }
          EXPECT_GT(largest, 0);
        }
      }
    }
  }
}

// Passes longer than a block of rows, shorter than one, and of one row.
void expect_defined(const ExpertsModel& m, const std::string& what) {
  const std::vector<int32_t> tokens = some_tokens(kernels::test::small_tests() ? 70 : 150);
  Prepared plain(m.model, 1, {256, 256}, "scalar");
  const std::vector<float> routes = plain.run(nullptr, tokens, 150, "route");
  const std::vector<float> want = defined(m, tokens, routes);
  for (const bool repack : {true, false}) {
    for (const kernels::IsaLevel* level = kernels::isa_levels(); level->name != nullptr; ++level) {
      if (!level->usable || kernels::test::small_tests()) continue;
      Prepared p(m.model, 2, {256, 256}, level->name, repack);
      expect_bits(p.run(nullptr, tokens, 150), want, what + " " + level->name);
    }
    for (const int threads : {3, 1}) {
      if (threads == 1 && kernels::test::small_tests()) continue;
      for (const size_t pass : {150, 31, 2, 1}) {
        Prepared p(m.model, threads, {256, 256}, nullptr, repack);
        expect_bits(p.run(nullptr, tokens, pass), want,
                    what + ", " + std::to_string(threads) + " threads, passes of " +
                        std::to_string(pass) + (repack ? "" : ", mapped"));
      }
    }
  }
}

// Verifies arithmetic.experts.
TEST(Experts, EveryTypeIsItsDefinitionToTheBit) {
  const size_t step = kernels::test::small_tests() ? 4 : 1;
  const auto types = kernels::test::all_types();
  for (size_t i = 0; i < types.size(); i += step) {
    const TensorType type = types[i];
    const int32_t block = quant::type_info(type).block;
    const int32_t unit = ExpertsModel::integer(type) ? std::max(block, 32) : 37;
    for (const bool int8 : {false, true}) {
      if (int8 && !ExpertsModel::integer(type)) continue;
      const ExpertShape s{unit, block == 256 ? 256 : unit * 3, 5, 2};
      const ExpertsModel m(s, type, type, int8, true, int8);
      expect_defined(m, std::string(quant::type_info(type).name) + (int8 ? " int8" : " float"));
    }
  }
}

TEST(Experts, ShapesAndMixedTypes) {
  // Hidden rows in halves that are no multiple of 16; one expert; all of them chosen; wide ones.
  expect_defined({{64, 40, 6, 3}, TensorType::Q8_0, TensorType::F32, true, false, true}, "40");
  expect_defined({{64, 32, 1, 1}, TensorType::Q4_0, TensorType::Q8_0, true, true, true}, "one");
  expect_defined({{32, 64, 4, 4}, TensorType::F16, TensorType::Q8_0, false, false, true}, "all");
  expect_defined({{256, 320, 3, 2}, TensorType::Q4_K, TensorType::Q5_0, false, true, true}, "wide");
  expect_defined({{96, 64, 40, 5}, TensorType::Q8_0, TensorType::Q8_0, true, true, true}, "many");
}

// gate is float, up is int8: the op reads the row in both forms.
TEST(Experts, GateAndUpOfTwoKinds) {
  for (const bool swapped : {false, true}) {
    ExpertsModel m({32, 48, 4, 2}, TensorType::F32, TensorType::F32, false, false, false);
    TestModel both;
    const ValueId x = both.value({32}), scores = both.value({4}), routed = both.value({2, 2}),
                  q = both.value({32}, TokenSet::kAll, Form::kQuantized), y = both.value({32}),
                  wanted = both.value({32}, TokenSet::kOutputs),
                  wanted_route = both.value({2, 2}, TokenSet::kOutputs);
    m.table = both.matrix(TensorType::F32, kSomeTokens, 32);
    m.score_table = both.matrix(TensorType::F32, kSomeTokens, 4);
    m.weights = {both.experts(swapped ? TensorType::Q8_0 : TensorType::F32, 4, 48, 32),
                 both.experts(swapped ? TensorType::F32 : TensorType::Q4_0, 4, 48, 32), plan::kNone,
                 both.experts(TensorType::F16, 4, 32, 48), plan::kNone};
    both.op(OpKind::embed, {}, {x}, {m.table});
    both.op(OpKind::embed, {}, {scores}, {m.score_table});
    both.op(OpKind::route, {scores}, {routed}, {plan::kNone}, plan::RouteAttributes{.top = 2});
    both.op(OpKind::quantize, {x}, {q});
    both.op(OpKind::experts, {x, routed, q}, {y}, m.weights, m.attr);
    both.op(OpKind::select_rows, {y}, {wanted});
    both.op(OpKind::select_rows, {routed}, {wanted_route});
    both.plan.outputs = {{"y", wanted}, {"route", wanted_route}};
    both.finish();
    m.model = std::move(both);
    m.int8 = true;
    expect_defined(m, swapped ? "int8 gate" : "int8 up");
  }
}

std::vector<float> favoring(int32_t experts, std::vector<int32_t> liked) {
  std::vector<float> scores;
  for (int32_t t = 0; t < kSomeTokens; ++t) {
    for (int32_t e = 0; e < experts; ++e) {
      const auto at = std::find(liked.begin(), liked.end(), e);
      scores.push_back(at == liked.end() ? -5.0f
                                         : static_cast<float>((t + at - liked.begin()) % 3));
    }
  }
  return scores;
}

TEST(Experts, OneHasAllRows) {
  const ExpertsModel m({64, 96, 6, 1}, TensorType::Q8_0, TensorType::Q8_0, true, false, true,
                       plan::Activation::kSilu, favoring(6, {4}));
  expect_defined(m, "one has all");
}

// The pages of what nobody chose are taken away: reading one of them would end the test.
// Verifies arithmetic.experts.
TEST(Experts, WhatNobodyChoseIsNotRead) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  ExpertsModel m({256, 512, 6, 2}, TensorType::Q4_0, TensorType::Q4_0, true, true, true,
                 plan::Activation::kGelu, favoring(6, {1, 4, 5}));
  const std::vector<int32_t> tokens = some_tokens(150);
  Prepared whole(m.model, 1, {256, 256});
  const std::vector<float> want = whole.run(nullptr, tokens, 150);
  const std::string path = testing::TempDir() + "culet_experts_" + std::to_string(getpid());
  m.model.map(path);
  for (const int threads : {1, 3}) {
    Prepared p(m.model, threads, {256, 256}, nullptr, false);
    std::vector<std::pair<void*, size_t>> taken;
    for (const TensorId id : {m.weights[2], m.weights[3]}) {
      for (const uint64_t e : {0, 2, 3}) {
        const auto start = reinterpret_cast<uintptr_t>(m.data(id)) + e * m.expert_bytes(id);
        const uintptr_t first = (start + page - 1) / page * page,
                        last = (start + m.expert_bytes(id)) / page * page;
        ASSERT_GT(last, first + 4 * page);
        taken.emplace_back(reinterpret_cast<void*>(first), last - first);
      }
    }
    for (const auto& [at, bytes] : taken) ASSERT_EQ(mprotect(at, bytes, PROT_NONE), 0);
    for (const size_t pass : {150, 1}) {
      expect_bits(p.run(nullptr, tokens, pass), want, std::to_string(threads) + " threads");
    }
    for (const auto& [at, bytes] : taken) ASSERT_EQ(mprotect(at, bytes, PROT_READ), 0);
  }
  std::remove(path.c_str());
}

// Verifies arithmetic.experts.
TEST(Experts, CostsAreOfTheChosenOnes) {
  const ExpertsModel m({64, 96, 6, 2}, TensorType::Q8_0, TensorType::Q8_0, true, false, true,
                       plan::Activation::kSilu, favoring(6, {1, 4, 5}));
  // Groups of 16 rows of Q8_0 have a k times 34 bytes for each 32.
  const uint64_t each = 2 * 96 * 2 * 34 + 64 * 3 * 34;
  const uint64_t odd =
      64 * 34;  // two blocks are a unit of the packed form: the third brings a hole
  for (const bool repack : {true, false}) {
    Prepared p(m.model, 2, {256, 256}, nullptr, repack);
    std::vector<OpCost> costs(m.model.plan.ops.size());
    const std::vector<int32_t> tokens = some_tokens(30);
    const SequenceChunk s{nullptr, 0, tokens, {}};
    ASSERT_TRUE(p.executor->run(*p.workspace, {&s, 1}, costs));
    EXPECT_EQ(costs[m.op].chosen_bytes, 3 * (each + odd)) << repack;
    EXPECT_GT(costs[m.op].seconds, 0);
    const SequenceChunk one{nullptr, 0, std::span(tokens).first(1), {}};
    ASSERT_TRUE(p.executor->run(*p.workspace, {&one, 1}, costs));
    EXPECT_EQ(costs[m.op].chosen_bytes, 5 * (each + odd));
    EXPECT_EQ(p.executor->note(m.op).weight_bytes, 2 * (each + odd));
    for (size_t i = 0; i < costs.size(); ++i) {
      EXPECT_EQ(costs[i].chosen_bytes > 0, i == m.op) << i;
    }
    PrepareOptions options;
    options.limits = {256, 256};
    options.repack = repack;
    const Executor::Memory memory =
        Executor::memory(m.model.plan, m.model.file, p.kernels, 2, options);
    EXPECT_EQ(memory.workspace, p.executor->workspace_bytes());
    EXPECT_NEAR(static_cast<double>(memory.packed), static_cast<double>(p.executor->packed_bytes()),
                64);
    EXPECT_EQ(memory.packed > 0, repack);
    EXPECT_GE(repack ? memory.packed : memory.mapped, 6 * each);
    // Of 256 rows that choose two: hidden rows as float32 and int8.
    EXPECT_GT(memory.workspace, 512u * (96 * 4 + 96));
  }
}

TEST(Experts, ADecodeStepAllocatesNothing) {
  const ExpertsModel m({64, 96, 6, 2}, TensorType::Q8_0, TensorType::Q8_0, true, true, true);
  for (const bool repack : {true, false}) {
    Prepared p(m.model, 2, {256, 256}, nullptr, repack);
    const int32_t token[] = {3}, wanted[] = {0};
    const SequenceChunk s{nullptr, 0, token, wanted};
    ASSERT_TRUE(p.executor->run(*p.workspace, {&s, 1}));
    const int64_t before = allocation_count();
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(p.executor->run(*p.workspace, {&s, 1}));
    EXPECT_EQ(allocation_count() - before, 0);
  }
}

}  // namespace
}  // namespace culet::backend::test
