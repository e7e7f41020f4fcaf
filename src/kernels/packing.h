// Repacking: GGUF blocks of 16 consecutive output rows -> one group of a PackedMatrix.
//
// A packed block covers 16 outputs x 32 k in "VNNI order": byte 64 * t + 4 * o + j holds output o,
// k = 4 * t + j. 4-bit values put k (t = 0..3, low nibble) and k + 16 (high nibble) in one byte.
// The narrow bits stay narrow: decode reads them, prefill widens them in registers.
// (Exact layouts per type are documented in packing.cpp, and only known there and to the kernels.)
#pragma once

#include "quant/tensor_type.h"

#include <cstddef>
#include <cstdint>

namespace culet::kernels {

// Bytes of a packed matrix of n outputs and k inputs, with tail padding; 0: type cannot be packed.
size_t packed_bytes(quant::TensorType type, int64_t n, int64_t k);
size_t packed_group_bytes(quant::TensorType type, int64_t k);
// Packs groups [group0, group1) (16 rows each) of a row-major GGUF tensor. dst is the whole packed
// matrix. Rows past n are zero weights.
void pack_groups(quant::TensorType type, const void* src, int64_t n, int64_t k, int64_t group0,
                 int64_t group1, uint8_t* dst);

}  // namespace culet::kernels
