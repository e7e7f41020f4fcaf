// Vectors of texts, by a model of kind ModelKind::kEncoder.
#pragma once

#include "culet/model.h"
#include "culet/progress.h"
#include "culet/result.h"
#include "culet/token.h"

#include <span>
#include <vector>

namespace culet {

// The hidden values of every token of whole sequences: for each sequence [tokens, hidden size], one
// token behind another. A token sees its whole sequence and nothing of the others, so its bits do
// not depend on them. An empty sequence gives no values.
// Progress: stage "encoding", in tokens.
// Errors, before any work: kUnsupported (a decoder), kExhausted (a sequence longer than the model
// takes), kInvalidArgument (a token outside the vocabulary); later: kNumeric (a value that is not
// finite), kCancelled.
Result<std::vector<std::vector<float>>> encode(const Model& model,
                                               std::span<const std::vector<Token>> sequences,
                                               const ProgressFn& progress = {});

struct EmbedOptions {
  bool normalize = false;  // to length 1 (L2 norm), as cosines need it; a vector of zeros stays
};
// One vector of each whole sequence, [embedding dimension]: the model's pooling of the hidden
// values of its tokens (output `pooled` of the architecture file). Its bits depend on the sequence
// alone. Progress and errors as encode's, and before any work: kUnsupported (the model makes no
// such vectors), kInvalidArgument (an empty sequence).
Result<std::vector<std::vector<float>>> embed(const Model& model,
                                              std::span<const std::vector<Token>> sequences,
                                              const EmbedOptions& options = {},
                                              const ProgressFn& progress = {});

}  // namespace culet
