// Random programs of reserve, commit, truncate, fork, save and clear against a model that keeps
// every token's tag in a plain vector, and the rules of tokens, blocks and bytes one by one.
#include "cache/cache_set.h"
#include "cache/kv_block.h"
#include "cache/memory_pool.h"
#include "plan/plan_test_support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <random>
#include <set>
#include <thread>
#include <vector>

namespace culet::cache {
namespace {

using kernels::KvEntry;

constexpr KvShape kShape{kernels::kKvF32, kernels::kKvF16, 2, 4, 6};

std::shared_ptr<MemoryPool> new_pool() { return std::make_shared<MemoryPool>(); }

size_t block_size(const KvShape& shape) { return sizeof(Block) + shape.block_bytes(); }

template <class Cache>
HeldBytes held_by(const Cache& cache) {
  HeldBytes held;
  cache.for_each_block(
      [&](const BlockRef& block) { (block.shared() ? held.shared : held.own) += block.bytes(); });
  return held;
}

// Bytes of the blocks that the caches hold, each block once.
template <class Caches>
uint64_t distinct_bytes(const Caches& caches) {
  std::set<const Block*> seen;
  uint64_t sum = 0;
  for (const auto* cache : caches) {
    cache->for_each_block([&](const BlockRef& block) {
      if (seen.insert(block.block()).second) sum += block.bytes();
    });
  }
  return sum;
}

// A token's tag lies in the first key of head 0, where row r of the block has its lane.
void write_tag(LayerCache& cache, Position p, float tag) {
  const KvSlot slot = cache.slot(p);
  std::memcpy(slot.k_block + 4 * static_cast<size_t>(slot.row), &tag, 4);
}

float read_tag(const KvEntry& entry, int32_t row) {
  float tag;
  std::memcpy(&tag, entry.k + 4 * static_cast<size_t>(entry.first + row), 4);
  return tag;
}

// What the cache should hold, kept simply: every token's tag, and where the tokens begin that are
// left between the blocks of sinks and the present.
struct Model {
  CacheWindow window;
  int64_t reserve;
  Position start = 0;
  std::vector<float> tags{};
  Position gap_end = 0;

