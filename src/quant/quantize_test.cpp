// Blocks against their own dequantization: errors stay below what the width of a level explains,
// types with one right answer give it, and odd values are refused or kept, never wrong.
#include "quant/quantize.h"

#include "quant/blocks.h"
#include "quant/fp16.h"
#include "quant/quantize_fit.h"
#include "quant/tensor_type.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace culet::quant {
namespace {

// Nearly normal numbers, the same on every machine: sums of eight uniform ones.
std::vector<float> numbers(size_t count, uint64_t seed, float deviation = 0.02f) {
  std::vector<float> out(count);
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (float& x : out) {
    float sum = 0;
    for (int k = 0; k < 8; ++k) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      sum += float(state >> 40) * 0x1p-24f - 0.5f;
    }
    x = sum * 1.2247449f * deviation;
  }
  return out;
}

std::vector<TensorType> all_types() {
  std::vector<TensorType> types;
  for (uint32_t id = 0; id < 256; ++id) {
    const TypeInfo* info = type_info(id);
    if (info != nullptr && quantize_fn(info->type) != nullptr) types.push_back(info->type);
  }
  return types;
}

std::string quantized(TensorType type, const std::vector<float>& values) {
  const TypeInfo& info = type_info(type);
  std::string out(values.size() / size_t(info.block) * size_t(info.block_bytes), '\0');
  EXPECT_TRUE(quantize_fn(type)(values.data(), int64_t(values.size()) / info.block, out.data()))
      << info.name;
  return out;
}

std::vector<float> values_of(TensorType type, const std::string& blocks) {
  const TypeInfo& info = type_info(type);
  const auto count = int64_t(blocks.size()) / info.block_bytes;
  std::vector<float> out(size_t(count * info.block));
  dequantize_fn(type)(blocks.data(), count, out.data());
  return out;
}

bool refused(TensorType type, const std::vector<float>& values) {
  std::vector<char> out(values.size() * 8);
  return !quantize_fn(type)(values.data(), int64_t(values.size()) / type_info(type).block,
                            out.data());
}

// Root of the mean square error, as a part of the root of the mean square.
double relative_error(const std::vector<float>& want, const std::vector<float>& got) {
  double error = 0, all = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += (double(want[i]) - double(got[i])) * (double(want[i]) - double(got[i]));
    all += double(want[i]) * double(want[i]);
  }
  return std::sqrt(error / all);
}

TEST(Quantize, EveryTypeThatIsRead) {
  for (uint32_t id = 0; id < 256; ++id) {
    const TypeInfo* info = type_info(id);
    if (info == nullptr) continue;
    EXPECT_EQ(quantize_fn(info->type) != nullptr, info->readable) << info->name;
  }
}

// Errors of normal numbers. The bounds are 2 % above what is reached, so that a fit that became
// worse is noticed.
// Requirement files.making-quantized-files "making quantized files": the types that are read, by
// scales that make weighted squares small: no type loses more than the files of another quantizer,
// `Q8_0`, `F16` and `BF16` are its bytes; the same bytes for any threads and on every machine;
// metadata and alignment stay; the source is never overwritten, and what fails or is stopped leaves
// nothing
TEST(Quantize, ErrorsOfNormalNumbers) {
  struct Bound {
    TensorType type;
    double error;
  };
  constexpr Bound kBounds[] = {
      {TensorType::F32, 0},       {TensorType::F16, 2.1e-4},   {TensorType::BF16, 1.7e-3},
      {TensorType::Q8_0, 0.0053}, {TensorType::Q5_1, 0.0339},  {TensorType::Q5_0, 0.04},
      {TensorType::Q4_1, 0.0714}, {TensorType::Q4_0, 0.0813},  {TensorType::Q6_K, 0.0168},
      {TensorType::Q5_K, 0.035},  {TensorType::Q4_K, 0.0718},  {TensorType::Q3_K, 0.149},
      {TensorType::Q2_K, 0.279},  {TensorType::IQ4_NL, 0.075}, {TensorType::IQ4_XS, 0.0755},
      {TensorType::MXFP4, 0.113},
  };
  const std::vector<float> x = numbers(256 * 64, 1);
  EXPECT_EQ(std::size(kBounds), all_types().size());
  for (const Bound& bound : kBounds) {
    const double error = relative_error(x, values_of(bound.type, quantized(bound.type, x)));
    EXPECT_LE(error, bound.error) << type_info(bound.type).name;
  }
}

