// Integer matrix products on eight-lane vectors. The includer defines before, for its instructions,
//
//   constexpr int max_rows(const PackedLayout&)      rows of a tile, at most 8
//   int64_t tile_rows(int64_t rows, int64_t max)     how many of the rows left the next tile takes
//   template <int kIndex, int R, int P> struct Dots  the exact integer dots of one k-block for R
//     rows and P parts of 8 outputs:
//       start(scales[P], sums, sums_stride)
//       step<kT>(codes[P], q, q_stride)               words kT and kT + 4, kT = 0..3 in turn
//       isum<r, p>(scales[p])                         the sum that kernels.h multiplies
//
// One lane is one output. A tile's dots live in registers for one k-block, then go into the float32
// accumulators with the fixed fmas of kernels.h. Codes stay narrow in memory and are widened in
// registers once for R rows. Few rows take all 16 outputs of a group at once, so that memory is
// read once; more rows take half a group after the other from the nearest cache.
#pragma once

#include "kernels/lane_blocks.h"

namespace culet::kernels {
namespace {

constexpr int kPanelRows = 48;  // their activations stay in a near cache for all groups
constexpr int kWideRows = 1;    // tiles of at most so many rows take both parts of a group

// The rows of a tile.
struct Tile {
  const int8_t* q;
  const float* d;
  const int16_t* sums;
  int64_t blocks;   // of k; also the distance of `d` between rows
  int64_t outputs;  // left in the matrix from the tile's first on
  float* out;
  int64_t stride;
};

// One block of one row into its accumulator: the sequence that kernels.h defines.
template <int kIndex>
CULET_INLINE Floats accumulate(const Scales<kIndex>& w, Ints isum, Floats d_a, const int16_t* sums,
                               Floats acc) {
  constexpr PackedLayout l = kLayouts[kIndex];
  acc = fma(to_floats(isum), w.d * d_a, acc);
  if constexpr (l.min == kMinNone) return acc;
  Ints sum;
  if constexpr (l.sub == kSubNibble)
    sum = dot_of_pair(w.minimum[0], w.minimum[1], sums);
  else
    sum = sum_of_pair(sums);
  const Floats m_a = w.m * d_a;
  return l.min == kMinAdd ? fma(m_a, to_floats(sum), acc) : fnma(m_a, to_floats(sum), acc);
}

// R rows x P parts from `part0` over all of k; `group` is the group's first unit.
template <int kIndex, int R, int P>
void tile(const Tile& t, const uint8_t* group, int part0) {
  constexpr PackedLayout l = kLayouts[kIndex];
  Floats acc[R][P];
  unroll<R * P>(CULET_LAMBDA(&, auto i) { acc[i / P][i % P] = zero(); });
  const int64_t blocks = t.blocks;
  const int8_t* q = t.q;
  const float* d = t.d;
  const int16_t* sums = t.sums;
  for (int64_t b = 0; b < blocks; b += l.unit, group += unit_bytes(l)) {
    const int count = blocks - b < l.unit ? static_cast<int>(blocks - b) : l.unit;
    for (int i = 0; i < count; i++, q += 32, d++, sums += 2) {
      const uint8_t* codes[P];
      Scales<kIndex> scales[P];
      unroll<P>(CULET_LAMBDA(&, auto p) {
        codes[p] = group + header_bytes(l) + i * code_bytes(l) + 32 * (part0 + p);
        scales[p].load_block(group, i, part0 + p);
      });
      if constexpr (R == 1) prefetch_ahead<code_bytes(l)>(codes[0]);
      Dots<kIndex, R, P> dots;
      dots.start(scales, sums, 2 * blocks);
      dots.template step<0>(codes, q, 32 * blocks);
      dots.template step<1>(codes, q, 32 * blocks);
      dots.template step<2>(codes, q, 32 * blocks);
      dots.template step<3>(codes, q, 32 * blocks);
      unroll<R * P>(CULET_LAMBDA(&, auto n) {
        constexpr int r = n / P, p = n % P;
        const Ints isum = dots.template isum<r, p>(scales[p]);
        acc[r][p] =
            accumulate(scales[p], isum, set1(d[r * blocks]), sums + r * 2 * blocks, acc[r][p]);
      });
    }
  }
  unroll<R * P>(CULET_LAMBDA(&, auto i) {
    constexpr int r = i / P, p = i % P;
    float* out = t.out + r * t.stride + 8 * p;
    const int64_t left = t.outputs - 8 * p;
    if (left >= 8)
      store(out, acc[r][p]);
    else if (left > 0)
      store_part(out, acc[r][p], left);
  });
}

// R rows with all 16 outputs of a group.
template <int kIndex, int R>
void group_tile(const Tile& t, const uint8_t* group) {
  if constexpr (R <= kWideRows) {
    tile<kIndex, R, 2>(t, group, 0);
  } else if constexpr (R <= max_rows(kLayouts[kIndex])) {
    tile<kIndex, R, 1>(t, group, 0);
    Tile second = t;
    second.out += 8;
    second.outputs -= 8;
    tile<kIndex, R, 1>(second, group, 1);
  }
}

template <int kIndex>
void matmul_q(const PackedMatrix* w, const QuantRows* a, int64_t row0, int64_t row1, int64_t group0,
              int64_t group1, float* out, int64_t stride) {
  static constexpr void (*kTiles[9])(const Tile&, const uint8_t*) = {nullptr,
                                                                     group_tile<kIndex, 1>,
                                                                     group_tile<kIndex, 2>,
                                                                     group_tile<kIndex, 3>,
                                                                     group_tile<kIndex, 4>,
                                                                     group_tile<kIndex, 5>,
                                                                     group_tile<kIndex, 6>,
                                                                     group_tile<kIndex, 7>,
                                                                     group_tile<kIndex, 8>};
  constexpr int kRows = max_rows(kLayouts[kIndex]);
  const int64_t blocks = w->k / 32;
  for (int64_t panel = row0; panel < row1; panel += kPanelRows) {
    const int64_t end = row1 - panel < kPanelRows ? row1 : panel + kPanelRows;
    for (int64_t g = group0; g < group1; g++)
      for (int64_t row = panel; row < end;) {
        const int64_t count = tile_rows(end - row, kRows);
        const Tile t = {a->q + row * a->k,
                        a->d + row * blocks,
                        a->sums + row * blocks * 2,
                        blocks,
                        w->n - g * 16,
                        out + (row - row0) * stride + (g - group0) * 16,
                        stride};
        kTiles[count](t, w->data + g * w->group_bytes);
        row += count;
      }
  }
}

template <int kIndex>
void add_matmul_q(Kernels* table) {
  if constexpr (kIndex < kLayoutCount) {
    table->matmul_q[kLayouts[kIndex].type] = matmul_q<kIndex>;
    add_matmul_q<kIndex + 1>(table);
  }
}

}  // namespace
}  // namespace culet::kernels
