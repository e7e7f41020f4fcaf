// The chain against a plain reference (full sort, double precision), the generator against
// published numbers, and log-probabilities against the formulas.
#include "sample/chain.h"
#include "sample/logprobs.h"
#include "sample/numbers.h"
#include "sample/ranking.h"
#include "sample/test_data.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace culet::sample {
namespace {

std::vector<int32_t> sorted_ids(const std::vector<float>& row) {
  std::vector<int32_t> ids(row.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
    const float x = row[static_cast<size_t>(a)], y = row[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  });
  return ids;
}

// ---------------------------------------------------------------- ranking

TEST(Ranking, EqualsASortOfEverything) {
  for (size_t n : {1, 2, 15, 16, 17, 100, 1000, 30000}) {
    for (int kind = 0; kind < 4; ++kind) {
      std::vector<float> row =
          random_row(n, static_cast<uint32_t>(n) + static_cast<uint32_t>(kind));
      if (kind == 1)
        for (float& x : row) x = std::round(x);          // many ties
      if (kind == 2) std::sort(row.begin(), row.end());  // every value beats the threshold
      if (kind == 3)
        for (size_t i = 0; i < n; i += 2) row[i] = -kInf;
      const std::vector<int32_t> want = sorted_ids(row);
      Ranking ranking;
      ranking.start(row);
      for (size_t ask : {size_t{1}, size_t{5}, size_t{64}, size_t{65}, size_t{700}, n, n + 10}) {
        const auto best = ranking.best(ask);
        ASSERT_EQ(best.size(), std::min(ask, n));
        for (size_t i = 0; i < best.size(); ++i) {
          ASSERT_EQ(best[i].id, want[i]) << n << " " << kind << " " << ask;
          ASSERT_EQ(best[i].logit, row[static_cast<size_t>(want[i])]);
        }
      }
    }
  }
}

// ---------------------------------------------------------------- generator

// Verifies answers.sampler.
TEST(Uniform, IsSplitMix64) {
  // The first outputs of SplitMix64 seeded with 1234567, as published with its reference code.
  const uint64_t want[] = {6457827717110365317u, 3203168211198807973u, 9817491932198370423u,
                           4593380528125082431u};
  for (uint64_t n = 0; n < 4; ++n) {
    EXPECT_EQ(uniform(1234567, n), static_cast<double>(want[n] >> 11) * 0x1p-53);
  }
}

TEST(Uniform, IsEvenAndBelowOne) {
  double sum = 0, squares = 0;
  for (uint64_t n = 0; n < 100000; ++n) {
    const double u = uniform(42, n);
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    sum += u, squares += u * u;
  }
  EXPECT_NEAR(sum / 100000, 0.5, 0.005);
  EXPECT_NEAR(squares / 100000, 1.0 / 3, 0.005);
}

// ---------------------------------------------------------------- chain

// top_p looks at temperature 1, the draw at the options' temperature.
int32_t reference(const std::vector<float>& row, const SamplerOptions& o, uint64_t n) {
  const std::vector<int32_t> ids = sorted_ids(row);
  const auto weight = [&](size_t i, double temperature) {
    return std::exp(
        (static_cast<double>(row[static_cast<size_t>(ids[i])]) - row[static_cast<size_t>(ids[0])]) /
        temperature);
  };
  const auto total = [&](size_t count, double temperature) {
    double sum = 0;
    for (size_t i = 0; i < count; ++i) sum += weight(i, temperature);
    return sum;
  };
  size_t count =
      o.top_k > 0 ? std::min<size_t>(ids.size(), static_cast<size_t>(o.top_k)) : ids.size();
  if (o.top_p < 1) {
    const double limit = o.top_p * total(count, 1);
    size_t kept = 1;
    while (kept < count && total(kept, 1) < limit) ++kept;
    count = kept;
  }
  const double target = uniform(o.seed, n) * total(count, o.temperature);
  double sum = 0;
  for (size_t i = 0; i < count; ++i) {
    sum += weight(i, o.temperature);
    if (sum > target) return ids[i];
  }
  return ids[count - 1];
}

int32_t pick(const std::vector<float>& row, const SamplerOptions& o, uint64_t n = 0) {
  const kernels::Kernels k = table();
  const auto token = pick_at(k, o, row, n);
  EXPECT_TRUE(token);
  return token ? *token : -1;
}

// Without min_p, which is on by default.
SamplerOptions plain(float temperature, int32_t top_k, float top_p, uint64_t seed) {
  return {.temperature = temperature, .top_k = top_k, .top_p = top_p, .seed = seed, .min_p = 0};
}

// Verifies answers.sampler.
TEST(Sampler, FollowsTheReference) {
  const kernels::Kernels k = table();
  for (float temperature : {0.3f, 0.8f, 1.0f, 2.5f}) {
    for (int32_t top_k : {0, 2, 40, 100000}) {
      for (float top_p : {0.1f, 0.95f, 1.0f}) {
        const SamplerOptions o = plain(temperature, top_k, top_p, 99);
        int same = 0;
        for (uint64_t n = 0; n < 60; ++n) {
          const std::vector<float> row = random_row(500 + n % 7, static_cast<uint32_t>(n));
          same += pick_at(k, o, row, n).value() == reference(row, o, n);
        }
        EXPECT_GE(same, 59) << temperature << " " << top_k << " "
                            << top_p;  // float32 weights may move a border
      }
    }
  }
}

TEST(Sampler, DrawsInProportion) {
  const kernels::Kernels k = table();
  const std::vector<float> row = {std::log(0.5f), std::log(0.3f), std::log(0.2f)};
  const SamplerOptions o = plain(1, 0, 1, 7);
  int counts[3] = {};
  for (uint64_t n = 0; n < 20000; ++n) ++counts[pick_at(k, o, row, n).value()];
  EXPECT_NEAR(counts[0] / 20000.0, 0.5, 0.015);
  EXPECT_NEAR(counts[1] / 20000.0, 0.3, 0.015);
  EXPECT_NEAR(counts[2] / 20000.0, 0.2, 0.015);
}

// Requirement answers.sampler "sampler": greedy takes the lowest id on ties; draws come from a
// documented generator (SplitMix64 in place of xorshift64*), a function of seed and position
// (docs/formats/sampling.md)
TEST(Sampler, GreedyTakesTheLowestIdOfTheHighest) {
  std::vector<float> row = random_row(1000, 1);
  row[700] = row[300] = row[900] = 50;
  EXPECT_EQ(pick(row, {.temperature = 0}), 300);
  EXPECT_EQ(pick(row, {.temperature = 5, .top_k = 1}), 300);
  EXPECT_EQ(pick(row, {.temperature = 1e-30f, .top_k = 1}), 300);
}

TEST(Sampler, SmallTopPKeepsTheBest) {
  std::vector<float> row = random_row(1000, 2);
  row[123] = 30;
  for (uint64_t n = 0; n < 50; ++n) EXPECT_EQ(pick(row, plain(1, 0, 1e-6f, 3), n), 123);
}

TEST(Sampler, SuppressedTokensNeverCome) {
  std::vector<float> row(100, -kInf);
  row[17] = 1, row[60] = 1;
  int seen[2] = {};
  for (uint64_t n = 0; n < 200; ++n) {
    const int32_t token = pick(row, plain(1, 0, 1, 5), n);
    ASSERT_TRUE(token == 17 || token == 60);
    ++seen[token == 60];
  }
  EXPECT_GT(seen[0], 50);
  EXPECT_GT(seen[1], 50);
  EXPECT_EQ(pick(row, {.temperature = 0}), 17);
}

TEST(Sampler, EveryInstructionSetPicksTheSame) {
  const kernels::Kernels scalar = table("scalar");
  for (const kernels::IsaLevel* level = kernels::isa_levels(); level->name != nullptr; ++level) {
    if (!level->usable) continue;
    const kernels::Kernels k = table(level->name);
    for (const SamplerOptions& o :
         {plain(0.8f, 40, 0.95f, 1), plain(1.1f, 0, 0.9f, 2), plain(1, 0, 1, 3)}) {
      for (uint64_t n = 0; n < 40; ++n) {
        const std::vector<float> row = random_row(3000, static_cast<uint32_t>(n), 2);
        EXPECT_EQ(pick_at(scalar, o, row, n).value(), pick_at(k, o, row, n).value()) << level->name;
      }
    }
  }
}

// Verifies answers.sampler.
TEST(Sampler, BadRowsAreErrors) {
  const kernels::Kernels k = table();
  for (float temperature : {0.0f, 1.0f}) {
    const SamplerOptions o{.temperature = temperature};
    for (float bad : {std::numeric_limits<float>::quiet_NaN(), kInf}) {
      std::vector<float> row = random_row(100, 4);
      row[50] = bad;
      const auto token = pick_at(k, o, row, 0);
      ASSERT_FALSE(token);
      EXPECT_EQ(token.error().code, ErrorCode::kNumeric);
    }
    const auto none = pick_at(k, o, std::vector<float>(100, -kInf), 0);
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().code, ErrorCode::kNumeric);
    EXPECT_FALSE(pick_at(k, o, {}, 0));
  }
}

