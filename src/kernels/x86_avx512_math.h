// culet's exp, tanh, sigmoid, erf and the 16-lane fold on zmm: the operations of scalar_math.h in
// the same order. Included by AVX-512 files only; everything has internal linkage.
//
// min and max take the bound first: the instruction returns its second operand when either is NaN,
// so a NaN passes through as in the scalar comparisons.
#pragma once

#include "kernels/math_constants.h"
#include "kernels/unroll.h"

#include <immintrin.h>
#include <stdint.h>

namespace culet::kernels {
namespace {

CULET_INLINE __m512 set1(float x) { return _mm512_set1_ps(x); }
CULET_INLINE __m512 sign_of(__m512 x) { return _mm512_and_ps(x, set1(-0.0f)); }
CULET_INLINE __m512 magnitude(__m512 x) { return _mm512_andnot_ps(set1(-0.0f), x); }
CULET_INLINE __m512 negate(__m512 x) { return _mm512_xor_ps(x, set1(-0.0f)); }
CULET_INLINE __mmask16 tail_mask(int64_t left) {
  return static_cast<__mmask16>(left >= 16 ? 0xffff : (1 << left) - 1);
}

CULET_INLINE float fold(__m512 v) {
  const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_shuffle_ps(c, c, 1)));
}

CULET_INLINE __m512 exp16(__m512 x) {
  const __mmask16 kept = _mm512_cmp_ps_mask(x, set1(kExpLow), _CMP_NLT_UQ);
  x = _mm512_min_ps(set1(kExpHigh), x);
  const __m512 n =
      _mm512_sub_ps(_mm512_fmadd_ps(x, set1(kLog2e), set1(kRoundMagic)), set1(kRoundMagic));
  __m512 r = _mm512_fnmadd_ps(n, set1(kLn2High), x);
  r = _mm512_fnmadd_ps(n, set1(kLn2Low), r);
  __m512 q = _mm512_fmadd_ps(r, set1(kExp6), set1(kExp5));
  q = _mm512_fmadd_ps(r, q, set1(kExp4));
  q = _mm512_fmadd_ps(r, q, set1(kExp3));
  q = _mm512_fmadd_ps(r, q, set1(kExp2));
  const __m512 p = _mm512_add_ps(set1(1.0f), _mm512_fmadd_ps(_mm512_mul_ps(r, r), q, r));
  return _mm512_maskz_scalef_ps(kept, p, n);
}

CULET_INLINE __m512 tanh16(__m512 x) {
  const __m512 a = magnitude(x), z = _mm512_mul_ps(a, a);
  __m512 p = _mm512_fmadd_ps(z, set1(kTanh5), set1(kTanh4));
  p = _mm512_fmadd_ps(z, p, set1(kTanh3));
  p = _mm512_fmadd_ps(z, p, set1(kTanh2));
  p = _mm512_fmadd_ps(z, p, set1(kTanh1));
  p = _mm512_fmadd_ps(z, p, set1(kTanh0));
  const __m512 small = _mm512_fmadd_ps(_mm512_mul_ps(a, z), p, a);
  const __m512 e = _mm512_add_ps(exp16(_mm512_add_ps(a, a)), set1(1.0f));
  const __m512 large = _mm512_sub_ps(set1(1.0f), _mm512_div_ps(set1(2.0f), e));
  const __mmask16 is_small = _mm512_cmp_ps_mask(a, set1(kTanhSplit), _CMP_LT_OQ);
  const __m512 y = magnitude(_mm512_mask_blend_ps(is_small, large, small));
  return _mm512_or_ps(y, sign_of(x));
}

CULET_INLINE __m512 sigmoid16(__m512 x) {
  return _mm512_div_ps(set1(1.0f), _mm512_add_ps(set1(1.0f), exp16(negate(x))));
}

CULET_INLINE __m512 erf16(__m512 x) {
  const __m512 a = magnitude(x), z = _mm512_mul_ps(a, a);
  __m512 p = _mm512_fmadd_ps(z, set1(kErfS6), set1(kErfS5));
  p = _mm512_fmadd_ps(z, p, set1(kErfS4));
  p = _mm512_fmadd_ps(z, p, set1(kErfS3));
  p = _mm512_fmadd_ps(z, p, set1(kErfS2));
  p = _mm512_fmadd_ps(z, p, set1(kErfS1));
  p = _mm512_fmadd_ps(z, p, set1(kErfS0));
  const __m512 small = _mm512_fmadd_ps(a, p, a);
  const __m512 b = _mm512_min_ps(set1(kErfHigh), a);
  __m512 q = _mm512_fmadd_ps(b, set1(kErfL7), set1(kErfL6));
  q = _mm512_fmadd_ps(b, q, set1(kErfL5));
  q = _mm512_fmadd_ps(b, q, set1(kErfL4));
  q = _mm512_fmadd_ps(b, q, set1(kErfL3));
  q = _mm512_fmadd_ps(b, q, set1(kErfL2));
  q = _mm512_fmadd_ps(b, q, set1(kErfL1));
  q = _mm512_fmadd_ps(b, q, set1(kErfL0));
  const __m512 large = _mm512_sub_ps(set1(1.0f), exp16(q));
  const __mmask16 is_small = _mm512_cmp_ps_mask(a, set1(kErfSplit), _CMP_LT_OQ);
  const __m512 y = magnitude(_mm512_mask_blend_ps(is_small, large, small));
  return _mm512_or_ps(y, sign_of(x));
}

CULET_INLINE __m512 softcap16(__m512 x, __m512 cap) {
  return _mm512_mul_ps(cap, tanh16(_mm512_div_ps(x, cap)));
}

}  // namespace
}  // namespace culet::kernels