TEST(Quantize, Q8_0HasOneAnswer) {
  const std::vector<float> x = numbers(32 * 100, 2);
  const std::string got = quantized(TensorType::Q8_0, x);
  for (size_t i = 0; i < 100; ++i) {
    float largest = 0;
    for (size_t k = 0; k < 32; ++k) largest = std::max(largest, std::fabs(x[32 * i + k]));
    const float d = largest / 127, inverse = 1 / d;
    BlockQ8_0 want{float_to_half(d), {}};
    for (size_t k = 0; k < 32; ++k) want.qs[k] = int8_t(std::round(x[32 * i + k] * inverse));
    ASSERT_EQ(std::memcmp(&want, got.data() + 34 * i, 34), 0) << i;
  }
}

TEST(Quantize, Q8_0RoundsHalvesAwayFromZero) {
  std::vector<float> x(32, 0);
  x[0] = 127;
  x[1] = 0.5f;
  x[2] = -0.5f;
  x[3] = 2.5f;
  x[4] = std::nextafter(0.5f, 0.f);
  const std::string got = quantized(TensorType::Q8_0, x);
  BlockQ8_0 block;
  std::memcpy(&block, got.data(), sizeof block);
  EXPECT_EQ(block.d, float_to_half(1));
  EXPECT_EQ(block.qs[1], 1);
  EXPECT_EQ(block.qs[2], -1);
  EXPECT_EQ(block.qs[3], 3);
  EXPECT_EQ(block.qs[4], 0);
}

TEST(Quantize, FloatsAreRounded) {
  std::vector<float> x = numbers(1000, 3);
  x[0] = 65504;
  x[1] = -0.f;
  x[2] = 0x1p-24f;
  x[3] = 65519;  // rounds down to the largest half
  EXPECT_EQ(quantized(TensorType::F32, x),
            std::string(reinterpret_cast<const char*>(x.data()), 4000));
  const std::string halves = quantized(TensorType::F16, x), brain = quantized(TensorType::BF16, x);
  for (size_t i = 0; i < x.size(); ++i) {
    const uint16_t want[2] = {float_to_half(x[i]), float_to_bfloat16(x[i])};
    ASSERT_EQ(std::memcmp(&want[0], halves.data() + 2 * i, 2), 0) << x[i];
    ASSERT_EQ(std::memcmp(&want[1], brain.data() + 2 * i, 2), 0) << x[i];
  }
}

// Verifies files.making-quantized-files.
TEST(Quantize, WhatIsNotFiniteIsRefused) {
  for (const TensorType type : all_types()) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
          -std::numeric_limits<float>::infinity()}) {
      for (const size_t at : {size_t{0}, size_t{31}, size_t{255}}) {
        std::vector<float> x = numbers(256, 4);
        x[at] = bad;
        EXPECT_TRUE(refused(type, x)) << type_info(type).name << " " << bad << " " << at;
      }
    }
  }
}

TEST(Quantize, WhatIsTooLargeForAHalfIsRefused) {
  for (const TensorType type : all_types()) {
    std::vector<float> x = numbers(256, 5);
    x[100] = -1e20f;
    const bool wide =
        type == TensorType::F32 || type == TensorType::BF16 || type == TensorType::MXFP4;
    EXPECT_EQ(refused(type, x), !wide) << type_info(type).name;
  }
  EXPECT_TRUE(refused(TensorType::F16, std::vector<float>(32, 65520.f)));
}