TEST(Options, ErrorsNameTheOption) {
  const float nan = std::nanf("");
  EXPECT_TRUE(validate({}, 100));
  EXPECT_TRUE(validate({.temperature = 0, .top_k = 0, .top_p = 1}, 100));
  EXPECT_TRUE(validate({.top_n_sigma = 0}, 100));
  EXPECT_TRUE(validate({.mirostat = 2}, 100));
  EXPECT_TRUE(validate({.dry_breaker_tokens = {0, 99}}, 100));
  const std::pair<SamplerOptions, const char*> bad[] = {
      {{.temperature = -1}, "temperature"},
      {{.temperature = nan}, "temperature"},
      {{.temperature = kInf}, "temperature"},
      {{.top_k = -1}, "top_k"},
      {{.top_p = 0}, "top_p"},
      {{.top_p = 1.5f}, "top_p"},
      {{.top_p = nan}, "top_p"},
      {{.min_p = -0.1f}, "min_p"},
      {{.min_p = 1.1f}, "min_p"},
      {{.typical_p = 0}, "typical_p"},
      {{.repeat_penalty = 0}, "repeat_penalty"},
      {{.presence_penalty = kInf}, "presence_penalty"},
      {{.frequency_penalty = nan}, "frequency_penalty"},
      {{.repeat_last_n = -2}, "repeat_last_n"},
      {{.logit_bias = {{100, 1}}}, "logit_bias"},
      {{.logit_bias = {{3, kInf}}}, "logit_bias"},
      {{.logit_bias = {{3, nan}}}, "logit_bias"},
      {{.top_n_sigma = nan}, "top_n_sigma"},
      {{.dynatemp_range = -0.5f}, "dynatemp_range"},
      {{.dynatemp_exponent = -1}, "dynatemp_exponent"},
      {{.xtc_probability = 1.5f}, "xtc_probability"},
      {{.xtc_threshold = -0.1f}, "xtc_threshold"},
      {{.dry_multiplier = -1}, "dry_multiplier"},
      {{.dry_base = 0.5f}, "dry_base"},
      {{.dry_allowed_length = 0}, "dry_allowed_length"},
      {{.dry_penalty_last_n = -2}, "dry_penalty_last_n"},
      {{.dry_sequence_breakers = {""}}, "dry_sequence_breakers"},
      {{.dry_sequence_breakers = {std::string(257, 'x')}}, "dry_sequence_breakers"},
      {{.dry_sequence_breakers = std::vector<std::string>(65, "x")}, "dry_sequence_breakers"},
      {{.dry_breaker_tokens = {-1}}, "dry_breaker_tokens"},
      {{.mirostat = 3}, "mirostat"},
      {{.mirostat_tau = -1}, "mirostat_tau"},
      {{.mirostat_eta = nan}, "mirostat_eta"}};
  for (const auto& [options, name] : bad) {
    const auto result = validate(options, 100);
    ASSERT_FALSE(result) << name;
    EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(result.error().message.rfind(std::string(name) + " ", 0), 0u)
        << result.error().message;
  }
}

