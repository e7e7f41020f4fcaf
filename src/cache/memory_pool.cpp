// One lock, a few lists, three sums.
//
// Contents are never cleared: a token's keys and values are visible only after they were written,
// and attention masks the rest of the block.
#include "cache/memory_pool.h"

#include "base/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

namespace culet::cache {
namespace {

constexpr std::align_val_t kAlign{64};

}  // namespace

BlockRef::~BlockRef() {
  if (block_ != nullptr && block_->owners.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    block_->size->pool->give_back(block_);
  }
}

MemoryPool::MemoryPool(uint64_t limit, uint64_t set_aside) : limit_(limit), set_aside_(set_aside) {
  CULET_CHECK(set_aside <= limit);
}

MemoryPool::~MemoryPool() {
  trim();
  CULET_CHECK(used_ == 0);
}

SizeClass& MemoryPool::size_class(size_t contents) {
  const size_t bytes = sizeof(Block) + (contents + 63) / 64 * 64;
  const std::lock_guard lock(mutex_);
  for (const auto& size : sizes_) {
    if (size->bytes == bytes) return *size;
  }
  sizes_.push_back(std::make_unique<SizeClass>(SizeClass{this, bytes}));
  return *sizes_.back();
}

BlockRef MemoryPool::take(SizeClass& size) {
  const std::lock_guard lock(mutex_);
  if (Block* block = size.spare) {
    size.spare = block->next_spare;
    spare_ -= size.bytes;
    used_ += size.bytes;
    block->owners.store(1, std::memory_order_relaxed);
    return BlockRef(block);
  }
  if (!make_room(size.bytes, 0)) return BlockRef();
  void* memory = ::operator new(size.bytes, kAlign, std::nothrow);
  while (memory == nullptr && spare_ > 0) {
    for (const auto& other : sizes_) {
      if (other->spare != nullptr) free_spare(other.get());
    }
    memory = ::operator new(size.bytes, kAlign, std::nothrow);
  }
  if (memory == nullptr) return BlockRef();
  Block* block = new (memory) Block;
  block->size = &size;
  used_ += size.bytes;
  return BlockRef(block);
}

void MemoryPool::give_back(Block* block) {
  const std::lock_guard lock(mutex_);
  SizeClass& size = *block->size;
  block->next_spare = std::exchange(size.spare, block);
  used_ -= size.bytes;
  spare_ += size.bytes;
}

bool MemoryPool::charge(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (!make_room(0, bytes)) return false;
  charged_ += bytes;
  return true;
}

void MemoryPool::discharge(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  CULET_CHECK(bytes <= charged_);
  charged_ -= bytes;
}

bool MemoryPool::make_room(uint64_t blocks, uint64_t charges) {
  const uint64_t others = std::max(charged_ + charges, set_aside_);
  const auto fits = [&](uint64_t kept) { return others + used_ + blocks + kept <= limit_; };
  if (!fits(0)) return false;
  for (const auto& size : sizes_) {
    while (!fits(spare_) && size->spare != nullptr) free_spare(size.get());
  }
  return true;
}

void MemoryPool::free_spare(SizeClass* size) {
  Block* block = size->spare;
  size->spare = block->next_spare;
  spare_ -= size->bytes;
  ::operator delete(block, kAlign);
}

void MemoryPool::trim() {
  const std::lock_guard lock(mutex_);
  for (const auto& size : sizes_) {
    while (size->spare != nullptr) free_spare(size.get());
  }
}

MemoryPool::Account MemoryPool::account() const {
  const std::lock_guard lock(mutex_);
  return {limit_, charged_, used_, spare_};
}

std::string MemoryPool::shortage() const {
  const Account now = account();
  if (now.limit == UINT64_MAX) {
    return fmt::format("the system has no more; the sessions of this model hold {}",
                       show_bytes(now.used));
  }
  return fmt::format(
      "the sessions of this model hold {} of the {} that its memory limit leaves them",
      show_bytes(now.used), show_bytes(now.limit - std::max(now.charged, set_aside_)));
}

std::string show_bytes(uint64_t bytes) {
  constexpr uint64_t kKiB = 1 << 10, kMiB = 1 << 20, kGiB = 1 << 30;
  const auto in = [bytes](uint64_t unit) {
    return static_cast<double>(bytes) / static_cast<double>(unit);
  };
  if (bytes >= 10 * kGiB) return fmt::format("{:.1f} GiB", in(kGiB));
  if (bytes >= 10 * kMiB) return fmt::format("{:.0f} MiB", in(kMiB));
  if (bytes >= kMiB) return fmt::format("{:.1f} MiB", in(kMiB));
  return fmt::format("{} KiB", (bytes + kKiB - 1) / kKiB);
}

}  // namespace culet::cache
