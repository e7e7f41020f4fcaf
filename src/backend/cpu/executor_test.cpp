// Whole passes: a small decoder made by hand, fused and unfused, over batches of several sessions,
// any threads, any cut into passes, any choice of output tokens: the same bits. And what run()
// refuses.
#include "backend/cpu/bind.h"
#include "backend/cpu/test_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

namespace culet::backend::test {
namespace {

constexpr int32_t kVocabulary = 300, kModelWidth = 64, kHeads = 4, kKvHeads = 2, kHeadDim = 32,
                  kHidden = 96;

// Two layers (full, then a window of 24), tied embedding, softcap on the logits.
class Decoder {
 public:
  Decoder(bool fused, bool integer) : fused_(fused), integer_(integer) {
    model.plan.ropes.push_back({.dims = kHeadDim});
    const TensorId table = model.matrix(TensorType::Q8_0, kVocabulary, kModelWidth);
    ValueId x = model.value({kModelWidth});
    model.op(OpKind::embed, {}, {x}, {table});
    for (int32_t layer = 0; layer < 2; ++layer) x = add_layer(layer, x);
    model.layer = plan::kNone;
    const ValueId h = norm(x);
    ValueId logits = model.value({kVocabulary}, TokenSet::kOutputs);
    model.op(OpKind::linear, {h}, {logits}, {table, plan::kNone});
    model.plan.outputs.push_back({"raw", logits});
    const ValueId capped = model.value({kVocabulary}, TokenSet::kOutputs);
    model.op(OpKind::softcap, {logits}, {capped}, {}, plan::SoftcapAttributes{5});
    model.plan.outputs.push_back({"y", capped});
    model.layer = 1;  // for finish(): two layers
    model.finish();
  }

  TestModel model{11};

 private:
  ValueId value(std::vector<int32_t> dims, Form form = Form::kF32) {
    return model.value(std::move(dims), rows_, form);
  }

  ValueId norm(ValueId x) {
    const TensorId w = model.vector(kModelWidth);
    const plan::NormAttributes eps{.eps = 1e-5f};
    if (fused_ && integer_) {
      const ValueId q = value({kModelWidth}, Form::kQuantized);
      model.op(OpKind::rms_norm_quantize, {x}, {q}, {w}, eps);
      return q;
    }
    const ValueId h = value({kModelWidth});
    model.op(OpKind::rms_norm, {x}, {h}, {w}, eps);
    return quantized(h);
  }
  ValueId quantized(ValueId x) {
    if (!integer_) return x;
    const ValueId q = value({model.plan.values[static_cast<size_t>(x)].width}, Form::kQuantized);
    model.op(OpKind::quantize, {x}, {q});
    return q;
  }
  ValueId linear(ValueId x, int32_t k, std::vector<int32_t> dims, bool bias = false) {
    int32_t n = 1;
    for (int32_t d : dims) n *= d;
    const ValueId y = value(std::move(dims));
    const TensorId w = model.matrix(TensorType::Q5_0, n, k);
    model.op(OpKind::linear, {x}, {y}, {w, bias ? model.vector(n) : plan::kNone});
    return y;
  }
  ValueId add_linear(ValueId x, ValueId y, int32_t k) {
    const TensorId w = model.matrix(TensorType::Q4_1, kModelWidth, k);
    const ValueId sum = value({kModelWidth});
    if (fused_) {
      model.op(OpKind::linear_add, {x, y}, {sum}, {w, plan::kNone});
    } else {
      const ValueId product = value({kModelWidth});
      model.op(OpKind::linear, {y}, {product}, {w, plan::kNone});
      model.op(OpKind::arithmetic, {x, product}, {sum}, {},
               plan::ArithmeticAttributes{.arithmetic = plan::Arithmetic::kAdd});
    }
    return sum;
  }
  ValueId rope(ValueId x, int32_t heads) {
    const ValueId y = value({heads, kHeadDim});
    model.op(OpKind::rope, {x}, {y}, {}, plan::RopeAttributes{.rope = 0, .adjacent = true});
    return y;
  }
  ValueId select(ValueId x, std::vector<int32_t> dims) {
    const ValueId y = model.value(std::move(dims), TokenSet::kOutputs);
    model.op(OpKind::select_rows, {x}, {y});
    return y;
  }

