// Takes options, says whether each is in its range.
#include "culet/sampler.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <string_view>

namespace culet {
namespace {

constexpr float kMostBias = 1e6f;
constexpr size_t kMostBreakers = 64, kMostBreakerBytes = 256;

template <class T>
tl::unexpected<Error> out_of_range(std::string_view name, T value, std::string_view range) {
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{} is {}; it must be {}", name, value, range));
}

struct FloatRange {
  const char* name;
  float SamplerOptions::* value;
  float low, high;  // both inclusive
  bool above_low;   // low itself is outside
  const char* text;
};

constexpr float kMax = std::numeric_limits<float>::max();

constexpr FloatRange kFloatRanges[] = {
    {"temperature", &SamplerOptions::temperature, 0, kMax, false,
     "0 (greedy) or a positive number"},
    {"top_p", &SamplerOptions::top_p, 0, 1, true, "above 0 and at most 1 (off)"},
    {"min_p", &SamplerOptions::min_p, 0, 1, false, "from 0 (off) to 1"},
    {"typical_p", &SamplerOptions::typical_p, 0, 1, true, "above 0 and at most 1 (off)"},
    {"repeat_penalty", &SamplerOptions::repeat_penalty, 0.01f, 100, false,
     "from 0.01 to 100; 1 is off"},
    {"presence_penalty", &SamplerOptions::presence_penalty, -100, 100, false,
     "from -100 to 100; 0 is off"},
    {"frequency_penalty", &SamplerOptions::frequency_penalty, -100, 100, false,
     "from -100 to 100; 0 is off"},
    {"top_n_sigma", &SamplerOptions::top_n_sigma, -kMax, kMax, false,
     "a positive number, or -1 (off)"},
    {"dynatemp_range", &SamplerOptions::dynatemp_range, 0, 100, false, "from 0 (off) to 100"},
    {"dynatemp_exponent", &SamplerOptions::dynatemp_exponent, 0, 100, false, "from 0 to 100"},
    {"xtc_probability", &SamplerOptions::xtc_probability, 0, 1, false, "from 0 (off) to 1"},
    {"xtc_threshold", &SamplerOptions::xtc_threshold, 0, 1, false, "from 0 to 1; above 0.5 is off"},
    {"dry_multiplier", &SamplerOptions::dry_multiplier, 0, 100, false, "from 0 (off) to 100"},
    {"dry_base", &SamplerOptions::dry_base, 1, 100, false, "from 1 to 100"},
    {"mirostat_tau", &SamplerOptions::mirostat_tau, 0, 100, false, "from 0 to 100"},
    {"mirostat_eta", &SamplerOptions::mirostat_eta, 0, 10, false, "from 0 to 10"},
};

struct CountRange {
  const char* name;
  int32_t SamplerOptions::* value;
  int32_t low, high;
  const char* text;
};

constexpr int32_t kMostCount = std::numeric_limits<int32_t>::max();

constexpr CountRange kCountRanges[] = {
    {"top_k", &SamplerOptions::top_k, 0, kMostCount, "0 (off) or a positive number"},
    {"repeat_last_n", &SamplerOptions::repeat_last_n, -1, kMostCount,
     "a number of tokens, or -1 (all)"},
    {"dry_allowed_length", &SamplerOptions::dry_allowed_length, 1, kMostCount, "1 or more tokens"},
    {"dry_penalty_last_n", &SamplerOptions::dry_penalty_last_n, -1, kMostCount,
     "a number of tokens, or -1 (all)"},
    {"mirostat", &SamplerOptions::mirostat, 0, 2, "0 (off), 1 or 2"},
};

Result<void> check_token(std::string_view name, Token id, int64_t vocabulary_size) {
  if (id >= 0 && id < vocabulary_size) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{} names token {}, but the vocabulary has ids 0 to {}", name, id,
                          vocabulary_size - 1));
}

Result<void> check_bias(const LogitBias& b, int64_t vocabulary_size) {
  CULET_TRY_VOID(check_token("logit_bias", b.id, vocabulary_size));
  const bool never = b.bias == -std::numeric_limits<float>::infinity();
  if (never || std::fabs(b.bias) <= kMostBias) return {};
  return out_of_range("logit_bias", b.bias, "from -1000000 to 1000000, or -infinity (never)");
}

Result<void> check_breakers(const SamplerOptions& options, int64_t vocabulary_size) {
  if (options.dry_sequence_breakers.size() > kMostBreakers) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("dry_sequence_breakers has {} texts; use at most {}",
                            options.dry_sequence_breakers.size(), kMostBreakers));
  }
  for (const std::string& text : options.dry_sequence_breakers) {
    if (!text.empty() && text.size() <= kMostBreakerBytes) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("dry_sequence_breakers has a text of {} bytes; use 1 to {}",
                            text.size(), kMostBreakerBytes));
  }
  for (const Token id : options.dry_breaker_tokens) {
    CULET_TRY_VOID(check_token("dry_breaker_tokens", id, vocabulary_size));
  }
  return {};
}

}  // namespace

Result<void> validate(const SamplerOptions& options, int64_t vocabulary_size) {
  for (const FloatRange& range : kFloatRanges) {
    const float value = options.*range.value;
    const bool fits = value >= range.low && value <= range.high;  // no NaN does
    if (!fits || (range.above_low && value == range.low)) {
      return out_of_range(range.name, value, range.text);
    }
  }
  for (const CountRange& range : kCountRanges) {
    const int32_t value = options.*range.value;
    if (value < range.low || value > range.high) {
      return out_of_range(range.name, value, range.text);
    }
  }
  for (const LogitBias& bias : options.logit_bias) {
    CULET_TRY_VOID(check_bias(bias, vocabulary_size));
  }
  return check_breakers(options, vocabulary_size);
}

}  // namespace culet
