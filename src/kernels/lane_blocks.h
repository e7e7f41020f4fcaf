// Packed blocks in vectors: codes widened to bytes, scales to float32, kWidth of a group's 16
// outputs at a time; `part` says which. Shared by the integer and the float products.
#pragma once

#include "kernels/kernels.h"
#include "kernels/lane_math.h"
#include "kernels/layout.h"
#include "quant/blocks.h"

namespace culet::kernels {
namespace {

constexpr bool halves(const PackedLayout& l) { return l.sub == kSubPair || l.sub == kSubNibble; }

// v | (plane bits at kFrom, moved to kTo), kBits wide.
template <int kFrom, int kTo, int kBits>
CULET_INLINE Bytes add_bits(Bytes v, Bytes plane) {
  return insert_bits(v, shift_bytes<kTo - kFrom>(plane), set_bytes(((1 << kBits) - 1) << kTo));
}

// Unsigned codes of words kT and kT + 4 (k = 4 kT .. and 16 + 4 kT ..) of kWidth outputs; `codes`
// points at the block's codes plus 4 * kWidth bytes a part.
template <int kIndex, int kT>
CULET_INLINE void widen(const uint8_t* codes, Bytes* low, Bytes* high) {
  constexpr PackedLayout l = kLayouts[kIndex];
  constexpr int kPairShift = 4 * (kT % 2);
  if constexpr (l.low == 8) {
    *low = load_bytes(codes + 64 * kT);
    *high = load_bytes(codes + 64 * (kT + 4));
  } else if constexpr (l.low == 4) {
    const Bytes v = load_bytes(codes + 64 * kT), mask = set_bytes(15);
    *low = v & mask;
    *high = shift_bytes<-4>(v) & mask;
  } else {
    const Bytes v = load_bytes(codes + 64 * (kT / 2)), mask = set_bytes(3);
    *low = shift_bytes<-kPairShift>(v) & mask;
    *high = shift_bytes<-(kPairShift + 2)>(v) & mask;
  }
  const uint8_t* second = codes + 64 * l.low;
  if constexpr (l.high == 1) {
    const Bytes plane = load_bytes(second);
    *low = add_bits<2 * kT, l.low, 1>(*low, plane);
    *high = add_bits<2 * kT + 1, l.low, 1>(*high, plane);
  } else if constexpr (l.high == 2) {
    const Bytes plane = load_bytes(second + 64 * (kT / 2));
    *low = add_bits<kPairShift, l.low, 2>(*low, plane);
    *high = add_bits<kPairShift + 2, l.low, 2>(*high, plane);
  }
}

// What has to be taken from a value of `book_codes` to get the weight.
constexpr int bias(const PackedLayout& l) {
  return l.book == kBookNl ? 128 : l.book == kBookFp4 ? 12 : l.offset;
}
struct Book {
  int8_t value[16];
};
constexpr Book biased_book(const PackedLayout& l) {
  Book book = {};
  for (int i = 0; i < 16; i++) {
    const int value = l.book == kBookNl ? quant::kIq4Values[i] : quant::kMxfp4Values[i];
    book.value[i] = static_cast<int8_t>(static_cast<uint8_t>(value + bias(l)));
  }
  return book;
}
template <int kIndex>
constexpr Book kBiasedBook = biased_book(kLayouts[kIndex]);
// Codes of a codebook type turned into unsigned values; others as they are.
template <int kIndex>
CULET_INLINE Bytes book_codes(Bytes code) {
  if constexpr (kLayouts[kIndex].book == kBookNone) return code;
  return look_up(kBiasedBook<kIndex>.value, code);
}
// The weights as signed bytes.
template <int kIndex>
CULET_INLINE Bytes signed_weights(Bytes code) {
  constexpr PackedLayout l = kLayouts[kIndex];
  if constexpr (l.book == kBookNl)
    return look_up(quant::kIq4Values, code);
  else if constexpr (l.book == kBookFp4)
    return look_up(quant::kMxfp4Values, code);
  else if constexpr (l.offset == 128)
    return code ^ set_bytes(128);
  else if constexpr (l.offset != 0)
    return subtract_bytes(code, set_bytes(l.offset));
  else
    return code;
}

// Tiles of nearly the same size.
CULET_INLINE int64_t even_share(int64_t rows, int64_t max) {
  return rows / ((rows + max - 1) / max);
}

// Scales of one k-block of kWidth outputs.
template <int kIndex>
struct Scales {
  Floats d, m;
  Ints scale[2], minimum[2];

  CULET_INLINE void load_block(const uint8_t* header, int in_unit, int part) {
    constexpr PackedLayout l = kLayouts[kIndex];
    const uint8_t* sub = header + 64 + in_unit * sub_bytes(l) + kWidth * part;
    if constexpr (l.scale == kScaleE8M0) {
      const Ints e = load_u8(header + 16 * in_unit + kWidth * part);
      const Ints normal = shift_left<23>(e - set1(int32_t{1}));
      const Ints small = shift_left(set1(int32_t{0x200000}), e);
      d = as_floats(select(less(e, set1(int32_t{2})), small, normal));
    } else {
      const int base = (l.sub == kSubNone ? 32 * in_unit : 0) + 2 * kWidth * part;
      d = load_f16(header + base);
      if constexpr (l.min != kMinNone) m = load_f16(header + min_offset(l) + base);
    }
    if constexpr (l.sub == kSubU8) {
      d = d * to_floats(load_u8(sub));
      m = m * to_floats(load_u8(sub + 16));
    } else if constexpr (l.sub == kSubS8) {
      d = d * to_floats(load_s8(sub));
    } else if constexpr (l.sub == kSubPair) {
      scale[0] = load_s8(sub);
      scale[1] = load_s8(sub + 16);
    } else if constexpr (l.sub == kSubNibble) {
      for (int h = 0; h < 2; h++) {
        const Ints v = load_u8(sub + 16 * h);
        scale[h] = v & set1(int32_t{15});
        minimum[h] = shift_right<4>(v);
      }
    }
  }
};

}  // namespace
}  // namespace culet::kernels
