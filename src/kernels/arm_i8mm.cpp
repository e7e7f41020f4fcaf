// Integer matrix products with the matrix instructions of ARMv8.6 (smmla): 2 outputs x 2 rows of
// activations, 8 k at once. One row alone, and an odd last one, go through sdot.
//
// Two words of four k lie in two lines of the packed block; zipping them gives 8 k of two outputs.
//
// Nothing here may have external or weak linkage but add_i8mm: this file is compiled for one CPU
// family and the linker must not pick its code for others.
#include "kernels/arm_neon_lanes.h"
#include "kernels/levels.h"
// After the vectors that they are written in.
#include "kernels/arm_dotprod_dots.h"

namespace culet::kernels {
namespace {

constexpr int max_rows(const PackedLayout& l) { return halves(l) ? 4 : 8; }
CULET_INLINE int64_t tile_rows(int64_t rows, int64_t max) {
  return rows >= max ? max : rows > 1 ? rows / 2 * 2 : 1;
}

struct Square {  // of 8 outputs x 2 rows: registers of 2 x 2, the rows of an output side by side
  int32x4_t v[4];
};
struct Words8 {  // 8 k of 8 outputs, two outputs a register
  int8x16_t v[4];
};

CULET_INLINE int8x16_t zip_low(int8x16_t x, int8x16_t y) {
  return vreinterpretq_s8_s32(vzip1q_s32(vreinterpretq_s32_s8(x), vreinterpretq_s32_s8(y)));
}
CULET_INLINE int8x16_t zip_high(int8x16_t x, int8x16_t y) {
  return vreinterpretq_s8_s32(vzip2q_s32(vreinterpretq_s32_s8(x), vreinterpretq_s32_s8(y)));
}
CULET_INLINE Words8 zip(Bytes x, Bytes y) {
  return {{zip_low(signed_a(x), signed_a(y)), zip_high(signed_a(x), signed_a(y)),
           zip_low(signed_b(x), signed_b(y)), zip_high(signed_b(x), signed_b(y))}};
}

template <int kIndex, int R, int P>
struct MatrixDots {
  static constexpr PackedLayout l = kLayouts[kIndex];
  static constexpr int H = halves(l) ? 2 : 1;
  Square dot[R / 2][P][H];

  CULET_INLINE void start(const Scales<kIndex>*, const int16_t*, int64_t) {
    unroll<R / 2 * P * H * 4>(CULET_LAMBDA(&, auto i) {
      dot[i / 4 / H / P][i / 4 / H % P][i / 4 % H].v[i % 4] = vdupq_n_s32(0);
    });
  }

  CULET_INLINE static void add(Words8 w, int8x16_t a, Square* s) {
    unroll<4>(CULET_LAMBDA(&, auto i) { s->v[i] = vmmlaq_s32(s->v[i], w.v[i], a); });
  }
  CULET_INLINE static int8x16_t two_rows(const int8_t* q, int64_t q_stride) {
    return vcombine_s8(vld1_s8(q), vld1_s8(q + q_stride));
  }

  // Odd steps take the words of the step before, too.
  template <int kT>
  CULET_INLINE void step(const uint8_t* const* codes, const int8_t* q, int64_t q_stride) {
    if constexpr (kT % 2 == 1)
      unroll<P>(CULET_LAMBDA(&, auto p) {
        Bytes low[2], high[2];
        widen<kIndex, kT - 1>(codes[p], &low[0], &high[0]);
        widen<kIndex, kT>(codes[p], &low[1], &high[1]);
        const Words8 w0 = zip(signed_weights<kIndex>(low[0]), signed_weights<kIndex>(low[1]));
        const Words8 w1 = zip(signed_weights<kIndex>(high[0]), signed_weights<kIndex>(high[1]));
        unroll<R / 2>(CULET_LAMBDA(&, auto r) {
          const int8_t* a = q + 2 * r * q_stride + 4 * (kT - 1);
          add(w0, two_rows(a, q_stride), &dot[r][p][0]);
          add(w1, two_rows(a + 16, q_stride), &dot[r][p][H - 1]);
        });
      });
  }

  template <int kOdd>
  CULET_INLINE static Ints row_of(const Square& s) {
    if constexpr (kOdd) return {vuzp2q_s32(s.v[0], s.v[1]), vuzp2q_s32(s.v[2], s.v[3])};
    return {vuzp1q_s32(s.v[0], s.v[1]), vuzp1q_s32(s.v[2], s.v[3])};
  }
  template <int kR, int kP>
  CULET_INLINE Ints isum(const Scales<kIndex>& w) const {
    const Ints low = row_of<kR % 2>(dot[kR / 2][kP][0]);
    if constexpr (!halves(l)) return low;
    return low * w.scale[0] + row_of<kR % 2>(dot[kR / 2][kP][H - 1]) * w.scale[1];
  }
};

template <int kIndex, int R, int P, bool kPairs>
struct ChooseDots {
  typedef DotprodDots<kIndex, R, P> Type;
};
template <int kIndex, int R, int P>
struct ChooseDots<kIndex, R, P, true> {
  typedef MatrixDots<kIndex, R, P> Type;
};
template <int kIndex, int R, int P>
using Dots = typename ChooseDots<kIndex, R, P, R % 2 == 0>::Type;

}  // namespace
}  // namespace culet::kernels

#include "kernels/lane_matmul_q.h"

namespace culet::kernels {

void add_i8mm(Kernels* table) { add_matmul_q<0>(table); }

}  // namespace culet::kernels
