// append: this step's keys and values into the cache. attend: softmax attention over its entries,
// or, without a cache (encoders), over the keys and values of the sequence itself.
//
// An encoder's sequence is whole in its pass, so its rows are stored into blocks of the pass's own
// memory, as float32, and met by the same kernel as a cache's blocks. A key is seen up to a row's
// reach: the row's position where the mask is causal, the end of the sequence where it is full,
// n positions on where it is a band. So what the kernel is told as a row's position is its reach,
// and a band of n is a window of 2 n + 1 that ends there.
//
// A q8_0 cache keeps Hadamard-rotated keys (kernels::hadamard of each head), which queries meet
// rotated alike: docs/decisions/0009.
//
// Work of attend is cut into units: a sequence's tile of rows x one kv head (all its query heads
// together, so a loaded key serves rows x heads dots). A row's keys are summed in parts at
// multiples of 1024 absolute positions, merged in ascending order, always: so cutting parts over
// threads changes nothing. Where there are fewer units than threads,
//   short contexts: the query heads of a kv head are split (each head is its own sum anyway);
//   long ones:      parts run side by side, in waves of as many parts as there are threads, so the
//                   scratch does not grow with the context.
#include "backend/cpu/bound_op.h"

#include <algorithm>
#include <limits>

namespace culet::backend {
namespace {

using kernels::KvEntry;

constexpr int64_t kPartBlocks = kernels::kPartKeys / kernels::kKvBlockRows;
constexpr int64_t kTileFloats = 8192;  // of a unit's accumulators: they stay in the near caches
constexpr int64_t kMostUnitRows = 32;
constexpr int64_t kInlineProducts = 65536;  // multiply-adds below which nobody is woken

// ---------------------------------------------------------------- append

bool hadamard_rotated(const cache::KvShape& shape) { return shape.k_type == kernels::kKvQ8; }

// Heads [heads, dim] of a row.
void hadamard(const float* x, int64_t heads, int64_t dim, float* y) {
  for (int64_t h = 0; h < heads; ++h) kernels::hadamard(x + h * dim, dim, y + h * dim);
}

// Stores rows [0, count) of k and v, whose positions begin at `start`, where slot(position) says.
// A task owns whole blocks: neighboring rows of a block share cache lines.
template <class F>
void store_rows(const Step& step, const cache::KvShape& s, const float* k, const float* v,
                int64_t start, int64_t count, F&& slot) {
  const int64_t k_width = int64_t{s.kv_heads} * s.head_dim;
  const int64_t v_width = int64_t{s.kv_heads} * s.value_dim;
  const auto store = [&](int64_t first, int64_t end, int worker) {
    for (int64_t r = first; r < end; ++r) {
      const cache::KvSlot to = slot(start + r);
      const float* keys = k + r * k_width;
      if (hadamard_rotated(s)) {
        hadamard(keys, s.kv_heads, s.head_dim, step.worker_scratch(worker));
        keys = step.worker_scratch(worker);
      }
      step.k->kv_store(s.k_type, s.v_type, keys, v + r * v_width, s.kv_heads, s.head_dim,
                       s.value_dim, to.k_block, to.v_block, to.row);
    }
  };
  if (count * (k_width + v_width) < kInlineFloats) return store(0, count, 0);
  const int64_t block0 = start / kernels::kKvBlockRows;
  const int64_t block1 = (start + count - 1) / kernels::kKvBlockRows + 1;
  step.pool->run(block1 - block0, [&](int64_t task, int worker) {
    const int64_t first = (block0 + task) * kernels::kKvBlockRows - start;
    store(std::max<int64_t>(0, first), std::min(count, first + kernels::kKvBlockRows), worker);
  });
}

void run_append(const BoundOp& op, Step& step) {
  const Slot &k = op.in[0], &v = op.in[1];
  const SequenceRows* sequences = step.sequences[static_cast<int>(k.rows)];
  for (size_t s = 0; s < step.batch.size(); ++s) {
    const SequenceChunk& sequence = step.batch[s];
    const SequenceRows rows = sequences[s];
    if (rows.count == 0) continue;
    cache::LayerCache& cache = sequence.caches->at(op.attr.as<plan::AppendAttributes>().cache);
    store_rows(step, cache.shape(), step.floats(k) + rows.first * k.width,
               step.floats(v) + rows.first * v.width, sequence.start, rows.count,
               [&](int64_t position) { return cache.slot(position); });
  }
}

const plan::CacheSpec& cache_of(const Binder& b, const plan::Op& op) {
  const int32_t cache = plan::cache_of(op);
  CULET_CHECK(cache >= 0 && static_cast<size_t>(cache) < b.plan.caches.size());
  return b.plan.caches[static_cast<size_t>(cache)];
}

Result<void> bind_append(const Binder& b, const plan::Op& op, BoundOp* out) {
  const plan::CacheSpec& spec = cache_of(b, op);
  CULET_CHECK(out->in[0].width == spec.kv_heads * spec.head_dim &&
              out->in[0].rows == plan::TokenSet::kAll);
  CULET_CHECK(out->in[1].width == spec.kv_heads * spec.value_dim &&
              out->in[1].rows == plan::TokenSet::kAll);
  out->fn = run_append;
  return {};
}

int64_t append_scratch(const Binder& b, const plan::Op& op, int64_t) {
  const plan::CacheSpec& spec = cache_of(b, op);  // a rotated row
  return int64_t{spec.kv_heads} * spec.head_dim * static_cast<int64_t>(sizeof(float));
}

// ---------------------------------------------------------------- keys of the pass itself

// How the keys and values of an attend without a cache are stored.
cache::KvShape own_shape(const plan::AttendAttributes& a) {
  return {kernels::kKvF32, kernels::kKvF32, a.kv_heads, a.head_dim, a.value_dim};
}

int64_t blocks_of(int64_t rows) {
  return (rows + kernels::kKvBlockRows - 1) / kernels::kKvBlockRows;
}

cache::Visibility own_visibility(const plan::AttendAttributes& a) {
  return {0, 0, a.mask == plan::Mask::kBand ? 2 * int64_t{a.band} + 1 : INT64_MAX};
}

int64_t reach(const plan::AttendAttributes& a, int64_t position, int64_t length) {
  if (a.mask == plan::Mask::kFull) return length - 1;
  return a.mask == plan::Mask::kBand ? position + a.band : position;
}

// Stores the keys and values of sequences [first, end) block by block, and lists the blocks.
void store_own_keys(const BoundOp& op, Step& step, size_t first, size_t end) {
  const Slot &k = op.in[1], &v = op.in[2];
  const cache::KvShape shape = own_shape(op.attr.as<plan::AttendAttributes>());
  const size_t k_bytes = shape.k_block_bytes(), v_bytes = shape.v_block_bytes();
  uint8_t* next = step.own_keys;
  step.entries->clear();
  step.attend_chunks->clear();
  for (size_t s = first; s < end; ++s) {
    const SequenceRows rows = step.sequences[static_cast<int>(k.rows)][s];
    uint8_t* blocks = next;
    const auto block_at = [&](int64_t b) {
      return blocks + static_cast<size_t>(b) * (k_bytes + v_bytes);
    };
    store_rows(step, shape, step.floats(k) + rows.first * k.width,
               step.floats(v) + rows.first * v.width, 0, rows.count, [&](int64_t position) {
                 uint8_t* block = block_at(position / kernels::kKvBlockRows);
                 return cache::KvSlot{block, block + k_bytes,
                                      static_cast<int32_t>(position % kernels::kKvBlockRows)};
               });
    const auto listed = step.entries->size();
    for (int64_t b = 0; b < blocks_of(rows.count); ++b) {
      const int64_t position = b * kernels::kKvBlockRows;
      const int64_t left = rows.count - position;
      step.entries->push_back({block_at(b), block_at(b) + k_bytes, position, 0,
                               static_cast<int32_t>(std::min<int64_t>(left, kernels::kKvBlockRows)),
                               b, 0});
    }
    step.attend_chunks->push_back({listed, step.entries->size() - listed});
    next = block_at(blocks_of(rows.count));
  }
}

// ---------------------------------------------------------------- attend

// The maxima, sums and accumulators of the pairs (row, head) of a unit.
struct Partial {
  float *m, *l, *acc;
};

int64_t partial_floats(int64_t pairs, int64_t value_dim) {
  return (pairs * (value_dim + 2) + 15) / 16 * 16;
}

Partial partial_at(float* memory, int64_t pairs) {
  return {memory, memory + pairs, memory + 2 * pairs};
}

// Most pairs of a unit: one row's heads at least.
int64_t most_pairs(const plan::AttendAttributes& a) {
  const int64_t heads = a.heads / a.kv_heads;
  const int64_t rows = std::clamp<int64_t>(kTileFloats / (heads * a.value_dim), 1, kMostUnitRows);
  return rows * heads;
}

// Floats of a unit's rotated queries. The kernel finds a head at (kv_head * heads + h) of its row,
// so what comes before the first one is there too.
int64_t rotated_floats(const plan::AttendAttributes& a) {
  return (most_pairs(a) + a.heads) * a.head_dim;
}

// How this step's attention is cut.
struct AttentionCut {
  int64_t heads;       // query heads of a kv head
  int64_t unit_heads;  // of a unit
  int64_t head_parts;
  int64_t tile;  // rows of a unit
  int64_t units = 0;
  int64_t parts = 0;     // most parts of any unit
  int64_t products = 0;  // multiply-adds in all, about
};

// The parts that hold keys which rows at positions [first, last] may see: those with sink keys,
// then those of the window. What lies between is never walked, so a stream costs the same for ever.
struct Parts {
  int64_t sinks = 0, sinks_count = 0;
  int64_t recent = 0, recent_count = 0;

