// Session options from flags, and snapshots with progress.
#include "cli/memory.h"

#include "cli/console.h"
#include "cli/input.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <unistd.h>

namespace culet::cli {
namespace {

ProgressFn show_progress(StatusLine* status, const char* what) {
  return [status, what](const Progress& p) {
    const auto total = static_cast<double>(std::max<uint64_t>(1, p.total));
    status->show(fmt::format("{}: {:.0f} %", what, 100.0 * static_cast<double>(p.done) / total));
    return true;
  };
}

// That --save can be written is seen before the work whose result it will be.
Result<void> check_save(const Session& session, const MemoryArguments& arguments,
                        const std::vector<std::string>& inputs) {
  if (arguments.save.empty()) return {};
  namespace fs = std::filesystem;
  const auto refused = [&](const char* why) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--save {} {}; give another name", arguments.save, why));
  };
  const fs::path file(arguments.save);
  const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
  std::error_code error;
  if (fs::equivalent(file, session.model().info().path, error))
    return refused("is the model itself");
  for (const std::string& input : inputs)
    if (is_input(input, arguments.save)) return refused("is one of the input files");
  if (!fs::is_directory(folder, error)) return refused("is in a folder that does not exist");
  if (::access(folder.c_str(), W_OK) != 0) return refused("is in a folder that cannot be written");
  if (fs::exists(file, error) && !fs::is_regular_file(file, error))
    return refused("exists and is not an ordinary file");
  return {};
}

}  // namespace

SessionOptions MemoryArguments::options(int64_t prompt) const {
  SessionOptions options = kv.options(context);
  if (!stream) return options;
  StreamOptions policy;
  policy.sinks = sinks.value_or(policy.sinks);
  if (keep_prompt) policy.sinks = std::max(policy.sinks, prompt);
  policy.window = window.value_or(0);
  options.stream = policy;
  return options;
}

Result<void> resume(Session& session, const MemoryArguments& arguments,
                    const std::vector<std::string>& inputs, bool quiet) {
  CULET_TRY_VOID(check_save(session, arguments, inputs));
  if (arguments.resume.empty()) return {};
  StatusLine status(!quiet);
  return session.restore(arguments.resume, show_progress(&status, "Reading the snapshot"));
}

Result<void> save(const Session& session, const MemoryArguments& arguments, bool quiet) {
  if (arguments.save.empty()) return {};
  if (session.length() == 0) {  // stopped before the first token
    print_note(
        fmt::format("note: {} is not written, because the session is empty", arguments.save));
    return {};
  }
  StatusLine status(!quiet);
  return session.save(arguments.save, show_progress(&status, "Writing the snapshot"));
}

}  // namespace culet::cli
