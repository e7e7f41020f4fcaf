// Takes positions, gives blocks. Block borders are multiples of 32 in absolute position, so a token
// has the same place whatever was appended, cut or dropped before it.
//
// reserve() adds whole blocks before any kernel runs and takes them back if one is missing.
// commit() drops the blocks between the sinks and the window (lazily: visibility never depends on
// it), truncate() drops from the back. A window's next token after n committed ones needs the
// tokens from n - w + 1 on; a rewind by up to the reserve must find its own window, so that many
// more stay.
#include "cache/layer_cache.h"

#include "base/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace culet::cache {

LayerCache::LayerCache(std::shared_ptr<MemoryPool> pool, const KvShape& shape,
                       const CacheWindow& window, int64_t rewind_reserve, Position start)
    : shape_(shape),
      window_(window),
      reserve_(rewind_reserve),
      start_(start),
      pool_(std::move(pool)),
      size_(&pool_->size_class(shape.block_bytes())),
      k_bytes_(shape.k_block_bytes()),
      length_(start) {
  CULET_CHECK(start >= 0 && start % kBlockTokens == 0 && rewind_reserve >= 0);
  CULET_CHECK(window.window > 0 && window.sinks >= 0);
}

LayerCache& LayerCache::operator=(LayerCache other) noexcept {
  std::swap(shape_, other.shape_);
  std::swap(window_, other.window_);
  std::swap(reserve_, other.reserve_);
  std::swap(start_, other.start_);
  std::swap(pool_, other.pool_);
  std::swap(size_, other.size_);
  std::swap(k_bytes_, other.k_bytes_);
  std::swap(blocks_, other.blocks_);
  std::swap(replaced_, other.replaced_);
  std::swap(gap_, other.gap_);
  std::swap(length_, other.length_);
  return *this;
}

size_t LayerCache::at(int64_t block) const {
  const int64_t i = block - start_block();
  return static_cast<size_t>(i < sink_blocks() ? i : i - gap_);
}

Position LayerCache::end() const {
  return (start_block() + static_cast<int64_t>(blocks_.size()) + gap_) * kBlockTokens;
}

Position LayerCache::first_visible(Position p) const {
  return window_.window > p - start_ ? start_ : p - window_.window + 1;
}

// Whether token `first` goes into a block that a fork reads.
bool LayerCache::copies_open_block(Position first, int64_t n) const {
  return n > 0 && first < end() && blocks_[at(first / kBlockTokens)].shared();
}

uint64_t LayerCache::needed_bytes(Position first, int64_t n) const {
  const int64_t blocks =
      std::max<int64_t>(0, (first + n - end() + kBlockTokens - 1) / kBlockTokens);
  return (static_cast<uint64_t>(blocks) + (copies_open_block(first, n) ? 1 : 0)) * size_->bytes;
}

bool LayerCache::reserve(Position first, int64_t n) {
  CULET_CHECK(first == length_ && n >= 0);
  const size_t before = blocks_.size();
  const bool copies = copies_open_block(first, n);
  BlockRef copy = copies ? pool_->take(*size_) : BlockRef();
  bool enough = !copies || copy;
  while (enough && end() < first + n) {
    BlockRef block = pool_->take(*size_);
    if (block)
      blocks_.push_back(std::move(block));
    else
      enough = false;
  }
  if (!enough) {
    blocks_.resize(before);
    return false;
  }
  if (copies) {
    BlockRef& open = blocks_[at(first / kBlockTokens)];
    std::memcpy(copy.data(), open.data(), shape_.block_bytes());
    replaced_ = std::exchange(open, std::move(copy));
  }
  return true;
}

KvSlot LayerCache::slot(Position p) {
  CULET_CHECK(p >= length_ && p < end());
  const BlockRef& block = blocks_[at(p / kBlockTokens)];
  return {block.data(), values(block), static_cast<int32_t>(p % kBlockTokens)};
}

void LayerCache::append_entries(Position first, Position end, uint32_t query,
                                std::vector<kernels::KvEntry>* out) const {
  for (Position p = first; p < end;) {
    const int64_t index = p / kBlockTokens;
    const Position stop = std::min<Position>((index + 1) * kBlockTokens, end);
    const BlockRef& block = blocks_[at(index)];
    out->push_back({.k = block.data(),
                    .v = values(block),
                    .position = p,
                    .first = static_cast<int32_t>(p % kBlockTokens),
                    .rows = static_cast<int32_t>(stop - p),
                    .block_index = index,
                    .query = query});
    p = stop;
  }
}

void LayerCache::view(Position first, Position last, std::vector<kernels::KvEntry>* out) const {
  CULET_CHECK(first >= start_ && first <= last + 1 && last < end());
  const Position sinks_end = std::min(start_ + window_.sinks, last + 1);
  const Position recent = std::max(first_visible(first), sinks_end);
  CULET_CHECK(gap_ == 0 || recent >= gap_end());
  append_entries(start_, sinks_end, 1, out);
  append_entries(recent, last + 1, 0, out);
}

