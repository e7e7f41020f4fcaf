// Takes positions, gives blocks. Block borders are multiples of 32 in absolute position, so a row
// has the same place whatever was appended, cut or dropped before it.
//
// reserve() adds whole blocks before any kernel runs and takes them back if one is missing.
// commit() drops blocks from the front (lazily: visibility never depends on it), truncate() from
// the back. The last block may have a second owner; it is then copied in reserve(), before a kernel
// writes.
#include "cache/block_cache.h"

#include "base/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace culet::cache {

constexpr int64_t kRows = kernels::kKvBlockRows;

BlockCache::BlockCache(const KvShape& shape)
    : shape_(shape), pool_(std::make_shared<BlockPool>(shape)) {}

Result<void> BlockCache::reserve(Position first, int64_t n) {
  CULET_CHECK(first == length_ && n >= 0);
  const size_t before = blocks_.size();
  const size_t open = static_cast<size_t>(first / kRows - first_block_);  // block of row `first`
  const bool copy_open = n > 0 && open < before && blocks_[open].shared();
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
    std::memcpy(copy.k(), blocks_[open].k(), pool_->block_bytes() - sizeof(KvBlock));
    blocks_[open] = std::move(copy);
  }
  return {};
}

KvSlot BlockCache::slot(Position p) {
  CULET_CHECK(p >= length_ && p < end());
  const BlockRef& block = blocks_[static_cast<size_t>(p / kRows - first_block_)];
  return {block.k(), block.v(), static_cast<int32_t>(p % kRows)};
}

void BlockCache::view(Position first, Position last, std::vector<kernels::KvEntry>* out) const {
  CULET_CHECK(first >= 0 && first <= last && last < end());
  Position p = first_visible(first);
  CULET_CHECK(p >= oldest());
  while (p <= last) {
    const int64_t index = p / kRows;
    const Position stop = std::min<Position>((index + 1) * kRows, last + 1);
    const BlockRef& block = blocks_[static_cast<size_t>(index - first_block_)];
    out->push_back({.k = block.k(),
                    .v = block.v(),
                    .position = p,
                    .first = static_cast<int32_t>(p % kRows),
                    .rows = static_cast<int32_t>(stop - p),
                    .block_index = index,
                    .query = 0});
    p = stop;
  }
}

void BlockCache::commit(Position length) {
  CULET_CHECK(length >= length_ && length <= end());
  length_ = length;
  const int64_t drop = first_needed(length) / kRows - first_block_;
  if (drop > 0) {
    blocks_.erase(blocks_.begin(), blocks_.begin() + static_cast<std::ptrdiff_t>(drop));
    first_block_ += drop;
  }
}

bool BlockCache::can_truncate(Position length) const {
  return length >= length_ || can_rewind(std::max<Position>(length, 0), oldest());
}

Truncation BlockCache::truncate(Position length) {
  CULET_CHECK(length >= 0);
  if (!can_truncate(length)) return Truncation::kRebuildNeeded;
  length_ = std::min(length_, length);
  const int64_t keep = (length_ + kRows - 1) / kRows - first_block_;
  if (keep < static_cast<int64_t>(blocks_.size()))
    blocks_.resize(static_cast<size_t>(std::max<int64_t>(keep, 0)));
  return Truncation::kDone;
}

void BlockCache::clear() {
  blocks_.clear();
  first_block_ = 0;
  length_ = 0;
}

}  // namespace culet::cache
