// The eight-lane vectors that lane_*.h is written in, with NEON: two registers each. Included by
// ARM files only; everything has internal linkage.
#pragma once

#include "kernels/unroll.h"

#include <arm_neon.h>
#include <stdint.h>

namespace culet::kernels {
namespace {

constexpr int kWidth = 8;          // lanes of a vector
constexpr int kLaneRegisters = 8;  // how many times 16 lanes the registers hold

struct Floats {  // 8 float32
  float32x4_t a, b;
};
struct Ints {  // 8 int32, or a lane mask: all ones or zero
  int32x4_t a, b;
};
typedef Ints Mask;
struct Bytes {  // 32 bytes: four of each of 8 outputs
  uint8x16_t a, b;
};

CULET_INLINE Floats load(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4)}; }
CULET_INLINE void store(float* p, Floats x) {
  vst1q_f32(p, x.a);
  vst1q_f32(p + 4, x.b);
}
CULET_INLINE Floats set1(float x) { return {vdupq_n_f32(x), vdupq_n_f32(x)}; }
CULET_INLINE Floats zero() { return set1(0.0f); }
CULET_INLINE Ints set1(int32_t x) { return {vdupq_n_s32(x), vdupq_n_s32(x)}; }
CULET_INLINE void store(int32_t* p, Ints x) {
  vst1q_s32(p, x.a);
  vst1q_s32(p + 4, x.b);
}

CULET_INLINE float first_lane(Floats x) { return vgetq_lane_f32(x.a, 0); }

CULET_INLINE Floats operator+(Floats x, Floats y) {
  return {vaddq_f32(x.a, y.a), vaddq_f32(x.b, y.b)};
}
CULET_INLINE Floats operator-(Floats x, Floats y) {
  return {vsubq_f32(x.a, y.a), vsubq_f32(x.b, y.b)};
}
CULET_INLINE Floats operator*(Floats x, Floats y) {
  return {vmulq_f32(x.a, y.a), vmulq_f32(x.b, y.b)};
}
CULET_INLINE Floats operator/(Floats x, Floats y) {
  return {vdivq_f32(x.a, y.a), vdivq_f32(x.b, y.b)};
}
CULET_INLINE Floats fma(Floats x, Floats y, Floats z) {
  return {vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b)};
}
// z - x * y
CULET_INLINE Floats fnma(Floats x, Floats y, Floats z) {
  return {vfmsq_f32(z.a, x.a, y.a), vfmsq_f32(z.b, x.b, y.b)};
}
CULET_INLINE float square_root(float x) { return vget_lane_f32(vsqrt_f32(vdup_n_f32(x)), 0); }

CULET_INLINE Ints as_ints(Floats x) {
  return {vreinterpretq_s32_f32(x.a), vreinterpretq_s32_f32(x.b)};
}
CULET_INLINE Floats as_floats(Ints x) {
  return {vreinterpretq_f32_s32(x.a), vreinterpretq_f32_s32(x.b)};
}
CULET_INLINE Ints as_ints(uint32x4_t a, uint32x4_t b) {
  return {vreinterpretq_s32_u32(a), vreinterpretq_s32_u32(b)};
}
CULET_INLINE Ints operator|(Ints x, Ints y) { return {vorrq_s32(x.a, y.a), vorrq_s32(x.b, y.b)}; }
CULET_INLINE Ints operator&(Ints x, Ints y) { return {vandq_s32(x.a, y.a), vandq_s32(x.b, y.b)}; }
CULET_INLINE Ints operator+(Ints x, Ints y) { return {vaddq_s32(x.a, y.a), vaddq_s32(x.b, y.b)}; }
CULET_INLINE Ints operator-(Ints x, Ints y) { return {vsubq_s32(x.a, y.a), vsubq_s32(x.b, y.b)}; }
CULET_INLINE Ints operator*(Ints x, Ints y) { return {vmulq_s32(x.a, y.a), vmulq_s32(x.b, y.b)}; }

CULET_INLINE Floats sign_of(Floats x) { return as_floats(as_ints(x) & set1(INT32_MIN)); }
CULET_INLINE Floats magnitude(Floats x) { return {vabsq_f32(x.a), vabsq_f32(x.b)}; }
CULET_INLINE Floats negate(Floats x) { return {vnegq_f32(x.a), vnegq_f32(x.b)}; }
CULET_INLINE Floats operator|(Floats x, Floats y) { return as_floats(as_ints(x) | as_ints(y)); }

