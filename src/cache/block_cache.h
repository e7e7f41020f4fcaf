// What every policy that keeps K and V rows shares: the list of blocks and the rules of rows.
//
// A policy answers three questions (the protected functions): the oldest key that a row may see,
// the oldest row that must stay once `length` rows are committed, and to which lengths a rewind
// works.
#pragma once

#include "cache/kv_block.h"
#include "cache/layer_cache.h"

#include <memory>
#include <vector>

namespace culet::cache {

class BlockCache : public LayerCache {
 public:
  explicit BlockCache(const KvShape& shape);

  const KvShape& shape() const override { return shape_; }
  Result<void> reserve(Position first, int64_t n) override;
  KvSlot slot(Position p) override;
  void view(Position first, Position last, std::vector<kernels::KvEntry>* out) const override;
  void commit(Position length) override;
  bool can_truncate(Position length) const override;
  Truncation truncate(Position length) override;
  void clear() override;
  size_t bytes() const override { return pool_->bytes(); }

 protected:
  virtual Position first_visible(Position p) const = 0;      // oldest key that row p sees
  virtual Position first_needed(Position length) const = 0;  // rows below it may go
  virtual bool can_rewind(Position length,
                          Position oldest) const = 0;  // oldest: first row still kept

 private:
  Position oldest() const { return first_block_ * kernels::kKvBlockRows; }
  Position end() const {
    return (first_block_ + static_cast<int64_t>(blocks_.size())) * kernels::kKvBlockRows;
  }

  KvShape shape_;
  std::shared_ptr<BlockPool> pool_;
  std::vector<BlockRef> blocks_;  // of consecutive absolute indices from first_block_
  int64_t first_block_ = 0;
  Position length_ = 0;  // committed rows; rows up to end() may be reserved
};

}  // namespace culet::cache
