// Integer matrix products with AVX-512 VNNI: vpdpbusd of unsigned codes and signed activations.
//
// One zmm lane is one output. A tile holds R activation rows x G groups of 16 outputs; its int32
// dots live in registers for one k-block, then go into the float32 accumulators with the fixed fmas
// of kernels.h. Codes stay narrow in memory and are widened in registers once for R rows.
// Unsigned codes are weight + bias; a dot starts at -bias * sum(activations), so it ends exact.
// What depends on the activations alone (that start value, or their sum as a float for types with a
// minimum) is computed once per panel of rows into a small table on the stack.
//
// Nothing here may have external or weak linkage but add_avx512vnni: this file is compiled for one
// CPU family and the linker must not pick its code for others.
#include "kernels/levels.h"
#include "kernels/x86_avx512_lanes.h"
// After the vectors that they are written in.
#include "kernels/lane_blocks.h"

namespace culet::kernels {
namespace {

constexpr int kPanelRows = 32;
constexpr int kTableEntries = 4096;  // (row, k-block) pairs of a panel's table; 32 KiB
// Few rows leave the product bound by memory: weights are asked for this far ahead. Groups follow
// each other in memory, so the distance crosses into the next one.
constexpr int kPrefetchBytes = 8192;
constexpr int kPrefetchRows = 4;

// 32-bit words a (row, k-block) has in the panel's table.
constexpr int words(const PackedLayout& l) { return halves(l) ? 2 : 1; }
constexpr int max_rows(const PackedLayout& l) { return halves(l) ? 6 : 8; }

CULET_INLINE void prefetch(const uint8_t* p) {
  _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0);
}
// Four bytes, in every lane.
CULET_INLINE Bytes broadcast32(const int8_t* p) {
  int32_t v;
  __builtin_memcpy(&v, p, 4);
  return {_mm512_set1_epi32(v)};
}
CULET_INLINE Ints add_dots(Ints sum, Bytes codes, Bytes a) {
  return {_mm512_dpbusd_epi32(sum.v, codes.v, a.v)};
}

// The rows of a tile: activations, their scales, and their words of the panel's table.
struct Tile {
  const int8_t* q;
  int64_t q_stride;
  const float* d;
  int64_t d_stride;
  const int32_t* table;
  int64_t table_stride;
  int64_t blocks;  // of this chunk of k
  bool continued;  // accumulators start from `out`
  float* out;
  int64_t stride;
};

// One block of one row into its accumulator: the sequence that kernels.h defines.
template <int kIndex>
CULET_INLINE Floats accumulate(const Scales<kIndex>& w, Ints dot0, Ints dot1, Floats d_a,
                               const int32_t* table, Floats acc) {
  constexpr PackedLayout l = kLayouts[kIndex];
  Ints isum = dot0;
  if constexpr (halves(l)) isum = dot0 * w.scale[0] + dot1 * w.scale[1];
  acc = fma(to_floats(isum), w.d * d_a, acc);
  if constexpr (l.min == kMinNone) return acc;
  Floats sum;
  if constexpr (l.sub == kSubNibble)
    sum = to_floats(w.minimum[0] * set1(table[0]) + w.minimum[1] * set1(table[1]));
  else
    sum = as_floats(set1(table[0]));
  const Floats m_a = w.m * d_a;
  return l.min == kMinAdd ? fma(m_a, sum, acc) : fnma(m_a, sum, acc);
}

template <int kIndex, int R, int G>
struct Dots {
  static constexpr PackedLayout l = kLayouts[kIndex];
  static constexpr int H = halves(l) ? 2 : 1;
  Ints dot[R][G][H];

  CULET_INLINE void start(const int32_t* table, int64_t table_stride) {
    unroll<R * H>(CULET_LAMBDA(&, auto i) {
      constexpr int r = i / H, h = i % H;
      const Ints v = set1(bias(l) != 0 ? table[r * table_stride + h] : 0);
      unroll<G>(CULET_LAMBDA(&, auto g) { dot[r][g][h] = v; });
    });
  }

