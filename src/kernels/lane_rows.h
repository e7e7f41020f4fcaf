// Row kernels on vectors: the scalar definitions, bit for bit (see lane_math.h).
//
// Float sums go through the 16 virtual lanes; a short last vector leaves its missing lanes alone.
// Sums of squares and of weights are never -0, so adding +0 to a lane leaves it alone.
#pragma once

#include "kernels/kernels.h"
#include "kernels/lane_math.h"

namespace culet::kernels {
namespace {

// y[i] = f(x[i], b[i]) for n values.
template <class F>
CULET_INLINE void map(const float* x, int64_t n, float* y, F f) {
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) store(y + i, f(load(x + i)));
  if (i < n) store_part(y + i, f(load_part(x + i, n - i)), n - i);
}
template <class F>
CULET_INLINE void map2(const float* a, const float* b, int64_t n, float* y, F f) {
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) store(y + i, f(load(a + i), load(b + i)));
  if (i < n) store_part(y + i, f(load_part(a + i, n - i), load_part(b + i, n - i)), n - i);
}

void unary(Unary op, const float* x, int64_t n, float* y) {
  switch (op) {
    case kSilu:
      return map(x, n, y, CULET_LAMBDA(=, Floats v) { return silu(v); });
    case kGelu:
      return map(x, n, y, CULET_LAMBDA(=, Floats v) { return gelu(v); });
    case kGeluErf:
      return map(x, n, y, CULET_LAMBDA(=, Floats v) { return gelu_erf(v); });
    case kRelu:
      return map(x, n, y, CULET_LAMBDA(=, Floats v) { return relu(v); });
    case kSigmoid:
      return map(x, n, y, CULET_LAMBDA(=, Floats v) { return sigmoid(v); });
    case kTanh:
      return map(x, n, y, CULET_LAMBDA(=, Floats v) { return tanh(v); });
    case kUnaryCount:
      return;
  }
}

void binary(Binary op, const float* a, const float* b, int64_t n, float* y) {
  switch (op) {
    case kAdd:
      return map2(a, b, n, y, CULET_LAMBDA(=, Floats u, Floats v) { return u + v; });
    case kSub:
      return map2(a, b, n, y, CULET_LAMBDA(=, Floats u, Floats v) { return u - v; });
    case kMul:
      return map2(a, b, n, y, CULET_LAMBDA(=, Floats u, Floats v) { return u * v; });
    case kDiv:
      return map2(a, b, n, y, CULET_LAMBDA(=, Floats u, Floats v) { return u / v; });
    case kBinaryCount:
      return;
  }
}

void binary_scalar(Binary op, const float* a, float b, int64_t n, float* y) {
  const Floats v = set1(b);
  switch (op) {
    case kAdd:
      return map(a, n, y, CULET_LAMBDA(=, Floats u) { return u + v; });
    case kSub:
      return map(a, n, y, CULET_LAMBDA(=, Floats u) { return u - v; });
    case kMul:
      return map(a, n, y, CULET_LAMBDA(=, Floats u) { return u * v; });
    case kDiv:
      return map(a, n, y, CULET_LAMBDA(=, Floats u) { return u / v; });
    case kBinaryCount:
      return;
  }
}

void softcap(const float* x, float cap, int64_t n, float* y) {
  const Floats c = set1(cap);
  map(x, n, y, CULET_LAMBDA(=, Floats v) { return softcap(v, c); });
}

void add_scaled(float a, const float* x, int64_t n, float* y) {
  const Floats factor = set1(a);
  map2(x, y, n, y, CULET_LAMBDA(=, Floats u, Floats v) { return fma(factor, u, v); });
}

void rms_norm(const float* x, const float* w, float eps, int64_t n, float* y) {
  Lanes lanes = zero_lanes();
  for (int64_t i = 0; i < n; i += 16) {
    const Lanes v = load_lanes(x + i, n - i);
    lanes = fma(v, v, lanes);
  }
  const float mean = fold(lanes) / static_cast<float>(n);
  const Floats r = set1(1.0f / square_root(mean + eps));
  if (w)
    map2(x, w, n, y, CULET_LAMBDA(=, Floats v, Floats u) { return (v * r) * u; });
  else
    map(x, n, y, CULET_LAMBDA(=, Floats v) { return v * r; });
}

void layer_norm(const float* x, const float* w, const float* b, float eps, int64_t n, float* y) {
  Lanes lanes = zero_lanes();
  for (int64_t i = 0; i < n; i += 16) lanes = lanes + load_lanes(x + i, n - i);
  const Floats mean = set1(fold(lanes) / static_cast<float>(n));
  lanes = zero_lanes();
  for (int64_t i = 0; i < n; i += 16) {
    const Lanes v = load_lanes(x + i, n - i);
    const Lanes c = keep_first(n - i, v - mean);
    lanes = fma(c, c, lanes);
  }
  const float variance = fold(lanes) / static_cast<float>(n);
  const Floats r = set1(1.0f / square_root(variance + eps));
  for (int64_t i = 0; i < n; i += kWidth) {
    Floats v = (load_part(x + i, n - i) - mean) * r;
    if (w) v = v * load_part(w + i, n - i);
    if (b) v = v + load_part(b + i, n - i);
    store_part(y + i, v, n - i);
  }
}

