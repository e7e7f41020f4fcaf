// All caches of one session: one LayerCache for each CacheSpec of the plan.
#pragma once

#include "cache/layer_cache.h"
#include "plan/plan.h"

#include <memory>
#include <span>
#include <vector>

namespace culet::cache {

struct CacheOptions {
  kernels::KvType k_type = kernels::kKvF16, v_type = kernels::kKvF16;
  int64_t max_positions = 4096;  // reserve() past this is kExhausted, with both numbers
  int64_t rewind_reserve = 32;   // rows that truncate() can always take back from a window
};

class CacheSet {
 public:
  static Result<std::unique_ptr<CacheSet>> make(std::span<const plan::CacheSpec> specs,
                                                CacheOptions options);

  LayerCache& at(int32_t cache) { return *layers_[static_cast<size_t>(cache)]; }
  const LayerCache& at(int32_t cache) const { return *layers_[static_cast<size_t>(cache)]; }
  int64_t length() const { return length_; }  // committed rows
  Result<void> reserve(int64_t n);            // rows [length, length + n) in every layer, or none
  void commit(int64_t n);                     // length += n
  Truncation truncate(int64_t length);        // all layers or none
  void clear();
  size_t bytes() const;
  const CacheOptions& options() const { return options_; }

 private:
  std::vector<std::unique_ptr<LayerCache>> layers_;
  CacheOptions options_;
  int64_t length_ = 0;
};

}  // namespace culet::cache
