// Attention over cached blocks with AVX-512: scalar_attention.cpp's sums, one lane a key.
//
// A tile of (row, head) pairs of one kv head meets each block together, so that a loaded key vector
// (16 keys of one dimension) and a loaded value vector serve all pairs; in prefill the tile spans
// rows, in decode the heads that share the kv head. Keys that a row may not see are computed in
// their own lanes and dropped by masks: they never meet a visible key's sums. Values are summed
// with a fast path for blocks that a run of pairs sees whole, and per pair otherwise; both do the
// same fmas over the visible keys in the same order.
#include <immintrin.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "kernels/levels.h"
#include "kernels/x86_avx512_math.h"

namespace culet::kernels {
namespace {

constexpr int kTilePairs = 8;
constexpr int kValuePairs = 4;    // pairs x vectors of accumulators in registers: 4 x 4
constexpr int kValueVectors = 4;
constexpr int64_t kPartBlocks = kPartKeys / kKvBlockRows;
constexpr float kMinusInf = -__builtin_inff();

template <KvType kType>
CULET_INLINE __m512 load_kv(const uint8_t* base, int64_t index) {
  if constexpr (kType == kKvF32) return _mm512_loadu_ps(base + 4 * index);
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(base + 2 * index)));
}
template <KvType kType>
CULET_INLINE __m512 load_kv(const uint8_t* base, int64_t index, __mmask16 m) {
  if constexpr (kType == kKvF32) return _mm512_maskz_loadu_ps(m, base + 4 * index);
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, base + 2 * index));
}

CULET_INLINE int64_t kv_bytes(KvType type) { return type == kKvF32 ? 4 : 2; }

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
  uint32_t mask[kTilePairs];  // keys of the current block that the pair sees
  float m[kTilePairs];
  float* acc;
  alignas(64) float score[kTilePairs][kKvBlockRows];  // then the weights p
  __m512 lanes[kTilePairs];
};

// Dots of R pairs with the 32 keys of a block.
template <KvType kType, int R>
void key_dots(const AttendArgs& a, const uint8_t* keys, const float* const* q, __m512 (*out)[2]) {
  __m512 s[R][2];
  for (int r = 0; r < R; r++) s[r][0] = s[r][1] = _mm512_setzero_ps();
  const int64_t dim = a.head_dim;
  for (int64_t d = 0; d < dim; d++) {
    const __m512 k0 = load_kv<kType>(keys, d * 32), k1 = load_kv<kType>(keys, d * 32 + 16);
    for (int r = 0; r < R; r++) {
      const __m512 v = set1(q[r][d]);
      s[r][0] = _mm512_fmadd_ps(v, k0, s[r][0]);
      s[r][1] = _mm512_fmadd_ps(v, k1, s[r][1]);
    }
  }
  for (int r = 0; r < R; r++) out[r][0] = s[r][0], out[r][1] = s[r][1];
}

typedef void (*KeyDotsFn)(const AttendArgs&, const uint8_t*, const float* const*, __m512 (*)[2]);

template <KvType kType>
CULET_INLINE void run_key_dots(const AttendArgs& a, const uint8_t* keys, const float* const* q,
                               int count, __m512 (*out)[2]) {
  static constexpr KeyDotsFn kDots[kTilePairs + 1] = {
      nullptr,           key_dots<kType, 1>, key_dots<kType, 2>, key_dots<kType, 3>,
      key_dots<kType, 4>, key_dots<kType, 5>, key_dots<kType, 6>, key_dots<kType, 7>,
      key_dots<kType, 8>};
  kDots[count](a, keys, q, out);
}

