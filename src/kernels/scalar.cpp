// Row kernels, scalar: the definition of quantize, norms, rope, activations and reductions.
//
// Compiled with vectorisation off, so that "scalar" means scalar and the instruction-set files are
// compared with plain loops. scalar_matmul.cpp and scalar_attention.cpp hold the rest of the table.
#include "kernels/kernels.h"
#include "kernels/levels.h"
#include "kernels/scalar_math.h"

#include <stdint.h>
#include <string.h>

namespace culet::kernels {
namespace {

void quantize_block(const float* x, int8_t* q, float* d, int16_t* sums) {
  uint32_t amax_bits = 0;
  for (int i = 0; i < 32; i++) {
    const uint32_t b = float_bits(x[i]) & 0x7fffffffu;
    if (b > amax_bits) amax_bits = b;
  }
  const float amax = bits_float(amax_bits);
  const float id = 127.0f / amax;
  const bool finite = amax_bits < 0x7f800000u;
  const bool usable = finite && amax >= kQuantizeLow;
  *d = !finite ? quiet_nan() : usable ? amax / 127.0f : 0.0f;
  int sum[2] = {0, 0};
  for (int i = 0; i < 32; i++) {
    const float rounded = usable ? (x[i] * id + kRoundMagic) - kRoundMagic : 0.0f;
    q[i] = static_cast<int8_t>(rounded);
    sum[i / 16] += q[i];
  }
  sums[0] = static_cast<int16_t>(sum[0]);
  sums[1] = static_cast<int16_t>(sum[1]);
}

void quantize(const float* x, int64_t rows, int64_t x_stride, int64_t row0, QuantRows* out) {
  const int64_t blocks = out->k / 32;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t b = 0; b < blocks; b++) {
      const int64_t index = (row0 + r) * blocks + b;
      quantize_block(x + r * x_stride + b * 32, out->q + index * 32, out->d + index,
                     out->sums + index * 2);
    }
}

void rms_norm(const float* x, const float* w, float eps, int64_t n, float* y) {
  float lanes[16] = {};
  for (int64_t i = 0; i < n; i++) lanes[i % 16] = fma1(x[i], x[i], lanes[i % 16]);
  const float mean = fold16(lanes) / static_cast<float>(n);
  const float r = 1.0f / __builtin_sqrtf(mean + eps);
  for (int64_t i = 0; i < n; i++) {
    const float v = x[i] * r;
    y[i] = w ? v * w[i] : v;
  }
}

void layer_norm(const float* x, const float* w, const float* b, float eps, int64_t n, float* y) {
  float lanes[16] = {};
  for (int64_t i = 0; i < n; i++) lanes[i % 16] += x[i];
  const float mean = fold16(lanes) / static_cast<float>(n);
  memset(lanes, 0, sizeof(lanes));
  for (int64_t i = 0; i < n; i++) {
    const float v = x[i] - mean;
    lanes[i % 16] = fma1(v, v, lanes[i % 16]);
  }
  const float variance = fold16(lanes) / static_cast<float>(n);
  const float r = 1.0f / __builtin_sqrtf(variance + eps);
  for (int64_t i = 0; i < n; i++) {
    float v = (x[i] - mean) * r;
    if (w) v = v * w[i];
    if (b) v = v + b[i];
    y[i] = v;
  }
}

void rope(const float* x, const float* cos_sin, int32_t dims, int32_t head_dim, int adjacent,
          float* y) {
  const int32_t half = dims / 2;
  for (int32_t i = 0; i < half; i++) {
    const int32_t i0 = adjacent ? 2 * i : i, i1 = adjacent ? 2 * i + 1 : i + half;
    const float c = cos_sin[i], s = cos_sin[half + i], x0 = x[i0], x1 = x[i1];
    y[i0] = fma1(-x1, s, x0 * c);
    y[i1] = fma1(x1, c, x0 * s);
  }
  for (int32_t i = 2 * half; i < head_dim; i++) y[i] = x[i];
}

void unary(Unary op, const float* x, int64_t n, float* y) {
  static constexpr float (*kFunctions[kUnaryCount])(float) = {silu1, gelu1,    gelu_erf1,
                                                              relu1, sigmoid1, tanh1};
  for (int64_t i = 0; i < n; i++) y[i] = kFunctions[op](x[i]);
}

float apply(Binary op, float a, float b) {
  return op == kAdd ? a + b : op == kSub ? a - b : op == kMul ? a * b : a / b;
}
void binary(Binary op, const float* a, const float* b, int64_t n, float* y) {
  for (int64_t i = 0; i < n; i++) y[i] = apply(op, a[i], b[i]);
}
void binary_scalar(Binary op, const float* a, float b, int64_t n, float* y) {
  for (int64_t i = 0; i < n; i++) y[i] = apply(op, a[i], b);
}

void softcap(const float* x, float cap, int64_t n, float* y) {
  for (int64_t i = 0; i < n; i++) y[i] = softcap1(x[i], cap);
}

void add_scaled(float a, const float* x, int64_t n, float* y) {
  for (int64_t i = 0; i < n; i++) y[i] = fma1(a, x[i], y[i]);
}

void max_index(const float* x, int64_t n, float* max, int64_t* index, int* finite) {
  *max = -__builtin_inff();
  *index = 0;
  *finite = 1;
  for (int64_t i = 0; i < n; i++) {
    if (x[i] > *max) {
      *max = x[i];
      *index = i;
    }
    if ((float_bits(x[i]) & 0x7fffffffu) >= 0x7f800000u) *finite = 0;
  }
}

double fold16_double(double* v) {
  for (int half = 8; half > 0; half /= 2)
    for (int j = 0; j < half; j++) v[j] += v[j + half];
  return v[0];
}

void exp_sums(const float* x, float max, int64_t n, double* sum, double* weighted) {
  double e_lanes[16] = {}, w_lanes[16] = {};
  for (int64_t i = 0; i < n; i++) {
    const float d = x[i] - max, e = exp1(d);
    e_lanes[i % 16] += static_cast<double>(e);
    // The product of two floats is exact in float64. -infinity has weight 0 and adds nothing.
    if (e != 0) w_lanes[i % 16] += static_cast<double>(e) * static_cast<double>(d);
  }
  *sum = fold16_double(e_lanes);
  if (weighted) *weighted = fold16_double(w_lanes);
}

}  // namespace

void add_scalar(Kernels* table) {
  add_scalar_matmul(table);
  add_scalar_attention(table);
  table->isa = "scalar";
  table->quantize = quantize;
  table->rms_norm = rms_norm;
  table->layer_norm = layer_norm;
  table->rope = rope;
  table->unary = unary;
  table->binary = binary;
  table->binary_scalar = binary_scalar;
  table->softcap = softcap;
  table->add_scaled = add_scaled;
  table->max_index = max_index;
  table->exp_sums = exp_sums;
}

}  // namespace culet::kernels
