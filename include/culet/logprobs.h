// Probabilities from raw logits, [vocabulary size]. Natural logarithms; the same digits on every
// machine. A logit of -infinity marks a token that cannot come. Threads: any number may call these
// functions.
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
  std::vector<TokenLogprob> top;  // the likeliest first; of equal logits the lower id first
};

// The log-probability of a token. Errors of all functions: kInvalidArgument (logits of another
// size, a token outside the vocabulary), kNumeric (a logit is NaN or +infinity, or all are
// -infinity).
Result<double> logprob(const Model& model, std::span<const float> logits, Token id);
// Entropy, and the `top` likeliest tokens.
Result<Distribution> distribution(const Model& model, std::span<const float> logits, int top);
// The Kullback-Leibler divergence of q, the distribution of `other`, from p, that of `logits`: the
// sum of p (log p - log q), in nats, never negative. Infinite if a token is possible in p but not
// in q.
Result<double> divergence(const Model& model, std::span<const float> logits,
                          std::span<const float> other);

}  // namespace culet
