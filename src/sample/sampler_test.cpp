// The public sampler: masks, state and copies, the distribution it tells, Mirostat's feedback and
// speculative decoding.
#include "culet/sampler.h"

#include "sample/test_data.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <random>

namespace culet::sample {
namespace {

Sampler sampler(int64_t size, const SamplerOptions& options) {
  auto made = Sampler::make(size, options);
  EXPECT_TRUE(made) << made.error().message;
  return *std::move(made);
}

SamplerOptions everything(uint64_t seed) {
  return {.temperature = 1.3f,
          .top_k = 0,
          .top_p = 0.98f,
          .seed = seed,
          .min_p = 0.001f,
          .typical_p = 0.97f,
          .repeat_penalty = 1.2f,
          .presence_penalty = 0.1f,
          .frequency_penalty = 0.1f,
          .logit_bias = {{1, 1000000}, {2, -2}},
          .top_n_sigma = 3,
          .dynatemp_range = 0.5f,
          .xtc_probability = 0.5f,
          .xtc_threshold = 0.05f,
          .dry_multiplier = 0.5f,
          .dry_sequence_breakers = {},
          .dry_breaker_tokens = {4}};
}

// Options of many kinds for the tests that hold for all.
std::vector<SamplerOptions> kinds() {
  return {{},
          {.temperature = 0},
          {.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0},
          {.top_k = 1},
          everything(3),
          {.top_k = 0, .mirostat = 1},
          {.mirostat = 2, .mirostat_tau = 3}};
}

// ---------------------------------------------------------------- masks

TEST(TokenMask, BitsAreTokens) {
  TokenMask mask(130);
  EXPECT_EQ(mask.count(), 0);
  mask.allow(0), mask.allow(63), mask.allow(64), mask.allow(129);
  mask.allow(-1), mask.allow(130), mask.forbid(-1), mask.forbid(1000);
  EXPECT_EQ(mask.count(), 4);
  EXPECT_EQ(mask.words().size(), 3u);
  EXPECT_EQ(mask.words()[0], (uint64_t{1} << 63) | 1);
  EXPECT_EQ(mask.words()[1], 1u);
  EXPECT_EQ(mask.words()[2], 2u);
  EXPECT_TRUE(mask.allows(129));
  EXPECT_FALSE(mask.allows(128));
  EXPECT_FALSE(mask.allows(130));
  EXPECT_FALSE(mask.allows(-1));
  mask.forbid(129);
  EXPECT_FALSE(mask.allows(129));
  mask.allow_all();
  EXPECT_EQ(mask.count(), 130);
  mask.forbid_all();
  mask.words()[2] = ~uint64_t{0};
  EXPECT_EQ(mask.count(), 2);
  EXPECT_EQ(TokenMask(0).count(), 0);
  EXPECT_EQ(TokenMask(64).words().size(), 1u);
}

TEST(Sampler, ForbiddenTokensAreNeverPicked) {
  constexpr int64_t kSize = 203;
  std::mt19937 rng(1);
  for (const SamplerOptions& options : kinds()) {
    Sampler s = sampler(kSize, options);
    std::vector<Token> history;
    for (int i = 0; i < 300; ++i) {
      TokenMask mask(kSize);
      const auto allowed = 1 + rng() % (i % 2 ? 4 : 100);
      for (size_t j = 0; j < allowed; ++j) mask.allow(static_cast<Token>(rng() % kSize));
      mask.forbid(1);  // token 1 has a bias of 10^6 in one of the kinds
      if (mask.count() == 0) continue;
      auto row = random_row(kSize, static_cast<uint32_t>(i));
      row[0] = 100, row[1] = 200;
      const auto token = s.pick(row, history, &mask);
      ASSERT_TRUE(token) << token.error().message;
      EXPECT_TRUE(mask.allows(*token));
      for (const TokenProbability& c : s.candidates()) EXPECT_TRUE(mask.allows(c.id));
      if (options.temperature == 0) {
        Token best = -1;
        for (Token t = 0; t < kSize; ++t) {
          const bool better =
              best < 0 || row[static_cast<size_t>(t)] > row[static_cast<size_t>(best)];
          if (mask.allows(t) && better) best = t;
        }
        EXPECT_EQ(*token, best);
      }
      history.push_back(*token);
    }
  }
}

TEST(Sampler, AMaskThatAllowsAllChangesNothing) {
  TokenMask all(500);
  all.allow_all();
  for (const SamplerOptions& options : kinds()) {
    Sampler a = sampler(500, options), b = sampler(500, options);
    for (uint32_t i = 0; i < 50; ++i) {
      const auto row = random_row(500, i);
      EXPECT_EQ(a.pick(row).value(), b.pick(row, {}, &all).value());
    }
  }
}

TEST(Sampler, MasksThatCannotBeAreErrorsAndLeaveTheState) {
  Sampler s = sampler(100, {});
  const auto row = random_row(100, 1);
  ASSERT_TRUE(s.pick(row));
  TokenMask none(100), other(99), tail(100);
  other.allow_all();
  tail.words()[1] = ~((uint64_t{1} << 36) - 1);  // only bits behind the last token
  for (const TokenMask* mask : {&none, &other, &tail}) {
    const auto token = s.pick(row, {}, mask);
    ASSERT_FALSE(token);
    EXPECT_EQ(token.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(s.draws(), 1u);
    EXPECT_TRUE(s.candidates().empty());
    EXPECT_EQ(s.probability(0), 0);
  }
  auto suppressed = row;
  suppressed[7] = -kInf;
  TokenMask seven(100);
  seven.allow(7);
  EXPECT_EQ(s.pick(suppressed, {}, &seven).error().code, ErrorCode::kNumeric);
  EXPECT_EQ(s.pick(row, {}, &seven).value(), 7);
  EXPECT_EQ(s.probability(7), 1);
}

// ---------------------------------------------------------------- state

TEST(Sampler, PicksFollowSeedAndNumberAlone) {
  const SamplerOptions o{.temperature = 1.5f, .top_k = 0, .top_p = 1, .seed = 11, .min_p = 0};
  Sampler s = sampler(300, o);
  const kernels::Kernels k = table();
  for (uint64_t n = 0; n < 60; ++n) {
    const auto row = random_row(300, static_cast<uint32_t>(n), 1);
    EXPECT_EQ(s.pick(row).value(), pick_at(k, o, row, n).value());
    EXPECT_EQ(s.draws(), n + 1);
  }
  s.set_draws(17);
  EXPECT_EQ(s.pick(random_row(300, 17, 1)).value(),
            pick_at(k, o, random_row(300, 17, 1), 17).value());
  s.reset();
  EXPECT_EQ(s.draws(), 0u);
  EXPECT_EQ(s.pick(random_row(300, 0, 1)).value(), pick_at(k, o, random_row(300, 0, 1), 0).value());
}

TEST(Sampler, CopiesDrawTheSameAndAreIndependent) {
  for (const SamplerOptions& options : kinds()) {
    Sampler a = sampler(400, options);
    std::vector<Token> history;
    history.reserve(40);
    for (uint32_t i = 0; i < 20; ++i)
      history.push_back(a.pick(random_row(400, i), history).value());
    Sampler b = a, c = sampler(400, {});
    EXPECT_TRUE(b.candidates().empty());
    c = a;
    for (uint32_t i = 20; i < 40; ++i) {
      const auto row = random_row(400, i);
      const Token token = a.pick(row, history).value();
      EXPECT_EQ(b.pick(row, history).value(), token);
      EXPECT_EQ(c.pick(row, history).value(), token);
      EXPECT_EQ(a.mirostat_mu(), b.mirostat_mu());
      history.push_back(token);
    }
    Sampler moved = std::move(a);
    EXPECT_EQ(moved.pick(random_row(400, 40), history).value(),
              b.pick(random_row(400, 40), history).value());
  }
  Sampler a = sampler(400, {.temperature = 5, .top_k = 0, .top_p = 1, .min_p = 0}), b = a;
  b.set_seed(1);
  int same = 0;
  for (uint32_t i = 0; i < 40; ++i) {
    const auto row = random_row(400, i, 1);
    same += a.pick(row).value() == b.pick(row).value();
  }
  EXPECT_LT(same, 10);
}

TEST(Sampler, MakeSaysWhatIsWrong) {
  EXPECT_FALSE(Sampler::make(0, {}));
  EXPECT_EQ(Sampler::make(100, {.top_p = 2}).error().code, ErrorCode::kInvalidArgument);
  const auto texts = Sampler::make(100, {.dry_multiplier = 1});
  ASSERT_FALSE(texts);
  EXPECT_EQ(texts.error().message.rfind("dry_sequence_breakers", 0), 0u);
  EXPECT_TRUE(Sampler::make(100, {.dry_multiplier = 1, .dry_sequence_breakers = {}}));
  Sampler s = sampler(100, {});
  EXPECT_EQ(s.pick(random_row(99, 1)).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(s.pick({}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(s.draws(), 0u);
}

// ---------------------------------------------------------------- the distribution

TEST(Sampler, TellsTheDistributionThatItDrewFrom) {
  constexpr int kDraws = 20000;
  for (const SamplerOptions& options : kinds()) {
    if (options.mirostat != 0) continue;  // its distribution changes from draw to draw
    SamplerOptions o = options;
    o.xtc_probability = o.xtc_probability > 0 ? 1 : 0;
    Sampler s = sampler(50, o);
    std::map<Token, int> counts;
    auto row = random_row(50, 9, 2);
    const auto kept = row;
    for (int i = 0; i < kDraws; ++i) ++counts[s.pick(row).value()];
    std::fill(row.begin(), row.end(), std::nanf(""));  // the logits need not live on
    double sum = 0, before = 1;
    for (const TokenProbability& c : s.candidates()) {
      EXPECT_GT(c.probability, 0);
      EXPECT_LE(c.probability, before);
      EXPECT_EQ(s.probability(c.id), c.probability);
      EXPECT_NEAR(counts[c.id] / double{kDraws}, c.probability, 0.015);
      sum += before = c.probability;
      counts.erase(c.id);
    }
    EXPECT_NEAR(sum, 1, 1e-12);
    for (const auto& [id, count] : counts) EXPECT_EQ(count, 0) << id;
    EXPECT_EQ(s.probability(-1), 0);
    EXPECT_EQ(s.probability(50), 0);
    ASSERT_TRUE(s.pick(kept));
  }
}

TEST(Sampler, TellsLongDistributionsWithoutTheCallersRow) {
  const SamplerOptions many[] = {
      {.temperature = 2, .top_k = 0, .top_p = 1, .min_p = 0},
      {.temperature = 2, .top_k = 900, .top_p = 1, .min_p = 0},
      {.temperature = 2, .top_k = 900, .top_p = 1, .min_p = 0, .typical_p = 0.99f},
      {.temperature = 2,
       .top_k = 0,
       .top_p = 1,
       .min_p = 0,
       .xtc_probability = 1,
       .xtc_threshold = 0.001f}};
  for (const SamplerOptions& options : many) {
    Sampler s = sampler(3000, options);
    auto row = random_row(3000, 4, 1);
    row[5] = -kInf;
    ASSERT_TRUE(s.pick(row));
    std::fill(row.begin(), row.end(), std::nanf(""));
    std::vector<double> asked(3000);
    for (Token t = 0; t < 3000; ++t) asked[static_cast<size_t>(t)] = s.probability(t);
    EXPECT_EQ(asked[5], 0);
    EXPECT_NEAR(std::accumulate(asked.begin(), asked.end(), 0.0), 1, 1e-9);
    const auto listed = s.candidates();
    EXPECT_GT(listed.size(), 256u);
    size_t positive = 0;
    for (double p : asked) positive += p > 0;
    EXPECT_EQ(listed.size(), positive);
    for (const TokenProbability& c : listed) {
      EXPECT_EQ(c.probability, asked[static_cast<size_t>(c.id)]);
    }
  }
}

// ---------------------------------------------------------------- Mirostat

TEST(Sampler, MirostatReachesItsSurprise) {
  for (int32_t version : {1, 2}) {
    for (float tau : {2.0f, 4.0f}) {
      Sampler s = sampler(2000, {.temperature = 1, .mirostat = version, .mirostat_tau = tau});
      EXPECT_EQ(s.mirostat_mu(), 2 * tau);
      double surprise = 0;
      constexpr int kSteps = 2000;
      double mu = s.mirostat_mu();
      for (uint32_t i = 0; i < kSteps; ++i) {
        const Token token = s.pick(random_row(2000, i, 1.5f)).value();
        const double bits = -std::log2(s.probability(token));
        surprise += bits;
        mu -= 0.1f * (bits - tau);
        ASSERT_NEAR(s.mirostat_mu(), mu, 1e-9);
      }
      EXPECT_NEAR(surprise / kSteps, tau, 0.1) << version << " " << tau;
      s.reset();
      EXPECT_EQ(s.mirostat_mu(), 2 * tau);
    }
  }
}

// ---------------------------------------------------------------- speculation

// Tokens of a draft model whose distribution has nothing to do with the target's.
TEST(Sampler, SpeculationKeepsTheLaw) {
  constexpr int kDraws = 40000;
  constexpr int64_t kSize = 12;
  const auto target = random_row(kSize, 1, 1.5f);
  for (const SamplerOptions& options :
       {SamplerOptions{.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0},
        SamplerOptions{.temperature = 0.7f, .top_k = 5},
        SamplerOptions{.temperature = 1.5f, .top_p = 0.8f}}) {
    // The draft's own sampler has the same seed: its draws must not be those of the test.
    Sampler s = sampler(kSize, options);
    Sampler draft = sampler(kSize, {.temperature = 1, .top_k = 7, .top_p = 1, .min_p = 0});
    Sampler plain = s;
    ASSERT_TRUE(plain.pick(target));
    const auto draft_row = random_row(kSize, 2, 1.5f);
    std::vector<int> counts(kSize, 0);
    double accepted = 0;
    for (int i = 0; i < kDraws; ++i) {
      const Token guess = draft.pick(draft_row).value();
      const auto verdict = s.verify(guess, draft.candidates(), target);
      ASSERT_TRUE(verdict);
      if (verdict->accepted) {
        EXPECT_EQ(verdict->token, guess);
      }
      accepted += verdict->accepted;
      ++counts[static_cast<size_t>(verdict->token)];
    }
    EXPECT_EQ(s.draws(), static_cast<uint64_t>(kDraws));
    double overlap = 0;
    for (Token t = 0; t < kSize; ++t) {
      EXPECT_NEAR(counts[static_cast<size_t>(t)] / double{kDraws}, plain.probability(t), 0.01);
      overlap += std::min(plain.probability(t), draft.probability(t));
    }
    EXPECT_NEAR(accepted / kDraws, overlap, 0.01);
  }
}

TEST(Sampler, GreedySpeculationIsGreedy) {
  Sampler s = sampler(50, {.temperature = 0});
  for (uint32_t i = 0; i < 50; ++i) {
    const auto row = random_row(50, i);
    const Token best = s.pick(row).value();
    for (Token guess : {best, static_cast<Token>((best + 1) % 50)}) {
      const TokenProbability certain[] = {{guess, 1}}, unsure[] = {{guess, 0.3}, {49 - guess, 0.7}};
      for (std::span<const TokenProbability> q : {std::span(certain, 1), std::span(unsure, 2)}) {
        const auto verdict = s.verify(guess, q, row).value();
        EXPECT_EQ(verdict.token, best);
        EXPECT_EQ(verdict.accepted, guess == best);
      }
    }
  }
}

TEST(Sampler, SpeculationHeedsTheMask) {
  Sampler s = sampler(50, {.temperature = 2, .top_k = 0, .top_p = 1, .min_p = 0});
  TokenMask mask(50);
  for (Token t = 0; t < 50; t += 7) mask.allow(t);
  const TokenProbability q[] = {{7, 0.5}, {8, 0.5}};
  for (uint32_t i = 0; i < 500; ++i) {
    const auto verdict = s.verify(7 + static_cast<Token>(i % 2), q, random_row(50, i), {}, &mask);
    ASSERT_TRUE(verdict);
    EXPECT_TRUE(mask.allows(verdict->token));
  }
}

TEST(Sampler, DraftsThatMakeNoSenseAreErrors) {
  Sampler s = sampler(50, {});
  const auto row = random_row(50, 1);
  const TokenProbability outside[] = {{3, 0.5}, {50, 0.5}}, zero[] = {{3, 0.0}, {4, 1.0}},
                         other[] = {{4, 1.0}}, much[] = {{3, 1.5}}, nan[] = {{3, std::nan("")}};
  for (std::span<const TokenProbability> q :
       {std::span<const TokenProbability>(outside), std::span<const TokenProbability>(zero),
        std::span<const TokenProbability>(other), std::span<const TokenProbability>(much),
        std::span<const TokenProbability>(nan), std::span<const TokenProbability>()}) {
    const auto verdict = s.verify(3, q, row);
    ASSERT_FALSE(verdict);
    EXPECT_EQ(verdict.error().code, ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(s.draws(), 0u);
}

}  // namespace
}  // namespace culet::sample
