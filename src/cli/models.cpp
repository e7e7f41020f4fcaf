// culet list, culet rm and culet pull: the models themselves, by name.
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "culet/hub.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace culet::cli {
namespace {

using Json = nlohmann::ordered_json;

Json or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

Json to_json(const ModelList& list) {
  Json models = Json::array(), catalogue = Json::array();
  for (const ModelEntry& entry : list.models) {
    models.push_back({{"name", entry.name},
                      {"path", or_null(entry.path)},
                      {"bytes", entry.bytes},
                      {"architecture", or_null(entry.architecture)},
                      {"quantization", or_null(entry.quantization)},
                      {"origin", entry.origin},
                      {"revision", or_null(entry.revision)},
                      {"sha256", or_null(entry.sha256)},
                      {"owned", entry.owned},
                      {"problem", or_null(entry.problem)}});
  }
  for (const CatalogueEntry& entry : list.not_here) {
    catalogue.push_back({{"name", entry.name},
                         {"bytes", entry.bytes},
                         {"about", entry.about},
                         {"license", entry.license},
                         {"default", entry.is_default}});
  }
  return {{"models", models}, {"not_here", catalogue}, {"problems", list.problems}};
}

std::string megabytes(uint64_t bytes) {
  return fmt::format("{:.0f} MB", static_cast<double>(bytes) / 1e6);
}

std::string human(const ModelList& list) {
  size_t width = 4;
  for (const ModelEntry& entry : list.models) width = std::max(width, entry.name.size());
  for (const CatalogueEntry& entry : list.not_here) width = std::max(width, entry.name.size());
  width = std::min<size_t>(width, 60);
  std::string text;
  for (const ModelEntry& entry : list.models) {
    text += fmt::format("{:<{}}  {:>9}  {:<8}  {:<6}  {}\n", entry.name, width,
                        megabytes(entry.bytes), entry.architecture, entry.quantization,
                        entry.problem.empty() ? entry.origin : "cannot be used: " + entry.problem);
  }
  if (list.models.empty()) text += "No model is on this machine yet.\n";
  if (!list.not_here.empty()) text += "\nTo fetch with culet pull NAME:\n";
  for (const CatalogueEntry& entry : list.not_here) {
    text +=
        fmt::format("{:<{}}  {:>9}  {}\n", entry.name, width, megabytes(entry.bytes), entry.about);
  }
  return text;
}

std::string progress_text(const Progress& progress) {
  const auto word = [&progress]() -> std::string_view {
    if (progress.stage == "waiting") return "Waiting for";
    if (progress.stage == "unpacking") return "Unpacking";
    return progress.stage == "verifying" ? "Verifying" : "Downloading";
  };
  std::string text = fmt::format("{} {}", word(), progress.item);
  if (progress.total > 0) {
    text +=
        fmt::format(": {:.0f} % of {}",
                    100 * static_cast<double>(progress.done) / static_cast<double>(progress.total),
                    megabytes(progress.total));
  } else if (progress.done > 0) {
    text += ": " + megabytes(progress.done);
  }
  if (progress.bytes_per_second > 0) {
    text += fmt::format(", {:.1f} MB/s", progress.bytes_per_second / 1e6);
  }
  return text;
}

}  // namespace

Result<int> list_command(const ListArguments& arguments, Output& out) {
  const ModelList list = list_models();
  if (arguments.json) {
    out.write(to_json(list).dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
    return kExitOk;
  }
  out.write(printable(human(list)));
  for (const std::string& problem : list.problems) print_note(problem);
  return kExitOk;
}

Result<int> remove_command(const RemoveArguments& arguments, Output& out) {
  for (const std::string& name : arguments.names) {
    CULET_TRY(const RemovedModel removed, remove_model(name));
    for (const std::string& file : removed.files) out.write("removed " + printable(file) + "\n");
    out.flush();
  }
  return kExitOk;
}

Result<int> pull_command(const PullArguments& arguments, Output& out) {
  const InterruptWatch interrupt;
  for (const std::string& name : arguments.names) {
    StatusLine status(!arguments.quiet);
    const auto pulled = pull_model(name, [&](const Progress& progress) {
      status.show(progress_text(progress));
      return !interrupt.interrupted();
    });
    status.clear();
    if (!pulled && pulled.error().code == ErrorCode::kCancelled) {
      print_note("stopped; run the same command again to continue where it was");
      return kExitInterrupted;
    }
    if (!pulled) return tl::unexpected(pulled.error());
    for (const std::string& note : pulled->notes) {
      if (!arguments.quiet) print_note(note);
    }
    out.write(printable(pulled->path) + "\n");
    out.flush();
  }
  return kExitOk;
}

}  // namespace culet::cli
