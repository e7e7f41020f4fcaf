// Takes a row of pretokenizers.def; gives the words of a text.
//
// The patterns run one after the other, each over what the ones before it left, as the published
// tokenizers chain their splitters. A part that no pattern matches is a word too, so nothing of the
// text is ever lost.
#include "text/pretokenizer.h"

#include "base/check.h"

#include <utility>

namespace culet::text {
namespace {

constexpr PretokenizerRow kRows[] = {
#define PRETOKENIZER(name, ignore_merges, add_bos, ...) \
  {name, ignore_merges, add_bos, {__VA_ARGS__}},
#include "text/pretokenizers.def"
#undef PRETOKENIZER
};

}  // namespace

std::span<const PretokenizerRow> pretokenizer_rows() { return kRows; }

const PretokenizerRow* find_pretokenizer(std::string_view name) {
  if (name.empty()) name = "default";
  for (const PretokenizerRow& row : kRows) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

std::string pretokenizer_names() {
  std::string names;
  for (const PretokenizerRow& row : kRows) {
    if (!names.empty()) names += ", ";
    names += row.name;
  }
  return names;
}

Pretokenizer::Pretokenizer(const PretokenizerRow& row) {
  for (const std::string_view pattern : row.patterns) {
    if (pattern.empty()) continue;
    Result<Regex> regex = Regex::compile(pattern);
    CULET_CHECK(regex.has_value());
    patterns_.push_back(std::move(*regex));
  }
}

Result<std::vector<Span>> Pretokenizer::split(std::string_view text) const {
  std::vector<Span> spans;
  if (!text.empty()) spans.push_back({0, text.size()});
  for (const Regex& pattern : patterns_) CULET_TRY_VOID(pattern.split(text, &spans));
  return spans;
}

}  // namespace culet::text
