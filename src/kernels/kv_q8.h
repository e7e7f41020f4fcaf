// The scale of a block of a q8_0 KV row (kernels.h, KvType): one definition for every instruction
// set. Read by instruction-set files: everything has internal linkage.
#pragma once

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

}  // namespace
}  // namespace culet::kernels
