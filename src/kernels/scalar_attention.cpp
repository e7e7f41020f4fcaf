// Attention over cached blocks, scalar: the definition of attend_part, attend_merge, attend_finish
// and kv_store. One (row, head) pair at a time walks the part's blocks in ascending order.
//
// Visible keys of a block are a 32-bit mask per query (own, pinned): entries that share a block
// share one maximum and one rescale. Scores that are NaN, or all -infinity, make the part NaN
// (never an empty part), so that they reach the output and are reported.
#include "kernels/levels.h"
#include "kernels/scalar_math.h"

#include <stdint.h>
#include <string.h>

namespace culet::kernels {
namespace {

constexpr float kMinusInf = -__builtin_inff();
constexpr int64_t kPartBlocks = kPartKeys / kKvBlockRows;

float load_kv(KvType type, const uint8_t* base, int64_t index) {
  if (type == kKvF32) {
    float v;
    memcpy(&v, base + 4 * index, 4);
    return v;
  }
  uint16_t h;
  memcpy(&h, base + 2 * index, 2);
  return half_to_float(h);
}

int64_t kv_bytes(KvType type) { return type == kKvF32 ? 4 : 2; }

uint32_t visible_mask(const AttendArgs& a, const KvEntry& e, int64_t position) {
  uint32_t mask = 0;
  for (int i = 0; i < e.rows; i++) {
    const int64_t s = e.position + i;
    if (s > position) break;
    if (s < a.pinned_end || position - s < a.window) mask |= 1u << (e.first + i);
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
    const uint8_t* k =
        e.k + static_cast<int64_t>(a.kv_head) * a.head_dim * kKvBlockRows * kv_bytes(a.k_type);
    for (int j = 0; j < kKvBlockRows; j++) {
      if (!(mask >> j & 1)) continue;
      float dot = 0;
      for (int d = 0; d < a.head_dim; d++)
        dot = fma1(q[d], load_kv(a.k_type, k, static_cast<int64_t>(d) * kKvBlockRows + j), dot);
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
    const uint8_t* v =
        e.v + static_cast<int64_t>(a.kv_head) * kKvBlockRows * a.value_dim * kv_bytes(a.v_type);
    for (int j = e.first; j < e.first + e.rows; j++) {
      if (!(scores.mask >> j & 1)) continue;
      const float p = exp1(scores.s[j] - m2);
      l[j % 16] += p;
      for (int d = 0; d < a.value_dim; d++)
        acc[d] = fma1(p, load_kv(a.v_type, v, static_cast<int64_t>(j) * a.value_dim + d), acc[d]);
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

void store_one(KvType type, uint8_t* base, int64_t index, float x) {
  if (type == kKvF32) {
    memcpy(base + 4 * index, &x, 4);
  } else {
    const uint16_t h = float_to_half(x);
    memcpy(base + 2 * index, &h, 2);
  }
}

void kv_store(KvType type, const float* k, const float* v, int32_t kv_heads, int32_t head_dim,
              int32_t value_dim, uint8_t* k_block, uint8_t* v_block, int32_t r) {
  for (int64_t i = 0; i < static_cast<int64_t>(kv_heads) * head_dim; i++)
    store_one(type, k_block, i * kKvBlockRows + r, k[i]);
  for (int64_t h = 0; h < kv_heads; h++)
    for (int64_t d = 0; d < value_dim; d++)
      store_one(type, v_block, (h * kKvBlockRows + r) * value_dim + d, v[h * value_dim + d]);
}

}  // namespace

void add_scalar_attention(Kernels* table) {
  table->attend_part = attend_part;
  table->attend_merge = attend_merge;
  table->attend_finish = attend_finish;
  table->kv_store = kv_store;
}

}  // namespace culet::kernels
