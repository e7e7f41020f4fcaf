// Architecture file + model -> typed operations (the unlowered, unfused Plan).
#pragma once

#include "culet/result.h"
#include "plan/arch_ast.h"
#include "plan/hyperparameters.h"
#include "plan/plan.h"

#include <memory>
#include <string>
#include <vector>

namespace culet::plan {

struct TargetPlan {  // of the model a draft model is attached to
  const Plan* plan = nullptr;
  Hyperparameters* hparams = nullptr;
};

struct GraphResult {
  Plan plan;
  std::vector<std::string> warnings;
  std::vector<std::string> unread_keys;  // of the architecture: an 'ignore' line names them
};

// Evaluates requires, expands model and layer blocks, binds tensors, infers shapes, and checks that
// every tensor and every key of the architecture is read or ignored.
Result<GraphResult> build_graph(Hyperparameters& hparams, const TargetPlan& target);

}  // namespace culet::plan
