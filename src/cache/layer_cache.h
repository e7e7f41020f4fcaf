// The keys and values of one layer of one session.
//
// Rows are written once, at their absolute position, into blocks of 32 rows whose borders are
// multiples of 32 in absolute position, and never rewritten. What differs between policies is data:
// which keys a row sees (Retention). Everything else follows from it: which blocks may go, and to
// which lengths a rewind works.
//
//   full              pinned 0, window without end
//   window(w)         pinned 0, window w
//   stream(S, w)      pinned S, window w: the first S rows of the session stay for ever
//
// A copy is a fork: it shares every block, and whoever appends to a shared block first takes a copy
// of it, in reserve(), before a kernel writes. Threads: a cache belongs to one thread at a time;
// copies may live on different threads.
#pragma once

#include "cache/kv_block.h"
#include "cache/stream_io.h"
#include "culet/result.h"
#include "kernels/kernels.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace culet::cache {

struct Retention {
  int64_t pinned = 0;          // the first rows of the session
  int64_t window = INT64_MAX;  // a row itself and the window - 1 rows before it
  bool full() const { return window == INT64_MAX; }
};

struct KvSlot {  // where one row goes
  uint8_t* k_block;
  uint8_t* v_block;
  int32_t row;  // 0..31
};

// Key s is visible to row p iff start <= s <= p and (s < pinned_end or p - s < window).
struct Visibility {
  Position start = 0;       // of the session
  Position pinned_end = 0;  // start: nothing is pinned
  int64_t window = INT64_MAX;
};

enum class Truncation { kDone, kRebuildNeeded };

class LayerCache {
 public:
  // start: position of the session's first row, a multiple of 32. Rows up to rewind_reserve back
  // can always be taken back.
  LayerCache(const KvShape& shape, const Retention& retention, int64_t rewind_reserve,
             Position start = 0);
  LayerCache(const LayerCache&) = default;
  LayerCache(LayerCache&&) = default;
  LayerCache& operator=(LayerCache other) noexcept;  // blocks go before the pool they came from
  ~LayerCache();

  const KvShape& shape() const { return shape_; }
  Visibility visibility() const { return {start_, start_ + retention_.pinned, retention_.window}; }
  // Makes room for rows [first, first + n) before any kernel runs. Error: kExhausted; nothing
  // changed.
  Result<void> reserve(Position first, int64_t n);
  KvSlot slot(Position p);  // p inside a reserved range
  // Appends to *out, ascending, the entries up to row `last` that any query from position `first`
  // on may see: first <= last + 1, for a query may be at the row behind the last (a drafter's).
  // Pinned rows name the pinned query.
  void view(Position first, Position last, std::vector<kernels::KvEntry>* out) const;
  // Rows below `length` are written by every layer; blocks no later row can see are given back.
  void commit(Position length);
  // Whether truncate(length) would do it.
  bool can_truncate(Position length) const;
  // Forgets rows >= length, reserved ones too, or says that rows still needed below it are gone
  // (then nothing changed). A length past the committed rows forgets only what is reserved.
  Truncation truncate(Position length);
  void clear();

  size_t held_bytes() const { return blocks_.size() * pool_->block_bytes(); }  // shared ones too
  size_t allocated_bytes() const { return pool_->bytes(); }  // with all copies of this cache

  // The committed rows as bytes, the same for the same rows whatever was done before; unwritten
  // rows of the last block are zero. False: the sink failed.
  bool save(const Sink& sink) const;
  // Takes over what save() wrote for a cache of this shape and retention with `length` committed
  // rows. Error: kCorrupt, kExhausted; then the cache is empty.
  Result<void> load(Position length, const Source& source);

 private:
  int64_t start_block() const { return start_ / kernels::kKvBlockRows; }
  // Blocks that hold pinned rows never leave; they are the first of blocks_.
  int64_t pinned_blocks() const {
    return (retention_.pinned + kernels::kKvBlockRows - 1) / kernels::kKvBlockRows;
  }
  size_t at(int64_t block) const;  // index in blocks_ of an absolute block
  Position end() const;
  Position first_visible(Position p) const;  // oldest key in p's window
  void append_entries(Position first, Position end, uint32_t query,
                      std::vector<kernels::KvEntry>* out) const;

  KvShape shape_;
  Retention retention_;
  int64_t reserve_;
  Position start_;
  std::shared_ptr<BlockPool> pool_;
  std::vector<BlockRef> blocks_;  // pinned ones, then, gap_ blocks further on, consecutive ones
  int64_t gap_ = 0;               // blocks between the two that are gone
  Position length_;               // committed rows end here; rows up to end() may be reserved
};

}  // namespace culet::cache
