// Every step of the chain against an oracle of its definition, in double precision and without any
// of the chain's short cuts: candidates are a list of (id, logit) that each step filters.
#include "sample/chain.h"
#include "sample/test_data.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

namespace culet::sample {
namespace {

std::vector<int32_t> random_history(size_t n, uint32_t seed, uint32_t kinds = 12) {
  std::mt19937 rng(seed);
  std::vector<int32_t> ids(n);
  for (int32_t& id : ids) id = static_cast<int32_t>(rng() % kinds);
  return ids;
}

// ---------------------------------------------------------------- the oracle

std::span<const int32_t> last(std::span<const int32_t> history, int32_t n) {
  return n < 0 ? history : history.last(std::min(history.size(), static_cast<size_t>(n)));
}

// For each earlier place, how far the tokens in front of it repeat the end of the history.
std::map<int32_t, int> repeated(std::span<const int32_t> window,
                                const std::set<int32_t>& breakers) {
  std::map<int32_t, int> longest;
  const auto n = static_cast<int>(window.size());
  const auto at = [&](int i) { return window[static_cast<size_t>(i)]; };
  for (int place = 1; place < n; ++place) {
    int length = 0;
    while (length < place && at(place - 1 - length) == at(n - 1 - length) &&
           !breakers.contains(at(n - 1 - length))) {
      ++length;
    }
    if (!breakers.contains(at(place))) longest[at(place)] = std::max(longest[at(place)], length);
  }
  return longest;
}

std::vector<double> changed(const std::vector<float>& row, const SamplerOptions& o,
                            std::span<const int32_t> history) {
  std::vector<double> logits(row.begin(), row.end());
  for (const LogitBias& b : o.logit_bias) logits[static_cast<size_t>(b.id)] += b.bias;
  std::map<int32_t, int> counts;
  for (int32_t id : last(history, o.repeat_last_n)) ++counts[id];
  for (const auto& [id, count] : counts) {
    double& x = logits.at(static_cast<size_t>(id));
    x = x > 0 ? x / o.repeat_penalty : x * o.repeat_penalty;
    x -= o.presence_penalty;
    x -= count * static_cast<double>(o.frequency_penalty);
  }
  if (o.dry_multiplier > 0) {
    const std::set<int32_t> breakers(o.dry_breaker_tokens.begin(), o.dry_breaker_tokens.end());
    for (const auto& [id, n] : repeated(last(history, o.dry_penalty_last_n), breakers)) {
      if (n < o.dry_allowed_length) continue;
      logits.at(static_cast<size_t>(id)) -=
          o.dry_multiplier * std::pow(static_cast<double>(o.dry_base), n - o.dry_allowed_length);
    }
  }
  return logits;
}

struct Item {
  int32_t id;
  double logit, p;
};

std::vector<Item> normalized(std::vector<Item> items, double temperature = 1) {
  double max = -kInf, sum = 0;
  for (const Item& i : items) max = std::max(max, i.logit);
  for (Item& i : items) sum += i.p = std::exp((i.logit - max) / temperature);
  for (Item& i : items) i.p /= sum;
  return items;
}

double entropy_of(const std::vector<Item>& items) {
  double entropy = 0;
  for (const Item& i : items) {
    if (i.p > 0) entropy -= i.p * std::log(i.p);
  }
  return entropy;
}

std::vector<Item> typical(const std::vector<Item>& items, double mass) {
  const double entropy = entropy_of(items);
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

std::vector<Item> top_n_sigma(std::vector<Item> items, double n) {
  double mean = 0, variance = 0, present = 0;
  for (const Item& i : items) {
    if (std::isfinite(i.logit)) mean += i.logit, ++present;
  }
  mean /= present;
  for (const Item& i : items) {
    if (std::isfinite(i.logit)) variance += (i.logit - mean) * (i.logit - mean) / present;
  }
  const double least = items[0].logit - n * std::sqrt(variance);
  std::erase_if(items, [&](const Item& i) { return i.logit < least; });
  return items;
}

std::vector<Item> mirostat(std::vector<Item> items, const SamplerOptions& o, size_t vocabulary,
                           double mu) {
  if (o.mirostat == 2) {
    size_t kept = 1;
    while (kept < items.size() && -std::log2(items[kept].p) <= mu) ++kept;
    items.resize(kept);
    return items;
  }
  double tb = 0, tt = 0;
  for (size_t i = 0; i + 1 < std::min<size_t>(100, items.size()); ++i) {
    const double t = std::log((static_cast<double>(i) + 2) / (static_cast<double>(i) + 1));
    tb += t * std::log(items[i].p / items[i + 1].p);
    tt += t * t;
  }
  const double s = tb / tt, e = s - 1;
  const double k =
      std::pow(e * std::pow(2, mu) / (1 - std::pow(static_cast<double>(vocabulary), -e)), 1 / s);
  items.resize(std::min(items.size(), static_cast<size_t>(std::max(1.0, k))));
  return items;
}

// The distribution that a token is drawn from, best first.
std::vector<Item> oracle(const std::vector<float>& row, const SamplerOptions& o,
                         std::span<const int32_t> history, uint64_t n) {
  const std::vector<double> logits = changed(row, o, history);
  std::vector<Item> items;
  items.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    items.push_back({static_cast<int32_t>(i), logits[i], 0});
  }
  std::stable_sort(items.begin(), items.end(),
                   [](const Item& a, const Item& b) { return a.logit > b.logit; });
  if (o.mirostat != 0) {
    items = normalized(items, o.temperature);
    items = mirostat(items, o, row.size(), 2 * static_cast<double>(o.mirostat_tau));
    return normalized(items, o.temperature);
  }
  if (o.top_n_sigma > 0) items = top_n_sigma(items, o.top_n_sigma);
  if (o.top_k > 0) items.resize(std::min(items.size(), static_cast<size_t>(o.top_k)));
  items = normalized(items);
  if (o.typical_p < 1) items = normalized(typical(items, o.typical_p));
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
  if (uniform(stream(o.seed, Purpose::kXtc), n) < o.xtc_probability && o.xtc_threshold <= 0.5f) {
    const auto above = std::count_if(items.begin(), items.end(),
                                     [&](const Item& i) { return i.p >= o.xtc_threshold; });
    if (above > 1) items.erase(items.begin(), items.begin() + above - 1);
    items = normalized(items);
  }
  double temperature = o.temperature;
  if (o.dynatemp_range > 0 && items.size() > 1) {
    const double low = std::max(0.0f, o.temperature - o.dynatemp_range);
    const double high = o.temperature + o.dynatemp_range;
    const double part = entropy_of(items) / std::log(static_cast<double>(items.size()));
    temperature = low + (high - low) * std::pow(part, o.dynatemp_exponent);
  }
  return normalized(items, temperature);
}

int32_t draw(const std::vector<Item>& items, double u) {
  double sum = 0;
  for (const Item& i : items) {
    sum += i.p;
    if (sum > u) return i.id;
  }
  return items.back().id;
}

// exp is 0 below 2^-60 (docs/decisions/0011): smaller probabilities are left out on both sides.
constexpr double kTiny = 2e-18;

// Draws many times over many rows; float32 weights may move a border now and then. Where no border
// moved, every probability must agree.
void expect_oracle(const SamplerOptions& o, const char* what) {
  const kernels::Kernels k = table();
  ASSERT_TRUE(validate(o, 40)) << what;
  Chain chain(k, o, o.dry_breaker_tokens);
  int same = 0, same_size = 0;
  constexpr int kDraws = 200;
  for (uint64_t n = 0; n < kDraws; ++n) {
    const auto row = random_row(40 + n % 300, static_cast<uint32_t>(n));
    const auto history =
        random_history(n % 50, static_cast<uint32_t>(n) + 7, o.dry_multiplier > 0 ? 3 : 12);
    ASSERT_TRUE(chain.prepare({.logits = row,
                               .history = history,
                               .seed = o.seed,
                               .draw = n,
                               .mirostat_mu = 2 * static_cast<double>(o.mirostat_tau)}))
        << what;
    auto want = oracle(row, o, history, n);
    same += chain.draw(uniform(o.seed, n)) == draw(want, uniform(o.seed, n));
    std::erase_if(want, [](const Item& i) { return i.p < kTiny; });
    std::vector<TokenProbability> got(chain.candidates().begin(), chain.candidates().end());
    std::erase_if(got, [](const TokenProbability& c) { return c.probability < kTiny; });
    if (got.size() != want.size()) continue;
    ++same_size;
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(got[i].id, want[i].id) << what;
      EXPECT_NEAR(got[i].probability, want[i].p, 2e-5) << what;
    }
  }
  EXPECT_GE(same, kDraws - 2) << what;
  EXPECT_GE(same_size, kDraws - 6) << what;
}

SamplerOptions none() { return {.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0}; }

template <class F>
SamplerOptions with(F&& set) {
  SamplerOptions o = none();
  set(o);
  return o;
}

// ---------------------------------------------------------------- tests

TEST(Chain, EveryStepAloneFollowsItsDefinition) {
  using O = SamplerOptions;
  const std::pair<SamplerOptions, const char*> cases[] = {
      {none(), "nothing"},
      {with([](O& o) { o.temperature = 0.4f; }), "cold"},
      {with([](O& o) { o.min_p = 0.2f; }), "min_p"},
      {with([](O& o) { o.min_p = 1; }), "min_p 1"},
      {with([](O& o) { o.min_p = 0.2f, o.temperature = 3; }), "min_p before the temperature"},
      {with([](O& o) { o.top_p = 0.7f, o.temperature = 3; }), "top_p before the temperature"},
      {with([](O& o) { o.typical_p = 0.5f; }), "typical_p"},
      {with([](O& o) { o.typical_p = 1e-6f; }), "typical_p, one token"},
      {with([](O& o) { o.repeat_penalty = 1.8f; }), "repeat"},
      {with([](O& o) { o.repeat_penalty = 0.5f; }), "repeat, rewarded"},
      {with([](O& o) { o.presence_penalty = 2; }), "presence"},
      {with([](O& o) { o.frequency_penalty = 0.7f; }), "frequency"},
      {with([](O& o) { o.logit_bias = {{3, 4}, {5, -kInf}, {3, 1.5f}}; }), "bias"},
      {with([](O& o) { o.top_n_sigma = 1; }), "top_n_sigma"},
      {with([](O& o) { o.top_n_sigma = 0.05f, o.logit_bias = {{3, -kInf}, {7, -kInf}}; }),
       "top_n_sigma, suppressed tokens"},
      {with([](O& o) { o.dry_multiplier = 0.8f; }), "dry"},
      {with([](O& o) { o.dry_multiplier = 2, o.dry_base = 1, o.dry_allowed_length = 1; }),
       "dry, constant"},
      {with([](O& o) {
         o.dry_multiplier = 1.5f, o.dry_base = 1.2f, o.dry_allowed_length = 1;
         o.dry_breaker_tokens = {1};
       }),
       "dry, breaker"},
      {with([](O& o) { o.dry_multiplier = 1, o.dry_penalty_last_n = 9; }), "dry, window"},
      {with([](O& o) { o.dry_multiplier = 1, o.dry_penalty_last_n = 0; }), "dry, no window"},
      {with([](O& o) { o.xtc_probability = 1; }), "xtc"},
      {with([](O& o) { o.xtc_probability = 0.5f, o.xtc_threshold = 0.02f; }), "xtc at times"},
      {with([](O& o) { o.xtc_probability = 1, o.xtc_threshold = 0.6f; }), "xtc off"},
      {with([](O& o) { o.xtc_probability = 1, o.temperature = 0.02f; }), "xtc, cold"},
      {with([](O& o) { o.dynatemp_range = 0.5f; }), "dynamic temperature"},
      {with([](O& o) { o.dynatemp_range = 2, o.dynatemp_exponent = 0.4f; }),
       "dynamic temperature from 0"},
      {with([](O& o) { o.dynatemp_range = 0.7f, o.dynatemp_exponent = 0; }),
       "dynamic temperature, exponent 0"},
      {with([](O& o) { o.mirostat = 1, o.mirostat_tau = 1.2f; }), "mirostat 1"},
      {with([](O& o) { o.mirostat = 1, o.temperature = 0.6f; }), "mirostat 1, cold"},
      {with([](O& o) { o.mirostat = 2, o.mirostat_tau = 1.5f; }), "mirostat 2"},
      {with([](O& o) { o.mirostat = 2, o.mirostat_tau = 0, o.temperature = 2; }),
       "mirostat 2, one token"}};
  for (const auto& [options, what] : cases) expect_oracle(options, what);
}

// Verifies answers.sampler.
TEST(Chain, AllStepsTogetherFollowTheOracle) {
  for (int i = 0; i < 40; ++i) {
    std::mt19937 rng(static_cast<uint32_t>(i));
    const auto number = [&](double low, double high) {
      return static_cast<float>(low + (high - low) * (rng() % 1000) / 1000.0);
    };
    SamplerOptions o;
    o.temperature = number(0.3, 2);
    o.top_k = static_cast<int32_t>(rng() % 3) * 30;
    o.top_p = number(0.5, 1);
    o.seed = rng();
    o.min_p = number(0, 0.3);
    o.typical_p = number(0.5, 1);
    o.repeat_penalty = number(0.8, 1.5);
    o.presence_penalty = number(-1, 1);
    o.frequency_penalty = number(-0.3, 0.3);
    o.repeat_last_n = static_cast<int32_t>(rng() % 40) - 1;
    o.logit_bias = {{1, 2}, {9, -3}};
    o.top_n_sigma = number(-1, 3);
    o.dynatemp_range = rng() % 2 ? number(0, 1) : 0;
    o.dynatemp_exponent = number(0.5, 2);
    o.xtc_probability = number(0, 1);
    o.xtc_threshold = number(0, 0.3);
    o.dry_multiplier = rng() % 2 ? number(0, 1) : 0;
    o.dry_penalty_last_n = static_cast<int32_t>(rng() % 40) - 1;
    o.dry_breaker_tokens = {2};
    o.mirostat = i % 4 == 3 ? 1 + static_cast<int32_t>(rng() % 2) : 0;
    expect_oracle(o, "all");
  }
}

TEST(Chain, GreedyLooksAtChangedLogits) {
  const kernels::Kernels k = table();
  const std::vector<float> row = {1, 5, 4.5f, 4.5f};
  const std::vector<int32_t> history = {1, 1, 2};
  const auto greedy = [&](SamplerOptions o) {
    o.temperature = 0;
    return pick_at(k, o, row, 0, history).value();
  };
  EXPECT_EQ(greedy({}), 1);
  EXPECT_EQ(greedy({.repeat_penalty = 1.5f}), 3);
  EXPECT_EQ(greedy({.repeat_penalty = 1.5f, .repeat_last_n = 0}), 1);
  EXPECT_EQ(greedy({.repeat_penalty = 1.5f, .repeat_last_n = 1}), 1);
  EXPECT_EQ(greedy({.presence_penalty = 0.5f, .repeat_last_n = 2}), 1);  // 4.5, 4, 4.5
  EXPECT_EQ(greedy({.frequency_penalty = 0.3f}), 3);
  EXPECT_EQ(greedy({.presence_penalty = -3, .repeat_last_n = 1}), 2);
  EXPECT_EQ(greedy({.logit_bias = {{1, -kInf}, {2, -kInf}}}), 3);
  EXPECT_EQ(greedy({.xtc_probability = 1, .xtc_threshold = 0}), 1);  // greedy is greedy
  EXPECT_EQ(greedy({.dynatemp_range = 5}), 1);
  EXPECT_EQ(greedy({.mirostat = 1}), 1);
}

TEST(Chain, DryWorksAsItsAuthorDescribesIt) {
  Changes changes;
  const auto lengths = [&](const std::vector<Token>& window, const std::vector<Token>& breakers,
                           int32_t allowed) {
    std::map<Token, int32_t> found;
    for (const auto& r : changes.repetitions(window, breakers, allowed)) found[r.id] = r.length;
    return found;
  };
  using Found = std::map<Token, int32_t>;
  // a b c c b c y a b c: `c` would make a b c c again, `b` c b, `y` b c y.
  const std::vector<Token> text = {1, 2, 3, 3, 2, 3, 9, 1, 2, 3};
  EXPECT_EQ(lengths(text, {}, 1), (Found{{3, 3}, {2, 1}, {9, 2}}));
  EXPECT_EQ(lengths(text, {}, 2), (Found{{3, 3}, {9, 2}}));
  EXPECT_EQ(lengths(text, {1}, 1), (Found{{3, 2}, {2, 1}, {9, 2}}));
  EXPECT_EQ(lengths(text, {9}, 1), (Found{{3, 3}, {2, 1}}));
  EXPECT_EQ(lengths(text, {3}, 1), Found{});
  EXPECT_EQ(lengths({}, {}, 1), Found{});
  EXPECT_EQ(lengths({7}, {}, 1), Found{});
  EXPECT_EQ(lengths({7, 7, 7, 7}, {}, 1), (Found{{7, 3}}));
}

TEST(Chain, DryTakesLinearTimeAndNeverForbids) {
  const kernels::Kernels k = table();
  const SamplerOptions o{.temperature = 0, .dry_multiplier = 100, .dry_base = 100};
  const std::vector<Token> history(200000, 1);  // quadratic: 2 * 10^10 comparisons
  EXPECT_EQ(pick_at(k, o, {1, 50, 2}, 0, history).value(), 2);
  EXPECT_EQ(pick_at(k, o, {-kInf, 50, -kInf}, 0, history).value(), 1);
}

TEST(Chain, NumbersThatAreNoneStayErrors) {
  const kernels::Kernels k = table();
  const SamplerOptions o{.temperature = 1,
                         .min_p = 0.1f,
                         .typical_p = 0.5f,
                         .repeat_penalty = 2,
                         .presence_penalty = 1,
                         .logit_bias = {{1, -kInf}, {0, -kInf}},
                         .top_n_sigma = 1,
                         .dry_multiplier = 1};
  const std::vector<int32_t> history = {0, 1, 2, -5, 1000, -5, 1000, -5};
  for (const float bad : {std::nanf(""), kInf}) {
    for (size_t at : {0, 1, 2, 3}) {
      std::vector<float> row = {1, 2, 3, 4};
      row[at] = bad;
      const auto token = pick_at(k, o, row, 0, history);
      ASSERT_FALSE(token) << at;
      EXPECT_EQ(token.error().code, ErrorCode::kNumeric);
    }
  }
  EXPECT_FALSE(pick_at(k, o, {1, 2}, 0, history));
  EXPECT_TRUE(pick_at(k, o, {1, 2, -5}, 0, history));
}

TEST(Chain, EveryInstructionSetPicksTheSameByEveryStep) {
  const kernels::Kernels scalar = table("scalar");
  for (int32_t mirostat : {0, 1, 2}) {
    const SamplerOptions o{.temperature = 1.2f,
                           .top_k = 0,
                           .top_p = 0.9f,
                           .seed = 5,
                           .min_p = 0.01f,
                           .typical_p = 0.8f,
                           .repeat_penalty = 1.1f,
                           .frequency_penalty = 0.2f,
                           .top_n_sigma = 2,
                           .dynatemp_range = 0.5f,
                           .xtc_probability = 0.5f,
                           .xtc_threshold = 0.05f,
                           .dry_multiplier = 0.8f,
                           .mirostat = mirostat};
    for (const kernels::IsaLevel* level = kernels::isa_levels(); level->name != nullptr; ++level) {
      if (!level->usable) continue;
      const kernels::Kernels k = table(level->name);
      for (uint64_t n = 0; n < 50; ++n) {
        const auto row = random_row(2000, static_cast<uint32_t>(n));
        const auto history = random_history(40, static_cast<uint32_t>(n));
        Chain a(scalar, o, {}), b(k, o, {});
        const Chain::Input input{
            .logits = row, .history = history, .seed = 5, .draw = n, .mirostat_mu = 6};
        ASSERT_TRUE(a.prepare(input) && b.prepare(input));
        EXPECT_EQ(a.draw(uniform(5, n)), b.draw(uniform(5, n))) << level->name;
        ASSERT_EQ(a.candidates().size(), b.candidates().size());
        for (size_t i = 0; i < a.candidates().size(); ++i) {
          EXPECT_EQ(a.candidates()[i].id, b.candidates()[i].id);
          EXPECT_EQ(a.candidates()[i].probability, b.candidates()[i].probability);
        }
      }
    }
  }
}

}  // namespace
}  // namespace culet::sample
