// Builds the tree of a template from its source.
#pragma once

#include "culet/result.h"
#include "template/ast.h"

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

namespace culet::chat {

// Names of a template, each kept once. Pointers stay valid as long as the table.
class NameTable {
 public:
  const Name* intern(std::string_view text);
  const Name* find(std::string_view text) const;  // nullptr: the template never says it

 private:
  std::unordered_map<std::string, std::unique_ptr<Name>> names_;
};

struct ParsedTemplate {
  std::string source;  // normalized; positions refer to it
  NameTable names;
  Body body;
};

// `depth` bounds the nesting of expressions and statements.
// Errors: kInvalidArgument with line and column.
Result<std::unique_ptr<ParsedTemplate>> parse_template(std::string_view source, int depth);

}  // namespace culet::chat
