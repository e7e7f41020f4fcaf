// What the layers of a model keep between passes: caches and states, from their declarations.
#pragma once

#include "culet/result.h"
#include "plan/arch_ast.h"
#include "plan/hyperparameters.h"
#include "plan/plan.h"

#include <string>
#include <string_view>
#include <vector>

namespace culet::plan {

// FILE:LINE:COLUMN: layer N: message; layer -1: outside the layers.
tl::unexpected<Error> layer_error(const Hyperparameters& hparams, int layer, SourceLocation p,
                                  std::string_view message,
                                  ErrorCode code = ErrorCode::kInvalidArgument);

Result<CacheSpec> cache_spec(Hyperparameters& hparams, const CacheDecl& decl, int layer);
Result<StateSpec> state_spec(Hyperparameters& hparams, const StateDecl& decl, int layer);

// Whether a rope stands in the text, in branches not taken too.
bool has_rope(const Expr& e);
bool has_rope(const std::vector<Statement>& statements);
// Plan::no_stream, once a rope is found to depend on `session.context`.
std::string why_no_stream(const Hyperparameters& hparams);

}  // namespace culet::plan
