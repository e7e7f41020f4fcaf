// Unigram vocabularies ("t5"): takes text, gives ids.
//
// The text is rewritten first: characters by the vocabulary's own table, runs of spaces to one if
// the file says so, spaces to U+2581. Then of all ways to cut it into tokens the one with the
// highest sum of scores is taken (Viterbi, from left to right; the first found among equals). A
// character that is no token counts ten less than the worst score of the vocabulary, and such
// characters in a row are one unknown token, or their bytes where the vocabulary has a token for
// every byte. Sums are float32, as in the published program, so that near ties fall the same way.
//
// Tokens are kept sorted by text: the ones that continue what was read so far are a range, narrowed
// byte by byte. Tokens are at most 256 bytes long, so hostile ones do not make this quadratic.
#include "base/utf8.h"
#include "text/charsmap.h"
#include "text/encoder.h"
#include "text/space_marker.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>

namespace culet::text {
namespace {

constexpr float kUnknownPenalty = 10;
constexpr size_t kMostToken = 256;
constexpr size_t kMostText = size_t{1} << 30;
constexpr uint32_t kNowhere = UINT32_MAX;
constexpr std::string_view kReplaced = "\xef\xbf\xbd";  // U+FFFD, for a byte that is no UTF-8

struct Entry {
  std::string_view text;  // not empty
  Token token;
  float score;
};

// How the best cutting of the text so far ends.
struct Step {
  float sum = 0;
  uint32_t begin = kNowhere;  // of the last token
  Token token = kNoToken;
};

class Unigram final : public Encoder {
 public:
  Unigram(const Vocabulary& vocabulary, const TokenTable& table, bool space_prefix, Token unknown)
      : table_(table),
        space_prefix_(space_prefix),
        one_space_(vocabulary.remove_extra_whitespaces.value_or(false)),
        unknown_(unknown) {
    byte_tokens_.fill(kNoToken);
  }

  Result<void> init(const Vocabulary& vocabulary) {
    CULET_TRY(charsmap_, Charsmap::make(vocabulary.charsmap));
    return read_tokens(vocabulary.scores);
  }

  Result<void> encode(std::string_view text, bool starts_text,
                      std::vector<Token>* out) const override {
    std::string normal;
    if (!rewrite(text, starts_text, &normal)) {
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("the text is longer than {} bytes after its characters were replaced; "
                      "split it up",
                      kMostText));
    }
    const std::vector<Step> steps = best_steps(normal);
    const size_t first = out->size();
    for (size_t end = normal.size(); end > 0; end = steps[end].begin) {
      append_reversed(std::string_view(normal).substr(0, end), steps[end], first, out);
    }
    std::reverse(out->begin() + static_cast<std::ptrdiff_t>(first), out->end());
    return {};
  }

  void append_text(Token t, std::string* out) const override {
    append_unmarked(table_.text(t), out);
  }

 private:
  Result<void> read_tokens(const std::vector<float>& scores);
  bool rewrite(std::string_view text, bool starts_text, std::string* out) const;
  std::vector<Step> best_steps(std::string_view text) const;
  bool take_tokens(std::string_view text, size_t begin, std::vector<Step>* steps) const;
  void append_reversed(std::string_view until, const Step& step, size_t first,
                       std::vector<Token>* out) const;

