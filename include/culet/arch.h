// Architecture files: which there are, what one makes of a model, how two differ. Texts for people;
// docs/formats/arch.md defines the language.
//
// FILE is the path of a .arch file (it ends with .arch or has a slash) or the name of one that is
// built in or in arch_dir. arch_dir, as in ModelOptions, adds and replaces; "" = only the built-in
// ones. model_path is the path of a GGUF file, "" = none.
// Errors: kNotFound / kIo for files and folders; mistakes of a text as FILE:LINE:COLUMN: what is
// wrong. Threads: every call may run beside any other.
#pragma once

#include "culet/result.h"

#include <string>
#include <vector>

namespace culet {

struct ArchEntry {
  std::string name;                        // of the file, without .arch
  std::vector<std::string> architectures;  // of its arch line
  std::string origin;                      // "built in" or the file's path
  std::string sha256;                      // of its text and all it includes
  std::string problem;  // why models of this architecture are refused; "" = usable
};
Result<std::vector<ArchEntry>> list_architectures(const std::string& arch_dir = {});

// Without a model: the names in the text. With one: its facts, the statements of one layer of each
// kind with shapes and types, its caches, the tensors used, ignored and not there, and whether this
// build can run it.
Result<std::string> check_architecture(const std::string& file, const std::string& arch_dir = {},
                                       const std::string& model_path = {});

// "" = no difference. Without a model: of the statements, after includes and replacements. With
// one: of the operations they become.
Result<std::string> diff_architectures(const std::string& a, const std::string& b,
                                       const std::string& arch_dir = {},
                                       const std::string& model_path = {});

}  // namespace culet
