// One function a type: fit the scales (quantize_fit.h), then lay the codes where the functions of
// dequantize.cpp look for them.
#include "quant/quantize.h"

#include "quant/blocks.h"
#include "quant/fp16.h"
#include "quant/quantize_fit.h"

#include <cmath>
#include <cstring>

namespace culet::quant {
namespace {

// ---------------------------------------------------------------- types without blocks

bool quantize_f32(const float* src, int64_t count, void* dst) {
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(src[i])) return false;
  }
  std::memcpy(dst, src, size_t(count) * sizeof(float));
  return true;
}

template <uint16_t (*kNarrow)(float), float (*kWiden)(uint16_t)>
bool quantize_16(const float* src, int64_t count, void* dst) {
  auto* out = static_cast<char*>(dst);
  for (int64_t i = 0; i < count; ++i) {
    const uint16_t bits = kNarrow(src[i]);
    if (!std::isfinite(kWiden(bits))) return false;
    std::memcpy(out + 2 * i, &bits, sizeof bits);
  }
  return true;
}

// ---------------------------------------------------------------- 32 values

// The nearest integer, ties away from zero, as the format's definition has it; |v| < 2^31.
int round_away(float v) {
  const float size = std::fabs(v);
  const int floor = int(size);
  const int rounded = floor + (size - float(floor) >= 0.5f);
  return v < 0 ? -rounded : rounded;
}

bool make_block(const float* x, BlockQ8_0* b) {
  float largest = 0;
  for (int i = 0; i < 32; ++i) {
    if (!std::isfinite(x[i])) return false;
    largest = std::fabs(x[i]) > largest ? std::fabs(x[i]) : largest;
  }
  const float d = largest / 127;
  const float inverse = d < 0x1p-126f ? 0 : 1 / d;  // of a smaller d it may be infinite
  b->d = float_to_half(d);
  for (int i = 0; i < 32; ++i) b->qs[i] = int8_t(round_away(x[i] * inverse));
  return is_finite(b->d);
}

// Codes of 32 values: low nibbles are 0..15, high ones 16..31.
void pack_nibbles(const int* codes, uint8_t* qs) {
  for (int i = 0; i < 16; ++i) qs[i] = uint8_t((codes[i] & 15) | (codes[i + 16] & 15) << 4);
}

void pack_fifth_bits(const int* codes, uint8_t (&qh)[4]) {
  for (int i = 0; i < 4; ++i) {
    qh[i] = 0;
    for (int k = 0; k < 8; ++k) qh[i] |= uint8_t((codes[8 * i + k] >> 4) << k);
  }
}

// The scale and the codes of a block that has nothing else.
template <class Levels>
bool fit_codes(const float* values, half_bits* d, int (&codes)[32]) {
  Normal<32> in;
  if (!in.set(values)) return false;
  *d = in.stored(fit_scale<Levels, 32>(in.x, in.weight));
  const float scale = in.read(*d), inverse = scale == 0 ? 0 : 1 / scale;
  for (int i = 0; i < 32; ++i) codes[i] = Levels::code(Levels::level(in.x[i] * inverse));
  return is_finite(*d);
}

bool make_block(const float* x, BlockQ4_0* b) {
  int codes[32];
  if (!fit_codes<Integers<-8, 7>>(x, &b->d, codes)) return false;
  pack_nibbles(codes, b->qs);
  return true;
}

bool make_block(const float* x, BlockQ5_0* b) {
  int codes[32];
  if (!fit_codes<Integers<-16, 15>>(x, &b->d, codes)) return false;
  pack_nibbles(codes, b->qs);
  pack_fifth_bits(codes, b->qh);
  return true;
}

bool make_block(const float* x, BlockIQ4_NL* b) {
  int codes[32];
  if (!fit_codes<Iq4Levels>(x, &b->d, codes)) return false;
  pack_nibbles(codes, b->qs);
  return true;
}

// The same with an offset.
template <int kHigh>
bool fit_affine_codes(const float* values, half_bits* d, half_bits* m, int (&codes)[32]) {
  Normal<32> in;
  if (!in.set(values)) return false;
  const Affine fit = fit_affine<kHigh, 32, false>(in.x, in.weight);
  *d = in.stored(fit.scale);
  *m = in.stored(fit.offset);
  float levels[32];
  affine_levels<kHigh, 32>(in.x, {in.read(*d), in.read(*m)}, levels);
  for (int i = 0; i < 32; ++i) codes[i] = int(levels[i]);
  return is_finite(*d) && is_finite(*m);
}

bool make_block(const float* x, BlockQ4_1* b) {
  int codes[32];
  if (!fit_affine_codes<15>(x, &b->d, &b->m, codes)) return false;
  pack_nibbles(codes, b->qs);
  return true;
}

