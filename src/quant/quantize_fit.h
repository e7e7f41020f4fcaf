// Takes the values of a block and what each error weighs, gives scales whose errors are small.
//
// Rounding makes the error a sum of parabolas of the scale with a kink wherever a value changes its
// level, so there is no formula for the best scale. Two steps find a good one. Scales that map the
// largest value near the last level are tried one by one, since the best is among them or close by.
// From the best of them, levels and scale are improved in turn: for fixed levels the best scale is
// a quotient of sums (least squares), for a fixed scale the nearest level is best for every value,
// so neither step makes the error larger.
//
// A 256-value block has a half for all its parts and a small integer for each. The integers are
// chosen by their error, next to what the part alone would like; then the half is fitted again.
//
// Everything is relative to the largest value of the block (Normal), so that squares neither
// overflow nor vanish. Sums have four lanes; their order is part of the result.
#pragma once

#include "quant/blocks.h"
#include "quant/fp16.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace culet::quant {

// To the nearest integer, ties to even; |v| < 2^22.
inline float nearest(float v) {
  constexpr float kShift = 0x1.8p23f;
  return (v + kShift) - kShift;
}

inline float clamp(float v, float low, float high) {
  v = v < low ? low : v;
  return v > high ? high : v;
}

template <int kN>
float sum(const float (&v)[kN]) {
  static_assert(kN % 4 == 0);
  float lanes[4] = {v[0], v[1], v[2], v[3]};
  for (int i = 4; i < kN; i += 4) {
    for (int k = 0; k < 4; ++k) lanes[k] += v[i + k];
  }
  return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
}

// ---------------------------------------------------------------- the block

// The values of a block divided by the power of two that its largest has, and the weights of their
// errors: the square of the value, and the mean square of the block, each by half. Large weights do
// more to a product than small ones, yet small ones are many.
template <int kN>
struct Normal {
  float x[kN], weight[kN];
  float unit = 1;  // x * unit is the value

  // False: a value is not finite.
  bool set(const float* values) {
    float largest = 0;
    for (int i = 0; i < kN; ++i) {
      const float size = std::fabs(values[i]);
      if (!(size <= 0x1.fffffep127f)) return false;
      largest = size > largest ? size : largest;
    }
    // What is smaller than 2^-100 gives a scale of zero anyway, for no half is that small.
    uint32_t exponent = bits_of_float(largest) >> 23;
    exponent = exponent < 27 ? 27 : exponent > 253 ? 253 : exponent;
    unit = float_of_bits(exponent << 23);
    const float divide = float_of_bits((254 - exponent) << 23);
    float squares[kN];
    for (int i = 0; i < kN; ++i) {
      x[i] = values[i] * divide;
      squares[i] = x[i] * x[i];
    }
    const float mean = sum(squares) / float(kN);
    for (int i = 0; i < kN; ++i) weight[i] = mean + squares[i];
    return true;
  }

  // A scale as the block stores it.
  half_bits stored(float scale) const { return float_to_half(scale * unit); }
  float read(half_bits scale) const { return half_to_float(scale) / unit; }
};

inline bool is_finite(half_bits h) { return (h & 0x7c00) != 0x7c00; }

// ---------------------------------------------------------------- levels

// The integers kLow..kHigh; the code of a level is its distance from the lowest.
template <int kLow, int kHigh>
struct Integers {
  static constexpr float kLowest = kLow, kHighest = kHigh;
  static float level(float v) { return nearest(clamp(v, kLowest, kHighest)); }
  static int code(float level) { return int(level) - kLow; }
};

// The nearest of the sixteen values of the IQ4 types. Where it changes lies at multiples of a half,
// so a table with a row for each half answers exactly.
struct Iq4Table {
  static constexpr int kRows = 512;
  float level[kRows] = {};
  uint8_t code[kRows] = {};

  static constexpr float distance(float a, float b) { return a < b ? b - a : a - b; }
  constexpr Iq4Table() {
    for (int row = 0; row < kRows; ++row) {
      const float middle = float(row) / 2 - 128 + 0.25f;
      int best = 0;
      for (int k = 1; k < 16; ++k) {
        if (distance(middle, kIq4Values[k]) < distance(middle, kIq4Values[best])) best = k;
      }
      level[row] = kIq4Values[best];
      code[row] = uint8_t(best);
    }
  }
};