// Scores of one entry into the tile; masks gain the keys that each pair sees. False: none does.
template <KvType kType>
bool score_entry(const AttendArgs& a, const KvEntry& e, Pairs* t) {
  uint32_t masks[kTilePairs], any = 0;
  const float* q[kTilePairs];
  for (int i = 0; i < t->count; i++) {
    masks[i] = visible_mask(a, e, a.positions[t->row[i]]);
    q[i] = a.q[e.query] + t->query_offset[i];
    any |= masks[i];
  }
  if (!any) return false;
  __m512 dots[kTilePairs][2];
  const uint8_t* keys =
      e.k + static_cast<int64_t>(a.kv_head) * a.head_dim * kKvBlockRows * kv_bytes(kType);
  run_key_dots<kType>(a, keys, q, t->count, dots);
  for (int i = 0; i < t->count; i++) {
    for (int h = 0; h < 2; h++) {
      __m512 s = _mm512_mul_ps(dots[i][h], set1(a.scale));
      if (a.softcap > 0) s = softcap16(s, set1(a.softcap));
      _mm512_mask_storeu_ps(t->score[i] + 16 * h, static_cast<__mmask16>(masks[i] >> 16 * h), s);
    }
    t->mask[i] |= masks[i];
  }
  return true;
}

// Maximum, weights, lane sums and the rescale of one pair for the current block.
void weigh(const AttendArgs& a, Pairs* t, int i) {
  const __mmask16 m0 = static_cast<__mmask16>(t->mask[i]), m1 = static_cast<__mmask16>(t->mask[i] >> 16);
  const __m512 s0 = _mm512_maskz_loadu_ps(m0, t->score[i]);
  const __m512 s1 = _mm512_maskz_loadu_ps(m1, t->score[i] + 16);
  const __m512 low = set1(kMinusInf);
  const __m512 top = _mm512_max_ps(_mm512_mask_mov_ps(low, m0, s0), _mm512_mask_mov_ps(low, m1, s1));
  const float old = t->m[i];
  float m2 = _mm512_reduce_max_ps(top);
  if (!(m2 > old)) m2 = old;
  const int nan = _mm512_mask_cmp_ps_mask(m0, s0, s0, _CMP_UNORD_Q) |
                  _mm512_mask_cmp_ps_mask(m1, s1, s1, _CMP_UNORD_Q);
  if (nan || !(m2 > kMinusInf)) m2 = __builtin_nanf("");
  const __m512 p0 = _mm512_maskz_mov_ps(m0, exp16(_mm512_sub_ps(s0, set1(m2))));
  const __m512 p1 = _mm512_maskz_mov_ps(m1, exp16(_mm512_sub_ps(s1, set1(m2))));
  _mm512_store_ps(t->score[i], p0);
  _mm512_store_ps(t->score[i] + 16, p1);
  __m512 lanes = t->lanes[i];
  if (!(m2 == old)) {  // exp(0) is 1: an unchanged maximum rescales by nothing
    const __m512 c = old == kMinusInf ? _mm512_setzero_ps() : exp16(set1(old - m2));
    lanes = _mm512_mul_ps(lanes, c);
    float* acc = t->acc + static_cast<int64_t>(i) * a.value_dim;
    for (int64_t d = 0; d < a.value_dim; d += 16) {
      const __mmask16 m = tail_mask(a.value_dim - d);
      _mm512_mask_storeu_ps(acc + d, m, _mm512_mul_ps(c, _mm512_maskz_loadu_ps(m, acc + d)));
    }
    t->m[i] = m2;
  }
  lanes = _mm512_mask_add_ps(lanes, m0, lanes, p0);
  t->lanes[i] = _mm512_mask_add_ps(lanes, m1, lanes, p1);
}