bool make_block(const float* x, BlockQ5_1* b) {
  int codes[32];
  if (!fit_affine_codes<31>(x, &b->d, &b->m, codes)) return false;
  pack_nibbles(codes, b->qs);
  pack_fifth_bits(codes, b->qh);
  return true;
}

// The nearest code of MXFP4 for a value divided by its scale; codes 0..7 ascend, bit 3 is the sign.
int mxfp4_code(float v) {
  const float size = std::fabs(v);
  int best = 0;
  for (int code = 1; code < 8; ++code) {
    if (size - float(kMxfp4Values[best]) > float(kMxfp4Values[code]) - size) best = code;
  }
  return best | (v < 0 && best > 0 ? 8 : 0);
}

// Scales are powers of two, so the few that can be best are all tried.
bool make_block(const float* x, BlockMXFP4* b) {
  float largest = 0;
  for (int i = 0; i < 32; ++i) {
    if (!std::isfinite(x[i])) return false;
    largest = std::fabs(x[i]) > largest ? std::fabs(x[i]) : largest;
  }
  const int exponent = int(bits_of_float(largest) >> 23);  // largest < 2^(exponent - 126)
  double least = INFINITY;
  for (int e = exponent - 4; e <= exponent + 1; ++e) {
    if (e < 0 || e > 254) continue;
    const double scale = double(float_of_bits(mxfp4_scale_bits(uint8_t(e))));
    double error = 0;
    BlockMXFP4 tried{};
    tried.e = uint8_t(e);
    for (int i = 0; i < 32; ++i) {
      const int code = mxfp4_code(float(double(x[i]) / scale));
      tried.qs[i % 16] = uint8_t(tried.qs[i % 16] | code << (i < 16 ? 0 : 4));
      const double off = double(x[i]) - scale * kMxfp4Values[code];
      error += off * off;
    }
    if (error < least) {
      least = error;
      *b = tried;
    }
  }
  return true;
}

// ---------------------------------------------------------------- 256 values

bool make_block(const float* x, BlockQ2_K* b) {
  Normal<256> in;
  AffineParts<16> fit;
  if (!in.set(x) || !fit_affine_parts<3, 16, 15>(in, &fit)) return false;
  *b = {};
  b->d = fit.d;
  b->dmin = fit.dmin;
  for (int run = 0; run < 16; ++run) {
    b->scales[run] = uint8_t(fit.scales[run] | fit.mins[run] << 4);
    uint8_t* q = b->qs + 32 * (run / 8) + 16 * (run % 2);
    const int shift = 2 * (run / 2 % 4);
    for (int l = 0; l < 16; ++l) q[l] |= uint8_t(int(fit.levels[16 * run + l]) << shift);
  }
  return true;
}

bool make_block(const float* x, BlockQ3_K* b) {
  using Levels = Integers<-4, 3>;
  Normal<256> in;
  ScaledParts<16> fit;
  if (!in.set(x) || !fit_scaled_parts<Levels, 16, -32, 31>(in, &fit)) return false;
  *b = {};
  b->d = fit.d;
  for (int run = 0; run < 16; ++run) {
    const int scale = fit.scales[run] + 32;
    b->scales[run % 8] |= uint8_t((scale & 15) << (run < 8 ? 0 : 4));
    b->scales[8 + run % 4] |= uint8_t((scale >> 4) << 2 * (run / 4));
    uint8_t* q = b->qs + 32 * (run / 8) + 16 * (run % 2);
    uint8_t* high = b->hmask + 16 * (run % 2);
    for (int l = 0; l < 16; ++l) {
      const int code = Levels::code(fit.levels[16 * run + l]);
      q[l] |= uint8_t((code & 3) << 2 * (run / 2 % 4));
      high[l] |= uint8_t((code >> 2) << (run / 2));
    }
  }
  return true;
}

// Scales and minimums of Q4_K and Q5_K, where q4_k_scale_min() finds them.
void pack_scales_and_mins(const AffineParts<8>& fit, uint8_t (&scales)[12]) {
  for (int j = 0; j < 4; ++j) {
    scales[j] = uint8_t(fit.scales[j] | (fit.scales[j + 4] >> 4) << 6);
    scales[j + 4] = uint8_t(fit.mins[j] | (fit.mins[j + 4] >> 4) << 6);
    scales[j + 8] = uint8_t((fit.scales[j + 4] & 15) | (fit.mins[j + 4] & 15) << 4);
  }
}

bool make_block(const float* x, BlockQ4_K* b) {
  Normal<256> in;
  AffineParts<8> fit;
  if (!in.set(x) || !fit_affine_parts<15, 8, 63>(in, &fit)) return false;
  *b = {};
  b->d = fit.d;
  b->dmin = fit.dmin;
  pack_scales_and_mins(fit, b->scales);
  for (int i = 0; i < 256; ++i) {
    const int run = i / 32;
    b->qs[32 * (run / 2) + i % 32] |= uint8_t(int(fit.levels[i]) << 4 * (run % 2));
  }
  return true;
}

