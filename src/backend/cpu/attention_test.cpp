// append and attend against a plain softmax in double precision; and the same bits for any number
// of threads, cut into passes, and company in the batch.
#include "backend/cpu/test_model.h"

#include <gtest/gtest.h>

#include <cmath>

namespace culet::backend::test {
namespace {

struct AttentionShape {
  int32_t heads = 4, kv_heads = 2, head_dim = 16, value_dim = 24;
  int64_t window = 0;  // 0: full
  float softcap = 0;
  bool wanted_only = true;  // attend runs for the output tokens
  int32_t rope = 0;         // dims; 0: none
  bool own = false;         // attention without a cache, as encoders have it
  plan::Mask mask = plan::Mask::kCausal;
  int32_t band = 0;
};

struct AttentionModel {
  explicit AttentionModel(const AttentionShape& shape) : s(shape) {
    model.layer = 0;
    table[0] = model.matrix(TensorType::F32, kSomeTokens, s.heads * s.head_dim);
    table[1] = model.matrix(TensorType::F32, kSomeTokens, s.kv_heads * s.head_dim);
    table[2] = model.matrix(TensorType::F32, kSomeTokens, s.kv_heads * s.value_dim);
    ValueId q = embed(0, {s.heads, s.head_dim}), k = embed(1, {s.kv_heads, s.head_dim});
    const ValueId v = embed(2, {s.kv_heads, s.value_dim});
    if (s.rope > 0) {
      model.plan.ropes.push_back(
          {.base = 1000, .scale = 0.5, .attn_factor = 1, .dims = s.rope, .factors = plan::kNone});
      q = rope(q, {s.heads, s.head_dim}), k = rope(k, {s.kv_heads, s.head_dim});
    }
    if (s.own) {
      attend_own(q, k, v);
      return;
    }
    const int32_t cache = model.cache(
        {"kv", 0, s.window > 0 ? plan::CachePolicy::kWindow : plan::CachePolicy::kGlobal, s.window,
         s.kv_heads, s.head_dim, s.value_dim});
    model.op(OpKind::append, {k, v}, {}, {}, plan::AppendAttributes{cache});
    const TokenSet rows = s.wanted_only ? TokenSet::kOutputs : TokenSet::kAll;
    if (s.wanted_only) q = select(q, {s.heads, s.head_dim});
    ValueId y = model.value({s.heads * s.value_dim}, rows);
    plan::AttendAttributes attr;
    attr.cache = cache;
    attr.heads = s.heads, attr.kv_heads = s.kv_heads, attr.head_dim = s.head_dim,
    attr.value_dim = s.value_dim;
    attr.scale = 3.0f, attr.softcap = s.softcap;
    model.op(OpKind::attend, {q}, {y}, {}, attr);
    if (!s.wanted_only) y = select(y, {s.heads * s.value_dim});
    model.plan.outputs.push_back({"y", y});
    model.finish();
  }
  void attend_own(ValueId q, ValueId k, ValueId v) {
    const ValueId y = model.value({s.heads * s.value_dim});
    plan::AttendAttributes attr;
    attr.heads = s.heads, attr.kv_heads = s.kv_heads, attr.head_dim = s.head_dim,
    attr.value_dim = s.value_dim;
    attr.scale = 3.0f, attr.softcap = s.softcap;
    attr.mask = s.mask, attr.band = s.band;
    model.op(OpKind::attend, {q, k, v}, {y}, {}, attr);
    model.plan.outputs.push_back({"y", y});
    model.finish();
  }
  ValueId embed(int t, std::vector<int32_t> dims) {
    const ValueId v = model.value(std::move(dims));
    model.op(OpKind::embed, {}, {v}, {table[t]});
    return v;
  }
  ValueId select(ValueId in, std::vector<int32_t> dims) {
    const ValueId v = model.value(std::move(dims), TokenSet::kOutputs);
    model.op(OpKind::select_rows, {in}, {v});
    return v;
  }
  ValueId rope(ValueId in, std::vector<int32_t> dims) {
    const ValueId v = model.value(std::move(dims));
    model.op(OpKind::rope, {in}, {v}, {}, plan::RopeAttributes{.rope = 0});
    return v;
  }