  const TokenTable& table_;
  bool space_prefix_, one_space_;
  Token unknown_;
  Charsmap charsmap_;
  std::vector<Entry> entries_;          // by text
  std::array<size_t, 257> starts_{};    // entries that begin with a byte
  std::array<Token, 256> byte_tokens_;  // all of them, or none
  float unknown_score_ = -kUnknownPenalty;
};

Result<void> Unigram::read_tokens(const std::vector<float>& scores) {
  if (scores.size() != static_cast<size_t>(table_.size())) {
    return fail(
        ErrorCode::kCorrupt,
        fmt::format("the vocabulary has {} tokens but {} scores; a `t5` tokenizer needs one "
                    "a token, so convert the model again",
                    table_.size(), scores.size()));
  }
  float least = std::numeric_limits<float>::max();
  for (Token t = 0; t < table_.size(); ++t) {
    const float score = scores[static_cast<size_t>(t)];
    const std::string_view text = table_.text(t);
    if (!std::isfinite(score) || text.size() > kMostToken) {
      return fail(ErrorCode::kCorrupt,
                  fmt::format("token {} has {}; the file is damaged, fetch it again", t,
                              text.size() > kMostToken ? "more than 256 bytes"
                                                       : "a score that is not a finite number"));
    }
    if (table_.kind(t) == TokenKind::kByte) byte_tokens_[*table_.byte(t)] = t;
    if (table_.kind(t) == TokenKind::kNormal) least = std::min(least, score);
    if (!text.empty() && table_.find_plain(text) == t) entries_.push_back({text, t, score});
  }
  if (std::find(byte_tokens_.begin(), byte_tokens_.end(), kNoToken) != byte_tokens_.end()) {
    byte_tokens_.fill(kNoToken);
  }
  std::sort(entries_.begin(), entries_.end(),
            [](const Entry& a, const Entry& b) { return a.text < b.text; });
  for (const Entry& e : entries_) ++starts_[static_cast<uint8_t>(e.text[0]) + 1u];
  for (size_t b = 1; b < starts_.size(); ++b) starts_[b] += starts_[b - 1];
  if (!entries_.empty()) unknown_score_ = least - kUnknownPenalty;
  return {};
}

// False: the result would be too long.
bool Unigram::rewrite(std::string_view text, bool starts_text, std::string* out) const {
  if (!text.empty() && space_prefix_ && starts_text) *out += kSpaceMarker;
  bool after_space = one_space_;
  while (!text.empty()) {
    Charsmap::Found next = charsmap_.find(text);
    if (next.size == 0) {
      const base::Utf8Step step = base::utf8_step(text, 0);
      next = {static_cast<size_t>(step.length),
              step.valid ? text.substr(0, static_cast<size_t>(step.length)) : kReplaced};
    }
    text.remove_prefix(next.size);
    while (after_space && next.text.starts_with(' ')) next.text.remove_prefix(1);
    if (next.text.empty()) continue;
    for (const char c : next.text) {
      if (c == ' ') {
        *out += kSpaceMarker;
      } else {
        out->push_back(c);
      }
    }
    after_space = one_space_ && next.text.ends_with(' ');
    if (out->size() > kMostText) return false;
  }
  while (one_space_ && out->ends_with(kSpaceMarker)) {
    out->resize(out->size() - kSpaceMarker.size());
  }
  return true;
}

std::vector<Step> Unigram::best_steps(std::string_view text) const {
  std::vector<Step> steps(text.size() + 1);
  for (size_t at = 0; at < text.size();) {
    const auto character = static_cast<size_t>(base::utf8_step(text, at).length);
    if (!take_tokens(text, at, &steps)) {
      Step& next = steps[at + character];
      const float sum = steps[at].sum + unknown_score_;
      if (next.begin == kNowhere || sum > next.sum) {
        next = {sum, static_cast<uint32_t>(at), unknown_};
      }
    }
    at += character;
  }
  return steps;
}

// Every token that begins at `begin`; whether one of them is the character there.
bool Unigram::take_tokens(std::string_view text, size_t begin, std::vector<Step>* steps) const {
  const auto character = static_cast<size_t>(base::utf8_step(text, begin).length);
  const auto first = static_cast<uint8_t>(text[begin]);
  auto low = entries_.begin() + static_cast<std::ptrdiff_t>(starts_[first]);
  auto high = entries_.begin() + static_cast<std::ptrdiff_t>(starts_[first + 1u]);
  bool whole = false;
  for (size_t size = 1; low != high; ++size) {
    if (low->text.size() == size) {  // the shortest of the range comes first
      Step& end = (*steps)[begin + size];
      const float sum = (*steps)[begin].sum + low->score;
      if (end.begin == kNowhere || sum > end.sum) {
        end = {sum, static_cast<uint32_t>(begin), low->token};
      }
      whole = whole || size == character;
      ++low;
    }
    if (begin + size == text.size()) break;
    const auto byte = static_cast<uint8_t>(text[begin + size]);
    const auto at = [size](const Entry& e) { return static_cast<uint8_t>(e.text[size]); };
    low = std::partition_point(low, high, [&](const Entry& e) { return at(e) < byte; });
    high = std::partition_point(low, high, [&](const Entry& e) { return at(e) == byte; });
  }
  return whole;
}

// Appends one step of the way back; `until` is the text up to its end.
void Unigram::append_reversed(std::string_view until, const Step& step, size_t first,
                              std::vector<Token>* out) const {
  if (step.token != unknown_) {
    out->push_back(step.token);
  } else if (byte_tokens_[0] != kNoToken) {
    for (size_t i = until.size(); i > step.begin; --i) {
      out->push_back(byte_tokens_[static_cast<uint8_t>(until[i - 1])]);
    }
  } else if (out->size() == first || out->back() != unknown_) {
    out->push_back(unknown_);
  }
}

}  // namespace

Result<std::unique_ptr<Encoder>> make_unigram(const Vocabulary& vocabulary, const TokenTable& table,
                                              bool space_prefix, Token unknown) {
  auto encoder = std::make_unique<Unigram>(vocabulary, table, space_prefix, unknown);
  CULET_TRY_VOID(encoder->init(vocabulary));
  return encoder;
}

}  // namespace culet::text
