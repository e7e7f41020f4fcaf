// The tree that a parsed template is: statements that hold expressions. Immutable once parsed.
//
// Every node knows its height, which the parser bounds, so evaluation and destruction of a tree
// recurse no deeper than the limit. Chains of operators of one level (a + b - c) are one node.
#pragma once

#include "template/value.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace culet::chat {

using Position = uint32_t;  // byte offset in the source

// A name or attribute, kept once per template; `id` numbers them from 0.
struct Name {
  std::string text;
  int id;
};

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

enum class Op : uint8_t {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kFloorDiv,
  kMod,
  kPow,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kIn,
  kNotIn,
};

enum class ExpressionKind : uint8_t {
  kConstant,    // constant
  kName,        // name
  kList,        // operands
  kTuple,       // operands
  kDict,        // operands: key, value, key, value ...
  kAttribute,   // operands[0] . name
  kItem,        // operands[0] [ operands[1] ]
  kSlice,       // operands[0] [ operands[1] : operands[2] : operands[3] ], absent ones are null
  kCall,        // operands[0] ( arguments )
  kFilter,      // operands[0] | native ( arguments ); a null operand is the block's text
  kTest,        // operands[0] is native ( arguments )
  kArithmetic,  // operands[0] ops[0] operands[1] ops[1] ...  from left to right
  kConcat,      // operands joined by ~
  kCompare,     // operands[0] ops[0] operands[1] ops[1] ...  every neighbour must hold
  kAnd,         // operands
  kOr,          // operands
  kNot,         // operands[0]
  kNegative,    // - operands[0]
  kPositive,    // + operands[0]
  kCondition,   // operands[0] if operands[1] else operands[2], which may be null
};

struct Argument {
  enum class Kind : uint8_t { kPlain, kNamed, kSpreadList, kSpreadDict };
  Kind kind;
  const Name* name;  // kNamed only
  ExpressionPtr value;
};

struct Expression {
  ExpressionKind kind;
  Position at;
  int height = 1;
  const Name* name = nullptr;
  const NativeEntry* native = nullptr;  // filters and tests; null: the name is unknown
  Value constant;
  std::vector<ExpressionPtr> operands;
  std::vector<Op> ops;
  std::vector<Argument> arguments;
};

// Where an assignment or a loop puts its value: a name, an attribute of a namespace, or several.
struct Target {
  Position at = 0;
  const Name* name = nullptr;       // null: `parts`
  const Name* attribute = nullptr;  // name.attribute
  std::vector<Target> parts;
};

struct Statement;
using Body = std::vector<std::unique_ptr<Statement>>;

// Parameters and body of a macro or of a call block.
struct MacroNode {
  const Name* name = nullptr;  // null: the block of a call
  struct Parameter {
    const Name* name;
    ExpressionPtr fallback;  // may be null
  };
  std::vector<Parameter> parameters;
  Body body;
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
};

enum class StatementKind : uint8_t {
  kText,      // text
  kPrint,     // expression
  kIf,        // branches, body is the else
  kFor,       // target, expression, condition (may be null), body, orelse
  kSet,       // target = expression
  kSetBlock,  // target, body, expression: a chain of filters or null
  kWith,      // targets = operands of expression, body
  kMacro,     // macro
  kCall,      // expression is the call, macro its block
  kFilter,    // expression: a chain of filters, body
  kScope,     // body in a scope of its own (generation blocks)
  kBreak,
  kContinue,
};

struct Branch {
  ExpressionPtr condition;
  Body body;
};

struct Statement {
  StatementKind kind;
  Position at;
  Value text;
  Target target;
  std::vector<Target> targets;
  ExpressionPtr expression, condition;
  std::vector<Branch> branches;
  Body body, orelse;
  std::unique_ptr<MacroNode> macro;
};

}  // namespace culet::chat
