// Takes text piece by piece, gives it back up to the first stop.
//
// Each stop is a Knuth-Morris-Pratt automaton: its state is how many of its first bytes the text
// ends with, so the largest state is exactly what has to be held back, and a state that reaches a
// stop's length is a match.
#include "sample/stops.h"

#include "base/utf8.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace culet::sample {
namespace {

constexpr size_t kMostStops = 64, kMostBytes = 1024;

std::vector<size_t> borders(std::string_view text) {
  std::vector<size_t> border(text.size() + 1, 0);
  for (size_t i = 1, k = 0; i < text.size(); ++i) {
    while (k > 0 && text[i] != text[k]) k = border[k];
    if (text[i] == text[k]) ++k;
    border[i + 1] = k;
  }
  return border;
}

}  // namespace

Result<void> check_stops(std::span<const std::string> stops) {
  const auto wrong = [](const std::string& what) {
    return fail(ErrorCode::kInvalidArgument, what);
  };
  if (stops.size() > kMostStops) {
    return wrong(
        fmt::format("{} stop texts were given; at most {} can be used", stops.size(), kMostStops));
  }
  for (const std::string& stop : stops) {
    if (stop.empty()) return wrong("a stop text is empty, so it would match at once; leave it out");
    if (stop.size() > kMostBytes) {
      return wrong(
          fmt::format("a stop text has {} bytes; at most {} can be used", stop.size(), kMostBytes));
    }
    if (!base::utf8_valid(stop)) return wrong("a stop text is not UTF-8, so it can never match");
  }
  return {};
}

StopFilter::StopFilter(std::span<const std::string> stops) : states_(stops.size(), 0) {
  std::vector<Stop> made;
  for (const std::string& text : stops) made.push_back({text, borders(text)});
  stops_ = std::make_shared<const std::vector<Stop>>(std::move(made));
}

void StopFilter::reset() {
  std::fill(states_.begin(), states_.end(), 0);
  held_.clear();
  matched_ = -1;
}

void StopFilter::advance(size_t stop, char byte) {
  const Stop& s = (*stops_)[stop];
  size_t& state = states_[stop];
  while (state > 0 && s.text[state] != byte) state = s.border[state];
  if (s.text[state] == byte) ++state;
}

void StopFilter::push(std::string_view text, std::string* out) {
  if (matched_ >= 0) return;
  if (states_.empty()) {
    out->append(text);
    return;
  }
  for (const char byte : text) {
    held_ += byte;
    size_t longest = 0;
    for (size_t i = 0; i < states_.size(); ++i) {
      advance(i, byte);
      if (states_[i] == (*stops_)[i].text.size() && states_[i] > longest) {
        longest = states_[i];
        matched_ = static_cast<int>(i);
      }
    }
    if (matched_ >= 0) {
      out->append(held_, 0, held_.size() - longest);
      held_.clear();
      return;
    }
  }
  const size_t shown = held_.size() - *std::max_element(states_.begin(), states_.end());
  out->append(held_, 0, shown);
  held_.erase(0, shown);
}

void StopFilter::flush(std::string* out) {
  out->append(held_);
  held_.clear();
  std::fill(states_.begin(), states_.end(), 0);
}

}  // namespace culet::sample
