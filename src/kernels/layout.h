// Packed block layouts: one row a type, read by the packer and by every matrix kernel.
//
// A group holds 16 outputs. Along k it is a run of units; a unit holds `unit` k-blocks of 32:
//
//   header   scales first, 64-byte aligned as a whole, then the codes of each block in turn.
//            32-value types: d[unit][16] (f16, or one E8M0 byte for MXFP4), then m[unit][16] (f16).
//            K types: d[16] f16, dmin[16] f16 (zero when there is none), then per block
//              kSubU8:     sc[16] u8, m[16] u8          (Q4_K, Q5_K)
//              kSubS8:     sc[16] s8                    (IQ4_XS: scale - 32)
//              kSubPair:   sc0[16] s8, sc1[16] s8       (Q3_K, Q6_K: scales of k 0..15 and 16..31)
//              kSubNibble: sm0[16] u8, sm1[16] u8       (Q2_K: scale | minimum << 4 of each half)
//   codes    first plane, then second plane. Let word(o, t) be the four codes of output o at
//            k = 4 * t .. 4 * t + 3, one byte each, t = 0..7. Everything below is little endian and
//            a plane's "line" is 64 bytes = the 16 outputs' words in order.
//              8 bits: line t = word(t)                                            8 lines
//              4 bits: line t = low(word(t)) | low(word(t + 4)) << 4, t = 0..3     4 lines
//              2 bits: line p holds words 2p, 2p + 4, 2p + 1, 2p + 5 at bits 0, 2, 4, 6   2 lines
//            the second plane holds the bits above the first plane's:
//              1 bit:  one line, word(t + 4 * h) at bit 2 * t + h
//              2 bits: as the 2-bit plane above
//
// The weight is code - offset, or the type's table[code] for codebook types; the kernels' integer
// dot is over exactly those values. This header is read by instruction-set files: constants only.
#pragma once

#include "quant/blocks.h"

#include <stddef.h>
#include <stdint.h>

namespace culet::kernels {
namespace {

enum PackedScale : uint8_t { kScaleF16, kScaleE8M0 };
enum PackedSub : uint8_t { kSubNone, kSubU8, kSubS8, kSubPair, kSubNibble };
enum PackedMin : uint8_t { kMinNone, kMinAdd, kMinSub };
enum PackedBook : uint8_t { kBookNone, kBookNl, kBookFp4 };

struct PackedLayout {
  uint8_t type;    // quant::TensorType
  uint8_t unit;    // k-blocks of 32 in a unit
  uint8_t low;     // bits of the first plane: 8, 4, 2
  uint8_t high;    // bits of the second plane: 0, 1, 2
  uint8_t offset;  // weight = code - offset
  PackedScale scale;
  PackedSub sub;
  PackedMin min;
  PackedBook book;
};

constexpr PackedLayout kLayouts[] = {
    {2, 2, 4, 0, 8, kScaleF16, kSubNone, kMinNone, kBookNone},    // Q4_0
    {3, 1, 4, 0, 0, kScaleF16, kSubNone, kMinAdd, kBookNone},     // Q4_1
    {6, 2, 4, 1, 16, kScaleF16, kSubNone, kMinNone, kBookNone},   // Q5_0
    {7, 1, 4, 1, 0, kScaleF16, kSubNone, kMinAdd, kBookNone},     // Q5_1
    {8, 2, 8, 0, 128, kScaleF16, kSubNone, kMinNone, kBookNone},  // Q8_0
    {10, 8, 2, 0, 0, kScaleF16, kSubNibble, kMinSub, kBookNone},  // Q2_K
    {11, 8, 2, 1, 4, kScaleF16, kSubPair, kMinNone, kBookNone},   // Q3_K
    {12, 8, 4, 0, 0, kScaleF16, kSubU8, kMinSub, kBookNone},      // Q4_K
    {13, 8, 4, 1, 0, kScaleF16, kSubU8, kMinSub, kBookNone},      // Q5_K
    {14, 8, 4, 2, 32, kScaleF16, kSubPair, kMinNone, kBookNone},  // Q6_K
    {20, 2, 4, 0, 0, kScaleF16, kSubNone, kMinNone, kBookNl},     // IQ4_NL
    {23, 8, 4, 0, 0, kScaleF16, kSubS8, kMinNone, kBookNl},       // IQ4_XS
    {39, 4, 4, 0, 0, kScaleE8M0, kSubNone, kMinNone, kBookFp4},   // MXFP4
};
constexpr int kLayoutCount = sizeof(kLayouts) / sizeof(kLayouts[0]);

constexpr uint32_t kTypeF32 = 0, kTypeF16 = 1, kTypeBf16 = 30;

constexpr int sub_bytes(const PackedLayout& l) {
  return l.sub == kSubNone ? 0 : l.sub == kSubS8 ? 16 : 32;
}
constexpr int scale_bytes(const PackedLayout& l) { return l.scale == kScaleF16 ? 32 : 16; }
// Offset of the minima; K types keep dmin right after d.
constexpr int min_offset(const PackedLayout& l) {
  return l.sub == kSubNone ? l.unit * scale_bytes(l) : 32;
}
constexpr int header_bytes(const PackedLayout& l) {
  return l.sub == kSubNone ? l.unit * (scale_bytes(l) + (l.min == kMinNone ? 0 : 32))
                           : 64 + l.unit * sub_bytes(l);
}
constexpr int code_bytes(const PackedLayout& l) { return 64 * (l.low + l.high); }
constexpr int unit_bytes(const PackedLayout& l) {
  return (header_bytes(l) + l.unit * code_bytes(l) + 63) / 64 * 64;
}
constexpr int layout_index(uint32_t type) {
  for (int i = 0; i < kLayoutCount; i++)
    if (kLayouts[i].type == type) return i;
  return -1;
}

}  // namespace
}  // namespace culet::kernels
