// Tensor element types of GGUF files and their block layouts.
//
// formats.def has one line a type; this header turns it into an enum and a lookup.
// Source of ids and layouts: the GGUF specification and the ggml block definitions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace culet::quant {

enum class TensorType : uint32_t {
#define CULET_FORMAT(id, name, block, bytes, readable) name = id,
#include "quant/formats.def"
#undef CULET_FORMAT
};

struct TypeInfo {
  TensorType type;
  std::string_view name;  // as GGUF tools print it: "Q4_K"
  int64_t block;          // values in a block
  int64_t block_bytes;    // bytes of a block
  bool readable;          // this build can dequantize it; others are refused by name
};

// nullptr for an id that no GGUF file may have.
const TypeInfo* type_info(uint32_t id);
const TypeInfo& type_info(TensorType type);

// Dequantizes `blocks` consecutive blocks; the exact float32 values of the format's definition
// (products and sums rounded separately, in the order of the reference implementation).
using DequantizeFn = void (*)(const void* src, int64_t blocks, float* dst);
DequantizeFn dequantize_fn(TensorType type);  // nullptr when !readable

}  // namespace culet::quant
