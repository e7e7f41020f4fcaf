// Takes positions, gives blocks. Block borders are multiples of 32 in absolute position, so a row
// has the same place whatever was appended, cut or dropped before it.
//
// reserve() adds whole blocks before any kernel runs and takes them back if one is missing.
// commit() drops the blocks between the pinned ones and the window (lazily: visibility never
// depends on it), truncate() drops from the back. A window's next row after n committed ones needs
// the rows from n - w + 1 on; a rewind by up to the reserve must find its own window, so that many
// more stay.
#include "cache/layer_cache.h"

#include "base/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace culet::cache {

LayerCache::LayerCache(const KvShape& shape, const Retention& retention, int64_t rewind_reserve,
                       Position start)
    : shape_(shape),
      retention_(retention),
      reserve_(rewind_reserve),
      start_(start),
      pool_(std::make_shared<BlockPool>(shape)),
      length_(start) {
  CULET_CHECK(start >= 0 && start % kBlockRows == 0 && rewind_reserve >= 0);
  CULET_CHECK(retention.window > 0 && retention.pinned >= 0);
}

LayerCache& LayerCache::operator=(LayerCache other) noexcept {
  std::swap(shape_, other.shape_);
  std::swap(retention_, other.retention_);
  std::swap(reserve_, other.reserve_);
  std::swap(start_, other.start_);
  std::swap(pool_, other.pool_);
  std::swap(blocks_, other.blocks_);
  std::swap(gap_, other.gap_);
  std::swap(length_, other.length_);
  return *this;
}

// Often a fork that a long append did not need: others shall not keep what was only its own.
LayerCache::~LayerCache() {
  blocks_.clear();
  if (pool_) pool_->trim();
}

size_t LayerCache::at(int64_t block) const {
  const int64_t i = block - start_block();
  return static_cast<size_t>(i < pinned_blocks() ? i : i - gap_);
}

Position LayerCache::end() const {
  return (start_block() + static_cast<int64_t>(blocks_.size()) + gap_) * kBlockRows;
}

Position LayerCache::first_visible(Position p) const {
  return retention_.window > p - start_ ? start_ : p - retention_.window + 1;
}

Result<void> LayerCache::reserve(Position first, int64_t n) {
  CULET_CHECK(first == length_ && n >= 0);
  const size_t before = blocks_.size();
  const bool open = first < end();  // the block of row `first` is there already
  const bool copy_open = n > 0 && open && blocks_[at(first / kBlockRows)].shared();
  BlockRef copy = copy_open ? pool_->take() : BlockRef();
  bool enough = !copy_open || copy;
  while (enough && end() < first + n) {
    BlockRef block = pool_->take();
    if (block)
      blocks_.push_back(std::move(block));
    else
      enough = false;
  }
  if (!enough) {
    blocks_.resize(before);
    return fail(
        ErrorCode::kExhausted,
        fmt::format("no memory for {} more rows of the KV cache (blocks of {} bytes); use a "
                    "smaller context or the f16 KV type",
                    n, pool_->block_bytes()));
  }
  if (copy_open) {
    BlockRef& block = blocks_[at(first / kBlockRows)];
    std::memcpy(copy.k(), block.k(), pool_->row_bytes());
    block = std::move(copy);
  }
  return {};
}

KvSlot LayerCache::slot(Position p) {
  CULET_CHECK(p >= length_ && p < end());
  const BlockRef& block = blocks_[at(p / kBlockRows)];
  return {block.k(), block.v(), static_cast<int32_t>(p % kBlockRows)};
}

void LayerCache::append_entries(Position first, Position end, uint32_t query,
                                std::vector<kernels::KvEntry>* out) const {
  for (Position p = first; p < end;) {
    const int64_t index = p / kBlockRows;
    const Position stop = std::min<Position>((index + 1) * kBlockRows, end);
    const BlockRef& block = blocks_[at(index)];
    out->push_back({.k = block.k(),
                    .v = block.v(),
                    .position = p,
                    .first = static_cast<int32_t>(p % kBlockRows),
                    .rows = static_cast<int32_t>(stop - p),
                    .block_index = index,
                    .query = query});
    p = stop;
  }
}