// Comparisons with a NaN are false, but not_less and differs.
CULET_INLINE Mask less(Floats x, Floats y) {
  return as_ints(vcltq_f32(x.a, y.a), vcltq_f32(x.b, y.b));
}
CULET_INLINE Mask not_less(Floats x, Floats y) {
  return as_ints(vmvnq_u32(vcltq_f32(x.a, y.a)), vmvnq_u32(vcltq_f32(x.b, y.b)));
}
CULET_INLINE Mask less(Ints x, Ints y) { return as_ints(vcltq_s32(x.a, y.a), vcltq_s32(x.b, y.b)); }
CULET_INLINE Mask equal(Ints x, Ints y) {
  return as_ints(vceqq_s32(x.a, y.a), vceqq_s32(x.b, y.b));
}
CULET_INLINE Mask differs(Floats x, Floats y) {
  return as_ints(vmvnq_u32(vceqq_f32(x.a, y.a)), vmvnq_u32(vceqq_f32(x.b, y.b)));
}
CULET_INLINE Ints select(Mask mask, Ints yes, Ints no) {
  return {vbslq_s32(vreinterpretq_u32_s32(mask.a), yes.a, no.a),
          vbslq_s32(vreinterpretq_u32_s32(mask.b), yes.b, no.b)};
}
CULET_INLINE Floats select(Mask mask, Floats yes, Floats no) {
  return as_floats(select(mask, as_ints(yes), as_ints(no)));
}
CULET_INLINE Floats keep(Mask mask, Floats x) { return as_floats(mask & as_ints(x)); }
CULET_INLINE bool any(Mask mask) {
  return vmaxvq_u32(vreinterpretq_u32_s32(vorrq_s32(mask.a, mask.b))) != 0;
}
// Lanes below n; lanes whose bit is set.
CULET_INLINE Mask first_lanes(int64_t n) {
  static constexpr int32_t kIndex[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  const Ints index = {vld1q_s32(kIndex), vld1q_s32(kIndex + 4)};
  return less(index, set1(static_cast<int32_t>(n < 0 ? 0 : n > 8 ? 8 : n)));
}
CULET_INLINE Mask lanes_of_bits(uint32_t bits) {
  static constexpr uint32_t kBit[8] = {1, 2, 4, 8, 16, 32, 64, 128};
  const uint32x4_t all = vdupq_n_u32(bits);
  return as_ints(vtstq_u32(all, vld1q_u32(kBit)), vtstq_u32(all, vld1q_u32(kBit + 4)));
}
// A NaN passes.
CULET_INLINE Floats at_most(Floats x, Floats high) { return select(less(high, x), high, x); }

// n values, 0 <= n; those past the eighth are left to the next vector.
CULET_INLINE Floats load_part(const float* p, int64_t n) {
  if (n >= 8) return load(p);
  float copy[8] = {};
  for (int64_t i = 0; i < n; i++) copy[i] = p[i];
  return load(copy);
}
CULET_INLINE void store_part(float* p, Floats x, int64_t n) {
  if (n >= 8) return store(p, x);
  float copy[8];
  store(copy, x);
  for (int64_t i = 0; i < n; i++) p[i] = copy[i];
}

// Lane j += lane j + 4, then 2, then 1.
CULET_INLINE float fold8(Floats x) {
  const float32x4_t b = vaddq_f32(x.a, x.b);
  const float32x2_t c = vadd_f32(vget_low_f32(b), vget_high_f32(b));
  return vget_lane_f32(c, 0) + vget_lane_f32(c, 1);
}
// NaN if one is.
CULET_INLINE Floats larger(Floats x, Floats y) {
  return {vmaxq_f32(x.a, y.a), vmaxq_f32(x.b, y.b)};
}
CULET_INLINE float largest(Floats x) { return vmaxvq_f32(vmaxq_f32(x.a, x.b)); }

CULET_INLINE Floats to_floats(Ints x) { return {vcvtq_f32_s32(x.a), vcvtq_f32_s32(x.b)}; }
CULET_INLINE Ints nearest(Floats x) { return {vcvtnq_s32_f32(x.a), vcvtnq_s32_f32(x.b)}; }
template <int kShift>
CULET_INLINE Ints shift_left(Ints x) {
  return {vshlq_n_s32(x.a, kShift), vshlq_n_s32(x.b, kShift)};
}
template <int kShift>
CULET_INLINE Ints shift_right(Ints x) {  // with the sign
  return {vshrq_n_s32(x.a, kShift), vshrq_n_s32(x.b, kShift)};
}
// At least 32 gives 0.
CULET_INLINE Ints shift_left(Ints x, Ints by) {
  const int32x4_t most = vdupq_n_s32(32);
  return {vshlq_s32(x.a, vminq_s32(by.a, most)), vshlq_s32(x.b, vminq_s32(by.b, most))};
}

CULET_INLINE Ints load_u8(const uint8_t* p) {
  const uint16x8_t v = vmovl_u8(vld1_u8(p));
  return as_ints(vmovl_u16(vget_low_u16(v)), vmovl_u16(vget_high_u16(v)));
}
CULET_INLINE Ints load_s8(const uint8_t* p) {
  const int16x8_t v = vmovl_s8(vreinterpret_s8_u8(vld1_u8(p)));
  return {vmovl_s16(vget_low_s16(v)), vmovl_s16(vget_high_s16(v))};
}
CULET_INLINE Floats load_f16(const uint8_t* p) {
  const float16x8_t v = vreinterpretq_f16_u8(vld1q_u8(p));
  return {vcvt_f32_f16(vget_low_f16(v)), vcvt_high_f32_f16(v)};
}
CULET_INLINE Floats set1_f16(const uint8_t* p) {
  uint16_t v;
  __builtin_memcpy(&v, p, 2);
  const float32x4_t x = vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(v)));
  return {x, x};
}
CULET_INLINE Floats load_bf16(const uint8_t* p) {
  const uint16x8_t v = vreinterpretq_u16_u8(vld1q_u8(p));
  return {vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(v), 16)),
          vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(v), 16))};
}
CULET_INLINE void store_f16(uint8_t* p, Floats x) {
  vst1q_u8(p, vreinterpretq_u8_f16(vcvt_high_f16_f32(vcvt_f16_f32(x.a), x.b)));
}

