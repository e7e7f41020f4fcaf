// Integer dots with sdot: four products of signed bytes a lane into int32. For ARM files that have
// the instruction; everything has internal linkage.
#pragma once

#include "kernels/lane_blocks.h"

namespace culet::kernels {
namespace {

template <int kIndex, int R, int P>
struct DotprodDots {
  static constexpr PackedLayout l = kLayouts[kIndex];
  static constexpr int H = halves(l) ? 2 : 1;
  Ints dot[R][P][H];

  CULET_INLINE void start(const Scales<kIndex>*, const int16_t*, int64_t) {
    unroll<R * P * H>(
        CULET_LAMBDA(&, auto i) { dot[i / H / P][i / H % P][i % H] = set1(int32_t{0}); });
  }

  template <int kT>
  CULET_INLINE static void add(Bytes w, int8x16_t a, Ints* sum) {
    sum->a = vdotq_laneq_s32(sum->a, signed_a(w), a, kT);
    sum->b = vdotq_laneq_s32(sum->b, signed_b(w), a, kT);
  }

  template <int kT>
  CULET_INLINE void step(const uint8_t* const* codes, const int8_t* q, int64_t q_stride) {
    unroll<P>(CULET_LAMBDA(&, auto p) {
      Bytes low, high;
      widen<kIndex, kT>(codes[p], &low, &high);
      low = signed_weights<kIndex>(low);
      high = signed_weights<kIndex>(high);
      unroll<R>(CULET_LAMBDA(&, auto r) {
        add<kT>(low, vld1q_s8(q + r * q_stride), &dot[r][p][0]);
        add<kT>(high, vld1q_s8(q + r * q_stride + 16), &dot[r][p][H - 1]);
      });
    });
  }

  template <int kR, int kP>
  CULET_INLINE Ints isum(const Scales<kIndex>& w) const {
    if constexpr (!halves(l)) return dot[kR][kP][0];
    return dot[kR][kP][0] * w.scale[0] + dot[kR][kP][H - 1] * w.scale[1];
  }
};

}  // namespace
}  // namespace culet::kernels
