// A pick allocates nothing after warm-up.
#include "base/allocation_counter.h"
#include "culet/sampler.h"
#include "sample/test_data.h"

#include <gtest/gtest.h>

namespace culet::sample {
namespace {

using base::allocation_count;

TEST(SamplerAllocation, APickAllocatesNothingAfterWarmUp) {
  constexpr int64_t kSize = 4000;
  const SamplerOptions all{.temperature = 1.2f,
                           .top_k = 0,
                           .top_p = 0.99f,
                           .min_p = 0,
                           .typical_p = 0.95f,
                           .repeat_penalty = 1.1f,
                           .logit_bias = {{3, 1}},
                           .top_n_sigma = 4,
                           .dynatemp_range = 0.5f,
                           .xtc_probability = 0.5f,
                           .xtc_threshold = 0.01f,
                           .dry_multiplier = 0.5f,
                           .dry_sequence_breakers = {}};
  std::vector<std::vector<float>> rows;
  rows.reserve(20);
  for (uint32_t i = 0; i < 20; ++i) rows.push_back(random_row(kSize, i, 2));
  std::vector<Token> history(500);
  for (size_t i = 0; i < history.size(); ++i) history[i] = static_cast<Token>(i * i % 37);
  TokenMask mask(kSize);
  for (Token t = 0; t < kSize; t += 2) mask.allow(t);
  const TokenProbability draft[] = {{4, 0.5}, {8, 0.5}};

  for (const SamplerOptions& options :
       {SamplerOptions{}, SamplerOptions{.temperature = 0}, all,
        SamplerOptions{.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0},
        SamplerOptions{.mirostat = 1}, SamplerOptions{.mirostat = 2}}) {
    auto made = Sampler::make(kSize, options);
    ASSERT_TRUE(made);
    Sampler& s = *made;
    int64_t after_warm_up = 0;
    for (int round = 0; round < 3; ++round) {
      after_warm_up = allocation_count();
      s.reset();
      for (const auto& row : rows) {
        for (const TokenMask* m : {static_cast<const TokenMask*>(nullptr), &std::as_const(mask)}) {
          if (!s.pick(row, history, m) || s.candidates().empty()) FAIL();
          if (!s.verify(4, draft, row, history, m)) FAIL();
        }
      }
      after_warm_up = allocation_count() - after_warm_up;
    }
    EXPECT_EQ(after_warm_up, 0);
  }
}

TEST(SamplerAllocation, CopiesAreCheap) {
  auto made = Sampler::make(200000, {.top_k = 0, .logit_bias = std::vector<LogitBias>(500)});
  ASSERT_TRUE(made && made->pick(random_row(200000, 1)));
  const int64_t before = allocation_count();
  const Sampler copy = *made;
  EXPECT_EQ(allocation_count(), before);
  EXPECT_EQ(copy.draws(), 1u);
}

TEST(SamplerAllocation, AGrowingHistorySeldomAllocates) {
  auto made = Sampler::make(100, {.repeat_penalty = 1.1f,
                                  .repeat_last_n = -1,
                                  .dry_multiplier = 1,
                                  .dry_sequence_breakers = {}});
  ASSERT_TRUE(made);
  const auto row = random_row(100, 1);
  std::vector<Token> history;
  history.reserve(2000);
  int64_t in_picks = 0;
  for (int i = 0; i < 2000; ++i) {
    const int64_t before = allocation_count();
    const auto token = made->pick(row, history);
    in_picks += allocation_count() - before;
    history.push_back(token.value());
  }
  EXPECT_LT(in_picks, 100);
}

}  // namespace
}  // namespace culet::sample
