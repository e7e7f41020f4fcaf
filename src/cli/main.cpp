// culet: parse, dispatch, and turn errors into one sentence and an exit status.
//   0 done; 1 it failed; 2 the command line or a CULET_* variable makes no sense; 130 Ctrl-C
//   (143 SIGTERM, 129 SIGHUP).
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "culet/hub.h"

#include <fmt/format.h>

#include <exception>

namespace culet::cli {

Result<std::shared_ptr<const Model>> load_model(const ModelArguments& arguments, bool quiet) {
  StatusLine status(!quiet);
  ModelOptions options = arguments.options;
  options.progress = [&status](const Progress& p) {
    status.show(fmt::format("Loading the model: {} %", p.total ? 100 * p.done / p.total : 100));
    return true;
  };
  CULET_TRY(const ModelRef found, find_model(arguments.path));
  if (!arguments.target.empty()) {
    CULET_TRY(const ModelRef target, find_model(arguments.target));
    CULET_TRY(options.target, Model::load(target.path, options));
  }
  CULET_TRY(auto model, Model::load(found.path, options));
  status.clear();
  if (options.text_only) return model;
  for (const auto& loaded : {options.target, model}) {
    if (!loaded) continue;
    for (const std::string& warning : loaded->info().warnings) print_note("warning: " + warning);
  }
  return model;
}

std::string rotation(const ModelInfo& info) {
  if (info.rope_context == 0) return "";
  return fmt::format("{}, loaded for a context of {} tokens (--ctx)", info.rope_factors,
                     info.rope_context);
}

void print_rotation(const ModelInfo& info) {
  if (info.rope_context != 0) print_note("rotation: " + rotation(info));
}

namespace {

// A closed pipe is no news to whoever closed it.
int report(const Error& error, const Output& out) {
  const bool unread = out.failed() && out.error().code == ErrorCode::kCancelled;
  if (!unread) print_error(error.message);
  return kExitFailed;
}

int run_main(int argc, const char* const* argv) {
  prepare_streams();
  const auto action = parse_arguments(argc, argv);
  if (!action) {
    print_error(action.error().message);
    return kExitUsage;
  }
  Output out;
  const Result<int> status = (*action)(out);
  if (!status) return report(status.error(), out);
  if (!out.finish()) return report(out.error(), out);
  const int signal = interrupting_signal();
  return *status == kExitInterrupted && signal ? 128 + signal : *status;  // as shells say it
}

}  // namespace
}  // namespace culet::cli

int main(int argc, char** argv) {
  try {
    return culet::cli::run_main(argc, argv);
  } catch (const std::exception& e) {
    culet::cli::print_error(fmt::format("out of memory or an unexpected failure: {}", e.what()));
    return culet::cli::kExitFailed;
  }
}
