// A random cache and the entry lists that policies make of it, for the attention tests.
#pragma once

#include "kernels/test_data.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace culet::kernels::test {

struct AttentionShape {
  int64_t rows = 1;    // query rows; the last is at position `length - 1`
  int64_t length = 1;  // keys in the cache
  int32_t heads_per_kv = 1, kv_heads = 2, head_dim = 64, value_dim = 64;
  KvType k_type = kKvF16, v_type = kKvF16;
  int64_t window = std::numeric_limits<int64_t>::max();
  int64_t sinks = 0;    // first keys that stay visible, dotted with the second query
  int64_t dropped = 0;  // blocks after the sinks that are gone
  float softcap = 0;
  float poison = 0;  // written into every row that no entry makes visible
};

// Positions [0, length) in blocks; the rows past `length` of the last block and the rows of a
// dropped block that are no sinks, are poisoned.
class AttentionCase {
 public:
  AttentionCase(const AttentionShape& s, uint32_t seed) : shape(s) {
    std::mt19937 rng(seed);
    const int64_t blocks = (s.length + 31) / 32;
    const size_t k_values = size_t(s.kv_heads) * s.head_dim,
                 v_values = size_t(s.kv_heads) * s.value_dim;
    k = random_floats(s.length * k_values, rng);
    v = random_floats(s.length * v_values, rng);
    Kernels kernels;
    select_kernels("scalar", &kernels);
    const std::vector<float> bad_k(k_values, s.poison), bad_v(v_values, s.poison);
    for (int64_t b = 0; b < blocks; b++) {
      k_blocks.emplace_back(k_values * 32 * 4);
      v_blocks.emplace_back(v_values * 32 * 4);
      for (int r = 0; r < 32; r++) {
        const int64_t p = b * 32 + r;
        const bool gone = p >= s.length || (p >= s.sinks && p < first_kept());
        const float* row_k = gone ? bad_k.data() : &k[p * k_values];
        const float* row_v = gone ? bad_v.data() : &v[p * v_values];
        kernels.kv_store(s.k_type, s.v_type, row_k, row_v, s.kv_heads, s.head_dim, s.value_dim,
                         k_blocks[b].data(), v_blocks[b].data(), r);
      }
    }
    for (int64_t p = 0; p < s.length;) {
      const bool is_sink = p < s.sinks;
      int64_t end = std::min({(p / 32 + 1) * 32, s.length, is_sink ? s.sinks : s.length});
      if (!is_sink && p < first_kept()) {
        p = std::min(end, first_kept());
        continue;
      }
      entries.push_back({k_blocks[p / 32].data(), v_blocks[p / 32].data(), p, int32_t(p % 32),
                         int32_t(end - p), p / 32, is_sink ? 1u : 0u});
      p = end;
    }
    const size_t q_row = k_values * s.heads_per_kv;
    for (auto& q : queries) q = random_floats(s.rows * q_row, rng);
    for (int64_t r = 0; r < s.rows; r++) positions.push_back(s.length - s.rows + r);
    args = {entries.data(),
            int64_t(entries.size()),
            s.k_type,
            s.v_type,
            s.sinks,
            s.window,
            {queries[0].data(), queries[1].data()},
            int64_t(q_row),
            positions.data(),
            s.rows,
            s.heads_per_kv,
            0,
            s.head_dim,
            s.value_dim,
            1.0f / std::sqrt(float(s.head_dim)),
            s.softcap};
  }

  int64_t first_kept() const {
    return shape.dropped ? (shape.sinks + 31) / 32 * 32 + shape.dropped * 32 - 32 : shape.sinks;
  }

  // All parts of one kv head, merged and finished: [rows][heads][value_dim]; raw: every part's m,
  // l, acc in turn.
  std::vector<float> run(const Kernels& kernels, int32_t kv_head, std::vector<float>* raw) const {
    AttendArgs a = args;
    a.kv_head = kv_head;
    const int64_t pairs = shape.rows * shape.heads_per_kv, dim = shape.value_dim;
    std::vector<float> m(pairs, -INFINITY), l(pairs), acc(pairs * dim), out(pairs * dim);
    for (int64_t part = 0; part * kPartKeys < shape.length; part++) {
      std::vector<float> pm(pairs, 7), pl(pairs, 7), pacc(pairs * dim, 7);
      kernels.attend_part(&a, part, pm.data(), pl.data(), pacc.data());
      if (raw) {
        raw->insert(raw->end(), pm.begin(), pm.end());
        raw->insert(raw->end(), pl.begin(), pl.end());
        raw->insert(raw->end(), pacc.begin(), pacc.end());
      }
      kernels.attend_merge(m.data(), l.data(), acc.data(), pm.data(), pl.data(), pacc.data(), pairs,
                           dim);
    }
    kernels.attend_finish(l.data(), acc.data(), pairs, dim, out.data(), dim);
    return out;
  }

  bool visible(int64_t s, int64_t p) const {
    return s <= p && (s < shape.sinks || (s >= first_kept() && p - s < shape.window));
  }

  AttentionShape shape;
  std::vector<float> k, v;  // [length][kv_heads][dim] before rounding to the KV type
  std::vector<Buffer> k_blocks, v_blocks;
  std::vector<KvEntry> entries;
  std::vector<float> queries[2];
  std::vector<int64_t> positions;
  AttendArgs args;
};

}  // namespace culet::kernels::test
