// The eight-lane vectors that lane_*.h is written in, with AVX2, FMA and F16C: one ymm each.
// Included by AVX2 files only; everything has internal linkage.
#pragma once

#include "kernels/unroll.h"

#include <immintrin.h>
#include <stdint.h>

namespace culet::kernels {
namespace {

constexpr int kWidth = 8;          // lanes of a vector
constexpr int kLaneRegisters = 8;  // how many times 16 lanes the registers hold

struct Floats {  // 8 float32
  __m256 v;
};
struct Ints {  // 8 int32, or a lane mask: all ones or zero
  __m256i v;
};
typedef Ints Mask;
struct Bytes {  // 32 bytes: four of each of 8 outputs
  __m256i v;
};

CULET_INLINE Floats load(const float* p) { return {_mm256_loadu_ps(p)}; }
CULET_INLINE void store(float* p, Floats x) { _mm256_storeu_ps(p, x.v); }
CULET_INLINE Floats set1(float x) { return {_mm256_set1_ps(x)}; }
CULET_INLINE Floats zero() { return {_mm256_setzero_ps()}; }
CULET_INLINE Ints set1(int32_t x) { return {_mm256_set1_epi32(x)}; }
CULET_INLINE void store(int32_t* p, Ints x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x.v);
}

CULET_INLINE float first_lane(Floats x) { return _mm256_cvtss_f32(x.v); }

CULET_INLINE Floats operator+(Floats a, Floats b) { return {_mm256_add_ps(a.v, b.v)}; }
CULET_INLINE Floats operator-(Floats a, Floats b) { return {_mm256_sub_ps(a.v, b.v)}; }
CULET_INLINE Floats operator*(Floats a, Floats b) { return {_mm256_mul_ps(a.v, b.v)}; }
CULET_INLINE Floats operator/(Floats a, Floats b) { return {_mm256_div_ps(a.v, b.v)}; }
CULET_INLINE Floats fma(Floats a, Floats b, Floats c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
// c - a * b
CULET_INLINE Floats fnma(Floats a, Floats b, Floats c) { return {_mm256_fnmadd_ps(a.v, b.v, c.v)}; }
CULET_INLINE float square_root(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }

CULET_INLINE Floats sign_of(Floats x) { return {_mm256_and_ps(x.v, _mm256_set1_ps(-0.0f))}; }
CULET_INLINE Floats magnitude(Floats x) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), x.v)}; }
CULET_INLINE Floats negate(Floats x) { return {_mm256_xor_ps(x.v, _mm256_set1_ps(-0.0f))}; }
CULET_INLINE Floats operator|(Floats a, Floats b) { return {_mm256_or_ps(a.v, b.v)}; }

// Comparisons with a NaN are false, but not_less and differs.
CULET_INLINE Mask less(Floats a, Floats b) {
  return {_mm256_castps_si256(_mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ))};
}
CULET_INLINE Mask not_less(Floats a, Floats b) {
  return {_mm256_castps_si256(_mm256_cmp_ps(a.v, b.v, _CMP_NLT_UQ))};
}
CULET_INLINE Mask differs(Floats a, Floats b) {
  return {_mm256_castps_si256(_mm256_cmp_ps(a.v, b.v, _CMP_NEQ_UQ))};
}
CULET_INLINE Floats select(Mask mask, Floats yes, Floats no) {
  return {_mm256_blendv_ps(no.v, yes.v, _mm256_castsi256_ps(mask.v))};
}
CULET_INLINE Ints select(Mask mask, Ints yes, Ints no) {
  return {_mm256_blendv_epi8(no.v, yes.v, mask.v)};
}
CULET_INLINE Floats keep(Mask mask, Floats x) {
  return {_mm256_and_ps(x.v, _mm256_castsi256_ps(mask.v))};
}
CULET_INLINE Ints operator|(Ints a, Ints b) { return {_mm256_or_si256(a.v, b.v)}; }
CULET_INLINE bool any(Mask mask) { return !_mm256_testz_si256(mask.v, mask.v); }
// Lanes below n; lanes whose bit is set.
CULET_INLINE Mask first_lanes(int64_t n) {
  const int left = static_cast<int>(n < 0 ? 0 : n > 8 ? 8 : n);
  return {_mm256_cmpgt_epi32(_mm256_set1_epi32(left), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))};
}
CULET_INLINE Mask lanes_of_bits(uint32_t bits) {
  const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  return {
      _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits)), bit), bit)};
}
// A NaN passes.
CULET_INLINE Floats at_most(Floats x, Floats high) { return {_mm256_min_ps(high.v, x.v)}; }
// b if one is NaN.
CULET_INLINE Floats larger(Floats a, Floats b) { return {_mm256_max_ps(a.v, b.v)}; }

// n values, 0 <= n; those past the eighth are left to the next vector.
CULET_INLINE Floats load_part(const float* p, int64_t n) {
  return {_mm256_maskload_ps(p, first_lanes(n).v)};
}
CULET_INLINE void store_part(float* p, Floats x, int64_t n) {
  _mm256_maskstore_ps(p, first_lanes(n).v, x.v);
}