// The low 16 or 8 bits of every lane.
CULET_INLINE void store_low16(uint8_t* p, Ints x) {
  vst1q_u8(p, vreinterpretq_u8_s16(vcombine_s16(vmovn_s32(x.a), vmovn_s32(x.b))));
}
CULET_INLINE void store_low8(int8_t* p, Ints x) {
  vst1_s8(p, vmovn_s16(vcombine_s16(vmovn_s32(x.a), vmovn_s32(x.b))));
}

// x0 y0 x1 y1 ... <-> x0 x1 ..., y0 y1 ...
CULET_INLINE void split_pairs(Floats p, Floats q, Floats* x, Floats* y) {
  *x = {vuzp1q_f32(p.a, p.b), vuzp1q_f32(q.a, q.b)};
  *y = {vuzp2q_f32(p.a, p.b), vuzp2q_f32(q.a, q.b)};
}
CULET_INLINE void join_pairs(Floats x, Floats y, Floats* p, Floats* q) {
  *p = {vzip1q_f32(x.a, y.a), vzip2q_f32(x.a, y.a)};
  *q = {vzip1q_f32(x.b, y.b), vzip2q_f32(x.b, y.b)};
}

struct Doubles {  // 8 float64
  float64x2_t a, b, c, d;
};
CULET_INLINE Doubles zero_doubles() {
  const float64x2_t z = vdupq_n_f64(0);
  return {z, z, z, z};
}
CULET_INLINE Doubles to_doubles(Floats x) {
  return {vcvt_f64_f32(vget_low_f32(x.a)), vcvt_high_f64_f32(x.a), vcvt_f64_f32(vget_low_f32(x.b)),
          vcvt_high_f64_f32(x.b)};
}
CULET_INLINE Doubles operator+(Doubles x, Doubles y) {
  return {vaddq_f64(x.a, y.a), vaddq_f64(x.b, y.b), vaddq_f64(x.c, y.c), vaddq_f64(x.d, y.d)};
}
CULET_INLINE Doubles fma(Doubles x, Doubles y, Doubles z) {
  return {vfmaq_f64(z.a, x.a, y.a), vfmaq_f64(z.b, x.b, y.b), vfmaq_f64(z.c, x.c, y.c),
          vfmaq_f64(z.d, x.d, y.d)};
}
CULET_INLINE double fold8(Doubles x) {
  const float64x2_t v = vaddq_f64(vaddq_f64(x.a, x.c), vaddq_f64(x.b, x.d));
  return vgetq_lane_f64(v, 0) + vgetq_lane_f64(v, 1);
}

// ---------------------------------------------------------------- bytes

