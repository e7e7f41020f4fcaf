// Attention over cached blocks with AVX-512: scalar_attention.cpp's sums, one lane a key.
//
// A tile of (row, head) pairs of one kv head meets each block together, so that a loaded key vector
// (16 keys of one dimension) and a loaded value vector serve all pairs; in prefill the tile spans
// rows, in decode the heads that share the kv head. Keys that a row may not see are computed in
// their own lanes and dropped by masks: they never meet a visible key's sums. Values are summed
// over runs of keys that neighbouring pairs see alike, each pair's keys in ascending order.
//
// Only the innermost loops know a KV type: key_dots that of the keys, sum_values that of the
// values.
#include "kernels/kernels.h"
#include "kernels/kv_store.h"
#include "kernels/levels.h"
#include "kernels/x86_avx512_math.h"

#include <immintrin.h>
#include <stdint.h>

namespace culet::kernels {
namespace {

constexpr int kTilePairs = 12;  // at most 16: a tile's maxima are the lanes of one vector
constexpr int64_t kPartBlocks = kPartKeys / kKvBlockRows;
constexpr float kMinusInf = -__builtin_inff();

CULET_INLINE constexpr int64_t element_bytes(KvType type) {
  return type == kKvF32 ? 4 : type == kKvQ8 ? 1 : 2;
}

CULET_INLINE __m512 of_bf16(__m256i x) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}
CULET_INLINE __m512 of_quants(__m128i x) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(x)); }

