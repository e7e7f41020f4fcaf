// What this processor can run: on x86 from CPUID and XCR0 (the operating system must save the
// registers), on ARM from the auxiliary vector.
#pragma once

namespace culet::kernels {

struct CpuFeatures {
  bool avx2;        // with FMA and F16C, and ymm registers saved
  bool avx512;      // F, BW, VL, DQ with F16C and FMA, and zmm and mask registers saved
  bool avx512vnni;  // avx512 and VNNI
  bool neon;        // any 64-bit ARM
  bool dotprod;     // sdot
  bool i8mm;        // dotprod and smmla
};
CpuFeatures cpu_features();

}  // namespace culet::kernels
