// The kernel table: every numeric routine of the engine, one function pointer each.
//
// kernels/scalar.cpp defines the meaning of every entry, in plain loops that the compiler must not
// vectorise; each instruction-set file replaces the entries it speeds up and must return THE SAME
// BITS (ARCHITECTURE.md, Exactness). The arithmetic that makes that possible:
//   * no contraction (-ffp-contract=off); where fma() is written below it is one rounding;
//     round to nearest even; subnormals are kept; exp, tanh, sigmoid are our own polynomials, and
//     exp(x) is 0 for x below -60 ln 2 (math_constants.h, docs/decisions/0011).
//   * matrix products: one lane is one output. k ascends in blocks of 32; per block one exact int32
//     dot, then a fixed sequence of one or two fmas. k is never split, so neither batch size nor
//     tiles nor threads can change a result.
//   * a NaN stays a NaN, but which NaN (sign, payload) is not promised.
//   * every other float sum has 16 virtual lanes: element i goes to lane i % 16 in ascending order,
//     lanes are folded 8+8, 4+4, 2+2, 1+1 (lane j += lane j + half). See fold16 in scalar_math.h.
//
// Plain data and plain functions only: instruction-set files include this header and <immintrin.h>,
// nothing of the standard library but <stdint.h>, so no weak symbol compiled for one CPU can be
// picked by the linker for another.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace culet::kernels {

// ---------------------------------------------------------------- matrix products

// Rows of activations, each quantized by itself: blocks of 32 along k,
// d = amax / 127, q = nearest-even(x * (127 / amax)); d = 0 and q = 0 where amax is below 2^-64. A
// NaN or infinite x makes d NaN and q 0, so it reaches the output and is reported there.
struct QuantRows {
  int8_t* q;      // [rows, k]
  float* d;       // [rows, k / 32]
  int16_t* sums;  // [rows, k / 16]  sum of each 16 q
  int64_t k;      // multiple of 32
};

// Weights repacked for one-lane-one-output products: groups of 16 output rows; a group holds k in
// ascending blocks. Layout of a block per type: kernels/packing.h. Rows past n are zero.
struct PackedMatrix {
  uint32_t type;        // quant::TensorType of the source
  int64_t n;            // outputs
  int64_t k;            // inputs
  int64_t group_bytes;  // distance between groups of 16 outputs
  const uint8_t* data;  // 64-byte aligned; 64 readable bytes follow the last group
};

// out[r - row0][o - 16 * group0] for rows [row0, row1) and outputs of groups [group0, group1), cut
// at n; out has `stride` floats a row. Definition, for each row r and output o, acc = 0:
//   quantized types, blocks b ascending:  acc = fma((float)isum, d_w * d_a, acc)
//     with a minimum m (Q4_1, Q5_1):      acc = fma(m_w * d_a, (float)sum, acc)
//     K types with dmin (Q2_K, Q4_K, ...): acc = fma(-(m_w * d_a), (float)sum, acc)
//     where isum is the exact integer dot (16-element sub-blocks: sc0 * dot0 + sc1 * dot1), d_w and
//     m_w the block's exact scale and minimum (d * sc, dmin * m: exact in float32)
//   float types and precise mode, k ascending: acc = fma(w, a, acc), w = the dequantized weight
typedef void (*MatmulQ)(const PackedMatrix* w, const QuantRows* a, int64_t row0, int64_t row1,
                        int64_t group0, int64_t group1, float* out, int64_t stride);
typedef void (*MatmulF)(const PackedMatrix* w, const float* a, int64_t a_stride, int64_t row0,
                        int64_t row1, int64_t group0, int64_t group1, float* out, int64_t stride);

// ---------------------------------------------------------------- attention over cached blocks

constexpr int kKvBlockRows = 32;  // rows of a KV block; borders at multiples in absolute position
constexpr int kPartKeys = 1024;   // a row's keys are summed in parts at multiples of this

// How a KV block stores its rows: float32; f16 or bf16, rounded to nearest even; or q8_0, blocks of
// 32 along the head's dimension (the last short where it is no multiple of 32) with one scale each:
//   d = amax / 127 (float32) rounded to the nearest f16, and to the next f16 up where amax / d
//   would round to 128; so no q is cut, the error is at most d / 2, and d = 0 only where amax = 0
//   q = nearest-even(x / d), d as stored; 0 where d = 0
//   a NaN or infinity in the block, or a d past the range of f16, makes d NaN and q 0
// A value read back is (float)q * (float)d, exact in float32; what is said below of k[d][j] and
// v[j] means values as read back.
enum KvType : uint32_t { kKvF32, kKvF16, kKvBf16, kKvQ8, kKvTypeCount };

