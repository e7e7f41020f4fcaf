// culet arch list, check and diff: architecture files, looked at without running a model.
#include "culet/arch.h"

#include "cli/commands.h"
#include "culet/hub.h"

#include <fmt/format.h>

#include <algorithm>

namespace culet::cli {
namespace {

Result<std::string> model_path(const ArchArguments& arguments) {
  if (arguments.model.empty()) return std::string();
  CULET_TRY(const ModelRef found, find_model(arguments.model));
  return found.path;
}

Result<int> list(const ArchArguments& arguments, Output& out) {
  CULET_TRY(const std::vector<ArchEntry> entries, list_architectures(arguments.arch_dir));
  size_t width = 4;
  for (const ArchEntry& entry : entries) width = std::max(width, entry.name.size());
  std::string text;
  for (const ArchEntry& entry : entries) {
    std::string names;
    for (const std::string& name : entry.architectures) names += (names.empty() ? "" : ", ") + name;
    text += fmt::format("{:<{}}  {}  {}", entry.name, width,
                        entry.problem.empty() ? entry.sha256 : std::string(64, '-'), entry.origin);
    if (names != entry.name && !names.empty()) text += fmt::format("  (architecture {})", names);
    if (!entry.problem.empty()) text += "  cannot be used: " + entry.problem;
    text += "\n";
  }
  out.write(printable(text));
  return kExitOk;
}

Result<int> check(const ArchArguments& arguments, Output& out) {
  CULET_TRY(const std::string model, model_path(arguments));
  CULET_TRY(const std::string report,
            check_architecture(arguments.files.at(0), arguments.arch_dir, model));
  out.write(printable(report));
  return kExitOk;
}

// As diff does: 0 the same, 1 different, 2 trouble.
Result<int> diff(const ArchArguments& arguments, Output& out) {
  const auto text = [&]() -> Result<std::string> {
    CULET_TRY(const std::string model, model_path(arguments));
    return diff_architectures(arguments.files.at(0), arguments.files.at(1), arguments.arch_dir,
                              model);
  }();
  if (!text) {
    print_error(text.error().message);
    return 2;
  }
  out.write(printable(*text));
  return text->empty() ? kExitOk : kExitFailed;
}

}  // namespace

Result<int> arch_command(const ArchArguments& arguments, Output& out) {
  switch (arguments.action) {
    case ArchArguments::Action::kList:
      return list(arguments, out);
    case ArchArguments::Action::kCheck:
      return check(arguments, out);
    case ArchArguments::Action::kDiff:
      return diff(arguments, out);
  }
  return kExitUsage;
}

}  // namespace culet::cli
