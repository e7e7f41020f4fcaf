// CPU detection. Asked, not guessed: feature bits of CPUID leaf 1 and 7, and XCR0 for the register
// state that the operating system switches; on ARM the kernel's list of capabilities.
#include "kernels/cpu.h"

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace culet::kernels {
#if defined(__x86_64__)
namespace {

struct Leaf {
  uint32_t a = 0, b = 0, c = 0, d = 0;
};

Leaf cpuid(uint32_t leaf, uint32_t sub) {
  Leaf r;
  if (__get_cpuid_max(0, nullptr) < leaf) return r;
  __cpuid_count(leaf, sub, r.a, r.b, r.c, r.d);
  return r;
}

uint64_t xcr0() {
  uint32_t low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<uint64_t>(high) << 32 | low;
}

bool bits(uint32_t word, uint32_t mask) { return (word & mask) == mask; }

}  // namespace

CpuFeatures cpu_features() {
  CpuFeatures f = {};
  const Leaf one = cpuid(1, 0), seven = cpuid(7, 0);
  if (!bits(one.c, bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C)) return f;
  const uint64_t kAvxState = 0x6;      // xmm, ymm
  const uint64_t kAvx512State = 0xe6;  // also masks, upper halves of zmm, zmm 16..31
  f.avx2 = (xcr0() & kAvxState) == kAvxState && bits(seven.b, bit_AVX2);
  if ((xcr0() & kAvx512State) != kAvx512State) return f;
  f.avx512 =
      bits(seven.b, bit_AVX2 | bit_BMI2 | bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ);
  f.avx512vnni = f.avx512 && bits(seven.c, bit_AVX512VNNI);
  return f;
}
#elif defined(__aarch64__)
CpuFeatures cpu_features() {
  CpuFeatures f = {};
  f.neon = true;
#if defined(__linux__)
  constexpr unsigned long kDotProduct = 1ul << 20;  // AT_HWCAP: asimddp
  constexpr unsigned long kInt8Matrix = 1ul << 13;  // AT_HWCAP2: i8mm
  f.dotprod = (getauxval(AT_HWCAP) & kDotProduct) != 0;
  f.i8mm = f.dotprod && (getauxval(AT_HWCAP2) & kInt8Matrix) != 0;
#endif
  return f;
}
#else
CpuFeatures cpu_features() { return {}; }
#endif

}  // namespace culet::kernels
