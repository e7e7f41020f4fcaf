// Takes a row of logits, gives it with mask, logit_bias, penalties and DRY applied, in this order.
//
// The mask comes first and writes -infinity, which no later change can undo: a finite bias, a
// penalty and a factor above 0 leave it as it is.
#include "sample/changes.h"

#include "sample/ranking.h"

#include <algorithm>

namespace culet::sample {
namespace {

constexpr double kMostDryPenalty = 1e30;  // finite: DRY alone never makes a token impossible

// Grows by doubling, so that a history that grows by one token a pick seldom allocates.
template <class T>
void reserve_for(size_t n, std::vector<T>* v) {
  if (v->capacity() < n) v->reserve(2 * n);
}

std::span<const Token> last_tokens(std::span<const Token> history, int32_t n) {
  return n < 0 ? history : history.last(std::min(static_cast<size_t>(n), history.size()));
}

// row = logits where the mask allows them, else -infinity; 64 tokens at a time.
void copy_allowed(const TokenMask& mask, std::span<const float> logits, std::vector<float>* row) {
  row->resize(logits.size());
  for (size_t i = 0; i < mask.words().size(); ++i) {
    const uint64_t allowed = mask.words()[i];
    const size_t first = i * 64, n = std::min<size_t>(64, logits.size() - first);
    const float* from = logits.data() + first;
    float* to = row->data() + first;
    if (allowed == 0) {
      std::fill_n(to, n, kSuppressed);
    } else if (allowed == ~uint64_t{0}) {
      std::copy_n(from, n, to);
    } else {
      for (size_t j = 0; j < n; ++j) to[j] = ((allowed >> j) & 1) != 0 ? from[j] : kSuppressed;
    }
  }
}

bool penalizes(const SamplerOptions& o) {
  return o.repeat_penalty != 1 || o.presence_penalty != 0 || o.frequency_penalty != 0;
}

// Tokens behind the last breaker of the window.
size_t since_breaker(std::span<const Token> window, std::span<const Token> breakers) {
  for (size_t n = 0; n < window.size(); ++n) {
    if (std::binary_search(breakers.begin(), breakers.end(), window[window.size() - 1 - n])) {
      return n;
    }
  }
  return window.size();
}

// [k]: how many tokens the window and the window without its last k have in common at their ends
// (0 for k = 0). The Z algorithm, read from the end: [lt, rt) is the found stretch that reaches
// furthest, inside of which earlier results are reused. Source: Gusfield, Algorithms on Strings,
// Trees and Sequences, 1997 (1.3).
void common_ends(std::span<const Token> window, std::vector<int32_t>* common) {
  const size_t n = window.size();
  const auto from_end = [&](size_t i) { return window[n - 1 - i]; };
  reserve_for(n, common);
  common->assign(n, 0);
  for (size_t k = 1, lt = 0, rt = 0; k < n; ++k) {
    size_t length = 0;
    if (k < rt) length = std::min(rt - k, static_cast<size_t>((*common)[k - lt]));
    while (k + length < n && from_end(length) == from_end(k + length)) ++length;
    (*common)[k] = static_cast<int32_t>(length);
    if (k + length > rt) {
      lt = k;
      rt = k + length;
    }
  }
}

float dry_penalty(const SamplerOptions& options, int32_t length) {
  double penalty = options.dry_multiplier, factor = options.dry_base;
  for (int32_t n = length - options.dry_allowed_length; n > 0; n /= 2) {  // times factor^n
    if (n % 2 != 0) penalty *= factor;
    factor *= factor;
  }
  return static_cast<float>(std::min(penalty, kMostDryPenalty));
}

}  // namespace

std::span<const float> Changes::own(std::span<const float> logits) {
  if (logits.data() != row_.data()) row_.assign(logits.begin(), logits.end());
  return row_;
}

// Sources: repeat_penalty: Keskar et al., CTRL, 2019 (4.1), with the sign cared for; the other two:
// the OpenAI API.
void Changes::penalize_window(const SamplerOptions& options, std::span<const Token> history,
                              std::span<float> row) {
  const auto last = last_tokens(history, options.repeat_last_n);
  reserve_for(last.size(), &window_);
  window_.assign(last.begin(), last.end());
  std::sort(window_.begin(), window_.end());
  for (size_t i = 0, end = 0; i < window_.size(); i = end) {
    while (end < window_.size() && window_[end] == window_[i]) ++end;
    if (window_[i] < 0 || static_cast<size_t>(window_[i]) >= row.size()) continue;
    float& logit = row[static_cast<size_t>(window_[i])];
    logit = logit > 0 ? logit / options.repeat_penalty : logit * options.repeat_penalty;
    logit -= options.presence_penalty;
    logit -= static_cast<float>(end - i) * options.frequency_penalty;
  }
}

std::span<const Changes::Repetition> Changes::repetitions(std::span<const Token> window,
                                                          std::span<const Token> breakers,
                                                          int32_t allowed) {
  repetitions_.clear();
  const auto limit = static_cast<int32_t>(since_breaker(window, breakers));
  if (limit < allowed) return {};
  common_ends(window, &common_);
  reserve_for(window.size(), &repetitions_);
  for (size_t k = 1; k < window.size(); ++k) {
    const int32_t length = std::min(common_[k], limit);
    const Token next = window[window.size() - k];
    if (length < allowed || std::binary_search(breakers.begin(), breakers.end(), next)) continue;
    repetitions_.push_back({next, length});
  }
  std::sort(repetitions_.begin(), repetitions_.end(), [](const Repetition& a, const Repetition& b) {
    return a.id != b.id ? a.id < b.id : a.length > b.length;
  });
  const auto end =
      std::unique(repetitions_.begin(), repetitions_.end(),
                  [](const Repetition& a, const Repetition& b) { return a.id == b.id; });
  repetitions_.resize(static_cast<size_t>(end - repetitions_.begin()));
  return repetitions_;
}

// Source: p-e-w, DRY: A modern repetition penalty that reliably prevents looping, 2024
// (text-generation-webui, pull request 5677).
void Changes::penalize_repetitions(const SamplerOptions& options, std::span<const Token> breakers,
                                   std::span<const Token> history, std::span<float> row) {
  const auto window = last_tokens(history, options.dry_penalty_last_n);
  for (const Repetition& r : repetitions(window, breakers, options.dry_allowed_length)) {
    if (r.id < 0 || static_cast<size_t>(r.id) >= row.size()) continue;
    row[static_cast<size_t>(r.id)] -= dry_penalty(options, r.length);
  }
}

std::span<const float> Changes::apply(const SamplerOptions& options,
                                      std::span<const Token> breakers,
                                      std::span<const float> logits, std::span<const Token> history,
                                      const TokenMask* mask) {
  const bool dry = options.dry_multiplier > 0;
  const bool penalties = penalizes(options);
  if (!mask && options.logit_bias.empty() && !penalties && !dry) return logits;
  if (mask) {
    copy_allowed(*mask, logits, &row_);
  } else {
    row_.assign(logits.begin(), logits.end());
  }
  for (const LogitBias& b : options.logit_bias) row_[static_cast<size_t>(b.id)] += b.bias;
  if (penalties) penalize_window(options, history, row_);
  if (dry) penalize_repetitions(options, breakers, history, row_);
  return row_;
}

}  // namespace culet::sample
