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
  return Model::load(found.path, options);
}

namespace {

struct Dispatch {
  Output& out;
  Result<int> operator()(const Page& page) {
    out.write(page.text);
    return kExitOk;
  }
  Result<int> operator()(const RunArguments& arguments) { return run_command(arguments, out); }
  Result<int> operator()(const TokenizeArguments& arguments) {
    return tokenize_command(arguments, out);
  }
  Result<int> operator()(const ScoreArguments& arguments) { return score_command(arguments, out); }
  Result<int> operator()(const EmbedArguments& arguments) { return embed_command(arguments, out); }
  Result<int> operator()(const ExplainArguments& arguments) {
    return arguments.profile ? profile_command(arguments, out) : explain_command(arguments, out);
  }
  Result<int> operator()(const BenchArguments& arguments) { return bench_command(arguments, out); }
  Result<int> operator()(const ArchArguments& arguments) { return arch_command(arguments, out); }
  Result<int> operator()(const ShowArguments& arguments) { return show_command(arguments, out); }
  Result<int> operator()(const ListArguments& arguments) { return list_command(arguments, out); }
  Result<int> operator()(const RemoveArguments& arguments) {
    return remove_command(arguments, out);
  }
  Result<int> operator()(const PullArguments& arguments) { return pull_command(arguments, out); }
  Result<int> operator()(const QuantizeArguments& arguments) {
    return quantize_command(arguments, out);
  }
  Result<int> operator()(const ConvertArguments& arguments) {
    return convert_command(arguments, out);
  }
  Result<int> operator()(const CompleteArguments& arguments) {
    return complete_command(arguments, out);
  }
};

// A closed pipe is no news to whoever closed it.
int report(const Error& error, const Output& out) {
  const bool unread = out.failed() && out.error().code == ErrorCode::kCancelled;
  if (!unread) print_error(error.message);
  return kExitFailed;
}

int run_main(int argc, const char* const* argv) {
  prepare_streams();
  const auto arguments = parse_arguments(argc, argv);
  if (!arguments) {
    print_error(arguments.error().message);
    return kExitUsage;
  }
  Output out;
  const Result<int> status = std::visit(Dispatch{out}, *arguments);
  if (!status) return report(status.error(), out);
  if (!out.flush()) return report(out.error(), out);
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
