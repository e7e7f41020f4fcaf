// From architecture text and a model file to a Plan.
#pragma once

#include "culet/result.h"
#include "format/gguf.h"
#include "plan/plan.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace culet::plan {

struct ArchFile;

// Where architecture files come from: the built-in ones, then a folder that adds or replaces.
// A file in the folder that does not load disables that architecture; there is no fall-back.
constexpr uint64_t kMostArchBytes = uint64_t{1} << 20;  // the parser's own limit is far below

struct ArchText {
  std::string name;  // file name without .arch
  std::string text;
  std::string origin;  // "built in" or the file's path
};

class ArchLibrary {
 public:
  // dir: "" = only the built-in ones. Errors: kNotFound / kIo for the folder.
  static Result<ArchLibrary> open(const std::string& dir);
  // The file whose `arch` line names this architecture. kUnsupported lists the known names.
  Result<const ArchText*> find(std::string_view architecture) const;
  const ArchText* by_file_name(std::string_view name) const;  // for include
  // The built-in file that a file of this name in the folder replaces; nullptr: none.
  const ArchText* replaced(std::string_view name) const;
  std::vector<std::string> architectures() const;
  const std::vector<ArchText>& files() const { return files_; }

 private:
  std::vector<ArchText> files_;
  std::vector<ArchText> replaced_;
};

struct Compiled {
  Plan plan;
  std::string origin;                 // of the architecture file
  std::vector<std::string> warnings;  // hyperparameters nobody reads
  // Keys of the architecture that change nothing here: an 'ignore' line names them.
  std::vector<std::string> unread_keys;
  int64_t context_length = 0;  // the model's training context (0: not stated)
  std::shared_ptr<const ArchFile>
      arch;  // the text, parsed: a draft model's hyperparameters may name hyperparameters in it
};

struct CompileOptions {
  bool precise = false;  // no int8 activations: products take float rows
  bool fuse = true;      // false: the unfused plan (same bits)
  // A draft model's target model, and what it was compiled to: its hyperparameters, outputs and
  // caches are read there. Without the latter the target is compiled as well.
  const format::GgufFile* target = nullptr;
  const Compiled* target_compiled = nullptr;
  // Stops after the checks: ops without a kernel in this version are fine (tests, `arch check`).
  bool check_only = false;
  int64_t context = 0;  // session.context in hyperparameters; 0 = the model's own
};

// Errors are one line: FILE:LINE:COLUMN: what was found, what was expected, what to write instead.
Result<Compiled> compile(const ArchLibrary& library, const format::GgufFile& model,
                         const CompileOptions& options);
// The same with a given architecture file (its includes still come from the library).
Result<Compiled> compile_text(const ArchLibrary& library, const ArchText& arch,
                              const format::GgufFile& model, const CompileOptions& options);

// The plan as text, one op a line, beside the line of the architecture file it comes from.
// note(op index) adds what the backend knows (kernel name, bytes); may be empty.
std::string explain(const Plan& plan, const Tensors& tensors,
                    const std::function<std::string(size_t)>& note);

}  // namespace culet::plan
