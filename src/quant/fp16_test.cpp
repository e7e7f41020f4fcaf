#include "quant/fp16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace culet::quant {
namespace {

// The value of a half from its definition, in double precision.
double half_value(uint16_t h) {
  const int exponent = h >> 10 & 31;
  const double mantissa = h & 0x3ff;
  const double size =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(mantissa + 1024, exponent - 25);
  return h & 0x8000 ? -size : size;
}

TEST(Fp16, EveryHalf) {
  for (uint32_t h = 0; h < 65536; ++h) {
    const float f = half_to_float(uint16_t(h));
    if ((h & 0x7c00) == 0x7c00) {
      ASSERT_EQ(std::isnan(f), (h & 0x3ff) != 0);
      ASSERT_EQ(float_to_half(f), (h & 0x3ff) ? h | 0x200 : h);
    } else {
      ASSERT_EQ(double(f), half_value(uint16_t(h)));
      ASSERT_EQ(float_to_half(f), h);
    }
    ASSERT_EQ(std::signbit(f), (h & 0x8000) != 0);
  }
}

TEST(Fp16, TiesAndNeighbors) {
  for (uint16_t h = 0; h < 0x7bff; ++h) {  // between each finite half and the next
    const float low = half_to_float(h), high = half_to_float(uint16_t(h + 1));
    const float middle = float((double(low) + double(high)) / 2);
    ASSERT_EQ(float_to_half(middle), h & 1 ? h + 1 : h);
    ASSERT_EQ(float_to_half(std::nextafter(middle, 0.0f)), h);
    ASSERT_EQ(float_to_half(std::nextafter(middle, 1e9f)), h + 1);
    ASSERT_EQ(float_to_half(-std::nextafter(middle, 1e9f)), 0x8000 | (h + 1));
  }
  EXPECT_EQ(float_to_half(65519.996f), 0x7bff);
  EXPECT_EQ(float_to_half(65520.0f), 0x7c00);
  EXPECT_EQ(float_to_half(1e30f), 0x7c00);
  EXPECT_EQ(float_to_half(-std::numeric_limits<float>::infinity()), 0xfc00);
  EXPECT_EQ(float_to_half(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(float_to_half(float_of_bits(0x7f800001)) & 0x7e00, 0x7e00);
}

TEST(Fp16, Bfloat16) {
  for (uint32_t b = 0; b < 65536; ++b) {
    const float f = bfloat16_to_float(uint16_t(b));
    const bool nan = (b & 0x7fff) > 0x7f80;
    ASSERT_EQ(float_to_bfloat16(f), nan ? b | 0x40 : b);
    if (nan || (b & 0x7fff) == 0x7f80) continue;
    ASSERT_EQ(float_to_bfloat16(float_of_bits(b << 16 | 0x7fff)), b);
    ASSERT_EQ(float_to_bfloat16(float_of_bits(b << 16 | 0x8000)), b + (b & 1));
    ASSERT_EQ(float_to_bfloat16(float_of_bits(b << 16 | 0x8001)), b + 1);
  }
}

}  // namespace
}  // namespace culet::quant
