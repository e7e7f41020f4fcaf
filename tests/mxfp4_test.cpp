// MXFP4 from file to logits. No reference file has it, so this one is made here: the blocks of the
// Q4_0 model keep their nibbles and get a power of two near their scale. The oracle decodes the
// same blocks by the format's definition (OCP Microscaling Formats 1.0: E2M1 elements, E8M0 scale)
// into a float32 file; with float activations both must give the same bits.
#include "format/gguf.h"
#include "support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <unistd.h>

namespace culet::test {
namespace {

constexpr size_t kQ4Block = 18, kMxBlock = 17, kValues = 32;

template <class T>
void append(std::string* out, T value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof value);
}

// A copy of the file with every Q4_0 tensor as `convert` gives it.
void rewrite(const std::string& source, const std::string& target,
             const std::function<TensorBytes(std::span<const std::byte>)>& convert) {
  rewrite_tensors(source, target, [&](const format::TensorInfo& tensor) {
    return tensor.type == quant::TensorType::Q4_0 ? convert({tensor.data, tensor.bytes})
                                                  : unchanged(tensor);
  });
}

float half(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const double value =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return static_cast<float>((bits & 0x8000) != 0 ? -value : value);
}

std::string mxfp4_of(std::span<const std::byte> q4) {
  std::string out;
  for (size_t at = 0; at < q4.size(); at += kQ4Block) {
    uint16_t bits = 0;
    std::memcpy(&bits, &q4[at], 2);
    const double scale = std::fabs(half(bits));
    const int exponent = scale > 0 ? static_cast<int>(std::lround(std::log2(scale))) : -20;
    out += static_cast<char>(127 + exponent);
    out.append(reinterpret_cast<const char*>(&q4[at + 2]), kMxBlock - 1);
  }
  return out;
}

// E2M1: a sign, two bits of exponent with bias 1, one of mantissa.
float e2m1(unsigned code) {
  const int exponent = static_cast<int>(code >> 1 & 3);
  const double mantissa = code & 1;
  const double value = exponent == 0 ? mantissa / 2 : std::ldexp(1 + mantissa / 2, exponent - 1);
  return static_cast<float>((code & 8) != 0 ? -value : value);
}

std::string decoded(const std::string& mxfp4) {
  std::string out;
  for (size_t at = 0; at < mxfp4.size(); at += kMxBlock) {
    const int exponent = static_cast<uint8_t>(mxfp4[at]) - 127;
    for (size_t i = 0; i < kValues; ++i) {
      const unsigned byte = static_cast<uint8_t>(mxfp4[at + 1 + i % 16]);
      append(&out, std::ldexp(e2m1(i < 16 ? byte & 15 : byte >> 4), exponent));
    }
  }
  return out;
}

class Mxfp4 : public testing::Test {
 protected:
  void SetUp() override {
    const std::string source = golden("tiny/llama-quant/model-q4_0.gguf");
    rewrite(source, mxfp4_, [](auto q4) { return TensorBytes{39, mxfp4_of(q4)}; });
    rewrite(source, f32_, [](auto q4) { return TensorBytes{0, decoded(mxfp4_of(q4))}; });
    for (Token id = 0; id < 90; ++id) tokens_.push_back(3 + id * 29 % 250);
  }
  void TearDown() override {
    std::filesystem::remove(mxfp4_);
    std::filesystem::remove(f32_);
  }

  // Of this process: ctest runs the tests of this file side by side.
  std::string folder_ = testing::TempDir() + "/culet-mxfp4-" + std::to_string(getpid());
  std::string mxfp4_ = folder_ + ".gguf", f32_ = folder_ + "-f32.gguf";
  std::vector<Token> tokens_;
};

TEST_F(Mxfp4, EqualsItsDecodedValues) {
  const auto model = load(mxfp4_, {.threads = 1, .precise = true});
  EXPECT_GT(std::count_if(model->info().tensor_types.begin(), model->info().tensor_types.end(),
                          [](const auto& type) { return type.type == "MXFP4"; }),
            0);
  const Rows expected = rows_of(f32_, {.threads = 1, .precise = true}, KvType::kF32, tokens_);
  EXPECT_EQ(first_difference(expected, append_rows(*session(model, KvType::kF32), tokens_)), "");
}

TEST_F(Mxfp4, EveryWayGivesTheSameBits) {
  for (const bool precise : {false, true}) {
    const Rows expected =
        rows_of(mxfp4_, {.threads = 1, .precise = precise, .fuse = false, .isa = "scalar"},
                KvType::kF16, tokens_);
    for (const std::string& isa : usable_sets()) {
      for (const bool repack : {true, false}) {
        const ModelOptions options{.threads = 2, .precise = precise, .isa = isa, .repack = repack};
        EXPECT_EQ(first_difference(expected, rows_of(mxfp4_, options, KvType::kF16, tokens_)), "")
            << isa;
      }
    }
  }
}

}  // namespace
}  // namespace culet::test
