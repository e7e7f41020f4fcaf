// One cache for each CacheSpec, moved together: reserve and truncate happen in every layer or in
// none.
#include "cache/cache_set.h"

#include "base/check.h"

#include <fmt/format.h>

namespace culet::cache {
namespace {

Result<void> check(const plan::CacheSpec& spec, const CacheOptions& options) {
  const std::string who = fmt::format("cache '{}' of layer {}", spec.name, spec.layer);
  if (spec.kv_heads <= 0 || spec.head_dim <= 0 || spec.value_dim <= 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} has {} heads with keys of {} and values of {} numbers; each must "
                            "be positive",
                            who, spec.kv_heads, spec.head_dim, spec.value_dim));
  }
  if (spec.policy == plan::CachePolicy::kWindow && spec.window <= 0) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{} has a window of {} tokens; write a positive number", who, spec.window));
  }
  if (options.stream && spec.policy == plan::CachePolicy::kFull) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} keeps every token, as its architecture file says (policy full), so "
                            "it cannot be part of a stream",
                            who));
  }
  return {};
}

// Blocks that consecutive tokens touch, at most.
uint64_t most_blocks(int64_t tokens) {
  return tokens <= 0 ? 0 : static_cast<uint64_t>((tokens + 2 * kBlockTokens - 2) / kBlockTokens);
}

}  // namespace

KvShape shape_of(const plan::CacheSpec& spec, const CacheOptions& options) {
  const bool other = spec.policy == plan::CachePolicy::kWindow && options.window_types;
  return {other ? options.window_types->first : options.k_type,
          other ? options.window_types->second : options.v_type, spec.kv_heads, spec.head_dim,
          spec.value_dim};
}

CacheWindow cache_window_of(const plan::CacheSpec& spec, const CacheOptions& options) {
  if (spec.policy == plan::CachePolicy::kWindow) return {.sinks = 0, .window = spec.window};
  if (spec.policy == plan::CachePolicy::kGlobal && options.stream)
    return {.sinks = options.stream->sinks, .window = options.stream->window};
  return {};
}

LayerBytes layer_bytes(const plan::CacheSpec& spec, const CacheOptions& options, int64_t tokens,
                       int64_t ubatch_size) {
  const KvShape shape = shape_of(spec, options);
  const CacheWindow kept = cache_window_of(spec, options);
  const uint64_t block = sizeof(Block) + shape.block_bytes();
  const int64_t seen =
      kept.full() || tokens <= kept.sinks + kept.window ? tokens : kept.sinks + kept.window;
  const uint64_t all = static_cast<uint64_t>((tokens + kBlockTokens - 1) / kBlockTokens);
  const auto blocks = [&](int64_t more) {
    if (kept.full()) return all;
    const uint64_t sinks = static_cast<uint64_t>((kept.sinks + kBlockTokens - 1) / kBlockTokens);
    return std::min(all, sinks + most_blocks(kept.window + options.rewind_reserve - 1 + more));
  };
  LayerBytes bytes;
  bytes.payload = static_cast<uint64_t>(seen) * shape.token_bytes();
  bytes.allocated = blocks(0) * block;
  bytes.in_a_pass = blocks(ubatch_size) * block;
  return bytes;
}

// The state, the one before it, and the one that the next pass writes.
uint64_t state_bytes(const plan::StateSpec& spec) {
  const uint64_t contents =
      static_cast<uint64_t>(spec.rows) * static_cast<uint64_t>(spec.width) * sizeof(float);
  return 3 * (sizeof(Block) + (contents + 63) / 64 * 64);
}

Result<std::unique_ptr<CacheSet>> CacheSet::make(const plan::Plan& plan,
                                                 const CacheOptions& options,
                                                 std::shared_ptr<MemoryPool> pool) {
  if (options.start < 0 || options.start % kBlockTokens != 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a session cannot start at position {}; use a multiple of {}",
                            options.start, kBlockTokens));
  }
  if (options.stream && (options.stream->sinks < 0 || options.stream->window < 1)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a stream cannot have {} sinks and a window of {} tokens; use 0 or "
                            "more sinks and a window of 1 or more",
                            options.stream->sinks, options.stream->window));
  }
  auto set = std::make_unique<CacheSet>();
  set->pool_ = pool ? std::move(pool) : std::make_shared<MemoryPool>();
  set->options_ = options;
  set->length_ = options.start;
  for (const plan::CacheSpec& spec : plan.caches) {
    CULET_TRY_VOID(check(spec, options));
    set->layers_.emplace_back(set->pool_, shape_of(spec, options), cache_window_of(spec, options),
                              options.rewind_reserve, options.start);
  }
  for (const plan::StateSpec& spec : plan.states)
    set->states_.emplace_back(set->pool_, spec.rows, spec.width);
  return set;
}

