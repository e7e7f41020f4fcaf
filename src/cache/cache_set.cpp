// One cache a CacheSpec, moved together: reserve and truncate happen in every layer or in none.
#include "cache/cache_set.h"

#include "base/check.h"

#include <fmt/format.h>

#include <algorithm>

namespace culet::cache {
namespace {

Result<std::unique_ptr<LayerCache>> make_layer(const plan::CacheSpec& spec,
                                               const CacheOptions& options) {
  if (spec.kv_heads <= 0 || spec.head_dim <= 0 || spec.value_dim <= 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("cache '{}' of layer {} has {} heads with keys of {} and values of {} "
                            "numbers; each must be "
                            "positive",
                            spec.name, spec.layer, spec.kv_heads, spec.head_dim, spec.value_dim));
  }
  const KvShape shape{options.k_type, options.v_type, spec.kv_heads, spec.head_dim, spec.value_dim};
  if (spec.policy != plan::CachePolicy::kWindow) return make_full(shape);
  if (spec.window <= 0) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("cache '{}' of layer {} has a window of {} rows; write a positive number",
                    spec.name, spec.layer, spec.window));
  }
  return make_window(shape, spec.window, options.rewind_reserve);
}

}  // namespace

Result<std::unique_ptr<CacheSet>> CacheSet::make(std::span<const plan::CacheSpec> specs,
                                                 CacheOptions options) {
  auto set = std::make_unique<CacheSet>();
  set->options_ = options;
  for (const plan::CacheSpec& spec : specs) {
    CULET_TRY(auto layer, make_layer(spec, options));
    set->layers_.push_back(std::move(layer));
  }
  return set;
}

Result<void> CacheSet::reserve(int64_t n) {
  CULET_CHECK(n >= 0);
  if (n > options_.max_positions - length_) {
    return fail(ErrorCode::kExhausted, fmt::format("the context holds {} tokens: {} are in it and "
                                                   "{} more do not fit; ask for a larger context "
                                                   "or send less",
                                                   options_.max_positions, length_, n));
  }
  for (auto& layer : layers_) {
    auto done = layer->reserve(length_, n);
    if (done) continue;
    for (auto& undo : layers_) undo->truncate(length_);
    return done;
  }
  return {};
}

void CacheSet::commit(int64_t n) {
  length_ += n;
  for (auto& layer : layers_) layer->commit(length_);
}

Truncation CacheSet::truncate(int64_t length) {
  CULET_CHECK(length >= 0);
  for (const auto& layer : layers_) {
    if (!layer->can_truncate(length)) return Truncation::kRebuildNeeded;
  }
  for (auto& layer : layers_) layer->truncate(length);
  length_ = std::min(length_, length);
  return Truncation::kDone;
}

void CacheSet::clear() {
  for (auto& layer : layers_) layer->clear();
  length_ = 0;
}

size_t CacheSet::bytes() const {
  size_t sum = 0;
  for (const auto& layer : layers_) sum += layer->bytes();
  return sum;
}

}  // namespace culet::cache