  int64_t count() const { return sinks_count + recent_count; }
  int64_t at(int64_t i) const { return i < sinks_count ? sinks + i : recent + i - sinks_count; }
};

Parts parts_of(const cache::Visibility& v, int64_t first, int64_t last) {
  const int64_t oldest = v.window > first - v.start ? v.start : first - v.window + 1;
  Parts parts;
  parts.recent = oldest / kernels::kPartKeys;
  parts.recent_count = last / kernels::kPartKeys - parts.recent + 1;
  if (v.sinks_end > v.start) {
    parts.sinks = v.start / kernels::kPartKeys;
    const int64_t end = (v.sinks_end - 1) / kernels::kPartKeys + 1;
    parts.sinks_count = std::max<int64_t>(0, std::min(end, parts.recent) - parts.sinks);
  }
  return parts;
}

// One unit, found from its number.
struct Unit {
  size_t sequence;
  AttendChunk view;
  int64_t row0, rows;  // of the value
  int32_t kv_head;
  int64_t head0, heads;  // of the kv head
  Parts parts;           // with visible keys
};

int64_t tiles(const SequenceRows& rows, int64_t tile) { return (rows.count + tile - 1) / tile; }

// Attention of sequences [first, end), whose entries are listed.
class Attend {
 public:
  Attend(const BoundOp& op, Step& step, size_t first, size_t end)
      : op_(op),
        step_(step),
        set_(static_cast<int>(op.in[0].rows)),
        attr_(op.attr.as<plan::AttendAttributes>()),
        own_(attr_.cache == plan::kNone),
        reach_(own_ ? step.reach : step.positions[set_]),
        first_(first),
        end_(end),
        threads_(step.pool->size()) {}