struct Iq4Levels {
  static constexpr float kLowest = kIq4Values[0], kHighest = kIq4Values[15];
  static constexpr Iq4Table kTable{};

  static int row(float v) { return int(clamp(v, kLowest, kHighest) * 2 + 256); }
  static float level(float v) { return kTable.level[row(v)]; }
  static int code(float level) { return kTable.code[row(level)]; }
};

// ---------------------------------------------------------------- value = scale * level

// Sums over the levels that are nearest for 1 / scale = inverse.
struct ScaleSums {
  float qx, qq;
};
template <class Levels, int kN>
ScaleSums scale_sums(const float* x, const float* weight, float inverse) {
  float qx[kN], qq[kN];
  for (int i = 0; i < kN; ++i) {
    const float q = Levels::level(x[i] * inverse), wq = weight[i] * q;
    qx[i] = wq * x[i];
    qq[i] = wq * q;
  }
  return {sum(qx), sum(qq)};
}

// The error with the nearest levels for this scale, which may be 0.
template <class Levels, int kN>
float scale_error(const float* x, const float* weight, float scale) {
  const float inverse = scale == 0 ? 0 : 1 / scale;
  float e[kN];
  for (int i = 0; i < kN; ++i) {
    const float off = x[i] - scale * Levels::level(x[i] * inverse);
    e[i] = weight[i] * off * off;
  }
  return sum(e);
}

// Scales tried on each side: the last level and 2 * kTried + 1 numbers around it.
constexpr int kTried = 7;

// The best scale found; 0 for zeros. It may be negative: the lower end may have a level more.
template <class Levels, int kN>
float fit_scale(const float* x, const float* weight) {
  float largest = 0;
  for (int i = 0; i < kN; ++i) largest = std::fabs(x[i]) > std::fabs(largest) ? x[i] : largest;
  if (std::fabs(largest) < 0x1p-60f) return 0;
  float scale = 0, most = 0;  // most: by how much the error is below that of scale 0
  const auto offer = [&](float inverse) {
    const ScaleSums s = scale_sums<Levels, kN>(x, weight, inverse);
    if (!(s.qq > 0) || !(s.qx * s.qx > most * s.qq)) return false;
    most = s.qx * s.qx / s.qq;
    scale = s.qx / s.qq;
    return true;
  };
  const float step = (Levels::kHighest - Levels::kLowest) / 15 * 0.125f;
  for (int k = -kTried; k <= kTried; ++k) {
    offer((Levels::kLowest + step * float(k)) / largest);
    offer((Levels::kHighest + step * float(k)) / largest);
  }
  for (int k = 0; k < 4 && scale != 0 && offer(1 / scale); ++k) {
  }
  return scale;
}

// ---------------------------------------------------------------- value = scale * level + offset

struct Affine {
  float scale, offset;
};

template <int kHigh, int kN>
void affine_levels(const float* x, Affine a, float* q) {
  const float inverse = a.scale > 0 ? 1 / a.scale : 0;
  for (int i = 0; i < kN; ++i) q[i] = nearest(clamp((x[i] - a.offset) * inverse, 0, kHigh));
}

template <int kHigh, int kN>
float affine_error(const float* x, const float* weight, Affine a) {
  float q[kN], e[kN];
  affine_levels<kHigh, kN>(x, a, q);
  for (int i = 0; i < kN; ++i) {
    const float off = x[i] - (a.scale * q[i] + a.offset);
    e[i] = weight[i] * off * off;
  }
  return sum(e);
}

// Least squares for fixed levels. kBelow: the offset must not be above 0.
template <int kN, bool kBelow>
Affine solve_affine(const float* x, const float* weight, const float* q) {
  float w[kN], wq[kN], wqq[kN], wx[kN], wqx[kN];
  for (int i = 0; i < kN; ++i) {
    w[i] = weight[i];
    wq[i] = weight[i] * q[i];
    wqq[i] = wq[i] * q[i];
    wx[i] = weight[i] * x[i];
    wqx[i] = wq[i] * x[i];
  }
  const float sw = sum(w), sq = sum(wq), sqq = sum(wqq), sx = sum(wx), sqx = sum(wqx);
  const float det = sw * sqq - sq * sq;
  Affine a{0, sw > 0 ? sx / sw : 0};
  if (det > 0x1p-18f * sw * sqq) a = {(sw * sqx - sq * sx) / det, (sqq * sx - sq * sqx) / det};
  if (kBelow && a.offset > 0) a = {sqq > 0 ? sqx / sqq : 0, 0};
  if (a.scale < 0) a.scale = 0;
  return a;
}

