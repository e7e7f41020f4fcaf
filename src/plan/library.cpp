// The set of architecture files: the built-in ones, then a folder that adds or replaces by file
// name.
#include "base/files.h"
#include "base/utf8.h"
#include "plan/arch_parse.h"
#include "plan/builtin.h"
#include "plan/compile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <utility>

namespace culet::plan {
namespace {

// A pipe or a device would make everybody who loads a model wait.
Result<std::string> read_arch_file(const std::filesystem::path& path) {
  std::error_code ec;
  if (!std::filesystem::is_regular_file(path, ec)) {
    return fail(
        ErrorCode::kIo,
        fmt::format("the architecture file {} cannot be read: {}; take it out of the folder",
                    path.string(), ec ? ec.message() : "it is not a regular file"));
  }
  return base::read_file(path.string(), kMostArchBytes);
}

}  // namespace

Result<ArchLibrary> ArchLibrary::open(const std::string& dir) {
  ArchLibrary library;
  for (const BuiltinArch& b : builtin_archs())
    library.files_.push_back({std::string(b.name), std::string(b.text), "built in"});
  std::sort(library.files_.begin(), library.files_.end(),
            [](const ArchText& a, const ArchText& b) { return a.name < b.name; });
  if (dir.empty()) return library;
  std::error_code ec;
  std::filesystem::directory_iterator entries(dir, ec);
  if (ec)
    return fail(ErrorCode::kNotFound, fmt::format("cannot read the folder of architecture files "
                                                  "{}: {}; check --arch-dir / CULET_ARCH_DIR",
                                                  dir, ec.message()));
  std::vector<std::filesystem::path> paths;
  for (; entries != std::filesystem::directory_iterator(); entries.increment(ec)) {
    if (entries->path().extension() == ".arch") paths.push_back(entries->path());
  }
  if (ec) return fail(ErrorCode::kIo, fmt::format("cannot list {}: {}", dir, ec.message()));
  std::sort(paths.begin(), paths.end());
  for (const auto& path : paths) {
    CULET_TRY(std::string text, read_arch_file(path));
    ArchText arch{path.stem().string(), std::move(text), path.string()};
    const auto same = std::find_if(library.files_.begin(), library.files_.end(),
                                   [&](const ArchText& a) { return a.name == arch.name; });
    if (same == library.files_.end()) {
      library.files_.push_back(std::move(arch));
    } else {
      library.replaced_.push_back(std::move(*same));
      *same = std::move(arch);
    }
  }
  return library;
}

const ArchText* ArchLibrary::by_file_name(std::string_view name) const {
  for (const ArchText& a : files_)
    if (a.name == name) return &a;
  return nullptr;
}

const ArchText* ArchLibrary::replaced(std::string_view name) const {
  for (const ArchText& a : replaced_)
    if (a.name == name) return &a;
  return nullptr;
}

// A file from the folder wins over a built-in one that names the same architecture. A file whose
// header does not parse still claims the architecture of its file name, so that it fails loudly.
Result<const ArchText*> ArchLibrary::find(std::string_view architecture) const {
  const ArchText* found = nullptr;
  for (const ArchText& a : files_) {
    const auto names = parse_arch_names(a);
    const bool claims = names
                            ? std::find(names->begin(), names->end(), architecture) != names->end()
                            : a.name == architecture;
    if (!claims) continue;
    const bool own = a.origin != "built in", found_own = found && found->origin != "built in";
    if (own && found_own)
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("both {} and {} name the architecture '{}'; keep one of them",
                              found->origin, a.origin, architecture));
    if (!found_own) found = &a;
  }
  if (found) return found;
  std::string known;
  for (const std::string& name : architectures()) known += (known.empty() ? "" : ", ") + name;
  return fail(ErrorCode::kUnsupported,
              fmt::format("no architecture file for '{}' (known: {}); add one with --arch-dir, "
                          "docs/formats/arch.md says how",
                          base::utf8_shown(architecture), known));
}

std::vector<std::string> ArchLibrary::architectures() const {
  std::vector<std::string> out;
  for (const ArchText& a : files_)
    if (const auto names = parse_arch_names(a)) out.insert(out.end(), names->begin(), names->end());
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace culet::plan
