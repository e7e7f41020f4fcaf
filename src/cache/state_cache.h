// The state of one recurrent operation of one session: the last inputs that it has to remember.
//
// A forward pass reads current() and writes next(); commit() makes next() current. Nothing is ever
// changed in place, so a copy is a fork, and a pass that fails leaves the state as it was. The
// state before the last commit is kept: a rewind works that far, or to nothing.
#pragma once

#include "base/check.h"
#include "cache/memory_pool.h"
#include "cache/stream_io.h"
#include "culet/result.h"

#include <cstdint>
#include <memory>

namespace culet::cache {

class StateCache {
 public:
  StateCache(std::shared_ptr<MemoryPool> pool, int32_t tokens, int32_t width);
  StateCache(const StateCache& other);  // a fork; next() stays with the other
  StateCache(StateCache&& other) noexcept = default;
  StateCache& operator=(StateCache other) noexcept;

  // Valid after reserve(): [tokens, width], zeros at the start.
  const float* current() const { return floats(current_); }
  float* next() { return floats(next_); }
  bool reserve();       // false: no memory; nothing changed
  void undo_reserve();  // before a commit
  void commit();
  bool can_go_back() const { return static_cast<bool>(previous_); }
  void go_back();  // to before the last commit
  void clear();

  // Bytes of the pool that the next reserve() needs.
  uint64_t needed_bytes() const;
  // Bytes that a fork kept from now on holds alone once this cache has gone on.
  uint64_t checkpoint_bytes() const;
  template <class F>
  void for_each_block(const F& f) const {
    for (const BlockRef* block : {&current_, &previous_, &next_})
      if (*block) f(*block);
  }

  bool save(const Sink& sink) const;
  Result<void> load(
      const Source& source);  // kCorrupt, kExhausted: then the state is as at the start

 private:
  static float* floats(const BlockRef& block) {
    CULET_CHECK(block);
    return reinterpret_cast<float*>(block.data());
  }
  size_t bytes() const {
    return static_cast<size_t>(tokens_) * static_cast<size_t>(width_) * sizeof(float);
  }

  std::shared_ptr<MemoryPool> pool_;  // above the blocks: goes after them
  SizeClass* size_;
  int32_t tokens_, width_;
  BlockRef current_;    // empty: zeros
  BlockRef previous_;   // before the last commit; empty: not known
  BlockRef next_;       // empty, or nobody else's
  bool fresh_ = false;  // current_ was made by reserve() and is not committed yet
};

}  // namespace culet::cache
