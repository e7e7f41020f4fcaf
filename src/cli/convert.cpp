// culet convert: a folder as models are published in becomes a GGUF file. In the end the file's
// header is loaded as any model is, so that what this build could not run is told at once.
#include "culet/convert.h"

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/written.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace culet::cli {
namespace {

Result<WrittenModel> convert(const ConvertArguments& arguments, const InterruptWatch& interrupt) {
  StatusLine status(!arguments.quiet);
  ConvertOptions options{.type = arguments.type, .keep = arguments.keep};
  options.family = arguments.family;
  options.ignore_config = arguments.ignore_config;
  options.threads = arguments.model.options.threads;
  options.progress = [&](const Progress& p) {
    status.show(fmt::format("Converting: {} %", p.total ? 100 * p.done / p.total : 100));
    return !interrupt.interrupted();
  };
  return convert_model(arguments.folder, arguments.out, options);
}

}  // namespace

Result<int> convert_command(const ConvertArguments& arguments, Output& out) {
  const InterruptWatch interrupt;
  const auto written = convert(arguments, interrupt);
  if (!written && written.error().code == ErrorCode::kCancelled) {
    print_note("stopped");
    return kExitInterrupted;
  }
  if (!written) return tl::unexpected(written.error());
  for (const std::string& note : written->notes) print_note(note);
  ModelOptions options = arguments.model.options;
  options.text_only = true;
  const auto model = Model::load(written->path, options);
  const std::string why = model ? (*model)->info().cannot_run : model.error().message;
  if (!why.empty()) print_note("the file is written, but cannot be run here: " + why);
  nlohmann::ordered_json json = written_json(*written);
  json["runs"] = why.empty();
  out.write(arguments.json
                ? json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n"
                : printable(written_text(*written)));
  return kExitOk;
}

}  // namespace culet::cli
