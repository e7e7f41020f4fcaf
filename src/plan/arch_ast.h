// The parsed form of an architecture file: expressions, facts, statements and sections, each with
// the place it came from. docs/formats/arch.md defines the language.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace culet::plan {

// A place in one of the files that make up an architecture (an include adds a file).
struct Place {
  int file = 0;    // index into ArchFile::files
  int line = 0;    // from 1
  int column = 0;  // from 1
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct NamedArgument {
  std::string name;
  ExprPtr value;
  Place place;
};

// One kind of expression serves facts and values; which one it is follows from the names in it.
struct Expr {
  enum class Kind {
    kNumber,       // number
    kString,       // text
    kName,         // text: dotted name (fact, value, tensor, meta key, word)
    kCall,         // text(kids..., named...)
    kUnary,        // text: "-" or "not"; kids[0]
    kBinary,       // text: operator; kids[0], kids[1]
    kIf,           // if kids[0] then kids[1] else kids[2]
    kDefault,      // kids[0] default kids[1]
    kAlternative,  // kids[0] | kids[1] | ...   the first tensor that is present
    kOptional,     // kids[0]?
    kIndex,        // kids[0][kids[1]]
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
  Place place;
};

struct Statement {
  enum class Kind { kAssign, kAppend, kLayers, kOutput, kWhen };
  Kind kind;
  std::vector<std::string>
      names;      // kAssign: destinations; kAppend: cache; kOutput: name; kLayers: block
  ExprPtr value;  // kAssign, kOutput; kWhen: condition
  std::vector<ExprPtr> operands;           // kAppend: k, v
  std::vector<Statement> body, otherwise;  // kWhen
  Place place;
};

struct Section {
  std::string name;  // "" before the first header
  std::vector<Statement> statements;
};

struct Block {  // "model" or "layer"
  std::string name;
  std::vector<Section> sections;
  Place place;
};

struct Let {
  std::string name;
  ExprPtr value;
  Place place;
};

struct CacheDecl {
  std::string name;
  ExprPtr policy, donor;  // null: global / self
  ExprPtr key_heads, key_dim, value_heads, value_dim;
  Place place;
};

struct StateDecl {
  std::string name;
  ExprPtr rows, width;
  Place place;
};

struct Require {
  ExprPtr condition;
  std::string message;
  Place place;
};

struct IgnoreItem {
  std::string name;  // tensor name, "glob" or meta key
  bool is_glob = false, is_meta = false;
  std::shared_ptr<Expr> when;  // null: always
  Place place;
};

struct ExternDecl {
  std::string name;                                // "target"
  std::vector<std::string> values, caches, facts;  // values: tensors and outputs
  Place place;
};

struct SourceFile {
  std::string name;  // shown in messages: "llama.arch" or a path
  std::string text;
  int first_line = 0;  // line of the flattened text before this file's line 1
};

struct ArchFile {
  std::vector<std::string> architectures;  // names on the arch line
  std::string kind;  // decoder, encoder, drafter; "" when this file does not say
  Place include_place;
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