// Elements as float32; quants of q8_0 before they meet their scale.
template <KvType kType>
CULET_INLINE __m512 load_kv(const uint8_t* base, int64_t index) {
  const uint8_t* p = base + element_bytes(kType) * index;
  if constexpr (kType == kKvF32) return _mm512_loadu_ps(p);
  if constexpr (kType == kKvQ8)
    return of_quants(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  if constexpr (kType == kKvF16 || kType == kKvBf16) {
    const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return kType == kKvF16 ? _mm512_cvtph_ps(x) : of_bf16(x);
  }
}
template <KvType kType>
CULET_INLINE __m512 load_kv(const uint8_t* base, int64_t index, __mmask16 m) {
  const uint8_t* p = base + element_bytes(kType) * index;
  if constexpr (kType == kKvF32) return _mm512_maskz_loadu_ps(m, p);
  if constexpr (kType == kKvQ8) return of_quants(_mm_maskz_loadu_epi8(m, p));
  if constexpr (kType == kKvF16 || kType == kKvBf16) {
    const __m256i x = _mm256_maskz_loadu_epi16(m, p);
    return kType == kKvF16 ? _mm512_cvtph_ps(x) : of_bf16(x);
  }
}
// An f16 in every lane.
CULET_INLINE __m512 set1_f16(const uint8_t* p) {
  int16_t v;
  __builtin_memcpy(&v, p, 2);
  return _mm512_cvtph_ps(_mm256_set1_epi16(v));
}

// The low x bits set, x cut to 0..32.
CULET_INLINE uint32_t low_bits(int64_t x) {
  return x <= 0 ? 0 : x >= 32 ? 0xffffffffu : (1u << x) - 1;
}

CULET_INLINE uint32_t visible_mask(const AttendArgs& a, const KvEntry& e, int64_t position) {
  const int64_t window = a.window < (int64_t{1} << 40) ? a.window : int64_t{1} << 40;
  const int64_t age = position - e.position;  // of the entry's first row
  const uint32_t pinned = low_bits(a.pinned_end - e.position);
  const uint32_t recent = ~low_bits(age - window + 1);
  return (low_bits(e.rows) & low_bits(age + 1) & (pinned | recent)) << e.first;
}

// A tile of pairs and its running softmax; sums of values rest in `acc`, [pairs][value_dim].
struct Pairs {
  int count;
  int64_t row[kTilePairs];
  int64_t query_offset[kTilePairs];
  int64_t last_position;
  float* acc;
  __m512 m, c;                // by pair: maximum; factor that the block puts on what came before
  __m512 lanes[kTilePairs];   // sums of weights
  uint32_t mask[kTilePairs];  // keys of the current block that the pair sees
  alignas(64) float score[kTilePairs][kKvBlockRows];  // then the weights p
};

// Adds dimensions [d, end) of R pairs' dots with the 32 keys; of q8_0: those of a block with these
// scales.
template <KvType kType, int R>
CULET_INLINE void add_dots(const uint8_t* keys, const float* const* q, int64_t d, int64_t end,
                           const __m512* scale, __m512 (*s)[2]) {
  for (; d < end; d++) {
    __m512 k0 = load_kv<kType>(keys, d * 32), k1 = load_kv<kType>(keys, d * 32 + 16);
    if constexpr (kType == kKvQ8) {
      k0 = _mm512_mul_ps(k0, scale[0]);
      k1 = _mm512_mul_ps(k1, scale[1]);
    }
    unroll<R>(CULET_LAMBDA(&, auto r) {
      const __m512 v = set1(q[r][d]);
      s[r][0] = _mm512_fmadd_ps(v, k0, s[r][0]);
      s[r][1] = _mm512_fmadd_ps(v, k1, s[r][1]);
    });
  }
}

// Dots of R pairs with the 32 keys of a block, times scale.
template <KvType kType, int R>
void key_dots(const AttendArgs& a, const uint8_t* keys, const float* const* q, __m512 (*out)[2]) {
  __m512 s[R][2];
  unroll<R>(CULET_LAMBDA(&, auto r) { s[r][0] = s[r][1] = _mm512_setzero_ps(); });
  const int64_t dim = a.head_dim;
  if constexpr (kType == kKvQ8) {
    const uint8_t* scales = keys + kKvBlockRows * dim;
    for (int64_t d = 0; d < dim; d += 32) {  // a block's 32 scales begin at d / 32 * 32
      const __m512 scale[2] = {load_kv<kKvF16>(scales, d), load_kv<kKvF16>(scales, d + 16)};
      add_dots<kType, R>(keys, q, d, dim - d < 32 ? dim : d + 32, scale, s);
    }
  } else {
    add_dots<kType, R>(keys, q, 0, dim, nullptr, s);
  }
  const __m512 scale = set1(a.scale);
  unroll<R>(CULET_LAMBDA(&, auto r) {
    out[r][0] = _mm512_mul_ps(s[r][0], scale);
    out[r][1] = _mm512_mul_ps(s[r][1], scale);
  });
}

typedef void (*KeyDots)(const AttendArgs&, const uint8_t*, const float* const*, __m512 (*)[2]);
template <KvType kType>
constexpr KeyDots kDotsOfPairs[kTilePairs + 1] = {nullptr,
                                                  key_dots<kType, 1>,
                                                  key_dots<kType, 2>,
                                                  key_dots<kType, 3>,
                                                  key_dots<kType, 4>,
                                                  key_dots<kType, 5>,
                                                  key_dots<kType, 6>,
                                                  key_dots<kType, 7>,
                                                  key_dots<kType, 8>,
                                                  key_dots<kType, 9>,
                                                  key_dots<kType, 10>,
                                                  key_dots<kType, 11>,
                                                  key_dots<kType, 12>};
constexpr const KeyDots* kDotsOfType[kKvTypeCount] = {kDotsOfPairs<kKvF32>, kDotsOfPairs<kKvF16>,
                                                      kDotsOfPairs<kKvBf16>, kDotsOfPairs<kKvQ8>};

// Scores of one entry into the tile; masks gain the keys that each pair sees. False: none does.
bool score_entry(const AttendArgs& a, const KvEntry& e, Pairs* t) {
  if (e.position > t->last_position) return false;
  uint32_t masks[kTilePairs], any = 0;
  const float* q[kTilePairs];
  for (int i = 0; i < t->count; i++) {
    masks[i] = i > 0 && t->row[i] == t->row[i - 1] ? masks[i - 1]
                                                   : visible_mask(a, e, a.positions[t->row[i]]);
    q[i] = a.q[e.query] + t->query_offset[i];
    any |= masks[i];
  }
  if (!any) return false;
  __m512 dots[kTilePairs][2];
  const uint8_t* keys = e.k + a.kv_head * kv_head_bytes(a.k_type, a.head_dim);
  kDotsOfType[a.k_type][t->count](a, keys, q, dots);
  for (int i = 0; i < t->count; i++) {
    for (int h = 0; h < 2; h++) {
      __m512 s = dots[i][h];
      if (a.softcap > 0) s = softcap16(s, set1(a.softcap));
      _mm512_mask_store_ps(t->score[i] + 16 * h, static_cast<__mmask16>(masks[i] >> 16 * h), s);
    }
    t->mask[i] |= masks[i];
  }
  return true;
}

// Maxima and rescaling factors of all pairs for the current block, then weights and lane sums.
// A factor of exp(0) is exactly 1, so pairs whose maximum stands are multiplied by 1.
CULET_INLINE void weigh(Pairs* t) {
  const __m512 low = set1(kMinusInf);
  alignas(64) float tops[16];
  __mmask16 seen = 0, nan = 0;
  for (int i = 0; i < t->count; i++) {
    const __mmask16 m0 = static_cast<__mmask16>(t->mask[i]);
    const __mmask16 m1 = static_cast<__mmask16>(t->mask[i] >> 16);
    const __m512 s0 = _mm512_mask_load_ps(low, m0, t->score[i]);
    const __m512 s1 = _mm512_mask_load_ps(low, m1, t->score[i] + 16);
    const bool bad = _mm512_cmp_ps_mask(s0, s1, _CMP_UNORD_Q) != 0;
    seen = static_cast<__mmask16>(seen | (t->mask[i] != 0) << i);
    nan = static_cast<__mmask16>(nan | bad << i);
    tops[i] = _mm512_reduce_max_ps(_mm512_max_ps(s0, s1));
  }
  const __m512 old = t->m;
  __m512 m2 = _mm512_mask_max_ps(old, seen, old, _mm512_maskz_load_ps(seen, tops));
  nan = static_cast<__mmask16>(nan | _mm512_mask_cmp_ps_mask(seen, m2, low, _CMP_NGT_UQ));
  // An old NaN stays: max takes its second operand then.
  nan = static_cast<__mmask16>(nan | _mm512_cmp_ps_mask(old, old, _CMP_UNORD_Q));
  m2 = _mm512_mask_mov_ps(m2, nan, set1(__builtin_nanf("")));
  const __mmask16 first = _mm512_mask_cmp_ps_mask(seen, old, low, _CMP_EQ_OQ);
  __m512 c = exp16(_mm512_sub_ps(old, m2));
  c = _mm512_mask_mov_ps(c, first, _mm512_setzero_ps());
  t->c = c;
  t->m = m2;
  alignas(64) float maxima[16], factors[16];
  _mm512_store_ps(maxima, m2);
  _mm512_store_ps(factors, c);
  for (int i = 0; i < t->count; i++) {
    if (!t->mask[i]) continue;
    const __mmask16 m0 = static_cast<__mmask16>(t->mask[i]);
    const __mmask16 m1 = static_cast<__mmask16>(t->mask[i] >> 16);
    const __m512 m = set1(maxima[i]);
    const __m512 p0 = exp16(_mm512_sub_ps(_mm512_maskz_load_ps(m0, t->score[i]), m));
    const __m512 p1 = exp16(_mm512_sub_ps(_mm512_maskz_load_ps(m1, t->score[i] + 16), m));
    _mm512_store_ps(t->score[i], p0);
    _mm512_store_ps(t->score[i] + 16, p1);
    __m512 lanes = _mm512_mul_ps(t->lanes[i], set1(factors[i]));
    lanes = _mm512_mask_add_ps(lanes, m0, lanes, p0);
    t->lanes[i] = _mm512_mask_add_ps(lanes, m1, lanes, p1);
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

// acc = acc * factor, then += p_j * v_j: R pairs, V vectors of values from `d`, the last masked
// unless it is whole.
template <KvType kType, int R, int V, bool kWhole>
void sum_values(const Run& run, int64_t d, __mmask16 last) {
  const int64_t dim = run.value_dim;
  float* acc = run.acc + d;
  const uint8_t* values = run.values + d * element_bytes(kType);
  const uint8_t* scales = run.values + kKvBlockRows * dim + d / 32 * 2;  // q8_0
  const int64_t scales_step = (dim + 31) / 32 * 2;
  __m512 s[R][V];
  unroll<R * V>(CULET_LAMBDA(&, auto i) {
    constexpr int r = i / V, v = i % V;
    const __m512 x = _mm512_maskz_loadu_ps(v == V - 1 ? last : 0xffff, acc + r * dim + 16 * v);
    s[r][v] = _mm512_mul_ps(x, set1(run.factor[r]));
  });
  const int j1 = run.j1;
  const float* p = run.p[0];
  for (int j = run.j0; j < j1; j++) {
    __m512 x[V];
    unroll<V>(CULET_LAMBDA(&, auto v) {
      x[v] = v < V - 1 || kWhole ? load_kv<kType>(values, j * dim + 16 * v)
                                 : load_kv<kType>(values, j * dim + 16 * v, last);
    });
    if constexpr (kType == kKvQ8)  // d is a multiple of 32 where V is more than 1
      unroll<(V + 1) / 2>(CULET_LAMBDA(&, auto b) {
        const __m512 scale = set1_f16(scales + j * scales_step + 2 * b);
        unroll<V == 1 ? 1 : 2>(
            CULET_LAMBDA(&, auto i) { x[2 * b + i] = _mm512_mul_ps(x[2 * b + i], scale); });
      });
    unroll<R>(CULET_LAMBDA(&, auto r) {
      const __m512 w = set1(p[r * kKvBlockRows + j]);
      unroll<V>(CULET_LAMBDA(&, auto v) { s[r][v] = _mm512_fmadd_ps(w, x[v], s[r][v]); });
    });
  }
  unroll<R * V>(CULET_LAMBDA(&, auto i) {
    constexpr int r = i / V, v = i % V;
    _mm512_mask_storeu_ps(acc + r * dim + 16 * v, v == V - 1 ? last : 0xffff, s[r][v]);
  });
}

template <KvType kType, int R>
void sum_pairs(const Run& run) {
  constexpr int kVectors = R <= 4 ? 4 : 2;  // R x V accumulators and V values fit the registers
  for (int64_t d = 0; d < run.value_dim; d += 16 * kVectors) {
    const int64_t left = run.value_dim - d;
    const int64_t vectors = left >= 16 * kVectors ? kVectors : (left + 15) / 16;
    const __mmask16 last = tail_mask(left - 16 * (vectors - 1));
    if (vectors == kVectors && last == 0xffff)
      sum_values<kType, R, kVectors, true>(run, d, last);
    else
      for (int64_t v = 0; v < vectors; v++)
        sum_values<kType, R, 1, false>(run, d + 16 * v, v == vectors - 1 ? last : 0xffff);
  }
}

typedef void (*SumPairs)(const Run&);
template <KvType kType>
constexpr SumPairs kSumsOfPairs[kTilePairs + 1] = {nullptr,
                                                   sum_pairs<kType, 1>,
                                                   sum_pairs<kType, 2>,
                                                   sum_pairs<kType, 3>,
                                                   sum_pairs<kType, 4>,
                                                   sum_pairs<kType, 5>,
                                                   sum_pairs<kType, 6>,
                                                   sum_pairs<kType, 7>,
                                                   sum_pairs<kType, 8>,
                                                   sum_pairs<kType, 9>,
                                                   sum_pairs<kType, 10>,
                                                   sum_pairs<kType, 11>,
                                                   sum_pairs<kType, 12>};
constexpr const SumPairs* kSumsOfType[kKvTypeCount] = {kSumsOfPairs<kKvF32>, kSumsOfPairs<kKvF16>,
                                                       kSumsOfPairs<kKvBf16>, kSumsOfPairs<kKvQ8>};

// End of the run of ones that starts at bit j0.
CULET_INLINE int run_end(uint32_t mask, int j0) {
  const uint32_t gap = ~(mask >> j0);
  return gap == 0 ? 32 : j0 + __builtin_ctz(gap) < 32 ? j0 + __builtin_ctz(gap) : 32;
}

// Takes runs that neighbouring pairs begin at the same key, as long as the shortest of them, until
// every pair's keys among `rows` are used up; `factors` turn to 1 once applied.
void add_values(const AttendArgs& a, const uint8_t* values, uint32_t rows, Pairs* t,
                float* factors) {
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
    const Run run = {
        values, a.value_dim, j0, j1, t->score + i, factors + i, t->acc + i * a.value_dim};
    kSumsOfType[a.v_type][n](run);
    for (int k = i; k < i + n; k++) {
      left[k] &= ~(low_bits(j1) ^ low_bits(j0));
      factors[k] = 1.0f;
    }
  }
}

void attend_block(const AttendArgs& a, int64_t first, int64_t end, Pairs* t) {
  bool any = false;
  for (int i = 0; i < t->count; i++) t->mask[i] = 0;
  for (int64_t n = first; n < end; n++) any |= score_entry(a, a.entries[n], t);
  if (!any) return;
  weigh(t);
  alignas(64) float factors[16];
  _mm512_store_ps(factors, t->c);
  for (int64_t n = first; n < end; n++) {
    const KvEntry& e = a.entries[n];
    const uint8_t* values = e.v + a.kv_head * kv_head_bytes(a.v_type, a.value_dim);
    add_values(a, values, low_bits(e.rows) << e.first, t, factors);
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
    t->lanes[i] = _mm512_setzero_ps();
  }
  t->last_position = a.positions[t->row[t->count - 1]];
  t->m = set1(kMinusInf);
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
  Pairs t;
  for (int64_t pair = 0; pair < pairs; pair += step) {
    t.count = static_cast<int>(pairs - pair < step ? pairs - pair : step);
    t.acc = acc + pair * a.value_dim;
    start_tile(a, pair, &t);
    attend_tile(a, first, end, &t);
    _mm512_mask_storeu_ps(m + pair, static_cast<__mmask16>((1 << t.count) - 1), t.m);
    for (int i = 0; i < t.count; i++) l[pair + i] = fold(t.lanes[i]);
  }
}

CULET_INLINE float exp_one(float x) { return _mm512_cvtss_f32(exp16(set1(x))); }

void attend_merge(float* m, float* l, float* acc, const float* pm, const float* pl,
                  const float* pacc, int64_t rows_heads, int64_t value_dim) {
  for (int64_t i = 0; i < rows_heads; i++, acc += value_dim, pacc += value_dim) {
    if (pm[i] == kMinusInf) continue;
    const bool copy = m[i] == kMinusInf;
    __m512 va = set1(1.0f), vb = set1(1.0f);
    if (copy) {
      m[i] = pm[i];
      l[i] = pl[i];
    } else {
      const float m2 = m[i] != m[i] || pm[i] != pm[i] ? __builtin_nanf("")
                       : m[i] > pm[i]                 ? m[i]
                                                      : pm[i];
      const float ea = exp_one(m[i] - m2), eb = exp_one(pm[i] - m2);
      m[i] = m2;
      const float old = l[i] * ea, part = pl[i] * eb;
      l[i] = old + part;
      va = set1(ea);
      vb = set1(eb);
    }
    for (int64_t d = 0; d < value_dim; d += 16) {
      const __mmask16 mask = tail_mask(value_dim - d);
      const __m512 y = _mm512_maskz_loadu_ps(mask, pacc + d);
      const __m512 x = _mm512_maskz_loadu_ps(mask, acc + d);
      const __m512 sum = _mm512_add_ps(_mm512_mul_ps(x, va), _mm512_mul_ps(y, vb));
      _mm512_mask_storeu_ps(acc + d, mask, copy ? y : sum);
    }
  }
}

void attend_finish(const float* l, const float* acc, int64_t rows_heads, int64_t value_dim,
                   float* out, int64_t out_stride_heads) {
  for (int64_t i = 0; i < rows_heads; i++)
    for (int64_t d = 0; d < value_dim; d += 16) {
      const __mmask16 m = tail_mask(value_dim - d);
      const __m512 x = _mm512_maskz_loadu_ps(m, acc + i * value_dim + d);
      _mm512_mask_storeu_ps(out + i * out_stride_heads + d, m, _mm512_div_ps(x, set1(l[i])));
    }
}

// bfloat16 in the low half of each lane: nearest even; a NaN made quiet.
CULET_INLINE __m512i bf16_of(__m512 x) {
  const __m512i bits = _mm512_castps_si512(x), high = _mm512_srli_epi32(bits, 16);
  const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
  const __m512i sum = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  return _mm512_mask_or_epi32(_mm512_srli_epi32(sum, 16), _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q),
                              high, _mm512_set1_epi32(0x40));
}

template <KvType kType>
CULET_INLINE __m256i halves_of(__m512 x) {
  if constexpr (kType == kKvF16)
    return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  return _mm512_cvtepi32_epi16(bf16_of(x));
}

template <KvType kType>
void store_half_row(const float* x, const Place& to) {
  for (int64_t i = 0; i < to.dim; i += 16) {
    const __mmask16 m = tail_mask(to.dim - i);
    const __m256i h = halves_of<kType>(_mm512_maskz_loadu_ps(m, x + i));
    uint16_t* out = to.elements<uint16_t>() + i * to.step;
    if (to.step == 1) {
      _mm256_mask_storeu_epi16(out, m, h);
    } else {
      uint16_t values[16];
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(values), h);
      put(values, to.dim - i < 16 ? to.dim - i : 16, out, to.step);
    }
  }
}