  ValueId add_layer(int32_t layer, ValueId x) {
    model.layer = layer;
    const ValueId h = norm(x);
    ValueId q = rope(linear(h, kModelWidth, {kHeads, kHeadDim}), kHeads);
    const ValueId k = linear(h, kModelWidth, {kKvHeads, kHeadDim}, true);
    const ValueId v = linear(h, kModelWidth, {kKvHeads, kHeadDim});
    const int32_t cache = model.cache(
        {"kv", layer, layer == 1 ? plan::CachePolicy::kWindow : plan::CachePolicy::kGlobal,
         layer == 1 ? 24 : 0, kKvHeads, kHeadDim, kHeadDim});
    model.op(OpKind::append, {rope(k, kKvHeads), v}, {}, {}, plan::AppendAttributes{cache});
    if (layer == 1) {  // rows nobody asks about stop here
      x = select(x, {kModelWidth});
      q = select(q, {kHeads, kHeadDim});
      rows_ = TokenSet::kOutputs;
    }
    const ValueId a = value({kHeads * kHeadDim});
    plan::AttendAttributes attr;
    attr.cache = cache;
    attr.heads = kHeads, attr.kv_heads = kKvHeads, attr.head_dim = kHeadDim,
    attr.value_dim = kHeadDim;
    attr.scale = 0.2f;
    model.op(OpKind::attend, {q}, {a}, {}, attr);
    x = add_linear(x, quantized(a), kHeads * kHeadDim);
    return add_linear(x, quantized(mlp(norm(x))), kHidden);
  }
  ValueId mlp(ValueId h) {
    const TensorId gate = model.matrix(TensorType::Q8_0, kHidden, kModelWidth),
                   up = model.matrix(TensorType::Q8_0, kHidden, kModelWidth);
    const ValueId y = value({kHidden});
    if (fused_) {
      model.op(OpKind::gated_linear, {h}, {y}, {gate, up, plan::kNone, plan::kNone},
               plan::ActivationAttributes{plan::Activation::kGelu});
      return y;
    }
    const ValueId g = value({kHidden}), u = value({kHidden}), a = value({kHidden});
    model.op(OpKind::linear, {h}, {g}, {gate, plan::kNone});
    model.op(OpKind::linear, {h}, {u}, {up, plan::kNone});
    model.op(OpKind::gelu, {g}, {a});
    model.op(OpKind::arithmetic, {a, u}, {y}, {},
             plan::ArithmeticAttributes{.arithmetic = plan::Arithmetic::kMul});
    return y;
  }

