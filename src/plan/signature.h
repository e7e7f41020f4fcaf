// The operand and attribute rules of every op, read once from the signatures in ops.def.
#pragma once

#include "plan/plan.h"

#include <string>
#include <string_view>
#include <vector>

namespace culet::plan {

struct OperandRule {
  enum class Kind {
    kValue,
    kValues,
    kTensor,
    kOptionalTensor,
    kHyperparameter,
    kCache,
    kState,
    kCacheOrPair
  };
  Kind kind;
};
struct AttributeRule {
  enum class Kind { kNumber, kInteger, kFlag, kWord, kTensor, kMask };
  std::string name;
  Kind kind;
  bool has_default = false;
  std::string default_text;  // "0", "causal", "none"
};
struct Signature {
  OpKind kind;
  std::string_view name, meaning;
  bool writable = false;  // may stand in an architecture file
  std::vector<OperandRule> operands;
  std::vector<AttributeRule> attributes;
};

std::string operand_text(const Signature& s);  // "a value, a tensor or none", for messages

const std::vector<Signature>& signatures();              // in OpKind order
const Signature* find_signature(std::string_view name);  // nullptr: no op a file can write
std::string unknown_operation(std::string_view name);    // the message, with the nearest one

}  // namespace culet::plan