void store_q8_row(const float* x, const Place& to) {
  for (int64_t i = 0; i < to.dim; i += 32) {
    const int64_t n = to.dim - i < 32 ? to.dim - i : 32;
    const __m512 x0 = _mm512_maskz_loadu_ps(tail_mask(n), x + i);
    const __m512 x1 = _mm512_maskz_loadu_ps(tail_mask(n < 16 ? 0 : n - 16), x + i + 16);
    const uint16_t scale = q8_scale(_mm512_reduce_max_epu32(
        _mm512_max_epu32(_mm512_castps_si512(magnitude(x0)), _mm512_castps_si512(magnitude(x1)))));
    const float d = quant::half_to_float(scale);
    int8_t q[32] = {};
    if (d > 0) {
      const __m512i q0 = _mm512_cvtps_epi32(_mm512_div_ps(x0, set1(d)));
      const __m512i q1 = _mm512_cvtps_epi32(_mm512_div_ps(x1, set1(d)));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(q), _mm512_cvtepi32_epi8(q0));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(q + 16), _mm512_cvtepi32_epi8(q1));
    }
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

}  // namespace

void add_avx512_attention(Kernels* table) {
  table->attend_part = attend_part;
  table->attend_merge = attend_merge;
  table->attend_finish = attend_finish;
  table->kv_store = kv_store;
}

}  // namespace culet::kernels
