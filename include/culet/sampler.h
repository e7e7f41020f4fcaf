// From a row of logits to one token: options, token masks, and the sampler itself.
//
//   auto sampler = culet::Sampler::make(vocabulary, {.temperature = 0.7f, .seed = 1});
//   auto token = sampler->pick(session.logits(), session.tokens());
//
// docs/formats/sampling.md has the order of the steps, their formulas and sources, and what differs
// from llama.cpp. The same logits, history, mask, options and seed give the same token on every
// machine.
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
  float bias;  // added to the token's logit; -infinity: the token is never drawn
};

// Names, defaults and order follow llama.cpp, so settings can be carried over. The steps run in the
// order of docs/formats/sampling.md, not in the order of these members.
struct SamplerOptions {
  float temperature = 0.8f;  // 0: greedy; of equal logits the lowest id
  int32_t top_k = 40;        // 0: off
  float top_p = 0.95f;       // 1: off
  uint64_t seed = 0;
  float min_p = 0.05f;          // 0: off
  float typical_p = 1;          // locally typical sampling; 1: off
  float repeat_penalty = 1;     // 1: off
  float presence_penalty = 0;   // 0: off
  float frequency_penalty = 0;  // 0: off
  int32_t repeat_last_n = 64;   // window of the three penalties, in tokens; -1: all, 0: none
  std::vector<LogitBias> logit_bias{};

  float top_n_sigma = -1;  // keeps logits within n standard deviations of the highest; <= 0: off
  // Dynamic temperature: from temperature - range to temperature + range, depending on the entropy.
  float dynatemp_range = 0;  // 0: off
  float dynatemp_exponent = 1;

  // XTC removes all tokens that reach the threshold, except the least likely of them.
  float xtc_probability = 0;   // how often it does so; 0: off
  float xtc_threshold = 0.1f;  // above 0.5: off

  // DRY: a token that would continue a repetition of n tokens, n >= dry_allowed_length, loses
  // dry_multiplier * dry_base^(n - dry_allowed_length).
  float dry_multiplier = 0;  // 0: off
  float dry_base = 1.75f;
  int32_t dry_allowed_length = 2;
  int32_t dry_penalty_last_n = -1;  // tokens that are searched for repetitions; -1: all, 0: none
  // Repetitions do not extend over a breaker. A text stands for every token that contains it.
  std::vector<std::string> dry_sequence_breakers{"\n", ":", "\"", "*"};
  std::vector<Token> dry_breaker_tokens{};  // more breakers, by id

  // 1 or 2: Mirostat replaces the steps from top_n_sigma to xtc. 0: off.
  int32_t mirostat = 0;
  float mirostat_tau = 5;     // target surprisal, in bits
  float mirostat_eta = 0.1f;  // learning rate
};

// Error: kInvalidArgument, which names the first option that is out of range, and the range.
Result<void> validate(const SamplerOptions& options, int64_t vocabulary_size);

// Which tokens may come: one bit per token. A new mask forbids every token. Several threads may
// read one mask at a time.
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

  // Token i is bit i % 64 (from the lowest) of word i / 64. Bits after the last token are ignored.
  std::span<uint64_t> words() { return words_; }
  std::span<const uint64_t> words() const { return words_; }
  // words()[i] without the bits after the last token.
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
// State: the seed, the number of tokens drawn so far and, with Mirostat, mu (the surprisal that is
// allowed now, in bits). A copy has the same state, so it draws the same tokens from the same
// logits. Copies are cheap: they share the options and do not copy working memory. The first picks
// allocate working memory; later ones allocate nothing, except that memory for penalties doubles as
// the history grows.
class Sampler final {
 public:
  // Errors: those of validate(). With DRY, texts in dry_sequence_breakers need the overload that
  // takes the vocabulary; the other one returns kInvalidArgument for them.
  static Result<Sampler> make(int64_t vocabulary_size, const SamplerOptions& options);
  static Result<Sampler> make(const Vocabulary& vocabulary, const SamplerOptions& options);
  Sampler(const Sampler& other);
  Sampler(Sampler&& other) noexcept;
  Sampler& operator=(const Sampler& other);
  Sampler& operator=(Sampler&& other) noexcept;
  ~Sampler();

  // Draws the next token.
  // logits: raw, [vocabulary size]; -infinity marks a token that cannot come.
  // history: the tokens so far, prompt and answer. Only penalties and DRY read it.
  // mask: tokens that it forbids are never drawn, whatever the options say. Null: all tokens may
  // come. Errors, which leave the state as it was: kNumeric (a logit is NaN or +infinity, or no
  // token is left), kInvalidArgument (logits or a mask of another size; a mask that allows
  // nothing).
  Result<Token> pick(std::span<const float> logits, std::span<const Token> history = {},
                     const TokenMask* mask = nullptr);

  // One step of speculative decoding. `drafted` was drawn from q = `draft`, the distribution of a
  // draft model (every id at most once, probabilities above 0). p is the distribution that pick()
  // would draw from. Accepts `drafted` with probability min(1, p / q); otherwise draws from max(0,
  // p - q). So the result has the distribution p, whatever the draft model is (Leviathan et al.,
  // Fast Inference from Transformers via Speculative Decoding, 2023). To get the same text as
  // without speculation, call pick() and compare the tokens; then fewer drafts are accepted.
  // Errors: as pick(); kInvalidArgument (`draft` does not contain `drafted`, or is no
  // distribution).
  struct Verdict {
    Token token;
    bool accepted;  // true: token is `drafted`, which passed the test
  };
  Result<Verdict> verify(Token drafted, std::span<const TokenProbability> draft,
                         std::span<const float> logits, std::span<const Token> history = {},
                         const TokenMask* mask = nullptr);

  // The distribution that the last successful pick() or verify() drew from, after all steps: tokens
  // with a probability above 0, the likeliest first. Empty before the first pick and in a new copy.
  // Valid until the next pick() or verify(), also if the logits no longer exist.
  std::span<const TokenProbability> candidates();
  // The probability of any token in that distribution; 0 if candidates() is empty.
  double probability(Token id);

  const SamplerOptions& options() const;  // `seed` is the one given to make()
  uint64_t draws() const { return draws_; }
  // Makes the next pick draw number `n` (from 0). Without Mirostat, a pick depends only on its
  // arguments, the options, the seed and this number.
  void set_draws(uint64_t n) { draws_ = n; }
  uint64_t seed() const { return seed_; }
  void set_seed(uint64_t seed) { seed_ = seed; }  // to let copies draw differently
  double mirostat_mu() const { return mu_; }
  void reset();  // sets draws() to 0 and mu to its start; keeps the seed

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
