// Packed blocks in AVX-512 registers: codes widened to bytes, scales to float32. Shared by the
// integer and the float matrix kernels; everything has internal linkage.
#pragma once

#include "kernels/layout.h"
#include "kernels/unroll.h"
#include "quant/blocks.h"

#include <immintrin.h>
#include <stdint.h>

namespace culet::kernels {
namespace {

constexpr bool halves(const PackedLayout& l) { return l.sub == kSubPair || l.sub == kSubNibble; }
// What has to be taken from an unsigned code to get the weight.
constexpr int bias(const PackedLayout& l) {
  return l.book == kBookNl ? 128 : l.book == kBookFp4 ? 12 : l.offset;
}
CULET_INLINE __m512i load(const uint8_t* p) { return _mm512_loadu_si512(p); }
CULET_INLINE __m512 half16(const uint8_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
CULET_INLINE __m128i load16(const uint8_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
CULET_INLINE __m512 unsigned16(const uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(load16(p)));
}

template <int kShift>  // left if positive
CULET_INLINE __m512i shift(__m512i v) {
  if constexpr (kShift > 0) return _mm512_slli_epi16(v, kShift);
  if constexpr (kShift < 0) return _mm512_srli_epi16(v, -kShift);
  return v;
}

// v | (plane bits at `from`, moved to `to`), `bits` wide.
template <int kFrom, int kTo, int kBits>
CULET_INLINE __m512i add_bits(__m512i v, __m512i plane) {
  const __m512i mask = _mm512_set1_epi8(((1 << kBits) - 1) << kTo);
  return _mm512_ternarylogic_epi32(v, shift<kTo - kFrom>(plane), mask, 0xf8);
}

template <PackedBook kBook>
CULET_INLINE __m512i book_table() {
  const int8_t* values = kBook == kBookNl ? quant::kIq4Values : quant::kMxfp4Values;
  const __m128i add = _mm_set1_epi8(static_cast<char>(kBook == kBookNl ? 128 : 12));
  return _mm512_broadcast_i32x4(
      _mm_add_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(values)), add));
}

// Unsigned codes of words kT and kT + 4 (k = 4 kT .. and 16 + 4 kT ..) of a k-block.
template <int kIndex, int kT>
CULET_INLINE void widen(const uint8_t* codes, __m512i* low, __m512i* high) {
  constexpr PackedLayout l = kLayouts[kIndex];
  constexpr int kPairShift = 4 * (kT % 2);
  if constexpr (l.low == 8) {
    *low = load(codes + 64 * kT);
    *high = load(codes + 64 * (kT + 4));
  } else if constexpr (l.low == 4) {
    const __m512i v = load(codes + 64 * kT), mask = _mm512_set1_epi8(15);
    *low = _mm512_and_si512(v, mask);
    *high = _mm512_and_si512(_mm512_srli_epi16(v, 4), mask);
  } else {
    const __m512i v = load(codes + 64 * (kT / 2)), mask = _mm512_set1_epi8(3);
    *low = _mm512_and_si512(shift<-kPairShift>(v), mask);
    *high = _mm512_and_si512(shift<-(kPairShift + 2)>(v), mask);
  }
  const uint8_t* second = codes + 64 * l.low;
  if constexpr (l.high == 1) {
    const __m512i plane = load(second);
    *low = add_bits<2 * kT, l.low, 1>(*low, plane);
    *high = add_bits<2 * kT + 1, l.low, 1>(*high, plane);
  } else if constexpr (l.high == 2) {
    const __m512i plane = load(second + 64 * (kT / 2));
    *low = add_bits<kPairShift, l.low, 2>(*low, plane);
    *high = add_bits<kPairShift + 2, l.low, 2>(*high, plane);
  }
  if constexpr (l.book != kBookNone) {
    *low = _mm512_shuffle_epi8(book_table<l.book>(), *low);
    *high = _mm512_shuffle_epi8(book_table<l.book>(), *high);
  }
}

// Scales of one k-block of 16 outputs.
template <int kIndex>
struct Scales {
  __m512 d, m;
  __m512i scale[2], minimum[2];

  CULET_INLINE void load_block(const uint8_t* header, int in_unit) {
    constexpr PackedLayout l = kLayouts[kIndex];
    const uint8_t* sub = header + 64 + in_unit * sub_bytes(l);
    if constexpr (l.scale == kScaleE8M0) {
      const __m512i e = _mm512_cvtepu8_epi32(load16(header + 16 * in_unit));
      const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
      const __m512i small = _mm512_sllv_epi32(_mm512_set1_epi32(0x200000), e);
      const __mmask16 is_small = _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2));
      d = _mm512_castsi512_ps(_mm512_mask_blend_epi32(is_small, normal, small));
    } else {
      const int base = l.sub == kSubNone ? 32 * in_unit : 0;
      d = half16(header + base);
      if constexpr (l.min != kMinNone) m = half16(header + min_offset(l) + base);
    }
    if constexpr (l.sub == kSubU8) {
      d = _mm512_mul_ps(d, unsigned16(sub));
      m = _mm512_mul_ps(m, unsigned16(sub + 16));
    } else if constexpr (l.sub == kSubS8) {
      d = _mm512_mul_ps(d, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load16(sub))));
    } else if constexpr (l.sub == kSubPair) {
      scale[0] = _mm512_cvtepi8_epi32(load16(sub));
      scale[1] = _mm512_cvtepi8_epi32(load16(sub + 16));
    } else if constexpr (l.sub == kSubNibble) {
      for (int h = 0; h < 2; h++) {
        const __m512i v = _mm512_cvtepu8_epi32(load16(sub + 16 * h));
        scale[h] = _mm512_and_si512(v, _mm512_set1_epi32(15));
        minimum[h] = _mm512_srli_epi32(v, 4);
      }
    }
  }
};

CULET_INLINE __mmask16 output_mask(int64_t n, int64_t group) {
  const int64_t left = n - group * 16;
  return static_cast<__mmask16>(left >= 16 ? 0xffff : left <= 0 ? 0 : (1 << left) - 1);
}

}  // namespace
}  // namespace culet::kernels
