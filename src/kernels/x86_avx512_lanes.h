// The sixteen-lane vectors that lane_*.h is written in, with AVX-512 F/BW/VL/DQ: one zmm each,
// which is all 16 virtual lanes of a float sum. Included by AVX-512 files only; everything has
// internal linkage.
#pragma once

#include "kernels/unroll.h"

#include <immintrin.h>
#include <stdint.h>

namespace culet::kernels {
namespace {

constexpr int kWidth = 16;          // lanes of a vector
constexpr int kLaneRegisters = 32;  // how many times 16 lanes the registers hold

struct Floats {  // 16 float32
  __m512 v;
};
struct Ints {  // 16 int32
  __m512i v;
};
struct Mask {  // of lanes
  __mmask16 v;
};
struct Bytes {  // 64 bytes: four of each of 16 outputs
  __m512i v;
};

CULET_INLINE Floats load(const float* p) { return {_mm512_loadu_ps(p)}; }
CULET_INLINE void store(float* p, Floats x) { _mm512_storeu_ps(p, x.v); }
CULET_INLINE Floats set1(float x) { return {_mm512_set1_ps(x)}; }
CULET_INLINE Floats zero() { return {_mm512_setzero_ps()}; }
CULET_INLINE Ints set1(int32_t x) { return {_mm512_set1_epi32(x)}; }
CULET_INLINE void store(int32_t* p, Ints x) { _mm512_storeu_si512(p, x.v); }
CULET_INLINE float first_lane(Floats x) { return _mm512_cvtss_f32(x.v); }

CULET_INLINE Floats operator+(Floats a, Floats b) { return {_mm512_add_ps(a.v, b.v)}; }
CULET_INLINE Floats operator-(Floats a, Floats b) { return {_mm512_sub_ps(a.v, b.v)}; }
CULET_INLINE Floats operator*(Floats a, Floats b) { return {_mm512_mul_ps(a.v, b.v)}; }
CULET_INLINE Floats operator/(Floats a, Floats b) { return {_mm512_div_ps(a.v, b.v)}; }
CULET_INLINE Floats fma(Floats a, Floats b, Floats c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
// c - a * b
CULET_INLINE Floats fnma(Floats a, Floats b, Floats c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }
CULET_INLINE float square_root(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }
// p * 2^n for an integer n in one rounding.
CULET_INLINE Floats times_power_of_two(Floats p, Floats n) { return {_mm512_scalef_ps(p.v, n.v)}; }

CULET_INLINE Floats sign_of(Floats x) { return {_mm512_and_ps(x.v, _mm512_set1_ps(-0.0f))}; }
CULET_INLINE Floats magnitude(Floats x) { return {_mm512_andnot_ps(_mm512_set1_ps(-0.0f), x.v)}; }
CULET_INLINE Floats negate(Floats x) { return {_mm512_xor_ps(x.v, _mm512_set1_ps(-0.0f))}; }
CULET_INLINE Floats operator|(Floats a, Floats b) { return {_mm512_or_ps(a.v, b.v)}; }

// Comparisons with a NaN are false, but not_less and differs.
CULET_INLINE Mask less(Floats a, Floats b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
CULET_INLINE Mask not_less(Floats a, Floats b) {
  return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_NLT_UQ)};
}
CULET_INLINE Mask differs(Floats a, Floats b) {
  return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_NEQ_UQ)};
}
CULET_INLINE Mask less(Ints a, Ints b) { return {_mm512_cmplt_epi32_mask(a.v, b.v)}; }
CULET_INLINE Mask equal(Ints a, Ints b) { return {_mm512_cmpeq_epi32_mask(a.v, b.v)}; }
CULET_INLINE Floats select(Mask mask, Floats yes, Floats no) {
  return {_mm512_mask_blend_ps(mask.v, no.v, yes.v)};
}
CULET_INLINE Ints select(Mask mask, Ints yes, Ints no) {
  return {_mm512_mask_blend_epi32(mask.v, no.v, yes.v)};
}
CULET_INLINE Floats keep(Mask mask, Floats x) { return {_mm512_maskz_mov_ps(mask.v, x.v)}; }
CULET_INLINE Mask operator|(Mask a, Mask b) { return {static_cast<__mmask16>(a.v | b.v)}; }
CULET_INLINE Mask operator&(Mask a, Mask b) { return {static_cast<__mmask16>(a.v & b.v)}; }
CULET_INLINE bool any(Mask mask) { return mask.v != 0; }
// Lanes below n; lanes whose bit is set.
CULET_INLINE Mask first_lanes(int64_t n) {
  const int64_t most = n < 16 ? n : 16;
  return {static_cast<__mmask16>(_bzhi_u32(0xffff, static_cast<uint32_t>(most < 0 ? 0 : most)))};
}
CULET_INLINE Mask lanes_of_bits(uint32_t bits) { return {static_cast<__mmask16>(bits)}; }
// A NaN passes.
CULET_INLINE Floats at_most(Floats x, Floats high) { return {_mm512_min_ps(high.v, x.v)}; }
// b if one is NaN.
CULET_INLINE Floats larger(Floats a, Floats b) { return {_mm512_max_ps(a.v, b.v)}; }
CULET_INLINE float largest(Floats x) { return _mm512_reduce_max_ps(x.v); }

