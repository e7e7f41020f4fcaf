// What a model file must and must not have: the text's 'require' lines hold, and nothing of the
// file goes unread by mistake, neither a tensor nor a key of the architecture.
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

// used[t]: the graph reads tensor t. hparams has evaluated all that the graph needs. Errors: a
// tensor that is neither read nor ignored; a key of the architecture that no evaluation has read
// and no 'ignore' line lets go unread. unread_keys: those that one does.
Result<void> check_manifest(Hyperparameters& hparams, const std::vector<bool>& used, int32_t layers,
                            std::vector<std::string>* unread_keys);

}  // namespace culet::plan
