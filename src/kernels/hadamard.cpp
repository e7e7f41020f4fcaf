// The Walsh-Hadamard transform of a head's queries and of the keys that a q8_0 cache keeps: only
// sums, differences and one product, in an order of its own, so that every machine has the same
// bits.
#include "kernels/kernels.h"

#include <cmath>
#include <cstdint>

namespace culet::kernels {

void hadamard(const float* x, int64_t n, float* y) {
  const int64_t piece = n & -n;
  const float scale = 1.0f / std::sqrt(static_cast<float>(piece));
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * scale;
  for (int64_t half = 1; half < piece; half *= 2) {
    for (int64_t i = 0; i < n; i += 2 * half) {
      float *a = y + i, *b = a + half;
      for (int64_t j = 0; j < half; ++j) {
        const float sum = a[j] + b[j], difference = a[j] - b[j];
        a[j] = sum;
        b[j] = difference;
      }
    }
  }
}

}  // namespace culet::kernels
