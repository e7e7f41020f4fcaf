// Cosine and sine tables for rotary embeddings, in float64 with culet's own exp, log, sin and cos:
// libm picks its code by CPU and so may differ in the last bit; these loops do not.
//
// The angle position * theta is kept as a sum of two float64 (the product and its error), reduced
// by multiples of pi/2 in two parts, so that position 10^8 is as exact as position 10. Error bound
// of sin and cos before rounding to float32: 1e-15 for angles up to 10^9.
#include "kernels/kernels.h"

#include <bit>
#include <cstdint>

namespace culet::kernels {
namespace {

constexpr double kLn2High = 0x1.62e42fee00000p-1;  // 33 bits: n * kLn2High is exact
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
constexpr double kHalfPi = 0x1.921fb54442d18p+0;
constexpr double kHalfPiLow = 0x1.1a62633145c07p-54;
constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
constexpr double kRound = 0x1.8p52;  // adding it rounds to an integer

double power_of_two(int n) { return std::bit_cast<double>(static_cast<uint64_t>(n + 1023) << 52); }

// log of a positive normal x: x = 2^e * m, m in [sqrt(1/2), sqrt(2)); log m = 2 atanh((m-1)/(m+1)).
double log_double(double x) {
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  int e = static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0xfffffffffffffull) | 1023ull << 52);
  if (m > 0x1.6a09e667f3bcdp+0) {
    m *= 0.5;
    e++;
  }
  const double s = (m - 1) / (m + 1), z = s * s;
  double sum = 0;
  for (int k = 25; k >= 3; k -= 2) sum = sum * z + 1.0 / k;
  const double tail = 2 * s * z * sum;
  return e * kLn2High + (2 * s + (tail + e * kLn2Low));
}

// exp for |x| below 700, by its Taylor series after reduction to |r| <= ln(2) / 2.
double exp_double(double x) {
  const double n = (x * 0x1.71547652b82fep+0 + kRound) - kRound;
  const double r = (x - n * kLn2High) - n * kLn2Low;
  double sum = 1;
  for (int k = 14; k >= 1; k--) sum = 1 + sum * r / k;
  return sum * power_of_two(static_cast<int>(n));
}

constexpr double kSin[] = {-0x1.5555555555555p-3, 0x1.1111111111111p-7,   -0x1.a01a01a01a01ap-13,
                           0x1.71de3a556c734p-19, -0x1.ae64567f544e4p-26, 0x1.6124613a86d09p-33,
                           -0x1.ae7f3e733b81fp-41};
constexpr double kCos[] = {0x1.5555555555555p-5,   -0x1.6c16c16c16c17p-10, 0x1.a01a01a01a01ap-16,
                           -0x1.27e4fb7789f5cp-22, 0x1.1eed8eff8d898p-29,  -0x1.93974a8c07c9dp-37};

// Taylor series on [-pi/4, pi/4]; coefficients are (-1)^k / n! rounded to float64.
double sin_reduced(double r) {
  const double z = r * r;
  double p = kSin[6];
  for (int i = 5; i >= 0; i--) p = p * z + kSin[i];
  return r + r * z * p;
}
double cos_reduced(double r) {
  const double z = r * r;
  double p = kCos[5];
  for (int i = 4; i >= 0; i--) p = p * z + kCos[i];
  return 1 - (0.5 * z - z * z * p);
}

// hi + lo = a * b exactly (Dekker's product; no hardware fma needed).
void exact_product(double a, double b, double* hi, double* lo) {
  constexpr double kSplit = 134217729.0;  // 2^27 + 1
  const double ta = a * kSplit, tb = b * kSplit;
  const double a1 = ta - (ta - a), a0 = a - a1;
  const double b1 = tb - (tb - b), b0 = b - b1;
  *hi = a * b;
  *lo = ((a1 * b1 - *hi) + a1 * b0 + a0 * b1) + a0 * b0;
}

void sin_cos(double position, double theta, double* s, double* c) {
  double angle, error, turn, turn_error;
  exact_product(position, theta, &angle, &error);
  const double n = (angle * kTwoOverPi + kRound) - kRound;
  exact_product(n, kHalfPi, &turn, &turn_error);
  // angle - turn is exact (they are close); the rest are corrections far below it.
  const double r = (angle - turn) + (error - turn_error - n * kHalfPiLow);
  const double sr = sin_reduced(r), cr = cos_reduced(r);
  const int64_t quarter = static_cast<int64_t>(n) & 3;
  const double ss = quarter & 1 ? cr : sr, cc = quarter & 1 ? sr : cr;
  *s = quarter & 2 ? -ss : ss;
  *c = quarter == 1 || quarter == 2 ? -cc : cc;
}

}  // namespace

void rope_frequencies(double base, int32_t dims, RopeScale scale, const float* factors,
                      double* theta) {
  const double log_base = log_double(base);
  for (int32_t i = 0; i < dims / 2; i++) {
    double scale_i = scale.scale;
    if (scale.mix_to > 0) {
      const double way = (i - scale.mix_from) / (scale.mix_to - scale.mix_from);
      const double part = way < 0 ? 0 : way > 1 ? 1 : way;
      scale_i = scale.scale * part + (1 - part);
    }
    const double t = exp_double(-2.0 * i / dims * log_base);
    theta[i] = t * scale_i / (factors ? static_cast<double>(factors[i]) : 1.0);
  }
}

void rope_table(const double* theta, int32_t dims, int64_t position, double attn_factor,
                float* out) {
  const int32_t half = dims / 2;
  for (int32_t i = 0; i < half; i++) {
    double s, c;
    sin_cos(static_cast<double>(position), theta[i], &s, &c);
    out[i] = static_cast<float>(c * attn_factor);
    out[half + i] = static_cast<float>(s * attn_factor);
  }
}

}  // namespace culet::kernels