  Position length() const { return start + static_cast<Position>(tags.size()); }
  Position sink_blocks_end() const { return start + (window.sinks + 31) / 32 * 32; }
  Position first_visible(Position p) const {
    return window.full() ? start : std::max(start, p - window.window + 1);
  }
  void commit() {
    if (window.full()) return;
    const Position kept = first_visible(std::max(start, length() - reserve)) / 32 * 32;
    if (kept > sink_blocks_end()) gap_end = std::max(gap_end, kept);
  }
  bool can_truncate(Position n) const {
    return n >= length() || gap_end == 0 || n <= sink_blocks_end() || first_visible(n) >= gap_end;
  }
  void truncate(Position n) {
    if (n < length()) tags.resize(static_cast<size_t>(n - start));
    if (n <= sink_blocks_end()) gap_end = 0;
  }
};

// The entries name exactly the tokens that queries at [first, last] may see, ascending, inside one
// block each: sinks for the sinks' query, then those of the window.
void expect_tokens(const LayerCache& cache, const Model& model, Position first, Position last) {
  std::vector<KvEntry> entries;
  cache.view(first, last, &entries);
  const Position sinks_end = std::min(model.start + model.window.sinks, last + 1);
  Position next =
      sinks_end > model.start ? model.start : std::max(model.first_visible(first), sinks_end);
  for (const KvEntry& e : entries) {
    EXPECT_EQ(e.position, next);
    EXPECT_EQ(e.block_index, e.position / 32);
    EXPECT_EQ(e.first, e.position % 32);
    EXPECT_EQ(e.query, e.position < sinks_end ? 1u : 0u);
    EXPECT_GT(e.rows, 0);
    EXPECT_LE(e.first + e.rows, 32);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(e.k) % 64, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(e.v) % 64, 0u);
    for (int32_t i = 0; i < e.rows; ++i) {
      EXPECT_EQ(read_tag(e, i), model.tags[static_cast<size_t>(next + i - model.start)])
          << next + i;
    }
    next += e.rows;
    if (next == sinks_end) next = std::max(model.first_visible(first), sinks_end);
  }
  EXPECT_EQ(next, last + 1);
}

struct Timeline {
  LayerCache cache;
  Model model;
};

void append_tokens(Timeline* t, int64_t n, bool give_up, float* tag) {
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
  if (n > 0) expect_tokens(t->cache, t->model, length, length + n - 1);
  t->cache.commit(length + n);
  t->model.commit();
}

// Three timelines that are appended to, cut, cleared, saved, and replaced by forks of each other.
void random_program(const CacheWindow& window, int64_t reserve, Position start, uint32_t seed) {
  const auto pool = new_pool();
  std::mt19937 rng(seed);
  const auto pick = [&](int64_t n) {
    return static_cast<int64_t>(rng() % static_cast<uint64_t>(n));
  };
  float tag = 0;
  const Timeline fresh{LayerCache(pool, kShape, window, reserve, start), {window, reserve, start}};
  std::vector<Timeline> all(3, fresh);
  for (int step = 0; step < 400; ++step) {
    Timeline& t = all[static_cast<size_t>(pick(3))];
    const Position length = t.model.length();
    const int64_t action = pick(22);
    if (action < 14) {
      append_tokens(&t, action < 8 ? 1 : pick(80), action == 13, &tag);
    } else if (action < 19) {
      const Position n =
          action < 18 ? std::max(start, length - pick(40)) : start + pick(length - start + 10);
      const bool possible = t.model.can_truncate(n);
      EXPECT_EQ(t.cache.can_truncate(n), possible) << n << " of " << length;
      const Position limit = t.cache.rewind_limit();
      EXPECT_EQ(possible, n >= limit || n <= t.model.sink_blocks_end()) << n << " of " << length;
      EXPECT_EQ(t.cache.truncate(n), possible ? Truncation::kDone : Truncation::kRebuildNeeded);
      if (possible) t.model.truncate(n);
    } else if (action < 21) {
      t = all[static_cast<size_t>(pick(3))];
    } else if (pick(4) == 0) {
      t.cache.clear();
      t.model.truncate(start);
    }
    // Every block is held by somebody, or spare.
    EXPECT_EQ(distinct_bytes(std::array{&all[0].cache, &all[1].cache, &all[2].cache}),
              pool->account().used);
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
  for (int64_t sinks : {1, 4, 32, 70}) {
    for (int64_t window : {1, 5, 32, 33, 100}) {
      for (int64_t reserve : {0, 32}) {
        for (uint32_t seed = 0; seed < 5; ++seed)
          random_program({sinks, window}, reserve, seed % 2 == 0 ? 0 : 3200, seed);
      }
    }
  }
}

TEST(Cache, AForkSharesBlocksUntilItDiverges) {
  float tag = 0;
  const auto pool = new_pool();
  const size_t block = block_size(kShape);
  Timeline a{LayerCache(pool, kShape, {}, 32), {{}, 32}};
  append_tokens(&a, 100, false, &tag);
  EXPECT_EQ(pool->account().used, 4 * block);
  EXPECT_EQ(held_by(a.cache).own, 4 * block);
  Timeline b = a;
  EXPECT_EQ(pool->account().used, 4 * block);
  EXPECT_EQ(held_by(a.cache).own, 0u);
  EXPECT_EQ(held_by(a.cache).shared, 4 * block);
  append_tokens(&b, 1, false, &tag);  // copies the open block, no other
  EXPECT_EQ(pool->account().used, 5 * block);
  EXPECT_EQ(held_by(a.cache).own, block);
  EXPECT_EQ(held_by(b.cache).own, block);
  append_tokens(&a, 1, false, &tag);  // alone on its block again
  EXPECT_EQ(pool->account().used, 5 * block);
  expect_tokens(a.cache, a.model, 100, 100);
  expect_tokens(b.cache, b.model, 100, 100);
}

TEST(Cache, SavedBytesDoNotDependOnHistory) {
  const auto saved = [](const std::vector<int64_t>& chunks) {
    Timeline t{LayerCache(new_pool(), kShape, {4, 40}, 16), {{4, 40}, 16}};
    float tag = 0;
    for (int64_t n : chunks) append_tokens(&t, n, false, &tag);
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
  LayerCache cache(new_pool(), kShape, {4, 40}, 16);
  for (const int64_t gap : {int64_t{-1}, int64_t{100}, INT64_MAX, INT64_MIN}) {
    const auto source = [&](std::span<std::byte> out) {
      std::fill(out.begin(), out.end(), std::byte{0});
      if (out.size() == sizeof gap) std::memcpy(out.data(), &gap, sizeof gap);
      return true;
    };
    const auto loaded = cache.load(1000, source);
    ASSERT_FALSE(loaded) << gap;
    EXPECT_EQ(loaded.error().code, ErrorCode::kCorrupt);
    EXPECT_EQ(held_by(cache).all(), 0u);
  }
}

// Verifies reports-caches.ollama#16744.
TEST(Cache, WindowKeepsItsReserveAndDropsTheRest) {
  LayerCache cache(new_pool(), kShape, {0, 40}, 16);
  for (int64_t p = 0; p < 5000; ++p) {
    ASSERT_TRUE(cache.reserve(p, 1));
    cache.commit(p + 1);
    EXPECT_TRUE(cache.can_truncate(std::max<int64_t>(0, p + 1 - 16))) << p;
  }
  EXPECT_LE(held_by(cache).all(), 5 * block_size(kShape));
  EXPECT_EQ(cache.truncate(4000), Truncation::kRebuildNeeded);
  EXPECT_EQ(cache.truncate(4990), Truncation::kDone);
  EXPECT_EQ(cache.visibility().window, 40);
}

TEST(Cache, BlockBytes) {
  EXPECT_EQ(kShape.k_block_bytes(), 2u * 4 * 32 * 4);
  EXPECT_EQ(kShape.v_block_bytes(), 2u * 6 * 32 * 2);
}

// What a fork kept as a checkpoint holds alone once the other has gone on: as told, to the byte.
TEST(Cache, ACheckpointCostsWhatIsTold) {
  for (const CacheWindow& window : {CacheWindow{}, CacheWindow{0, 5}, CacheWindow{0, 100},
                                    CacheWindow{4, 40}, CacheWindow{70, 33}, CacheWindow{64, 33}}) {
    for (const int64_t length : {1, 31, 32, 33, 64, 65, 150, 160, 500, 2000}) {
      float tag = 0;
      Timeline t{LayerCache(new_pool(), kShape, window, 32), {window, 32}};
      for (int64_t n; (n = std::min<int64_t>(50, length - t.model.length())) > 0;)
        append_tokens(&t, n, false, &tag);
      const uint64_t told = t.cache.checkpoint_bytes();
      const LayerCache checkpoint = t.cache;
      EXPECT_EQ(held_by(checkpoint).own, 0u);
      for (int i = 0; i < 40; ++i) append_tokens(&t, 10, false, &tag);
      EXPECT_EQ(held_by(checkpoint).own, told)
          << window.sinks << " sinks, window " << window.window << ", length " << length;
    }
  }
}

// ---------------------------------------------------------------- the pool

TEST(MemoryPool, ABlockIsSharedUntilTheLastOwnerLetsGo) {
  MemoryPool pool;
  SizeClass& size = pool.size_class(1000);
  BlockRef a = pool.take(size);
  EXPECT_EQ(a.bytes(), 64u + 1024u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data()) % 64, 0u);
  EXPECT_FALSE(a.shared());
  {
    BlockRef b = a;
    EXPECT_TRUE(a.shared());
    EXPECT_EQ(a.data(), b.data());
    EXPECT_EQ(pool.account().used, a.bytes());
  }
  EXPECT_FALSE(a.shared());
  uint8_t* memory = a.data();
  a = BlockRef();
  EXPECT_EQ(pool.account().used, 0u);
  EXPECT_EQ(pool.account().spare, 1088u);
  EXPECT_EQ(pool.take(pool.size_class(1024)).data(), memory);  // the same size, used again
  pool.trim();
  EXPECT_EQ(pool.account().spare, 0u);
}

TEST(MemoryPool, SpareBlocksOfOtherSizesGoBeforeTheLimitRefuses) {
  MemoryPool pool(10 * 1088);
  SizeClass &small = pool.size_class(1024), &large = pool.size_class(5 * 1088 - 64);
  std::vector<BlockRef> held;
  for (int i = 0; i < 10; ++i) held.push_back(pool.take(small));
  for (const BlockRef& block : held) ASSERT_TRUE(block);
  EXPECT_FALSE(pool.take(small));
  EXPECT_FALSE(pool.take(large));
  held.resize(6);
  EXPECT_FALSE(pool.take(large));              // 6 small ones and a large one are too many,
  EXPECT_EQ(pool.account().spare, 4u * 1088);  // so nothing is freed for it
  held.resize(5);
  const BlockRef one = pool.take(large);
  ASSERT_TRUE(one);
  EXPECT_EQ(pool.account().used, 10u * 1088);
  EXPECT_EQ(pool.account().spare, 0u);
  EXPECT_FALSE(pool.take(small));
}

TEST(MemoryPool, ChargesAndWhatIsSetAsideForThem) {
  MemoryPool pool(5000, 1000);
  SizeClass& size = pool.size_class(936);  // 1024 with the header
  std::vector<BlockRef> held;
  for (int i = 0; i < 3; ++i) {
    held.push_back(pool.take(size));
    ASSERT_TRUE(held.back());
  }
  EXPECT_FALSE(pool.take(size));  // 928 bytes are left beside what is set aside
  EXPECT_TRUE(pool.charge(1000));
  EXPECT_FALSE(pool.charge(929));
  EXPECT_TRUE(pool.charge(900));
  EXPECT_EQ(pool.account().charged, 1900u);
  held.clear();  // spare blocks give way to charges
  EXPECT_TRUE(pool.charge(2000));
  EXPECT_LE(pool.account().spare + pool.account().charged, 5000u);
  EXPECT_NE(pool.shortage().find("memory limit"), std::string::npos) << pool.shortage();
  pool.discharge(3900);
}

TEST(MemoryPool, ThreadsTakeAndGiveBack) {
  MemoryPool pool(200 * 1088);
  SizeClass &small = pool.size_class(1024), &large = pool.size_class(4 * 1088 - 64);
  std::vector<std::thread> threads;
  std::atomic<int> broken{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 rng(static_cast<uint32_t>(t));
      std::vector<BlockRef> held;
      for (int i = 0; i < 3000; ++i) {
        if (rng() % 3 != 0) {
          BlockRef block = pool.take(rng() % 4 == 0 ? large : small);
          if (!block) {
            held.clear();
            continue;
          }
          std::memset(block.data(), t, 1024);
          held.push_back(std::move(block));
        } else if (!held.empty()) {
          const size_t at = rng() % held.size();
          broken += held[at].data()[rng() % 1024] != t;
          held[at] = std::move(held.back());
          held.pop_back();
        }
        const MemoryPool::Account now = pool.account();
        broken += now.used + now.spare > now.limit;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(broken, 0);
  EXPECT_EQ(pool.account().used, 0u);
}

// ---------------------------------------------------------------- states

TEST(StateCache, GoesBackOnePassAndSharesWithForks) {
  const auto pool = new_pool();
  StateCache a(pool, 2, 8);
  EXPECT_EQ(pool->account().used, 0u);
  const auto pass = [](StateCache* state, float value) {
    ASSERT_TRUE(state->reserve());
    std::fill_n(state->next(), 16, value);
    state->commit();
  };
  ASSERT_TRUE(a.reserve());
  EXPECT_EQ(a.current()[7], 0.0f);
  a.undo_reserve();
  EXPECT_EQ(pool->account().used, 0u);
  pass(&a, 1), pass(&a, 2), pass(&a, 3);
  EXPECT_EQ(pool->account().used, 3u * 128);  // the state, the one before, and the next
  for (int i = 4; i < 100; ++i) {
    pass(&a, static_cast<float>(i));
    ASSERT_EQ(pool->account().used + pool->account().spare, 3u * 128);
  }
  EXPECT_EQ(a.checkpoint_bytes(), 2u * 128);
  const StateCache checkpoint = a;
  EXPECT_EQ(held_by(checkpoint).own, 0u);
  pass(&a, 100);
  EXPECT_EQ(held_by(checkpoint).own, 128u);
  pass(&a, 101), pass(&a, 102);
  EXPECT_EQ(held_by(checkpoint).own, 2u * 128);
  EXPECT_EQ(checkpoint.current()[0], 99.0f);
  EXPECT_TRUE(a.can_go_back());
  a.go_back();
  EXPECT_EQ(a.current()[3], 101.0f);
  EXPECT_FALSE(a.can_go_back());
  a.clear();
  EXPECT_EQ(held_by(a).all(), 0u);
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

plan::Plan with_states() {
  plan::Plan plan = two_layers();
  plan.states.push_back({"s", 0});
  plan.states.back().rows = 3, plan.states.back().width = 40;
  plan.states.push_back({"s", 1});
  plan.states.back().rows = 2, plan.states.back().width = 1000;
  return plan;
}

// A limit that is reached in any layer changes nothing, also where a fork's block was copied.
TEST(CacheSet, WhatDoesNotFitTheLimitChangesNothing) {
  const plan::Plan plan = with_states();
  for (uint64_t limit = 2000; limit < 120000; limit += 700) {
    const auto pool = std::make_shared<MemoryPool>(limit);
    auto set = CacheSet::make(plan, {}, pool);
    ASSERT_TRUE(set);
    CacheSet& one = **set;
    while (one.reserve(10)) one.commit(10);
    const auto other = std::make_unique<CacheSet>(one);
    const HeldBytes before = one.held_bytes();
    const Position length = one.length();
    std::vector<const Block*> blocks, now;
    one.for_each_block([&](const BlockRef& block) { blocks.push_back(block.block()); });
    for (const int64_t n : {1, 10, 100}) {
      const auto refused = one.reserve(n);
      if (refused) {  // what a state kept for its next pass was given back
        EXPECT_EQ(one.truncate(length), Truncation::kDone);
        continue;
      }
      EXPECT_EQ(refused.error().code, ErrorCode::kExhausted);
      EXPECT_NE(refused.error().message.find("memory limit"), std::string::npos)
          << refused.error().message;
      EXPECT_LE(one.held_bytes().all(), before.all());
      EXPECT_EQ(one.length(), length);
    }
    one.for_each_block([&](const BlockRef& block) { now.push_back(block.block()); });
    for (const Block* block : now)
      EXPECT_NE(std::find(blocks.begin(), blocks.end(), block), blocks.end());
    const uint64_t used = pool->account().used;
    if (!other->reserve(50)) {
      EXPECT_EQ(pool->account().used, used);
    }
    EXPECT_EQ(distinct_bytes(std::array{&one, other.get()}), pool->account().used);
    EXPECT_LE(pool->account().used + pool->account().spare, limit);
  }
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

// A fork from before a long append gives its blocks back when it goes.
TEST(CacheSet, ADroppedForkLeavesNothingBehind) {
  CacheOptions options;
  options.stream = Stream{4, 300};
  const auto pool = new_pool();
  auto set = CacheSet::make(two_layers(), options, pool);
  ASSERT_TRUE(set);
  std::optional<CacheSet> before;
  uint64_t most = 0;
  for (int i = 0; i < 20; ++i) {
    before.emplace(**set);
    for (int pass = 0; pass < 4; ++pass) {
      ASSERT_TRUE((*set)->reserve(250));
      (*set)->commit(250);
    }
    before.reset();
    EXPECT_EQ((*set)->held_bytes().own, pool->account().used);
    if (i == 2) most = pool->account().used + pool->account().spare;
    if (i > 2) {
      EXPECT_LE(pool->account().used + pool->account().spare, most);
    }
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
      EXPECT_LE((*set)->held_bytes().all(), told) << n;
      if (n <= 32) {
        EXPECT_EQ((*set)->held_bytes().all(), told) << n;
      }
    }
  }
}

}  // namespace
}  // namespace culet::cache
