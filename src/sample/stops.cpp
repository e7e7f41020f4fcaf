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

StopFilter::StopFilter(std::span<const std::string> stops) {
  for (const std::string& text : stops) stops_.push_back({text, borders(text), 0});
}

void StopFilter::advance(Stop* stop, char byte) {
  while (stop->state > 0 && stop->text[stop->state] != byte)
    stop->state = stop->border[stop->state];
  if (stop->text[stop->state] == byte) ++stop->state;
}

std::string StopFilter::push(std::string_view text) {
  if (matched_ >= 0) return "";
  if (stops_.empty()) return std::string(text);
  for (const char byte : text) {
    held_ += byte;
    size_t longest = 0;
    for (size_t i = 0; i < stops_.size(); ++i) {
      advance(&stops_[i], byte);
      if (stops_[i].state == stops_[i].text.size() && stops_[i].state > longest) {
        longest = stops_[i].state;
        matched_ = static_cast<int>(i);
      }
    }
    if (matched_ >= 0) {
      held_.resize(held_.size() - longest);
      return std::exchange(held_, {});
    }
  }
  size_t hold = 0;
  for (const Stop& stop : stops_) hold = std::max(hold, stop.state);
  std::string shown = held_.substr(0, held_.size() - hold);
  held_.erase(0, shown.size());
  return shown;
}

std::string StopFilter::flush() { return std::exchange(held_, {}); }

}  // namespace culet::sample