template <int kHigh, int kN, bool kBelow>
Affine fit_affine(const float* x, const float* weight) {
  float low = x[0], high = x[0];
  for (int i = 1; i < kN; ++i) {
    low = x[i] < low ? x[i] : low;
    high = x[i] > high ? x[i] : high;
  }
  if (kBelow && low > 0) low = 0;
  Affine best{0, low};
  if (!(high - low > 0x1p-60f)) return best;
  float least = affine_error<kHigh, kN>(x, weight, best);
  const auto offer = [&](Affine from) {
    float q[kN];
    affine_levels<kHigh, kN>(x, from, q);
    const Affine a = solve_affine<kN, kBelow>(x, weight, q);
    const float error = affine_error<kHigh, kN>(x, weight, a);
    if (!(error < least)) return false;
    least = error;
    best = a;
    return true;
  };
  constexpr float kStep = kHigh / 15.f * 0.125f;
  for (int k = -kTried; k <= kTried; ++k) {
    offer({(high - low) / (kHigh + kStep * float(k)), low});
  }
  for (int k = 0; k < 4 && offer(best); ++k) {
  }
  return best;
}

// ---------------------------------------------------------------- 256 values, parts with scales

constexpr int kRounds = 3;  // of choosing the parts' integers and fitting the halves again

// value = d * scales[part] * level
template <int kParts>
struct ScaledParts {
  half_bits d = 0;
  int scales[kParts] = {};
  float levels[256] = {};
};

template <class Levels, int kParts, int kLow, int kHigh>
float choose_scales(const Normal<256>& in, const float* wanted, ScaledParts<kParts>* out) {
  constexpr int kN = 256 / kParts;
  const float d = in.read(out->d);
  float total = 0;
  for (int part = 0; part < kParts; ++part) {
    const float* x = in.x + kN * part;
    const float* weight = in.weight + kN * part;
    const int middle = d == 0 ? 0 : int(nearest(clamp(wanted[part] / d, kLow, kHigh)));
    int best = 0;
    float least = INFINITY;
    for (int s = std::max(kLow, middle - 1); s <= std::min(kHigh, middle + 1); ++s) {
      const float error = scale_error<Levels, kN>(x, weight, d * float(s));
      if (error < least) {
        least = error;
        best = s;
      }
    }
    out->scales[part] = best;
    const float scale = d * float(best), inverse = scale == 0 ? 0 : 1 / scale;
    for (int i = 0; i < kN; ++i) out->levels[kN * part + i] = Levels::level(x[i] * inverse);
    total += least;
  }
  return total;
}

// False: d is too large for a half.
template <class Levels, int kParts, int kLow, int kHigh>
bool fit_scaled_parts(const Normal<256>& in, ScaledParts<kParts>* best) {
  constexpr int kN = 256 / kParts;
  float wanted[kParts], largest = 0;
  for (int part = 0; part < kParts; ++part) {
    wanted[part] = fit_scale<Levels, kN>(in.x + kN * part, in.weight + kN * part);
    if (std::fabs(wanted[part]) > std::fabs(largest)) largest = wanted[part];
  }
  float least = INFINITY;
  float d = largest / kLow;
  for (int round = 0; round < kRounds; ++round) {
    ScaledParts<kParts> tried{};
    tried.d = in.stored(d);
    if (!is_finite(tried.d)) return round > 0;
    const float error = choose_scales<Levels, kParts, kLow, kHigh>(in, wanted, &tried);
    if (!(error < least)) return true;
    least = error;
    *best = tried;
    float qx[256], qq[256];
    for (int i = 0; i < 256; ++i) {
      const int part = i / kN;
      const float q = float(tried.scales[part]) * tried.levels[i], wq = in.weight[i] * q;
      qx[i] = wq * in.x[i];
      qq[i] = wq * q;
    }
    const float sqq = sum(qq);
    if (!(sqq > 0)) return true;
    d = sum(qx) / sqq;
  }
  return true;
}

