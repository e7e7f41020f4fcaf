// Row kernels with AVX-512 F/BW/VL/DQ: the scalar definitions on 16 lanes, bit for bit.
//
// One zmm is the 16 virtual lanes of every float sum; a short last vector is masked, so its missing
// lanes keep their value. No linkage but add_avx512 (x86_avx512vnni.cpp says why).
#include "kernels/kernels.h"
#include "kernels/levels.h"
#include "kernels/x86_avx512_math.h"

#include <immintrin.h>
#include <stdint.h>

namespace culet::kernels {
namespace {

CULET_INLINE __m512 silu16(__m512 x) { return _mm512_mul_ps(x, sigmoid16(x)); }
CULET_INLINE __m512 gelu16(__m512 x) {
  const __m512 x2 = _mm512_mul_ps(set1(kGeluB), _mm512_mul_ps(x, x));
  const __m512 inner = _mm512_mul_ps(set1(kGeluA), _mm512_fmadd_ps(x2, x, x));
  return _mm512_mul_ps(_mm512_mul_ps(set1(0.5f), x), _mm512_add_ps(set1(1.0f), tanh16(inner)));
}
CULET_INLINE __m512 gelu_erf16(__m512 x) {
  const __m512 e = erf16(_mm512_mul_ps(x, set1(kSqrtHalf)));
  return _mm512_mul_ps(_mm512_mul_ps(set1(0.5f), x), _mm512_add_ps(set1(1.0f), e));
}
CULET_INLINE __m512 relu16(__m512 x) {
  const __mmask16 negative = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_LT_OQ);
  return _mm512_mask_blend_ps(negative, x, _mm512_setzero_ps());
}

// y[i] = f(x[i], b[i]) for n values, the last vector masked.
template <class F>
CULET_INLINE void map(const float* x, int64_t n, float* y, F f) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) _mm512_storeu_ps(y + i, f(_mm512_loadu_ps(x + i)));
  if (i == n) return;
  const __mmask16 m = tail_mask(n - i);
  _mm512_mask_storeu_ps(y + i, m, f(_mm512_maskz_loadu_ps(m, x + i)));
}
template <class F>
CULET_INLINE void map2(const float* a, const float* b, int64_t n, float* y, F f) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    _mm512_storeu_ps(y + i, f(_mm512_loadu_ps(a + i), _mm512_loadu_ps(b + i)));
  if (i == n) return;
  const __mmask16 m = tail_mask(n - i);
  _mm512_mask_storeu_ps(y + i, m,
                        f(_mm512_maskz_loadu_ps(m, a + i), _mm512_maskz_loadu_ps(m, b + i)));
}

void unary(Unary op, const float* x, int64_t n, float* y) {
  switch (op) {
    case kSilu:
      return map(x, n, y, CULET_LAMBDA(=, __m512 v) { return silu16(v); });
    case kGelu:
      return map(x, n, y, CULET_LAMBDA(=, __m512 v) { return gelu16(v); });
    case kGeluErf:
      return map(x, n, y, CULET_LAMBDA(=, __m512 v) { return gelu_erf16(v); });
    case kRelu:
      return map(x, n, y, CULET_LAMBDA(=, __m512 v) { return relu16(v); });
    case kSigmoid:
      return map(x, n, y, CULET_LAMBDA(=, __m512 v) { return sigmoid16(v); });
    case kTanh:
      return map(x, n, y, CULET_LAMBDA(=, __m512 v) { return tanh16(v); });
    case kUnaryCount:
      return;
  }
}

void binary(Binary op, const float* a, const float* b, int64_t n, float* y) {
  switch (op) {
    case kAdd:
      return map2(a, b, n, y, CULET_LAMBDA(=, __m512 u, __m512 v) { return _mm512_add_ps(u, v); });
    case kSub:
      return map2(a, b, n, y, CULET_LAMBDA(=, __m512 u, __m512 v) { return _mm512_sub_ps(u, v); });
    case kMul:
      return map2(a, b, n, y, CULET_LAMBDA(=, __m512 u, __m512 v) { return _mm512_mul_ps(u, v); });
    case kDiv:
      return map2(a, b, n, y, CULET_LAMBDA(=, __m512 u, __m512 v) { return _mm512_div_ps(u, v); });
    case kBinaryCount:
      return;
  }
}

