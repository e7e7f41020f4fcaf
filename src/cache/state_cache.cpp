// Three blocks that change places; one that a fork may still read is left to it and replaced.
#include "cache/state_cache.h"

#include <cstring>
#include <utility>
#include <vector>

namespace culet::cache {

StateCache::StateCache(std::shared_ptr<MemoryPool> pool, int32_t tokens, int32_t width)
    : pool_(std::move(pool)), size_(nullptr), tokens_(tokens), width_(width) {
  CULET_CHECK(tokens > 0 && width > 0);
  size_ = &pool_->size_class(bytes());
}

StateCache::StateCache(const StateCache& other)
    : pool_(other.pool_),
      size_(other.size_),
      tokens_(other.tokens_),
      width_(other.width_),
      current_(other.fresh_ ? BlockRef() : other.current_),
      previous_(other.previous_) {}

StateCache& StateCache::operator=(StateCache other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(size_, other.size_);
  std::swap(tokens_, other.tokens_);
  std::swap(width_, other.width_);
  std::swap(current_, other.current_);
  std::swap(previous_, other.previous_);
  std::swap(next_, other.next_);
  std::swap(fresh_, other.fresh_);
  return *this;
}

bool StateCache::reserve() {
  BlockRef zeros = current_ ? BlockRef() : pool_->take(*size_);
  BlockRef next = next_ ? BlockRef() : pool_->take(*size_);
  if ((!current_ && !zeros) || (!next_ && !next)) return false;
  if (zeros) {
    std::memset(zeros.data(), 0, bytes());
    current_ = std::move(zeros);
    fresh_ = true;
  }
  if (next) next_ = std::move(next);
  return true;
}

void StateCache::undo_reserve() {
  next_ = BlockRef();
  if (std::exchange(fresh_, false)) current_ = BlockRef();
}

void StateCache::commit() {
  CULET_CHECK(next_);
  BlockRef oldest = std::exchange(previous_, std::move(current_));
  current_ = std::move(next_);
  if (oldest && !oldest.shared()) next_ = std::move(oldest);
  fresh_ = false;
}

void StateCache::go_back() {
  CULET_CHECK(can_go_back());
  BlockRef newest = std::exchange(current_, std::move(previous_));
  if (!next_ && !newest.shared()) next_ = std::move(newest);
}

void StateCache::clear() {
  current_ = previous_ = next_ = BlockRef();
  fresh_ = false;
}

uint64_t StateCache::needed_bytes() const {
  return static_cast<uint64_t>(!current_) * size_->bytes +
         static_cast<uint64_t>(!next_) * size_->bytes;
}

uint64_t StateCache::checkpoint_bytes() const {
  return (current_ && !fresh_ ? size_->bytes : 0) + (previous_ ? size_->bytes : 0);
}

bool StateCache::save(const Sink& sink) const {
  if (current_) return sink({reinterpret_cast<const std::byte*>(current_.data()), bytes()});
  return sink(std::vector<std::byte>(bytes()));
}

Result<void> StateCache::load(const Source& source) {
  clear();
  current_ = pool_->take(*size_);
  if (!current_) return fail(ErrorCode::kExhausted, "no memory for the state of a layer");
  if (source({reinterpret_cast<std::byte*>(current_.data()), bytes()})) return {};
  clear();
  return fail(ErrorCode::kCorrupt, "it ends in the middle of the state of a layer");
}

}  // namespace culet::cache