TEST(Quantize, ZerosStayZero) {
  for (const TensorType type : all_types()) {
    const std::vector<float> x(256, 0.f);
    for (const float v : values_of(type, quantized(type, x))) {
      ASSERT_EQ(v, 0.f) << type_info(type).name;
    }
  }
}

// Blocks with values far from each other, of one sign, all equal, or too small for a half.
TEST(Quantize, OddBlocksStayWithinALevel) {
  struct Block {
    const char* what;
    std::vector<float> x;
  };
  std::vector<Block> blocks{{"one large value", numbers(256, 6)},
                            {"positive", numbers(256, 7)},
                            {"negative", numbers(256, 8)},
                            {"equal", std::vector<float>(256, 0.37f)},
                            {"zeros but for one", std::vector<float>(256, 0.f)},
                            {"tiny", numbers(256, 9, 1e-30f)},
                            {"subnormal", std::vector<float>(256, 0x1p-140f)},
                            {"large", numbers(256, 10, 1e3f)}};
  blocks[0].x[77] = 1;
  for (float& v : blocks[1].x) v = std::fabs(v) + 0.5f;
  for (float& v : blocks[2].x) v = -std::fabs(v) - 0.5f;
  blocks[4].x[200] = -3;
  for (const TensorType type : all_types()) {
    for (const Block& block : blocks) {
      float largest = 0;
      for (const float v : block.x) largest = std::max(largest, std::fabs(v));
      // Two bits for 16 values: a level is a third of the range, and the scale has four bits.
      const float most =
          std::max(type == TensorType::Q2_K ? 0.4f * largest : 0.3f * largest, 1e-7f);
      const std::vector<float> got = values_of(type, quantized(type, block.x));
      for (size_t i = 0; i < 256; ++i) {
        ASSERT_LE(std::fabs(got[i] - block.x[i]), most)
            << type_info(type).name << ", " << block.what << " at " << i << ": " << got[i];
      }
    }
  }
}

// The part of the promise that one machine can test; the emulated ARM build runs this, too.
// Verifies files.making-quantized-files.
TEST(Quantize, SameBytesOnEveryMachine) {
  const std::vector<float> x = numbers(256 * 32, 11);
  std::string found;
  for (const TensorType type : all_types()) {
    uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
    for (const char c : quantized(type, x)) hash = (hash ^ uint8_t(c)) * 0x100000001b3u;
    char line[64];
    std::snprintf(line, sizeof line, "%s %016llx\n", std::string(type_info(type).name).c_str(),
                  static_cast<unsigned long long>(hash));
    found += line;
  }
  EXPECT_EQ(found, R"(F32 3b7f3e492e6f097c
F16 9c49c29ee49766ea
Q4_0 bbcdc6df07250ab9
Q4_1 4c77fda301ad02dd
Q5_0 00e1cf2121c6370d
Q5_1 ae66f1b5a64c99c2
Q8_0 67011bb28daf77e0
Q2_K 767d6e090f85d2c8
Q3_K 59f09719ff55fa95
Q4_K 2c7965c33ca8eab7
Q5_K 5796b20fa7165802
Q6_K 38e802c12dc62c2b
IQ4_NL 66045bb5312dde8c
IQ4_XS 716c401c35cbc868
BF16 15cab5d0c3b1e2c8
MXFP4 6791c0a3b178b02f
)");
}

TEST(Quantize, Iq4LevelsAreTheNearest) {
  for (float v = -140; v <= 130; v += 0.1f) {
    float nearest_level = 0;
    for (const int8_t level : kIq4Values) {
      if (std::fabs(v - level) < std::fabs(v - nearest_level) || nearest_level == 0) {
        nearest_level = level;
      }
    }
    const float level = Iq4Levels::level(v);
    EXPECT_EQ(std::fabs(v - level), std::fabs(v - nearest_level)) << v;
    EXPECT_EQ(float(kIq4Values[Iq4Levels::code(level)]), level) << v;
  }
}

}  // namespace
}  // namespace culet::quant
