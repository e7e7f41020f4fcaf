// Takes the texts "left right" of a file's merge list, the most urgent first; gives lookups by id,
// so that no text is built while merging. Every side and every result must be a token: a list that
// does not fit its vocabulary would show up only as odd ids.
#include "text/merge_rules.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace culet::text {
namespace {

constexpr size_t kMostRules = size_t{1} << 30;

tl::unexpected<Error> bad_merge(size_t index, std::string_view problem) {
  return fail(ErrorCode::kCorrupt,
              fmt::format("tokenizer.ggml.merges[{}] {}; the file is damaged or badly converted, "
                          "fetch it again",
                          index, problem));
}

}  // namespace

Result<MergeRules> MergeRules::make(const Vocabulary& vocabulary, const TokenTable& table) {
  const std::vector<std::string_view>& merges = vocabulary.merges;
  if (merges.size() > kMostRules) return bad_merge(merges.size() - 1, "is one too many");
  MergeRules rules;
  rules.ranks_.reserve(merges.size());
  rules.results_.reserve(merges.size());
  std::string joined;
  for (size_t i = 0; i < merges.size(); ++i) {
    const size_t space = merges[i].find(' ');
    if (space == std::string_view::npos || space != merges[i].rfind(' ')) {
      return bad_merge(i, "is not two texts with one space between them");
    }
    const std::string_view left = merges[i].substr(0, space), right = merges[i].substr(space + 1);
    if (left.empty() || right.empty()) return bad_merge(i, "has an empty side");
    const Token a = table.find(left), b = table.find(right);
    joined.assign(left).append(right);
    const Token result = table.find(joined);
    if (a == kNoToken || b == kNoToken || result == kNoToken) {
      return bad_merge(i, "joins or makes a text that is not in the vocabulary");
    }
    rules.results_.push_back(result);
    if (table.is_plain(result)) rules.ranks_.insert(pair_key(a, b), static_cast<int32_t>(i));
  }
  return rules;
}

}  // namespace culet::text