  void run() {
    plan_cut();
    if (cut_.units == 0) return;
    if (cut_.units < threads_ && cut_.parts > 1 && cut_.products >= kInlineProducts) {
      run_waves();
    } else if (cut_.products < kInlineProducts || threads_ == 1) {
      for (int64_t u = 0; u < cut_.units; ++u) run_unit(unit(u), step_.worker_scratch(0));
    } else {
      step_.pool->run(cut_.units, [&](int64_t task, int worker) {
        run_unit(unit(task), step_.worker_scratch(worker));
      });
    }
  }

 private:
  const cache::LayerCache& cache(size_t s) const {
    return caches_of(step_.batch[s])->at(attr_.cache);
  }
  const SequenceRows& rows(size_t s) const { return step_.sequences[set_][s]; }
  cache::Visibility visibility(size_t s) const {
    return own_ ? own_visibility(attr_) : cache(s).visibility();
  }
  // The last key that a row of the sequence sees, if there are so many.
  int64_t reach(int64_t row) const { return reach_[row]; }
  int64_t reach(size_t s, int64_t row) const {
    return own_ ? std::min(reach_[row], rows(s).count - 1) : reach_[row];
  }

  void plan_cut() {
    const plan::AttendAttributes& a = attr_;
    cut_.heads = a.heads / a.kv_heads;
    cut_.unit_heads = cut_.heads;
    cut_.tile = most_pairs(a) / cut_.heads;
    int64_t keys = 0;
    for (size_t s = first_; s < end_; ++s) {
      if (rows(s).count == 0) continue;
      const int64_t last = reach(s, rows(s).first + rows(s).count - 1);
      const cache::Visibility v = visibility(s);
      cut_.parts = std::max(cut_.parts, parts_of(v, reach(rows(s).first), last).count());
      const int64_t recent = std::min(last - v.start + 1, v.window);
      keys += rows(s).count * std::min(last - v.start + 1, recent + v.sinks_end - v.start);
    }
    cut_.products = keys * a.heads * (a.head_dim + a.value_dim);
    while (count_units() < 3 * threads_ && cut_.tile > 4) cut_.tile = (cut_.tile + 1) / 2;
    const int64_t units = count_units();
    if (units < threads_ && cut_.parts < threads_) {
      cut_.unit_heads = std::max<int64_t>(1, cut_.heads * units / threads_);
    }
    cut_.head_parts = (cut_.heads + cut_.unit_heads - 1) / cut_.unit_heads;
    cut_.units = count_units() * cut_.head_parts;
  }

