// Float matrix products with AVX-512: float weights, and every quantized type under --precise.
//
// A chunk of k is dequantized once for 16 outputs (product and minimum rounded separately, as
// quant/dequantize.cpp does) into a buffer of [k][16] floats, which is also how float32 weights lie
// in memory; then tiles of rows run over it with one fma per k. Accumulators rest in `out` between
// chunks, so k still ascends without a break.
#include "kernels/kernels.h"
#include "kernels/levels.h"
#include "kernels/x86_avx512_blocks.h"

#include <immintrin.h>
#include <stdint.h>

namespace culet::kernels {
namespace {

constexpr int64_t kChunk = 256;  // k values; two groups of them take 32 KiB
constexpr int kMaxRows = 8;

template <int kIndex, int kT, int kHalf>
CULET_INLINE void store_words(const Scales<kIndex>& s, __m512i word, float* out) {
  constexpr PackedLayout l = kLayouts[kIndex];
  __m512 d = s.d, m = s.m;
  if constexpr (halves(l)) d = _mm512_mul_ps(d, _mm512_cvtepi32_ps(s.scale[kHalf]));
  if constexpr (l.sub == kSubNibble) m = _mm512_mul_ps(m, _mm512_cvtepi32_ps(s.minimum[kHalf]));
  for (int j = 0; j < 4; j++) {
    const __m512i code = _mm512_and_si512(_mm512_srli_epi32(word, 8 * j), _mm512_set1_epi32(255));
    const __m512i q = _mm512_sub_epi32(code, _mm512_set1_epi32(bias(l)));
    __m512 v = _mm512_mul_ps(d, _mm512_cvtepi32_ps(q));
    if constexpr (l.min == kMinAdd) v = _mm512_add_ps(v, m);
    if constexpr (l.min == kMinSub) v = _mm512_sub_ps(v, m);
    _mm512_store_ps(out + 16 * (16 * kHalf + 4 * kT + j), v);
  }
}

template <int kIndex, int kT>
CULET_INLINE void store_step(const Scales<kIndex>& s, const uint8_t* codes, float* out) {
  __m512i low, high;
  widen<kIndex, kT>(codes, &low, &high);
  store_words<kIndex, kT, 0>(s, low, out);
  store_words<kIndex, kT, 1>(s, high, out);
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
    Scales<kIndex> scales;
    scales.load_block(header, in_unit);
    store_step<kIndex, 0>(scales, codes, out);
    store_step<kIndex, 1>(scales, codes, out);
    store_step<kIndex, 2>(scales, codes, out);
    store_step<kIndex, 3>(scales, codes, out);
  }
}

void expand_f16(const uint8_t* group, int64_t k0, int64_t count, float* out) {
  for (int64_t i = 0; i < count; i++) _mm512_store_ps(out + 16 * i, half16(group + (k0 + i) * 32));
}

void expand_bf16(const uint8_t* group, int64_t k0, int64_t count, float* out) {
  for (int64_t i = 0; i < count; i++) {
    const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(group + (k0 + i) * 32));
    _mm512_store_si512(out + 16 * i, _mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
  }
}

struct TileF {
  const float* w[2];  // [count][16] of two groups
  __mmask16 masks[2];
  const float* a;
  int64_t a_stride, count;
  bool continued;
  float* out;
  int64_t stride;
};

template <int R>
void tile_f(const TileF& t) {
  __m512 acc[R][2];
  unroll<2 * R>(CULET_LAMBDA(&, auto i) {
    constexpr int r = i / 2, g = i % 2;
    acc[r][g] = t.continued ? _mm512_maskz_loadu_ps(t.masks[g], t.out + r * t.stride + 16 * g)
                            : _mm512_setzero_ps();
  });
  const float* w0 = t.w[0];
  const float* w1 = t.w[1];
  for (int64_t i = 0; i < t.count; i++) {
    if (R <= 2) {
      _mm_prefetch(reinterpret_cast<const char*>(w0 + 16 * i) + 4096, _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(w1 + 16 * i) + 4096, _MM_HINT_T0);
    }
    const __m512 v0 = _mm512_load_ps(w0 + 16 * i), v1 = _mm512_load_ps(w1 + 16 * i);
    unroll<R>(CULET_LAMBDA(&, auto r) {
      const __m512 a = _mm512_set1_ps(t.a[r * t.a_stride + i]);
      acc[r][0] = _mm512_fmadd_ps(v0, a, acc[r][0]);
      acc[r][1] = _mm512_fmadd_ps(v1, a, acc[r][1]);
    });
  }
  unroll<2 * R>(CULET_LAMBDA(&, auto i) {
    constexpr int r = i / 2, g = i % 2;
    _mm512_mask_storeu_ps(t.out + r * t.stride + 16 * g, t.masks[g], acc[r][g]);
  });
}

void run_rows(TileF t, int64_t rows) {
  static constexpr void (*kTiles[kMaxRows + 1])(const TileF&) = {nullptr,   tile_f<1>, tile_f<2>,
                                                                 tile_f<3>, tile_f<4>, tile_f<5>,
                                                                 tile_f<6>, tile_f<7>, tile_f<8>};
  const int64_t tiles = (rows + kMaxRows - 1) / kMaxRows;
  for (int64_t i = 0, r = 0; i < tiles; i++) {
    const int64_t count = (rows - r) / (tiles - i);
    kTiles[count](t);
    t.a += count * t.a_stride;
    t.out += count * t.stride;
    r += count;
  }
}

// `expand` null: the packed weights are float32 and are used in place.
CULET_INLINE void product(ExpandFn expand_fn, const PackedMatrix* w, const float* a,
                          int64_t a_stride, int64_t row0, int64_t row1, int64_t group0,
                          int64_t group1, float* out, int64_t stride) {
  alignas(64) float buffer[2][kChunk * 16];
  for (int64_t g = group0; g < group1; g += 2) {
    // An odd last group is paired with itself; the empty mask drops the copy.
    const bool pair = g + 1 < group1;
    const uint8_t* group[2] = {w->data + g * w->group_bytes,
                               w->data + (pair ? g + 1 : g) * w->group_bytes};
    TileF t = {};
    t.masks[0] = output_mask(w->n, g);
    t.masks[1] = pair ? output_mask(w->n, g + 1) : static_cast<__mmask16>(0);
    t.a_stride = a_stride;
    t.stride = stride;
    t.out = out + (g - group0) * 16;
    for (int64_t k0 = 0; k0 < w->k; k0 += kChunk) {
      t.count = w->k - k0 < kChunk ? w->k - k0 : kChunk;
      t.continued = k0 > 0;
      t.a = a + row0 * a_stride + k0;
      for (int i = 0; i < 2; i++) {
        t.w[i] = buffer[i];
        if (!expand_fn)
          t.w[i] = reinterpret_cast<const float*>(group[i]) + k0 * 16;
        else if (i == 1 && !pair)
          t.w[1] = buffer[0];
        else
          expand_fn(group[i], k0, t.count, buffer[i]);
      }
      run_rows(t, row1 - row0);
    }
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
void add_all(Kernels* table) {
  if constexpr (kIndex < kLayoutCount) {
    table->matmul_f[kLayouts[kIndex].type] = matmul_f<kIndex>;
    add_all<kIndex + 1>(table);
  }
}

}  // namespace

void add_avx512_matmul(Kernels* table) {
  add_all<0>(table);
  table->matmul_f[kTypeF32] = matmul_f32;
  table->matmul_f[kTypeF16] = matmul_f16;
  table->matmul_f[kTypeBf16] = matmul_bf16;
}

}  // namespace culet::kernels
