// Matrix products, scalar: the definition that every instruction set must match bit for bit.
//
// A tile of activation rows shares each decoded block of 16 outputs x 32 k. Per block and output:
// one exact integer dot, then one or two fmas in the order that kernels.h fixes. The float path
// (float weights, --precise) has one fma per k with the dequantized weight.
#include "kernels/layout.h"
#include "kernels/levels.h"
#include "kernels/scalar_math.h"

#include <stdint.h>
#include <string.h>

namespace culet::kernels {
namespace {

constexpr int kTileRows = 16;

// One k-block of 16 outputs, decoded: integer weights, integer sub-scales, float32 scales.
struct Block {
  int16_t weight[16][32];
  int32_t scale[16][2];  // for k 0..15 and 16..31; 1 where the type has none
  int32_t minimum[16][2];
  float d[16];  // d_w without sub-scales for kSubPair and kSubNibble, else complete
  float m[16];
};

uint16_t load16(const uint8_t* p) {
  uint16_t v;
  memcpy(&v, p, 2);
  return v;
}

int code_at(const PackedLayout& l, const uint8_t* codes, int output, int k) {
  const int t = k / 4, byte = 4 * output + k % 4;
  const int t4 = t % 4, h = t / 4;  // word t = t4 + 4 * h
  const int pair_shift = 2 * (2 * (t4 % 2) + h);
  int code;
  if (l.low == 8) return codes[64 * t + byte];
  if (l.low == 4)
    code = (codes[64 * t4 + byte] >> (4 * h)) & 15;
  else
    code = (codes[64 * (t4 / 2) + byte] >> pair_shift) & 3;
  const uint8_t* second = codes + 64 * l.low;
  if (l.high == 1) code |= ((second[byte] >> (2 * t4 + h)) & 1) << l.low;
  if (l.high == 2) code |= ((second[64 * (t4 / 2) + byte] >> pair_shift) & 3) << l.low;
  return code;
}

float scale_at(const PackedLayout& l, const uint8_t* header, int in_unit, int output) {
  if (l.scale == kScaleE8M0)
    return bits_float(quant::mxfp4_scale_bits(header[16 * in_unit + output]));
  const int base = l.sub == kSubNone ? 32 * in_unit : 0;
  return half_to_float(load16(header + base + 2 * output));
}

void decode_scales(const PackedLayout& l, const uint8_t* header, int in_unit, Block* out) {
  const uint8_t* sub = header + 64 + in_unit * sub_bytes(l);
  for (int o = 0; o < 16; o++) {
    const float d = scale_at(l, header, in_unit, o);
    const int base = min_offset(l) + (l.sub == kSubNone ? 32 * in_unit : 0);
    const float m = l.min == kMinNone ? 0.0f : half_to_float(load16(header + base + 2 * o));
    out->scale[o][0] = out->scale[o][1] = 1;
    out->minimum[o][0] = out->minimum[o][1] = 1;
    out->d[o] = d;
    out->m[o] = m;
    if (l.sub == kSubU8) {
      out->d[o] = d * static_cast<float>(sub[o]);
      out->m[o] = m * static_cast<float>(sub[16 + o]);
    } else if (l.sub == kSubS8) {
      out->d[o] = d * static_cast<float>(static_cast<int8_t>(sub[o]));
    } else if (l.sub == kSubPair) {
      for (int h = 0; h < 2; h++) out->scale[o][h] = static_cast<int8_t>(sub[16 * h + o]);
    } else if (l.sub == kSubNibble) {
      for (int h = 0; h < 2; h++) {
        out->scale[o][h] = sub[16 * h + o] & 15;
        out->minimum[o][h] = sub[16 * h + o] >> 4;
      }
    }
  }
}

void decode_block(const PackedLayout& l, const uint8_t* group, int64_t block, Block* out) {
  const uint8_t* header = group + block / l.unit * unit_bytes(l);
  const int in_unit = static_cast<int>(block % l.unit);
  const uint8_t* codes = header + header_bytes(l) + in_unit * code_bytes(l);
  for (int o = 0; o < 16; o++)
    for (int k = 0; k < 32; k++) {
      const int code = code_at(l, codes, o, k);
      out->weight[o][k] = static_cast<int16_t>(l.book == kBookNl    ? quant::kIq4Values[code]
                                               : l.book == kBookFp4 ? quant::kMxfp4Values[code]
                                                                    : code - l.offset);
    }
  decode_scales(l, header, in_unit, out);
}

int32_t dot16(const int16_t* w, const int8_t* a) {
  int32_t sum = 0;
  for (int i = 0; i < 16; i++) sum += w[i] * a[i];
  return sum;
}

// One block of one row into its 16 accumulators.
void accumulate(const PackedLayout& l, const Block& w, const int8_t* q, float d_a,
                const int16_t* sums, float* acc) {
  for (int o = 0; o < 16; o++) {
    const int32_t isum =
        w.scale[o][0] * dot16(w.weight[o], q) + w.scale[o][1] * dot16(w.weight[o] + 16, q + 16);
    acc[o] = fma1(static_cast<float>(isum), w.d[o] * d_a, acc[o]);
    if (l.min == kMinNone) continue;
    const int32_t sum = w.minimum[o][0] * sums[0] + w.minimum[o][1] * sums[1];
    const float m = w.m[o] * d_a;
    acc[o] = fma1(l.min == kMinAdd ? m : -m, static_cast<float>(sum), acc[o]);
  }
}

void store_tile(const PackedMatrix* w, int64_t group, int64_t group0, int64_t rows,
                const float (*acc)[16], float* out, int64_t stride) {
  const int64_t left = w->n - group * 16;
  const size_t count = static_cast<size_t>(left < 16 ? left : 16);
  for (int64_t r = 0; r < rows; r++)
    memcpy(out + r * stride + (group - group0) * 16, acc[r], count * sizeof(float));
}

void matmul_q(const PackedMatrix* w, const QuantRows* a, int64_t row0, int64_t row1, int64_t group0,
              int64_t group1, float* out, int64_t stride) {
  const PackedLayout& l = kLayouts[layout_index(w->type)];
  const int64_t blocks = w->k / 32;
  for (int64_t g = group0; g < group1; g++) {
    for (int64_t r0 = row0; r0 < row1; r0 += kTileRows) {
      const int64_t rows = row1 - r0 < kTileRows ? row1 - r0 : kTileRows;
      float acc[kTileRows][16] = {};
      Block block;
      for (int64_t b = 0; b < blocks; b++) {
        decode_block(l, w->data + g * w->group_bytes, b, &block);
        for (int64_t r = 0; r < rows; r++) {
          const int64_t row = r0 + r;
          accumulate(l, block, a->q + row * a->k + b * 32, a->d[row * blocks + b],
                     a->sums + (row * blocks + b) * 2, acc[r]);
        }
      }
      store_tile(w, g, group0, rows, acc, out + (r0 - row0) * stride, stride);
    }
  }
}

// The 16 dequantized weights of one k: product and minimum rounded separately.
void weights_at(const PackedLayout& l, const Block& block, int k, float* w) {
  const int h = k / 16;
  for (int o = 0; o < 16; o++) {
    const float d = block.d[o] * static_cast<float>(block.scale[o][h]);
    const float m = block.m[o] * static_cast<float>(block.minimum[o][h]);
    const float v = d * static_cast<float>(block.weight[o][k]);
    w[o] = l.min == kMinAdd ? v + m : l.min == kMinSub ? v - m : v;
  }
}

void accumulate_f(const float* w, const float* a, int64_t a_stride, int64_t rows,
                  float (*acc)[16]) {
  for (int64_t r = 0; r < rows; r++)
    for (int o = 0; o < 16; o++) acc[r][o] = fma1(w[o], a[r * a_stride], acc[r][o]);
}

void matmul_f_blocks(const PackedLayout& l, const uint8_t* group, const float* a, int64_t a_stride,
                     int64_t rows, int64_t k, float (*acc)[16]) {
  Block block;
  float w[16];
  for (int64_t b = 0; b < k / 32; b++) {
    decode_block(l, group, b, &block);
    for (int i = 0; i < 32; i++) {
      weights_at(l, block, i, w);
      accumulate_f(w, a + b * 32 + i, a_stride, rows, acc);
    }
  }
}

void matmul_f_plain(uint32_t type, const uint8_t* group, const float* a, int64_t a_stride,
                    int64_t rows, int64_t k, float (*acc)[16]) {
  float w[16];
  for (int64_t i = 0; i < k; i++) {
    for (int o = 0; o < 16; o++) {
      if (type == kTypeF32) {
        memcpy(&w[o], group + (i * 16 + o) * 4, 4);
      } else {
        const uint16_t bits = load16(group + (i * 16 + o) * 2);
        w[o] = type == kTypeF16 ? half_to_float(bits) : bfloat16_to_float(bits);
      }
    }
    accumulate_f(w, a + i, a_stride, rows, acc);
  }
}

void matmul_f(const PackedMatrix* w, const float* a, int64_t a_stride, int64_t row0, int64_t row1,
              int64_t group0, int64_t group1, float* out, int64_t stride) {
  const int layout = layout_index(w->type);
  for (int64_t g = group0; g < group1; g++) {
    const uint8_t* group = w->data + g * w->group_bytes;
    for (int64_t r0 = row0; r0 < row1; r0 += kTileRows) {
      const int64_t rows = row1 - r0 < kTileRows ? row1 - r0 : kTileRows;
      float acc[kTileRows][16] = {};
      if (layout < 0)
        matmul_f_plain(w->type, group, a + r0 * a_stride, a_stride, rows, w->k, acc);
      else
        matmul_f_blocks(kLayouts[layout], group, a + r0 * a_stride, a_stride, rows, w->k, acc);
      store_tile(w, g, group0, rows, acc, out + (r0 - row0) * stride, stride);
    }
  }
}

}  // namespace

void add_scalar_matmul(Kernels* table) {
  for (const PackedLayout& l : kLayouts) {
    table->matmul_q[l.type] = matmul_q;
    table->matmul_f[l.type] = matmul_f;
  }
  table->matmul_f[kTypeF32] = matmul_f;
  table->matmul_f[kTypeF16] = matmul_f;
  table->matmul_f[kTypeBf16] = matmul_f;
}

}  // namespace culet::kernels
