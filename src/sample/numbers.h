// Numbers that decide a draw: logarithm, exponential and random numbers with the same bits on every
// machine, which the C library does not promise.
#pragma once

#include <cstdint>

namespace culet::sample {

// log(x) of a positive finite x, within an ulp or two.
double natural_log(double x);

// exp(x), within an ulp or two; 0 below -708, at most exp(708).
double natural_exp(double x);

// The n-th number (from 0) of the stream `seed`, uniform in [0, 1), a multiple of 2^-53.
double uniform(uint64_t seed, uint64_t n);

// What a random number is for. Each purpose has a stream of its own, so that one use never depends
// on another.
enum class Purpose : uint8_t { kToken, kXtc, kAccept, kResidual };
uint64_t stream(uint64_t seed, Purpose purpose);

}  // namespace culet::sample
