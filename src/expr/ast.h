// The tree of an expression. One kind of tree serves numbers, conditions, tensors and values: which
// one an expression is follows from where it stands and from the names in it.
// docs/formats/expressions.md defines the language.
#pragma once

#include "expr/source.h"

#include <memory>
#include <string>
#include <vector>

namespace culet::expr {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct NamedArgument {
  std::string name;
  ExprPtr value;
  SourceLocation location;
};

struct Expr {
  enum class Kind {
    kNumber,       // number
    kString,       // text
    kName,         // text: dotted name; what it means is for the reader of the tree to say
    kCall,         // text(kids..., named...)
    kUnary,        // text: "-" or "not"; kids[0]
    kBinary,       // text: operator; kids[0], kids[1]
    kIf,           // if kids[0] then kids[1] else kids[2]
    kDefault,      // kids[0] default kids[1]
    kAlternative,  // kids[0] | kids[1] | ...   the first tensor that is present
    kOptional,     // kids[0]?
    kIndex,        // kids[0][kids[1]]
    kMember,       // kids[0].text, behind an index, a call or parentheses
    kAs,           // kids[0] as [kids[1], ...]
    kLast,         // last(text < kids[0] where kids[1]); scope "target" when target.last
    kTuple,        // (kids[0], kids[1], ...)
  };
  Kind kind;
  std::string text;
  double number = 0;
  std::vector<ExprPtr> kids;
  std::vector<NamedArgument> named;
  bool on_target = false;  // kLast
  int height = 1;          // of the tree from here down; the parser bounds it
  SourceLocation location;
};

}  // namespace culet::expr