  int64_t count_units() const {  // without the split of heads
    int64_t n = 0;
    for (size_t s = first_; s < end_; ++s) n += tiles(rows(s), cut_.tile) * attr_.kv_heads;
    return n;
  }

  // Tiles of a sequence are numbered from its end: the last rows have the most keys, so they go
  // first.
  Unit unit(int64_t u) const {
    size_t s = first_;
    const int64_t per_tile = attr_.kv_heads * cut_.head_parts;
    for (; u >= tiles(rows(s), cut_.tile) * per_tile; ++s)
      u -= tiles(rows(s), cut_.tile) * per_tile;
    const int64_t tile = tiles(rows(s), cut_.tile) - 1 - u / per_tile;
    Unit result{};
    result.sequence = s;
    result.view = (*step_.attend_chunks)[s - first_];
    result.row0 = rows(s).first + tile * cut_.tile;
    result.rows = std::min(cut_.tile, rows(s).count - tile * cut_.tile);
    result.kv_head = static_cast<int32_t>(u % per_tile / cut_.head_parts);
    result.head0 = u % cut_.head_parts * cut_.unit_heads;
    result.heads = std::min(cut_.unit_heads, cut_.heads - result.head0);
    result.parts =
        parts_of(visibility(s), reach(result.row0), reach(s, result.row0 + result.rows - 1));
    return result;
  }

