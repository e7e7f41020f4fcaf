// All memory of one session: a LayerCache for each CacheSpec of the plan, a StateCache for each
// StateSpec, moved together.
#pragma once

#include "cache/layer_cache.h"
#include "cache/state_cache.h"
#include "plan/plan.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace culet::cache {

// Keys and values that every layer but the windowed ones keep for ever become: the first `pinned`
// rows of the session and the last `window`.
struct Stream {
  int64_t pinned = 4;
  int64_t window = 4092;
};

struct CacheOptions {
  kernels::KvType k_type = kernels::kKvF16, v_type = kernels::kKvF16;
  // Of layers with a window, where they differ.
  std::optional<std::pair<kernels::KvType, kernels::KvType>> window_types{};
  int64_t max_positions = 4096;  // reserve() past this is kExhausted; a stream has no such limit
  int64_t rewind_reserve = 32;   // rows that truncate() can always take back
  std::optional<Stream> stream{};
  Position start = 0;  // position of the first row, a multiple of 32
};

// What one layer keeps under these options.
KvShape shape_of(const plan::CacheSpec& spec, const CacheOptions& options);
Retention retention_of(const plan::CacheSpec& spec, const CacheOptions& options);

// Bytes of a layer when `tokens` have been appended.
struct LayerBytes {
  uint64_t payload = 0;    // of the rows that the next token sees
  uint64_t allocated = 0;  // of whole blocks between passes, at most
  uint64_t in_a_pass = 0;  // the same during a pass of `pass_rows` rows
};
LayerBytes layer_bytes(const plan::CacheSpec& spec, const CacheOptions& options, int64_t tokens,
                       int64_t pass_rows);

// A copy is a fork: it shares all memory until one of the two appends.
class CacheSet {
 public:
  // Error: kInvalidArgument, for specifications or options that make no sense.
  static Result<std::unique_ptr<CacheSet>> make(const plan::Plan& plan,
                                                const CacheOptions& options);

  LayerCache& at(int32_t cache) { return layers_[static_cast<size_t>(cache)]; }
  const LayerCache& at(int32_t cache) const { return layers_[static_cast<size_t>(cache)]; }
  StateCache& state(int32_t state) { return states_[static_cast<size_t>(state)]; }

  Position length() const { return length_; }  // the next row's position
  // Position that pinned keys see row p at: inside the cache, not in the stream.
  Position pinned_position(Position p) const {
    if (!options_.stream) return p;
    return options_.start +
           std::min(p - options_.start, options_.stream->pinned + options_.stream->window - 1);
  }
  Result<void> reserve(int64_t n);  // rows [length, length + n) in every layer, or none
  void commit(int64_t n);           // length += n
  bool can_truncate(Position length) const;
  Truncation truncate(Position length);  // all layers or none
  void clear();

  size_t held_bytes() const;       // shared blocks too
  size_t allocated_bytes() const;  // of this set and all its forks
  const CacheOptions& options() const { return options_; }

  bool save(const Sink& sink) const;
  // Takes over what save() wrote for a set of the same plan and options. Error: kCorrupt,
  // kExhausted; then the set is empty.
  Result<void> load(Position length, const Source& source);

 private:
  std::vector<LayerCache> layers_;
  std::vector<StateCache> states_;
  CacheOptions options_;
  Position length_ = 0, previous_length_ = -1;  // previous: before the last commit; -1: not known
};

}  // namespace culet::cache
