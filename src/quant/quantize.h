// Float32 in, blocks out: the other direction of dequantize_fn().
//
// The same bytes on every machine: float32 arithmetic in a fixed order, no contraction, rounding to
// nearest-even. Each call depends on its own values alone, so blocks may be made by any thread.
//
// Scales are chosen to make the weighted sum of squared errors small, not to cover the largest
// value: quantize_fit.h says how. F16, BF16 and Q8_0 have one right answer, and give that one.
#pragma once

#include "quant/tensor_type.h"

#include <cstdint>

namespace culet::quant {

// Quantizes blocks * block values. False: a value is NaN or infinite, or too large for the type
// (halves end at 65504); dst is then unspecified.
using QuantizeFn = bool (*)(const float* src, int64_t blocks, void* dst);
QuantizeFn quantize_fn(TensorType type);  // nullptr: this build has no quantizer for the type

}  // namespace culet::quant
