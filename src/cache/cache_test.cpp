// Random programs of reserve, commit, truncate and clear against a model that keeps every row's tag
// in a plain vector, and the rules of exactness.md one by one.
#include "cache/cache_set.h"
#include "cache/kv_block.h"

#include <gtest/gtest.h>

#include <cstring>
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

// The entries name exactly the rows [first, last], ascending, inside one block each.
void expect_rows(const LayerCache& cache, const std::vector<float>& tags, Position query_first,
                 Position last, Position first_key) {
  std::vector<KvEntry> entries;
  cache.view(query_first, last, &entries);
  Position next = first_key;
  for (const KvEntry& e : entries) {
    EXPECT_EQ(e.position, next);
    EXPECT_EQ(e.block_index, e.position / 32);
    EXPECT_EQ(e.first, e.position % 32);
    EXPECT_EQ(e.query, 0u);
    EXPECT_GT(e.rows, 0);
    EXPECT_LE(e.first + e.rows, 32);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(e.k) % 64, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(e.v) % 64, 0u);
    for (int32_t i = 0; i < e.rows; ++i) {
      EXPECT_EQ(read_tag(e, i), tags[static_cast<size_t>(next + i)]) << next + i;
    }
    next += e.rows;
  }
  EXPECT_EQ(next, last + 1);
}

struct Model {
  int64_t window;  // INT64_MAX: full
  int64_t reserve;
  std::vector<float> tags;
  int64_t oldest = 0;

  int64_t first_visible(int64_t p) const {
    return window == INT64_MAX ? 0 : std::max<int64_t>(0, p - window + 1);
  }
  void commit() {
    const int64_t length = static_cast<int64_t>(tags.size());
    oldest = std::max(oldest, first_visible(std::max<int64_t>(0, length - reserve)) / 32 * 32);
  }
  bool can_truncate(int64_t n) const {
    return n >= static_cast<int64_t>(tags.size()) || oldest <= first_visible(n);
  }
};

void random_program(LayerCache& cache, Model model, uint32_t seed) {
  std::mt19937 rng(seed);
  const auto pick = [&](int64_t n) {
    return static_cast<int64_t>(rng() % static_cast<uint64_t>(n));
  };
  float tag = 0;
  for (int step = 0; step < 400; ++step) {
    const int64_t length = static_cast<int64_t>(model.tags.size());
    const int64_t action = pick(20);
    if (action < 14) {
      const int64_t n = action < 8 ? 1 : pick(80);
      ASSERT_TRUE(cache.reserve(length, n));
      if (action == 13) {  // reserved, then given up
        EXPECT_EQ(cache.truncate(length), Truncation::kDone);
        continue;
      }
      for (int64_t i = 0; i < n; ++i) {
        model.tags.push_back(++tag);
        write_tag(cache, length + i, tag);
      }
      if (n > 0)
        expect_rows(cache, model.tags, length, length + n - 1, model.first_visible(length));
      cache.commit(length + n);
      model.commit();
    } else if (action < 19) {
      const int64_t n = action < 18 ? std::max<int64_t>(0, length - pick(40)) : pick(length + 10);
      const bool possible = model.can_truncate(n);
      EXPECT_EQ(cache.can_truncate(n), possible) << n << " of " << length;
      EXPECT_EQ(cache.truncate(n), possible ? Truncation::kDone : Truncation::kRebuildNeeded);
      if (possible && n < length) model.tags.resize(static_cast<size_t>(n));
    } else if (pick(4) == 0) {
      cache.clear();
      model.tags.clear();
      model.oldest = 0;
    }
  }
}

TEST(Cache, FullRandomPrograms) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    auto cache = make_full(kShape);
    random_program(*cache, {INT64_MAX, 0, {}}, seed);
  }
}

TEST(Cache, WindowRandomPrograms) {
  for (int64_t window : {1, 5, 32, 33, 100}) {
    for (int64_t reserve : {0, 7, 32, 64}) {
      for (uint32_t seed = 0; seed < 5; ++seed) {
        auto cache = make_window(kShape, window, reserve);
        random_program(*cache, {window, reserve, {}}, seed);
      }
    }
  }
}

TEST(Cache, WindowKeepsItsReserveAndDropsTheRest) {
  auto cache = make_window(kShape, 40, 16);
  for (int64_t p = 0; p < 5000; ++p) {
    ASSERT_TRUE(cache->reserve(p, 1));
    cache->commit(p + 1);
    EXPECT_TRUE(cache->can_truncate(std::max<int64_t>(0, p + 1 - 16))) << p;
  }
  const size_t block = kShape.k_block_bytes() + kShape.v_block_bytes() + sizeof(KvBlock);
  EXPECT_LE(cache->bytes(), 5 * block);
  EXPECT_EQ(cache->truncate(4000), Truncation::kRebuildNeeded);
  EXPECT_EQ(cache->truncate(4990), Truncation::kDone);
  EXPECT_EQ(cache->visibility().window, 40);
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

std::vector<plan::CacheSpec> specs() {
  plan::CacheSpec full{"kv", 0, plan::CachePolicy::kGlobal, 0, 2, 4, 4};
  plan::CacheSpec window{"kv", 1, plan::CachePolicy::kWindow, 48, 1, 8, 8};
  return {full, window};
}

TEST(CacheSet, MovesAllLayersTogether) {
  auto set = CacheSet::make(specs(), {.max_positions = 500, .rewind_reserve = 8});
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
  auto set = CacheSet::make(specs(), {.max_positions = 64});
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
  auto bad = specs();
  bad[1].window = 0;
  EXPECT_FALSE(CacheSet::make(bad, {}));
  bad = specs();
  bad[0].head_dim = 0;
  EXPECT_FALSE(CacheSet::make(bad, {}));
}

}  // namespace
}  // namespace culet::cache