void binary_scalar(Binary op, const float* a, float b, int64_t n, float* y) {
  const __m512 v = set1(b);
  switch (op) {
    case kAdd:
      return map(a, n, y, CULET_LAMBDA(=, __m512 u) { return _mm512_add_ps(u, v); });
    case kSub:
      return map(a, n, y, CULET_LAMBDA(=, __m512 u) { return _mm512_sub_ps(u, v); });
    case kMul:
      return map(a, n, y, CULET_LAMBDA(=, __m512 u) { return _mm512_mul_ps(u, v); });
    case kDiv:
      return map(a, n, y, CULET_LAMBDA(=, __m512 u) { return _mm512_div_ps(u, v); });
    case kBinaryCount:
      return;
  }
}

void softcap(const float* x, float cap, int64_t n, float* y) {
  const __m512 c = set1(cap);
  map(x, n, y, CULET_LAMBDA(=, __m512 v) { return softcap16(v, c); });
}

void add_scaled(float a, const float* x, int64_t n, float* y) {
  const __m512 factor = set1(a);
  map2(x, y, n, y, CULET_LAMBDA(=, __m512 u, __m512 v) { return _mm512_fmadd_ps(factor, u, v); });
}

void rms_norm(const float* x, const float* w, float eps, int64_t n, float* y) {
  __m512 lanes = _mm512_setzero_ps();
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m512 v = _mm512_loadu_ps(x + i);
    lanes = _mm512_fmadd_ps(v, v, lanes);
  }
  if (i < n) {
    const __mmask16 m = tail_mask(n - i);
    const __m512 v = _mm512_maskz_loadu_ps(m, x + i);
    lanes = _mm512_mask3_fmadd_ps(v, v, lanes, m);
  }
  const float mean = fold(lanes) / static_cast<float>(n);
  const __m512 r = set1(1.0f / _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(mean + eps))));
  if (w)
    map2(
        x, w, n, y,
        CULET_LAMBDA(=, __m512 v, __m512 u) { return _mm512_mul_ps(_mm512_mul_ps(v, r), u); });
  else
    map(x, n, y, CULET_LAMBDA(=, __m512 v) { return _mm512_mul_ps(v, r); });
}

void layer_norm(const float* x, const float* w, const float* b, float eps, int64_t n, float* y) {
  __m512 lanes = _mm512_setzero_ps();
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 m = tail_mask(n - i);
    lanes = _mm512_mask_add_ps(lanes, m, lanes, _mm512_maskz_loadu_ps(m, x + i));
  }
  const __m512 mean = set1(fold(lanes) / static_cast<float>(n));
  lanes = _mm512_setzero_ps();
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 m = tail_mask(n - i);
    const __m512 v = _mm512_sub_ps(_mm512_maskz_loadu_ps(m, x + i), mean);
    lanes = _mm512_mask3_fmadd_ps(v, v, lanes, m);
  }
  const float variance = fold(lanes) / static_cast<float>(n);
  const __m512 r = set1(1.0f / _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(variance + eps))));
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 m = tail_mask(n - i);
    __m512 v = _mm512_mul_ps(_mm512_sub_ps(_mm512_maskz_loadu_ps(m, x + i), mean), r);
    if (w) v = _mm512_mul_ps(v, _mm512_maskz_loadu_ps(m, w + i));
    if (b) v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(m, b + i));
    _mm512_mask_storeu_ps(y + i, m, v);
  }
}

