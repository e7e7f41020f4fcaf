// The plan while it is made: its values and operations, the tensors that are read so far, and the
// layer that the statements run for. The other graph_*.cpp files write through it.
#pragma once

#include "culet/result.h"
#include "plan/arch_ast.h"
#include "plan/hyperparameters.h"
#include "plan/plan.h"
#include "plan/shapes.h"

#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

namespace culet::plan {

class GraphWriter {
 public:
  // target_file: of a draft model's target; nullptr: none.
  GraphWriter(Hyperparameters& hparams, const format::GgufFile* target_file);

  Hyperparameters& hparams() { return hparams_; }
  const ArchFile& arch() const { return arch_; }
  Plan& plan() { return plan_; }
  const Plan& plan() const { return plan_; }
  int layer() const { return layer_; }  // -1: outside the layers
  void set_layer(int layer) { layer_ = layer; }
  SourceLocation end_of_text() const { return {static_cast<int>(arch_.files.size()) - 1, 1, 1}; }
  // With the layer's index, where the statements run for one.
  tl::unexpected<Error> error(SourceLocation p, std::string_view message,
                              ErrorCode code = ErrorCode::kInvalidArgument) const;

  Value& at(ValueId v) { return plan_.values[static_cast<size_t>(v)]; }
  Shape shape(ValueId v) const;
  const format::TensorInfo* info(TensorId t) const;  // nullptr: kNone
  void use(TensorId t);                              // the tensor counts as read
  const std::vector<bool>& used() const { return used_; }

  // An op of this layer and line, with the attributes of its kind and without operands.
  Op op(OpKind kind, SourceLocation p) const;
  // Appends an op whose one result has the given shape; no rule is asked.
  ValueId add(Op op, const Shape& result, TokenSet rows);
  // Appends an op as its shape rule says, which may complete its attributes. Gives its results.
  Result<std::vector<ValueId>> emit(Op op, ShapeCall call, SourceLocation p);
  // The index of a table of angles; equal ones are one.
  Result<int32_t> rope(const RopeSpec& spec, SourceLocation p);

  // Whether the hyperparameters asked for since `uses` (Hyperparameters::context_uses) depend on
  // the session's context; a rope that follows from them cannot run in an endless stream, and the
  // plan says why.
  void note_context(int64_t uses);

 private:
  ValueId new_value(const Shape& s, TokenSet rows);

  Hyperparameters& hparams_;
  const ArchFile& arch_;
  Tensors tensors_;
  Plan plan_;
  std::vector<bool> used_;
  std::map<ValueId, int32_t> routes_;  // results of route: how many experts it picks from
  int layer_ = -1;
};

}  // namespace culet::plan