// value = d * scales[part] * level - dmin * mins[part]
template <int kParts>
struct AffineParts {
  half_bits d = 0, dmin = 0;
  int scales[kParts] = {}, mins[kParts] = {};
  float levels[256] = {};
};

template <int kHigh, int kParts, int kMost>
float choose_affine(const Normal<256>& in, const Affine* wanted, AffineParts<kParts>* out) {
  constexpr int kN = 256 / kParts;
  const float d = in.read(out->d), dmin = in.read(out->dmin);
  float total = 0;
  for (int part = 0; part < kParts; ++part) {
    const float* x = in.x + kN * part;
    const float* weight = in.weight + kN * part;
    const int scale = d == 0 ? 0 : int(nearest(clamp(wanted[part].scale / d, 0, kMost)));
    const int min = dmin == 0 ? 0 : int(nearest(clamp(-wanted[part].offset / dmin, 0, kMost)));
    Affine best{};
    float least = INFINITY;
    for (int s = std::max(0, scale - 1); s <= std::min(kMost, scale + 1); ++s) {
      for (int m = std::max(0, min - 1); m <= std::min(kMost, min + 1); ++m) {
        const Affine tried{d * float(s), -(dmin * float(m))};
        const float error = affine_error<kHigh, kN>(x, weight, tried);
        if (error < least) {
          least = error;
          best = tried;
          out->scales[part] = s;
          out->mins[part] = m;
        }
      }
    }
    affine_levels<kHigh, kN>(x, best, out->levels + kN * part);
    total += least;
  }
  return total;
}

// The two halves that fit the chosen integers best.
template <int kParts>
Affine refit_affine(const Normal<256>& in, const AffineParts<kParts>& parts) {
  constexpr int kN = 256 / kParts;
  float aa[256], ab[256], bb[256], ax[256], bx[256];
  for (int i = 0; i < 256; ++i) {
    const int part = i / kN;
    const float a = float(parts.scales[part]) * parts.levels[i], b = -float(parts.mins[part]);
    const float wa = in.weight[i] * a, wb = in.weight[i] * b;
    aa[i] = wa * a;
    ab[i] = wa * b;
    bb[i] = wb * b;
    ax[i] = wa * in.x[i];
    bx[i] = wb * in.x[i];
  }
  const float saa = sum(aa), sab = sum(ab), sbb = sum(bb), sax = sum(ax), sbx = sum(bx);
  const float det = saa * sbb - sab * sab;
  if (det > 0x1p-18f * saa * sbb) {
    return {(sbb * sax - sab * sbx) / det, (saa * sbx - sab * sax) / det};
  }
  return {saa > 0 ? sax / saa : 0, 0};
}

// False: d or dmin is too large for a half.
template <int kHigh, int kParts, int kMost>
bool fit_affine_parts(const Normal<256>& in, AffineParts<kParts>* best) {
  constexpr int kN = 256 / kParts;
  Affine wanted[kParts];
  float d = 0, dmin = 0;
  for (int part = 0; part < kParts; ++part) {
    const Affine a = fit_affine<kHigh, kN, true>(in.x + kN * part, in.weight + kN * part);
    wanted[part] = a;
    d = a.scale > d ? a.scale : d;
    dmin = -a.offset > dmin ? -a.offset : dmin;
  }
  d /= kMost;
  dmin /= kMost;
  float least = INFINITY;
  for (int round = 0; round < kRounds; ++round) {
    AffineParts<kParts> tried{};
    tried.d = in.stored(d);
    tried.dmin = in.stored(dmin);
    if (!is_finite(tried.d) || !is_finite(tried.dmin)) return round > 0;
    const float error = choose_affine<kHigh, kParts, kMost>(in, wanted, &tried);
    if (!(error < least)) return true;
    least = error;
    *best = tried;
    const Affine again = refit_affine(in, tried);
    if (!(again.scale > 0) || again.offset < 0) return true;
    d = again.scale;
    dmin = again.offset;
  }
  return true;
}

}  // namespace culet::quant
