#include "sample/numbers.h"

#include <algorithm>
#include <cmath>

namespace culet::sample {
namespace {

constexpr double kLn2High = 0x1.62e42fee00000p-1, kLn2Low = 0x1.a39ef35793c76p-33;

// Source: Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014 (SplitMix64).
uint64_t splitmix64(uint64_t seed, uint64_t n) {
  uint64_t z = seed + (n + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

}  // namespace

// x = m * 2^e, m in [sqrt(1/2), sqrt(2)); log m = 2 atanh(s), s = (m - 1) / (m + 1), |s| < 0.172.
double natural_log(double x) {
  int e = 0;
  double m = std::frexp(x, &e);
  if (m < 0x1.6a09e667f3bcdp-1) {
    m *= 2;
    --e;
  }
  const double s = (m - 1) / (m + 1), z = s * s;
  double sum = 0;
  for (int k = 23; k >= 3; k -= 2) sum = (sum + 1.0 / k) * z;  // z/3 + z^2/5 + ...
  return e * kLn2High + (2 * s + (2 * s * sum + e * kLn2Low));
}

// x = k ln 2 + r, |r| <= ln 2 / 2; exp r by its series.
double natural_exp(double x) {
  if (!(x >= -708)) return 0;
  x = std::min(x, 708.0);
  const double k = std::floor(x * 0x1.71547652b82fep+0 + 0.5);
  const double r = (x - k * kLn2High) - k * kLn2Low;
  double sum = 1;
  for (int i = 14; i >= 1; --i) sum = 1 + sum * r / i;
  return std::ldexp(sum, static_cast<int>(k));
}

double uniform(uint64_t seed, uint64_t n) {
  return static_cast<double>(splitmix64(seed, n) >> 11) * 0x1p-53;
}

uint64_t stream(uint64_t seed, Purpose purpose) {
  if (purpose == Purpose::kToken) return seed;
  return splitmix64(seed ^ 0xD1B54A32D192ED03u, static_cast<uint64_t>(purpose));
}

}  // namespace culet::sample
