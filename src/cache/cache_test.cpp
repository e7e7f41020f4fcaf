// Random programs of reserve, commit, truncate, fork, save and clear against a model that keeps
// every row's tag in a plain vector, and the rules of rows and blocks one by one.
#include "cache/cache_set.h"
#include "cache/kv_block.h"
#include "plan/plan_test_support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <random>
#include <vector>

namespace culet::cache {
namespace {

using kernels::KvEntry;

constexpr KvShape kShape{kernels::kKvF32, kernels::kKvF16, 2, 4, 6};

// A row's tag lies in the first key of head 0, where row r of the block has its lane.
void write_tag(LayerCache& cache, Position p, float tag) {
  const KvSlot slot = cache.slot(p);
  std::memcpy(slot.k_block + 4 * static_cast<size_t>(slot.row), &tag, 4);
}

float read_tag(const KvEntry& entry, int32_t row) {
  float tag;
  std::memcpy(&tag, entry.k + 4 * static_cast<size_t>(entry.first + row), 4);
  return tag;
}

// What the cache should hold, kept simply: every row's tag, and where the rows begin that are left
// between the pinned blocks and the present.
struct Model {
  Retention retention;
  int64_t reserve;
  Position start = 0;
  std::vector<float> tags{};
  Position gap_end = 0;

  Position length() const { return start + static_cast<Position>(tags.size()); }
  Position pinned_blocks_end() const { return start + (retention.pinned + 31) / 32 * 32; }
  Position first_visible(Position p) const {
    return retention.full() ? start : std::max(start, p - retention.window + 1);
  }
  void commit() {
    if (retention.full()) return;
    const Position kept = first_visible(std::max(start, length() - reserve)) / 32 * 32;
    if (kept > pinned_blocks_end()) gap_end = std::max(gap_end, kept);
  }
  bool can_truncate(Position n) const {
    return n >= length() || gap_end == 0 || n <= pinned_blocks_end() || first_visible(n) >= gap_end;
  }
  void truncate(Position n) {
    if (n < length()) tags.resize(static_cast<size_t>(n - start));
    if (n <= pinned_blocks_end()) gap_end = 0;
  }
};

// The entries name exactly the rows that queries at [first, last] may see, ascending, inside one
// block each: pinned ones for the pinned query, then those of the window.
void expect_rows(const LayerCache& cache, const Model& model, Position first, Position last) {
  std::vector<KvEntry> entries;
  cache.view(first, last, &entries);
  const Position pinned_end = std::min(model.start + model.retention.pinned, last + 1);
  Position next =
      pinned_end > model.start ? model.start : std::max(model.first_visible(first), pinned_end);
  for (const KvEntry& e : entries) {
    EXPECT_EQ(e.position, next);
    EXPECT_EQ(e.block_index, e.position / 32);
    EXPECT_EQ(e.first, e.position % 32);
    EXPECT_EQ(e.query, e.position < pinned_end ? 1u : 0u);
    EXPECT_GT(e.rows, 0);
    EXPECT_LE(e.first + e.rows, 32);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(e.k) % 64, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(e.v) % 64, 0u);
    for (int32_t i = 0; i < e.rows; ++i) {
      EXPECT_EQ(read_tag(e, i), model.tags[static_cast<size_t>(next + i - model.start)])
          << next + i;
    }
    next += e.rows;
    if (next == pinned_end) next = std::max(model.first_visible(first), pinned_end);
  }
  EXPECT_EQ(next, last + 1);
}

struct Timeline {
  LayerCache cache;
  Model model;
};

void append_rows(Timeline* t, int64_t n, bool give_up, float* tag) {
  const Position length = t->model.length();
  ASSERT_TRUE(t->cache.reserve(length, n));
  if (give_up) {
    EXPECT_EQ(t->cache.truncate(length), Truncation::kDone);
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    t->model.tags.push_back(++*tag);
    write_tag(t->cache, length + i, *tag);
  }
  if (n > 0) expect_rows(t->cache, t->model, length, length + n - 1);
  t->cache.commit(length + n);
  t->model.commit();
}

// Three timelines that are appended to, cut, cleared, saved, and replaced by forks of each other.
void random_program(const Retention& retention, int64_t reserve, Position start, uint32_t seed) {
  std::mt19937 rng(seed);
  const auto pick = [&](int64_t n) {
    return static_cast<int64_t>(rng() % static_cast<uint64_t>(n));
  };
  float tag = 0;
  const Timeline fresh{LayerCache(kShape, retention, reserve, start), {retention, reserve, start}};
  std::vector<Timeline> all(3, fresh);
  for (int step = 0; step < 400; ++step) {
    Timeline& t = all[static_cast<size_t>(pick(3))];
    const Position length = t.model.length();
    const int64_t action = pick(22);
    if (action < 14) {
      append_rows(&t, action < 8 ? 1 : pick(80), action == 13, &tag);
    } else if (action < 19) {
      const Position n =
          action < 18 ? std::max(start, length - pick(40)) : start + pick(length - start + 10);
      const bool possible = t.model.can_truncate(n);
      EXPECT_EQ(t.cache.can_truncate(n), possible) << n << " of " << length;
      EXPECT_EQ(t.cache.truncate(n), possible ? Truncation::kDone : Truncation::kRebuildNeeded);
      if (possible) t.model.truncate(n);
    } else if (action < 21) {
      t = all[static_cast<size_t>(pick(3))];
    } else if (pick(4) == 0) {
      t.cache.clear();
      t.model.truncate(start);
    }
    if (step % 50 == 0) {
      std::vector<std::byte> bytes;
      ASSERT_TRUE(t.cache.save([&](std::span<const std::byte> b) {
        bytes.insert(bytes.end(), b.begin(), b.end());
        return true;
      }));
      size_t at = 0;
      ASSERT_TRUE(t.cache.load(t.model.length(), [&](std::span<std::byte> b) {
        if (b.size() > bytes.size() - at) return false;
        std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), b.size(), b.begin());
        at += b.size();
        return true;
      }));
      EXPECT_EQ(at, bytes.size());
    }
  }
}

