// Every kernel with AVX2, FMA and F16C: the shared code of lane_*.h on ymm registers.
//
// Integer dots go through vpmaddubsw, unsigned codes x signed activations into int16 pairs, which
// must not saturate: codes of up to 6 bits are summed in int16 for as many words as fit (8 words of
// 4 bits, 4 of 5, 2 of 6), then vpmaddwd widens them, multiplied by the sub-scale where the type
// has one per 16 values. What the codes' offset added is taken off with the activations' sums.
// 8-bit weights go in as |w| with the activation carrying w's sign: 128 * 127 * 2 still fits.
//
// Nothing here may have external or weak linkage but add_avx2: this file is compiled for one CPU
// family and the linker must not pick its code for others.
#include "kernels/levels.h"
#include "kernels/x86_avx2_lanes.h"
// After the vectors that they are written in.
#include "kernels/lane_attention.h"
#include "kernels/lane_matmul_f.h"
#include "kernels/lane_rows.h"

namespace culet::kernels {
namespace {

constexpr int max_rows(const PackedLayout& l) { return halves(l) ? 4 : 5; }
CULET_INLINE int64_t tile_rows(int64_t rows, int64_t max) { return even_share(rows, max); }

constexpr bool eight_bits(const PackedLayout& l) { return l.low == 8 || l.book == kBookNl; }
constexpr int largest_code(const PackedLayout& l) {
  return l.book == kBookFp4 ? 24 : (1 << (l.low + l.high)) - 1;
}
// Steps after which int16 sums are full; a step adds two words to a sum, one if halves are apart.
constexpr int full_steps(const PackedLayout& l) {
  const int words = 32767 / (2 * 127 * largest_code(l)), steps = halves(l) ? words : words / 2;
  return steps >= 4 ? 4 : steps >= 2 ? 2 : 1;
}

template <int kIndex, int R, int P>
struct Dots {
  static constexpr PackedLayout l = kLayouts[kIndex];
  static constexpr int H = halves(l) ? 2 : 1;
  __m256i s16[R][P][H], s32[R][P], factor[P][H];

  CULET_INLINE void start(const Scales<kIndex>* scales, const int16_t* sums, int64_t stride) {
    unroll<P>(CULET_LAMBDA(&, auto p) {
      __m256i offset = _mm256_set1_epi16(-bias(l));
      if constexpr (halves(l)) {
        factor[p][0] = pairs_of(scales[p].scale[0], scales[p].scale[0]);
        factor[p][1] = pairs_of(scales[p].scale[1], scales[p].scale[1]);
        offset = _mm256_mullo_epi16(offset, pairs_of(scales[p].scale[0], scales[p].scale[1]));
      } else {
        factor[p][0] = _mm256_set1_epi16(1);
      }
      unroll<R>(CULET_LAMBDA(&, auto r) {
        s32[r][p] = _mm256_setzero_si256();
        if constexpr (bias(l) != 0 && !eight_bits(l))
          s32[r][p] = _mm256_madd_epi16(broadcast32(sums + r * stride), offset);
        unroll<H>(CULET_LAMBDA(&, auto h) { s16[r][p][h] = _mm256_setzero_si256(); });
      });
    });
  }

  CULET_INLINE void add(__m256i w, __m256i a, __m256i* sum) {
    *sum = _mm256_add_epi16(*sum, _mm256_maddubs_epi16(w, a));
  }
  CULET_INLINE void add_signed(__m256i w, __m256i abs, __m256i a, __m256i* sum) {
    const __m256i pairs = _mm256_maddubs_epi16(abs, _mm256_sign_epi8(a, w));
    *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }

  template <int kT>
  CULET_INLINE void step(const uint8_t* const* codes, const int8_t* q, int64_t q_stride) {
    unroll<P>(CULET_LAMBDA(&, auto p) {
      Bytes low, high;
      widen<kIndex, kT>(codes[p], &low, &high);
      if constexpr (eight_bits(l)) {
        low = signed_weights<kIndex>(low);
        high = signed_weights<kIndex>(high);
      } else {
        low = book_codes<kIndex>(low);
        high = book_codes<kIndex>(high);
      }
      const __m256i abs_low = _mm256_abs_epi8(low.v), abs_high = _mm256_abs_epi8(high.v);
      unroll<R>(CULET_LAMBDA(&, auto r) {
        const __m256i a_low = broadcast32(q + r * q_stride + 4 * kT);
        const __m256i a_high = broadcast32(q + r * q_stride + 4 * kT + 16);
        if constexpr (eight_bits(l)) {
          add_signed(low.v, abs_low, a_low, &s32[r][p]);
          add_signed(high.v, abs_high, a_high, &s32[r][p]);
        } else {
          add(low.v, a_low, &s16[r][p][0]);
          add(high.v, a_high, &s16[r][p][H - 1]);
        }
        if constexpr (!eight_bits(l) && (kT + 1) % full_steps(l) == 0)
          unroll<H>(CULET_LAMBDA(&, auto h) {
            s32[r][p] = _mm256_add_epi32(s32[r][p], _mm256_madd_epi16(s16[r][p][h], factor[p][h]));
            s16[r][p][h] = _mm256_setzero_si256();
          });
      });
    });
  }

  template <int kR, int kP>
  CULET_INLINE Ints isum(const Scales<kIndex>&) const {
    return {s32[kR][kP]};
  }
};

}  // namespace
}  // namespace culet::kernels

#include "kernels/lane_matmul_q.h"

namespace culet::kernels {

void add_avx2(Kernels* table) {
  add_lane_rows(table);
  add_lane_attention(table);
  add_lane_matmul_f(table);
  add_matmul_q<0>(table);
}

}  // namespace culet::kernels