CULET_INLINE Floats load_part(const float* p, Mask mask) {
  return {_mm512_maskz_loadu_ps(mask.v, p)};
}
CULET_INLINE void store_part(float* p, Floats x, Mask mask) {
  _mm512_mask_storeu_ps(p, mask.v, x.v);
}
// n values; those past the sixteenth are left to the next vector.
CULET_INLINE Floats load_part(const float* p, int64_t n) { return load_part(p, first_lanes(n)); }
CULET_INLINE void store_part(float* p, Floats x, int64_t n) { store_part(p, x, first_lanes(n)); }

CULET_INLINE Floats to_floats(Ints x) { return {_mm512_cvtepi32_ps(x.v)}; }
CULET_INLINE Ints nearest(Floats x) { return {_mm512_cvtps_epi32(x.v)}; }
CULET_INLINE Floats as_floats(Ints x) { return {_mm512_castsi512_ps(x.v)}; }
CULET_INLINE Ints as_ints(Floats x) { return {_mm512_castps_si512(x.v)}; }
CULET_INLINE Ints operator+(Ints a, Ints b) { return {_mm512_add_epi32(a.v, b.v)}; }
CULET_INLINE Ints operator-(Ints a, Ints b) { return {_mm512_sub_epi32(a.v, b.v)}; }
CULET_INLINE Ints operator*(Ints a, Ints b) { return {_mm512_mullo_epi32(a.v, b.v)}; }
CULET_INLINE Ints operator&(Ints a, Ints b) { return {_mm512_and_si512(a.v, b.v)}; }
CULET_INLINE Ints operator|(Ints a, Ints b) { return {_mm512_or_si512(a.v, b.v)}; }
template <int kShift>
CULET_INLINE Ints shift_left(Ints x) {
  return {_mm512_slli_epi32(x.v, kShift)};
}
template <int kShift>
CULET_INLINE Ints shift_right(Ints x) {  // with the sign
  return {_mm512_srai_epi32(x.v, kShift)};
}
CULET_INLINE Ints shift_left(Ints x, Ints by) { return {_mm512_sllv_epi32(x.v, by.v)}; }

CULET_INLINE __m128i load16(const uint8_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
CULET_INLINE __m256i load32(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
CULET_INLINE Ints load_u8(const uint8_t* p) { return {_mm512_cvtepu8_epi32(load16(p))}; }
CULET_INLINE Ints load_s8(const uint8_t* p) { return {_mm512_cvtepi8_epi32(load16(p))}; }
CULET_INLINE Floats load_f16(const uint8_t* p) { return {_mm512_cvtph_ps(load32(p))}; }
CULET_INLINE Floats set1_f16(const uint8_t* p) {
  int16_t v;
  __builtin_memcpy(&v, p, 2);
  return {_mm512_cvtph_ps(_mm256_set1_epi16(v))};
}
CULET_INLINE Floats load_bf16(const uint8_t* p) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load32(p)), 16))};
}
CULET_INLINE void store_f16(uint8_t* p, Floats x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
// The low 16 or 8 bits of every lane.
CULET_INLINE void store_low16(uint8_t* p, Ints x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(x.v));
}
CULET_INLINE void store_low8(int8_t* p, Ints x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(x.v));
}
// 64 bytes: the first n of p, then zeros.
CULET_INLINE void copy_part(const uint8_t* p, int64_t n, uint8_t* out) {
  const __mmask64 mask = n >= 64 ? ~__mmask64{0} : (__mmask64{1} << n) - 1;
  _mm512_storeu_si512(out, _mm512_maskz_loadu_epi8(mask, p));
}

// x0 y0 x1 y1 ... <-> x0 x1 ..., y0 y1 ...
CULET_INLINE void split_pairs(Floats a, Floats b, Floats* x, Floats* y) {
  const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
  x->v = _mm512_permutex2var_ps(a.v, even, b.v);
  y->v = _mm512_permutex2var_ps(a.v, odd, b.v);
}
CULET_INLINE void join_pairs(Floats x, Floats y, Floats* a, Floats* b) {
  const __m512i low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
  a->v = _mm512_permutex2var_ps(x.v, low, y.v);
  b->v = _mm512_permutex2var_ps(x.v, high, y.v);
}

struct Doubles {  // 16 float64
  __m512d a, b;
};
CULET_INLINE Doubles zero_doubles() { return {_mm512_setzero_pd(), _mm512_setzero_pd()}; }
CULET_INLINE Doubles to_doubles(Floats x) {
  return {_mm512_cvtps_pd(_mm512_castps512_ps256(x.v)),
          _mm512_cvtps_pd(_mm512_extractf32x8_ps(x.v, 1))};
}
CULET_INLINE Doubles operator+(Doubles x, Doubles y) {
  return {_mm512_add_pd(x.a, y.a), _mm512_add_pd(x.b, y.b)};
}
CULET_INLINE Doubles fma(Doubles x, Doubles y, Doubles z) {
  return {_mm512_fmadd_pd(x.a, y.a, z.a), _mm512_fmadd_pd(x.b, y.b, z.b)};
}

