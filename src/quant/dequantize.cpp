// Blocks in, float32 out: the definition of what a quantized weight is worth.
//
// Each function writes its products and sums in the order of the reference implementation, every
// one rounded by itself (the build forbids contraction), so the results equal it bit for bit. They
// are the oracle of the packed kernels and the way into float32 for small tensors; they are not
// fast paths, so they stay plain loops.
#include "quant/blocks.h"
#include "quant/fp16.h"
#include "quant/tensor_type.h"

#include <cstring>

namespace culet::quant {
namespace {

void block_values(const BlockQ4_0& b, float* y) {
  const float d = half_to_float(b.d);
  for (int j = 0; j < 16; ++j) {
    y[j] = float((b.qs[j] & 15) - 8) * d;
    y[j + 16] = float((b.qs[j] >> 4) - 8) * d;
  }
}

void block_values(const BlockQ4_1& b, float* y) {
  const float d = half_to_float(b.d), m = half_to_float(b.m);
  for (int j = 0; j < 16; ++j) {
    y[j] = float(b.qs[j] & 15) * d + m;
    y[j + 16] = float(b.qs[j] >> 4) * d + m;
  }
}

// The fifth bits of the values, value 0 lowest.
uint32_t high_bits(const uint8_t (&qh)[4]) {
  return uint32_t(qh[0]) | uint32_t(qh[1]) << 8 | uint32_t(qh[2]) << 16 | uint32_t(qh[3]) << 24;
}

void block_values(const BlockQ5_0& b, float* y) {
  const float d = half_to_float(b.d);
  const uint32_t qh = high_bits(b.qh);
  for (int j = 0; j < 16; ++j) {
    y[j] = float(int((b.qs[j] & 15) | (qh >> j & 1) << 4) - 16) * d;
    y[j + 16] = float(int((b.qs[j] >> 4) | (qh >> (j + 16) & 1) << 4) - 16) * d;
  }
}

void block_values(const BlockQ5_1& b, float* y) {
  const float d = half_to_float(b.d), m = half_to_float(b.m);
  const uint32_t qh = high_bits(b.qh);
  for (int j = 0; j < 16; ++j) {
    y[j] = float((b.qs[j] & 15) | (qh >> j & 1) << 4) * d + m;
    y[j + 16] = float((b.qs[j] >> 4) | (qh >> (j + 16) & 1) << 4) * d + m;
  }
}

void block_values(const BlockQ8_0& b, float* y) {
  const float d = half_to_float(b.d);
  for (int j = 0; j < 32; ++j) y[j] = float(b.qs[j]) * d;
}

void block_values(const BlockIQ4_NL& b, float* y) {
  const float d = half_to_float(b.d);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * float(kIq4Values[b.qs[j] & 15]);
    y[j + 16] = d * float(kIq4Values[b.qs[j] >> 4]);
  }
}

void block_values(const BlockMXFP4& b, float* y) {
  const float d = float_of_bits(mxfp4_scale_bits(b.e));
  for (int j = 0; j < 16; ++j) {
    y[j] = float(kMxfp4Values[b.qs[j] & 15]) * d;
    y[j + 16] = float(kMxfp4Values[b.qs[j] >> 4]) * d;
  }
}

// In the 256-value types below, values come in runs: run r of 32 (or 16) values shares a scale.
// A byte of qs serves several runs that lie 32 values apart, two or four bits each.

void block_values(const BlockQ2_K& b, float* y) {
  const float d = half_to_float(b.d), dmin = half_to_float(b.dmin);
  for (int run = 0; run < 16; ++run) {
    const float scale = d * float(b.scales[run] & 15);
    const float min = dmin * float(b.scales[run] >> 4);
    const uint8_t* q = b.qs + 32 * (run / 8) + 16 * (run % 2);
    const int shift = 2 * (run / 2 % 4);
    for (int l = 0; l < 16; ++l) *y++ = scale * float(q[l] >> shift & 3) - min;
  }
}

void block_values(const BlockQ3_K& b, float* y) {
  const float d = half_to_float(b.d);
  for (int run = 0; run < 16; ++run) {
    const float scale = d * float(q3_k_scale(b.scales, run));
    const uint8_t* q = b.qs + 32 * (run / 8) + 16 * (run % 2);
    const uint8_t* high = b.hmask + 16 * (run % 2);
    const int shift = 2 * (run / 2 % 4), bit = run / 2;
    for (int l = 0; l < 16; ++l) {
      *y++ = scale * float((q[l] >> shift & 3) - (high[l] >> bit & 1 ? 0 : 4));
    }
  }
}

void block_values(const BlockQ4_K& b, float* y) {
  const float d = half_to_float(b.d), dmin = half_to_float(b.dmin);
  for (int run = 0; run < 8; ++run) {
    uint8_t sc, mn;
    q4_k_scale_min(b.scales, run, &sc, &mn);
    const float scale = d * float(sc), min = dmin * float(mn);
    const uint8_t* q = b.qs + 32 * (run / 2);
    const int shift = 4 * (run % 2);
    for (int l = 0; l < 32; ++l) *y++ = scale * float(q[l] >> shift & 15) - min;
  }
}

void block_values(const BlockQ5_K& b, float* y) {
  const float d = half_to_float(b.d), dmin = half_to_float(b.dmin);
  for (int run = 0; run < 8; ++run) {
    uint8_t sc, mn;
    q4_k_scale_min(b.scales, run, &sc, &mn);
    const float scale = d * float(sc), min = dmin * float(mn);
    const uint8_t* q = b.qs + 32 * (run / 2);
    const int shift = 4 * (run % 2);
    for (int l = 0; l < 32; ++l) {
      *y++ = scale * float((q[l] >> shift & 15) + 16 * (b.qh[l] >> run & 1)) - min;
    }
  }
}

void block_values(const BlockQ6_K& b, float* y) {
  const float d = half_to_float(b.d);
  for (int run = 0; run < 16; ++run) {  // quarter = which 32 of the 128 values of a half block
    const int half = run / 8, quarter = run / 2 % 4, offset = 16 * (run % 2);
    const float scale = d * float(b.scales[run]);
    const uint8_t* low = b.ql + 64 * half + 32 * (quarter % 2) + offset;
    const uint8_t* high = b.qh + 32 * half + offset;
    for (int l = 0; l < 16; ++l) {
      const int q = (low[l] >> 4 * (quarter / 2) & 15) | (high[l] >> 2 * quarter & 3) << 4;
      *y++ = scale * float(q - 32);
    }
  }
}

void block_values(const BlockIQ4_XS& b, float* y) {
  const float d = half_to_float(b.d);
  for (int run = 0; run < 8; ++run, y += 32) {
    const float scale = d * float(iq4_xs_scale(&b, run));
    const uint8_t* q = b.qs + 16 * run;
    for (int j = 0; j < 16; ++j) {
      y[j] = scale * float(kIq4Values[q[j] & 15]);
      y[j + 16] = scale * float(kIq4Values[q[j] >> 4]);
    }
  }
}

template <class Block, int kValues>
void dequantize(const void* src, int64_t blocks, float* dst) {
  const auto* b = static_cast<const Block*>(src);
  for (int64_t i = 0; i < blocks; ++i) block_values(b[i], dst + i * kValues);
}

void dequantize_f32(const void* src, int64_t n, float* dst) {
  std::memcpy(dst, src, size_t(n) * sizeof(float));
}

template <float (*Convert)(uint16_t)>
void dequantize_16(const void* src, int64_t n, float* dst) {
  const auto* x = static_cast<const uint16_t*>(src);
  for (int64_t i = 0; i < n; ++i) dst[i] = Convert(x[i]);
}

struct Entry {
  TensorType type;
  DequantizeFn fn;
};

constexpr Entry kFunctions[] = {
    {TensorType::F32, dequantize_f32},
    {TensorType::F16, dequantize_16<half_to_float>},
    {TensorType::BF16, dequantize_16<bfloat16_to_float>},
    {TensorType::Q4_0, dequantize<BlockQ4_0, 32>},
    {TensorType::Q4_1, dequantize<BlockQ4_1, 32>},
    {TensorType::Q5_0, dequantize<BlockQ5_0, 32>},
    {TensorType::Q5_1, dequantize<BlockQ5_1, 32>},
    {TensorType::Q8_0, dequantize<BlockQ8_0, 32>},
    {TensorType::Q2_K, dequantize<BlockQ2_K, 256>},
    {TensorType::Q3_K, dequantize<BlockQ3_K, 256>},
    {TensorType::Q4_K, dequantize<BlockQ4_K, 256>},
    {TensorType::Q5_K, dequantize<BlockQ5_K, 256>},
    {TensorType::Q6_K, dequantize<BlockQ6_K, 256>},
    {TensorType::IQ4_NL, dequantize<BlockIQ4_NL, 32>},
    {TensorType::IQ4_XS, dequantize<BlockIQ4_XS, 256>},
    {TensorType::MXFP4, dequantize<BlockMXFP4, 32>},
};

}  // namespace

DequantizeFn dequantize_fn(TensorType type) {
  for (const Entry& entry : kFunctions) {
    if (entry.type == type) return entry.fn;
  }
  return nullptr;
}

}  // namespace culet::quant
