// Coefficients of culet's own exp, tanh and erf, shared by every instruction set.
//
// Each function is a fixed sequence of float32 operations (scalar_math.h is its definition), so the
// same bits come out everywhere. Coefficients: minimax fits (Remez in 40 digits, then rounded).
// Largest errors against float64 over a stride of all float32 patterns, in units of the last place
// (math_test.cpp asserts them): exp 0.94 (0 below -60 ln 2), tanh 1.18, erf 1.09, sigmoid 2.0 (0
// below -88.7).
#pragma once

namespace culet::kernels {
namespace {

// A block of activations whose largest magnitude is below this is quantized to zeros
// (docs/decisions/0011). The reciprocal of its scale is finite from here on.
constexpr float kQuantizeLow = 0x1p-64f;

// exp(x) = 2^n * (1 + r + r^2 * q(r)), n = nearest-even(x / ln 2), r = x - n * ln 2 in two parts.
// Below kExpLow, the smallest float that is not below -60 ln 2, the result is 0 (docs/decisions/
// 0011), so no result is subnormal. Above kExpHigh it is infinite, which follows from the scaling
// by 2^n.
constexpr float kExpLow = -0x1.4cb5ecp+5f;
constexpr float kExpHigh = 89.0f;
constexpr float kLog2e = 0x1.715476p+0f;
constexpr float kRoundMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
constexpr float kLn2High = 0x1.62e400p-1f;  // 16 bits, so n * kLn2High is exact
constexpr float kLn2Low = 0x1.7f7d1cp-20f;
constexpr float kExp2 = 0x1.fffffcp-2f;  // q's coefficients, ascending
constexpr float kExp3 = 0x1.55548ap-3f;
constexpr float kExp4 = 0x1.555914p-5f;
constexpr float kExp5 = 0x1.123fb6p-7f;
constexpr float kExp6 = 0x1.6a1bfap-10f;

// |x| < kTanhSplit: tanh(x) = x + x * z * p(z), z = x^2; else 1 - 2 / (exp(2 |x|) + 1).
constexpr float kTanhSplit = 0.625f;
constexpr float kTanh0 = -0x1.555552p-2f;
constexpr float kTanh1 = 0x1.11102ap-3f;
constexpr float kTanh2 = -0x1.b9e234p-5f;
constexpr float kTanh3 = 0x1.6300d8p-6f;
constexpr float kTanh4 = -0x1.093eeep-7f;
constexpr float kTanh5 = 0x1.0ee368p-9f;

// |x| < kErfSplit: erf(x) = x + x * p(x^2); else 1 - exp(q(min(|x|, kErfHigh))), q ~ log erfc.
constexpr float kErfSplit = 0.921875f;
constexpr float kErfHigh = 4.0f;
constexpr float kErfS0 = 0x1.06eba8p-3f;
constexpr float kErfS1 = -0x1.812742p-2f;
constexpr float kErfS2 = 0x1.ce2e0ap-4f;
constexpr float kErfS3 = -0x1.b80e90p-6f;
constexpr float kErfS4 = 0x1.54c7f6p-8f;
constexpr float kErfS5 = -0x1.aa3f30p-11f;
constexpr float kErfS6 = 0x1.5cd4b6p-14f;
constexpr float kErfL0 = 0x1.70d642p-13f;
constexpr float kErfL1 = -0x1.212846p+0f;
constexpr float kErfL2 = -0x1.444470p-1f;
constexpr float kErfL3 = -0x1.bb9270p-4f;
constexpr float kErfL4 = 0x1.9bb51ap-6f;
constexpr float kErfL5 = -0x1.1196e6p-8f;
constexpr float kErfL6 = 0x1.c85c36p-12f;
constexpr float kErfL7 = -0x1.6309bap-16f;

// gelu(x) = (0.5 x) * (1 + tanh(kGeluA * fma(kGeluB * x^2, x, x))); gelu_erf uses erf(x *
// sqrt(1/2)).
constexpr float kGeluA = 0.7978845608f;
constexpr float kGeluB = 0.044715f;
constexpr float kSqrtHalf = 0x1.6a09e6p-1f;

}  // namespace
}  // namespace culet::kernels