TEST(Cache, FullRandomPrograms) {
  for (uint32_t seed = 0; seed < 20; ++seed) random_program({}, 0, 0, seed);
}

// Verifies reports-caches.mlx-lm#118.
TEST(Cache, WindowRandomPrograms) {
  for (int64_t window : {1, 5, 32, 33, 100}) {
    for (int64_t reserve : {0, 7, 32, 64}) {
      for (uint32_t seed = 0; seed < 5; ++seed) random_program({0, window}, reserve, 0, seed);
    }
  }
}

// Verifies reports-caches.mlx-lm#118.
TEST(Cache, StreamRandomPrograms) {
  for (int64_t pinned : {1, 4, 32, 70}) {
    for (int64_t window : {1, 5, 32, 33, 100}) {
      for (int64_t reserve : {0, 32}) {
        for (uint32_t seed = 0; seed < 5; ++seed)
          random_program({pinned, window}, reserve, seed % 2 == 0 ? 0 : 3200, seed);
      }
    }
  }
}

TEST(Cache, AForkSharesBlocksUntilItDiverges) {
  float tag = 0;
  Timeline a{LayerCache(kShape, {}, 32), {{}, 32}};
  append_rows(&a, 100, false, &tag);
  const size_t before = a.cache.allocated_bytes();
  Timeline b = a;
  EXPECT_EQ(b.cache.allocated_bytes(), before);  // one pool for both
  append_rows(&b, 1, false, &tag);               // copies the open block, no other
  const size_t block = a.cache.held_bytes() / 4;
  EXPECT_EQ(b.cache.allocated_bytes(), before + block);
  append_rows(&a, 1, false, &tag);  // alone on its block again
  EXPECT_EQ(b.cache.allocated_bytes(), before + block);
  expect_rows(a.cache, a.model, 100, 100);
  expect_rows(b.cache, b.model, 100, 100);
}

