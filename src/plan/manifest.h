// Nothing of a model file goes unread: every tensor and every key that changes numbers.
#pragma once

#include "culet/result.h"
#include "plan/facts.h"

#include <string>
#include <vector>

namespace culet::plan {

// used[t]: the graph reads tensor t. Errors: a tensor that is neither read nor ignored; a key under
// rope. or attention. that the text neither names nor ignores. Other unread keys are warnings.
Result<void> check_manifest(Facts& facts, const std::vector<bool>& used, int32_t layers,
                            std::vector<std::string>* warnings);

}  // namespace culet::plan
