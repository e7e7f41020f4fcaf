// Shared by the kernel tests: random matrices of every type, quantized rows, bit comparison.
#pragma once

#include "kernels/kernels.h"
#include "kernels/packing.h"
#include "quant/fp16.h"
#include "quant/tensor_type.h"

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace culet::kernels::test {

using quant::TensorType;

// Set where tests run in an emulator or under sanitizers.
inline bool small_tests() {
  const char* size = std::getenv("CULET_TEST_SIZE");
  return size && std::strcmp(size, "small") == 0;
}

inline Kernels scalar() {
  Kernels kernels;
  if (select_kernels("scalar", &kernels)) std::abort();
  return kernels;
}

// 64-byte aligned bytes.
class Buffer {
 public:
  explicit Buffer(size_t bytes) : storage_((bytes + 64) / sizeof(uint64_t) + 8) {}
  uint8_t* data() {
    const uintptr_t p = reinterpret_cast<uintptr_t>(storage_.data());
    return reinterpret_cast<uint8_t*>((p + 63) / 64 * 64);
  }

 private:
  std::vector<uint64_t> storage_;
};

struct Scales {
  TensorType type;
  int offset[2];  // of the f16 fields in a block; -1: none
};
inline constexpr Scales kScales[] = {
    {TensorType::Q4_0, {0, -1}},   {TensorType::Q4_1, {0, 2}},    {TensorType::Q5_0, {0, -1}},
    {TensorType::Q5_1, {0, 2}},    {TensorType::Q8_0, {0, -1}},   {TensorType::Q2_K, {80, 82}},
    {TensorType::Q3_K, {108, -1}}, {TensorType::Q4_K, {0, 2}},    {TensorType::Q5_K, {0, 2}},
    {TensorType::Q6_K, {208, -1}}, {TensorType::IQ4_NL, {0, -1}}, {TensorType::IQ4_XS, {0, -1}},
    {TensorType::MXFP4, {-1, -1}},
};
inline std::vector<TensorType> quantized_types() {
  std::vector<TensorType> types;
  for (const Scales& s : kScales) types.push_back(s.type);
  return types;
}
inline std::vector<TensorType> all_types() {
  std::vector<TensorType> types = quantized_types();
  types.insert(types.end(), {TensorType::F32, TensorType::F16, TensorType::BF16});
  return types;
}

// About normal with deviation 1, and the same on every machine (std::normal_distribution takes the
// logarithm of the C library): the sum of four uniform numbers of 16 bits.
inline float random_normal(std::mt19937& rng) {
  const uint32_t a = static_cast<uint32_t>(rng()), b = static_cast<uint32_t>(rng());
  const uint32_t sum = (a & 0xffff) + (a >> 16) + (b & 0xffff) + (b >> 16);
  return static_cast<float>(static_cast<int32_t>(sum) - 131070) * (1.0f / 37837.0f);
}
inline std::vector<float> random_floats(size_t n, std::mt19937& rng, float scale = 1.0f) {
  std::vector<float> v(n);
  for (float& x : v) x = random_normal(rng) * scale;
  return v;
}

// Random GGUF blocks of n rows of k values, with scales of a sane size.
inline std::vector<uint8_t> random_tensor(TensorType type, int64_t n, int64_t k,
                                          std::mt19937& rng) {
  const quant::TypeInfo& info = quant::type_info(type);
  const size_t blocks = static_cast<size_t>(n * k / info.block);
  const size_t bytes = static_cast<size_t>(info.block_bytes);
  std::vector<uint8_t> data(blocks * bytes);
  for (uint8_t& b : data) b = static_cast<uint8_t>(rng());
  for (size_t i = 0; i < blocks; i++) {
    uint8_t* block = data.data() + i * bytes;
    const float value = 0.05f * random_normal(rng);
    const uint16_t h = quant::float_to_half(value), b16 = quant::float_to_bfloat16(value);
    if (type == TensorType::F32) std::memcpy(block, &value, 4);
    if (type == TensorType::F16) std::memcpy(block, &h, 2);
    if (type == TensorType::BF16) std::memcpy(block, &b16, 2);
    if (type == TensorType::MXFP4) block[0] = static_cast<uint8_t>(118 + rng() % 12);
    for (const Scales& s : kScales)
      for (int offset : s.offset)
        if (s.type == type && offset >= 0) {
          const uint16_t d = quant::float_to_half(0.05f * random_normal(rng));
          std::memcpy(block + offset, &d, 2);
        }
  }
  return data;
}

// A packed random matrix and the tensor it came from.
struct Matrix {
  Matrix(TensorType type, int64_t n, int64_t k, std::mt19937& rng)
      : source(random_tensor(type, n, k, rng)), packed(packed_bytes(type, n, k)) {
    pack_groups(type, source.data(), n, k, 0, (n + 15) / 16, packed.data());
    view = {static_cast<uint32_t>(type), n, k, static_cast<int64_t>(packed_group_bytes(type, k)),
            packed.data()};
  }
  std::vector<uint8_t> source;
  Buffer packed;
  PackedMatrix view;
};

struct Rows {
  Rows(const Kernels& kernels, const std::vector<float>& x, int64_t rows, int64_t k)
      : q(static_cast<size_t>(rows * k)),
        d(static_cast<size_t>(rows * k / 32)),
        sums(static_cast<size_t>(rows * k / 16)),
        view{q.data(), d.data(), sums.data(), k} {
    kernels.quantize(x.data(), rows, k, 0, &view);
  }
  std::vector<int8_t> q;
  std::vector<float> d;
  std::vector<int16_t> sums;
  QuantRows view;
};

// Equal bits; any NaN equals any NaN (payloads are not part of the contract).
inline bool same_bits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (a != a && b != b);
}
inline size_t first_difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return 0;
  for (size_t i = 0; i < a.size(); i++)
    if (!same_bits(a[i], b[i])) return i;
  return a.size();
}

inline std::string type_name(TensorType type) { return std::string(quant::type_info(type).name); }

}  // namespace culet::kernels::test
