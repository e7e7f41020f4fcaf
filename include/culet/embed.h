// Embedding vectors of texts, by a model of kind ModelKind::kEncoder.
// Threads: any number of threads may call these functions on one Model; forward passes take turns.
#pragma once

#include "culet/model.h"
#include "culet/progress.h"
#include "culet/result.h"
#include "culet/token.h"

#include <span>
#include <vector>

namespace culet {

// The hidden values of every token of each sequence: [tokens, hidden size], row-major. Attention
// covers the whole sequence and nothing of the other sequences, so the bits do not depend on them.
// An empty sequence gives no values. Progress: stage "encoding", in tokens. Errors, before any
// work: kUnsupported (a decoder), kExhausted (a sequence longer than the model takes),
// kInvalidArgument (a token outside the vocabulary); later: kNumeric (a value that is not finite),
// kCancelled.
Result<std::vector<std::vector<float>>> encode(const Model& model,
                                               std::span<const std::vector<Token>> sequences,
                                               const ProgressFn& progress = {});

struct EmbedOptions {
  bool normalize = false;  // to length 1 (L2 norm), for cosine similarity; a zero vector stays zero
};
// One vector per sequence, [embedding dimension]: the hidden values of its tokens, pooled as the
// model wants (output `pooled` of the architecture file). Its bits depend on the sequence alone.
// Progress and errors as encode(); also, before any work, kUnsupported (the model has no pooling)
// and kInvalidArgument (an empty sequence).
Result<std::vector<std::vector<float>>> embed(const Model& model,
                                              std::span<const std::vector<Token>> sequences,
                                              const EmbedOptions& options = {},
                                              const ProgressFn& progress = {});

}  // namespace culet
