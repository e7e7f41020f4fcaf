// The caches and states of all layers of one session: a LayerCache for each CacheSpec of the plan,
// a StateCache for each StateSpec, moved together.
#pragma once

#include "cache/layer_cache.h"
#include "cache/memory_pool.h"
#include "cache/state_cache.h"
#include "plan/plan.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace culet::cache {

// An endless session: layers that would keep every key and value keep those of the first `sinks`
// tokens and of the last `window`.
struct Stream {
  int64_t sinks = 4;
  int64_t window = 4092;
};

struct CacheOptions {
  kernels::KvType k_type = kernels::kKvF16, v_type = kernels::kKvF16;
  // Of layers with a window, where they differ.
  std::optional<std::pair<kernels::KvType, kernels::KvType>> window_types{};
  int64_t max_positions = 4096;  // reserve() past this is kExhausted; a stream has no such limit
  int64_t rewind_reserve = 32;   // tokens that truncate() can always take back
  std::optional<Stream> stream{};
  Position start = 0;  // position of the first token, a multiple of 32
};

// What one layer keeps under these options.
KvShape shape_of(const plan::CacheSpec& spec, const CacheOptions& options);
CacheWindow cache_window_of(const plan::CacheSpec& spec, const CacheOptions& options);

// Bytes of a layer when `tokens` have been appended.
struct LayerBytes {
  uint64_t payload = 0;    // of the keys and values that the next token sees
  uint64_t allocated = 0;  // of whole blocks between passes, at most
  uint64_t in_a_pass = 0;  // the same during a forward pass of `ubatch_size` tokens
};
LayerBytes layer_bytes(const plan::CacheSpec& spec, const CacheOptions& options, int64_t tokens,
                       int64_t ubatch_size);
// Bytes of the blocks of a state, at most.
uint64_t state_bytes(const plan::StateSpec& spec);

// Bytes of the pool that a set holds, with what rounding adds.
struct HeldBytes {
  uint64_t own = 0, shared = 0;  // shared: of blocks that a fork holds too
  uint64_t all() const { return own + shared; }
};

// A copy is a fork: it shares all memory until one of the two appends.
class CacheSet {
 public:
  // pool: of the model; null: one of its own without a limit. Takes nothing from it yet.
  // Error: kInvalidArgument, for specifications or options that make no sense.
  static Result<std::unique_ptr<CacheSet>> make(const plan::Plan& plan, const CacheOptions& options,
                                                std::shared_ptr<MemoryPool> pool = nullptr);

  LayerCache& at(int32_t cache) { return layers_[static_cast<size_t>(cache)]; }
  const LayerCache& at(int32_t cache) const { return layers_[static_cast<size_t>(cache)]; }
  StateCache& state(int32_t state) { return states_[static_cast<size_t>(state)]; }

  Position length() const { return length_; }  // the next token's position
  // Position from which the query of the token at p meets the keys of sinks: inside the cache, not
  // in the stream.
  Position sink_query_position(Position p) const {
    if (!options_.stream) return p;
    return options_.start +
           std::min(p - options_.start, options_.stream->sinks + options_.stream->window - 1);
  }
  // Makes room for tokens [length, length + n) in every layer. Error: kExhausted; nothing changed.
  Result<void> reserve(int64_t n);
  void commit(int64_t n);  // length += n
  bool can_truncate(Position length) const;
  Truncation truncate(Position length);  // all layers or none
  // The lowest length behind the sinks that truncate() can go back to; length() if there is none.
  Position rewind_limit() const;
  void clear();

  // f(const BlockRef&), for each block of each layer.
  template <class F>
  void for_each_block(const F& f) const {
    for (const LayerCache& layer : layers_) layer.for_each_block(f);
    for (const StateCache& state : states_) state.for_each_block(f);
  }
  HeldBytes held_bytes() const;
  // Bytes that a fork kept from now on holds alone once this set has gone on for ever, at most.
  uint64_t checkpoint_bytes() const;
  const CacheOptions& options() const { return options_; }

  bool save(const Sink& sink) const;
  // Takes over what save() wrote for a set of the same plan and options. Error: kCorrupt,
  // kExhausted; then the set is empty.
  Result<void> load(Position length, const Source& source);

 private:
  std::shared_ptr<MemoryPool> pool_;
  std::vector<LayerCache> layers_;
  std::vector<StateCache> states_;
  CacheOptions options_;
  Position length_ = 0, previous_length_ = -1;  // previous: before the last commit; -1: not known
};

}  // namespace culet::cache
