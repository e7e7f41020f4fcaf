// One cache a CacheSpec, moved together: reserve and truncate happen in every layer or in none.
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
        fmt::format("{} has a window of {} rows; write a positive number", who, spec.window));
  }
  if (options.stream && spec.policy == plan::CachePolicy::kFull) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} keeps every row by its architecture file (policy full), so it "
                            "cannot follow an endless stream",
                            who));
  }
  return {};
}

// Blocks that `rows` consecutive rows touch, at most.
uint64_t most_blocks(int64_t rows) {
  return rows <= 0 ? 0 : static_cast<uint64_t>((rows + 2 * kBlockRows - 2) / kBlockRows);
}

}  // namespace

KvShape shape_of(const plan::CacheSpec& spec, const CacheOptions& options) {
  const bool other = spec.policy == plan::CachePolicy::kWindow && options.window_types;
  return {other ? options.window_types->first : options.k_type,
          other ? options.window_types->second : options.v_type, spec.kv_heads, spec.head_dim,
          spec.value_dim};
}

Retention retention_of(const plan::CacheSpec& spec, const CacheOptions& options) {
  if (spec.policy == plan::CachePolicy::kWindow) return {.pinned = 0, .window = spec.window};
  if (spec.policy == plan::CachePolicy::kGlobal && options.stream)
    return {.pinned = options.stream->pinned, .window = options.stream->window};
  return {};
}

LayerBytes layer_bytes(const plan::CacheSpec& spec, const CacheOptions& options, int64_t tokens,
                       int64_t pass_rows) {
  const KvShape shape = shape_of(spec, options);
  const Retention kept = retention_of(spec, options);
  const uint64_t block = sizeof(KvBlock) + shape.k_block_bytes() + shape.v_block_bytes();
  LayerBytes bytes;
  if (kept.full() || tokens <= kept.pinned + kept.window) {
    bytes.payload = static_cast<uint64_t>(tokens) * shape.row_bytes();
  } else {
    bytes.payload = static_cast<uint64_t>(kept.pinned + kept.window) * shape.row_bytes();
  }
  const uint64_t all = static_cast<uint64_t>((tokens + kBlockRows - 1) / kBlockRows);
  const auto blocks = [&](int64_t more) {
    if (kept.full()) return all;
    const uint64_t pinned = static_cast<uint64_t>((kept.pinned + kBlockRows - 1) / kBlockRows);
    return std::min(all, pinned + most_blocks(kept.window + options.rewind_reserve - 1 + more));
  };
  bytes.allocated = blocks(0) * block;
  bytes.in_a_pass = blocks(pass_rows) * block;
  return bytes;
}

Result<std::unique_ptr<CacheSet>> CacheSet::make(const plan::Plan& plan,
                                                 const CacheOptions& options) {
  if (options.start < 0 || options.start % kBlockRows != 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a session cannot start at position {}; use a multiple of {}",
                            options.start, kBlockRows));
  }
  if (options.stream && (options.stream->pinned < 0 || options.stream->window < 1)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a stream with {} pinned tokens and a window of {} makes no sense; "
                            "use 0 or more and 1 or more",
                            options.stream->pinned, options.stream->window));
  }
  auto set = std::make_unique<CacheSet>();
  set->options_ = options;
  set->length_ = options.start;
  for (const plan::CacheSpec& spec : plan.caches) {
    CULET_TRY_VOID(check(spec, options));
    set->layers_.emplace_back(shape_of(spec, options), retention_of(spec, options),
                              options.rewind_reserve, options.start);
  }
  for (const plan::StateSpec& spec : plan.states) set->states_.emplace_back(spec.rows, spec.width);
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
  Result<void> done;
  for (StateCache& state : states_) {
    if (done) done = state.reserve();
  }
  for (LayerCache& layer : layers_) {
    if (done) done = layer.reserve(length_, n);
  }
  if (done) return done;
  for (LayerCache& layer : layers_) layer.truncate(length_);
  return done;
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
  if (length < length_) {
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

size_t CacheSet::held_bytes() const {
  size_t sum = 0;
  for (const LayerCache& layer : layers_) sum += layer.held_bytes();
  for (const StateCache& state : states_) sum += state.bytes();
  return sum;
}

size_t CacheSet::allocated_bytes() const {
  size_t sum = 0;
  for (const LayerCache& layer : layers_) sum += layer.allocated_bytes();
  for (const StateCache& state : states_) sum += state.bytes();
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