void LayerCache::view(Position first, Position last, std::vector<kernels::KvEntry>* out) const {
  CULET_CHECK(first >= start_ && first <= last + 1 && last < end());
  const Position pinned_end = std::min(start_ + retention_.pinned, last + 1);
  const Position recent = std::max(first_visible(first), pinned_end);
  CULET_CHECK(gap_ == 0 || recent >= (start_block() + pinned_blocks() + gap_) * kBlockRows);
  append_entries(start_, pinned_end, 1, out);
  append_entries(recent, last + 1, 0, out);
}

void LayerCache::commit(Position length) {
  CULET_CHECK(length >= length_ && length <= end());
  length_ = length;
  if (retention_.full()) return;
  const int64_t kept = first_visible(std::max(start_, length - reserve_)) / kBlockRows;
  const int64_t oldest = start_block() + pinned_blocks() + gap_;
  const int64_t drop = kept - oldest;
  if (drop <= 0) return;
  const auto first = blocks_.begin() + static_cast<std::ptrdiff_t>(pinned_blocks());
  blocks_.erase(first, first + static_cast<std::ptrdiff_t>(drop));
  gap_ += drop;
  if (drop > 1) pool_->trim();  // a long pass is over: its blocks are not needed soon
}

bool LayerCache::can_truncate(Position length) const {
  if (length >= length_ || gap_ == 0) return true;
  const Position gap_begin = (start_block() + pinned_blocks()) * kBlockRows;
  return length <= gap_begin || first_visible(length) >= gap_begin + gap_ * kBlockRows;
}

Truncation LayerCache::truncate(Position length) {
  CULET_CHECK(length >= start_);
  if (!can_truncate(length)) return Truncation::kRebuildNeeded;
  length_ = std::min(length_, length);
  const int64_t keep =
      (length_ + kBlockRows - 1) / kBlockRows - start_block();  // blocks, gap counted
  if (keep <= pinned_blocks()) {
    blocks_.resize(std::min(blocks_.size(), static_cast<size_t>(keep)));
    gap_ = 0;
  } else if (keep - gap_ < static_cast<int64_t>(blocks_.size())) {
    blocks_.resize(static_cast<size_t>(keep - gap_));
  }
  return Truncation::kDone;
}

void LayerCache::clear() {
  blocks_.clear();
  pool_->trim();
  gap_ = 0;
  length_ = start_;
}

// ---------------------------------------------------------------- bytes

bool LayerCache::save(const Sink& sink) const {
  const int64_t gap = gap_;
  if (!sink(std::as_bytes(std::span(&gap, 1)))) return false;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const auto block = static_cast<int64_t>(i) + start_block() +
                       (static_cast<int64_t>(i) < pinned_blocks() ? 0 : gap_);
    const int64_t rows = std::min(kBlockRows, length_ - block * kBlockRows);
    std::vector<std::byte> bytes(pool_->row_bytes());
    std::memcpy(bytes.data(), blocks_[i].k(), bytes.size());
    if (rows < kBlockRows) clear_rows(shape_, static_cast<int32_t>(rows), bytes);
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
      (length + kBlockRows - 1) / kBlockRows - start_block();  // blocks, gap counted
  const auto seen = [&] {  // a row behind the gap may need one in it
    return first_visible(length) < (start_block() + pinned_blocks() + gap) * kBlockRows;
  };
  if (gap < 0 || gap > all || (gap > 0 && (all - gap < pinned_blocks() || seen()))) {
    return fail(ErrorCode::kCorrupt,
                fmt::format("a layer of {} rows has a gap of {} blocks, which its policy never "
                            "makes",
                            length - start_, gap));
  }
  for (int64_t i = 0; i < all - gap; ++i) {
    BlockRef block = pool_->take();
    if (!block || !source({reinterpret_cast<std::byte*>(block.k()), pool_->row_bytes()})) {
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
