// The floating-point control word that every result depends on: round to nearest even, subnormals
// kept (no flush to zero), no traps. A host program may have changed it on its own threads, so it
// is set wherever a thread starts to compute for us. Per thread; costs a few cycles when already
// set.
#pragma once

#include <cstdint>

#if defined(__x86_64__) || defined(__i386__)
#include <xmmintrin.h>
#endif

namespace culet::base {

inline void set_float_mode() {
#if defined(__x86_64__) || defined(__i386__)
  constexpr unsigned kStatus = 0x003f;  // sticky flags: not a mode, left alone
  constexpr unsigned kMode = 0x1f80;    // traps masked; rounding, FTZ and DAZ bits zero
  const unsigned now = _mm_getcsr();
  if ((now & ~kStatus) != kMode) _mm_setcsr((now & kStatus) | kMode);
#elif defined(__aarch64__)
  constexpr uint64_t kMode = 0x07c89f07;  // AHP DN FZ RMode, FZ16, trap enables, FIZ AH NEP
  uint64_t now;
  __asm__ volatile("mrs %0, fpcr" : "=r"(now));
  if (now & kMode) __asm__ volatile("msr fpcr, %0" : : "r"(now & ~kMode));
#endif
}

}  // namespace culet::base
