// Cutting text into words before byte-level BPE merges it; the table is pretokenizers.def.
#pragma once

#include "culet/result.h"
#include "text/regex.h"

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace culet::text {

struct PretokenizerRow {
  static constexpr size_t kMaxPatterns = 6;
  std::string_view name;
  bool ignore_merges;
  bool add_bos;
  std::array<std::string_view, kMaxPatterns> patterns;  // unused ones are empty
};

std::span<const PretokenizerRow> pretokenizer_rows();
// "" is "default". nullptr: no such row.
const PretokenizerRow* find_pretokenizer(std::string_view name);
std::string pretokenizer_names();  // for messages: "default, gpt-2, ..."

class Pretokenizer {
 public:
  explicit Pretokenizer(const PretokenizerRow& row);
  // The words of valid UTF-8 text, in order and without gaps.
  Result<std::vector<Span>> split(std::string_view text) const;

 private:
  std::vector<Regex> patterns_;
};

}  // namespace culet::text