// acc += p_j * v_j over rows [j0, j1) that all R pairs see; V vectors of 16 values, the last masked.
template <KvType kType, int R, int V>
void sum_values(const uint8_t* values, int64_t value_dim, int j0, int j1,
                const float (*p)[kKvBlockRows], float* acc, __mmask16 last) {
  __m512 s[R][V];
  for (int r = 0; r < R; r++)
    for (int v = 0; v < V; v++)
      s[r][v] = _mm512_maskz_loadu_ps(v == V - 1 ? last : 0xffff, acc + r * value_dim + 16 * v);
  for (int j = j0; j < j1; j++) {
    __m512 x[V];
    for (int v = 0; v < V; v++)
      x[v] = load_kv<kType>(values, j * value_dim + 16 * v, v == V - 1 ? last : 0xffff);
    for (int r = 0; r < R; r++) {
      const __m512 w = set1(p[r][j]);
      for (int v = 0; v < V; v++) s[r][v] = _mm512_fmadd_ps(w, x[v], s[r][v]);
    }
  }
  for (int r = 0; r < R; r++)
    for (int v = 0; v < V; v++)
      _mm512_mask_storeu_ps(acc + r * value_dim + 16 * v, v == V - 1 ? last : 0xffff, s[r][v]);
}

typedef void (*SumValuesFn)(const uint8_t*, int64_t, int, int, const float (*)[kKvBlockRows], float*,
                            __mmask16);

template <KvType kType, int R>
CULET_INLINE void sum_pairs(const uint8_t* values, int64_t value_dim, int j0, int j1,
                            const float (*p)[kKvBlockRows], float* acc) {
  static constexpr SumValuesFn kSums[kValueVectors + 1] = {
      nullptr, sum_values<kType, R, 1>, sum_values<kType, R, 2>, sum_values<kType, R, 3>,
      sum_values<kType, R, 4>};
  for (int64_t d = 0; d < value_dim; d += 16 * kValueVectors) {
    const int64_t left = value_dim - d;
    const int64_t vectors = left >= 16 * kValueVectors ? kValueVectors : (left + 15) / 16;
    const __mmask16 last = tail_mask(left - 16 * (vectors - 1));
    kSums[vectors](values + d * kv_bytes(kType), value_dim, j0, j1, p, acc + d, last);
  }
}

// Runs of neighbouring pairs that see the same rows go together; a mask's runs of ones in order.
template <KvType kType>
void add_values(const AttendArgs& a, const uint8_t* values, uint32_t rows, Pairs* t) {
  const int64_t dim = a.value_dim;
  for (int i = 0; i < t->count;) {
    const uint32_t mask = t->mask[i] & rows;
    int n = 1;
    while (n < kValuePairs && i + n < t->count && (t->mask[i + n] & rows) == mask) n++;
    for (uint32_t left = mask; left;) {
      const int j0 = __builtin_ctz(left);
      const uint32_t shifted = ~(left >> j0);
      const int length = shifted ? __builtin_ctz(shifted) : 32;
      const int j1 = j0 + length < 32 ? j0 + length : 32;
      const float(*p)[kKvBlockRows] = t->score + i;
      float* acc = t->acc + i * dim;
      if (n == 4) sum_pairs<kType, 4>(values, dim, j0, j1, p, acc);
      if (n == 3) sum_pairs<kType, 3>(values, dim, j0, j1, p, acc);
      if (n == 2) sum_pairs<kType, 2>(values, dim, j0, j1, p, acc);
      if (n == 1) sum_pairs<kType, 1>(values, dim, j0, j1, p, acc);
      left = j1 < 32 ? left >> j1 << j1 : 0;
    }
    i += n;
  }
}

template <KvType kK, KvType kV>
void attend_block(const AttendArgs& a, int64_t first, int64_t end, Pairs* t) {
  bool any = false;
  for (int i = 0; i < t->count; i++) t->mask[i] = 0;
  for (int64_t n = first; n < end; n++) any |= score_entry<kK>(a, a.entries[n], t);
  if (!any) return;
  for (int i = 0; i < t->count; i++)
    if (t->mask[i]) weigh(a, t, i);
  for (int64_t n = first; n < end; n++) {
    const KvEntry& e = a.entries[n];
    const uint8_t* values =
        e.v + static_cast<int64_t>(a.kv_head) * kKvBlockRows * a.value_dim * kv_bytes(kV);
    add_values<kV>(a, values, low_bits(e.rows) << e.first, t);
  }
}