  // The unit's keys of one part; false: there are none. `rotated_q` has room for two
  // rotated_floats().
  bool run_part(const Unit& u, int64_t part, const Partial& to, float* rotated_q) const {
    const cache::Visibility v = visibility(u.sequence);
    const int64_t age = reach(u.row0) - v.start;
    const int64_t oldest =
        v.sinks_end > v.start || age < v.window ? v.start : age - v.window + 1 + v.start;
    const int64_t block0 = std::max(part * kPartBlocks, oldest / kernels::kKvBlockRows);
    const int64_t block1 =
        std::min((part + 1) * kPartBlocks - 1, reach(u.row0 + u.rows - 1) / kernels::kKvBlockRows);
    const KvEntry* all = step_.entries->data() + u.view.first;
    const auto before = [](const KvEntry& e, int64_t block) { return e.block_index < block; };
    const KvEntry* first = std::lower_bound(all, all + u.view.count, block0, before);
    const KvEntry* end = std::lower_bound(first, all + u.view.count, block1 + 1, before);
    if (first == end) return false;
    const plan::AttendAttributes& a = attr_;
    kernels::AttendArgs args{};
    args.entries = first;
    args.n_entries = end - first;
    const cache::KvShape shape = own_ ? own_shape(a) : cache(u.sequence).shape();
    args.k_type = shape.k_type;
    args.v_type = shape.v_type;
    args.sink_end = v.sinks_end;
    args.window = v.window;
    // The kernel finds a head at (kv_head * heads_per_kv + h): step to where that is for this unit.
    const int64_t head = u.kv_head * cut_.heads + u.head0 - u.kv_head * u.heads;
    const int64_t query = u.row0 * op_.in[0].width + head * a.head_dim;
    args.q[0] = step_.floats(op_.in[0]) + query;
    args.q[1] = step_.floats(op_.in[own_ ? 0 : op_.in.size() - 1]) + query;  // maybe itself
    args.q_stride = op_.in[0].width;
    if (hadamard_rotated(shape)) rotate_queries(u, rotated_q, &args);
    args.positions = reach_ + u.row0;
    args.rows = u.rows;
    args.heads_per_kv = static_cast<int32_t>(u.heads);
    args.kv_head = u.kv_head;
    args.head_dim = a.head_dim;
    args.value_dim = a.value_dim;
    args.scale = a.scale;
    args.softcap = a.softcap;
    step_.k->attend_part(&args, part, to.m, to.l, to.acc);
    return true;
  }

  void rotate_queries(const Unit& u, float* to, kernels::AttendArgs* args) const {
    const int64_t dim = attr_.head_dim, before = u.kv_head * u.heads * dim;
    const bool sinks = args->q[1] != args->q[0];
    for (int i = 0; i < (sinks ? 2 : 1); ++i) {
      float* rows = to + i * rotated_floats(attr_);
      for (int64_t r = 0; r < u.rows; ++r) {
        hadamard(args->q[i] + r * args->q_stride + before, u.heads, dim,
                 rows + before + r * u.heads * dim);
      }
      args->q[i] = rows;
    }
    if (!sinks) args->q[1] = args->q[0];
    args->q_stride = u.heads * dim;
  }

  void merge(const Unit& u, const Partial& into, const Partial& part) const {
    step_.k->attend_merge(into.m, into.l, into.acc, part.m, part.l, part.acc, u.rows * u.heads,
                          attr_.value_dim);
  }

  void finish(const Unit& u, const Partial& p) const {
    const int64_t value_dim = attr_.value_dim;
    const int64_t head = u.kv_head * cut_.heads + u.head0;
    float* out = step_.floats(op_.out[0]) + u.row0 * op_.out[0].width + head * value_dim;
    for (int64_t r = 0; r < u.rows; ++r) {
      step_.k->attend_finish(p.l + r * u.heads, p.acc + r * u.heads * value_dim, u.heads, value_dim,
                             out + r * op_.out[0].width, value_dim);
    }
  }

