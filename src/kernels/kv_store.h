// What storing a KV row means in every instruction set: where its elements go, and the scale of a
// block of q8_0 (kernels.h, KvType). Read by instruction-set files: internal linkage only.
#pragma once

#include "kernels/kernels.h"
#include "quant/fp16.h"

#include <stdint.h>

namespace culet::kernels {
namespace {

// The scale, an f16, of a block whose largest magnitude has these bits: those of a NaN or infinity
// give a NaN, as does a magnitude that no scale reaches.
inline uint16_t q8_scale(uint32_t amax_bits) {
  if (amax_bits == 0) return 0;
  constexpr uint16_t kNan = 0x7e00, kInfinity = 0x7c00;
  if (amax_bits >= 0x7f800000u) return kNan;
  const float amax = quant::float_of_bits(amax_bits);
  uint16_t d = quant::float_to_half(amax / 127.0f);
  // An exact product. Only a subnormal scale is so coarse that it falls that short.
  if (amax >= 127.5f * quant::half_to_float(d)) d++;
  return d < kInfinity ? d : kNan;
}

// Where one row of one kv head goes. Elements are 32 apart in keys and side by side in values.
struct Place {
  uint8_t* head;
  int64_t dim;
  int64_t first, step;              // element 0; from one to the next
  int64_t first_scale, scale_step;  // likewise of q8_0's scales, which follow the quants

  template <class T>
  T* elements() const {
    return reinterpret_cast<T*>(head) + first;
  }
  void set_scale(int64_t block, uint16_t scale) const {
    uint8_t* scales = head + kKvBlockRows * dim;
    __builtin_memcpy(scales + 2 * (first_scale + block * scale_step), &scale, 2);
  }
};
inline Place key_place(uint8_t* block, KvType type, int64_t head, int64_t dim, int64_t row) {
  return {block + head * kv_head_bytes(type, dim), dim, row, kKvBlockRows, row, kKvBlockRows};
}
inline Place value_place(uint8_t* block, KvType type, int64_t head, int64_t dim, int64_t row) {
  return {block + head * kv_head_bytes(type, dim), dim, row * dim, 1, row * ((dim + 31) / 32), 1};
}

template <class T, class From>
inline void put(const From* values, int64_t n, T* out, int64_t step) {
  for (int64_t i = 0; i < n; i++) out[i * step] = static_cast<T>(values[i]);
}

inline void store_f32_row(const float* x, const Place& to) {
  put(x, to.dim, to.elements<float>(), to.step);
}

}  // namespace
}  // namespace culet::kernels
