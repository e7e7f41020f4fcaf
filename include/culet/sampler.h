// From a row of logits to one token: options, token masks, and the sampler itself.
//
//   auto sampler = culet::Sampler::make(vocabulary, {.temperature = 0.7f, .seed = 1});
//   auto token = sampler->pick(session.logits(), session.tokens());
//
// docs/formats/sampling.md has the order of the steps, their formulas and their sources. The same
// logits, history, mask, options and seed give the same token on every machine.
#pragma once

#include "culet/result.h"
#include "culet/token.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace culet {

class Vocabulary;

struct LogitBias {
  Token id;
  float bias;  // added to the token's logit; -infinity: the token is never picked
};

// Names, defaults and order follow llama.cpp, so settings can be carried over. The steps run in the
// order of docs/formats/sampling.md, not in the order of these members.
struct SamplerOptions {
  float temperature = 0.8f;  // 0: greedy, the lowest id on ties
  int32_t top_k = 40;        // 0: off
  float top_p = 0.95f;       // 1: off
  uint64_t seed = 0;
  float min_p = 0.05f;          // 0: off
  float typical_p = 1;          // locally typical sampling; 1: off
  float repeat_penalty = 1;     // 1: off
  float presence_penalty = 0;   // 0: off
  float frequency_penalty = 0;  // 0: off
  int32_t repeat_last_n = 64;   // tokens that the three penalties look back at; -1: all, 0: none
  std::vector<LogitBias> logit_bias{};

  float top_n_sigma = -1;  // keeps logits within n standard deviations of the best; <= 0: off
  // Dynamic temperature: between temperature - range and temperature + range, by the entropy.
  float dynatemp_range = 0;  // 0: off
  float dynatemp_exponent = 1;

  // XTC removes the likeliest choices, all but the last of those that reach the threshold.
  float xtc_probability = 0;   // how often; 0: off
  float xtc_threshold = 0.1f;  // above 0.5: off

  // DRY: a token that would continue a repetition of n tokens, n >= dry_allowed_length, loses
  // dry_multiplier * dry_base^(n - dry_allowed_length).
  float dry_multiplier = 0;  // 0: off
  float dry_base = 1.75f;
  int32_t dry_allowed_length = 2;
  int32_t dry_penalty_last_n = -1;  // tokens that are searched; -1: all, 0: none
  // No repetition reaches back over a breaker. A text stands for every token that contains it.
  std::vector<std::string> dry_sequence_breakers{"\n", ":", "\"", "*"};
  std::vector<Token> dry_breaker_tokens{};  // the same, by id

  // 1 or 2: Mirostat replaces the steps from top_n_sigma to xtc. 0: off.
  int32_t mirostat = 0;
  float mirostat_tau = 5;     // the surprise to aim at, in bits
  float mirostat_eta = 0.1f;  // how fast it is approached
};

// kInvalidArgument: a sentence that names the first option that is out of range, and the range.
Result<void> validate(const SamplerOptions& options, int64_t vocabulary_size);

// Which tokens may come: one bit a token. A new mask forbids every token. Reading from several
// threads is safe.
class TokenMask final {
 public:
  explicit TokenMask(int64_t size)
      : size_(size > 0 ? size : 0), words_(static_cast<size_t>((size_ + 63) / 64), 0) {}

  int64_t size() const { return size_; }
  bool allows(Token id) const { return inside(id) && ((words_[word(id)] >> (id % 64)) & 1) != 0; }
  void allow(Token id) {  // an id outside the vocabulary is ignored, here and in forbid()
    if (inside(id)) words_[word(id)] |= uint64_t{1} << (id % 64);
  }
  void forbid(Token id) {
    if (inside(id)) words_[word(id)] &= ~(uint64_t{1} << (id % 64));
  }
  void allow_all() { fill(~uint64_t{0}); }
  void forbid_all() { fill(0); }
  int64_t count() const {  // tokens that are allowed
    int64_t n = 0;
    for (size_t i = 0; i < words_.size(); ++i) n += std::popcount(valid(i));
    return n;
  }

  // Bit i % 64 (from the lowest) of word i / 64 is token i. Bits behind the last token are ignored.
  std::span<uint64_t> words() { return words_; }
  std::span<const uint64_t> words() const { return words_; }
  // words()[i] without the bits behind the last token.
  uint64_t valid(size_t i) const {
    const int64_t left = size_ - static_cast<int64_t>(i) * 64;
    return left >= 64 ? words_[i] : words_[i] & ((uint64_t{1} << left) - 1);
  }