  bool fused_, integer_;
  TokenSet rows_ = TokenSet::kAll;
};

constexpr Limits kWide{256, 256};

// Verifies reports-bits.llama.cpp#28368.
TEST(Executor, FusedThreadsAndPassesChangeNothing) {
  const std::vector<int32_t> tokens = some_tokens(90);
  for (bool integer : {true, false}) {
    Decoder plain(false, integer), fused(true, integer);
    std::vector<float> want;
    for (Decoder* d : {&plain, &fused}) {
      for (int threads : {1, 2, 4}) {
        for (size_t pass : {90, 32, 13, 1}) {
          Prepared p(d->model, threads, kWide);
          auto caches = p.caches(d->model);
          const std::vector<float> got = p.run(caches.get(), tokens, pass);
          if (want.empty()) want = got;
          expect_bits(got, want,
                      std::to_string(threads) + " threads, passes of " + std::to_string(pass));
        }
      }
    }
  }
}

TEST(Executor, EveryInstructionSetGivesTheSameBits) {
  const std::vector<int32_t> tokens = some_tokens(70);
  Decoder d(true, true);
  Prepared scalar(d.model, 1, kWide, "scalar");
  auto caches = scalar.caches(d.model);
  const std::vector<float> want = scalar.run(caches.get(), tokens, 70);
  for (const kernels::IsaLevel* level = kernels::isa_levels(); level->name != nullptr; ++level) {
    if (!level->usable) continue;
    Prepared p(d.model, 2, kWide, level->name);
    caches = p.caches(d.model);
    expect_bits(p.run(caches.get(), tokens, 70), want, level->name);
  }
}

// Verifies reports-bits.llama.cpp#28368.
TEST(Executor, SessionsInOneBatchAreAsAlone) {
  Decoder d(true, true);
  Prepared p(d.model, 2, kWide);
  const std::vector<int32_t> tokens[] = {some_tokens(60, 1), some_tokens(35, 2),
                                         some_tokens(41, 3)};
  std::vector<std::unique_ptr<cache::CacheSet>> sets;
  std::vector<float> alone[3];
  for (int i = 0; i < 3; ++i) {
    auto own = p.caches(d.model);
    alone[i] = p.run(own.get(), tokens[i], 256);
    sets.push_back(p.caches(d.model));
  }
  // 30, 5 and 11 rows at once, then the other 30 of each.
  std::vector<float> together[3];
  for (int round = 0; round < 2; ++round) {
    std::vector<std::vector<int32_t>> wanted(3);
    std::vector<SequenceChunk> batch;
    for (int i = 0; i < 3; ++i) {
      const auto start = sets[static_cast<size_t>(i)]->length();
      const size_t n = round == 0 ? tokens[i].size() - 30 : 30;
      for (size_t w = 0; w < n; ++w)
        wanted[static_cast<size_t>(i)].push_back(static_cast<int32_t>(w));
      batch.push_back({sets[static_cast<size_t>(i)].get(), start,
                       std::span(tokens[i]).subspan(static_cast<size_t>(start), n),
                       wanted[static_cast<size_t>(i)]});
    }
    ASSERT_TRUE(p.executor->run(*p.workspace, batch));
    auto rows = p.executor->output(*p.workspace, "y");
    for (int i = 0; i < 3; ++i) {
      const size_t floats = batch[static_cast<size_t>(i)].outputs.size() * kVocabulary;
      together[i].insert(together[i].end(), rows.begin(),
                         rows.begin() + static_cast<std::ptrdiff_t>(floats));
      rows = rows.subspan(floats);
    }
    EXPECT_TRUE(rows.empty());
  }
  for (int i = 0; i < 3; ++i) expect_bits(together[i], alone[i], "session " + std::to_string(i));
}

TEST(Executor, OnlyOutputTokensComeOut) {
  Decoder d(true, true);
  Prepared p(d.model, 2, kWide);
  const std::vector<int32_t> tokens = some_tokens(50);
  auto all = p.caches(d.model);
  const std::vector<float> want = p.run(all.get(), tokens, 50);
  auto some = p.caches(d.model);
  const std::vector<int32_t> wanted = {0, 17, 18, 49};
  const SequenceChunk s{some.get(), 0, tokens, wanted};
  ASSERT_TRUE(p.executor->run(*p.workspace, {&s, 1}));
  const auto rows = p.executor->output(*p.workspace, "y");
  ASSERT_EQ(rows.size(), wanted.size() * kVocabulary);
  for (size_t w = 0; w < wanted.size(); ++w) {
    for (size_t i = 0; i < kVocabulary; ++i) {
      ASSERT_EQ(rows[w * kVocabulary + i], want[static_cast<size_t>(wanted[w]) * kVocabulary + i]);
    }
  }
  // None wanted: the cache is filled all the same, and the next row does not notice.
  auto none = p.caches(d.model);
  const SequenceChunk first{none.get(), 0, std::span(tokens).first(49), {}};
  ASSERT_TRUE(p.executor->run(*p.workspace, {&first, 1}));
  EXPECT_TRUE(p.executor->output(*p.workspace, "y").empty());
  const std::vector<float> last = p.run(none.get(), {tokens[49]}, 1);
  expect_bits(last, std::vector<float>(want.end() - kVocabulary, want.end()),
              "row after unwanted ones");
}

// Verifies memory.kv-isolation.
TEST(Executor, RewindGivesTheSameBitsAgain) {
  Decoder d(true, true);
  Prepared p(d.model, 1, kWide);
  const std::vector<int32_t> tokens = some_tokens(80);
  auto caches = p.caches(d.model);
  const std::vector<float> want = p.run(caches.get(), tokens, 80);
  ASSERT_EQ(caches->truncate(60), cache::Truncation::kDone);
  p.run(caches.get(), some_tokens(5, 77), 5);  // another way on
  ASSERT_EQ(caches->truncate(60), cache::Truncation::kDone);
  const std::vector<float> again =
      p.run(caches.get(), std::vector<int32_t>(tokens.begin() + 60, tokens.end()), 7);
  expect_bits(again, std::vector<float>(want.begin() + 60 * kVocabulary, want.end()),
              "after a rewind");
}

TEST(Executor, DecodeAllocatesNothing) {
  Decoder d(true, true);
  for (int threads : {1, 2}) {
    Prepared p(d.model, threads, kWide);
    auto caches = p.caches(d.model);
    p.run(caches.get(), some_tokens(34), 34);  // warm-up; the next block border is at row 64
    const std::vector<int32_t> token = {5}, wanted = {0};
    const int64_t before = allocation_count();
    for (int i = 0; i < 28; ++i) {
      const SequenceChunk s{caches.get(), caches->length(), token, wanted};
      ASSERT_TRUE(p.executor->run(*p.workspace, {&s, 1}));
    }
    EXPECT_EQ(allocation_count() - before, 0);
  }
}

// Address ranges, ascending, that this process has mapped for itself.
std::vector<std::pair<uintptr_t, uintptr_t>> own_mappings() {
  std::vector<std::pair<uintptr_t, uintptr_t>> found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    char* end = nullptr;
    const uintptr_t first = std::strtoull(line.c_str(), &end, 16);
    const uintptr_t last = std::strtoull(end + 1, nullptr, 16);
    if (line.find(" rw-p 00000000 00:00 0 ") != std::string::npos) found.push_back({first, last});
  }
  return found;
}

// What of `all` is not in `before`.
std::vector<std::pair<uintptr_t, uintptr_t>> new_mappings(
    const std::vector<std::pair<uintptr_t, uintptr_t>>& before,
    const std::vector<std::pair<uintptr_t, uintptr_t>>& all) {
  std::vector<std::pair<uintptr_t, uintptr_t>> found;
  for (auto [first, last] : all) {
    for (const auto& [old_first, old_last] : before) {
      if (old_last <= first || old_first >= last) continue;
      if (old_first > first) found.push_back({first, old_first});
      first = std::min(last, old_last);
    }
    if (first < last) found.push_back({first, last});
  }
  return found;
}

size_t resident_pages(const std::vector<std::pair<uintptr_t, uintptr_t>>& ranges) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  size_t pages = 0;
  for (const auto& [first, last] : ranges) {
    std::vector<unsigned char> there((last - first) / page);
    EXPECT_EQ(::mincore(reinterpret_cast<void*>(first), last - first, there.data()), 0);
    pages += static_cast<size_t>(
        std::count_if(there.begin(), there.end(), [](unsigned char c) { return (c & 1) != 0; }));
  }
  return pages;
}

