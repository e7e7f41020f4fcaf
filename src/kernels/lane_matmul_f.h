// Float matrix products on vectors: float weights, and every quantized type under
// --precise.
//
// A chunk of k is dequantized once for 16 outputs (product and minimum rounded separately, as
// quant/dequantize.cpp does) into a buffer of [k][16] floats, which is also how float32 weights lie
// in memory; then tiles of rows run over it with one fma per k. Accumulators rest in `out` between
// chunks, so k still ascends without a break. One row takes several groups at once, since its fmas
// wait for each other; more rows take as many as the registers hold.
#pragma once

#include "kernels/lane_blocks.h"

namespace culet::kernels {
namespace {

constexpr int kMaxRowsF = kLaneRegisters >= 32 ? 8 : 6;
constexpr int kGroups = kLaneRegisters >= 32 ? 2 : 1;     // of a tile of several rows
constexpr int kMaxGroups = kLaneRegisters >= 32 ? 2 : 4;  // of a tile of one row
constexpr int64_t kChunk = 512 / kMaxGroups;  // k values; kMaxGroups groups of them take 32 KiB
// Few rows leave the product bound by memory: float32 weights are asked for ahead. Not where a row
// takes four groups: AVX2 was 14 % slower with it (640 x 2048, AMD EPYC, 2026-12-01).
constexpr int kPrefetchRowsF = kMaxGroups == 2 ? 2 : 0;
constexpr int64_t kPrefetchValues = 1024;

template <int kIndex, int kT, int kHalf, int kByte>
CULET_INLINE void store_weights(Floats d, Floats m, Bytes code, float* out) {
  constexpr PackedLayout l = kLayouts[kIndex];
  Floats v = d * to_floats(byte_of<kByte>(code) - set1(int32_t{bias(l)}));
  if constexpr (l.min == kMinAdd) v = v + m;
  if constexpr (l.min == kMinSub) v = v - m;
  store(out + 16 * (16 * kHalf + 4 * kT + kByte), v);
}

template <int kIndex, int kT, int kHalf>
CULET_INLINE void store_words(const Scales<kIndex>& s, Bytes code, float* out) {
  constexpr PackedLayout l = kLayouts[kIndex];
  Floats d = s.d, m = s.m;
  if constexpr (halves(l)) d = d * to_floats(s.scale[kHalf]);
  if constexpr (l.sub == kSubNibble) m = m * to_floats(s.minimum[kHalf]);
  const Bytes value = book_codes<kIndex>(code);
  unroll<4>(
      CULET_LAMBDA(&, auto j) { store_weights<kIndex, kT, kHalf, int{j}>(d, m, value, out); });
}

// k values [k0, k0 + count) of a group into out[count][16].
typedef void (*ExpandFn)(const uint8_t* group, int64_t k0, int64_t count, float* out);

template <int kIndex>
void expand(const uint8_t* group, int64_t k0, int64_t count, float* out) {
  constexpr PackedLayout l = kLayouts[kIndex];
  for (int64_t b = k0 / 32; b < (k0 + count) / 32; b++, out += 32 * 16) {
    const uint8_t* header = group + b / l.unit * unit_bytes(l);
    const int in_unit = static_cast<int>(b % l.unit);
    const uint8_t* codes = header + header_bytes(l) + in_unit * code_bytes(l);
    for (int part = 0; part < 16 / kWidth; part++) {
      Scales<kIndex> scales = {};
      scales.load_block(header, in_unit, part);
      unroll<4>(CULET_LAMBDA(&, auto t) {
        Bytes low, high;
        widen<kIndex, int{t}>(codes + 4 * kWidth * part, &low, &high);
        store_words<kIndex, int{t}, 0>(scales, low, out + kWidth * part);
        store_words<kIndex, int{t}, 1>(scales, high, out + kWidth * part);
      });
    }
  }
}

void expand_f16(const uint8_t* group, int64_t k0, int64_t count, float* out) {
  for (int64_t i = 0; i < 16 * count; i += kWidth)
    store(out + i, load_f16(group + k0 * 32 + 2 * i));
}
void expand_bf16(const uint8_t* group, int64_t k0, int64_t count, float* out) {
  for (int64_t i = 0; i < 16 * count; i += kWidth)
    store(out + i, load_bf16(group + k0 * 32 + 2 * i));
}

struct TileF {
  const float* w[kMaxGroups];  // [count][16] each
  int64_t outputs;             // left in the matrix from the first group on
  const float* a;
  int64_t a_stride, count;
  bool continued;  // accumulators start from `out`
  bool in_place;   // `w` is the matrix itself
  float* out;
  int64_t stride;
};

template <int R, int G>
void tile_f(const TileF& t) {
  Lanes acc[R][G];
  unroll<R * G>(CULET_LAMBDA(&, auto i) {
    constexpr int r = i / G, g = i % G;
    acc[r][g] =
        t.continued ? load_lanes(t.out + r * t.stride + 16 * g, t.outputs - 16 * g) : zero_lanes();
  });
  for (int64_t i = 0; i < t.count; i++) {
    if (R <= kPrefetchRowsF && t.in_place)
      for (int g = 0; g < G; g++) __builtin_prefetch(t.w[g] + 16 * i + kPrefetchValues);
    unroll<G>(CULET_LAMBDA(&, auto g) {
      const Lanes w = load_lanes(t.w[g] + 16 * i);
      unroll<R>(CULET_LAMBDA(&, auto r) {
        acc[r][g] = fma(set1(t.a[r * t.a_stride + i]), w, acc[r][g]);
      });
    });
  }
  unroll<R * G>(CULET_LAMBDA(&, auto i) {
    constexpr int r = i / G, g = i % G;
    store_lanes(t.out + r * t.stride + 16 * g, acc[r][g], t.outputs - 16 * g);
  });
}

typedef void (*TileFnF)(const TileF&);
template <int R, int G>
constexpr TileFnF tile_of_f() {
  if constexpr (R <= kMaxRowsF) return tile_f<R, G>;
  return nullptr;
}
template <int G>
constexpr TileFnF kTilesF[9] = {nullptr,           tile_of_f<1, G>(), tile_of_f<2, G>(),
                                tile_of_f<3, G>(), tile_of_f<4, G>(), tile_of_f<5, G>(),
                                tile_of_f<6, G>(), tile_of_f<7, G>(), tile_of_f<8, G>()};

CULET_INLINE void run_rows(TileF t, int64_t rows, int groups) {
  if (rows == 1 && groups == kMaxGroups) return tile_f<1, kMaxGroups>(t);
  const TileFnF* tile = groups == kGroups ? kTilesF<kGroups> : kTilesF<1>;
  const int64_t tiles = (rows + kMaxRowsF - 1) / kMaxRowsF;
  for (int64_t i = 0, r = 0; i < tiles; i++) {
    const int64_t count = (rows - r) / (tiles - i);
    tile[count](t);
    t.a += count * t.a_stride;
    t.out += count * t.stride;
    r += count;
  }
}

// Groups of the next tiles, of `left`.
CULET_INLINE int next_groups(int64_t rows, int64_t left) {
  if (rows == 1 && left >= kMaxGroups) return kMaxGroups;
  return left >= kGroups ? kGroups : 1;
}

// `expand_fn` null: the packed weights are float32 and are used in place.
CULET_INLINE void product(ExpandFn expand_fn, const PackedMatrix* w, const float* a,
                          int64_t a_stride, int64_t row0, int64_t row1, int64_t group0,
                          int64_t group1, float* out, int64_t stride) {
  alignas(64) float buffer[kMaxGroups][kChunk * 16];
  for (int64_t g = group0; g < group1;) {
    const int groups = next_groups(row1 - row0, group1 - g);
    TileF t = {};
    t.outputs = w->n - g * 16;
    t.in_place = !expand_fn;
    t.a_stride = a_stride;
    t.stride = stride;
    t.out = out + (g - group0) * 16;
    for (int64_t k0 = 0; k0 < w->k; k0 += kChunk) {
      t.count = w->k - k0 < kChunk ? w->k - k0 : kChunk;
      t.continued = k0 > 0;
      t.a = a + row0 * a_stride + k0;
      for (int i = 0; i < groups; i++) {
        const uint8_t* group = w->data + (g + i) * w->group_bytes;
        t.w[i] = expand_fn ? buffer[i] : reinterpret_cast<const float*>(group) + k0 * 16;
        if (expand_fn) expand_fn(group, k0, t.count, buffer[i]);
      }
      run_rows(t, row1 - row0, groups);
    }
    g += groups;
  }
}

template <int kIndex>
void matmul_f(const PackedMatrix* w, const float* a, int64_t a_stride, int64_t row0, int64_t row1,
              int64_t group0, int64_t group1, float* out, int64_t stride) {
  product(expand<kIndex>, w, a, a_stride, row0, row1, group0, group1, out, stride);
}
void matmul_f32(const PackedMatrix* w, const float* a, int64_t a_stride, int64_t row0, int64_t row1,
                int64_t group0, int64_t group1, float* out, int64_t stride) {
  product(nullptr, w, a, a_stride, row0, row1, group0, group1, out, stride);
}
void matmul_f16(const PackedMatrix* w, const float* a, int64_t a_stride, int64_t row0, int64_t row1,
                int64_t group0, int64_t group1, float* out, int64_t stride) {
  product(expand_f16, w, a, a_stride, row0, row1, group0, group1, out, stride);
}
void matmul_bf16(const PackedMatrix* w, const float* a, int64_t a_stride, int64_t row0,
                 int64_t row1, int64_t group0, int64_t group1, float* out, int64_t stride) {
  product(expand_bf16, w, a, a_stride, row0, row1, group0, group1, out, stride);
}

template <int kIndex>
void add_matmul_f(Kernels* table) {
  if constexpr (kIndex < kLayoutCount) {
    table->matmul_f[kLayouts[kIndex].type] = matmul_f<kIndex>;
    add_matmul_f<kIndex + 1>(table);
  }
}

void add_lane_matmul_f(Kernels* table) {
  add_matmul_f<0>(table);
  table->matmul_f[kTypeF32] = matmul_f32;
  table->matmul_f[kTypeF16] = matmul_f16;
  table->matmul_f[kTypeBf16] = matmul_bf16;
}

}  // namespace
}  // namespace culet::kernels
