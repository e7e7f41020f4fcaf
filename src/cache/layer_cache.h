// The keys and values of one layer of one session.
//
// Keys and values are written once, at the token's absolute position, into blocks of 32 tokens
// whose borders are multiples of 32 in absolute position, and are never rewritten. What differs
// between layers is data: which keys a token sees (CacheWindow). Everything else follows from it:
// which blocks are given up, and to which lengths a rewind works.
//
//   full              sinks 0, window without end
//   window(w)         sinks 0, window w
//   stream(S, w)      sinks S, window w: the first S tokens of the session stay for ever
//
// A copy is a fork: it shares every block, and whoever appends to a shared block first takes a copy
// of it, in reserve(), before a kernel writes. Threads: a cache belongs to one thread at a time;
// copies may live on different threads.
#pragma once

#include "cache/kv_block.h"
#include "cache/memory_pool.h"
#include "cache/stream_io.h"
#include "culet/result.h"
#include "kernels/kernels.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace culet::cache {

struct CacheWindow {
  int64_t sinks = 0;           // the first tokens of the session
  int64_t window = INT64_MAX;  // a token itself and the window - 1 tokens before it
  bool full() const { return window == INT64_MAX; }
};

struct KvSlot {  // where one token's keys and values go
  uint8_t* k_block;
  uint8_t* v_block;
  int32_t row;  // of the block, 0..31
};

// Key s is visible to the token at p iff start <= s <= p and (s < sinks_end or p - s < window).
struct Visibility {
  Position start = 0;      // of the session
  Position sinks_end = 0;  // start: there are no sinks
  int64_t window = INT64_MAX;
};

enum class Truncation { kDone, kRebuildNeeded };

class LayerCache {
 public:
  // start: position of the session's first token, a multiple of 32. The last `rewind_reserve`
  // tokens can always be taken back.
  LayerCache(std::shared_ptr<MemoryPool> pool, const KvShape& shape, const CacheWindow& window,
             int64_t rewind_reserve, Position start = 0);
  LayerCache(const LayerCache&) = default;
  LayerCache(LayerCache&&) = default;
  LayerCache& operator=(LayerCache other) noexcept;  // blocks go before the pool they came from
  ~LayerCache() = default;

  const KvShape& shape() const { return shape_; }
  Visibility visibility() const { return {start_, start_ + window_.sinks, window_.window}; }
  // Makes room for tokens [first, first + n) before any kernel runs; first: the committed length.
  // False: there is no memory, and nothing changed. truncate(first) undoes it.
  bool reserve(Position first, int64_t n);
  uint64_t needed_bytes(Position first, int64_t n) const;  // that reserve() would take of the pool
  KvSlot slot(Position p);                                 // p inside a reserved range
  // Appends to *out, ascending, the entries up to token `last` that any query from position `first`
  // on may see: first <= last + 1, for a query may be at the token behind the last (a draft
  // model's). Entries of sinks name the sinks' query.
  void view(Position first, Position last, std::vector<kernels::KvEntry>* out) const;
  // Tokens below `length` are written; blocks that no later token can see are given back.
  void commit(Position length);
  // Whether truncate(length) would do it.
  bool can_truncate(Position length) const;
  // Forgets tokens >= length, reserved ones too, or says that tokens still needed below it are gone
  // (then nothing changed). A length past the committed tokens forgets only what is reserved.
  Truncation truncate(Position length);
  // Every length from here on can be truncated to. (Lengths within the sinks can, too.)
  Position rewind_limit() const;
  void clear();

  // Bytes that a fork kept from now on holds alone once this cache has gone on for ever.
  uint64_t checkpoint_bytes() const;
  template <class F>
  void for_each_block(const F& f) const {
    for (const BlockRef& block : blocks_) f(block);
    if (replaced_) f(replaced_);
  }

  // The committed tokens as bytes, the same for the same tokens whatever was done before; tokens of
  // the last block that are not written are zero. False: the sink failed.
  bool save(const Sink& sink) const;
  // Takes over what save() wrote for a cache of this shape and window with `length` committed
  // tokens. Error: kCorrupt, kExhausted; then the cache is empty.
  Result<void> load(Position length, const Source& source);

 private:
  int64_t start_block() const { return start_ / kBlockTokens; }
  // Blocks that hold sinks never leave; they are the first of blocks_.
  int64_t sink_blocks() const { return (window_.sinks + kBlockTokens - 1) / kBlockTokens; }
  // Absolute position behind the blocks that are gone.
  Position gap_end() const { return (start_block() + sink_blocks() + gap_) * kBlockTokens; }
  size_t at(int64_t block) const;  // index in blocks_ of an absolute block
  Position end() const;
  Position first_visible(Position p) const;  // oldest key in p's window
  bool copies_open_block(Position first, int64_t n) const;
  uint8_t* values(const BlockRef& block) const { return block.data() + k_bytes_; }
  void append_entries(Position first, Position end, uint32_t query,
                      std::vector<kernels::KvEntry>* out) const;

  KvShape shape_;
  CacheWindow window_;
  int64_t reserve_;
  Position start_;
  std::shared_ptr<MemoryPool> pool_;  // above the blocks: goes after them
  SizeClass* size_;
  size_t k_bytes_;
  std::vector<BlockRef> blocks_;  // those of sinks, then, gap_ blocks further on, consecutive ones
  // Between reserve() and commit(): the block that a fork holds too and that was copied.
  BlockRef replaced_;
  int64_t gap_ = 0;  // blocks between the two that are gone
  Position length_;  // committed tokens end here; tokens up to end() may be reserved
};

}  // namespace culet::cache
