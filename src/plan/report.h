// Texts about architecture files: what one says, what it makes of a model, how two differ.
#pragma once

#include "culet/result.h"
#include "format/gguf.h"
#include "plan/arch_ast.h"
#include "plan/compile.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace culet::plan {

// The text by itself: names, kind, files, hyperparameters, keys, caches, outputs. Errors:
// FILE:LINE:COLUMN.
Result<std::string> describe_arch(const ArchLibrary& library, const ArchText& arch);

// The text on a model: hyperparameters, the statements of one layer of each kind with shapes and
// types, caches, states, and which tensors are used, ignored, or optional and not there. Errors:
// those of compile().
Result<std::string> check_arch(const ArchLibrary& library, const ArchText& arch,
                               const format::GgufFile& model);

// Lines with '-' are only in a, with '+' only in b; "" when nothing differs. Of the statements that
// are left when includes and replacements are done, ...
Result<std::string> diff_arch(const ArchLibrary& library, const ArchText& a, const ArchText& b);
// ... or of what the two make of a model, layer by layer.
Result<std::string> diff_plans(const ArchLibrary& library, const ArchText& a, const ArchText& b,
                               const format::GgufFile& model);

// ---- shared by the files of this layer

// " halves dims=64 base=10000 ...": what explain prints behind an operation.
std::string attributes_text(const Plan& plan, const Op& op);

// An operation as a line without numbers that differ from layer to layer for no reason: its own
// layer's tensors are blk.{i}.NAME, its own cache and state have no layer. types: " Q4_K" behind
// the shapes.
std::string op_line(const Plan& plan, const Op& op, const format::GgufFile& model, bool types);
// The context that the model file states, as `session.context` of hyperparameters; 0: none.
int64_t trained_context(const format::GgufFile& model);
std::string cache_line(const CacheSpec& cache);  // "cache kv: window(512), 4 heads of 64"
std::string state_line(const StateSpec& state);  // "state history: 2 rows of 64"

// The text of logical lines of the files of an architecture, by location.
class SourceLines {
 public:
  explicit SourceLines(const ArchFile& arch);     // which has been parsed
  std::string at(SourceLocation location) const;  // without comment, joined, indentation gone
  std::string at_flat(int32_t line) const;        // line of the flattened text
  std::string name_flat(int32_t line) const;      // "llama.arch:31"

 private:
  SourceLocation location_of(int32_t line) const;
  const ArchFile& arch_;
  std::vector<std::map<int, std::string>> lines_;  // by file: first line -> text
};

}  // namespace culet::plan