// Lane j += lane j + 4, then 2, then 1.
CULET_INLINE float fold8(Floats x) {
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(x.v), _mm256_extractf128_ps(x.v, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_shuffle_ps(c, c, 1)));
}
CULET_INLINE float largest(Floats x) {
  const __m128 b = _mm_max_ps(_mm256_castps256_ps128(x.v), _mm256_extractf128_ps(x.v, 1));
  const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(c, _mm_shuffle_ps(c, c, 1)));
}

CULET_INLINE Floats to_floats(Ints x) { return {_mm256_cvtepi32_ps(x.v)}; }
CULET_INLINE Ints nearest(Floats x) { return {_mm256_cvtps_epi32(x.v)}; }
CULET_INLINE Floats as_floats(Ints x) { return {_mm256_castsi256_ps(x.v)}; }
CULET_INLINE Ints as_ints(Floats x) { return {_mm256_castps_si256(x.v)}; }
CULET_INLINE Ints operator+(Ints a, Ints b) { return {_mm256_add_epi32(a.v, b.v)}; }
CULET_INLINE Ints operator-(Ints a, Ints b) { return {_mm256_sub_epi32(a.v, b.v)}; }
CULET_INLINE Ints operator&(Ints a, Ints b) { return {_mm256_and_si256(a.v, b.v)}; }
CULET_INLINE Mask less(Ints a, Ints b) { return {_mm256_cmpgt_epi32(b.v, a.v)}; }
CULET_INLINE Mask equal(Ints a, Ints b) { return {_mm256_cmpeq_epi32(a.v, b.v)}; }
template <int kShift>
CULET_INLINE Ints shift_left(Ints x) {
  return {_mm256_slli_epi32(x.v, kShift)};
}
template <int kShift>
CULET_INLINE Ints shift_right(Ints x) {  // with the sign
  return {_mm256_srai_epi32(x.v, kShift)};
}
CULET_INLINE Ints shift_left(Ints x, Ints by) { return {_mm256_sllv_epi32(x.v, by.v)}; }

CULET_INLINE __m128i load8(const uint8_t* p) {
  return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
}
CULET_INLINE __m128i load16(const uint8_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
CULET_INLINE Ints load_u8(const uint8_t* p) { return {_mm256_cvtepu8_epi32(load8(p))}; }
CULET_INLINE Ints load_s8(const uint8_t* p) { return {_mm256_cvtepi8_epi32(load8(p))}; }
CULET_INLINE Floats load_f16(const uint8_t* p) { return {_mm256_cvtph_ps(load16(p))}; }
CULET_INLINE Floats set1_f16(const uint8_t* p) {
  int16_t v;
  __builtin_memcpy(&v, p, 2);
  return {_mm256_cvtph_ps(_mm_set1_epi16(v))};
}
CULET_INLINE Floats load_bf16(const uint8_t* p) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load16(p)), 16))};
}
CULET_INLINE void store_f16(uint8_t* p, Floats x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm256_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

// The low 16 or 8 bits of every lane.
CULET_INLINE void store_low16(uint8_t* p, Ints x) {
  const __m256i low = _mm256_and_si256(x.v, _mm256_set1_epi32(0xffff));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1)));
}
CULET_INLINE void store_low8(int8_t* p, Ints x) {
  const __m256i low = _mm256_and_si256(x.v, _mm256_set1_epi32(0xff));
  const __m128i v = _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packus_epi16(v, v));
}

// x0 y0 x1 y1 ... <-> x0 x1 ..., y0 y1 ...
CULET_INLINE void split_pairs(Floats a, Floats b, Floats* x, Floats* y) {
  const __m256 e = _mm256_shuffle_ps(a.v, b.v, 0x88), o = _mm256_shuffle_ps(a.v, b.v, 0xdd);
  x->v = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(e), 0xd8));
  y->v = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(o), 0xd8));
}
CULET_INLINE void join_pairs(Floats x, Floats y, Floats* a, Floats* b) {
  const __m256 low = _mm256_unpacklo_ps(x.v, y.v), high = _mm256_unpackhi_ps(x.v, y.v);
  a->v = _mm256_permute2f128_ps(low, high, 0x20);
  b->v = _mm256_permute2f128_ps(low, high, 0x31);
}

struct Doubles {  // 8 float64
  __m256d a, b;
};
CULET_INLINE Doubles zero_doubles() { return {_mm256_setzero_pd(), _mm256_setzero_pd()}; }
CULET_INLINE Doubles to_doubles(Floats x) {
  return {_mm256_cvtps_pd(_mm256_castps256_ps128(x.v)),
          _mm256_cvtps_pd(_mm256_extractf128_ps(x.v, 1))};
}
CULET_INLINE Doubles operator+(Doubles x, Doubles y) {
  return {_mm256_add_pd(x.a, y.a), _mm256_add_pd(x.b, y.b)};
}
CULET_INLINE Doubles fma(Doubles x, Doubles y, Doubles z) {
  return {_mm256_fmadd_pd(x.a, y.a, z.a), _mm256_fmadd_pd(x.b, y.b, z.b)};
}
CULET_INLINE double fold8(Doubles x) {
  const __m256d v = _mm256_add_pd(x.a, x.b);
  const __m128d b = _mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));
  return _mm_cvtsd_f64(_mm_add_sd(b, _mm_unpackhi_pd(b, b)));
}

