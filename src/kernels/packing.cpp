// Repacking of GGUF blocks into groups of 16 outputs (layout.h says how a group looks).
//
// Two steps per source block: a function per type spreads one row's block into codes (four bytes a
// word, k ascending) and small scales; one function for all types lays the 16 rows' words into the
// planes. So a new type is a row in layout.h, a row in kSources and an unpack function.
#include "kernels/packing.h"

#include "kernels/layout.h"
#include "quant/blocks.h"

#include <bit>
#include <cstring>

namespace culet::kernels {
namespace {

using namespace quant;  // NOLINT: block types and their helpers

static_assert(std::endian::native == std::endian::little, "packed words are little endian");

constexpr int64_t kTail = 64;  // readable bytes after the last group

// One row's source block: up to 8 k-blocks.
struct Unpacked {
  uint32_t word[8][8];  // [k-block][t]: codes of k = 4 t .. 4 t + 3
  uint16_t d, m;
  uint8_t sub[8][2];  // the sub-scale bytes of a k-block, in the order of the header
};

uint32_t load32(const uint8_t* p) {
  uint32_t v;
  std::memcpy(&v, p, 4);
  return v;
}

// 16 bytes of two nibbles each: low nibbles are words 0..3, high ones words 4..7.
void nibbles(const uint8_t* qs, uint32_t* word) {
  for (int t = 0; t < 4; t++) {
    const uint32_t v = load32(qs + 4 * t);
    word[t] = v & 0x0f0f0f0fu;
    word[t + 4] = (v >> 4) & 0x0f0f0f0fu;
  }
}

// Bits 4 * t .. 4 * t + 3 of `bits` to bit 4 of the bytes of word t.
void fifth_bits(const uint8_t* qh, uint32_t* word) {
  const uint32_t bits = load32(qh);
  for (int t = 0; t < 8; t++) {
    const uint32_t four = (bits >> (4 * t)) & 15;
    word[t] |= ((four * 0x00204081u) & 0x01010101u) << 4;
  }
}

template <class Block>
void unpack_nibbles(const uint8_t* src, Unpacked* out) {
  const Block& b = *reinterpret_cast<const Block*>(src);
  out->d = b.d;
  if constexpr (requires { b.m; }) out->m = b.m;
  nibbles(b.qs, out->word[0]);
  if constexpr (requires { b.qh; }) fifth_bits(b.qh, out->word[0]);
}

void unpack_mxfp4(const uint8_t* src, Unpacked* out) {
  out->d = src[0];
  nibbles(src + 1, out->word[0]);
}

void unpack_q8_0(const uint8_t* src, Unpacked* out) {
  const BlockQ8_0& b = *reinterpret_cast<const BlockQ8_0*>(src);
  out->d = b.d;
  for (int t = 0; t < 8; t++)
    out->word[0][t] = load32(reinterpret_cast<const uint8_t*>(b.qs) + 4 * t) ^ 0x80808080u;
}

// Q4_K and Q5_K: 32 bytes hold two k-blocks, low and high nibbles.
template <class Block>
void unpack_q45_k(const uint8_t* src, Unpacked* out) {
  const Block& b = *reinterpret_cast<const Block*>(src);
  out->d = b.d;
  out->m = b.dmin;
  for (int j = 0; j < 8; j++) {
    q4_k_scale_min(b.scales, j, &out->sub[j][0], &out->sub[j][1]);
    for (int t = 0; t < 8; t++) {
      uint32_t v = (load32(b.qs + 32 * (j / 2) + 4 * t) >> 4 * (j % 2)) & 0x0f0f0f0fu;
      if constexpr (requires { b.qh; }) v |= ((load32(b.qh + 4 * t) >> j) & 0x01010101u) << 4;
      out->word[j][t] = v;
    }
  }
}

void unpack_q6_k(const uint8_t* src, Unpacked* out) {
  const BlockQ6_K& b = *reinterpret_cast<const BlockQ6_K*>(src);
  out->d = b.d;
  for (int j = 0; j < 8; j++) {
    const int half = j / 4, quarter = j % 4;
    for (int h = 0; h < 2; h++) out->sub[j][h] = static_cast<uint8_t>(b.scales[2 * j + h]);
    for (int t = 0; t < 8; t++) {
      const uint32_t low = load32(b.ql + 64 * half + 32 * (quarter % 2) + 4 * t);
      const uint32_t high = load32(b.qh + 32 * half + 4 * t);
      out->word[j][t] =
          ((low >> 4 * (quarter / 2)) & 0x0f0f0f0fu) | ((high >> 2 * quarter) & 0x03030303u) << 4;
    }
  }
}

uint32_t two_bits(const uint8_t* qs, int j, int t) {
  return (load32(qs + 32 * (j / 4) + 4 * t) >> 2 * (j % 4)) & 0x03030303u;
}

void unpack_q2_k(const uint8_t* src, Unpacked* out) {
  const BlockQ2_K& b = *reinterpret_cast<const BlockQ2_K*>(src);
  out->d = b.d;
  out->m = b.dmin;
  for (int j = 0; j < 8; j++) {
    for (int h = 0; h < 2; h++) out->sub[j][h] = b.scales[2 * j + h];
    for (int t = 0; t < 8; t++) out->word[j][t] = two_bits(b.qs, j, t);
  }
}

void unpack_q3_k(const uint8_t* src, Unpacked* out) {
  const BlockQ3_K& b = *reinterpret_cast<const BlockQ3_K*>(src);
  out->d = b.d;
  for (int j = 0; j < 8; j++) {
    for (int h = 0; h < 2; h++)
      out->sub[j][h] = static_cast<uint8_t>(q3_k_scale(b.scales, 2 * j + h));
    for (int t = 0; t < 8; t++)
      out->word[j][t] = two_bits(b.qs, j, t) | ((load32(b.hmask + 4 * t) >> j) & 0x01010101u) << 2;
  }
}

void unpack_iq4_xs(const uint8_t* src, Unpacked* out) {
  const BlockIQ4_XS& b = *reinterpret_cast<const BlockIQ4_XS*>(src);
  out->d = b.d;
  for (int j = 0; j < 8; j++) {
    out->sub[j][0] = static_cast<uint8_t>(iq4_xs_scale(&b, j));
    nibbles(b.qs + 16 * j, out->word[j]);
  }
}

struct Source {
  TensorType type;
  int32_t bytes;   // of a source block
  int32_t blocks;  // k-blocks of 32 in it
  void (*unpack)(const uint8_t* src, Unpacked* out);
};

constexpr Source kSources[] = {
    {TensorType::Q4_0, sizeof(BlockQ4_0), 1, unpack_nibbles<BlockQ4_0>},
    {TensorType::Q4_1, sizeof(BlockQ4_1), 1, unpack_nibbles<BlockQ4_1>},
    {TensorType::Q5_0, sizeof(BlockQ5_0), 1, unpack_nibbles<BlockQ5_0>},
    {TensorType::Q5_1, sizeof(BlockQ5_1), 1, unpack_nibbles<BlockQ5_1>},
    {TensorType::Q8_0, sizeof(BlockQ8_0), 1, unpack_q8_0},
    {TensorType::Q2_K, sizeof(BlockQ2_K), 8, unpack_q2_k},
    {TensorType::Q3_K, sizeof(BlockQ3_K), 8, unpack_q3_k},
    {TensorType::Q4_K, sizeof(BlockQ4_K), 8, unpack_q45_k<BlockQ4_K>},
    {TensorType::Q5_K, sizeof(BlockQ5_K), 8, unpack_q45_k<BlockQ5_K>},
    {TensorType::Q6_K, sizeof(BlockQ6_K), 8, unpack_q6_k},
    {TensorType::IQ4_NL, sizeof(BlockIQ4_NL), 1, unpack_nibbles<BlockIQ4_NL>},
    {TensorType::IQ4_XS, sizeof(BlockIQ4_XS), 8, unpack_iq4_xs},
    {TensorType::MXFP4, sizeof(BlockMXFP4), 1, unpack_mxfp4},
};

const Source* find_source(TensorType type) {
  for (const Source& s : kSources)
    if (s.type == type) return &s;
  return nullptr;
}

int plain_bytes(TensorType type) {
  return type == TensorType::F32 ? 4 : type == TensorType::F16 || type == TensorType::BF16 ? 2 : 0;
}

void store32(uint8_t* p, uint32_t v) { std::memcpy(p, &v, 4); }

// Two bits of each of the eight words into two lines.
void place_two_bits(const uint32_t* word, int shift, int output, uint8_t* plane) {
  for (int p = 0; p < 2; p++) {
    uint32_t line = 0;
    for (int f = 0; f < 4; f++)
      line |= ((word[2 * p + f / 2 + 4 * (f % 2)] >> shift) & 0x03030303u) << 2 * f;
    store32(plane + 64 * p + 4 * output, line);
  }
}

void place_codes(const PackedLayout& l, const uint32_t* word, int output, uint8_t* codes) {
  if (l.low == 8) {
    for (int t = 0; t < 8; t++) store32(codes + 64 * t + 4 * output, word[t]);
    return;
  }
  if (l.low == 4) {
    for (int t = 0; t < 4; t++)
      store32(codes + 64 * t + 4 * output, (word[t] & 0x0f0f0f0fu) | (word[t + 4] & 0x0f0f0f0fu)
                                                                         << 4);
  } else {
    place_two_bits(word, 0, output, codes);
  }
  uint8_t* second = codes + 64 * l.low;
  if (l.high == 1) {
    uint32_t line = 0;
    for (int t = 0; t < 4; t++)
      for (int h = 0; h < 2; h++) line |= ((word[t + 4 * h] >> l.low) & 0x01010101u) << (2 * t + h);
    store32(second + 4 * output, line);
  }
  if (l.high == 2) place_two_bits(word, l.low, output, second);
}

void place_scales(const PackedLayout& l, const Unpacked& u, int in_unit, int count, int output,
                  uint8_t* header) {
  if (l.scale == kScaleE8M0) {
    header[16 * in_unit + output] = static_cast<uint8_t>(u.d);
    return;
  }
  const int base = l.sub == kSubNone ? 32 * in_unit : 0;
  std::memcpy(header + base + 2 * output, &u.d, 2);
  if (l.min != kMinNone) std::memcpy(header + min_offset(l) + base + 2 * output, &u.m, 2);
  const int rows = sub_bytes(l) / 16;
  for (int j = 0; j < count; j++)
    for (int i = 0; i < rows; i++) header[64 + (j * rows + i) * 16 + output] = u.sub[j][i];
}

// `in_unit` is the first k-block of the source block within its unit.
void place_block(const PackedLayout& l, const Unpacked& u, int in_unit, int count, int output,
                 uint8_t* unit) {
  place_scales(l, u, in_unit, count, output, unit);
  uint8_t* codes = unit + header_bytes(l) + in_unit * code_bytes(l);
  for (int j = 0; j < count; j++) place_codes(l, u.word[j], output, codes + j * code_bytes(l));
}

void pack_quantized(const Source& s, const uint8_t* src, int64_t n, int64_t k, int64_t group,
                    uint8_t* dst) {
  const PackedLayout& l = kLayouts[layout_index(static_cast<uint32_t>(s.type))];
  const int64_t source_blocks = k / (32 * s.blocks);
  const int64_t rows = n - group * 16 < 16 ? n - group * 16 : 16;
  Unpacked u;
  for (int64_t b = 0; b < source_blocks; b++) {
    const int64_t block = b * s.blocks;
    uint8_t* unit = dst + block / l.unit * unit_bytes(l);
    for (int64_t o = 0; o < rows; o++) {
      s.unpack(src + ((group * 16 + o) * source_blocks + b) * s.bytes, &u);
      place_block(l, u, static_cast<int>(block % l.unit), s.blocks, static_cast<int>(o), unit);
    }
  }
}

void pack_plain(int bytes, const uint8_t* src, int64_t n, int64_t k, int64_t group, uint8_t* dst) {
  const int64_t rows = n - group * 16 < 16 ? n - group * 16 : 16;
  for (int64_t o = 0; o < rows; o++) {
    const uint8_t* row = src + (group * 16 + o) * k * bytes;
    for (int64_t i = 0; i < k; i++)
      std::memcpy(dst + (i * 16 + o) * bytes, row + i * bytes, static_cast<size_t>(bytes));
  }
}

}  // namespace

size_t packed_group_bytes(TensorType type, int64_t k) {
  if (const int bytes = plain_bytes(type))
    return (static_cast<size_t>(k) * 16 * static_cast<size_t>(bytes) + 63) / 64 * 64;
  const Source* s = find_source(type);
  if (!s || k % (32 * s->blocks) != 0) return 0;
  const PackedLayout& l = kLayouts[layout_index(static_cast<uint32_t>(type))];
  const int64_t units = (k / 32 + l.unit - 1) / l.unit;
  return static_cast<size_t>(units * unit_bytes(l));
}

size_t packed_bytes(TensorType type, int64_t n, int64_t k) {
  const size_t group = packed_group_bytes(type, k);
  return group == 0 ? 0 : group * static_cast<size_t>((n + 15) / 16) + kTail;
}

void pack_groups(TensorType type, const void* src, int64_t n, int64_t k, int64_t group0,
                 int64_t group1, uint8_t* dst) {
  const uint8_t* bytes = static_cast<const uint8_t*>(src);
  const size_t group_bytes = packed_group_bytes(type, k);
  for (int64_t g = group0; g < group1; g++) {
    uint8_t* out = dst + static_cast<size_t>(g) * group_bytes;
    // Rows past n and padding stay zero: a zero scale makes every product zero.
    std::memset(out, 0, group_bytes);
    if (const int plain = plain_bytes(type))
      pack_plain(plain, bytes, n, k, g, out);
    else
      pack_quantized(*find_source(type), bytes, n, k, g, out);
  }
}

}  // namespace culet::kernels
