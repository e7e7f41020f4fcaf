// Every kernel with the NEON of any 64-bit ARM: the shared code of lane_*.h on pairs of registers.
//
// Integer dots multiply signed bytes into int16 and add products of neighbouring k there while they
// fit: all 8 words of a block for weights of up to 6 bits (32 * 127 * 8 and 31 * 127 * 8 do), two
// words for 8 bits (128 * 127 * 2); then pairs are added into int32.
#include "kernels/arm_neon_lanes.h"
#include "kernels/levels.h"
// After the vectors that they are written in.
#include "kernels/lane_attention.h"
#include "kernels/lane_matmul_f.h"
#include "kernels/lane_rows.h"

namespace culet::kernels {
namespace {

constexpr int max_rows(const PackedLayout& l) { return halves(l) ? 2 : 4; }
CULET_INLINE int64_t tile_rows(int64_t rows, int64_t max) { return even_share(rows, max); }

constexpr bool eight_bits(const PackedLayout& l) { return l.low == 8 || l.book == kBookNl; }

struct Sums16 {  // of two outputs a register
  int16x8_t v[4];
};
struct Pairs32 {  // two sums an output, two outputs a register
  int32x4_t v[4];
};

template <int kIndex, int R, int P>
struct Dots {
  static constexpr PackedLayout l = kLayouts[kIndex];
  static constexpr int H = halves(l) ? 2 : 1;
  Sums16 s16[R][P][H];
  Pairs32 s32[R][P];

  CULET_INLINE void start(const Scales<kIndex>*, const int16_t*, int64_t) {
    unroll<4 * R * P>(CULET_LAMBDA(&, auto i) {
      s32[i / 4 / P][i / 4 % P].v[i % 4] = vdupq_n_s32(0);
      unroll<H>(
          CULET_LAMBDA(&, auto h) { s16[i / 4 / P][i / 4 % P][h].v[i % 4] = vdupq_n_s16(0); });
    });
  }

  CULET_INLINE void add(Bytes w, int8x8_t a, Sums16* s) {
    s->v[0] = vmlal_s8(s->v[0], vget_low_s8(signed_a(w)), a);
    s->v[1] = vmlal_s8(s->v[1], vget_high_s8(signed_a(w)), a);
    s->v[2] = vmlal_s8(s->v[2], vget_low_s8(signed_b(w)), a);
    s->v[3] = vmlal_s8(s->v[3], vget_high_s8(signed_b(w)), a);
  }
  CULET_INLINE static int8x8_t broadcast32(const int8_t* p) {
    int32_t v;
    __builtin_memcpy(&v, p, 4);
    return vreinterpret_s8_s32(vdup_n_s32(v));
  }

  template <int kT>
  CULET_INLINE void step(const uint8_t* const* codes, const int8_t* q, int64_t q_stride) {
    unroll<P>(CULET_LAMBDA(&, auto p) {
      Bytes low, high;
      widen<kIndex, kT>(codes[p], &low, &high);
      low = signed_weights<kIndex>(low);
      high = signed_weights<kIndex>(high);
      unroll<R>(CULET_LAMBDA(&, auto r) {
        const int8_t* a = q + r * q_stride + 4 * kT;
        add(low, broadcast32(a), &s16[r][p][0]);
        add(high, broadcast32(a + 16), &s16[r][p][H - 1]);
        if constexpr (eight_bits(l))
          unroll<4>(CULET_LAMBDA(&, auto i) {
            s32[r][p].v[i] = vpadalq_s16(s32[r][p].v[i], s16[r][p][0].v[i]);
            s16[r][p][0].v[i] = vdupq_n_s16(0);
          });
      });
    });
  }

  CULET_INLINE static Ints whole(Pairs32 s) {
    return {vpaddq_s32(s.v[0], s.v[1]), vpaddq_s32(s.v[2], s.v[3])};
  }
  CULET_INLINE static Ints whole(Sums16 s) {
    return whole(Pairs32{
        {vpaddlq_s16(s.v[0]), vpaddlq_s16(s.v[1]), vpaddlq_s16(s.v[2]), vpaddlq_s16(s.v[3])}});
  }

  template <int kR, int kP>
  CULET_INLINE Ints isum(const Scales<kIndex>& w) const {
    if constexpr (eight_bits(l)) return whole(s32[kR][kP]);
    if constexpr (!halves(l)) return whole(s16[kR][kP][0]);
    return whole(s16[kR][kP][0]) * w.scale[0] + whole(s16[kR][kP][H - 1]) * w.scale[1];
  }
};

}  // namespace
}  // namespace culet::kernels

#include "kernels/lane_matmul_q.h"

namespace culet::kernels {

void add_neon(Kernels* table) {
  add_lane_rows(table);
  add_lane_attention(table);
  add_lane_matmul_f(table);
  add_matmul_q<0>(table);
}

}  // namespace culet::kernels