  template <int kT>
  CULET_INLINE void step(const uint8_t* const* codes, const int8_t* q, int64_t q_stride) {
    Bytes low[G], high[G];
    unroll<G>(CULET_LAMBDA(&, auto g) {
      widen<kIndex, kT>(codes[g], &low[g], &high[g]);
      low[g] = book_codes<kIndex>(low[g]);
      high[g] = book_codes<kIndex>(high[g]);
    });
    unroll<R>(CULET_LAMBDA(&, auto r) {
      const Bytes a_low = broadcast32(q + r * q_stride + 4 * kT);
      const Bytes a_high = broadcast32(q + r * q_stride + 4 * kT + 16);
      unroll<G>(CULET_LAMBDA(&, auto g) {
        dot[r][g][0] = add_dots(dot[r][g][0], low[g], a_low);
        dot[r][g][H - 1] = add_dots(dot[r][g][H - 1], high[g], a_high);
      });
    });
  }
};

// R rows x G groups over one chunk of k. `w` points at the chunk's first unit of each group; masks
// cut the outputs past n.
template <int kIndex, int R, int G>
void tile(const Tile& t, const uint8_t* const* w, const Mask* masks) {
  constexpr PackedLayout l = kLayouts[kIndex];
  Floats acc[R][G];
  unroll<R * G>(CULET_LAMBDA(&, auto i) {
    constexpr int r = i / G, g = i % G;
    acc[r][g] = t.continued ? load_part(t.out + r * t.stride + 16 * g, masks[g]) : zero();
  });
  const int8_t* q = t.q;
  const float* d = t.d;
  const int32_t* table = t.table;
  const uint8_t* header[G];
  for (int g = 0; g < G; g++) header[g] = w[g];
  for (int64_t b = 0; b < t.blocks; b += l.unit) {
    const int count = t.blocks - b < l.unit ? static_cast<int>(t.blocks - b) : l.unit;
    for (int i = 0; i < count; i++, q += 32, d++, table += words(l)) {
      const uint8_t* codes[G];
      for (int g = 0; g < G; g++) codes[g] = header[g] + header_bytes(l) + i * code_bytes(l);
      if constexpr (R <= kPrefetchRows) {
        for (int g = 0; g < G; g++) {
          unroll<code_bytes(l) / 64>(
              CULET_LAMBDA(&, auto n) { prefetch(codes[g] + kPrefetchBytes / G + 64 * n); });
          if (i == 0)
            unroll<header_bytes(l) / 64>(
                CULET_LAMBDA(&, auto n) { prefetch(header[g] + kPrefetchBytes / G + 64 * n); });
        }
      }
      Dots<kIndex, R, G> dots;
      dots.start(table, t.table_stride);
      dots.template step<0>(codes, q, t.q_stride);
      dots.template step<1>(codes, q, t.q_stride);
      dots.template step<2>(codes, q, t.q_stride);
      dots.template step<3>(codes, q, t.q_stride);
      unroll<G>(CULET_LAMBDA(&, auto g) {
        Scales<kIndex> scales;
        scales.load_block(header[g], i, 0);
        unroll<R>(CULET_LAMBDA(&, auto r) {
          acc[r][g] = accumulate(scales, dots.dot[r][g][0], dots.dot[r][g][dots.H - 1],
                                 set1(d[r * t.d_stride]), table + r * t.table_stride, acc[r][g]);
        });
      });
    }
    for (int g = 0; g < G; g++) header[g] += unit_bytes(l);
  }
  unroll<R * G>(CULET_LAMBDA(&, auto i) {
    constexpr int r = i / G, g = i % G;
    store_part(t.out + r * t.stride + 16 * g, acc[r][g], masks[g]);
  });
}

// The panel's table: per (row, k-block) the start value of the dot, or the sum for the minimum.
template <int kIndex>
void fill_table(const int16_t* sums, int64_t blocks, int32_t* table) {
  constexpr PackedLayout l = kLayouts[kIndex];
  for (int64_t i = 0; i < blocks; i += 8) {
    const int64_t left = blocks - i;
    const __mmask16 pairs = static_cast<__mmask16>(left >= 8 ? 0xffff : (1 << (2 * left)) - 1);
    const __m256i s = _mm256_maskz_loadu_epi16(pairs, sums + 2 * i);
    if constexpr (halves(l)) {
      __m512i v = _mm512_cvtepi16_epi32(s);
      if constexpr (bias(l) != 0) v = _mm512_mullo_epi32(v, _mm512_set1_epi32(-bias(l)));
      _mm512_mask_storeu_epi32(table + 2 * i, pairs, v);
    } else {
      const __mmask8 whole = static_cast<__mmask8>(left >= 8 ? 0xff : (1 << left) - 1);
      __m256i v = _mm256_madd_epi16(s, _mm256_set1_epi16(l.min != kMinNone ? 1 : -bias(l)));
      if constexpr (l.min != kMinNone) v = _mm256_castps_si256(_mm256_cvtepi32_ps(v));
      _mm256_mask_storeu_epi32(table + i, whole, v);
    }
  }
}

typedef void (*TileFn)(const Tile&, const uint8_t* const*, const Mask*);

template <int kIndex, int R>
constexpr TileFn tile_of() {
  if constexpr (R <= max_rows(kLayouts[kIndex])) return tile<kIndex, R, 2>;
  return nullptr;
}

// All groups of a call for one panel of rows and one chunk of k.
template <int kIndex>
void panel(const PackedMatrix* w, Tile t, int64_t rows, int64_t block0, int64_t group0,
           int64_t group1) {
  constexpr PackedLayout l = kLayouts[kIndex];
  static constexpr TileFn kTiles[9] = {nullptr,
                                       tile_of<kIndex, 1>(),
                                       tile_of<kIndex, 2>(),
                                       tile_of<kIndex, 3>(),
                                       tile_of<kIndex, 4>(),
                                       tile_of<kIndex, 5>(),
                                       tile_of<kIndex, 6>(),
                                       tile_of<kIndex, 7>(),
                                       tile_of<kIndex, 8>()};
  const int64_t chunk = block0 / l.unit * unit_bytes(l);
  const int64_t tiles = (rows + max_rows(l) - 1) / max_rows(l);
  const int step = rows == 1 ? 1 : 2;
  for (int64_t g = group0; g < group1; g += step) {
    // An odd last group is paired with itself; the empty mask drops the copy.
    const int64_t g2 = g + 1 < group1 ? g + 1 : g;
    const uint8_t* weights[2] = {w->data + g * w->group_bytes + chunk,
                                 w->data + g2 * w->group_bytes + chunk};
    const Mask masks[2] = {first_lanes(w->n - g * 16), first_lanes(g2 == g ? 0 : w->n - g2 * 16)};
    int64_t r = 0;
    for (int64_t i = 0; i < tiles; i++) {
      const int64_t count = (rows - r) / (tiles - i);
      Tile part = t;
      part.q += r * t.q_stride;
      part.d += r * t.d_stride;
      part.table += r * t.table_stride;
      part.out += r * t.stride + (g - group0) * 16;
      if (step == 1)
        tile<kIndex, 1, 1>(part, weights, masks);
      else
        kTiles[count](part, weights, masks);
      r += count;
    }
  }
}

template <int kIndex>
void matmul_q(const PackedMatrix* w, const QuantRows* a, int64_t row0, int64_t row1, int64_t group0,
              int64_t group1, float* out, int64_t stride) {
  constexpr PackedLayout l = kLayouts[kIndex];
  const int64_t blocks = w->k / 32, panels = (row1 - row0 + kPanelRows - 1) / kPanelRows;
  alignas(64) int32_t table[kTableEntries * words(l)];
  int64_t row = row0;
  for (int64_t p = 0; p < panels; p++) {
    const int64_t rows = (row1 - row) / (panels - p);
    const int64_t chunk = kTableEntries / rows / 8 * 8;
    for (int64_t b0 = 0; b0 < blocks; b0 += chunk) {
      const int64_t count = blocks - b0 < chunk ? blocks - b0 : chunk;
      for (int64_t r = 0; r < rows; r++)
        fill_table<kIndex>(a->sums + ((row + r) * blocks + b0) * 2, count,
                           table + r * count * words(l));
      const Tile t = {a->q + row * a->k + b0 * 32,
                      a->k,
                      a->d + row * blocks + b0,
                      blocks,
                      table,
                      count * words(l),
                      count,
                      b0 > 0,
                      out + (row - row0) * stride,
                      stride};
      panel<kIndex>(w, t, rows, b0, group0, group1);
    }
    row += rows;
  }
}

template <int kIndex>
void add_all(Kernels* table) {
  if constexpr (kIndex < kLayoutCount) {
    table->matmul_q[kLayouts[kIndex].type] = matmul_q<kIndex>;
    add_all<kIndex + 1>(table);
  }
}

}  // namespace

void add_avx512vnni(Kernels* table) { add_all<0>(table); }

}  // namespace culet::kernels
