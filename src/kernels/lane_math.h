// The 16 virtual lanes and culet's exp, tanh, sigmoid and erf, in terms of an eight-lane vector.
//
// lane_*.h are the kernels of every instruction set whose registers are narrower than 16 lanes. A
// file for one set includes its own definition of Floats, Ints and Bytes first (x86_avx2_lanes.h,
// arm_neon_lanes.h), then these; all have internal linkage, so each set gets its own copy. The
// operations are those of scalar_math.h in the same order.
#pragma once

#include "kernels/math_constants.h"

namespace culet::kernels {
namespace {

struct Lanes {  // lanes 0..7 and 8..15
  Floats low, high;
};
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
CULET_INLINE Lanes operator*(Lanes a, Floats b) { return {a.low * b, a.high * b}; }
CULET_INLINE Lanes fma(Lanes a, Lanes b, Lanes c) {
  return {fma(a.low, b.low, c.low), fma(a.high, b.high, c.high)};
}
CULET_INLINE Lanes fma(Floats a, Lanes b, Lanes c) {
  return {fma(a, b.low, c.low), fma(a, b.high, c.high)};
}
CULET_INLINE float fold(Lanes x) { return fold8(x.low + x.high); }

// 2^n for an integer -126 <= n <= 127.
CULET_INLINE Floats power_of_two(Ints n) {
  return as_floats(shift_left<23>(n + set1(int32_t{127})));
}

CULET_INLINE Floats exp8(Floats x) {
  const Ints low = less(x, set1(kExpLow));
  x = at_most(x, set1(kExpHigh));
  const Floats n = fma(x, set1(kLog2e), set1(kRoundMagic)) - set1(kRoundMagic);
  Floats r = fnma(n, set1(kLn2High), x);
  r = fnma(n, set1(kLn2Low), r);
  Floats q = fma(r, set1(kExp6), set1(kExp5));
  q = fma(r, q, set1(kExp4));
  q = fma(r, q, set1(kExp3));
  q = fma(r, q, set1(kExp2));
  const Floats p = set1(1.0f) + fma(r * r, q, r);
  // 2^128 is no float, so there are two factors; the first product is exact.
  const Ints whole = nearest(n), half = shift_right<1>(whole);
  return drop(low, (p * power_of_two(half)) * power_of_two(whole - half));
}

CULET_INLINE Floats tanh8(Floats x) {
  const Floats a = magnitude(x), z = a * a;
  Floats p = fma(z, set1(kTanh5), set1(kTanh4));
  p = fma(z, p, set1(kTanh3));
  p = fma(z, p, set1(kTanh2));
  p = fma(z, p, set1(kTanh1));
  p = fma(z, p, set1(kTanh0));
  const Floats small = fma(a * z, p, a);
  const Floats large = set1(1.0f) - set1(2.0f) / (exp8(a + a) + set1(1.0f));
  const Floats y = select(less(a, set1(kTanhSplit)), small, large);
  return magnitude(y) | sign_of(x);
}

CULET_INLINE Floats sigmoid8(Floats x) { return set1(1.0f) / (set1(1.0f) + exp8(negate(x))); }

CULET_INLINE Floats erf8(Floats x) {
  const Floats a = magnitude(x), z = a * a;
  Floats p = fma(z, set1(kErfS6), set1(kErfS5));
  p = fma(z, p, set1(kErfS4));
  p = fma(z, p, set1(kErfS3));
  p = fma(z, p, set1(kErfS2));
  p = fma(z, p, set1(kErfS1));
  p = fma(z, p, set1(kErfS0));
  const Floats small = fma(a, p, a);
  const Floats b = at_most(a, set1(kErfHigh));
  Floats q = fma(b, set1(kErfL7), set1(kErfL6));
  q = fma(b, q, set1(kErfL5));
  q = fma(b, q, set1(kErfL4));
  q = fma(b, q, set1(kErfL3));
  q = fma(b, q, set1(kErfL2));
  q = fma(b, q, set1(kErfL1));
  q = fma(b, q, set1(kErfL0));
  const Floats large = set1(1.0f) - exp8(q);
  const Floats y = select(less(a, set1(kErfSplit)), small, large);
  return magnitude(y) | sign_of(x);
}

CULET_INLINE Floats silu8(Floats x) { return x * sigmoid8(x); }
CULET_INLINE Floats gelu8(Floats x) {
  const Floats inner = set1(kGeluA) * fma(set1(kGeluB) * (x * x), x, x);
  return (set1(0.5f) * x) * (set1(1.0f) + tanh8(inner));
}
CULET_INLINE Floats gelu_erf8(Floats x) {
  return (set1(0.5f) * x) * (set1(1.0f) + erf8(x * set1(kSqrtHalf)));
}
CULET_INLINE Floats relu8(Floats x) { return select(less(x, zero()), zero(), x); }
CULET_INLINE Floats softcap8(Floats x, Floats cap) { return cap * tanh8(x / cap); }

}  // namespace
}  // namespace culet::kernels