bool make_block(const float* x, BlockQ5_K* b) {
  Normal<256> in;
  AffineParts<8> fit;
  if (!in.set(x) || !fit_affine_parts<31, 8, 63>(in, &fit)) return false;
  *b = {};
  b->d = fit.d;
  b->dmin = fit.dmin;
  pack_scales_and_mins(fit, b->scales);
  for (int i = 0; i < 256; ++i) {
    const int run = i / 32, code = int(fit.levels[i]);
    b->qs[32 * (run / 2) + i % 32] |= uint8_t((code & 15) << 4 * (run % 2));
    b->qh[i % 32] |= uint8_t((code >> 4) << run);
  }
  return true;
}

bool make_block(const float* x, BlockQ6_K* b) {
  using Levels = Integers<-32, 31>;
  Normal<256> in;
  ScaledParts<16> fit;
  if (!in.set(x) || !fit_scaled_parts<Levels, 16, -128, 127>(in, &fit)) return false;
  *b = {};
  b->d = fit.d;
  for (int run = 0; run < 16; ++run) {
    b->scales[run] = int8_t(fit.scales[run]);
    const int half = run / 8, quarter = run / 2 % 4, offset = 16 * (run % 2);
    uint8_t* low = b->ql + 64 * half + 32 * (quarter % 2) + offset;
    uint8_t* high = b->qh + 32 * half + offset;
    for (int l = 0; l < 16; ++l) {
      const int code = Levels::code(fit.levels[16 * run + l]);
      low[l] |= uint8_t((code & 15) << 4 * (quarter / 2));
      high[l] |= uint8_t((code >> 4) << 2 * quarter);
    }
  }
  return true;
}

bool make_block(const float* x, BlockIQ4_XS* b) {
  Normal<256> in;
  ScaledParts<8> fit;
  if (!in.set(x) || !fit_scaled_parts<Iq4Levels, 8, -32, 31>(in, &fit)) return false;
  *b = {};
  b->d = fit.d;
  for (int run = 0; run < 8; ++run) {
    const int scale = fit.scales[run] + 32;
    b->scales_l[run / 2] |= uint8_t((scale & 15) << 4 * (run % 2));
    b->scales_h |= uint16_t((scale >> 4) << 2 * run);
    int codes[32];
    for (int i = 0; i < 32; ++i) codes[i] = Iq4Levels::code(fit.levels[32 * run + i]);
    pack_nibbles(codes, b->qs + 16 * run);
  }
  return true;
}

// ---------------------------------------------------------------- the table

template <class Block, int kValues>
bool quantize(const float* src, int64_t blocks, void* dst) {
  auto* out = static_cast<char*>(dst);
  for (int64_t i = 0; i < blocks; ++i) {
    Block block;
    if (!make_block(src + kValues * i, &block)) return false;
    std::memcpy(out + int64_t{sizeof block} * i, &block, sizeof block);
  }
  return true;
}

struct Entry {
  TensorType type;
  QuantizeFn fn;
};

constexpr Entry kFunctions[] = {
    {TensorType::F32, quantize_f32},
    {TensorType::F16, quantize_16<float_to_half, half_to_float>},
    {TensorType::BF16, quantize_16<float_to_bfloat16, bfloat16_to_float>},
    {TensorType::Q4_0, quantize<BlockQ4_0, 32>},
    {TensorType::Q4_1, quantize<BlockQ4_1, 32>},
    {TensorType::Q5_0, quantize<BlockQ5_0, 32>},
    {TensorType::Q5_1, quantize<BlockQ5_1, 32>},
    {TensorType::Q8_0, quantize<BlockQ8_0, 32>},
    {TensorType::Q2_K, quantize<BlockQ2_K, 256>},
    {TensorType::Q3_K, quantize<BlockQ3_K, 256>},
    {TensorType::Q4_K, quantize<BlockQ4_K, 256>},
    {TensorType::Q5_K, quantize<BlockQ5_K, 256>},
    {TensorType::Q6_K, quantize<BlockQ6_K, 256>},
    {TensorType::IQ4_NL, quantize<BlockIQ4_NL, 32>},
    {TensorType::IQ4_XS, quantize<BlockIQ4_XS, 256>},
    {TensorType::MXFP4, quantize<BlockMXFP4, 32>},
};

}  // namespace

QuantizeFn quantize_fn(TensorType type) {
  for (const Entry& entry : kFunctions) {
    if (entry.type == type) return entry.fn;
  }
  return nullptr;
}

}  // namespace culet::quant