CULET_INLINE Bytes load_bytes(const uint8_t* p) { return {vld1q_u8(p), vld1q_u8(p + 16)}; }
CULET_INLINE Bytes set_bytes(int x) {
  const uint8x16_t v = vdupq_n_u8(static_cast<uint8_t>(x));
  return {v, v};
}
CULET_INLINE Bytes operator&(Bytes x, Bytes y) { return {vandq_u8(x.a, y.a), vandq_u8(x.b, y.b)}; }
CULET_INLINE Bytes operator^(Bytes x, Bytes y) { return {veorq_u8(x.a, y.a), veorq_u8(x.b, y.b)}; }
CULET_INLINE Bytes subtract_bytes(Bytes x, Bytes y) {
  return {vsubq_u8(x.a, y.a), vsubq_u8(x.b, y.b)};
}
// x | (y & mask)
CULET_INLINE Bytes insert_bits(Bytes x, Bytes y, Bytes mask) {
  return {vorrq_u8(x.a, vandq_u8(y.a, mask.a)), vorrq_u8(x.b, vandq_u8(y.b, mask.b))};
}
// Left if positive.
template <int kShift>
CULET_INLINE Bytes shift_bytes(Bytes x) {
  if constexpr (kShift > 0) return {vshlq_n_u8(x.a, kShift), vshlq_n_u8(x.b, kShift)};
  if constexpr (kShift < 0) return {vshrq_n_u8(x.a, -kShift), vshrq_n_u8(x.b, -kShift)};
  return x;
}
CULET_INLINE Bytes look_up(const int8_t* table16, Bytes index) {
  const uint8x16_t t = vreinterpretq_u8_s8(vld1q_s8(table16));
  return {vqtbl1q_u8(t, index.a), vqtbl1q_u8(t, index.b)};
}
// Byte kByte of every lane, zero-extended.
template <int kByte>
CULET_INLINE Ints byte_of(Bytes x) {
  uint32x4_t a = vreinterpretq_u32_u8(x.a), b = vreinterpretq_u32_u8(x.b);
  if constexpr (kByte > 0) {
    a = vshrq_n_u32(a, 8 * kByte);
    b = vshrq_n_u32(b, 8 * kByte);
  }
  const uint32x4_t mask = vdupq_n_u32(255);
  return as_ints(vandq_u32(a, mask), vandq_u32(b, mask));
}
// p[0] + p[1] and x * p[0] + y * p[1] in every lane.
CULET_INLINE Ints sum_of_pair(const int16_t* p) { return set1(int32_t{p[0] + p[1]}); }
CULET_INLINE Ints dot_of_pair(Ints x, Ints y, const int16_t* p) {
  return x * set1(int32_t{p[0]}) + y * set1(int32_t{p[1]});
}
// A matrix-vector product is bound by memory: the lines of a block's codes are asked for ahead.
template <int kBytes>
CULET_INLINE void prefetch_ahead(const uint8_t* codes) {
  unroll<kBytes / 64>(CULET_LAMBDA(&, auto n) { __builtin_prefetch(codes + 4096 + 64 * n); });
}

CULET_INLINE int8x16_t signed_a(Bytes x) { return vreinterpretq_s8_u8(x.a); }
CULET_INLINE int8x16_t signed_b(Bytes x) { return vreinterpretq_s8_u8(x.b); }

// ---------------------------------------------------------------- quantized activations

// Bits of the largest magnitude of 32 values; NaN and infinity are the largest.
CULET_INLINE uint32_t largest_magnitude_bits(const float* x) {
  int32x4_t m = vdupq_n_s32(0);
  for (int i = 0; i < 8; i++)
    m = vmaxq_s32(m, vreinterpretq_s32_f32(vabsq_f32(vld1q_f32(x + 4 * i))));
  return static_cast<uint32_t>(vmaxvq_s32(m));
}

// 32 values times `id`, to the nearest integers.
CULET_INLINE void round32(const float* x, float id, int8_t* q, int16_t* sums) {
  for (int h = 0; h < 2; h++, x += 16, q += 16) {
    const Ints low = nearest(load(x) * set1(id)), high = nearest(load(x + 8) * set1(id));
    store_low8(q, low);
    store_low8(q + 8, high);
    const Ints sum = low + high;
    sums[h] = static_cast<int16_t>(vaddvq_s32(vaddq_s32(sum.a, sum.b)));
  }
}

}  // namespace
}  // namespace culet::kernels

#include "kernels/lane_pairs.h"  // in terms of the above