// ---------------------------------------------------------------- numbers

TEST(Numbers, NaturalLog) {
  std::mt19937_64 rng(1);
  for (int i = 0; i < 100000; ++i) {
    const double x = std::ldexp(1 + static_cast<double>(rng() >> 11) * 0x1p-53,
                                static_cast<int>(rng() % 200) - 100);
    ASSERT_NEAR(natural_log(x), std::log(x), 4e-16 * std::max(0.1, std::abs(std::log(x)))) << x;
  }
  EXPECT_EQ(natural_log(1), 0);
}

TEST(Numbers, NaturalExp) {
  std::mt19937_64 rng(1);
  for (int i = 0; i < 100000; ++i) {
    const double x = (static_cast<double>(rng() >> 11) * 0x1p-53 - 0.5) * 1400;
    ASSERT_NEAR(natural_exp(x) / std::exp(x), 1, 6e-16) << x;
  }
  EXPECT_EQ(natural_exp(0), 1);
  EXPECT_EQ(natural_exp(-1e9), 0);
  EXPECT_TRUE(std::isfinite(natural_exp(1e9)));
}

TEST(Numbers, PurposesHaveStreamsOfTheirOwn) {
  const Purpose all[] = {Purpose::kToken, Purpose::kXtc, Purpose::kAccept, Purpose::kResidual};
  for (const Purpose a : all) {
    for (const Purpose b : all) {
      if (a == b) continue;
      double products = 0;
      for (uint64_t n = 0; n < 20000; ++n) {
        products += (uniform(stream(5, a), n) - 0.5) * (uniform(stream(5, b), n) - 0.5);
      }
      EXPECT_NEAR(products / 20000, 0, 0.003);  // variance of a product: 1 / 144
    }
  }
  EXPECT_EQ(stream(5, Purpose::kToken), 5u);
}

