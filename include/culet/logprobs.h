// Probabilities from raw logits, [vocabulary size]. Natural logarithms; the same digits on every
// machine. -infinity marks a token that cannot come.
#pragma once

#include "culet/model.h"
#include "culet/result.h"
#include "culet/token.h"

#include <span>
#include <vector>

namespace culet {

struct TokenLogprob {
  Token id;
  float logprob;
};
struct Distribution {
  double entropy = 0;             // nats
  std::vector<TokenLogprob> top;  // likeliest first; equal logits: lower id first
};

// Errors of all: kInvalidArgument (logits of another size, a token outside the vocabulary),
// kNumeric (a logit is NaN or +infinity, or all are -infinity).
Result<double> logprob(const Model& model, std::span<const float> logits, Token id);
Result<Distribution> distribution(const Model& model, std::span<const float> logits, int top);
// How far the distribution that `other` describes is from that of `logits`: the Kullback-Leibler
// divergence, sum of p (log p - log q) in nats, never negative. Infinite where a token that can
// come cannot by `other`.
Result<double> divergence(const Model& model, std::span<const float> logits,
                          std::span<const float> other);

}  // namespace culet
