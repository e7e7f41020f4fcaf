// The 16 virtual lanes as two eight-lane vectors, and what else the sets with such vectors share.
// Included after the vectors (x86_avx2_lanes.h, arm_neon_lanes.h); a sixteen-lane vector is the
// lanes by itself (x86_avx512_lanes.h).
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace culet::kernels {
namespace {

// 2^n for an integer -126 <= n <= 127.
CULET_INLINE Floats power_of_two(Ints n) {
  return as_floats(shift_left<23>(n + set1(int32_t{127})));
}
// p * 2^n for an integer -60 <= n <= 128 and p in [0.5, 2]. 2^128 is no float, so there are two
// factors; the first product is exact.
CULET_INLINE Floats times_power_of_two(Floats p, Floats n) {
  const Ints whole = nearest(n), half = shift_right<1>(whole);
  return (p * power_of_two(half)) * power_of_two(whole - half);
}

struct Lanes {  // lanes 0..7 and 8..15
  Floats low, high;
};
// f gives the vector that begins with a lane.
template <class F>
CULET_INLINE Lanes lanes_of(const F& f) {
  return {f(Index<0>()), f(Index<8>())};
}
CULET_INLINE Lanes zero_lanes() { return {zero(), zero()}; }
CULET_INLINE Lanes load_lanes(const float* p) { return {load(p), load(p + 8)}; }
CULET_INLINE Lanes load_lanes(const float* p, int64_t n) {
  if (n >= 16) return load_lanes(p);
  return {load_part(p, n), n > 8 ? load_part(p + 8, n - 8) : zero()};
}
CULET_INLINE void store_lanes(float* p, Lanes x) {
  store(p, x.low);
  store(p + 8, x.high);
}
CULET_INLINE void store_lanes(float* p, Lanes x, int64_t n) {
  if (n >= 16) return store_lanes(p, x);
  store_part(p, x.low, n);
  if (n > 8) store_part(p + 8, x.high, n - 8);
}
CULET_INLINE Lanes operator+(Lanes a, Lanes b) { return {a.low + b.low, a.high + b.high}; }
CULET_INLINE Lanes operator-(Lanes a, Lanes b) { return {a.low - b.low, a.high - b.high}; }
CULET_INLINE Lanes operator-(Lanes a, Floats b) { return {a.low - b, a.high - b}; }
CULET_INLINE Lanes operator*(Lanes a, Lanes b) { return {a.low * b.low, a.high * b.high}; }
CULET_INLINE Lanes operator*(Lanes a, Floats b) { return {a.low * b, a.high * b}; }
CULET_INLINE Lanes fma(Lanes a, Lanes b, Lanes c) {
  return {fma(a.low, b.low, c.low), fma(a.high, b.high, c.high)};
}
CULET_INLINE Lanes fma(Floats a, Lanes b, Lanes c) {
  return {fma(a, b.low, c.low), fma(a, b.high, c.high)};
}
CULET_INLINE float fold(Lanes x) { return fold8(x.low + x.high); }
CULET_INLINE double fold(const Doubles* x) { return fold8(x[0] + x[1]); }

// Lanes below n, or whose bit is set; the others are 0, `no`, or stay as they are in memory.
CULET_INLINE Lanes keep_first(int64_t n, Lanes x) {
  return {keep(first_lanes(n), x.low), keep(first_lanes(n - 8), x.high)};
}
CULET_INLINE Lanes keep_bits(uint32_t bits, Lanes x) {
  return {keep(lanes_of_bits(bits), x.low), keep(lanes_of_bits(bits >> 8), x.high)};
}
CULET_INLINE Lanes select_bits(uint32_t bits, Lanes yes, Floats no) {
  return {select(lanes_of_bits(bits), yes.low, no), select(lanes_of_bits(bits >> 8), yes.high, no)};
}
CULET_INLINE void store_bits(float* p, uint32_t bits, Lanes x) {
  store(p, select(lanes_of_bits(bits), x.low, load(p)));
  store(p + 8, select(lanes_of_bits(bits >> 8), x.high, load(p + 8)));
}
CULET_INLINE bool any_nan(Lanes a, Lanes b) {
  return any(differs(a.low, a.low) | differs(a.high, a.high) | differs(b.low, b.low) |
             differs(b.high, b.high));
}
CULET_INLINE Lanes larger(Lanes a, Lanes b) {
  return {larger(a.low, b.low), larger(a.high, b.high)};
}
CULET_INLINE float largest(Lanes x) { return largest(larger(x.low, x.high)); }

// 64 bytes: the first n of p, then zeros.
CULET_INLINE void copy_part(const uint8_t* p, int64_t n, uint8_t* out) {
  __builtin_memset(out, 0, 64);
  __builtin_memcpy(out, p, static_cast<size_t>(n));
}

}  // namespace
}  // namespace culet::kernels

#include "kernels/lane_math.h"

namespace culet::kernels {
namespace {

CULET_INLINE Lanes exp(Lanes x) { return {exp(x.low), exp(x.high)}; }
CULET_INLINE Lanes softcap(Lanes x, Floats cap) {
  return {softcap(x.low, cap), softcap(x.high, cap)};
}

}  // namespace
}  // namespace culet::kernels