  // A worker's scratch: two partial results, then the rotated queries.
  float* rotated_at(float* scratch) const {
    return scratch + 2 * partial_floats(most_pairs(attr_), attr_.value_dim);
  }

  void run_unit(const Unit& u, float* scratch) const {
    const int64_t pairs = u.rows * u.heads;
    const Partial sum = partial_at(scratch, pairs);
    const Partial part = partial_at(scratch + partial_floats(pairs, attr_.value_dim), pairs);
    bool any = false;
    for (int64_t i = 0; i < u.parts.count(); ++i) {
      if (!run_part(u, u.parts.at(i), any ? part : sum, rotated_at(scratch))) continue;
      if (any) merge(u, sum, part);
      any = true;
    }
    CULET_CHECK(any);
    finish(u, sum);
  }

  void run_waves() {
    const int64_t size = partial_floats(most_pairs(attr_), attr_.value_dim);
    float* memory = reinterpret_cast<float*>(step_.shared_scratch);
    const auto place = [&](int64_t u,
                           int64_t i) {  // i = 0: the running sum, 1...: the wave's parts
      return partial_at(memory + (u * (threads_ + 1) + i) * size, unit(u).rows * unit(u).heads);
    };
    for (int64_t wave = 0; wave * threads_ < cut_.parts; ++wave) {
      const int64_t done = wave * threads_, width = std::min(threads_, cut_.parts - done);
      step_.pool->run(cut_.units * width, [&](int64_t task, int worker) {
        float* rotated_q = rotated_at(step_.worker_scratch(worker));
        const Unit u = unit(task / width);
        const int64_t i = done + task % width;
        const Partial to = place(task / width, task % width + 1);
        if (i >= u.parts.count() || !run_part(u, u.parts.at(i), to, rotated_q)) set_empty(u, to);
      });
      for (int64_t i = 0; i < cut_.units; ++i) {
        const Unit u = unit(i);
        if (wave == 0) set_empty(u, place(i, 0));
        for (int64_t p = 0; p < width; ++p) merge(u, place(i, 0), place(i, p + 1));
      }
    }
    for (int64_t i = 0; i < cut_.units; ++i) finish(unit(i), place(i, 0));
  }

  static void set_empty(const Unit& u, const Partial& p) {
    std::fill_n(p.m, u.rows * u.heads, -std::numeric_limits<float>::infinity());
    std::fill_n(p.l, u.rows * u.heads, 0.0f);
  }

