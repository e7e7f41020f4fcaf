// The first half of the chain: a mask, a bias and penalties change single logits.
#pragma once

#include "culet/sampler.h"

#include <cstdint>
#include <span>
#include <vector>

namespace culet::sample {

// One thread at a time. Keeps its memory from row to row.
class Changes {
 public:
  // The row after every change whose option is on: `logits` itself where there is none, else a copy
  // that lives until the next call. `breakers`: DRY's, sorted ids. A mask has the row's size.
  std::span<const float> apply(const SamplerOptions& options, std::span<const Token> breakers,
                               std::span<const float> logits, std::span<const Token> history,
                               const TokenMask* mask);
  // The copy that apply() gave, or a new one of these logits.
  std::span<const float> own(std::span<const float> logits);

  // The longest repetition that each token would continue, as (token, tokens repeated before it);
  // only those of at least `allowed` tokens. `window`: the last tokens. Linear in the window.
  struct Repetition {
    Token id;
    int32_t length;
  };
  std::span<const Repetition> repetitions(std::span<const Token> window,
                                          std::span<const Token> breakers, int32_t allowed);

 private:
  void penalize_window(const SamplerOptions& options, std::span<const Token> history,
                       std::span<float> row);
  void penalize_repetitions(const SamplerOptions& options, std::span<const Token> breakers,
                            std::span<const Token> history, std::span<float> row);

  std::vector<float> row_;       // [vocabulary], only where logits are changed
  std::vector<Token> window_;    // sorted
  std::vector<int32_t> common_;  // [window], DRY
  std::vector<Repetition> repetitions_;
};

}  // namespace culet::sample
