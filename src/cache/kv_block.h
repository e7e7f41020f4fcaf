// Blocks of 32 K and V rows with an intrusive reference count, and the pool they come from.
//
// A block is written by one owner only; a second owner (fork, snapshot) makes it read-only, and who
// wants to write then takes a copy in the reserve step (BlockRef::shared). The count is atomic and
// the pool locked, because owners may live on different threads.
#pragma once

#include "kernels/kernels.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace culet::cache {

using Position = int64_t;

constexpr int64_t kBlockRows = kernels::kKvBlockRows;

struct KvShape {
  kernels::KvType k_type = kernels::kKvF16, v_type = kernels::kKvF16;
  int32_t kv_heads = 0, head_dim = 0, value_dim = 0;
  size_t k_block_bytes() const;  // one block of 32 rows
  size_t v_block_bytes() const;
  size_t row_bytes() const;  // of one row, without what a block adds
};

class BlockPool;

// Header of one allocation; the keys follow at 64 bytes, the values after the keys.
struct alignas(64) KvBlock {
  std::atomic<int32_t> owners{1};
  BlockPool* pool = nullptr;
  KvBlock* next_free = nullptr;  // only while in the pool
};

// One owner's hold on a block; empty after a move.
class BlockRef {
 public:
  BlockRef() = default;
  explicit BlockRef(KvBlock* block) : block_(block) {}  // takes over one count
  BlockRef(const BlockRef& other) : block_(other.block_) { add(); }
  BlockRef(BlockRef&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
  BlockRef& operator=(BlockRef other) noexcept {
    std::swap(block_, other.block_);
    return *this;
  }
  ~BlockRef();

  explicit operator bool() const { return block_ != nullptr; }
  uint8_t* k() const { return reinterpret_cast<uint8_t*>(block_ + 1); }
  uint8_t* v() const;
  bool shared() const { return block_->owners.load(std::memory_order_acquire) > 1; }

 private:
  void add() {
    if (block_ != nullptr) block_->owners.fetch_add(1, std::memory_order_relaxed);
  }
  KvBlock* block_ = nullptr;
};

// Blocks of one shape. Keeps a free one, so that a window turns over without the allocator.
// Outlives its blocks: every cache that may hold one shares the pool.
class BlockPool {
 public:
  explicit BlockPool(const KvShape& shape);
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  BlockRef take();                               // empty: out of memory. The rows hold garbage.
  void give_back(KvBlock* block);                // by the last owner
  void trim();                                   // frees what nobody uses
  size_t block_bytes() const { return bytes_; }  // of the allocation
  size_t row_bytes() const { return bytes_ - sizeof(KvBlock); }  // of the keys and values in it
  size_t k_bytes() const { return k_bytes_; }
  size_t bytes() const;  // of all blocks, used and free

 private:
  static constexpr int kKeptFree = 1;
  mutable std::mutex mutex_;
  KvBlock* free_ = nullptr;
  int free_count_ = 0;
  size_t allocated_ = 0;    // blocks
  size_t k_bytes_, bytes_;  // of the keys; of a whole allocation
};

// Makes rows [rows, 32) of a block's bytes (keys, then values) zero.
void clear_rows(const KvShape& shape, int32_t rows, std::span<std::byte> block);

}  // namespace culet::cache
