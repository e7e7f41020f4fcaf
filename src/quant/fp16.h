// IEEE half precision and bfloat16 to and from float32: exact one way, nearest-even the other.
//
// The same bits as the conversion instructions of x86 and ARM give in default mode: subnormals are
// kept, a NaN stays a NaN (made quiet, upper payload kept), too large becomes infinity.
// Usable from instruction-set files: C headers only, and every function has internal linkage.
#pragma once

#include <stdint.h>
#include <string.h>

namespace culet::quant {

static inline float float_of_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static inline uint32_t bits_of_float(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static inline float half_to_float(uint16_t h) {
  const uint32_t sign = (uint32_t)(h & 0x8000) << 16;
  const uint32_t exponent = h >> 10 & 31;
  const uint32_t mantissa = h & 0x3ff;
  if (exponent == 31) {
    return float_of_bits(sign | 0x7f800000 | mantissa << 13 | (mantissa ? 0x400000 : 0));
  }
  if (exponent == 0) {  // mantissa * 2^-24 is exact
    return float_of_bits(sign | bits_of_float((float)mantissa * 0x1p-24f));
  }
  return float_of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

static inline uint16_t float_to_half(float value) {
  const uint32_t bits = bits_of_float(value);
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t a = bits & 0x7fffffff;
  if (a > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (a >> 13 & 0x1ff));
  if (a >= 0x47800000) return (uint16_t)(sign | 0x7c00);  // 65536 and more
  if (a >= 0x38800000) {                                  // 2^-14 and more: a normal half
    const uint32_t rounded = a + 0xfff + (a >> 13 & 1);   // may carry up to infinity, rightly
    return (uint16_t)(sign | (rounded - 0x38000000) >> 13);
  }
  if (a < 0x33000000) return (uint16_t)sign;  // below half the smallest subnormal
  const uint32_t mantissa = (a & 0x7fffff) | 0x800000;
  const uint32_t shift = 126 - (a >> 23);  // 14..24
  const uint32_t kept = mantissa >> shift;
  const uint32_t rest = mantissa & ((1u << shift) - 1);
  const uint32_t tie = 1u << (shift - 1);
  return (uint16_t)(sign | (kept + (rest > tie || (rest == tie && (kept & 1)))));
}

static inline float bfloat16_to_float(uint16_t b) { return float_of_bits((uint32_t)b << 16); }

static inline uint16_t float_to_bfloat16(float value) {
  const uint32_t bits = bits_of_float(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace culet::quant
