// The public sampler: options that all copies share, a few numbers of state, and a chain whose
// memory each copy makes for itself.
#include "culet/sampler.h"

#include "sample/chain.h"
#include "sample/numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace culet {

using sample::Purpose;

struct Sampler::Setup {
  kernels::Kernels kernels{};
  int64_t vocabulary = 0;
  SamplerOptions options;
  std::vector<Token> breakers;  // sorted
};

struct Sampler::Work {
  sample::Chain chain;
  std::vector<double> draft;  // [vocabulary], 0 between calls; only where drafts are verified
};

namespace {

constexpr double kLog2E = 0x1.71547652b82fep+0;

Result<void> check_mask(const TokenMask& mask, int64_t vocabulary) {
  if (mask.size() != vocabulary) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the token mask is for {} tokens, but the vocabulary has {}",
                            mask.size(), vocabulary));
  }
  for (size_t i = 0; i < mask.words().size(); ++i) {
    if (mask.valid(i) != 0) return {};
  }
  return fail(ErrorCode::kInvalidArgument, "the token mask allows no token; allow at least one");
}

Result<void> check_draft(Token drafted, std::span<const TokenProbability> draft,
                         int64_t vocabulary) {
  bool found = false;
  for (const TokenProbability& q : draft) {
    if (q.id < 0 || q.id >= vocabulary || !(q.probability > 0 && q.probability <= 1.000001)) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("the draft's distribution gives token {} the probability {}; ids "
                              "must be 0 to {}, probabilities above 0 and at most 1",
                              q.id, q.probability, vocabulary - 1));
    }
    found = found || q.id == drafted;
  }
  if (found) return {};
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("the draft's distribution does not contain the drafted token {}", drafted));
}

}  // namespace

Result<Sampler> Sampler::make(int64_t vocabulary_size, const SamplerOptions& options) {
  if (vocabulary_size < 1) {
    return fail(ErrorCode::kInvalidArgument, "a vocabulary has at least one token");
  }
  CULET_TRY_VOID(validate(options, vocabulary_size));
  if (options.dry_multiplier > 0 && !options.dry_sequence_breakers.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "dry_sequence_breakers are texts, which need a vocabulary; make the sampler with "
                "one, or leave them empty and name dry_breaker_tokens");
  }
  auto setup = std::make_shared<Setup>();
  if (const char* error = kernels::select_kernels(nullptr, &setup->kernels)) {
    return fail(ErrorCode::kUnsupported, error);
  }
  setup->vocabulary = vocabulary_size;
  setup->options = options;
  setup->breakers = options.dry_breaker_tokens;
  std::sort(setup->breakers.begin(), setup->breakers.end());
  return Sampler(std::move(setup));
}

Sampler::Sampler(std::shared_ptr<const Setup> setup)
    : setup_(std::move(setup)), seed_(setup_->options.seed) {
  reset();
}

Sampler::Sampler(const Sampler& other)
    : setup_(other.setup_), seed_(other.seed_), draws_(other.draws_), mu_(other.mu_) {}

Sampler::Sampler(Sampler&& other) noexcept = default;
Sampler& Sampler::operator=(Sampler&& other) noexcept = default;
Sampler::~Sampler() = default;

Sampler& Sampler::operator=(const Sampler& other) {
  if (this == &other) return *this;
  if (setup_ != other.setup_) work_.reset();
  if (work_) work_->chain.clear();
  setup_ = other.setup_;
  seed_ = other.seed_;
  draws_ = other.draws_;
  mu_ = other.mu_;
  return *this;
}

const SamplerOptions& Sampler::options() const { return setup_->options; }

void Sampler::reset() {
  draws_ = 0;
  mu_ = 2 * static_cast<double>(setup_->options.mirostat_tau);
}

Result<void> Sampler::prepare(std::span<const float> logits, std::span<const Token> history,
                              const TokenMask* mask) {
  if (!work_) {
    work_ = std::make_unique<Work>(
        Work{sample::Chain(setup_->kernels, setup_->options, setup_->breakers), {}});
  }
  work_->chain.clear();
  if (static_cast<int64_t>(logits.size()) != setup_->vocabulary) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("there are {} logits, but the vocabulary has {} tokens", logits.size(),
                            setup_->vocabulary));
  }
  if (mask) CULET_TRY_VOID(check_mask(*mask, setup_->vocabulary));
  return work_->chain.prepare({logits, history, mask, seed_, draws_, mu_});
}

// What a draw leaves behind.
void Sampler::drawn(Token token) {
  work_->chain.detach();
  ++draws_;
  if (setup_->options.mirostat == 0) return;
  const double surprise = -sample::natural_log(work_->chain.probability(token)) * kLog2E;
  mu_ -= static_cast<double>(setup_->options.mirostat_eta) *
         (surprise - static_cast<double>(setup_->options.mirostat_tau));
}

Result<Token> Sampler::pick(std::span<const float> logits, std::span<const Token> history,
                            const TokenMask* mask) {
  CULET_TRY_VOID(prepare(logits, history, mask));
  const Token token =
      work_->chain.draw(sample::uniform(sample::stream(seed_, Purpose::kToken), draws_));
  drawn(token);
  return token;
}

Result<Sampler::Verdict> Sampler::verify(Token drafted, std::span<const TokenProbability> draft,
                                         std::span<const float> logits,
                                         std::span<const Token> history, const TokenMask* mask) {
  CULET_TRY_VOID(check_draft(drafted, draft, setup_->vocabulary));
  CULET_TRY_VOID(prepare(logits, history, mask));
  std::vector<double>& q = work_->draft;
  q.resize(static_cast<size_t>(setup_->vocabulary), 0);
  for (const TokenProbability& d : draft) q[static_cast<size_t>(d.id)] = d.probability;
  const double u = sample::uniform(sample::stream(seed_, Purpose::kAccept), draws_);
  const bool accepted = u * q[static_cast<size_t>(drafted)] < work_->chain.probability(drafted);
  const double v = sample::uniform(sample::stream(seed_, Purpose::kResidual), draws_);
  const Token token = accepted ? drafted : work_->chain.draw_residual(v, q);
  for (const TokenProbability& d : draft) q[static_cast<size_t>(d.id)] = 0;
  drawn(token);
  return Verdict{token, accepted};
}

std::span<const TokenProbability> Sampler::candidates() {
  return work_ ? work_->chain.candidates() : std::span<const TokenProbability>();
}

double Sampler::probability(Token id) { return work_ ? work_->chain.probability(id) : 0; }

}  // namespace culet
