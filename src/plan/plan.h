// The plan: what an architecture file becomes for one model. A flat list of typed operations over
// values in one arena, the same for every backend; nothing in it is conditional.
//
//   arch text --parse--> ArchFile --resolve (metadata, tensors)--> Graph --check (shapes)-->
//     --lower (quantize, select_rows)--> --fuse (patterns)--> --assign (liveness)--> Plan
//
// plan/ops.def is the table of operations: name, operands, attributes, meaning. plan/attributes.h
// has what an operation knows beside its operands.
#pragma once

#include "format/gguf.h"
#include "plan/attributes.h"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace culet::plan {

using ValueId = int32_t;
using TensorId = int32_t;  // index into GgufFile::tensors()
constexpr TensorId kTargetTensor = 1
                                   << 24;  // added to ids of a draft model's target model's tensors

// What the ids of a plan mean: tensors of the model's file, and for a draft model of its target's.
class Tensors {
 public:
  Tensors(const format::GgufFile& file, const format::GgufFile* target = nullptr)
      : file_(&file), target_(target) {}

  const format::GgufFile& file() const { return *file_; }  // the model's
  static bool of_target(TensorId id) { return id >= kTargetTensor; }
  const format::GgufFile& file_of(TensorId id) const { return of_target(id) ? *target_ : *file_; }
  const format::TensorInfo& at(TensorId id) const {
    return file_of(id).tensors()[static_cast<size_t>(of_target(id) ? id - kTargetTensor : id)];
  }

 private:
  const format::GgufFile* file_;
  const format::GgufFile* target_;
};

enum class OpKind : uint8_t {
#define CULET_OP(name, ...) name,
#include "plan/ops.def"
#undef CULET_OP
};
std::string_view op_name(OpKind kind);
Attributes attributes_of(OpKind kind);  // the kind's own struct, with defaults

// Rows of a value: every row of the step, or only the rows whose outputs somebody wants
// (after the select_rows ops that the compiler inserts behind the last write to a cache; in an
// encoder one row of each sequence whose vector is wanted, behind pool).
enum class TokenSet : uint8_t { kAll, kOutputs };
enum class Form : uint8_t {
  kF32,        // [rows, width] float
  kQuantized,  // kernels::QuantRows of [rows, width]
};

struct Value {
  std::string name;               // as in the file, for explain and errors
  std::array<int32_t, 3> dims{};  // shape of one row: [width], [heads, head_dim], ...
  int32_t rank = 1;
  int32_t width = 0;  // product of dims
  Form form = Form::kF32;
  TokenSet rows = TokenSet::kAll;
  int64_t offset = kNone;  // bytes a row from the arena's start, multiple of 64 (assign)
  int64_t row_bytes = 0;   // bytes a row takes in the arena, multiple of 64
};

// A row of Form::kQuantized in the arena: its bytes, scales and sums, each rounded up to 64 bytes.
struct QuantLayout {
  int64_t q, d, sums;
  int64_t row_bytes() const { return q + d + sums; }
};
QuantLayout quant_layout(int64_t width);

struct RopeSpec {  // one table of angles, shared by every rope op that equals it
  double base = 10000, scale = 1, attn_factor = 1;
  double mix_from = 0, mix_to = 0;  // pairs from which on `scale` acts in part, in full
  int32_t dims = 0;
  TensorId factors = kNone;  // [dims / 2] divisors of the frequencies
  bool operator==(const RopeSpec&) const = default;
};

enum class CachePolicy : uint8_t { kFull, kWindow, kGlobal };  // global: full, or sinks + window
struct CacheSpec {
  std::string name;
  int32_t layer = 0;  // the layer that owns it
  CachePolicy policy = CachePolicy::kGlobal;
  int64_t window = 0;  // kWindow
  int32_t kv_heads = 0, head_dim = 0, value_dim = 0;
  int32_t target = kNone;  // a draft model reads its target's cache of this index
};

// What short_conv remembers between passes: its last `rows` input rows. One a layer and name.
struct StateSpec {
  std::string name;
  int32_t layer = 0;
  int32_t rows = 0, width = 0;
};

struct Op {  // make_op() gives it the attributes of its kind
  OpKind kind{};
  int32_t layer = kNone;  // kNone: outside the layers
  int32_t line = 0;       // line of the flattened architecture text
  std::vector<ValueId> in, out;
  std::vector<TensorId> weights;  // kNone: optional operand left out
  Attributes attr;
};
Op make_op(OpKind kind, int32_t layer, int32_t line);
// The cache that an append or attend works on; kNone: none.
int32_t cache_of(const Op& op);

struct LayerRange {
  int32_t first, count;
};  // ops of layer i: [first, first + count)

struct Output {
  std::string name;
  ValueId value;
};  // "logits", "hidden"

struct Plan {
  std::string architecture;  // name from the arch line
  std::string kind;          // decoder, encoder, draft
  int32_t n_layers = 0;
  std::vector<Value> values;
  std::vector<Op> ops;   // prologue, layers in order, epilogue
  int32_t prologue = 0;  // ops [0, prologue) run before the layers
  std::vector<LayerRange> layers;
  std::vector<RopeSpec> ropes;
  std::vector<CacheSpec> caches;
  std::vector<StateSpec> states;
  std::vector<std::vector<int32_t>> token_lists;  // ids inside the width of the value they go with
  std::vector<Output> outputs;
  // Why this model cannot run as an endless stream: "the rotary factors depend on the length of the
  // context (phi3.arch:9: let long = ...)". Empty: nothing in the plan says that it cannot.
  std::string no_stream;
  int64_t arena_token_bytes = 0;    // arena = rows * this for kAll values (offsets below) ...
  int64_t arena_output_bytes = 0;   // ... followed by wanted * this for kOutputs values
  std::vector<std::string> source;  // flattened text, line by line (source[0] is line 1)
  std::string source_sha256;

  ValueId output(std::string_view name) const {
    for (const Output& o : outputs)
      if (o.name == name) return o.value;
    return kNone;
  }
};

}  // namespace culet::plan
