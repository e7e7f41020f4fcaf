// Reports on architecture files: which exist, what one makes of a model, how two differ. The
// results are texts for people. docs/formats/arch.md defines the language.
//
// `file` is the path of a .arch file (it ends with .arch or has a slash), or the name of one that
// is built in or in arch_dir. `arch_dir` is a folder whose files add to or replace the built-in
// ones, as in ModelOptions; "": none. `model_path` is the path of a GGUF file; "": none. Errors:
// kNotFound and kIo (files and folders); for a mistake in the text, a message FILE:LINE:COLUMN:
// what is wrong. Threads: any number may call these functions.
#pragma once

#include "culet/result.h"

#include <string>
#include <vector>

namespace culet {

struct ArchEntry {
  std::string name;                        // of the file, without .arch
  std::vector<std::string> architectures;  // the names in its arch line
  std::string origin;                      // "built in" or the file's path
  std::string sha256;                      // of its text with all includes
  std::string problem;                     // why it cannot be used; "": it can
};
Result<std::vector<ArchEntry>> list_architectures(const std::string& arch_dir = {});

// Without a model: the names in the text. With a model: its hyperparameters, the statements of one
// layer of each kind with shapes and types, its caches, the tensors that are used, ignored and
// missing, and whether this build can run it.
Result<std::string> check_architecture(const std::string& file, const std::string& arch_dir = {},
                                       const std::string& model_path = {});

// The differences between two files; "": none. Without a model: between their statements, after
// includes and replacements. With a model: between the operations that they become.
Result<std::string> diff_architectures(const std::string& a, const std::string& b,
                                       const std::string& arch_dir = {},
                                       const std::string& model_path = {});

}  // namespace culet
