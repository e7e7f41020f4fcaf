// The public calls on architecture files: open the library, the file and the model, then let the
// plan layer write the text.
#include "culet/arch.h"

#include "backend/executor.h"
#include "base/files.h"
#include "base/sha256.h"
#include "format/gguf.h"
#include "plan/arch_parse.h"
#include "plan/compile.h"
#include "plan/report.h"

#include <fmt/format.h>

#include <filesystem>
#include <span>

namespace culet {
namespace {

bool is_path(const std::string& file) {
  return file.ends_with(".arch") || file.find('/') != std::string::npos;
}

Result<plan::ArchText> read_file(const std::string& path) {
  auto text = base::read_file(path, plan::kMostArchBytes);
  if (!text) {
    return fail(text.error().code,
                fmt::format("{}; give the path of a .arch file, or a name that culet arch list "
                            "shows",
                            text.error().message));
  }
  return plan::ArchText{std::filesystem::path(path).stem().string(), *std::move(text), path};
}

Result<plan::ArchText> find_text(const plan::ArchLibrary& library, const std::string& file) {
  if (is_path(file)) return read_file(file);
  if (const plan::ArchText* found = library.by_file_name(file)) return *found;
  std::string known;
  for (const plan::ArchText& text : library.files())
    known += (known.empty() ? "" : ", ") + text.name;
  return fail(ErrorCode::kNotFound,
              fmt::format("there is no architecture file '{}' (there are: {}); a path ends with "
                          ".arch or has a slash",
                          file, known));
}

// A text of the library itself is passed on as such: it may include what it replaces.
template <class F>
Result<std::string> with_text(const plan::ArchLibrary& library, const std::string& file, F&& fn) {
  if (const plan::ArchText* own = is_path(file) ? nullptr : library.by_file_name(file)) {
    return fn(*own);
  }
  CULET_TRY(const plan::ArchText text, find_text(library, file));
  return fn(text);
}

// Whether the backend has a kernel for all of it and reads the types of its tensors.
std::string runs_text(const plan::ArchLibrary& library, const plan::ArchText& text,
                      const format::GgufFile& model) {
  const auto compiled = plan::compile_text(library, text, model, {});
  if (!compiled) return "";  // cannot be: the report has compiled it
  const auto supported = backend::Executor::check(compiled->plan, {model, nullptr});
  return fmt::format("\nruns in this version: {}\n",
                     supported ? "yes" : "no: " + supported.error().message);
}

}  // namespace

Result<std::vector<ArchEntry>> list_architectures(const std::string& arch_dir) {
  CULET_TRY(const plan::ArchLibrary library, plan::ArchLibrary::open(arch_dir));
  std::vector<ArchEntry> entries;
  for (const plan::ArchText& text : library.files()) {
    ArchEntry entry{text.name, {}, text.origin, "", ""};
    if (auto names = plan::parse_arch_names(text)) entry.architectures = *std::move(names);
    const auto arch = plan::parse_arch(library, text);
    if (arch) {
      const std::string flat = plan::flattened_text(*arch);
      entry.sha256 = base::sha256_hex(std::as_bytes(std::span(flat.data(), flat.size())));
    } else {
      entry.problem = arch.error().message;
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

Result<std::string> check_architecture(const std::string& file, const std::string& arch_dir,
                                       const std::string& model_path) {
  CULET_TRY(const plan::ArchLibrary library, plan::ArchLibrary::open(arch_dir));
  if (model_path.empty()) {
    return with_text(library, file, [&](const plan::ArchText& text) {
      return plan::describe_arch(library, text);
    });
  }
  CULET_TRY(const format::GgufFile model, format::GgufFile::open(model_path));
  return with_text(library, file, [&](const plan::ArchText& text) -> Result<std::string> {
    CULET_TRY(std::string report, plan::check_arch(library, text, model));
    return report + runs_text(library, text, model);
  });
}

Result<std::string> diff_architectures(const std::string& a, const std::string& b,
                                       const std::string& arch_dir, const std::string& model_path) {
  CULET_TRY(const plan::ArchLibrary library, plan::ArchLibrary::open(arch_dir));
  const auto both = [&](auto&& fn) {
    return with_text(library, a, [&](const plan::ArchText& left) {
      return with_text(library, b, [&](const plan::ArchText& right) { return fn(left, right); });
    });
  };
  if (model_path.empty()) {
    return both([&](const plan::ArchText& left, const plan::ArchText& right) {
      return plan::diff_arch(library, left, right);
    });
  }
  CULET_TRY(const format::GgufFile model, format::GgufFile::open(model_path));
  return both([&](const plan::ArchText& left, const plan::ArchText& right) {
    return plan::diff_plans(library, left, right, model);
  });
}

}  // namespace culet
