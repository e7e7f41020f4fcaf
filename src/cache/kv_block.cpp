// Block memory: one aligned allocation a block (header, keys, values), recycled through the pool.
// Rows are never cleared: a row is visible only after it was written, and attention masks the rest.
#include "cache/kv_block.h"

#include "base/check.h"

#include <cstring>
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

size_t KvShape::row_bytes() const {
  return static_cast<size_t>(kv_heads) *
         static_cast<size_t>(kernels::kv_head_bytes(k_type, head_dim) +
                             kernels::kv_head_bytes(v_type, value_dim)) /
         kernels::kKvBlockRows;
}

// Elements of `size` bytes: keys lie [dim][32] a head, values [32][dim], and behind them, in the
// same two orders, the f16 scales of the types that have some.
void clear_rows(const KvShape& shape, int32_t rows, std::span<std::byte> block) {
  const auto first = static_cast<size_t>(rows), all = size_t{kernels::kKvBlockRows};
  const auto columns = [&](std::byte* at, size_t n, size_t size) {
    for (size_t i = 0; i < n; ++i)
      std::memset(at + (i * all + first) * size, 0, (all - first) * size);
  };
  const auto tail = [&](std::byte* at, size_t size) {
    std::memset(at + first * size, 0, (all - first) * size);
  };
  struct Part {
    size_t head, size, elements, scales;  // bytes: of a head, of an element, of all of them
  };
  const auto part = [&](kernels::KvType type, int32_t dim) {
    const auto head = static_cast<size_t>(kernels::kv_head_bytes(type, dim));
    const size_t size = static_cast<size_t>(kernels::kv_head_bytes(type, 32)) / (32 * all);
    const size_t elements = static_cast<size_t>(dim) * all * size;
    return Part{head, size, elements, head - elements};
  };
  const Part k = part(shape.k_type, shape.head_dim), v = part(shape.v_type, shape.value_dim);
  std::byte* keys = block.data();
  std::byte* values = block.data() + shape.k_block_bytes();
  for (int32_t h = 0; h < shape.kv_heads; ++h, keys += k.head, values += v.head) {
    columns(keys, static_cast<size_t>(shape.head_dim), k.size);
    columns(keys + k.elements, k.scales / (2 * all), 2);
    tail(values, v.elements / all);
    tail(values + v.elements, v.scales / all);
  }
  // What rounds keys and values up to 64 bytes is never written either.
  std::memset(keys, 0, static_cast<size_t>(block.data() + shape.k_block_bytes() - keys));
  std::memset(values, 0, static_cast<size_t>(block.data() + block.size() - values));
}

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
  trim();
  CULET_CHECK(allocated_ == 0);
}

void BlockPool::trim() {
  const std::lock_guard lock(mutex_);
  while (free_ != nullptr) {
    KvBlock* next = free_->next_free;
    ::operator delete(free_, kAlign);
    free_ = next;
    --allocated_;
  }
  free_count_ = 0;
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