TEST(Cache, SavedBytesDoNotDependOnHistory) {
  const auto saved = [](const std::vector<int64_t>& chunks) {
    Timeline t{LayerCache(kShape, {4, 40}, 16), {{4, 40}, 16}};
    float tag = 0;
    for (int64_t n : chunks) append_rows(&t, n, false, &tag);
    std::vector<std::byte> bytes;
    EXPECT_TRUE(t.cache.save([&](std::span<const std::byte> b) {
      bytes.insert(bytes.end(), b.begin(), b.end());
      return true;
    }));
    return bytes.size();
  };
  EXPECT_EQ(saved({200, 11}), saved(std::vector<int64_t>(211, 1)));
}

TEST(Cache, LoadRefusesWhatThePolicyNeverMakes) {
  LayerCache cache(kShape, {4, 40}, 16);
  for (const int64_t gap : {int64_t{-1}, int64_t{100}, INT64_MAX, INT64_MIN}) {
    const auto source = [&](std::span<std::byte> out) {
      std::fill(out.begin(), out.end(), std::byte{0});
      if (out.size() == sizeof gap) std::memcpy(out.data(), &gap, sizeof gap);
      return true;
    };
    const auto loaded = cache.load(1000, source);
    ASSERT_FALSE(loaded) << gap;
    EXPECT_EQ(loaded.error().code, ErrorCode::kCorrupt);
    EXPECT_EQ(cache.held_bytes(), 0u);
  }
}

// Verifies reports-caches.ollama#16744.
TEST(Cache, WindowKeepsItsReserveAndDropsTheRest) {
  LayerCache cache(kShape, {0, 40}, 16);
  for (int64_t p = 0; p < 5000; ++p) {
    ASSERT_TRUE(cache.reserve(p, 1));
    cache.commit(p + 1);
    EXPECT_TRUE(cache.can_truncate(std::max<int64_t>(0, p + 1 - 16))) << p;
  }
  const size_t block = kShape.k_block_bytes() + kShape.v_block_bytes() + sizeof(KvBlock);
  EXPECT_LE(cache.allocated_bytes(), 5 * block);
  EXPECT_EQ(cache.truncate(4000), Truncation::kRebuildNeeded);
  EXPECT_EQ(cache.truncate(4990), Truncation::kDone);
  EXPECT_EQ(cache.visibility().window, 40);
}

TEST(Cache, BlockBytes) {
  EXPECT_EQ(kShape.k_block_bytes(), 2u * 4 * 32 * 4);
  EXPECT_EQ(kShape.v_block_bytes(), 2u * 6 * 32 * 2);
}

TEST(Cache, BlockIsSharedUntilTheLastOwnerLetsGo) {
  BlockPool pool(kShape);
  BlockRef a = pool.take();
  EXPECT_FALSE(a.shared());
  {
    BlockRef b = a;
    EXPECT_TRUE(a.shared());
    EXPECT_EQ(a.k(), b.k());
    EXPECT_EQ(a.v(), a.k() + kShape.k_block_bytes());
  }
  EXPECT_FALSE(a.shared());
  uint8_t* memory = a.k();
  a = BlockRef();
  EXPECT_EQ(pool.take().k(), memory);  // recycled
}

plan::Plan two_layers() {
  plan::Plan plan;
  plan.caches.push_back({"kv", 0, plan::CachePolicy::kGlobal, 0, 2, 4, 4});
  plan.caches.push_back({"kv", 1, plan::CachePolicy::kWindow, 48, 1, 8, 8});
  return plan;
}

// Verifies reports-caches.mlx-lm#118.
TEST(CacheSet, MovesAllLayersTogether) {
  auto set = CacheSet::make(two_layers(), {.max_positions = 500, .rewind_reserve = 8});
  ASSERT_TRUE(set);
  CacheSet& caches = **set;
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(caches.reserve(10));
    caches.commit(10);
  }
  EXPECT_EQ(caches.length(), 400);
  EXPECT_EQ(caches.truncate(100), Truncation::kRebuildNeeded);  // layer 1 has lost it,
  EXPECT_EQ(caches.length(), 400);
  EXPECT_TRUE(caches.at(0).can_truncate(100));  // layer 0 has not
  std::vector<KvEntry> entries;
  caches.at(0).view(399, 399, &entries);
  EXPECT_EQ(entries.size(), 13u);  // and kept all
  EXPECT_EQ(caches.truncate(395), Truncation::kDone);
  EXPECT_EQ(caches.length(), 395);
  caches.clear();
  EXPECT_EQ(caches.length(), 0);
  EXPECT_TRUE(caches.reserve(1));
}

