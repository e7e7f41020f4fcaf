// The merge list of a BPE vocabulary, by the ids of the two sides of a rule.
#pragma once

#include "culet/result.h"
#include "text/hash.h"
#include "text/merge_list.h"
#include "text/token_table.h"

#include <vector>

namespace culet::text {

class MergeRules {
 public:
  // Errors: kCorrupt (a rule that is not two known texts which make a third).
  static Result<MergeRules> make(const Vocabulary& vocabulary, const TokenTable& table);

  // What neighbours with these ids become. A rule that makes a control, unknown or unused token is
  // checked by make() but never applies: text must not become one.
  MergeList::Merge find(Token left, Token right) const {
    const int32_t rank = ranks_.find(pair_key(left, right));
    if (rank == NumberMap::kNone) return {MergeList::kNever, kNoToken};
    return {static_cast<uint32_t>(rank), results_[static_cast<size_t>(rank)]};
  }

 private:
  static uint64_t pair_key(Token left, Token right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }

  NumberMap ranks_;             // of two given twice, the first rule stays
  std::vector<Token> results_;  // by rank
};

}  // namespace culet::text
