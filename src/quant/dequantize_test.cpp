// MXFP4 against a double-precision oracle, and the table. The other types are compared with
// reference values from real files in format/dequantize_golden_test.cpp.
#include "quant/blocks.h"
#include "quant/tensor_type.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace culet::quant {
namespace {

TEST(TensorTypes, TableAndFunctionsAgree) {
  int readable = 0;
  for (uint32_t id = 0; id < 256; ++id) {
    const TypeInfo* info = type_info(id);
    if (info == nullptr) continue;
    EXPECT_EQ(uint32_t(info->type), id);
    EXPECT_EQ(&type_info(info->type), info);
    EXPECT_EQ(dequantize_fn(info->type) != nullptr, info->readable) << info->name;
    readable += info->readable;
  }
  EXPECT_EQ(readable, 16);
  EXPECT_EQ(type_info(4u), nullptr);
  EXPECT_EQ(type_info(9999u), nullptr);
  EXPECT_EQ(type_info(12u)->name, "Q4_K");
}

// Verifies files.quantized-types.
TEST(Dequantize, Mxfp4EveryScaleAndCode) {
  // OCP Microscaling Formats 1.0: sign, 2 exponent bits (bias 1), 1 mantissa bit; scale 2^(e -
  // 127).
  const auto e2m1 = [](int code) {
    const int exponent = code >> 1 & 3, mantissa = code & 1;
    const double size =
        exponent == 0 ? 0.5 * mantissa : std::ldexp(1 + 0.5 * mantissa, exponent - 1);
    return code & 8 ? -size : size;
  };
  std::vector<BlockMXFP4> blocks(256);
  for (int e = 0; e < 256; ++e) {
    blocks[size_t(e)].e = uint8_t(e);
    for (int j = 0; j < 16; ++j) blocks[size_t(e)].qs[j] = uint8_t(j | ((j * 7 + e) & 15) << 4);
  }
  std::vector<float> got(256 * 32);
  dequantize_fn(TensorType::MXFP4)(blocks.data(), 256, got.data());
  for (int e = 0; e < 256; ++e) {
    for (int j = 0; j < 32; ++j) {
      const uint8_t byte = blocks[size_t(e)].qs[j % 16];
      const double want = std::ldexp(e2m1(j < 16 ? byte & 15 : byte >> 4), e - 127);
      const float value = got[size_t(e * 32 + j)];
      if (want > std::numeric_limits<float>::max()) {
        ASSERT_EQ(value, std::numeric_limits<float>::infinity()) << e << " " << j;
      } else if (want < -std::numeric_limits<float>::max()) {
        ASSERT_EQ(value, -std::numeric_limits<float>::infinity()) << e << " " << j;
      } else {
        ASSERT_EQ(double(value), want) << e << " " << j;
      }
    }
  }
}

}  // namespace
}  // namespace culet::quant
