// Where the named facts of a call go: attribute name -> field of Attributes or RopeSpec.
#pragma once

#include "culet/result.h"
#include "plan/facts.h"
#include "plan/plan.h"

#include <string_view>

namespace culet::plan {

void set_number(std::string_view attribute, double n, Op* op, RopeSpec* rope);

// The error is the message only; it lists the words this attribute takes.
Result<void> set_word(std::string_view attribute, const Fact::Word& word, Attributes* attributes);

}  // namespace culet::plan