void LayerCache::commit(Position length) {
  CULET_CHECK(length >= length_ && length <= end());
  length_ = length;
  replaced_ = BlockRef();
  if (window_.full()) return;
  const int64_t kept = first_visible(std::max(start_, length - reserve_)) / kBlockTokens;
  const int64_t drop = kept - gap_end() / kBlockTokens;
  if (drop <= 0) return;
  const auto first = blocks_.begin() + static_cast<std::ptrdiff_t>(sink_blocks());
  blocks_.erase(first, first + static_cast<std::ptrdiff_t>(drop));
  gap_ += drop;
}

bool LayerCache::can_truncate(Position length) const {
  if (length >= rewind_limit()) return true;
  return length <= (start_block() + sink_blocks()) * kBlockTokens;
}

Position LayerCache::rewind_limit() const {
  if (gap_ == 0) return start_;
  return std::min(length_, gap_end() + window_.window - 1);
}

Truncation LayerCache::truncate(Position length) {
  CULET_CHECK(length >= start_);
  if (!can_truncate(length)) return Truncation::kRebuildNeeded;
  if (replaced_) blocks_[at(length_ / kBlockTokens)] = std::move(replaced_);
  length_ = std::min(length_, length);
  const int64_t keep =
      (length_ + kBlockTokens - 1) / kBlockTokens - start_block();  // blocks, gap counted
  if (keep <= sink_blocks()) {
    blocks_.resize(std::min(blocks_.size(), static_cast<size_t>(keep)));
    gap_ = 0;
  } else if (keep - gap_ < static_cast<int64_t>(blocks_.size())) {
    blocks_.resize(static_cast<size_t>(keep - gap_));
  }
  return Truncation::kDone;
}

void LayerCache::clear() {
  blocks_.clear();
  replaced_ = BlockRef();
  gap_ = 0;
  length_ = start_;
}

// The fork and this cache share everything now. This cache, going on, copies the block that is open
// and gives up what leaves its window: in the end every block behind those of the sinks.
uint64_t LayerCache::checkpoint_bytes() const {
  const auto held = static_cast<int64_t>(blocks_.size());
  const int64_t shared = window_.full() ? held : std::min(held, sink_blocks());
  const bool open = length_ % kBlockTokens != 0;  // the last block
  const int64_t alone = held - shared + (open && shared == held ? 1 : 0);
  return static_cast<uint64_t>(alone) * size_->bytes;
}

// ---------------------------------------------------------------- bytes

bool LayerCache::save(const Sink& sink) const {
  const int64_t gap = gap_;
  if (!sink(std::as_bytes(std::span(&gap, 1)))) return false;
  std::vector<std::byte> bytes(shape_.block_bytes());
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const auto block = static_cast<int64_t>(i) + start_block() +
                       (static_cast<int64_t>(i) < sink_blocks() ? 0 : gap_);
    const int64_t tokens = std::min(kBlockTokens, length_ - block * kBlockTokens);
    std::memcpy(bytes.data(), blocks_[i].data(), bytes.size());
    if (tokens < kBlockTokens) clear_tokens(shape_, static_cast<int32_t>(tokens), bytes);
    if (!sink(bytes)) return false;
  }
  return true;
}

Result<void> LayerCache::load(Position length, const Source& source) {
  clear();
  const auto cut = [] {
    return fail(ErrorCode::kCorrupt, "it ends in the middle of the keys and values of a layer");
  };
  int64_t gap = 0;
  if (!source(std::as_writable_bytes(std::span(&gap, 1)))) return cut();
  const int64_t all =
      (length + kBlockTokens - 1) / kBlockTokens - start_block();  // blocks, gap counted
  const auto seen = [&] {  // a token behind the gap may need one in it
    return first_visible(length) < (start_block() + sink_blocks() + gap) * kBlockTokens;
  };
  if (gap < 0 || gap > all || (gap > 0 && (all - gap < sink_blocks() || seen()))) {
    return fail(
        ErrorCode::kCorrupt,
        fmt::format(
            "a layer of {} tokens has a gap of {} blocks, which is impossible with its window",
            length - start_, gap));
  }
  for (int64_t i = 0; i < all - gap; ++i) {
    BlockRef block = pool_->take(*size_);
    if (!block || !source({reinterpret_cast<std::byte*>(block.data()), shape_.block_bytes()})) {
      const bool full = !block;
      block = BlockRef();
      clear();
      if (full) return fail(ErrorCode::kExhausted, "there is no memory for its keys and values");
      return cut();
    }
    blocks_.push_back(std::move(block));
  }
  gap_ = gap;
  length_ = length;
  return {};
}

}  // namespace culet::cache
