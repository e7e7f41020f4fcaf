// Session options from flags, and snapshots with progress.
#include "cli/memory.h"

#include "cli/console.h"

#include <fmt/format.h>

#include <algorithm>

namespace culet::cli {
namespace {

Session::Progress show_progress(StatusLine* status, const char* what) {
  return [status, what](int64_t done, int64_t all) {
    status->show(fmt::format(
        "{}: {:.0f} %", what,
        100.0 * static_cast<double>(done) / static_cast<double>(std::max<int64_t>(1, all))));
    return true;
  };
}

}  // namespace

SessionOptions MemoryArguments::options(int64_t prompt) const {
  SessionOptions options = kv.options(context);
  if (!stream) return options;
  StreamOptions policy;
  policy.pinned = sinks.value_or(policy.pinned);
  if (pin_prompt) policy.pinned = std::max(policy.pinned, prompt);
  policy.window = window.value_or(0);
  options.stream = policy;
  return options;
}

Result<void> resume(Session& session, const MemoryArguments& arguments, bool quiet) {
  if (arguments.resume.empty()) return {};
  StatusLine status(!quiet);
  return session.restore(arguments.resume, show_progress(&status, "Reading the snapshot"));
}

Result<void> save(const Session& session, const MemoryArguments& arguments, bool quiet) {
  if (arguments.save.empty()) return {};
  StatusLine status(!quiet);
  return session.save(arguments.save, show_progress(&status, "Writing the snapshot"));
}

}  // namespace culet::cli