// One block of 32; returns its scale.
CULET_INLINE float quantize_block(const float* x, int8_t* q, int16_t* sums) {
  const __m512 x0 = _mm512_loadu_ps(x), x1 = _mm512_loadu_ps(x + 16);
  const __m512i abs = _mm512_set1_epi32(0x7fffffff);
  const __m512i m = _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(x0), abs),
                                     _mm512_and_si512(_mm512_castps_si512(x1), abs));
  const uint32_t bits = static_cast<uint32_t>(_mm512_reduce_max_epu32(m));
  const float amax = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(bits))));
  const float id = 127.0f / amax;
  if (bits >= 0x7f800000u || amax < kQuantizeLow) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), _mm256_setzero_si256());
    sums[0] = sums[1] = 0;
    return bits >= 0x7f800000u ? __builtin_nanf("") : 0.0f;
  }
  const __m512i q0 = _mm512_cvtps_epi32(_mm512_mul_ps(x0, set1(id)));
  const __m512i q1 = _mm512_cvtps_epi32(_mm512_mul_ps(x1, set1(id)));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(q), _mm512_cvtepi32_epi8(q0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(q + 16), _mm512_cvtepi32_epi8(q1));
  sums[0] = static_cast<int16_t>(_mm512_reduce_add_epi32(q0));
  sums[1] = static_cast<int16_t>(_mm512_reduce_add_epi32(q1));
  return amax / 127.0f;
}

void quantize(const float* x, int64_t rows, int64_t x_stride, int64_t row0, QuantRows* out) {
  const int64_t blocks = out->k / 32;
  for (int64_t r = 0; r < rows; r++) {
    const float* row = x + r * x_stride;
    const int64_t index = (row0 + r) * blocks;
    for (int64_t b = 0; b < blocks; b++)
      out->d[index + b] =
          quantize_block(row + b * 32, out->q + (index + b) * 32, out->sums + (index + b) * 2);
  }
}

void rope(const float* x, const float* cos_sin, int32_t dims, int32_t head_dim, int adjacent,
          float* y) {
  const int32_t half = dims / 2;
  const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
  const __m512i zip0 = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const __m512i zip1 = _mm512_add_epi32(zip0, _mm512_set1_epi32(8));
  for (int32_t i = 0; i < half; i += 16) {
    const __mmask16 m = tail_mask(half - i);
    const __mmask16 m0 = tail_mask(2 * (half - i)),
                    m1 = tail_mask(2 * (half - i) > 16 ? 2 * (half - i) - 16 : 0);
    const __m512 c = _mm512_maskz_loadu_ps(m, cos_sin + i);
    const __m512 s = _mm512_maskz_loadu_ps(m, cos_sin + half + i);
    __m512 x0, x1;
    if (adjacent) {
      const __m512 a = _mm512_maskz_loadu_ps(m0, x + 2 * i),
                   b = _mm512_maskz_loadu_ps(m1, x + 2 * i + 16);
      x0 = _mm512_permutex2var_ps(a, even, b);
      x1 = _mm512_permutex2var_ps(a, odd, b);
    } else {
      x0 = _mm512_maskz_loadu_ps(m, x + i);
      x1 = _mm512_maskz_loadu_ps(m, x + half + i);
    }
    const __m512 y0 = _mm512_fnmadd_ps(x1, s, _mm512_mul_ps(x0, c));
    const __m512 y1 = _mm512_fmadd_ps(x1, c, _mm512_mul_ps(x0, s));
    if (adjacent) {
      _mm512_mask_storeu_ps(y + 2 * i, m0, _mm512_permutex2var_ps(y0, zip0, y1));
      _mm512_mask_storeu_ps(y + 2 * i + 16, m1, _mm512_permutex2var_ps(y0, zip1, y1));
    } else {
      _mm512_mask_storeu_ps(y + i, m, y0);
      _mm512_mask_storeu_ps(y + half + i, m, y1);
    }
  }
  for (int32_t i = 2 * half; i < head_dim; i++) y[i] = x[i];
}

