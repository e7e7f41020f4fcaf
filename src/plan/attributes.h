// Where the named facts of a call go: attribute name -> field of Attributes or RopeSpec.
#pragma once

#include "culet/result.h"
#include "plan/facts.h"
#include "plan/plan.h"

#include <cstdint>
#include <string_view>
#include <vector>

namespace culet::plan {

void set_number(std::string_view attribute, double n, Op* op, RopeSpec* rope);

// The error is the message only; it lists the words this attribute takes.
Result<void> set_word(std::string_view attribute, const Fact::Word& word, Attributes* attributes);

// The token ids of a metadata array, each below `width`; none is an empty list. The error is the
// message only.
Result<std::vector<int32_t>> token_ids(const Fact& list, int32_t width);

}  // namespace culet::plan