TEST(CacheSet, ReserveIsAllOrNothing) {
  auto set = CacheSet::make(two_layers(), {.max_positions = 64});
  ASSERT_TRUE(set);
  ASSERT_TRUE((*set)->reserve(60));
  (*set)->commit(60);
  const auto result = (*set)->reserve(5);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kExhausted);
  EXPECT_NE(result.error().message.find("64 tokens: 60"), std::string::npos)
      << result.error().message;
  EXPECT_EQ((*set)->length(), 60);
  EXPECT_TRUE((*set)->reserve(4));
}

TEST(CacheSet, RefusesSpecsWithoutSense) {
  plan::Plan bad = two_layers();
  bad.caches[1].window = 0;
  EXPECT_FALSE(CacheSet::make(bad, {}));
  bad = two_layers();
  bad.caches[0].head_dim = 0;
  EXPECT_FALSE(CacheSet::make(bad, {}));
}

// ---------------------------------------------------------------- bytes known in advance

// A dense Gemma 4: every sixth layer is global, with heads of 512 numbers; the others have 256 and
// a window of 1,024.
struct Dense {
  const char* name;
  int32_t layers, width, heads, window_kv, global_kv;
};
constexpr Dense kDense[] = {{"12B", 48, 3840, 16, 8, 1}, {"31B", 60, 5376, 32, 16, 4}};

// The plan that gemma4.arch makes of a header with these shapes.
plan::Plan plan_of(const Dense& dense) {
  const auto size = [](int32_t n) { return static_cast<uint32_t>(n); };
  const auto is_local = [](int32_t layer) { return layer % 6 != 5; };
  plan::test::Header header("gemma4");
  const std::string attention = "gemma4.attention.";
  header.number("gemma4.block_count", size(dense.layers));
  header.number("gemma4.embedding_length", size(dense.width));
  header.number(attention + "head_count", size(dense.heads));
  header.number(attention + "sliding_window", 1024);
  header.number(attention + "key_length", 512).number(attention + "value_length", 512);
  header.number(attention + "key_length_swa", 256).number(attention + "value_length_swa", 256);
  header.real(attention + "layer_norm_rms_epsilon", 1e-6f);
  const uint64_t width = size(dense.width), heads = size(dense.heads), hidden = 64;
  header.tensor("token_embd.weight", {width, 64}).tensor("output_norm.weight", {width});
  header.tensor("rope_freqs.weight", {256});
  std::vector<uint32_t> kv_heads;
  std::vector<bool> local;
  for (int32_t i = 0; i < dense.layers; ++i) {
    local.push_back(is_local(i));
    kv_heads.push_back(size(is_local(i) ? dense.window_kv : dense.global_kv));
    const uint64_t dim = is_local(i) ? 256 : 512, kv = kv_heads.back() * dim;
    const auto add = [&](const char* name, std::vector<uint64_t> dims) {
      header.tensor("blk." + std::to_string(i) + "." + name + ".weight", std::move(dims));
    };
    for (const char* norm : {"attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"})
      add(norm, {width});
    add("attn_q_norm", {dim}), add("attn_k_norm", {dim});
    add("attn_q", {width, heads * dim}), add("attn_output", {heads * dim, width});
    add("attn_k", {width, kv});
    if (is_local(i)) add("attn_v", {width, kv});
    add("ffn_gate", {width, hidden}), add("ffn_up", {width, hidden});
    add("ffn_down", {hidden, width});
  }
  header.flags(attention + "sliding_window_pattern", local);
  header.numbers(attention + "head_count_kv", kv_heads);
  const auto model = header.model();
  const auto compiled =
      plan::compile_text(plan::test::builtin(), plan::test::arch_file("gemma4"), model->file, {});
  EXPECT_TRUE(compiled) << compiled.error().message;
  return compiled ? compiled->plan : plan::Plan();
}

