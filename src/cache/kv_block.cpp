// Block memory: one aligned allocation a block (header, keys, values), recycled through the pool.
// Rows are never cleared: a row is visible only after it was written, and attention masks the rest.
#include "cache/kv_block.h"

#include "base/check.h"

#include <new>

namespace culet::cache {
namespace {

constexpr std::align_val_t kAlign{64};

size_t round64(size_t n) { return (n + 63) / 64 * 64; }

size_t block_bytes(kernels::KvType type, int32_t kv_heads, int32_t dim) {
  CULET_CHECK(type < kernels::kKvTypeCount);
  return round64(static_cast<size_t>(kv_heads) *
                 static_cast<size_t>(kernels::kv_head_bytes(type, dim)));
}

}  // namespace

size_t KvShape::k_block_bytes() const { return block_bytes(k_type, kv_heads, head_dim); }

size_t KvShape::v_block_bytes() const { return block_bytes(v_type, kv_heads, value_dim); }

BlockRef::~BlockRef() {
  if (block_ != nullptr && block_->owners.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    block_->pool->give_back(block_);
  }
}

uint8_t* BlockRef::v() const { return k() + block_->pool->k_bytes(); }

BlockPool::BlockPool(const KvShape& shape)
    : k_bytes_(shape.k_block_bytes()),
      bytes_(sizeof(KvBlock) + shape.k_block_bytes() + shape.v_block_bytes()) {}

BlockPool::~BlockPool() {
  CULET_CHECK(allocated_ == static_cast<size_t>(free_count_));
  while (free_ != nullptr) {
    KvBlock* next = free_->next_free;
    ::operator delete(free_, kAlign);
    free_ = next;
  }
}

BlockRef BlockPool::take() {
  std::lock_guard lock(mutex_);
  if (free_ != nullptr) {
    KvBlock* block = free_;
    free_ = block->next_free;
    --free_count_;
    block->owners.store(1, std::memory_order_relaxed);
    return BlockRef(block);
  }
  void* memory = ::operator new(bytes_, kAlign, std::nothrow);
  if (memory == nullptr) return BlockRef();
  KvBlock* block = new (memory) KvBlock;
  block->pool = this;
  ++allocated_;
  return BlockRef(block);
}

void BlockPool::give_back(KvBlock* block) {
  std::lock_guard lock(mutex_);
  if (free_count_ < kKeptFree) {
    block->next_free = free_;
    free_ = block;
    ++free_count_;
    return;
  }
  --allocated_;
  ::operator delete(block, kAlign);
}

size_t BlockPool::bytes() const {
  std::lock_guard lock(mutex_);
  return allocated_ * bytes_;
}

}  // namespace culet::cache
