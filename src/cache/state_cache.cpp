// Three buffers that change places; one that a fork may still read is left to it and replaced.
#include "cache/state_cache.h"

#include "base/check.h"

#include <initializer_list>
#include <new>
#include <utility>

namespace culet::cache {

StateCache::StateCache(int32_t rows, int32_t width)
    : rows_(rows), width_(width), start_(make()), current_(start_) {
  CULET_CHECK(rows > 0 && width > 0);
}

StateCache::StateCache(const StateCache& other) : StateCache(other.rows_, other.width_) {
  *this = other;
}

StateCache& StateCache::operator=(const StateCache& other) {
  if (this == &other) return *this;
  rows_ = other.rows_, width_ = other.width_;
  start_ = other.start_, current_ = other.current_, previous_ = other.previous_, next_ = nullptr;
  for (const StateCache* side : std::initializer_list<const StateCache*>{this, &other}) {
    side->current_lent_.store(true, std::memory_order_relaxed);
    side->previous_lent_.store(true, std::memory_order_relaxed);
  }
  return *this;
}

StateCache::Buffer StateCache::make() const {
  return std::make_shared<std::vector<float>>(static_cast<size_t>(rows_) *
                                              static_cast<size_t>(width_));
}

Result<void> StateCache::reserve() {
  if (next_ != nullptr) return {};
  try {
    next_ = make();
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kExhausted, "no memory for the state of a layer; close other sessions");
  }
  return {};
}

void StateCache::commit() {
  CULET_CHECK(next_ != nullptr);
  const bool lent = current_lent_.exchange(false, std::memory_order_relaxed);
  Buffer spare = std::exchange(previous_, current_);
  if (previous_lent_.exchange(lent, std::memory_order_relaxed)) spare = nullptr;
  current_ = std::exchange(next_, std::move(spare));
}

void StateCache::go_back() {
  CULET_CHECK(can_go_back());
  const bool lent = previous_lent_.load(std::memory_order_relaxed);
  Buffer spare = std::exchange(current_, std::exchange(previous_, nullptr));
  if (!current_lent_.exchange(lent, std::memory_order_relaxed)) next_ = std::move(spare);
}

void StateCache::clear() {
  current_ = start_;
  previous_ = next_ = nullptr;
  current_lent_.store(true, std::memory_order_relaxed);
}

bool StateCache::save(const Sink& sink) const { return sink(std::as_bytes(std::span(*current_))); }

Result<void> StateCache::load(const Source& source) {
  clear();
  CULET_TRY_VOID(reserve());
  if (!source(std::as_writable_bytes(std::span(*next_)))) {
    clear();
    return fail(ErrorCode::kCorrupt, "it ends in the middle of the state of a layer");
  }
  commit();
  previous_ = nullptr;
  return {};
}

}  // namespace culet::cache