void quantize(const float* x, int64_t rows, int64_t x_stride, int64_t row0, QuantRows* out) {
  const int64_t blocks = out->k / 32;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t b = 0; b < blocks; b++) {
      const float* block = x + r * x_stride + b * 32;
      const int64_t index = (row0 + r) * blocks + b;
      int8_t* q = out->q + index * 32;
      int16_t* sums = out->sums + index * 2;
      const uint32_t bits = largest_magnitude_bits(block);
      float amax;
      __builtin_memcpy(&amax, &bits, 4);
      if (bits >= 0x7f800000u || amax < kQuantizeLow) {
        __builtin_memset(q, 0, 32);
        sums[0] = sums[1] = 0;
        out->d[index] = bits >= 0x7f800000u ? __builtin_nanf("") : 0.0f;
      } else {
        round32(block, 127.0f / amax, q, sums);
        out->d[index] = amax / 127.0f;
      }
    }
}

CULET_INLINE void rotate(Floats c, Floats s, Floats x0, Floats x1, Floats* y0, Floats* y1) {
  *y0 = fnma(x1, s, x0 * c);
  *y1 = fma(x1, c, x0 * s);
}

// `left` pairs, at most a vector of them.
CULET_INLINE void rotate_pairs(const float* x, const float* cosines, const float* sines,
                               int64_t left, float* y) {
  const Floats c = load_part(cosines, left), s = load_part(sines, left);
  Floats x0, x1, y0, y1;
  split_pairs(load_part(x, 2 * left), load_part(x + kWidth, 2 * left - kWidth), &x0, &x1);
  rotate(c, s, x0, x1, &y0, &y1);
  join_pairs(y0, y1, &x0, &x1);
  store_part(y, x0, 2 * left);
  store_part(y + kWidth, x1, 2 * left - kWidth);
}
CULET_INLINE void rotate_halves(const float* x, int32_t half, const float* cosines,
                                const float* sines, int64_t left, float* y) {
  const Floats c = load_part(cosines, left), s = load_part(sines, left);
  Floats y0, y1;
  rotate(c, s, load_part(x, left), load_part(x + half, left), &y0, &y1);
  store_part(y, y0, left);
  store_part(y + half, y1, left);
}

void rope(const float* x, const float* cos_sin, int32_t dims, int32_t head_dim, int adjacent,
          float* y) {
  const int32_t half = dims / 2;
  for (int32_t i = 0; i < half; i += kWidth) {
    const float *cosines = cos_sin + i, *sines = cosines + half;
    if (adjacent)
      rotate_pairs(x + 2 * i, cosines, sines, half - i, y + 2 * i);
    else
      rotate_halves(x + i, half, cosines, sines, half - i, y + i);
  }
  for (int32_t i = 2 * half; i < head_dim; i++) y[i] = x[i];
}

void max_index(const float* x, int64_t n, float* max, int64_t* index, int* finite) {
  // Per lane the largest value and the vector that has it first; lanes are settled at the end.
  const Ints exponent = set1(int32_t{0x7f800000});
  Floats best = set1(-__builtin_inff());
  Ints where = set1(int32_t{0});
  Mask bad = first_lanes(0);
  for (int64_t i = 0; i < n; i += kWidth) {
    const Floats v = load_part(x + i, n - i);
    const Mask above = less(best, v) & first_lanes(n - i);
    best = select(above, v, best);
    where = select(above, set1(static_cast<int32_t>(i / kWidth)), where);
    bad = bad | equal(as_ints(v) & exponent, exponent);
  }
  float values[kWidth];
  int32_t vectors[kWidth];
  store(values, best);
  store(vectors, where);
  *max = -__builtin_inff();
  *index = 0;
  for (int lane = 0; lane < kWidth; lane++) {
    const int64_t at = static_cast<int64_t>(vectors[lane]) * kWidth + lane;
    if (values[lane] > *max || (values[lane] == *max && *max > -__builtin_inff() && at < *index)) {
      *max = values[lane];
      *index = at;
    }
  }
  *finite = !any(bad);
  if (n > 0 && *max > -__builtin_inff()) *max = x[*index];  // the sign of a zero
}

void exp_sums(const float* x, float max, int64_t n, double* sum, double* weighted) {
  constexpr int kVectors = 16 / kWidth;
  Doubles e_sum[kVectors], w_sum[kVectors];
  for (int h = 0; h < kVectors; h++) e_sum[h] = w_sum[h] = zero_doubles();
  const auto add = CULET_LAMBDA(&, auto h, Floats d, Floats e) {
    e_sum[h] = e_sum[h] + to_doubles(e);
    // A weight of 0 adds nothing. The product of two floats is exact in float64, so a fused sum is
    // the scalar sum.
    const Floats kept = keep(differs(e, zero()), d);
    w_sum[h] = fma(to_doubles(e), to_doubles(kept), w_sum[h]);
  };
  int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    unroll<kVectors>(CULET_LAMBDA(&, auto h) {
      const Floats d = load(x + i + kWidth * h) - set1(max);
      add(h, d, exp(d));
    });
  unroll<kVectors>(CULET_LAMBDA(&, auto h) {
    const int64_t left = n - i - kWidth * h;
    if (left <= 0) return;
    const Floats d = load_part(x + i + kWidth * h, left) - set1(max);
    add(h, d, keep(first_lanes(left), exp(d)));
  });
  *sum = fold(e_sum);
  if (weighted) *weighted = fold(w_sum);
}

void add_lane_rows(Kernels* table) {
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

}  // namespace
}  // namespace culet::kernels