void max_index(const float* x, int64_t n, float* max, int64_t* index, int* finite) {
  // Per lane the largest value and the block of 16 that has it first; lanes are settled at the end.
  const __m512i exponent = _mm512_set1_epi32(0x7f800000);
  __m512 best = set1(-__builtin_inff());
  __m512i where = _mm512_setzero_si512();
  __mmask16 bad = 0;
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 m = tail_mask(n - i);
    const __m512 v = _mm512_maskz_loadu_ps(m, x + i);
    const __mmask16 larger = _mm512_mask_cmp_ps_mask(m, v, best, _CMP_GT_OQ);
    best = _mm512_mask_mov_ps(best, larger, v);
    where = _mm512_mask_mov_epi32(where, larger, _mm512_set1_epi32(static_cast<int32_t>(i / 16)));
    const __m512i e = _mm512_and_si512(_mm512_castps_si512(v), exponent);
    bad = static_cast<__mmask16>(bad | _mm512_mask_cmpeq_epi32_mask(m, e, exponent));
  }
  float values[16];
  int32_t blocks[16];
  _mm512_storeu_ps(values, best);
  _mm512_storeu_si512(blocks, where);
  *max = -__builtin_inff();
  *index = 0;
  for (int lane = 0; lane < 16; lane++) {
    const int64_t at = static_cast<int64_t>(blocks[lane]) * 16 + lane;
    if (values[lane] > *max || (values[lane] == *max && *max > -__builtin_inff() && at < *index)) {
      *max = values[lane];
      *index = at;
    }
  }
  *finite = bad == 0;
  if (n > 0 && *max > -__builtin_inff()) *max = x[*index];  // the sign of a zero
}

CULET_INLINE double fold_double(__m512d low, __m512d high) {
  const __m512d v = _mm512_add_pd(low, high);
  const __m256d a = _mm256_add_pd(_mm512_castpd512_pd256(v), _mm512_extractf64x4_pd(v, 1));
  const __m128d b = _mm_add_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
  return _mm_cvtsd_f64(_mm_add_sd(b, _mm_unpackhi_pd(b, b)));
}

void exp_sums(const float* x, float max, int64_t n, double* sum, double* weighted) {
  __m512d e0 = _mm512_setzero_pd(), e1 = e0, w0 = e0, w1 = e0;
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 m = tail_mask(n - i);
    const __m512 d = _mm512_sub_ps(_mm512_maskz_loadu_ps(m, x + i), set1(max));
    const __m512 e = _mm512_maskz_mov_ps(m, exp16(d));
    const __mmask16 some = _mm512_cmp_ps_mask(e, _mm512_setzero_ps(), _CMP_NEQ_UQ);
    const __m512d el = _mm512_cvtps_pd(_mm512_castps512_ps256(e));
    const __m512d eh = _mm512_cvtps_pd(_mm512_extractf32x8_ps(e, 1));
    const __m512d dl = _mm512_cvtps_pd(_mm512_castps512_ps256(d));
    const __m512d dh = _mm512_cvtps_pd(_mm512_extractf32x8_ps(d, 1));
    e0 = _mm512_mask_add_pd(e0, static_cast<__mmask8>(m), e0, el);
    e1 = _mm512_mask_add_pd(e1, static_cast<__mmask8>(m >> 8), e1, eh);
    // Products are exact, so a fused sum is the scalar sum.
    w0 = _mm512_mask3_fmadd_pd(el, dl, w0, static_cast<__mmask8>(some));
    w1 = _mm512_mask3_fmadd_pd(eh, dh, w1, static_cast<__mmask8>(some >> 8));
  }
  *sum = fold_double(e0, e1);
  if (weighted) *weighted = fold_double(w0, w1);
}

}  // namespace

void add_avx512(Kernels* table) {
  add_avx512_matmul(table);
  add_avx512_attention(table);
  table->quantize = quantize;
  table->rms_norm = rms_norm;
  table->layer_norm = layer_norm;
  table->rope = rope;
  table->unary = unary;
  table->binary = binary;
  table->binary_scalar = binary_scalar;
  table->softcap = softcap;
  table->add_scaled = add_scaled;
  table->max_index = max_index;
  table->exp_sums = exp_sums;
}

}  // namespace culet::kernels
