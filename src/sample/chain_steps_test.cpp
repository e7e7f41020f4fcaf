// Every step of the chain against an oracle of its definition, in double precision and without any
// of the chain's short cuts: candidates are a list of (id, probability) that each step filters.
#include "sample/chain.h"
#include "sample/test_data.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

namespace culet::sample {
namespace {

std::vector<int32_t> random_history(size_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<int32_t> ids(n);
  for (int32_t& id : ids) id = static_cast<int32_t>(rng() % 12);
  return ids;
}

// ---------------------------------------------------------------- the oracle

std::vector<double> changed(const std::vector<float>& row, const SamplingOptions& o,
                            std::span<const int32_t> history) {
  std::vector<double> logits(row.begin(), row.end());
  for (const LogitBias& b : o.logit_bias) logits[static_cast<size_t>(b.id)] += b.bias;
  const size_t window = o.repeat_window < 0
                            ? history.size()
                            : std::min(history.size(), static_cast<size_t>(o.repeat_window));
  std::map<int32_t, int> counts;
  for (int32_t id : history.last(window)) ++counts[id];
  for (const auto& [id, count] : counts) {
    double& x = logits.at(static_cast<size_t>(id));
    x = x > 0 ? x / o.repeat_penalty : x * o.repeat_penalty;
    x -= o.presence_penalty;
    x -= count * static_cast<double>(o.frequency_penalty);
  }
  return logits;
}

struct Item {
  int32_t id;
  double p;
};

std::vector<Item> normalized(std::vector<Item> items) {
  double sum = 0;
  for (const Item& i : items) sum += i.p;
  for (Item& i : items) i.p /= sum;
  return items;
}

std::vector<Item> typical(const std::vector<Item>& items, double mass) {
  double entropy = 0;
  for (const Item& i : items) {
    if (i.p > 0) entropy -= i.p * std::log(i.p);
  }
  std::vector<Item> order = items;
  std::stable_sort(order.begin(), order.end(), [&](const Item& a, const Item& b) {
    return std::fabs(-std::log(a.p) - entropy) < std::fabs(-std::log(b.p) - entropy);
  });
  double sum = 0;
  size_t kept = 0;
  while (kept < order.size() && (kept == 0 || sum < mass)) sum += order[kept++].p;
  order.resize(kept);
  std::stable_sort(order.begin(), order.end(),
                   [](const Item& a, const Item& b) { return a.p > b.p; });
  return order;
}

// The distribution that a token is drawn from, best first.
std::vector<Item> oracle(const std::vector<float>& row, const SamplingOptions& o,
                         std::span<const int32_t> history) {
  const std::vector<double> logits = changed(row, o, history);
  const double max = *std::max_element(logits.begin(), logits.end());
  std::vector<Item> items;
  for (size_t i = 0; i < logits.size(); ++i) {
    items.push_back({static_cast<int32_t>(i), std::exp((logits[i] - max) / o.temperature)});
  }
  std::stable_sort(items.begin(), items.end(),
                   [](const Item& a, const Item& b) { return a.p > b.p; });
  if (o.top_k > 0) items.resize(std::min(items.size(), static_cast<size_t>(o.top_k)));
  items = normalized(items);
  if (o.typical < 1) items = normalized(typical(items, o.typical));
  if (o.top_p < 1) {
    double sum = 0;
    size_t kept = 0;
    while (kept < items.size() && (kept == 0 || sum < o.top_p)) sum += items[kept++].p;
    items.resize(kept);
    items = normalized(items);
  }
  if (o.min_p > 0) {
    const double least = o.min_p * items[0].p;
    std::erase_if(items, [&](const Item& i) { return i.p < least; });
    items = normalized(items);
  }
  return items;
}

int32_t draw(const std::vector<Item>& items, double u) {
  double sum = 0;
  for (const Item& i : items) {
    sum += i.p;
    if (sum > u) return i.id;
  }
  return items.back().id;
}

// Draws many times over many rows; float32 weights may move a border now and then.
void expect_oracle(const SamplingOptions& o, const char* what) {
  const kernels::Kernels k = table();
  ASSERT_TRUE(check(o, 40)) << what;
  Sampler sampler(k, o);
  int same = 0;
  constexpr int kDraws = 200;
  for (uint64_t n = 0; n < kDraws; ++n) {
    const auto row = random_row(40 + n % 300, static_cast<uint32_t>(n));
    const auto history = random_history(n % 50, static_cast<uint32_t>(n) + 7);
    const auto token = sampler.pick(row, n, history);
    ASSERT_TRUE(token) << what;
    same += *token == draw(oracle(row, o, history), uniform(o.seed, n));
  }
  EXPECT_GE(same, kDraws - 2) << what;
}

// ---------------------------------------------------------------- tests

TEST(Chain, EveryStepAloneFollowsItsDefinition) {
  static const LogitBias kBias[] = {{3, 4}, {5, -kInf}, {3, 1.5f}};
  const std::pair<SamplingOptions, const char*> cases[] = {
      {{.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0.2f}, "min_p"},
      {{.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 1}, "min_p 1"},
      {{.temperature = 1, .top_k = 0, .top_p = 1, .typical = 0.5f}, "typical"},
      {{.temperature = 1, .top_k = 0, .top_p = 1, .typical = 1e-6f}, "typical, one token"},
      {{.temperature = 1, .top_k = 0, .top_p = 1, .repeat_penalty = 1.8f}, "repeat"},
      {{.temperature = 1, .top_k = 0, .top_p = 1, .repeat_penalty = 0.5f}, "repeat, rewarded"},
      {{.temperature = 1, .top_k = 0, .top_p = 1, .presence_penalty = 2}, "presence"},
      {{.temperature = 1, .top_k = 0, .top_p = 1, .frequency_penalty = 0.7f}, "frequency"},
      {{.temperature = 1, .top_k = 0, .top_p = 1, .logit_bias = kBias}, "bias"}};
  for (const auto& [options, what] : cases) expect_oracle(options, what);
}

// Verifies answers.sampler.
TEST(Chain, AllStepsTogetherFollowTheOracle) {
  static const LogitBias kBias[] = {{1, 2}, {9, -3}};
  for (int i = 0; i < 20; ++i) {
    std::mt19937 rng(static_cast<uint32_t>(i));
    const auto number = [&](double low, double high) {
      return static_cast<float>(low + (high - low) * (rng() % 1000) / 1000.0);
    };
    SamplingOptions o;
    o.temperature = number(0.3, 2);
    o.top_k = static_cast<int32_t>(rng() % 3) * 30;
    o.top_p = number(0.5, 1);
    o.seed = rng();
    o.min_p = number(0, 0.3);
    o.typical = number(0.5, 1);
    o.repeat_penalty = number(0.8, 1.5);
    o.presence_penalty = number(-1, 1);
    o.frequency_penalty = number(-0.3, 0.3);
    o.repeat_window = static_cast<int32_t>(rng() % 40) - 1;
    o.logit_bias = kBias;
    expect_oracle(o, "all");
  }
}

TEST(Chain, GreedyLooksAtChangedLogits) {
  const kernels::Kernels k = table();
  const std::vector<float> row = {1, 5, 4.5f, 4.5f};
  const std::vector<int32_t> history = {1, 1, 2};
  const auto greedy = [&](SamplingOptions o) {
    o.temperature = 0;
    return Sampler(k, o).pick(row, 0, history).value();
  };
  static const LogitBias kNever[] = {{1, -kInf}, {2, -kInf}};
  EXPECT_EQ(greedy({}), 1);
  EXPECT_EQ(greedy({.repeat_penalty = 1.5f}), 3);
  EXPECT_EQ(greedy({.repeat_penalty = 1.5f, .repeat_window = 0}), 1);
  EXPECT_EQ(greedy({.repeat_penalty = 1.5f, .repeat_window = 1}), 1);
  EXPECT_EQ(greedy({.presence_penalty = 0.5f, .repeat_window = 2}), 1);  // 4.5, 4, 4.5
  EXPECT_EQ(greedy({.frequency_penalty = 0.3f}), 3);
  EXPECT_EQ(greedy({.presence_penalty = -3, .repeat_window = 1}), 2);
  EXPECT_EQ(greedy({.logit_bias = kNever}), 3);
}

TEST(Chain, NumbersThatAreNoneStayErrors) {
  const kernels::Kernels k = table();
  static const LogitBias kNever[] = {{1, -kInf}, {0, -kInf}};
  const SamplingOptions o{.temperature = 1,
                          .min_p = 0.1f,
                          .typical = 0.5f,
                          .repeat_penalty = 2,
                          .presence_penalty = 1,
                          .logit_bias = kNever};
  const std::vector<int32_t> history = {0, 1, 2, -5, 1000};
  for (const float bad : {std::nanf(""), kInf}) {
    for (size_t at : {0, 1, 2, 3}) {
      std::vector<float> row = {1, 2, 3, 4};
      row[at] = bad;
      const auto token = Sampler(k, o).pick(row, 0, history);
      ASSERT_FALSE(token) << at;
      EXPECT_EQ(token.error().code, ErrorCode::kNumeric);
    }
  }
  EXPECT_FALSE(Sampler(k, o).pick(std::vector<float>{1, 2}, 0, history));
  EXPECT_TRUE(Sampler(k, o).pick(std::vector<float>{1, 2, -5}, 0, history));
}

TEST(Chain, EveryInstructionSetPicksTheSame) {
  const kernels::Kernels scalar = table("scalar");
  const SamplingOptions o{.temperature = 1.2f,
                          .top_k = 0,
                          .top_p = 0.9f,
                          .seed = 5,
                          .min_p = 0.01f,
                          .typical = 0.8f,
                          .repeat_penalty = 1.1f,
                          .frequency_penalty = 0.2f};
  for (const kernels::IsaLevel* level = kernels::isa_levels(); level->name != nullptr; ++level) {
    if (!level->usable) continue;
    const kernels::Kernels k = table(level->name);
    Sampler a(scalar, o), b(k, o);
    for (uint64_t n = 0; n < 50; ++n) {
      const auto row = random_row(2000, static_cast<uint32_t>(n));
      const auto history = random_history(40, static_cast<uint32_t>(n));
      EXPECT_EQ(a.pick(row, n, history).value(), b.pick(row, n, history).value()) << level->name;
    }
  }
}

}  // namespace
}  // namespace culet::sample