template <KvType kK, KvType kV>
void attend_tile(const AttendArgs& a, int64_t part, Pairs* t) {
  int64_t n = 0;
  while (n < a.n_entries) {
    int64_t end = n + 1;
    while (end < a.n_entries && a.entries[end].block_index == a.entries[n].block_index) end++;
    if (a.entries[n].block_index / kPartBlocks == part) attend_block<kK, kV>(a, n, end, t);
    n = end;
  }
}

template <KvType kK, KvType kV>
void attend_pairs(const AttendArgs& a, int64_t part, float* m, float* l, float* acc) {
  const int64_t pairs = a.rows * a.heads_per_kv;
  for (int64_t i = 0; i < pairs * a.value_dim; i++) acc[i] = 0;
  const int64_t tiles = (pairs + kTilePairs - 1) / kTilePairs;
  Pairs t;
  int64_t pair = 0;
  for (int64_t n = 0; n < tiles; n++) {
    t.count = static_cast<int>((pairs - pair) / (tiles - n));
    t.acc = acc + pair * a.value_dim;
    for (int i = 0; i < t.count; i++) {
      t.row[i] = (pair + i) / a.heads_per_kv;
      const int64_t head = (pair + i) % a.heads_per_kv;
      t.query_offset[i] = t.row[i] * a.q_stride +
                          (static_cast<int64_t>(a.kv_head) * a.heads_per_kv + head) * a.head_dim;
      t.m[i] = kMinusInf;
      t.lanes[i] = _mm512_setzero_ps();
    }
    attend_tile<kK, kV>(a, part, &t);
    for (int i = 0; i < t.count; i++) {
      m[pair + i] = t.m[i];
      l[pair + i] = fold(t.lanes[i]);
    }
    pair += t.count;
  }
}

void attend_part(const AttendArgs* a, int64_t part, float* m, float* l, float* acc) {
  typedef void (*Fn)(const AttendArgs&, int64_t, float*, float*, float*);
  static constexpr Fn kFunctions[kKvTypeCount][kKvTypeCount] = {
      {attend_pairs<kKvF32, kKvF32>, attend_pairs<kKvF32, kKvF16>},
      {attend_pairs<kKvF16, kKvF32>, attend_pairs<kKvF16, kKvF16>}};
  kFunctions[a->k_type][a->v_type](*a, part, m, l, acc);
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

// Row r of the transposed keys: elements lie 32 apart.
void store_keys(KvType type, const float* k, int64_t n, uint8_t* block, int32_t r) {
  if (type == kKvF32) {
    float* out = reinterpret_cast<float*>(block) + r;
    for (int64_t i = 0; i < n; i++) out[i * kKvBlockRows] = k[i];
    return;
  }
  uint16_t* out = reinterpret_cast<uint16_t*>(block) + r;
  for (int64_t i = 0; i < n; i += 16) {
    uint16_t h[16];
    const __m256i v = _mm512_cvtps_ph(_mm512_maskz_loadu_ps(tail_mask(n - i), k + i),
                                      _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(h), v);
    const int64_t count = n - i < 16 ? n - i : 16;
    for (int64_t j = 0; j < count; j++) out[(i + j) * kKvBlockRows] = h[j];
  }
}

void kv_store(KvType type, const float* k, const float* v, int32_t kv_heads, int32_t head_dim,
              int32_t value_dim, uint8_t* k_block, uint8_t* v_block, int32_t r) {
  store_keys(type, k, static_cast<int64_t>(kv_heads) * head_dim, k_block, r);
  for (int64_t h = 0; h < kv_heads; h++)
    for (int64_t d = 0; d < value_dim; d += 16) {
      const __mmask16 m = tail_mask(value_dim - d);
      const __m512 x = _mm512_maskz_loadu_ps(m, v + h * value_dim + d);
      uint8_t* out = v_block + ((h * kKvBlockRows + r) * value_dim + d) * kv_bytes(type);
      if (type == kKvF32)
        _mm512_mask_storeu_ps(out, m, x);
      else
        _mm256_mask_storeu_epi16(
            out, m, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
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
