// Texts that end an answer, looked for while it is made.
//
// Text that may be the beginning of a stop is held back until it is clear whether it is one, so
// that nothing is ever shown that belongs to a stop, also where a stop spans many tokens. Linear in
// the text whatever the stops are.
#pragma once

#include "culet/result.h"

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace culet::sample {

// kInvalidArgument: an empty stop, one that is not UTF-8 or longer than 1024 bytes, more than 64.
Result<void> check_stops(std::span<const std::string> stops);

// `stops` have passed check_stops(). A copy shares the stops; short texts allocate nothing.
class StopFilter {
 public:
  explicit StopFilter(std::span<const std::string> stops);
  // Takes the next text and appends what can be shown. After a match: what is in front of it, and
  // nothing more from then on. Of stops that end at one place the longest counts.
  void push(std::string_view text, std::string* out);
  // The end came: appends what was held back.
  void flush(std::string* out);
  // Which stop matched, as an index into the stops; -1: none yet.
  int matched() const { return matched_; }
  void reset();  // as new

  std::string push(std::string_view text) {
    std::string out;
    push(text, &out);
    return out;
  }
  std::string flush() {
    std::string out;
    flush(&out);
    return out;
  }

 private:
  struct Stop {
    std::string text;
    std::vector<size_t> border;  // [i]: longest proper prefix of text[0, i) that also ends it
  };
  void advance(size_t stop, char byte);

  std::shared_ptr<const std::vector<Stop>> stops_;
  std::vector<size_t>
      states_;  // of each stop, how many of its first bytes the text so far ends with
  std::string held_;
  int matched_ = -1;
};

}  // namespace culet::sample