// ---------------------------------------------------------------- the 16 virtual lanes

typedef Floats Lanes;
// f gives the vector that begins with a lane.
template <class F>
CULET_INLINE Lanes lanes_of(const F& f) {
  return f(Index<0>());
}
CULET_INLINE Lanes zero_lanes() { return zero(); }
CULET_INLINE Lanes load_lanes(const float* p) { return load(p); }
CULET_INLINE Lanes load_lanes(const float* p, int64_t n) {
  return n >= 16 ? load(p) : load_part(p, n);
}
CULET_INLINE void store_lanes(float* p, Lanes x) { store(p, x); }
CULET_INLINE void store_lanes(float* p, Lanes x, int64_t n) { store_part(p, x, n); }
CULET_INLINE Lanes keep_first(int64_t n, Lanes x) { return keep(first_lanes(n), x); }
CULET_INLINE Lanes keep_bits(uint32_t bits, Lanes x) { return keep(lanes_of_bits(bits), x); }
CULET_INLINE Lanes select_bits(uint32_t bits, Lanes yes, Floats no) {
  return select(lanes_of_bits(bits), yes, no);
}
CULET_INLINE void store_bits(float* p, uint32_t bits, Lanes x) {
  store_part(p, x, lanes_of_bits(bits));
}
CULET_INLINE bool any_nan(Lanes a, Lanes b) {
  return _mm512_cmp_ps_mask(a.v, b.v, _CMP_UNORD_Q) != 0;
}

// Lane j += lane j + 8, then 4, 2, 1.
CULET_INLINE float fold(Lanes x) {
  const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_shuffle_ps(c, c, 1)));
}
CULET_INLINE double fold(const Doubles* x) {
  const __m512d v = _mm512_add_pd(x->a, x->b);
  const __m256d a = _mm256_add_pd(_mm512_castpd512_pd256(v), _mm512_extractf64x4_pd(v, 1));
  const __m128d b = _mm_add_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
  return _mm_cvtsd_f64(_mm_add_sd(b, _mm_unpackhi_pd(b, b)));
}

// ---------------------------------------------------------------- bytes

CULET_INLINE Bytes load_bytes(const uint8_t* p) { return {_mm512_loadu_si512(p)}; }
CULET_INLINE Bytes set_bytes(int x) { return {_mm512_set1_epi8(static_cast<char>(x))}; }
CULET_INLINE Bytes operator&(Bytes a, Bytes b) { return {_mm512_and_si512(a.v, b.v)}; }
CULET_INLINE Bytes operator^(Bytes a, Bytes b) { return {_mm512_xor_si512(a.v, b.v)}; }
CULET_INLINE Bytes subtract_bytes(Bytes a, Bytes b) { return {_mm512_sub_epi8(a.v, b.v)}; }
// x | (y & mask)
CULET_INLINE Bytes insert_bits(Bytes x, Bytes y, Bytes mask) {
  return {_mm512_ternarylogic_epi32(x.v, y.v, mask.v, 0xf8)};
}
// Left if positive. Bits that cross into another byte are the caller's to mask.
template <int kShift>
CULET_INLINE Bytes shift_bytes(Bytes x) {
  if constexpr (kShift > 0) return {_mm512_slli_epi16(x.v, kShift)};
  if constexpr (kShift < 0) return {_mm512_srli_epi16(x.v, -kShift)};
  return x;
}
CULET_INLINE Bytes look_up(const int8_t* table16, Bytes index) {
  const __m128i t = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table16));
  return {_mm512_shuffle_epi8(_mm512_broadcast_i32x4(t), index.v)};
}
// Byte kByte of every lane, zero-extended.
template <int kByte>
CULET_INLINE Ints byte_of(Bytes x) {
  if constexpr (kByte == 3) return {_mm512_srli_epi32(x.v, 24)};
  return {_mm512_and_si512(_mm512_srli_epi32(x.v, 8 * kByte), _mm512_set1_epi32(255))};
}

// ---------------------------------------------------------------- quantized activations

// Bits of the largest magnitude of 32 values; NaN and infinity are the largest.
CULET_INLINE uint32_t largest_magnitude_bits(const float* x) {
  return _mm512_reduce_max_epu32(
      _mm512_max_epu32(as_ints(magnitude(load(x))).v, as_ints(magnitude(load(x + 16))).v));
}
// 32 values times `id`, to the nearest integers.
CULET_INLINE void round32(const float* x, float id, int8_t* q, int16_t* sums) {
  const Ints q0 = nearest(load(x) * set1(id)), q1 = nearest(load(x + 16) * set1(id));
  store_low8(q, q0);
  store_low8(q + 16, q1);
  sums[0] = static_cast<int16_t>(_mm512_reduce_add_epi32(q0.v));
  sums[1] = static_cast<int16_t>(_mm512_reduce_add_epi32(q1.v));
}

}  // namespace
}  // namespace culet::kernels