// A set that holds `rows` rows which no kernel has written.
std::unique_ptr<cache::CacheSet> filled(const Prepared& p, const Decoder& d, int64_t rows) {
  auto caches = p.caches(d.model, {.max_positions = rows + 100});
  for (int64_t n; (n = std::min<int64_t>(256, rows - caches->length())) > 0;) {
    CULET_CHECK(caches->reserve(n).has_value());
    caches->commit(n);
  }
  return caches;
}

// Verifies memory.memory-known-in-advance.
TEST(Executor, ScratchDoesNotGrowWithTheContext) {
  Decoder d(true, true);
  const std::vector<int32_t> tokens = some_tokens(64), wanted = {0};
  for (const int threads : {1, 4}) {
    Prepared p(d.model, threads, kWide);
    size_t pages[2] = {};
    for (size_t i = 0; i < 2; ++i) {
      const auto caches = filled(p, d, i == 0 ? 1024 : 131072);
      const auto before = own_mappings();
      const WorkspacePtr workspace = p.executor->make_workspace();
      const auto own = new_mappings(before, own_mappings());
      ASSERT_FALSE(own.empty());
      for (const size_t rows : {size_t{64}, size_t{1}}) {
        const SequenceChunk s{caches.get(), caches->length(), std::span(tokens).first(rows),
                              wanted};
        ASSERT_TRUE(p.executor->run(*workspace, {&s, 1}));
      }
      pages[i] = resident_pages(own);
    }
    EXPECT_GT(pages[0], 0u);
    if (threads == 1) {
#ifdef __SANITIZE_ADDRESS__  // the list of blocks comes from mappings of its own there
      EXPECT_LE(pages[1], pages[0] + 64);
#else
      EXPECT_EQ(pages[1], pages[0]);
#endif
    } else {  // how work is spread differs; what there is for it does not
      const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
      EXPECT_LE(pages[1] * page, p.executor->workspace_bytes() + (size_t{1} << 20));
    }
  }
}

