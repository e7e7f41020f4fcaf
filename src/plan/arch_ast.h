// The parsed form of an architecture file: hyperparameters, statements and sections, each with the
// place it came from. docs/formats/arch.md defines the language.
#pragma once

#include "expr/ast.h"
#include "expr/source.h"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace culet::plan {

using expr::Expr;
using expr::ExprPtr;
using expr::NamedArgument;
using expr::SourceFile;
using expr::SourceLocation;

struct Statement {
  enum class Kind { kAssign, kAppend, kLayers, kOutput, kWhen };
  Kind kind;
  std::vector<std::string>
      names;      // kAssign: destinations; kAppend: cache; kOutput: name; kLayers: block
  ExprPtr value;  // kAssign, kOutput; kWhen: condition
  std::vector<ExprPtr> operands;           // kAppend: k, v
  std::vector<Statement> body, otherwise;  // kWhen
  SourceLocation location;
};

struct Section {
  std::string name;  // "" before the first header
  std::vector<Statement> statements;
};

struct Block {  // "model" or "layer"
  std::string name;
  std::vector<Section> sections;
  SourceLocation location;
};

struct Let {
  std::string name;
  ExprPtr value;
  SourceLocation location;
};

struct CacheDecl {
  std::string name;
  ExprPtr policy, donor;  // null: global / self
  ExprPtr key_heads, key_dim, value_heads, value_dim;
  SourceLocation location;
};

struct StateDecl {
  std::string name;
  ExprPtr rows, width;
  SourceLocation location;
};

struct Require {
  ExprPtr condition;
  std::string message;
  SourceLocation location;
};

struct IgnoreItem {
  std::string name;  // tensor name, "glob" or meta key
  bool is_glob = false, is_meta = false;
  std::shared_ptr<Expr> when;    // null: always
  std::shared_ptr<Expr> equals;  // meta.KEY == VALUE: only a key of this value; null: of any
  SourceLocation location;
};

struct ExternDecl {
  std::string name;                                  // "target"
  std::vector<std::string> values, caches, hparams;  // values: tensors and outputs
  SourceLocation location;
};

struct ArchFile {
  std::vector<std::string> architectures;  // names on the arch line
  std::string kind;  // decoder, encoder, draft; "" when this file does not say
  SourceLocation include_location;
  std::vector<Let> lets;
  std::vector<CacheDecl> caches;
  std::vector<StateDecl> states;
  std::vector<Require> requirements;
  std::vector<IgnoreItem> ignores;
  std::vector<ExternDecl> externs;
  std::vector<Block> blocks;
  std::vector<SourceFile> files;  // included first, the file itself last

  const Block* block(std::string_view name) const {
    for (const Block& b : blocks)
      if (b.name == name) return &b;
    return nullptr;
  }
  const CacheDecl* cache(std::string_view name) const {
    for (const CacheDecl& c : caches)
      if (c.name == name) return &c;
    return nullptr;
  }
};

}  // namespace culet::plan
