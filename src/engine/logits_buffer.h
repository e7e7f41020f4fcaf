// Logits that forks share until one of them computes new ones.
#pragma once

#include "cache/memory_pool.h"

#include <algorithm>
#include <span>
#include <utility>

namespace culet::engine {

// A copy shares the values, in a block of the model's memory. What is shared is not written again:
// set() then takes another block. The model outlives the buffer. A buffer belongs to one thread at
// a time; copies may live on different threads.
class LogitsBuffer {
 public:
  explicit operator bool() const { return static_cast<bool>(block_); }
  std::span<const float> values() const {
    return block_ ? std::span<const float>(reinterpret_cast<const float*>(block_.data()), size_)
                  : std::span<const float>();
  }
  // False: the pool has no memory, and nothing changed.
  bool set(cache::MemoryPool& pool, std::span<const float> values) {
    if (!block_ || block_.shared() || size_ != values.size()) {
      cache::BlockRef block = pool.take(pool.size_class(values.size_bytes()));
      if (!block) return false;
      block_ = std::move(block);
      size_ = values.size();
    }
    std::copy(values.begin(), values.end(), reinterpret_cast<float*>(block_.data()));
    return true;
  }
  void clear() { block_ = cache::BlockRef(); }
  const cache::BlockRef& block() const { return block_; }  // empty: there are no values

 private:
  cache::BlockRef block_;
  size_t size_ = 0;
};

}  // namespace culet::engine
