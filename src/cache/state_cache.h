// The state of one recurrent operation of one session: the last rows it has to remember.
//
// A pass reads current() and writes next(); commit() makes next() current. Nothing is ever changed
// in place, so a copy is a fork, and a pass that fails leaves the state as it was. The state before
// the last commit is kept: a rewind works that far, or to nothing.
#pragma once

#include "cache/stream_io.h"
#include "culet/result.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace culet::cache {

class StateCache {
 public:
  StateCache(int32_t rows, int32_t width);
  StateCache(const StateCache& other);  // a fork
  StateCache& operator=(const StateCache& other);

  int32_t rows() const { return rows_; }
  int32_t width() const { return width_; }
  const float* current() const { return current_->data(); }  // [rows, width]; zeros at the start
  float* next() { return next_->data(); }                    // after reserve()
  Result<void> reserve();                                    // error: kExhausted
  void commit();
  bool can_go_back() const { return previous_ != nullptr; }
  void go_back();  // to before the last commit
  void clear();
  size_t bytes() const { return 3 * current_->size() * sizeof(float); }

  bool save(const Sink& sink) const;
  Result<void> load(const Source& source);  // error: kCorrupt, then the state is as at the start

 private:
  using Buffer = std::shared_ptr<std::vector<float>>;
  Buffer make() const;

  int32_t rows_, width_;
  Buffer start_;     // zeros, shared by all copies
  Buffer current_;   // written only before it becomes current
  Buffer previous_;  // before the last commit; null: not known
  Buffer next_;      // null, or nobody else's
  // Others may read the buffer, so it is not written again.
  mutable std::atomic<bool> current_lent_{true}, previous_lent_{true};
};

}  // namespace culet::cache