Result<void> CacheSet::reserve(int64_t n) {
  CULET_CHECK(n >= 0);
  const int64_t there = length_ - options_.start;
  if (!options_.stream && n > options_.max_positions - there) {
    return fail(ErrorCode::kExhausted, fmt::format("the context holds {} tokens: {} are in it and "
                                                   "{} more do not fit; ask for a larger context "
                                                   "or send less",
                                                   options_.max_positions, there, n));
  }
  const bool done =
      std::all_of(states_.begin(), states_.end(), [](StateCache& s) { return s.reserve(); }) &&
      std::all_of(layers_.begin(), layers_.end(),
                  [&](LayerCache& layer) { return layer.reserve(length_, n); });
  if (done) return {};
  for (StateCache& state : states_) state.undo_reserve();
  for (LayerCache& layer : layers_) layer.truncate(length_);
  uint64_t needed = 0;
  for (const StateCache& state : states_) needed += state.needed_bytes();
  for (const LayerCache& layer : layers_) needed += layer.needed_bytes(length_, n);
  return fail(
      ErrorCode::kExhausted,
      fmt::format("{} more tokens need {} of cache memory, but {}; close sessions and forks "
                  "that are not needed, or use a smaller context",
                  n, show_bytes(needed), pool_->shortage()));
}

void CacheSet::commit(int64_t n) {
  previous_length_ = length_;
  length_ += n;
  for (LayerCache& layer : layers_) layer.commit(length_);
  for (StateCache& state : states_) state.commit();
}

bool CacheSet::can_truncate(Position length) const {
  if (length >= length_ || length == options_.start) return true;
  if (!states_.empty() && (length != previous_length_ || !states_[0].can_go_back())) return false;
  return std::all_of(layers_.begin(), layers_.end(),
                     [length](const LayerCache& layer) { return layer.can_truncate(length); });
}

Truncation CacheSet::truncate(Position length) {
  CULET_CHECK(length >= options_.start);
  if (!can_truncate(length)) return Truncation::kRebuildNeeded;
  if (length == options_.start && length < length_) {
    clear();
    return Truncation::kDone;
  }
  for (LayerCache& layer : layers_) layer.truncate(length);
  if (length >= length_) {
    for (StateCache& state : states_) state.undo_reserve();
  } else {
    for (StateCache& state : states_) state.go_back();
    previous_length_ = -1;
    length_ = length;
  }
  return Truncation::kDone;
}

void CacheSet::clear() {
  for (LayerCache& layer : layers_) layer.clear();
  for (StateCache& state : states_) state.clear();
  length_ = options_.start;
  previous_length_ = -1;
}

// A state can only go back to before the last commit.
Position CacheSet::rewind_limit() const {
  Position limit = options_.start;
  for (const LayerCache& layer : layers_) limit = std::max(limit, layer.rewind_limit());
  if (states_.empty()) return limit;
  const bool back = states_[0].can_go_back() && previous_length_ >= limit;
  return back ? previous_length_ : length_;
}

HeldBytes CacheSet::held_bytes() const {
  HeldBytes held;
  for_each_block(
      [&](const BlockRef& block) { (block.shared() ? held.shared : held.own) += block.bytes(); });
  return held;
}

uint64_t CacheSet::checkpoint_bytes() const {
  uint64_t sum = 0;
  for (const LayerCache& layer : layers_) sum += layer.checkpoint_bytes();
  for (const StateCache& state : states_) sum += state.checkpoint_bytes();
  return sum;
}

bool CacheSet::save(const Sink& sink) const {
  return std::all_of(layers_.begin(), layers_.end(),
                     [&](const LayerCache& layer) { return layer.save(sink); }) &&
         std::all_of(states_.begin(), states_.end(),
                     [&](const StateCache& state) { return state.save(sink); });
}

Result<void> CacheSet::load(Position length, const Source& source) {
  clear();
  Result<void> done;
  for (LayerCache& layer : layers_) {
    if (done) done = layer.load(length, source);
  }
  for (StateCache& state : states_) {
    if (done) done = state.load(source);
  }
  if (done)
    length_ = length;
  else
    clear();
  return done;
}

}  // namespace culet::cache