// ---------------------------------------------------------------- bytes

CULET_INLINE Bytes load_bytes(const uint8_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))};
}
CULET_INLINE Bytes set_bytes(int x) { return {_mm256_set1_epi8(static_cast<char>(x))}; }
CULET_INLINE Bytes operator&(Bytes a, Bytes b) { return {_mm256_and_si256(a.v, b.v)}; }
CULET_INLINE Bytes operator^(Bytes a, Bytes b) { return {_mm256_xor_si256(a.v, b.v)}; }
CULET_INLINE Bytes subtract_bytes(Bytes a, Bytes b) { return {_mm256_sub_epi8(a.v, b.v)}; }
// x | (y & mask)
CULET_INLINE Bytes insert_bits(Bytes x, Bytes y, Bytes mask) {
  return {_mm256_or_si256(x.v, _mm256_and_si256(y.v, mask.v))};
}
// Left if positive. Bits that cross into another byte are the caller's to mask.
template <int kShift>
CULET_INLINE Bytes shift_bytes(Bytes x) {
  if constexpr (kShift > 0) return {_mm256_slli_epi16(x.v, kShift)};
  if constexpr (kShift < 0) return {_mm256_srli_epi16(x.v, -kShift)};
  return x;
}
CULET_INLINE Bytes look_up(const int8_t* table16, Bytes index) {
  const __m128i t = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table16));
  return {_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(t), index.v)};
}
// Byte kByte of every lane, zero-extended.
template <int kByte>
CULET_INLINE Ints byte_of(Bytes x) {
  if constexpr (kByte == 3) return {_mm256_srli_epi32(x.v, 24)};
  return {_mm256_and_si256(_mm256_srli_epi32(x.v, 8 * kByte), _mm256_set1_epi32(255))};
}
// Four bytes, in every lane.
CULET_INLINE __m256i broadcast32(const void* p) {
  int32_t v;
  __builtin_memcpy(&v, p, 4);
  return _mm256_set1_epi32(v);
}
// The low halves of a and b, as neighbouring int16.
CULET_INLINE __m256i pairs_of(Ints a, Ints b) {
  return _mm256_blend_epi16(a.v, _mm256_slli_epi32(b.v, 16), 0xaa);
}
// p[0] + p[1] and a * p[0] + b * p[1] in every lane, for a and b of 16 bits.
CULET_INLINE Ints sum_of_pair(const int16_t* p) {
  return {_mm256_madd_epi16(broadcast32(p), _mm256_set1_epi16(1))};
}
CULET_INLINE Ints dot_of_pair(Ints a, Ints b, const int16_t* p) {
  return {_mm256_madd_epi16(broadcast32(p), pairs_of(a, b))};
}
// A matrix-vector product is bound by memory: the lines of a block's codes are asked for ahead.
template <int kBytes>
CULET_INLINE void prefetch_ahead(const uint8_t* codes) {
  unroll<kBytes / 64>(CULET_LAMBDA(&, auto n) {
    _mm_prefetch(reinterpret_cast<const char*>(codes) + 4096 + 64 * n, _MM_HINT_T0);
  });
}

// ---------------------------------------------------------------- quantized activations

// Bits of the largest magnitude of 32 values; NaN and infinity are the largest.
CULET_INLINE uint32_t largest_magnitude_bits(const float* x) {
  __m256i m = _mm256_setzero_si256();
  for (int i = 0; i < 4; i++)
    m = _mm256_max_epi32(m, _mm256_castps_si256(magnitude(load(x + 8 * i)).v));
  __m128i h = _mm_max_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
  h = _mm_max_epi32(h, _mm_shuffle_epi32(h, 0x4e));
  h = _mm_max_epi32(h, _mm_shuffle_epi32(h, 0xb1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(h));
}

CULET_INLINE int32_t sum_bytes(__m128i q) {
  const __m256i pairs = _mm256_madd_epi16(_mm256_cvtepi8_epi16(q), _mm256_set1_epi16(1));
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

// 32 values times `id`, to the nearest integers.
CULET_INLINE void round32(const float* x, float id, int8_t* q, int16_t* sums) {
  const Floats s = set1(id);
  const __m256i a = _mm256_packs_epi32(nearest(load(x) * s).v, nearest(load(x + 8) * s).v);
  const __m256i b = _mm256_packs_epi32(nearest(load(x + 16) * s).v, nearest(load(x + 24) * s).v);
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  const __m256i v = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b), order);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), v);
  sums[0] = static_cast<int16_t>(sum_bytes(_mm256_castsi256_si128(v)));
  sums[1] = static_cast<int16_t>(sum_bytes(_mm256_extracti128_si256(v, 1)));
}

}  // namespace
}  // namespace culet::kernels

#include "kernels/lane_pairs.h"  // in terms of the above
