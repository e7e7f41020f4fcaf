// Block layouts of the quantized types, as they lie in a GGUF file (little-endian).
//
// Plain data, C headers only: instruction-set files include this. "half" is the bits of an IEEE
// half, see fp16.h. `d` scales, `m` and `dmin` are minimums. How values follow from a block: one
// function a type in dequantize.cpp. Source of the layouts: the block definitions of ggml.
#pragma once

#include <stdint.h>

namespace culet::quant {

typedef uint16_t half_bits;

// 32 values. Low nibbles are values 0..15, high nibbles 16..31.
// value = d * (q - 8)
struct BlockQ4_0 {
  half_bits d;
  uint8_t qs[16];
};
// value = d * q + m
struct BlockQ4_1 {
  half_bits d, m;
  uint8_t qs[16];
};
// value = d * (q - 16)
struct BlockQ5_0 {
  half_bits d;
  uint8_t qh[4];
  uint8_t qs[16];
};
// value = d * q + m
struct BlockQ5_1 {
  half_bits d, m;
  uint8_t qh[4];
  uint8_t qs[16];
};
// value = d * q
struct BlockQ8_0 {
  half_bits d;
  int8_t qs[32];
};
// value = d * table[q]
struct BlockIQ4_NL {
  half_bits d;
  uint8_t qs[16];
};
// value = 2^(e-128) * table[q]
struct BlockMXFP4 {
  uint8_t e;
  uint8_t qs[16];
};

// 256 values in sub-blocks of 16 or 32 with scales of their own.
struct BlockQ2_K {
  uint8_t scales[16];
  uint8_t qs[64];
  half_bits d, dmin;
};
struct BlockQ3_K {
  uint8_t hmask[32];
  uint8_t qs[64];
  uint8_t scales[12];
  half_bits d;
};
struct BlockQ4_K {
  half_bits d, dmin;
  uint8_t scales[12];
  uint8_t qs[128];
};
struct BlockQ5_K {
  half_bits d, dmin;
  uint8_t scales[12];
  uint8_t qh[32];
  uint8_t qs[128];
};
struct BlockQ6_K {
  uint8_t ql[128];
  uint8_t qh[64];
  int8_t scales[16];
  half_bits d;
};
struct BlockIQ4_XS {
  half_bits d;
  uint16_t scales_h;
  uint8_t scales_l[4];
  uint8_t qs[128];
};

#define CULET_BLOCK_SIZE(block, bytes) static_assert(sizeof(block) == bytes, "layout of " #block)
CULET_BLOCK_SIZE(BlockQ4_0, 18);
CULET_BLOCK_SIZE(BlockQ4_1, 20);
CULET_BLOCK_SIZE(BlockQ5_0, 22);
CULET_BLOCK_SIZE(BlockQ5_1, 24);
CULET_BLOCK_SIZE(BlockQ8_0, 34);
CULET_BLOCK_SIZE(BlockIQ4_NL, 18);
CULET_BLOCK_SIZE(BlockMXFP4, 17);
CULET_BLOCK_SIZE(BlockQ2_K, 84);
CULET_BLOCK_SIZE(BlockQ3_K, 110);
CULET_BLOCK_SIZE(BlockQ4_K, 144);
CULET_BLOCK_SIZE(BlockQ5_K, 176);
CULET_BLOCK_SIZE(BlockQ6_K, 210);
CULET_BLOCK_SIZE(BlockIQ4_XS, 136);
#undef CULET_BLOCK_SIZE

// Values of the 4-bit codes of IQ4_NL and IQ4_XS.
static constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};
// Twice the values of the 4-bit float codes (E2M1) of MXFP4; the scale has the other half.
static constexpr int8_t kMxfp4Values[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                            0, -1, -2, -3, -4, -6, -8, -12};

// 2^(e - 128) as float32 bits; the two smallest are subnormal. e = 255 is 2^127 as the others.
static inline uint32_t mxfp4_scale_bits(uint8_t e) {
  return e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23;
}

// Scale and minimum (6 bits each) of sub-block j (0..7) of Q4_K and Q5_K: the first four lie in the
// low six bits of bytes 0..3 and 4..7; the others have their low four bits in bytes 8..11 and their
// high two in the top of bytes 0..7.
static inline void q4_k_scale_min(const uint8_t* scales, int j, uint8_t* scale, uint8_t* min) {
  if (j < 4) {
    *scale = scales[j] & 63;
    *min = scales[j + 4] & 63;
  } else {
    *scale = (uint8_t)((scales[j + 4] & 15) | (scales[j - 4] >> 6) << 4);
    *min = (uint8_t)((scales[j + 4] >> 4) | (scales[j] >> 6) << 4);
  }
}

// Signed scale of sub-block j (0..15) of Q3_K: four low bits in bytes 0..7, two high ones in 8..11.
static inline int q3_k_scale(const uint8_t* scales, int j) {
  const int low = j < 8 ? scales[j] & 15 : scales[j - 8] >> 4;
  return (low | (scales[8 + j % 4] >> 2 * (j / 4) & 3) << 4) - 32;
}

// Signed scale of sub-block j (0..7) of IQ4_XS.
static inline int iq4_xs_scale(const BlockIQ4_XS* block, int j) {
  const int low = block->scales_l[j / 2] >> 4 * (j % 2) & 15;
  return (low | (block->scales_h >> 2 * j & 3) << 4) - 32;
}

}  // namespace culet::quant