// Verifies memory.pool.
TEST(Executor, RefusalsLeaveSessionsAsTheyWere) {
  Decoder d(true, true);
  Prepared p(d.model, 1, kWide);
  auto roomy = p.caches(d.model);
  auto tight = p.caches(d.model, {.max_positions = 10});
  const std::vector<int32_t> tokens = some_tokens(11);
  const SequenceChunk batch[] = {{roomy.get(), 0, tokens, {}}, {tight.get(), 0, tokens, {}}};
  const auto full = p.executor->run(*p.workspace, batch);
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, ErrorCode::kExhausted);
  EXPECT_EQ(roomy->length(), 0);
  EXPECT_EQ(tight->length(), 0);

  const std::vector<int32_t> strange = {1, kVocabulary};
  const SequenceChunk s{roomy.get(), 0, strange, {}};
  const auto outside = p.executor->run(*p.workspace, {&s, 1});
  ASSERT_FALSE(outside);
  EXPECT_EQ(outside.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(roomy->length(), 0);
  EXPECT_EQ(p.run(roomy.get(), tokens, 11).size(), 11u * kVocabulary);
}

TEST(Executor, EveryOperationHasAKernel) {
  constexpr OpKind kAll[] = {
#define CULET_OP(name, ...) OpKind::name,
#include "plan/ops.def"
#undef CULET_OP
  };
  for (const OpKind kind : kAll) {
    plan::Plan plan;
    plan.ops.push_back(plan::make_op(kind, plan::kNone, 0));
    EXPECT_TRUE(check_supported(plan)) << plan::op_name(kind);
  }
}

