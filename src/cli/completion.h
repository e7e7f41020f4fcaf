// Completion of command lines. The shells' scripts only ask the program, with the internal command
//   culet __complete WORD...
// whose last WORD is the one to complete (maybe ""). It prints candidates, one a line, each
// followed by a tab and what it is; a last line may ask the shell for names of files:
//   :files .SUFFIX    files with this suffix, and folders; without a suffix every file
//   :folders
#pragma once

#include "cli/reference.h"
#include "culet/result.h"

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace culet::cli {

// What the machine adds to the command line's own words; each is asked only when it is needed.
struct KnownNames {
  using Names = std::function<std::vector<std::string>()>;
  Names models, own_models, models_to_pull, architectures;
};

// The lines described above. Names that a shell would have to quote are left out.
std::string complete(const CommandEntry& culet, std::span<const std::string> words,
                     const KnownNames& known);

// kNotFound for a shell that nobody knows.
Result<std::string> completion_script(std::string_view shell);

}  // namespace culet::cli
