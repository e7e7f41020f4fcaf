// What a model file must and must not have: the text's 'require' lines hold, and nothing of the
// file goes unread, neither a tensor nor a key that changes numbers.
#pragma once

#include "culet/result.h"
#include "plan/hyperparameters.h"

#include <string>
#include <vector>

namespace culet::plan {

// A condition that differs from layer to layer is checked in each.
Result<void> check_requires(Hyperparameters& hparams, int32_t layers);

// A let of the file itself that nothing names is evaluated all the same: a mistake in it is an
// error like any other. What only this model lacks (a key, an element) is not: nobody asks for it.
Result<void> check_unnamed_lets(Hyperparameters& hparams, int32_t layers,
                                std::vector<std::string>* warnings);

// used[t]: the graph reads tensor t. Errors: a tensor that is neither read nor ignored; a key under
// rope. or attention. that the text neither names nor ignores. Other unread keys are warnings.
Result<void> check_manifest(Hyperparameters& hparams, const std::vector<bool>& used, int32_t layers,
                            std::vector<std::string>* warnings);

}  // namespace culet::plan
