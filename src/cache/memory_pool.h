// The memory of all sessions of one model: blocks of several sizes, counted against one limit.
//
// A block has one writer. A second owner (a fork) makes it read-only: whoever wants to write to it
// takes a copy first (BlockRef::shared). A block without an owner is spare: the next take() of its
// size reuses it, and a take() of another size frees it when the limit leaves no room otherwise.
//
// Threads: a pool may be used by any number of threads; one lock for each block that is taken or
// given back. A BlockRef belongs to one thread at a time; copies may live on different threads.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace culet::cache {

class MemoryPool;
struct Block;

// All blocks of one size.
struct SizeClass {
  MemoryPool* pool;
  size_t bytes;            // of one allocation, its header included
  Block* spare = nullptr;  // a list
};

// The header of one allocation; its contents follow at 64 bytes.
struct alignas(64) Block {
  std::atomic<int32_t> owners{1};
  SizeClass* size = nullptr;
  Block* next_spare = nullptr;
};

// One owner's hold on a block; empty after a move.
class BlockRef {
 public:
  BlockRef() = default;
  explicit BlockRef(Block* block) : block_(block) {}  // takes over one count
  BlockRef(const BlockRef& other) : block_(other.block_) {
    if (block_ != nullptr) block_->owners.fetch_add(1, std::memory_order_relaxed);
  }
  BlockRef(BlockRef&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
  BlockRef& operator=(BlockRef other) noexcept {
    std::swap(block_, other.block_);
    return *this;
  }
  ~BlockRef();

  explicit operator bool() const { return block_ != nullptr; }
  uint8_t* data() const { return reinterpret_cast<uint8_t*>(block_ + 1); }  // aligned to 64 bytes
  size_t bytes() const { return block_->size->bytes; }  // as the pool counts it, with the header
  bool shared() const { return block_->owners.load(std::memory_order_acquire) > 1; }
  const Block* block() const { return block_; }

 private:
  Block* block_ = nullptr;
};

// Outlives its blocks.
class MemoryPool {
 public:
  // limit: bytes of blocks and charges together. set_aside: bytes of the limit that only charge()
  // can take.
  explicit MemoryPool(uint64_t limit = UINT64_MAX, uint64_t set_aside = 0);
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  // Of blocks with room for `contents` bytes; valid as long as the pool.
  SizeClass& size_class(size_t contents);
  // Empty: the limit is reached, or the system has no more. The contents are garbage.
  BlockRef take(SizeClass& size);
  void give_back(Block* block);  // by the last owner

  // Counts memory that does not come from here (workspaces). False: the limit is reached.
  bool charge(uint64_t bytes);
  void discharge(uint64_t bytes);

  void trim();  // frees all spare blocks

  struct Account {
    uint64_t limit = 0;
    uint64_t charged = 0;
    uint64_t used = 0;   // blocks with an owner; one with several counts once
    uint64_t spare = 0;  // blocks without
  };
  Account account() const;
  // Why there is no room, as the second half of a sentence with the numbers of the account.
  std::string shortage() const;

 private:
  // Both under the lock:
  bool make_room(uint64_t blocks, uint64_t charges);  // frees spare blocks as far as needed
  void free_spare(SizeClass* size);                   // one block

  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<SizeClass>> sizes_;
  const uint64_t limit_, set_aside_;
  uint64_t charged_ = 0, used_ = 0, spare_ = 0;
};

// "1.5 GiB", "20 MiB", "3 KiB": for messages.
std::string show_bytes(uint64_t bytes);

}  // namespace culet::cache