  // Row `t`, column of head h, of one of the tables, rotated as the model does.
  double at(const std::vector<float>& values, int32_t token, int64_t position, int32_t width,
            int32_t head, int32_t dim, int32_t d, bool rotate) const {
    const auto x = [&](int32_t i) {
      return static_cast<double>(values[static_cast<size_t>(token * width + head * dim + i)]);
    };
    const int32_t half = s.rope / 2;
    if (!rotate || d >= s.rope) return x(d);
    const int32_t pair = d % half;
    const double angle =
        static_cast<double>(position) * 0.5 * std::pow(1000.0, -2.0 * pair / s.rope);
    return d < half ? x(pair) * std::cos(angle) - x(pair + half) * std::sin(angle)
                    : x(pair) * std::sin(angle) + x(pair + half) * std::cos(angle);
  }

  // The first and the last key that the row at p of a sequence of n tokens sees.
  std::pair<int64_t, int64_t> seen(int64_t p, int64_t n) const {
    if (s.mask == plan::Mask::kFull) return {0, n - 1};
    if (s.mask == plan::Mask::kBand)
      return {std::max<int64_t>(0, p - s.band), std::min(n - 1, p + s.band)};
    return {s.window > 0 ? std::max<int64_t>(0, p - s.window + 1) : 0, p};
  }

  std::vector<double> oracle(const std::vector<int32_t>& tokens, int64_t p) const {
    const auto [first, last] = seen(p, static_cast<int64_t>(tokens.size()));
    const std::vector<float> q = model.dequantized(table[0]), k = model.dequantized(table[1]),
                             v = model.dequantized(table[2]);
    std::vector<double> out;
    for (int32_t h = 0; h < s.heads; ++h) {
      const int32_t kv = h / (s.heads / s.kv_heads);
      std::vector<double> sum(static_cast<size_t>(s.value_dim), 0);
      double total = 0;
      for (int64_t j = first; j <= last; ++j) {
        double dot = 0;
        for (int32_t d = 0; d < s.head_dim; ++d) {
          dot += at(q, tokens[static_cast<size_t>(p)], p, s.heads * s.head_dim, h, s.head_dim, d,
                    s.rope > 0) *
                 at(k, tokens[static_cast<size_t>(j)], j, s.kv_heads * s.head_dim, kv, s.head_dim,
                    d, s.rope > 0);
        }
        double score = dot * 3.0;
        if (s.softcap > 0) score = s.softcap * std::tanh(score / s.softcap);
        const double weight = std::exp(score);
        total += weight;
        for (int32_t d = 0; d < s.value_dim; ++d) {
          sum[static_cast<size_t>(d)] +=
              weight * at(v, tokens[static_cast<size_t>(j)], j, s.kv_heads * s.value_dim, kv,
                          s.value_dim, d, false);
        }
      }
      for (double x : sum) out.push_back(x / total);
    }
    return out;
  }