// A draft model's pass: the caller's row, a cache that only lends its length and keeps it.
TEST(Executor, HandedInRowsAreTheCallers) {
  TestModel m;
  const ValueId x = m.value({5});
  m.op(OpKind::input, {}, {x});
  m.plan.outputs = {{"y", x}};
  m.finish();
  Prepared p(m, 1);
  const auto caches = p.caches(m);
  ASSERT_TRUE(caches->reserve(7));
  caches->commit(7);
  const int32_t token = 0;
  const std::vector<float> row{1, -2, 3.5f, 0, 5};
  const SequenceChunk sequence{nullptr, 7, {&token, 1}, {}, caches.get(), row};
  ASSERT_TRUE(p.executor->run(*p.workspace, {&sequence, 1}));
  const auto y = p.executor->output(*p.workspace, "y");
  EXPECT_EQ(std::vector<float>(y.begin(), y.end()), row);
  EXPECT_EQ(caches->length(), 7);
}

// Verifies files.quantized-types.
TEST(Executor, OpsAndTypesWithoutKernelsAreRefusedByName) {
  base::ThreadPool pool(1);
  const kernels::Kernels kernels = kernel_table();
  {
    TestModel m;
    const ValueId x = m.value({2, 16}), y = m.value({32});
    const int32_t cache = m.cache({.name = "kv", .kv_heads = 2, .head_dim = 16, .value_dim = 16});
    m.op(OpKind::embed, {}, {x}, {m.matrix(TensorType::F32, 4, 32)});
    m.op(OpKind::attend, {x}, {y}, {},
         plan::AttendAttributes{.cache = cache,
                                .heads = 2,
                                .kv_heads = 2,
                                .head_dim = 16,
                                .value_dim = 16,
                                .mask = plan::Mask::kFull});
    m.finish();
    const auto made = Executor::prepare(m.plan, m.file, kernels, pool, {});
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(made.error().message.find("a line of text"), std::string::npos)
        << made.error().message;
  }
  TestModel m;  // int8 rows against float weights: the plan should not ask for that
  const ValueId x = m.value({32}), q = m.value({32}, TokenSet::kAll, Form::kQuantized),
                y = m.value({16});
  m.op(OpKind::embed, {}, {x}, {m.matrix(TensorType::F32, 4, 32)});
  m.op(OpKind::quantize, {x}, {q});
  m.op(OpKind::linear, {q}, {y}, {m.matrix(TensorType::F32, 16, 32), plan::kNone});
  m.finish();
  const auto made = Executor::prepare(m.plan, m.file, kernels, pool, {});
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message.find("F32"), std::string::npos) << made.error().message;
}

// Verifies reports-loading.xllama#58.
TEST(Executor, ProgressEndsAtAll) {
  Decoder d(true, true);
  base::ThreadPool pool(2);
  const kernels::Kernels kernels = kernel_table();
  uint64_t last = 0, all = 1;
  PrepareOptions options;
  options.progress = [&](uint64_t done, uint64_t sum) {
    EXPECT_GT(done, last);
    last = done, all = sum;
    return true;
  };
  const auto made = Executor::prepare(d.model.plan, d.model.file, kernels, pool, options);
  ASSERT_TRUE(made);
  EXPECT_EQ(last, all);
  EXPECT_GE((*made)->packed_bytes(), all);
  EXPECT_EQ((*made)->output_width("y"), kVocabulary);
  EXPECT_GT((*made)->workspace_bytes(), 0u);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they need address space
void make_workspace_without_memory(const Executor& executor) {
  const rlimit none{0, 0};  // what is mapped stays
  ::setrlimit(RLIMIT_AS, &none);
  std::_Exit(executor.make_workspace() == nullptr ? 7 : 1);
}

TEST(ExecutorDeathTest, AWorkspaceThatDoesNotFitIsNull) {
  Decoder d(true, true);
  base::ThreadPool pool(1);
  const kernels::Kernels kernels = kernel_table();
  const auto made = Executor::prepare(d.model.plan, d.model.file, kernels, pool, {});
  ASSERT_TRUE(made);
  EXPECT_EXIT(make_workspace_without_memory(**made), testing::ExitedWithCode(7), "");
}
#endif

}  // namespace
}  // namespace culet::backend::test
