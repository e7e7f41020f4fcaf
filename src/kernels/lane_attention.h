// Attention over cached blocks on 16 lanes: scalar_attention.cpp's sums, one lane a key.
//
// A tile of (row, head) pairs of one kv head meets each block together, so that a loaded key vector
// (16 keys of one dimension) and a loaded value vector serve all pairs; in prefill the tile spans
// rows, in decode the heads that share the kv head. Keys that a row may not see are computed in
// their own lanes and dropped by masks: they never meet a visible key's sums. Values are summed
// over runs of keys that neighbouring pairs see alike, each pair's keys in ascending order.
// The registers hold the sums of kAtOnce pairs with kKeyVectors times 16 keys (12 ymm, 24 zmm or
// NEON registers).
//
// Only the innermost loops know a KV type: key_dots that of the keys, sum_values that of the
// values.
#pragma once

#include "kernels/kernels.h"
#include "kernels/kv_store.h"
#include "kernels/lane_math.h"

namespace culet::kernels {
namespace {

constexpr bool kManyRegisters = kLaneRegisters >= 32;
constexpr int kAtOnce = kManyRegisters ? 12 : 6;
constexpr int kKeyVectors = kManyRegisters ? 2 : 1;
constexpr int kTilePairs = 12;  // a multiple of kAtOnce, at most 16
// Vectors of 16 values that are summed at once.
constexpr int value_vectors(int pairs) {
  if (kManyRegisters) return pairs <= 4 ? 4 : 2;
  return pairs <= 3 ? kAtOnce / pairs : 1;
}
constexpr int64_t kPartBlocks = kPartKeys / kKvBlockRows;
constexpr float kMinusInf = -__builtin_inff();

constexpr int64_t element_bytes(KvType type) { return type == kKvF32 ? 4 : type == kKvQ8 ? 1 : 2; }

// Elements as float32; quants of q8_0 before they meet their scale.
template <KvType kType>
CULET_INLINE Floats load_vector(const uint8_t* p) {
  if constexpr (kType == kKvF32) return load(reinterpret_cast<const float*>(p));
  if constexpr (kType == kKvF16) return load_f16(p);
  if constexpr (kType == kKvBf16) return load_bf16(p);
  if constexpr (kType == kKvQ8) return to_floats(load_s8(p));
}
template <KvType kType>
CULET_INLINE Lanes load_kv(const uint8_t* base, int64_t index) {
  const uint8_t* p = base + element_bytes(kType) * index;
  return lanes_of(
      CULET_LAMBDA(=, auto first) { return load_vector<kType>(p + first * element_bytes(kType)); });
}
// The first n of 16.
template <KvType kType>
CULET_INLINE Lanes load_kv(const uint8_t* base, int64_t index, int64_t n) {
  alignas(64) uint8_t copy[64];
  copy_part(base + element_bytes(kType) * index, element_bytes(kType) * n, copy);
  return load_kv<kType>(copy, 0);
}

// The low x bits set, x cut to 0..32.
CULET_INLINE uint32_t low_bits(int64_t x) {
  return x <= 0 ? 0 : x >= 32 ? 0xffffffffu : (1u << x) - 1;
}

CULET_INLINE uint32_t visible_mask(const AttendArgs& a, const KvEntry& e, int64_t position) {
  const int64_t window = a.window < (int64_t{1} << 40) ? a.window : int64_t{1} << 40;
  const int64_t age = position - e.position;  // of the entry's first row
  const uint32_t sinks = low_bits(a.sink_end - e.position);
  const uint32_t recent = ~low_bits(age - window + 1);
  return (low_bits(e.rows) & low_bits(age + 1) & (sinks | recent)) << e.first;
}

// A tile of pairs and its running softmax; sums of values rest in `acc`, [pairs][value_dim].
struct Pairs {
  int count;
  int64_t row[kTilePairs];
  int64_t query_offset[kTilePairs];
  int64_t last_position;
  float* acc;
  float m[16];                            // by pair: maximum
  float c[16];                            // factor that the block puts on what came before
  Lanes lanes[kTilePairs];                // sums of weights
  uint32_t mask[kTilePairs];              // keys of the current block that the pair sees
  float score[kTilePairs][kKvBlockRows];  // then the weights p
};

// Adds dimensions [d, end) of R pairs' dots with 16 kKeyVectors keys; of q8_0: those of a block
// with these scales.
template <KvType kType, int R>
CULET_INLINE void add_dots(const uint8_t* keys, const float* const* q, int64_t d, int64_t end,
                           const Lanes* scale, Lanes (*s)[kKeyVectors]) {
  for (; d < end; d++) {
    Lanes k[kKeyVectors];
    unroll<kKeyVectors>(CULET_LAMBDA(&, auto h) {
      k[h] = load_kv<kType>(keys, d * kKvBlockRows + 16 * h);
      if constexpr (kType == kKvQ8) k[h] = k[h] * scale[h];
    });
    unroll<R>(CULET_LAMBDA(&, auto r) {
      const Floats x = set1(q[r][d]);
      unroll<kKeyVectors>(CULET_LAMBDA(&, auto h) { s[r][h] = fma(x, k[h], s[r][h]); });
    });
  }
}

// Dots of R pairs with 16 kKeyVectors of a head's 32 keys, from key `first`, times scale, into the
// lanes of `score` that a mask has.
template <KvType kType, int R>
void key_dots(const AttendArgs& a, const uint8_t* head, int64_t first, const float* const* q,
              const uint32_t* masks, float* score) {
  Lanes s[R][kKeyVectors];
  unroll<R * kKeyVectors>(
      CULET_LAMBDA(&, auto i) { s[i / kKeyVectors][i % kKeyVectors] = zero_lanes(); });
  const int64_t dim = a.head_dim;
  const uint8_t* keys = head + first * element_bytes(kType);
  if constexpr (kType == kKvQ8) {
    const uint8_t* scales = head + kKvBlockRows * dim;
    for (int64_t d = 0; d < dim; d += 32) {  // a block's 32 scales begin at d / 32 * 32
      Lanes scale[kKeyVectors];
      unroll<kKeyVectors>(
          CULET_LAMBDA(&, auto h) { scale[h] = load_kv<kKvF16>(scales, d + first + 16 * h); });
      add_dots<kType, R>(keys, q, d, dim - d < 32 ? dim : d + 32, scale, s);
    }
  } else {
    add_dots<kType, R>(keys, q, 0, dim, nullptr, s);
  }
  const Floats scale = set1(a.scale);
  unroll<R * kKeyVectors>(CULET_LAMBDA(&, auto i) {
    constexpr int r = i / kKeyVectors, h = i % kKeyVectors;
    store_bits(score + r * kKvBlockRows + 16 * h, masks[r] >> 16 * h, s[r][h] * scale);
  });
}

typedef void (*KeyDots)(const AttendArgs&, const uint8_t*, int64_t, const float* const*,
                        const uint32_t*, float*);
template <KvType kType, int R>
constexpr KeyDots dots_of() {
  if constexpr (R <= kAtOnce) return key_dots<kType, R>;
  return nullptr;
}
template <KvType kType>
constexpr KeyDots kDotsOfPairs[kTilePairs + 1] = {nullptr,
                                                  dots_of<kType, 1>(),
                                                  dots_of<kType, 2>(),
                                                  dots_of<kType, 3>(),
                                                  dots_of<kType, 4>(),
                                                  dots_of<kType, 5>(),
                                                  dots_of<kType, 6>(),
                                                  dots_of<kType, 7>(),
                                                  dots_of<kType, 8>(),
                                                  dots_of<kType, 9>(),
                                                  dots_of<kType, 10>(),
                                                  dots_of<kType, 11>(),
                                                  dots_of<kType, 12>()};
constexpr const KeyDots* kDotsOfType[kKvTypeCount] = {kDotsOfPairs<kKvF32>, kDotsOfPairs<kKvF16>,
                                                      kDotsOfPairs<kKvBf16>, kDotsOfPairs<kKvQ8>};

CULET_INLINE void run_key_dots(const AttendArgs& a, const uint8_t* head, int64_t first,
                               const float* const* q, const uint32_t* masks, int count,
                               float* score) {
  const KeyDots* dots = kDotsOfType[a.k_type];
  for (int i = 0; i < count; i += kAtOnce)
    dots[count - i < kAtOnce ? count - i : kAtOnce](a, head, first, q + i, masks + i,
                                                    score + i * kKvBlockRows);
}

// cap * tanh(score / cap) in the lanes that a mask has.
void cap_scores(const uint32_t* masks, int count, float cap, float* score) {
  for (int i = 0; i < count; i++, score += kKvBlockRows)
    for (int h = 0; h < kKeyVectors; h++)
      store_bits(score + 16 * h, masks[i] >> 16 * h,
                 softcap(load_lanes(score + 16 * h), set1(cap)));
}

// Scores of one entry into the tile; masks gain the keys that each pair sees.
void score_entry(const AttendArgs& a, const KvEntry& e, Pairs* t) {
  if (e.position > t->last_position) return;
  uint32_t masks[kTilePairs], any_mask = 0;
  const float* q[kTilePairs];
  for (int i = 0; i < t->count; i++) {
    masks[i] = i > 0 && t->row[i] == t->row[i - 1] ? masks[i - 1]
                                                   : visible_mask(a, e, a.positions[t->row[i]]);
    q[i] = a.q[e.query] + t->query_offset[i];
    any_mask |= masks[i];
    t->mask[i] |= masks[i];
  }
  const uint8_t* head = e.k + a.kv_head * kv_head_bytes(a.k_type, a.head_dim);
  constexpr int kKeys = 16 * kKeyVectors;
  for (int first = 0; first < kKvBlockRows; first += kKeys) {
    if (any_mask & low_bits(kKeys)) {
      float* score = t->score[0] + first;
      run_key_dots(a, head, first, q, masks, t->count, score);
      if (a.softcap > 0) cap_scores(masks, t->count, a.softcap, score);
    }
    if (kKeys == kKvBlockRows) break;
    any_mask >>= 16;
    for (int i = 0; i < t->count; i++) masks[i] >>= 16;
  }
}

// Maxima and rescaling factors of all pairs for the current block, then weights and lane sums.
//
// The maximum is NaN if a visible score is, or if there is none above -infinity. A factor of exp(0)
// is exactly 1, so pairs whose maximum stands are multiplied by 1. Factors of pairs that see no key
// are not used.
CULET_INLINE void weigh(Pairs* t) {
  float top[16] = {};
  uint32_t nan = 0;
  for (int i = 0; i < t->count; i++) {
    const uint32_t mask = t->mask[i];
    const Lanes low = select_bits(mask, load_lanes(t->score[i]), set1(kMinusInf));
    const Lanes high = select_bits(mask >> 16, load_lanes(t->score[i] + 16), set1(kMinusInf));
    top[i] = largest(larger(low, high));
    const bool none = mask && !(top[i] > kMinusInf) && !(t->m[i] > kMinusInf);
    nan |= static_cast<uint32_t>(none || any_nan(low, high)) << i;
  }
  const Lanes old = load_lanes(t->m);
  // An old NaN stays: it is the second operand.
  const Lanes m = select_bits(~nan, larger(load_lanes(top), old), set1(__builtin_nanf("")));
  store_lanes(t->m, m);
  store_lanes(t->c, exp(old - m));
  for (int i = 0; i < t->count; i++) {
    const uint32_t mask = t->mask[i];
    if (!mask) continue;
    const Floats maximum = set1(t->m[i]);
    Lanes lanes = t->lanes[i] * set1(t->c[i]);
    for (int h = 0; h < 2; h++) {
      float* score = t->score[i] + 16 * h;
      const Lanes p = exp(keep_bits(mask >> 16 * h, load_lanes(score)) - maximum);
      store_lanes(score, p);
      lanes = lanes + keep_bits(mask >> 16 * h, p);
    }
    t->lanes[i] = lanes;
  }
}

// Keys [j0, j1) of a block for neighbouring pairs that all see them.
struct Run {
  const uint8_t* values;  // of the kv head
  int64_t value_dim;
  int j0, j1;
  const float (*p)[kKvBlockRows];
  const float* factor;  // on what `acc` holds
  float* acc;
};

// The n values from `d` + 16 v of key j, at most 16. Where there are more vectors, d is a multiple
// of 32 unless their number is odd.
template <KvType kType, int V, bool kWhole>
CULET_INLINE Lanes load_values(const Run& run, int64_t j, int64_t d, int v, int64_t n) {
  const int64_t dim = run.value_dim, at = j * dim + d + 16 * v;
  const Lanes x = kWhole ? load_kv<kType>(run.values, at) : load_kv<kType>(run.values, at, n);
  if constexpr (kType != kKvQ8) return x;
  const int64_t block = V % 2 == 0 ? d / 32 + v / 2 : (d + 16 * v) / 32;
  const uint8_t* scales = run.values + kKvBlockRows * dim;
  return x * set1_f16(scales + 2 * (j * ((dim + 31) / 32) + block));
}

// acc = acc * factor, then += p_j * v_j: R pairs, V vectors of values from `d`; `n` < 16 values in
// a last vector that is not whole.
template <KvType kType, int R, int V, bool kWhole>
void sum_values(const Run& run, int64_t d, int64_t n) {
  const int64_t dim = run.value_dim;
  float* acc = run.acc + d;
  Lanes s[R][V];
  unroll<R * V>(CULET_LAMBDA(&, auto i) {
    constexpr int r = i / V, v = i % V;
    const float* from = acc + r * dim + 16 * v;
    s[r][v] = (kWhole ? load_lanes(from) : load_lanes(from, n)) * set1(run.factor[r]);
  });
  for (int j = run.j0; j < run.j1; j++) {
    if constexpr (kManyRegisters) {
      Lanes x[V];
      unroll<V>(CULET_LAMBDA(&, auto v) { x[v] = load_values<kType, V, kWhole>(run, j, d, v, n); });
      unroll<R>(CULET_LAMBDA(&, auto r) {
        const Floats p = set1(run.p[r][j]);
        unroll<V>(CULET_LAMBDA(&, auto v) { s[r][v] = fma(p, x[v], s[r][v]); });
      });
    } else {
      unroll<V>(CULET_LAMBDA(&, auto v) {
        const Lanes x = load_values<kType, V, kWhole>(run, j, d, v, n);
        unroll<R>(CULET_LAMBDA(&, auto r) { s[r][v] = fma(set1(run.p[r][j]), x, s[r][v]); });
      });
    }
  }
  unroll<R * V>(CULET_LAMBDA(&, auto i) {
    constexpr int r = i / V, v = i % V;
    float* to = acc + r * dim + 16 * v;
    if constexpr (kWhole)
      store_lanes(to, s[r][v]);
    else
      store_lanes(to, s[r][v], n);
  });
}

template <KvType kType, int R>
void sum_pairs(const Run& run) {
  constexpr int kVectors = value_vectors(R);
  int64_t d = 0;
  for (; d + 16 * kVectors <= run.value_dim; d += 16 * kVectors)
    sum_values<kType, R, kVectors, true>(run, d, 0);
  for (; d + 16 <= run.value_dim; d += 16) sum_values<kType, R, 1, true>(run, d, 0);
  if (d < run.value_dim) sum_values<kType, R, 1, false>(run, d, run.value_dim - d);
}

typedef void (*SumPairs)(const Run&);
template <KvType kType, int R>
constexpr SumPairs sums_of() {
  if constexpr (R <= kAtOnce) return sum_pairs<kType, R>;
  return nullptr;
}
template <KvType kType>
constexpr SumPairs kSumsOfPairs[kTilePairs + 1] = {nullptr,
                                                   sums_of<kType, 1>(),
                                                   sums_of<kType, 2>(),
                                                   sums_of<kType, 3>(),
                                                   sums_of<kType, 4>(),
                                                   sums_of<kType, 5>(),
                                                   sums_of<kType, 6>(),
                                                   sums_of<kType, 7>(),
                                                   sums_of<kType, 8>(),
                                                   sums_of<kType, 9>(),
                                                   sums_of<kType, 10>(),
                                                   sums_of<kType, 11>(),
                                                   sums_of<kType, 12>()};
constexpr const SumPairs* kSumsOfType[kKvTypeCount] = {kSumsOfPairs<kKvF32>, kSumsOfPairs<kKvF16>,
                                                       kSumsOfPairs<kKvBf16>, kSumsOfPairs<kKvQ8>};

CULET_INLINE void run_sum_pairs(KvType type, Run run, int count) {
  const SumPairs* sums = kSumsOfType[type];
  for (int i = 0; i < count; i += kAtOnce) {
    sums[count - i < kAtOnce ? count - i : kAtOnce](run);
    run.p += kAtOnce;
    run.factor += kAtOnce;
    run.acc += kAtOnce * run.value_dim;
  }
}

// End of the run of ones that starts at bit j0.
CULET_INLINE int run_end(uint32_t mask, int j0) {
  const uint32_t gap = ~(mask >> j0);
  return gap == 0 ? 32 : j0 + __builtin_ctz(gap) < 32 ? j0 + __builtin_ctz(gap) : 32;
}

// Takes runs that neighbouring pairs begin at the same key, as long as the shortest of them, until
// every pair's keys among `rows` are used up; factors turn to 1 once applied.
void add_values(const AttendArgs& a, const uint8_t* values, uint32_t rows, Pairs* t) {
  uint32_t left[kTilePairs];
  for (int i = 0; i < t->count; i++) left[i] = t->mask[i] & rows;
  for (int i = 0; i < t->count;) {
    if (!left[i]) {
      i++;
      continue;
    }
    const int j0 = __builtin_ctz(left[i]);
    int j1 = run_end(left[i], j0), n = 1;
    for (; i + n < t->count && left[i + n] && __builtin_ctz(left[i + n]) == j0; n++) {
      const int end = run_end(left[i + n], j0);
      j1 = end < j1 ? end : j1;
    }
    const Run run = {values, a.value_dim, j0, j1, t->score + i, t->c + i, t->acc + i * a.value_dim};
    run_sum_pairs(a.v_type, run, n);
    for (int k = i; k < i + n; k++) {
      left[k] &= ~(low_bits(j1) ^ low_bits(j0));
      t->c[k] = 1.0f;
    }
  }
}

void attend_block(const AttendArgs& a, int64_t first, int64_t end, Pairs* t) {
  uint32_t seen = 0;
  for (int i = 0; i < t->count; i++) t->mask[i] = 0;
  for (int64_t n = first; n < end; n++) score_entry(a, a.entries[n], t);
  for (int i = 0; i < t->count; i++) seen |= t->mask[i];
  if (!seen) return;
  weigh(t);
  for (int64_t n = first; n < end; n++) {
    const KvEntry& e = a.entries[n];
    const uint8_t* values = e.v + a.kv_head * kv_head_bytes(a.v_type, a.value_dim);
    add_values(a, values, low_bits(e.rows) << e.first, t);
  }
}

// Entries [first, end) of the list belong to the part.
void attend_tile(const AttendArgs& a, int64_t first, int64_t end, Pairs* t) {
  for (int64_t n = first; n < end && a.entries[n].position <= t->last_position;) {
    int64_t next = n + 1;
    while (next < end && a.entries[next].block_index == a.entries[n].block_index) next++;
    attend_block(a, n, next, t);
    n = next;
  }
}

CULET_INLINE void start_tile(const AttendArgs& a, int64_t pair, Pairs* t) {
  for (int i = 0; i < t->count; i++) {
    t->row[i] = (pair + i) / a.heads_per_kv;
    const int64_t head = (pair + i) % a.heads_per_kv;
    t->query_offset[i] = t->row[i] * a.q_stride +
                         (static_cast<int64_t>(a.kv_head) * a.heads_per_kv + head) * a.head_dim;
    t->lanes[i] = zero_lanes();
    t->m[i] = kMinusInf;
  }
  t->last_position = a.positions[t->row[t->count - 1]];
}

void attend_part(const AttendArgs* args, int64_t part, float* m, float* l, float* acc) {
  const AttendArgs& a = *args;
  const int64_t pairs = a.rows * a.heads_per_kv;
  for (int64_t i = 0; i < pairs * a.value_dim; i++) acc[i] = 0;
  int64_t first = 0;
  while (first < a.n_entries && a.entries[first].block_index / kPartBlocks < part) first++;
  int64_t end = first;
  while (end < a.n_entries && a.entries[end].block_index / kPartBlocks == part) end++;
  // Whole rows where they fit, so that a tile's pairs mostly see the same keys.
  const int64_t step =
      a.heads_per_kv <= kTilePairs ? kTilePairs / a.heads_per_kv * a.heads_per_kv : kTilePairs;
  Pairs t = {};
  for (int64_t pair = 0; pair < pairs; pair += step) {
    t.count = static_cast<int>(pairs - pair < step ? pairs - pair : step);
    t.acc = acc + pair * a.value_dim;
    start_tile(a, pair, &t);
    attend_tile(a, first, end, &t);
    for (int i = 0; i < t.count; i++) {
      m[pair + i] = t.m[i];
      l[pair + i] = fold(t.lanes[i]);
    }
  }
}

CULET_INLINE float exp_one(float x) { return first_lane(exp(set1(x))); }

void attend_merge(float* m, float* l, float* acc, const float* pm, const float* pl,
                  const float* pacc, int64_t rows_heads, int64_t value_dim) {
  for (int64_t i = 0; i < rows_heads; i++, acc += value_dim, pacc += value_dim) {
    if (pm[i] == kMinusInf) continue;
    if (m[i] == kMinusInf) {
      m[i] = pm[i];
      l[i] = pl[i];
      __builtin_memcpy(acc, pacc, static_cast<size_t>(value_dim) * sizeof(float));
      continue;
    }
    const float m2 = m[i] != m[i] || pm[i] != pm[i] ? __builtin_nanf("")
                     : m[i] > pm[i]                 ? m[i]
                                                    : pm[i];
    const float a = exp_one(m[i] - m2), b = exp_one(pm[i] - m2);
    m[i] = m2;
    const float old = l[i] * a, part = pl[i] * b;
    l[i] = old + part;
    const Floats va = set1(a), vb = set1(b);
    for (int64_t d = 0; d < value_dim; d += kWidth) {
      const int64_t left = value_dim - d;
      store_part(acc + d, load_part(acc + d, left) * va + load_part(pacc + d, left) * vb, left);
    }
  }
}

void attend_finish(const float* l, const float* acc, int64_t rows_heads, int64_t value_dim,
                   float* out, int64_t out_stride_heads) {
  for (int64_t i = 0; i < rows_heads; i++)
    for (int64_t d = 0; d < value_dim; d += kWidth) {
      const int64_t left = value_dim - d;
      const Floats x = load_part(acc + i * value_dim + d, left);
      store_part(out + i * out_stride_heads + d, x / set1(l[i]), left);
    }
}

// A bfloat16 in the low half of each lane: nearest even; a NaN made quiet.
CULET_INLINE Ints bf16_of(Floats x) {
  const Ints bits = as_ints(x), high = shift_right<16>(bits);
  const Ints rounded = shift_right<16>(bits + set1(int32_t{0x7fff}) + (high & set1(int32_t{1})));
  return select(differs(x, x), high | set1(int32_t{0x40}), rounded);
}

template <KvType kType>
CULET_INLINE void store_halves(uint16_t* p, Floats x) {
  uint8_t* bytes = reinterpret_cast<uint8_t*>(p);
  if constexpr (kType == kKvF16) store_f16(bytes, x);
  if constexpr (kType == kKvBf16) store_low16(bytes, bf16_of(x));
}
template <KvType kType>
void store_half_row(const float* x, const Place& to) {
  uint16_t* out = to.elements<uint16_t>();
  int64_t i = 0;
  if (to.step == 1)
    for (; i + kWidth <= to.dim; i += kWidth) store_halves<kType>(out + i, load(x + i));
  for (; i < to.dim; i += kWidth) {
    const int64_t left = to.dim - i;
    uint16_t h[kWidth];
    store_halves<kType>(h, load_part(x + i, left));
    put(h, left < kWidth ? left : kWidth, out + i * to.step, to.step);
  }
}

void store_q8_row(const float* x, const Place& to) {
  for (int64_t i = 0; i < to.dim; i += 32) {
    const int64_t n = to.dim - i < 32 ? to.dim - i : 32;
    float copy[32] = {};
    if (n < 32) __builtin_memcpy(copy, x + i, static_cast<size_t>(n) * sizeof(float));
    const float* block = n < 32 ? copy : x + i;
    const uint16_t scale = q8_scale(largest_magnitude_bits(block));
    const float d = quant::half_to_float(scale);
    int8_t q[32] = {};
    if (d > 0)
      for (int j = 0; j < 32; j += kWidth) store_low8(q + j, nearest(load(block + j) / set1(d)));
    put(q, n, to.elements<int8_t>() + i * to.step, to.step);
    to.set_scale(i / 32, scale);
  }
}

void kv_store(KvType k_type, KvType v_type, const float* k, const float* v, int32_t kv_heads,
              int32_t head_dim, int32_t value_dim, uint8_t* k_block, uint8_t* v_block, int32_t r) {
  static constexpr void (*kStore[kKvTypeCount])(const float*, const Place&) = {
      store_f32_row, store_half_row<kKvF16>, store_half_row<kKvBf16>, store_q8_row};
  for (int64_t h = 0; h < kv_heads; h++) {
    kStore[k_type](k + h * head_dim, key_place(k_block, k_type, h, head_dim, r));
    kStore[v_type](v + h * value_dim, value_place(v_block, v_type, h, value_dim, r));
  }
}

void add_lane_attention(Kernels* table) {
  table->attend_part = attend_part;
  table->attend_merge = attend_merge;
  table->attend_finish = attend_finish;
  table->kv_store = kv_store;
}

}  // namespace
}  // namespace culet::kernels
