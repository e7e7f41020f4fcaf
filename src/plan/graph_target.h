// What a draft model takes from its target: outputs, tensors, hyperparameters and caches.
#pragma once

#include "culet/result.h"
#include "plan/graph.h"
#include "plan/graph_writer.h"

#include <string_view>

namespace culet::plan {

class TargetModel {
 public:
  TargetModel(GraphWriter& writer, const TargetPlan& target) : writer_(writer), target_(target) {}

  // A draft model has a target and others have none; everything that 'extern' names is there.
  Result<void> check_externs() const;
  // A draft model's hidden row is what its next step takes in place of the target's.
  Result<void> check_next_row(const Block& model) const;

  // Whether a name is an output of the target that a step is given ("target.hidden").
  bool is_value(std::string_view name) const;
  ValueId input(std::string_view name, SourceLocation p);  // of such a name: the op that takes it

  // The target's cache of the declaration's name that this layer of the target reads.
  Result<int32_t> cache(const CacheDecl& d, int layer);

 private:
  Result<void> check_extern(const ExternDecl& e) const;
  tl::unexpected<Error> missing(const ExternDecl& e, std::string_view what) const;

  GraphWriter& writer_;
  TargetPlan target_;
};

}  // namespace culet::plan