  AttentionShape s;
  TestModel model;
  TensorId table[3];
};

cache::CacheOptions f32_cache(int64_t positions = 4096) {
  return {.k_type = kernels::kKvF32, .v_type = kernels::kKvF32, .max_positions = positions};
}

TEST(Attention, AgainstTheOracle) {
  const AttentionShape shapes[] = {
      {},
      {.window = 20},
      {.softcap = 2},
      {.heads = 3, .kv_heads = 3, .wanted_only = false},
      {.heads = 5, .kv_heads = 1, .window = 7, .wanted_only = false, .rope = 8},
      {.rope = 16}};
  for (const AttentionShape& shape : shapes) {
    AttentionModel m(shape);
    Prepared p(m.model, 2);
    const std::vector<int32_t> tokens = some_tokens(100);
    for (bool half : {false, true}) {
      auto caches = p.caches(m.model, half ? cache::CacheOptions{} : f32_cache());
      const std::vector<float> y = p.run(caches.get(), tokens, 33);
      for (int64_t t = 0; t < 100; ++t) {
        const std::vector<double> want = m.oracle(tokens, t);
        for (size_t i = 0; i < want.size(); ++i) {
          ASSERT_NEAR(y[static_cast<size_t>(t) * want.size() + i], want[i], half ? 2e-3 : 2e-6)
              << t << " " << i;
        }
      }
    }
  }
}

TEST(Attention, KeysAndValuesMayDifferInType) {
  AttentionModel m({});
  Prepared p(m.model, 1);
  const std::vector<int32_t> tokens = some_tokens(40);
  cache::CacheOptions mixed = f32_cache();
  mixed.k_type = kernels::kKvF16;
  auto caches = p.caches(m.model, mixed);
  const std::vector<float> y = p.run(caches.get(), tokens, 40);
  const std::vector<double> want = m.oracle(tokens, 39);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(y[39 * want.size() + i], want[i], 2e-3);
}

// Long contexts reach several parts: threads then work on parts of one row (waves), or on heads.
TEST(Attention, ThreadsAndPassesChangeNothing) {
  for (const AttentionShape& shape :
       {AttentionShape{.heads = 3, .kv_heads = 1, .head_dim = 8, .value_dim = 8},
        AttentionShape{.heads = 3, .kv_heads = 1, .head_dim = 8, .value_dim = 8, .window = 1500},
        AttentionShape{.heads = 4, .kv_heads = 2, .head_dim = 8, .value_dim = 8, .window = 70}}) {
    AttentionModel m(shape);
    const std::vector<int32_t> tokens = some_tokens(5000);
    std::vector<float> want;
    for (int threads : {1, 2, 3, 4}) {
      for (size_t pass : {256, 77}) {
        Prepared p(m.model, threads);
        auto caches = p.caches(m.model, {.max_positions = 6000});
        std::vector<float> got;
        for (size_t i = 0; i < 4900; i += pass) {  // the last row of each pass only
          const size_t n = std::min(pass, 4900 - i);
          const std::vector<int32_t> wanted = {static_cast<int32_t>(n) - 1};
          const SequenceChunk s{caches.get(), static_cast<int64_t>(i),
                                std::span(tokens).subspan(i, n), wanted};
          ASSERT_TRUE(p.executor->run(*p.workspace, {&s, 1}));
        }
        got =
            p.run(caches.get(), std::vector<int32_t>(tokens.begin() + 4900, tokens.begin() + 4950),
                  pass == 256 ? 50 : 1);
        if (want.empty()) want = got;
        EXPECT_EQ(kernels::test::first_difference(got, want), want.size())
            << threads << " " << pass;
      }
    }
    const std::vector<double> oracle = m.oracle(tokens, 4949);
    for (size_t i = 0; i < oracle.size(); ++i)
      EXPECT_NEAR(want[49 * oracle.size() + i], oracle[i], 2e-3);
  }
}

// ---------------------------------------------------------------- without a cache

const AttentionShape kEncoders[] = {
    {.own = true, .mask = plan::Mask::kFull},
    {.own = true, .mask = plan::Mask::kCausal},
    {.softcap = 2, .own = true, .mask = plan::Mask::kBand, .band = 0},
    {.heads = 3, .kv_heads = 3, .own = true, .mask = plan::Mask::kBand, .band = 4},
    {.heads = 5, .kv_heads = 1, .rope = 8, .own = true, .mask = plan::Mask::kBand, .band = 40},
    {.rope = 16, .own = true, .mask = plan::Mask::kBand, .band = 1000000000},
};

// Sequences as one pass, one behind another.
std::vector<std::vector<float>> encode(Prepared* p, const std::vector<std::vector<int32_t>>& all) {
  std::vector<SequenceChunk> batch;
  for (const auto& tokens : all) batch.push_back({nullptr, 0, tokens, {}});
  const auto ran = p->executor->run(*p->workspace, batch);
  EXPECT_TRUE(ran) << (ran ? "" : ran.error().message);
  std::span<const float> rows = p->executor->output(*p->workspace, "y");
  const auto width = static_cast<size_t>(p->executor->output_width("y"));
  std::vector<std::vector<float>> out;
  for (const auto& tokens : all) {
    const auto own = rows.first(tokens.size() * width);
    rows = rows.subspan(own.size());
    out.emplace_back(own.begin(), own.end());
  }
  EXPECT_TRUE(rows.empty());
  return out;
}

// Verifies answers.embed.
TEST(OwnKeys, AgainstTheOracle) {
  for (const AttentionShape& shape : kEncoders) {
    AttentionModel m(shape);
    Prepared p(m.model, 2);
    for (const size_t n : {1, 5, 32, 33, 100}) {
      const std::vector<int32_t> tokens = some_tokens(n);
      const std::vector<float> y = encode(&p, {tokens})[0];
      for (size_t t = 0; t < n; ++t) {
        const std::vector<double> want = m.oracle(tokens, static_cast<int64_t>(t));
        for (size_t i = 0; i < want.size(); ++i) {
          ASSERT_NEAR(y[t * want.size() + i], want[i], 2e-6)
              << n << " " << t << " " << i << " band " << shape.band;
        }
      }
    }
  }
}

// Sequences long enough for several parts, and so many that their blocks do not fit at once.
// Verifies answers.embed.
TEST(OwnKeys, ThreadsAndCompanyChangeNothing) {
  for (const AttentionShape& shape : {AttentionShape{.heads = 3,
                                                     .kv_heads = 1,
                                                     .head_dim = 8,
                                                     .value_dim = 8,
                                                     .own = true,
                                                     .mask = plan::Mask::kFull},
                                      AttentionShape{.heads = 4,
                                                     .kv_heads = 2,
                                                     .head_dim = 8,
                                                     .value_dim = 8,
                                                     .own = true,
                                                     .mask = plan::Mask::kBand,
                                                     .band = 700},
                                      AttentionShape{.heads = 2,
                                                     .kv_heads = 2,
                                                     .head_dim = 8,
                                                     .value_dim = 8,
                                                     .own = true,
                                                     .mask = plan::Mask::kBand,
                                                     .band = 9}}) {
    AttentionModel m(shape);
    std::vector<std::vector<int32_t>> sequences = {some_tokens(2100, 1), some_tokens(1, 2)};
    for (uint32_t i = 0; i < 80; ++i) sequences.push_back(some_tokens(i % 3 ? 1 : 7 * i % 67, i));
    std::vector<std::vector<float>> want;
    for (int threads : {1, 2, 3, 4}) {
      Prepared p(m.model, threads, {.tokens = 3500, .outputs = 1});
      const auto together = encode(&p, sequences);
      if (want.empty()) {
        for (const auto& tokens : sequences) want.push_back(encode(&p, {tokens})[0]);
      }
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_EQ(kernels::test::first_difference(together[i], want[i]), want[i].size())
            << threads << " threads, sequence " << i;
      }
      EXPECT_EQ(kernels::test::first_difference(encode(&p, {sequences[0]})[0], want[0]),
                want[0].size())
          << threads << " threads, alone";
    }
    for (const int64_t row : {0, 1023, 1024, 2099}) {
      const std::vector<double> oracle = m.oracle(sequences[0], row);
      for (size_t i = 0; i < oracle.size(); ++i) {
        ASSERT_NEAR(want[0][static_cast<size_t>(row) * oracle.size() + i], oracle[i], 2e-5) << row;
      }
    }
  }
}

TEST(OwnKeys, EveryInstructionSetGivesTheSameBits) {
  for (const AttentionShape& shape : kEncoders) {
    AttentionModel m(shape);
    const std::vector<int32_t> tokens = some_tokens(120);
    Prepared scalar(m.model, 1, {}, "scalar");
    const std::vector<float> want = encode(&scalar, {tokens})[0];
    for (const kernels::IsaLevel* level = kernels::isa_levels(); level->name; ++level) {
      if (!level->usable) continue;
      Prepared p(m.model, 2, {}, level->name);
      EXPECT_EQ(kernels::test::first_difference(encode(&p, {tokens})[0], want), want.size())
          << level->name << " band " << shape.band;
    }
  }
}

TEST(OwnKeys, APassAllocatesNothing) {
  AttentionModel m(kEncoders[3]);
  Prepared p(m.model, 2);
  const std::vector<int32_t> tokens = some_tokens(100);
  const SequenceChunk sequence{nullptr, 0, tokens, {}};
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(p.executor->run(*p.workspace, {&sequence, 1}));
  const int64_t before = allocation_count();
  ASSERT_TRUE(p.executor->run(*p.workspace, {&sequence, 1}));
  EXPECT_EQ(allocation_count(), before);
}

TEST(Attention, OtherMasksOverACacheAreRefusedByName) {
  AttentionModel m({});
  for (plan::Op& op : m.model.plan.ops) {
    if (op.kind == OpKind::attend) op.attr.as<plan::AttendAttributes>().mask = plan::Mask::kFull;
  }
  base::ThreadPool pool(1);
  const kernels::Kernels kernels = kernel_table();
  const auto made = Executor::prepare(m.model.plan, m.model.file, kernels, pool, {});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(made.error().message.find("'attend'"), std::string::npos) << made.error().message;
}

}  // namespace
}  // namespace culet::backend::test