// ---------------------------------------------------------------- log-probabilities

TEST(LogProbs, AgainstTheFormulas) {
  const kernels::Kernels k = table();
  for (bool suppress : {false, true}) {
    std::vector<float> row = random_row(5000, 8);
    if (suppress)
      for (size_t i = 0; i < row.size(); i += 3) row[i] = -kInf;
    LogProbs probs(k);
    ASSERT_TRUE(probs.start(row));
    const double max = *std::max_element(row.begin(), row.end());
    double sum = 0, entropy = 0;
    for (float x : row) sum += std::exp(x - max);
    for (float x : row) {
      const double p = std::exp(x - max) / sum;
      if (p > 0) entropy -= p * std::log(p);
    }
    EXPECT_NEAR(probs.log_sum_exp(), max + std::log(sum), 1e-6);
    EXPECT_NEAR(probs.entropy(), entropy, 1e-5);
    std::vector<LogProb> top;
    probs.top(30, &top);
    const std::vector<int32_t> ids = sorted_ids(row);
    ASSERT_EQ(top.size(), 30u);
    for (size_t i = 0; i < 30; ++i) {
      EXPECT_EQ(top[i].id, ids[i]);
      EXPECT_NEAR(top[i].logprob, row[static_cast<size_t>(ids[i])] - max - std::log(sum), 1e-6);
    }
    if (suppress) {
      EXPECT_EQ(probs.logprob(0), -std::numeric_limits<double>::infinity());
    }
    probs.top(10000, &top);
    EXPECT_EQ(top.size(), suppress ? 5000u - 1667 : 5000u);
  }
}

TEST(LogProbs, BadRowsAreErrors) {
  const kernels::Kernels k = table();
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), kInf}) {
    std::vector<float> row = random_row(100, 4);
    row[0] = -kInf;
    row[50] = bad;
    LogProbs probs(k);
    const auto result = probs.start(row);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::kNumeric);
  }
  LogProbs probs(k);
  EXPECT_FALSE(probs.start(std::vector<float>(10, -kInf)));
  EXPECT_FALSE(probs.start({}));
}

}  // namespace
}  // namespace culet::sample
