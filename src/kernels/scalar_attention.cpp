// Attention over cached blocks, scalar: the definition of attend_part, attend_merge, attend_finish
// and kv_store. One (row, head) pair at a time walks the part's blocks in ascending order.
//
// Visible keys of a block are a 32-bit mask per query (own, for sinks): entries that share a block
// share one maximum and one rescale. Scores that are NaN, or all -infinity, make the part NaN
// (never an empty part), so that they reach the output and are reported.
#include "kernels/kv_store.h"
#include "kernels/levels.h"
#include "kernels/scalar_math.h"

#include <stdint.h>
#include <string.h>

namespace culet::kernels {
namespace {

constexpr float kMinusInf = -__builtin_inff();
constexpr int64_t kPartBlocks = kPartKeys / kKvBlockRows;

uint16_t load_u16(const uint8_t* p) {
  uint16_t v;
  memcpy(&v, p, 2);
  return v;
}
void store_u16(uint8_t* p, uint16_t v) { memcpy(p, &v, 2); }

// The elements of one head's keys or values: where element d of row j is, and, of q8_0, its scale.
struct Head {
  KvType type;
  bool keys;
  int64_t dim;

  int64_t index(int64_t j, int64_t d) const { return keys ? d * kKvBlockRows + j : j * dim + d; }
  int64_t scale_offset(int64_t j, int64_t block) const {
    const int64_t blocks = (dim + 31) / 32;
    return kKvBlockRows * dim + 2 * (keys ? block * kKvBlockRows + j : j * blocks + block);
  }
  float load(const uint8_t* base, int64_t j, int64_t d) const {
    const int64_t i = index(j, d);
    switch (type) {
      case kKvF16:
        return half_to_float(load_u16(base + 2 * i));
      case kKvBf16:
        return bfloat16_to_float(load_u16(base + 2 * i));
      case kKvQ8:
        return static_cast<float>(static_cast<int8_t>(base[i])) *
               half_to_float(load_u16(base + scale_offset(j, d / 32)));
      default:
        float v;
        memcpy(&v, base + 4 * i, 4);
        return v;
    }
  }
  void store(uint8_t* base, int64_t j, const float* x) const {
    for (int64_t d = 0; d < dim; d++) {
      const int64_t i = index(j, d);
      if (type == kKvF32) memcpy(base + 4 * i, x + d, 4);
      if (type == kKvF16) store_u16(base + 2 * i, float_to_half(x[d]));
      if (type == kKvBf16) store_u16(base + 2 * i, float_to_bfloat16(x[d]));
      if (type == kKvQ8 && d % 32 == 0) store_q8(base, j, d, x + d);
    }
  }
  void store_q8(uint8_t* base, int64_t j, int64_t first, const float* x) const {
    const int64_t n = dim - first < 32 ? dim - first : 32;
    uint32_t amax_bits = 0;
    for (int64_t i = 0; i < n; i++) {
      const uint32_t bits = float_bits(x[i]) & 0x7fffffffu;
      if (bits > amax_bits) amax_bits = bits;
    }
    const uint16_t scale = q8_scale(amax_bits);
    const float d = half_to_float(scale);
    for (int64_t i = 0; i < n; i++) {
      const float q = d > 0 ? (x[i] / d + kRoundMagic) - kRoundMagic : 0.0f;
      base[index(j, first + i)] = static_cast<uint8_t>(static_cast<int8_t>(q));
    }
    store_u16(base + scale_offset(j, first / 32), scale);
  }
};
Head key_head(KvType type, int64_t dim) { return {type, true, dim}; }
Head value_head(KvType type, int64_t dim) { return {type, false, dim}; }

uint32_t visible_mask(const AttendArgs& a, const KvEntry& e, int64_t position) {
  uint32_t mask = 0;
  for (int i = 0; i < e.rows; i++) {
    const int64_t s = e.position + i;
    if (s > position) break;
    if (s < a.sink_end || position - s < a.window) mask |= 1u << (e.first + i);
  }
  return mask;
}

// A block as one (row, head) pair sees it: entries [first, end) of the list name it.
struct Scores {
  uint32_t mask;
  float s[kKvBlockRows];
};

void score_block(const AttendArgs& a, int64_t first, int64_t end, int64_t row, int head,
                 Scores* out) {
  const int64_t head_offset =
      (static_cast<int64_t>(a.kv_head) * a.heads_per_kv + head) * a.head_dim;
  out->mask = 0;
  for (int64_t n = first; n < end; n++) {
    const KvEntry& e = a.entries[n];
    const uint32_t mask = visible_mask(a, e, a.positions[row]);
    const float* q = a.q[e.query] + row * a.q_stride + head_offset;
    const Head keys = key_head(a.k_type, a.head_dim);
    const uint8_t* k = e.k + a.kv_head * kv_head_bytes(a.k_type, a.head_dim);
    for (int j = 0; j < kKvBlockRows; j++) {
      if (!(mask >> j & 1)) continue;
      float dot = 0;
      for (int d = 0; d < a.head_dim; d++) dot = fma1(q[d], keys.load(k, j, d), dot);
      const float s = dot * a.scale;
      out->s[j] = a.softcap > 0 ? softcap1(s, a.softcap) : s;
    }
    out->mask |= mask;
  }
}

float new_maximum(const Scores& scores, float m) {
  for (int j = 0; j < kKvBlockRows; j++) {
    if (!(scores.mask >> j & 1)) continue;
    if (scores.s[j] > m) m = scores.s[j];
    if (scores.s[j] != scores.s[j]) return quiet_nan();
  }
  return m > kMinusInf ? m : quiet_nan();
}

// One block into the running softmax of one pair: m, lane sums l[16], acc[value_dim].
void attend_block(const AttendArgs& a, int64_t first, int64_t end, const Scores& scores, float* m,
                  float* l, float* acc) {
  const float m2 = new_maximum(scores, *m);
  const float c = *m == kMinusInf ? 0.0f : exp1(*m - m2);
  for (int i = 0; i < 16; i++) l[i] *= c;
  for (int d = 0; d < a.value_dim; d++) acc[d] *= c;
  *m = m2;
  for (int64_t n = first; n < end; n++) {
    const KvEntry& e = a.entries[n];
    const Head values = value_head(a.v_type, a.value_dim);
    const uint8_t* v = e.v + a.kv_head * kv_head_bytes(a.v_type, a.value_dim);
    for (int j = e.first; j < e.first + e.rows; j++) {
      if (!(scores.mask >> j & 1)) continue;
      const float p = exp1(scores.s[j] - m2);
      l[j % 16] += p;
      for (int d = 0; d < a.value_dim; d++) acc[d] = fma1(p, values.load(v, j, d), acc[d]);
    }
  }
}

void attend_pair(const AttendArgs& a, int64_t part, int64_t row, int head, float* m, float* l,
                 float* acc) {
  float lanes[16] = {};
  *m = kMinusInf;
  for (int d = 0; d < a.value_dim; d++) acc[d] = 0;
  int64_t n = 0;
  while (n < a.n_entries) {
    int64_t end = n + 1;
    while (end < a.n_entries && a.entries[end].block_index == a.entries[n].block_index) end++;
    if (a.entries[n].block_index / kPartBlocks == part) {
      Scores scores;
      score_block(a, n, end, row, head, &scores);
      if (scores.mask) attend_block(a, n, end, scores, m, lanes, acc);
    }
    n = end;
  }
  *l = fold16(lanes);
}

void attend_part(const AttendArgs* a, int64_t part, float* m, float* l, float* acc) {
  for (int64_t row = 0; row < a->rows; row++)
    for (int head = 0; head < a->heads_per_kv; head++) {
      const int64_t pair = row * a->heads_per_kv + head;
      attend_pair(*a, part, row, head, m + pair, l + pair, acc + pair * a->value_dim);
    }
}

void attend_merge(float* m, float* l, float* acc, const float* pm, const float* pl,
                  const float* pacc, int64_t rows_heads, int64_t value_dim) {
  for (int64_t i = 0; i < rows_heads; i++, acc += value_dim, pacc += value_dim) {
    if (pm[i] == kMinusInf) continue;
    if (m[i] == kMinusInf) {
      m[i] = pm[i];
      l[i] = pl[i];
      memcpy(acc, pacc, static_cast<size_t>(value_dim) * sizeof(float));
      continue;
    }
    const float m2 = m[i] != m[i] || pm[i] != pm[i] ? quiet_nan() : m[i] > pm[i] ? m[i] : pm[i];
    const float a = exp1(m[i] - m2), b = exp1(pm[i] - m2);
    m[i] = m2;
    const float old = l[i] * a, part = pl[i] * b;
    l[i] = old + part;
    for (int64_t d = 0; d < value_dim; d++) {
      const float x = acc[d] * a, y = pacc[d] * b;
      acc[d] = x + y;
    }
  }
}

void attend_finish(const float* l, const float* acc, int64_t rows_heads, int64_t value_dim,
                   float* out, int64_t out_stride_heads) {
  for (int64_t i = 0; i < rows_heads; i++)
    for (int64_t d = 0; d < value_dim; d++)
      out[i * out_stride_heads + d] = acc[i * value_dim + d] / l[i];
}

void kv_store(KvType k_type, KvType v_type, const float* k, const float* v, int32_t kv_heads,
              int32_t head_dim, int32_t value_dim, uint8_t* k_block, uint8_t* v_block, int32_t r) {
  for (int64_t h = 0; h < kv_heads; h++) {
    key_head(k_type, head_dim)
        .store(k_block + h * kv_head_bytes(k_type, head_dim), r, k + h * head_dim);
    value_head(v_type, value_dim)
        .store(v_block + h * kv_head_bytes(v_type, value_dim), r, v + h * value_dim);
  }
}

}  // namespace

void add_scalar_attention(Kernels* table) {
  table->attend_part = attend_part;
  table->attend_merge = attend_merge;
  table->attend_finish = attend_finish;
  table->kv_store = kv_store;
}

}  // namespace culet::kernels