 private:
  bool inside(Token id) const { return id >= 0 && id < size_; }
  static size_t word(Token id) { return static_cast<size_t>(id) / 64; }
  void fill(uint64_t value) {
    for (uint64_t& w : words_) w = value;
  }

  int64_t size_;
  std::vector<uint64_t> words_;
};

struct TokenProbability {
  Token id;
  double probability;
};

// Draws tokens. One thread at a time.
//
// State: the seed, the number of tokens drawn so far and, with Mirostat, the surprise that is
// allowed now (mu). A copy has the same state and so draws the same tokens from the same logits; it
// shares the options and does not copy working memory, so copying is cheap. Working memory is
// allocated by the first picks; later picks allocate nothing, except that memory for penalties
// grows with a growing history (by doubling).
class Sampler final {
 public:
  // Errors: those of validate(). With DRY, texts in dry_sequence_breakers need the vocabulary;
  // without it they are kInvalidArgument.
  static Result<Sampler> make(int64_t vocabulary_size, const SamplerOptions& options);
  static Result<Sampler> make(const Vocabulary& vocabulary, const SamplerOptions& options);
  Sampler(const Sampler& other);
  Sampler(Sampler&& other) noexcept;
  Sampler& operator=(const Sampler& other);
  Sampler& operator=(Sampler&& other) noexcept;
  ~Sampler();

  // The next token. logits: [vocabulary], raw; -infinity marks a token that cannot come.
  // history: the tokens so far, prompt and answer, which only penalties and DRY read.
  // mask: tokens that it forbids are never picked, whatever the options say; null: all may come.
  // Errors, after which the state is as before: kNumeric (a NaN or +infinity, or no token is left),
  // kInvalidArgument (a row or a mask of another size; a mask that allows nothing).
  Result<Token> pick(std::span<const float> logits, std::span<const Token> history = {},
                     const TokenMask* mask = nullptr);

  // Speculative decoding, one step: `drafted` was drawn from `draft`, the distribution of a draft
  // model (ids at most once each, probabilities above 0). Accepts it with probability
  // min(1, p / q), else draws from max(0, p - q), where p is what pick() would draw from and q is
  // `draft`. So the token's law is exactly that of pick(), whatever the draft model is. Source:
  // Leviathan et al., Fast Inference from Transformers via Speculative Decoding, 2023. (To keep
  // not only the law but the very text, call pick() instead and compare the tokens; then fewer
  // drafts are accepted.)
  // Errors: as pick(); kInvalidArgument: `draft` does not hold `drafted`, or is no distribution.
  struct Verdict {
    Token token;
    bool accepted;  // token is the drafted one, by the test
  };
  Result<Verdict> verify(Token drafted, std::span<const TokenProbability> draft,
                         std::span<const float> logits, std::span<const Token> history = {},
                         const TokenMask* mask = nullptr);

  // The distribution that the last successful pick() or verify() drew from (p), after all steps:
  // tokens with a probability above 0, likeliest first. Empty before the first pick and in a fresh
  // copy. Valid until the next pick() or verify(). The logits need not live on.
  std::span<const TokenProbability> candidates();
  // Of any token under that distribution; 0 where candidates() is empty.
  double probability(Token id);

  const SamplerOptions& options() const;  // `seed` is the one given to make()
  uint64_t draws() const { return draws_; }
  // The next pick is draw number `n` (from 0). Without Mirostat, all that a pick depends on besides
  // its arguments are the options, the seed and this number.
  void set_draws(uint64_t n) { draws_ = n; }
  uint64_t seed() const { return seed_; }
  void set_seed(uint64_t seed) { seed_ = seed; }  // so that copies go different ways
  double mirostat_mu() const { return mu_; }
  void reset();  // draw 0, Mirostat as new; the seed stays

 private:
  struct Setup;
  struct Work;
  explicit Sampler(std::shared_ptr<const Setup> setup);
  Result<void> prepare(std::span<const float> logits, std::span<const Token> history,
                       const TokenMask* mask);
  void drawn(Token token);

  std::shared_ptr<const Setup> setup_;
  uint64_t seed_ = 0, draws_ = 0;
  double mu_ = 0;
  std::unique_ptr<Work> work_;  // made by the first pick
};

}  // namespace culet