  const BoundOp& op_;
  Step& step_;
  const int set_;
  const plan::AttendAttributes& attr_;
  const bool own_;  // keys of the pass itself, not of caches
  const int64_t* reach_;
  const size_t first_, end_;
  const int64_t threads_;
  AttentionCut cut_{};
};

void run_attend(const BoundOp& op, Step& step) {
  const auto& attr = op.attr.as<plan::AttendAttributes>();
  const int set = static_cast<int>(op.in[0].rows);
  step.entries->clear();
  step.attend_chunks->clear();
  for (size_t s = 0; s < step.batch.size(); ++s) {
    const SequenceRows rows = step.sequences[set][s];
    const int64_t* positions = step.positions[set] + rows.first;
    const size_t first = step.entries->size();
    if (rows.count > 0) {
      // A draft model's row has no key of its own.
      const int64_t last = positions[rows.count - 1] - (step.batch[s].target != nullptr ? 1 : 0);
      caches_of(step.batch[s])->at(attr.cache).view(positions[0], last, step.entries);
    }
    step.attend_chunks->push_back({first, step.entries->size() - first});
  }
  Attend(op, step, 0, step.batch.size()).run();
}

// Takes as many sequences at a time as there is memory for their blocks.
void run_attend_own(const BoundOp& op, Step& step) {
  const auto& attr = op.attr.as<plan::AttendAttributes>();
  const SequenceRows* sequences = step.sequences[static_cast<int>(op.in[0].rows)];
  for (size_t s = 0; s < step.batch.size(); ++s) {
    CULET_CHECK(step.batch[s].start == 0);
    for (int64_t r = 0; r < sequences[s].count; ++r)
      step.reach[sequences[s].first + r] = reach(attr, r, sequences[s].count);
  }
  for (size_t first = 0; first < step.batch.size();) {
    size_t end = first;
    for (int64_t blocks = 0; end < step.batch.size(); ++end) {
      blocks += blocks_of(sequences[end].count);
      if (blocks > step.own_blocks) break;
    }
    CULET_CHECK(end > first);
    store_own_keys(op, step, first, end);
    Attend(op, step, first, end).run();
    first = end;
  }
}

Result<void> bind_attend_own(const plan::Op& op, BoundOp* out) {
  const auto& a = op.attr.as<plan::AttendAttributes>();
  CULET_CHECK(a.kv_heads > 0 && a.heads % a.kv_heads == 0);
  CULET_CHECK(out->in.size() == 3 && out->in[0].width == a.heads * a.head_dim &&
              out->in[1].width == a.kv_heads * a.head_dim &&
              out->in[2].width == a.kv_heads * a.value_dim &&
              out->out[0].width == a.heads * a.value_dim);
  for (const Slot& in : out->in) CULET_CHECK(in.rows == plan::TokenSet::kAll);
  out->fn = run_attend_own;
  return {};
}

Result<void> bind_attend(const Binder& b, const plan::Op& op, BoundOp* out) {
  const auto& a = op.attr.as<plan::AttendAttributes>();
  if (a.cache == plan::kNone) return bind_attend_own(op, out);
  if (a.mask != plan::Mask::kCausal) {
    return unsupported(b.plan, op, "another mask than causal over a cache");
  }
  const plan::CacheSpec& spec = cache_of(b, op);
  CULET_CHECK(a.kv_heads == spec.kv_heads && a.head_dim == spec.head_dim &&
              a.value_dim == spec.value_dim);
  CULET_CHECK(a.kv_heads > 0 && a.heads % a.kv_heads == 0);
  CULET_CHECK(out->in[0].width == a.heads * a.head_dim &&
              out->out[0].width == a.heads * a.value_dim);
  CULET_CHECK(out->in.size() == 1 || (out->in.size() == 2 && out->in[1].width == out->in[0].width &&
                                      out->in[1].rows == out->in[0].rows));
  if (spec.target != plan::kNone) out->attr.as<plan::AttendAttributes>().cache = spec.target;
  out->fn = run_attend;
  return {};
}

int64_t attend_scratch(const Binder&, const plan::Op& op, int64_t) {
  const auto& a = op.attr.as<plan::AttendAttributes>();
  return 2 * (partial_floats(most_pairs(a), a.value_dim) + rotated_floats(a)) *
         static_cast<int64_t>(sizeof(float));
}

constexpr OpEntry kAttentionOps[] = {
    {plan::OpKind::append, bind_append, append_scratch},
    {plan::OpKind::attend, bind_attend, attend_scratch},
};

}  // namespace

std::span<const OpEntry> attention_ops() { return kAttentionOps; }

int64_t own_block_bytes(const plan::Op& op) {
  const auto* attend = op.attr.get_if<plan::AttendAttributes>();
  if (attend == nullptr || attend->cache != plan::kNone) return 0;
  const cache::KvShape shape = own_shape(*attend);
  return static_cast<int64_t>(shape.k_block_bytes() + shape.v_block_bytes());
}

int64_t attend_shared_bytes(const plan::Op& op, int threads) {
  const auto* attend = op.attr.get_if<plan::AttendAttributes>();
  if (attend == nullptr || threads == 1) return 0;
  return partial_floats(most_pairs(*attend), attend->value_dim) *
         static_cast<int64_t>(sizeof(float)) * threads * (threads + 1);
}

}  // namespace culet::backend
