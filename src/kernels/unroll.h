// Loops over register tiles, unrolled while the compiler still sees arrays.
//
// A loop over an array of accumulators that is unrolled late leaves the array in memory, with a
// store per fma. unroll<N>(f) calls f(Index<0>()) .. f(Index<N - 1>()), all inlined, so every index
// is a constant from the start and each element becomes a register. For instruction-set files.
#pragma once

#define CULET_INLINE inline __attribute__((always_inline))
#define CULET_LAMBDA(capture, ...) [capture](__VA_ARGS__) __attribute__((always_inline))

namespace culet::kernels {
namespace {

template <int kValue>
struct Index {
  constexpr operator int() const { return kValue; }
};

template <int N, class F>
CULET_INLINE void unroll(const F& f) {
  if constexpr (N > 0) {
    unroll<N - 1>(f);
    f(Index<N - 1>());
  }
}

}  // namespace
}  // namespace culet::kernels