// Bytes of one kv head's 32 rows of a block, keys or values, of `dim` elements. A block is its kv
// heads in turn. q8_0: a head's quants come first, in the order of the other types, then its
// scales: keys [ceil(dim / 32)][32], values [32][ceil(dim / 32)].
static constexpr int64_t kv_head_bytes(KvType type, int64_t dim) {
  return type == kKvF32  ? kKvBlockRows * dim * 4
         : type == kKvQ8 ? kKvBlockRows * (dim + (dim + 31) / 32 * 2)
                         : kKvBlockRows * dim * 2;
}

// A run of rows inside one KV block, as a cache policy hands it to attention.
// Two entries may name the same block (the last sink and the first evictable row in one block):
// they share `block_index`, one maximum and one rescale.
struct KvEntry {
  const uint8_t* k;     // the block's keys of all kv heads, [kv_heads][head_dim][32] (transposed)
  const uint8_t* v;     // the block's values, [kv_heads][32][value_dim]
  int64_t position;     // absolute position of row `first`
  int32_t first;        // first row in the block, 0..31
  int32_t rows;         // visible candidates: rows [first, first + rows)
  int64_t block_index;  // absolute position of block row 0, divided by 32
  uint32_t query;       // 0: the query rotated at its own position; 1: the query that meets sinks
};

// Key s is visible to a row of position p iff s <= p and (s < sink_end or p - s < window).
struct AttendArgs {
  const KvEntry* entries;  // ascending position
  int64_t n_entries;
  KvType k_type, v_type;
  int64_t sink_end;  // absolute position after the last attention sink; 0 = none
  int64_t window;    // INT64_MAX = unlimited
  const float*
      q[2];  // [rows, q_stride]: own query and that for sinks (q[1] may be null); a row holds
             // all query heads, head h of kv head g at (g * heads_per_kv + h) * head_dim
  int64_t q_stride;
  const int64_t* positions;  // [rows] p, not descending: a row's own, or how far ahead it sees
  int64_t rows;
  int32_t heads_per_kv, kv_head, head_dim, value_dim;
  float scale;  // score = dot * scale, then softcap if > 0: cap * tanh(score / cap)
  float softcap;
};

// Partial results of one part (keys of absolute positions [part * 1024, +1024)) for all rows and
// the heads of one kv head: m[rows][heads_per_kv] maximum, l lane sums folded,
// acc[rows][heads][value_dim]. Definition, blocks ascending, m = -inf, l[16] = 0, acc = 0:
//   s_j  = dot * scale, dot = ascending d: fma(q[d], k[d][j], dot) from 0     (one lane is one key)
//   m2   = max(m, max_j s_j over visible j);  c = exp(m - m2)  (0 for m = -inf)
//   l[i] = l[i] * c, then + p_j for visible j ascending with i = j % 16;  p_j = exp(s_j - m2)
//   acc  = acc * c, then for visible j ascending: acc = fma(p_j, v[j], acc)
// A block without visible keys is not visited; a part without visible keys leaves m = -inf, l = 0,
// acc = 0. If a visible s_j is NaN, or all visible ones are -inf, m2 is NaN, and so is the result.
// Rows of a block that no entry makes visible may hold anything, NaN too. i and j count block rows.
typedef void (*AttendPart)(const AttendArgs* a, int64_t part, float* m, float* l, float* acc);
// Folds the next part into the running one (ascending parts): m2 = max(m, pm); a = exp(m - m2);
// b = exp(pm - m2); l = l * a + pl * b; acc = acc * a + pacc * b (separate roundings). A part with
// pm = -inf changes nothing; the first part is copied.
typedef void (*AttendMerge)(float* m, float* l, float* acc, const float* pm, const float* pl,
                            const float* pacc, int64_t rows_heads, int64_t value_dim);
// out[i] = acc[i] / l for each of value_dim; an empty softmax (l = 0) gives NaN.
typedef void (*AttendFinish)(const float* l, const float* acc, int64_t rows_heads,
                             int64_t value_dim, float* out, int64_t out_stride_heads);

// Stores one row's k and v (float32, all kv heads) into row `r` of a block, as the KV types say.
typedef void (*KvStore)(KvType k_type, KvType v_type, const float* k, const float* v,
                        int32_t kv_heads, int32_t head_dim, int32_t value_dim, uint8_t* k_block,
                        uint8_t* v_block, int32_t r);

// ---------------------------------------------------------------- rows

