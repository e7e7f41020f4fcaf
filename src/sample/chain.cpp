// The second half of the chain: candidates are ranked and narrowed, the temperature makes weights
// of them, a number picks one.
//
// kSteps has the steps in the order in which they run; a step whose option is off is left out.
// Steps before the temperature look at the distribution of the logits themselves. All sums run over
// candidates in ranking order (or, over a whole vocabulary, in the 16 lanes of kernels.exp_sums),
// so their bits are the same everywhere.
//
// A draw walks the remaining candidates until the running sum of weights passes u * total. After
// that the distribution must be able to answer questions without the caller's row: a short one is
// written down as a list, a long one keeps a copy of the row.
#include "sample/chain.h"

#include "sample/logprobs.h"
#include "sample/numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace culet::sample {
namespace {

constexpr size_t kShort = 256;           // candidates that are listed at once
constexpr size_t kMirostatTokens = 100;  // that Mirostat 1 estimates its exponent from
constexpr double kLn2 = 0x1.62e42fefa39efp-1;

struct Step {
  const char* name;
  bool (*active)(const SamplerOptions&);
  void (*apply)(const SamplerOptions&, const Chain::Input&, Remaining&);
};

// Sum of f(x) over the row in 16 lanes and one fold, as the kernels sum.
template <class F>
double sum_lanes(std::span<const float> row, F&& f) {
  double lanes[16] = {};
  size_t i = 0;
  for (; i + 16 <= row.size(); i += 16) {
    for (size_t j = 0; j < 16; ++j) lanes[j] += f(row[i + j]);
  }
  for (size_t j = 0; i + j < row.size(); ++j) lanes[j] += f(row[i + j]);
  for (size_t half = 8; half > 0; half /= 2) {
    for (size_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  }
  return lanes[0];
}

// Source: Tang et al., Top-n-sigma: Not All Logits Are You Need, 2024 (arXiv 2411.07641). Tokens
// that cannot come are no part of mean and deviation.
void keep_top_n_sigma(const SamplerOptions& options, const Chain::Input&, Remaining& left) {
  const auto present = [](float x) { return x != kSuppressed; };
  const auto count =
      static_cast<double>(std::count_if(left.logits.begin(), left.logits.end(), present));
  const double mean =
      sum_lanes(left.logits, [&](float x) { return present(x) ? static_cast<double>(x) : 0.0; }) /
      count;
  const double squares = sum_lanes(left.logits, [&](float x) {
    const double d = present(x) ? static_cast<double>(x) - mean : 0.0;
    return d * d;
  });
  const double least = static_cast<double>(left.max) -
                       static_cast<double>(options.top_n_sigma) * std::sqrt(squares / count);
  left.count =
      static_cast<size_t>(std::count_if(left.logits.begin(), left.logits.end(),
                                        [&](float x) { return static_cast<double>(x) >= least; }));
}

void keep_top_k(const SamplerOptions& options, const Chain::Input&, Remaining& left) {
  left.count = std::min(left.count, static_cast<size_t>(options.top_k));
}

// Those whose surprise is nearest to the mean surprise (the entropy), until their weights reach
// typical_p of the total; at least one. Surprise is log(total) - x with x = logit - max, so its
// distance from the mean is that of x from its own mean, and no logarithm is needed.
// Source: Meister et al., Locally Typical Sampling, 2022.
void keep_typical(const SamplerOptions& options, const Chain::Input&, Remaining& left) {
  auto& items = left.typical;
  items.clear();
  double total = 0, sum = 0;
  for (size_t i = 0; i < left.count; ++i) {
    const Ranked c = left.candidate(i);
    const double weight = left.weight(c.logit);
    if (weight == 0) break;  // nor has any that follows
    const double x = c.logit - left.max;
    items.push_back({c, i, x, weight, 0});
    total += weight;
    sum += weight * x;
  }
  for (auto& item : items) item.distance = std::fabs(item.x - sum / total);
  std::sort(items.begin(), items.end(), [](const auto& a, const auto& b) {
    return a.distance != b.distance ? a.distance < b.distance : a.rank < b.rank;
  });
  const double limit = static_cast<double>(options.typical_p) * total;
  double kept = 0;
  size_t count = 0;
  while (count < items.size() && (count == 0 || kept < limit)) kept += items[count++].weight;
  items.resize(count);
  std::sort(items.begin(), items.end(),
            [](const auto& a, const auto& b) { return a.rank < b.rank; });
  left.chosen.clear();
  for (const auto& item : items) left.chosen.push_back(item.candidate);
  left.begin = 0;
  left.count = count;
  left.max = left.candidate(0).logit;
}

// The fewest best candidates whose weights reach top_p of the total; at least one.
// Source: Holtzman et al., The Curious Case of Neural Text Degeneration, 2019.
void keep_top_p(const SamplerOptions& options, const Chain::Input&, Remaining& left) {
  const double limit = static_cast<double>(options.top_p) * left.sum_weights();
  double sum = 0;
  size_t kept = 0;
  while (kept < left.count && (kept == 0 || sum < limit)) {
    sum += left.weight(left.candidate(kept).logit);
    ++kept;
  }
  left.count = kept;
}

// Those at least min_p times as likely as the likeliest that is left.
// Source: Nguyen et al., Turning Up the Heat: Min-p Sampling, 2024.
void keep_min_p(const SamplerOptions& options, const Chain::Input&, Remaining& left) {
  const double least = static_cast<double>(options.min_p) * left.weight(left.candidate(0).logit);
  size_t kept = 1;
  while (kept < left.count && left.weight(left.candidate(kept).logit) >= least) ++kept;
  left.count = kept;
}

// Source: p-e-w, Exclude Top Choices, 2024 (text-generation-webui, pull request 6335).
void exclude_top_choices(const SamplerOptions& options, const Chain::Input& input,
                         Remaining& left) {
  if (uniform(stream(input.seed, Purpose::kXtc), input.draw) >=
      static_cast<double>(options.xtc_probability)) {
    return;
  }
  const double least = static_cast<double>(options.xtc_threshold) * left.sum_weights();
  size_t above = 0;
  while (above < left.count) {
    const double weight = left.weight(left.candidate(above).logit);
    if (weight == 0 || weight < least) break;
    ++above;
  }
  if (above > 1) left.keep_from(above - 1);
}

void set_temperature(const SamplerOptions& options, const Chain::Input&, Remaining& left) {
  left.temperature = options.temperature;
}

// temperature - range where one token is certain, temperature + range where all that are left are
// equally likely; between them by (entropy / greatest entropy) ^ exponent.
// Source: kalomaze, Full DynaTemp implementation, 2024 (KoboldCpp, pull request 600).
void set_dynamic_temperature(const SamplerOptions& options, const Chain::Input&, Remaining& left) {
  left.temperature = options.temperature;
  if (left.count < 2) return;
  size_t possible = left.count;
  if (left.chosen.empty() && left.begin + left.count == left.logits.size()) {
    possible -=
        static_cast<size_t>(std::count(left.logits.begin(), left.logits.end(), kSuppressed));
  }
  if (possible < 2) return;
  left.temperature = 1;
  double weighted = 0;
  const double sum = left.sum_weights(&weighted);
  const double entropy = std::max(0.0, natural_log(sum) - weighted / sum);
  const double part = std::min(1.0, entropy / natural_log(static_cast<double>(possible)));
  const double exponent = options.dynatemp_exponent;
  const double power = part > 0 ? natural_exp(exponent * natural_log(part)) : exponent == 0;
  const double low = std::max(
      0.0, static_cast<double>(options.temperature) - static_cast<double>(options.dynatemp_range));
  const double high =
      static_cast<double>(options.temperature) + static_cast<double>(options.dynatemp_range);
  left.temperature = static_cast<float>(low + (high - low) * power);
  if (left.temperature <= 0) {
    left.temperature = 1;
    left.count = 1;
  }
}

// Source of both: Basu et al., Mirostat: A Neural Text Decoding Algorithm that Directly Controls
// Perplexity, 2020 (arXiv 2007.14966). The first estimates the exponent s of a Zipf law from the
// likeliest tokens, and from it the k whose top_k has the surprise mu.
void keep_mirostat_1(const SamplerOptions&, const Chain::Input& input, Remaining& left) {
  double products = 0, squares = 0;
  for (size_t i = 0; i + 1 < std::min(left.count, kMirostatTokens); ++i) {
    const float a = left.candidate(i).logit, b = left.candidate(i + 1).logit;
    if (b == kSuppressed) break;
    const double t = natural_log(static_cast<double>(i + 2) / static_cast<double>(i + 1));
    products += t * (static_cast<double>(a) - static_cast<double>(b)) /
                static_cast<double>(left.temperature);
    squares += t * t;
  }
  if (squares == 0) {
    left.count = 1;
    return;
  }
  const double s = std::max(products / squares, 1e-9), epsilon = s - 1;
  const double log_size = natural_log(static_cast<double>(left.logits.size()));
  // epsilon / (1 - size ^ -epsilon), whose limit at 0 is 1 / log(size)
  const double ratio =
      std::fabs(epsilon) < 1e-9 ? 1 / log_size : epsilon / (1 - natural_exp(-epsilon * log_size));
  const double log_k = (natural_log(ratio) + input.mirostat_mu * kLn2) / s;
  if (log_k >= log_size) return;
  left.count = std::min(left.count, static_cast<size_t>(std::max(1.0, natural_exp(log_k))));
}

// The second drops what is more surprising than mu.
void keep_mirostat_2(const SamplerOptions&, const Chain::Input& input, Remaining& left) {
  const double least = left.sum_weights() * natural_exp(-input.mirostat_mu * kLn2);
  size_t kept = 1;
  while (kept < left.count && left.weight(left.candidate(kept).logit) >= least) ++kept;
  left.count = kept;
}

constexpr Step kSteps[] = {
    {"top_n_sigma", [](const SamplerOptions& o) { return o.mirostat == 0 && o.top_n_sigma > 0; },
     keep_top_n_sigma},
    {"top_k", [](const SamplerOptions& o) { return o.mirostat == 0 && o.top_k > 0; }, keep_top_k},
    {"typical_p", [](const SamplerOptions& o) { return o.mirostat == 0 && o.typical_p < 1; },
     keep_typical},
    {"top_p", [](const SamplerOptions& o) { return o.mirostat == 0 && o.top_p < 1; }, keep_top_p},
    {"min_p", [](const SamplerOptions& o) { return o.mirostat == 0 && o.min_p > 0; }, keep_min_p},
    {"xtc",
     [](const SamplerOptions& o) {
       return o.mirostat == 0 && o.xtc_probability > 0 && o.xtc_threshold <= 0.5f;
     },
     exclude_top_choices},
    {"temperature",
     [](const SamplerOptions& o) { return o.mirostat != 0 || o.dynatemp_range == 0; },
     set_temperature},
    {"dynamic temperature",
     [](const SamplerOptions& o) { return o.mirostat == 0 && o.dynatemp_range > 0; },
     set_dynamic_temperature},
    {"mirostat 1", [](const SamplerOptions& o) { return o.mirostat == 1; }, keep_mirostat_1},
    {"mirostat 2", [](const SamplerOptions& o) { return o.mirostat == 2; }, keep_mirostat_2},
};

}  // namespace

// ---------------------------------------------------------------- candidates

Ranked Remaining::candidate(size_t i) {
  return chosen.empty() ? ranking.best(begin + i + 1)[begin + i] : chosen[begin + i];
}

double Remaining::weight(float logit) const {
  const float x = (logit - max) / temperature;
  double sum = 0, weighted = 0;
  kernels->exp_sums(&x, 0, 1, &sum, &weighted);
  return sum;
}

double Remaining::sum_weights(double* weighted) {
  double sum = 0, products = 0;
  if (count < logits.size() || !chosen.empty()) {
    for (size_t i = 0; i < count; ++i) {
      const float logit = candidate(i).logit;
      const double w = weight(logit);
      if (w == 0) break;  // nor has any that follows
      sum += w;
      products += w * static_cast<double>((logit - max) / temperature);
    }
  } else {
    const auto n = static_cast<int64_t>(logits.size());
    if (temperature == 1) {
      kernels->exp_sums(logits.data(), max, n, &sum, &products);
    } else {
      scaled.resize(logits.size());
      kernels->binary_scalar(kernels::kSub, logits.data(), max, n, scaled.data());
      kernels->binary_scalar(kernels::kDiv, scaled.data(), temperature, n, scaled.data());
      kernels->exp_sums(scaled.data(), 0, n, &sum, &products);
    }
  }
  if (weighted) *weighted = products;
  return sum;
}

void Remaining::keep_from(size_t first) {
  begin += first;
  count -= first;
  max = candidate(0).logit;
}

// ---------------------------------------------------------------- the chain

Chain::Chain(const kernels::Kernels& kernels, const SamplerOptions& options,
             std::span<const Token> breakers)
    : options_(&options), breakers_(breakers), left_{&kernels, {}, 0, 1, 0, 0, {}, {}, {}, {}} {}

void Chain::clear() {
  total_ = 0;
  listed_ = row_gone_ = false;
  left_.logits = {};
  left_.chosen.clear();
}

Result<void> Chain::prepare(const Input& input) {
  clear();
  if (input.logits.empty()) {
    return fail(ErrorCode::kInvalidArgument, "there are no logits to sample from");
  }
  const auto logits = changes_.apply(*options_, breakers_, input.logits, input.history, input.mask);
  float max = 0;
  int64_t best = 0;
  int finite = 0;
  left_.kernels->max_index(logits.data(), static_cast<int64_t>(logits.size()), &max, &best,
                           &finite);
  if (!finite && !only_suppressed(logits)) {
    return fail(
        ErrorCode::kNumeric,
        "the logits hold a NaN or an infinity; the model file may be damaged, or try --precise");
  }
  if (std::isinf(max)) {
    return fail(ErrorCode::kNumeric, "every token is suppressed; allow at least one");
  }
  left_.logits = logits;
  left_.max = max;
  left_.temperature = 1;
  left_.begin = 0;
  left_.count = logits.size();
  if (options_->temperature == 0) {
    left_.chosen.push_back({static_cast<Token>(best), max});
    left_.count = 1;
    total_ = 1;
    return {};
  }
  left_.ranking.start(logits);
  for (const Step& step : kSteps) {
    if (step.active(*options_)) step.apply(*options_, input, left_);
  }
  total_ = left_.sum_weights();
  return {};
}

Token Chain::draw(double u) {
  const double target = u * total_;
  double sum = 0;
  Ranked last = left_.candidate(0);
  for (size_t i = 0; i < left_.count; ++i) {
    const Ranked c = left_.candidate(i);
    const double weight = left_.weight(c.logit);
    if (weight == 0) break;  // rounding left a rest: nothing behind this can come
    sum += weight;
    last = c;
    if (sum > target) break;
  }
  return last.id;
}

Token Chain::draw_residual(double u, std::span<const double> q) {
  const auto rest = [&](const TokenProbability& c) {
    return std::max(0.0, c.probability - q[static_cast<size_t>(c.id)]);
  };
  list_candidates();
  double total = 0, sum = 0;
  for (const TokenProbability& c : list_) total += rest(c);
  if (!(total > 0)) return draw(u);
  Token last = -1;
  for (const TokenProbability& c : list_) {
    if (rest(c) == 0) continue;
    sum += rest(c);
    last = c.id;
    if (sum > u * total) break;
  }
  return last;
}

void Chain::list_candidates() {
  if (listed_ || total_ == 0) return;
  list_.clear();
  for (size_t i = 0; i < left_.count; ++i) {
    const Ranked c = left_.candidate(i);
    const double weight = left_.weight(c.logit);
    if (weight == 0) break;
    list_.push_back({c.id, weight / total_});
  }
  listed_ = true;
}

std::span<const TokenProbability> Chain::candidates() {
  if (total_ == 0) return {};
  list_candidates();
  return list_;
}

bool Chain::remains(const Ranked& token) {
  if (!left_.chosen.empty()) {
    const auto first = left_.chosen.begin() + static_cast<std::ptrdiff_t>(left_.begin);
    const auto end = first + static_cast<std::ptrdiff_t>(left_.count);
    const auto at = std::lower_bound(first, end, token, better);
    return at != end && at->id == token.id;
  }
  if (left_.begin > 0 && better(token, left_.candidate(0))) return false;
  const bool all = left_.begin + left_.count == left_.logits.size();
  return all || !better(left_.candidate(left_.count - 1), token);
}

double Chain::probability(Token id) {
  if (total_ == 0 || id < 0) return 0;
  if (row_gone_) {
    const auto at = std::find_if(list_.begin(), list_.end(),
                                 [&](const TokenProbability& c) { return c.id == id; });
    return at == list_.end() ? 0 : at->probability;
  }
  if (static_cast<size_t>(id) >= left_.logits.size()) return 0;
  const Ranked token{id, left_.logits[static_cast<size_t>(id)]};
  return remains(token) ? left_.weight(token.logit) / total_ : 0;
}

void Chain::detach() {
  if (total_ == 0 || row_gone_) return;
  if (left_.count <= kShort) {
    list_candidates();
    row_gone_ = true;
    return;
  }
  left_.logits = changes_.own(left_.logits);
  left_.ranking.moved(left_.logits);
}

}  // namespace culet::sample
