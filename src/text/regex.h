// Splitting text by a regular expression: the one place that knows the regex library (PCRE2).
#pragma once

#include "culet/result.h"

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

namespace culet::text {

struct Span {
  size_t begin, end;
  bool operator==(const Span&) const = default;
};

// Immutable; any number of threads may split at once.
class Regex {
 public:
  // The pattern sees Unicode: code points, and \p classes by property. Errors: kInvalidArgument.
  static Result<Regex> compile(std::string_view pattern);

  // Replaces each span of `text` by its parts: the matches, and what lies between them. A part
  // never is empty. Every span is matched as a text of its own, so a lookahead does not see past
  // its end. `text` must be valid UTF-8. Errors: kExhausted (match limit, which no pattern of ours
  // reaches).
  Result<void> split(std::string_view text, std::vector<Span>* spans) const;

 private:
  struct Free {
    void operator()(void* code) const;
  };
  std::unique_ptr<void, Free> code_;  // pcre2_code
};

}  // namespace culet::text