enum Unary : uint32_t { kSilu, kGelu, kGeluErf, kRelu, kSigmoid, kTanh, kUnaryCount };
enum Binary : uint32_t { kAdd, kSub, kMul, kDiv, kBinaryCount };

struct Kernels {
  const char* isa;  // name of the highest level that filled an entry

  MatmulQ matmul_q[64];  // by TensorType; null: no integer path (float types)
  MatmulF matmul_f[64];  // by TensorType; null: type not supported

  // Rows x + r * x_stride, r in [0, rows), into rows row0 + r of out.
  void (*quantize)(const float* x, int64_t rows, int64_t x_stride, int64_t row0, QuantRows* out);
  AttendPart attend_part;
  AttendMerge attend_merge;
  AttendFinish attend_finish;
  KvStore kv_store;

  // y = (x * (1 / sqrt(mean(x^2) + eps))) * w; w null: no weight. x == y allowed. n any.
  // mean: 16 lanes of fma(x, x, lane), folded, / n;  eps added; sqrt; 1 / that.
  void (*rms_norm)(const float* x, const float* w, float eps, int64_t n, float* y);
  // y = ((x - mean) * (1 / sqrt(var + eps))) * w + b (product rounded, then sum); w, b may be null.
  // var: 16 lanes of fma(x - mean, x - mean, lane).
  void (*layer_norm)(const float* x, const float* w, const float* b, float eps, int64_t n,
                     float* y);
  // Rotates the first `dims` of a head: cos_sin = [dims / 2] cosines then [dims / 2] sines.
  // adjacent: pairs (2i, 2i+1); halves: pairs (i, i + dims / 2).
  // y0 = x0 * c - x1 * s, y1 = x0 * s + x1 * c: fma(-x1, s, x0 * c), fma(x1, c, x0 * s). x == y
  // allowed.
  void (*rope)(const float* x, const float* cos_sin, int32_t dims, int32_t head_dim, int adjacent,
               float* y);
  void (*unary)(Unary op, const float* x, int64_t n, float* y);  // x == y allowed
  void (*binary)(Binary op, const float* a, const float* b, int64_t n,
                 float* y);  // any may be equal
  void (*binary_scalar)(Binary op, const float* a, float b, int64_t n, float* y);
  void (*softcap)(const float* x, float cap, int64_t n, float* y);   // cap * tanh(x / cap)
  void (*add_scaled)(float a, const float* x, int64_t n, float* y);  // y = fma(a, x, y)
  // Largest value, the lowest index that has it, and whether all n are finite.
  void (*max_index)(const float* x, int64_t n, float* max, int64_t* index, int* finite);
  // sum of exp(x - max) in 16 float64 lanes; *weighted = sum of exp(x - max) * (x - max) likewise,
  // where exp(x - max) is not 0 (a logit of -infinity adds nothing); weighted may be null.
  void (*exp_sums)(const float* x, float max, int64_t n, double* sum, double* weighted);
};

// Levels, lowest first: "scalar", "avx2", "avx512", "avx512vnni" (x86); "neon", "dotprod", "i8mm"
// (arm). Fills the table with the best level this CPU has, or with `isa` if not null. Returns null
// on success, else why not: a static text to put after the name.
const char* select_kernels(const char* isa, Kernels* out);
// Names of the levels this build has and whether this CPU can run each; ends with a null name.
struct IsaLevel {
  const char* name;
  int usable;
};
const IsaLevel* isa_levels();

// cos/sin tables: out = [dims / 2] cosines, [dims / 2] sines of position * theta_i * scale_i /
// factor_i, theta_i = base^(-2i / dims), times attn_factor. Angles are formed and reduced in
// float64 (own exp, log, sin, cos), so position 10^8 is as exact as 10. factors may be null. The
// same on every CPU.
struct RopeScale {
  double scale = 1;
  // scale_i is 1 up to pair mix_from, `scale` from pair mix_to on, and on the straight line from
  // one to the other between them. mix_to = 0: `scale` everywhere.
  double mix_from = 0, mix_to = 0;
};
void rope_frequencies(double base, int32_t dims, RopeScale scale, const float* factors,
                      double* theta);
void rope_table(const double* theta, int32_t dims, int64_t position, double attn_factor,
                float* out);

// y = H x for each piece of x, H the orthonormal Walsh-Hadamard matrix (natural order) of the
// largest power of two m that divides n: x times float(1 / sqrt(m)), then log2(m) rounds of sums
// and differences, neighbors first. x == y allowed. It keeps scalar products and spreads one large
// element over its piece, so that rounding to 8 bits costs the others less. The same on every CPU.
void hadamard(const float* x, int64_t n, float* y);

}  // namespace culet::kernels
