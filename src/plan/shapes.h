// Shape rules: one function an op, from operands and attributes to result shapes.
#pragma once

#include "culet/result.h"
#include "format/gguf.h"
#include "plan/plan.h"

#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace culet::plan {

struct Shape {
  std::array<int32_t, 3> dims{};
  int32_t rank = 1;
  int64_t width() const;
  int32_t last() const { return dims[static_cast<size_t>(rank - 1)]; }
  std::string show() const;  // "[4, 64]"
  bool operator==(const Shape& o) const;
};
Shape vector_shape(int64_t width);

// What a rule sees. It fills `out` and may complete op->attr; an error is the message only, the
// caller adds the place.
struct ShapeCall {
  Op* op = nullptr;
  std::vector<Shape> in;                           // of the values
  std::vector<TokenSet> in_rows;                   // likewise
  std::vector<const format::TensorInfo*> weights;  // nullptr: left out
  std::vector<std::string> weight_names;
  std::vector<double> hparams;     // positional hyperparameters, in order
  std::optional<CacheSpec> cache;  // append, attend over one
  int32_t rope_dims = 0;
  int32_t state_rows = 0, state_width = 0;
  int32_t routed = 0;  // experts: how many the route behind its second operand chose from
  std::vector<Shape> out;
  TokenSet out_rows = TokenSet::kAll;  // kOutputs: behind pool
};

Result<void> apply_shape_rule(ShapeCall* call);
// What the engine reads of an encoder: `hidden` has rows of tokens, `pooled` a vector of each
// sequence. The error is the message only.
Result<void> check_output(std::string_view name, std::string_view kind, const Value& value);

}  // namespace culet::plan
