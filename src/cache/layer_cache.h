// The memory of one layer of one session, behind one interface for every policy.
//
// Rows are written once, at their absolute position, into blocks of 32 rows whose borders are
// multiples of 32 in absolute position, and never rewritten. A policy answers: which keys may a row
// see, which blocks may go after a row is committed, to which length can we rewind.
// Attention asks for a list of KvEntry (block, first row, position, rows, which query).
#pragma once

#include "culet/result.h"
#include "kernels/kernels.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace culet::cache {

using Position = int64_t;

struct KvShape {
  kernels::KvType k_type = kernels::kKvF16, v_type = kernels::kKvF16;
  int32_t kv_heads = 0, head_dim = 0, value_dim = 0;
  size_t k_block_bytes() const;  // one block of 32 rows
  size_t v_block_bytes() const;
};

struct KvSlot {  // where one row goes
  uint8_t* k_block;
  uint8_t* v_block;
  int32_t row;  // 0..31
};

struct Visibility {  // key s visible to row p: s <= p and (s < pinned_end or p - s < window)
  Position pinned_end = 0;
  int64_t window = INT64_MAX;
};

enum class Truncation { kDone, kRebuildNeeded };

class LayerCache {
 public:
  virtual ~LayerCache() = default;
  virtual const KvShape& shape() const = 0;
  virtual Visibility visibility() const = 0;
  // Makes room for rows [first, first + n) before any kernel runs. Error: kExhausted; nothing
  // changed.
  virtual Result<void> reserve(Position first, int64_t n) = 0;
  virtual KvSlot slot(Position p) = 0;  // p inside a reserved range
  // Appends to *out the entries that any query at a position in [first, last] may see, ascending.
  virtual void view(Position first, Position last, std::vector<kernels::KvEntry>* out) const = 0;
  // Rows below `length` are written by every layer; blocks no later row can see may go.
  virtual void commit(Position length) = 0;
  // Whether truncate(length) would do it.
  virtual bool can_truncate(Position length) const = 0;
  // Forgets rows >= length, reserved ones too, or says that rows still needed below it are gone
  // (then nothing changed). A length past the committed rows forgets only what is reserved.
  virtual Truncation truncate(Position length) = 0;
  virtual void clear() = 0;
  virtual size_t bytes() const = 0;  // allocated now
};

// full: keeps every row. window(w): key s visible iff p - s < w; older blocks are dropped by commit
// once no rewind within `rewind_reserve` rows needs them.
std::unique_ptr<LayerCache> make_full(KvShape shape);
std::unique_ptr<LayerCache> make_window(KvShape shape, int64_t window, int64_t rewind_reserve);

}  // namespace culet::cache
