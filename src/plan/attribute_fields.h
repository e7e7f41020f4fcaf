// Where the named arguments of a call go: which field each one sets.
#pragma once

#include "culet/result.h"
#include "plan/hyperparameters.h"
#include "plan/plan.h"

#include <string_view>

namespace culet::plan {

// What the arguments of one call fill. A rope's numbers go into its table of angles.
struct AttributeTarget {
  OpKind op;
  Attributes* attributes;
  RopeSpec* rope;
};

// For attributes of the kinds num, int and flag.
void set_number(const AttributeTarget& target, std::string_view attribute, double n);

// The error is the message only; it lists the words this attribute takes.
Result<void> set_word(const AttributeTarget& target, std::string_view attribute,
                      const expr::Word& word);

}  // namespace culet::plan
