// culet's exp, tanh, sigmoid, erf and activations, in terms of a vector of kWidth lanes.
//
// lane_*.h are the kernels of every instruction set. A file for one set includes its own vectors
// first: x86_avx512_lanes.h (kWidth 16), or x86_avx2_lanes.h or arm_neon_lanes.h (kWidth 8) and
// then lane_pairs.h. All have internal linkage, so each set gets its own copy. They give
//   Floats, Ints, Mask, Bytes, Doubles   kWidth float32, int32, truth values, 4 kWidth bytes,
//   float64 Lanes                                the 16 virtual lanes: one vector or two
//   kLaneRegisters                       how many Lanes the registers hold
// The operations are those of scalar_math.h in the same order.
#pragma once

#include "kernels/math_constants.h"

namespace culet::kernels {
namespace {

// For x that is not below kExpLow.
CULET_INLINE Floats exp_above_floor(Floats x) {
  x = at_most(x, set1(kExpHigh));
  const Floats n = fma(x, set1(kLog2e), set1(kRoundMagic)) - set1(kRoundMagic);
  Floats r = fnma(n, set1(kLn2High), x);
  r = fnma(n, set1(kLn2Low), r);
  Floats q = fma(r, set1(kExp6), set1(kExp5));
  q = fma(r, q, set1(kExp4));
  q = fma(r, q, set1(kExp3));
  q = fma(r, q, set1(kExp2));
  const Floats p = set1(1.0f) + fma(r * r, q, r);
  return times_power_of_two(p, n);
}
CULET_INLINE Floats exp(Floats x) { return keep(not_less(x, set1(kExpLow)), exp_above_floor(x)); }

CULET_INLINE Floats tanh(Floats x) {
  const Floats a = magnitude(x), z = a * a;
  Floats p = fma(z, set1(kTanh5), set1(kTanh4));
  p = fma(z, p, set1(kTanh3));
  p = fma(z, p, set1(kTanh2));
  p = fma(z, p, set1(kTanh1));
  p = fma(z, p, set1(kTanh0));
  const Floats small = fma(a * z, p, a);
  const Floats large = set1(1.0f) - set1(2.0f) / (exp_above_floor(a + a) + set1(1.0f));
  const Floats y = select(less(a, set1(kTanhSplit)), small, large);
  return magnitude(y) | sign_of(x);
}

CULET_INLINE Floats sigmoid(Floats x) { return set1(1.0f) / (set1(1.0f) + exp(negate(x))); }

CULET_INLINE Floats erf(Floats x) {
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
  const Floats large = set1(1.0f) - exp_above_floor(q);  // q of kErfHigh is -18.0
  const Floats y = select(less(a, set1(kErfSplit)), small, large);
  return magnitude(y) | sign_of(x);
}

CULET_INLINE Floats silu(Floats x) { return x * sigmoid(x); }
CULET_INLINE Floats gelu(Floats x) {
  const Floats inner = set1(kGeluA) * fma(set1(kGeluB) * (x * x), x, x);
  return (set1(0.5f) * x) * (set1(1.0f) + tanh(inner));
}
CULET_INLINE Floats gelu_erf(Floats x) {
  return (set1(0.5f) * x) * (set1(1.0f) + erf(x * set1(kSqrtHalf)));
}
CULET_INLINE Floats relu(Floats x) { return select(less(x, zero()), zero(), x); }
CULET_INLINE Floats softcap(Floats x, Floats cap) { return cap * tanh(x / cap); }

}  // namespace
}  // namespace culet::kernels