// Requirement memory.memory-known-in-advance "memory known in advance": the bytes of each kind of
// layer, to the byte; whole blocks add less than 7 % at 32,768 tokens; scratch does not grow with
// the context
// Requirement reports-caches.ollama#16744 "ollama/ollama#16744, LostRuins/koboldcpp#2235,
// ikawrakow/ik_llama.cpp#1607: memory that grows, caches of eight times the size": window layers
// hold their window and no more; what a session takes is known, and refused where there is no room
TEST(LayerBytes, OfTheDenseGemma4Models) {
  struct Row {
    const char* types;
    CacheOptions options;
    uint64_t payload[2][3];  // 12B, 31B; at 32K, 128K, 256K tokens
  };
  CacheOptions f32, f16, f16_full;
  f32.k_type = f32.v_type = kernels::kKvF32;
  f16_full.window_types = {kernels::kKvF32, kernels::kKvF32};
  const Row rows[] = {
      {"f32",
       f32,
       {{1'744'830'464, 4'966'055'936, 9'261'023'232},
        {7'046'430'720, 23'152'558'080, 44'627'394'560}}},
      {"f16-full",
       f16_full,
       {{1'207'959'552, 2'818'572'288, 4'966'055'936},
        {4'362'076'160, 12'415'139'840, 23'152'558'080}}},
      {"f16",
       f16,
       {{872'415'232, 2'483'027'968, 4'630'511'616},
        {3'523'215'360, 11'576'279'040, 22'313'697'280}}},
  };
  for (size_t m = 0; m < 2; ++m) {
    const plan::Plan plan = plan_of(kDense[m]);
    ASSERT_EQ(plan.caches.size(), static_cast<size_t>(kDense[m].layers));
    for (const Row& row : rows) {
      for (size_t n = 0; n < 3; ++n) {
        const int64_t tokens = std::array{32768, 131072, 262144}[n];
        LayerBytes all;
        for (const plan::CacheSpec& spec : plan.caches) {
          const LayerBytes bytes = layer_bytes(spec, row.options, tokens, 256);
          all.payload += bytes.payload;
          all.allocated += bytes.allocated;
        }
        SCOPED_TRACE(std::string(kDense[m].name) + " " + row.types + " " + std::to_string(tokens));
        EXPECT_EQ(all.payload, row.payload[m][n]);
        EXPECT_GE(all.allocated, all.payload);
        EXPECT_LT(static_cast<double>(all.allocated), 1.07 * static_cast<double>(all.payload));
      }
    }
  }
}

// A fork from before a long append takes its blocks along when it goes.
TEST(CacheSet, ADroppedForkLeavesNothingBehind) {
  CacheOptions options;
  options.stream = Stream{4, 300};
  auto set = CacheSet::make(two_layers(), options);
  ASSERT_TRUE(set);
  std::optional<CacheSet> before;
  for (int i = 0; i < 20; ++i) {
    before.emplace(**set);
    for (int pass = 0; pass < 4; ++pass) {
      ASSERT_TRUE((*set)->reserve(250));
      (*set)->commit(250);
    }
    before.reset();
    EXPECT_EQ((*set)->allocated_bytes(), (*set)->held_bytes());
  }
}

// What is told in advance is what a set of caches takes.
// Verifies memory.memory-known-in-advance.
TEST(LayerBytes, AreWhatIsAllocated) {
  const plan::Plan plan = two_layers();
  for (const bool streams : {false, true}) {
    CacheOptions options{.max_positions = 5000};
    if (streams) options.stream = Stream{5, 200};
    auto set = CacheSet::make(plan, options);
    ASSERT_TRUE(set);
    for (int64_t n = 1; n <= 1500; ++n) {
      ASSERT_TRUE((*set)->reserve(1));
      (*set)->commit(1);
      uint64_t told = 0;
      for (const plan::CacheSpec& spec : plan.caches)
        told += layer_bytes(spec, options, n, 1).allocated;
      EXPECT_LE((*set)->held_bytes(), told) << n;
      if (n <= 32) {
        EXPECT_EQ((*set)->held_bytes(), told) << n;
      }
    }
  }
}

}  // namespace
}  // namespace culet::cache
