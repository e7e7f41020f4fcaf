// Scalar definitions that every instruction set must match: fma, exp, tanh, sigmoid, erf, the
// activations and the 16-lane fold. Used by the scalar kernels and their tests.
#pragma once

#include "kernels/math_constants.h"
#include "quant/fp16.h"

#include <stdint.h>
#include <string.h>

namespace culet::kernels {
namespace {

inline uint32_t float_bits(float x) {
  uint32_t b;
  memcpy(&b, &x, 4);
  return b;
}
inline float bits_float(uint32_t b) {
  float x;
  memcpy(&x, &b, 4);
  return x;
}
inline float quiet_nan() { return bits_float(0x7fc00000u); }

// x * y + z in one rounding, also on a baseline build without fma instructions.
//
// The product of two floats has at most 48 bits and is exact in float64; with the addend the
// float64 sum s may be rounded. Rounding s to float32 would round twice, which is wrong only if s
// sits exactly between two floats (or on a float) while the exact sum does not. So s is rounded to
// odd: TwoSum gives the exact error e of the float64 sum (no overflow and no underflow is possible:
// all values are multiples of 2^-298 and below 2^257); if e is not 0 and s is even, s moves one
// step towards e. A value rounded to odd with 53 bits rounds to any precision of at most 51 bits
// as the exact value does (Boldo, Melquiond: "Emulation of FMA and correctly rounded sums"), and
// that covers 24 bits as well as the fewer bits of subnormals.
inline float fma1(float x, float y, float z) {
#if defined(__FMA__) || defined(__aarch64__)
  return __builtin_fmaf(x, y, z);
#else
  const double p = static_cast<double>(x) * y;
  const double c = z;
  double s = p + c;
  uint64_t b;
  memcpy(&b, &s, 8);
  // Fast: a normal float32 whose 29 dropped bits are not a tie; an error of half a last place of s
  // cannot carry the exact sum across one.
  const uint32_t dropped = static_cast<uint32_t>(b) & 0x1fffffffu;
  const uint32_t exponent = static_cast<uint32_t>(b >> 52) & 0x7ff;
  if (dropped != 0x10000000u && exponent > 1023 - 126 && exponent < 0x7ff)
    return static_cast<float>(s);
  if (exponent == 0x7ff) return static_cast<float>(s);
  const double pp = s - c;
  const double cc = s - pp;
  const double e = (p - pp) + (c - cc);
  if (e != 0 && (b & 1) == 0) {
    const bool away = (e > 0) == (s > 0);  // s is not 0: a sum that cancels is exact
    b += away ? 1 : static_cast<uint64_t>(-1);
    memcpy(&s, &b, 8);
  }
  return static_cast<float>(s);
#endif
}

using quant::bfloat16_to_float;
using quant::float_to_bfloat16;
using quant::float_to_half;
using quant::half_to_float;

// Sum of 16 lanes: 8 + 8, 4 + 4, 2 + 2, 1 + 1, lane j += lane j + half.
inline float fold16(const float* lanes) {
  float v[16];
  memcpy(v, lanes, sizeof(v));
  for (int half = 8; half > 0; half /= 2)
    for (int j = 0; j < half; j++) v[j] += v[j + half];
  return v[0];
}

// 2^n * p for -60 <= n <= 128 and p in [0.5, 2]. 2^128 is no float, so there are two factors; the
// first product is exact.
inline float scale2(float p, int n) {
  const int half = n / 2;
  const float a = bits_float(static_cast<uint32_t>(half + 127) << 23);
  const float b = bits_float(static_cast<uint32_t>(n - half + 127) << 23);
  return (p * a) * b;
}

inline float exp1(float x) {
  if (x != x) return x;
  if (x < kExpLow) return 0.0f;
  if (x > kExpHigh) x = kExpHigh;
  const float n = fma1(x, kLog2e, kRoundMagic) - kRoundMagic;
  float r = fma1(n, -kLn2High, x);
  r = fma1(n, -kLn2Low, r);
  float q = fma1(r, kExp6, kExp5);
  q = fma1(r, q, kExp4);
  q = fma1(r, q, kExp3);
  q = fma1(r, q, kExp2);
  const float p = 1.0f + fma1(r * r, q, r);
  return scale2(p, static_cast<int>(n));
}

inline float tanh1(float x) {
  const float a = bits_float(float_bits(x) & 0x7fffffffu);
  float y;
  if (a < kTanhSplit) {
    const float z = a * a;
    float p = fma1(z, kTanh5, kTanh4);
    p = fma1(z, p, kTanh3);
    p = fma1(z, p, kTanh2);
    p = fma1(z, p, kTanh1);
    p = fma1(z, p, kTanh0);
    y = fma1(a * z, p, a);
  } else {
    y = 1.0f - 2.0f / (exp1(a + a) + 1.0f);
  }
  return bits_float((float_bits(y) & 0x7fffffffu) | (float_bits(x) & 0x80000000u));
}

inline float sigmoid1(float x) { return 1.0f / (1.0f + exp1(-x)); }

inline float erf1(float x) {
  float a = bits_float(float_bits(x) & 0x7fffffffu);
  float y;
  if (a < kErfSplit) {
    const float z = a * a;
    float p = fma1(z, kErfS6, kErfS5);
    p = fma1(z, p, kErfS4);
    p = fma1(z, p, kErfS3);
    p = fma1(z, p, kErfS2);
    p = fma1(z, p, kErfS1);
    p = fma1(z, p, kErfS0);
    y = fma1(a, p, a);
  } else {
    if (a > kErfHigh) a = kErfHigh;
    float p = fma1(a, kErfL7, kErfL6);
    p = fma1(a, p, kErfL5);
    p = fma1(a, p, kErfL4);
    p = fma1(a, p, kErfL3);
    p = fma1(a, p, kErfL2);
    p = fma1(a, p, kErfL1);
    p = fma1(a, p, kErfL0);
    y = 1.0f - exp1(p);
  }
  return bits_float((float_bits(y) & 0x7fffffffu) | (float_bits(x) & 0x80000000u));
}

inline float silu1(float x) { return x * sigmoid1(x); }
inline float gelu1(float x) {
  const float inner = kGeluA * fma1(kGeluB * (x * x), x, x);
  return (0.5f * x) * (1.0f + tanh1(inner));
}
inline float gelu_erf1(float x) { return (0.5f * x) * (1.0f + erf1(x * kSqrtHalf)); }
inline float relu1(float x) { return x < 0.0f ? 0.0f : x; }
inline float softcap1(float x, float cap) { return cap * tanh1(x / cap); }

}  // namespace
}  // namespace culet::kernels
