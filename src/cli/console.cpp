#include "cli/console.h"

#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <signal.h>
#include <system_error>
#include <unistd.h>

namespace culet::cli {
namespace {

using namespace std::chrono_literals;

std::string one_line(std::string_view text) {
  std::string line(text);
  for (char& c : line) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  return ::isatty(STDERR_FILENO) ? for_terminal(line) : line;
}

// Pages of a mapped file that is cut meanwhile are gone: no way on, but a reason.
void end_for_lost_pages(int) {
  constexpr std::string_view kText =
      "culet: a file was cut while it was in use, or its disk cannot be read any more\n";
  static_cast<void>(!::write(STDERR_FILENO, kText.data(), kText.size()));
  ::_exit(1);
}

}  // namespace

void prepare_streams() {
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);
  ::signal(SIGBUS, end_for_lost_pages);
  for (int stream = 0; stream <= 2; ++stream) {
    // Read-only for all three: a write to a stream that was closed still fails.
    if (::fcntl(stream, F_GETFD) == -1) static_cast<void>(::open("/dev/null", O_RDONLY));
  }
}

Output::Output() : terminal_(::isatty(STDOUT_FILENO) != 0) {}

bool Output::put(std::string_view bytes) {
  if (failed()) return false;
  if (std::fwrite(bytes.data(), 1, bytes.size(), stdout) != bytes.size())
    error_ = errno ? errno : EIO;
  return !failed();
}

bool Output::write(std::string_view text) {
  if (!text.empty()) ends_line_ = text.back() == '\n';
  return terminal_ ? put(text_.push(text)) : put(text);
}

bool Output::finish() {
  put(text_.finish());
  return flush();
}

void Output::end_line_on_terminal() {
  if (terminal_ && !ends_line_) write("\n");
}

bool Output::flush() {
  if (failed()) return false;
  if (std::fflush(stdout) != 0) error_ = errno ? errno : EIO;
  return !failed();
}

Error Output::error() const {
  if (error_ == EPIPE) return {ErrorCode::kCancelled, "nobody reads the output any more"};
  return {ErrorCode::kIo, std::string("cannot write to standard output: ") +
                              std::generic_category().message(error_)};
}

void print_error(std::string_view text) { print_note("culet: " + std::string(text)); }

void print_note(std::string_view text) {
  const std::string line = one_line(text) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

StatusLine::StatusLine(bool wanted) : enabled_(wanted && ::isatty(STDERR_FILENO)) {}

void StatusLine::show(std::string_view text) {
  const auto now = std::chrono::steady_clock::now();
  if (!enabled_ || now - start_ < 1s || now - shown_ < 100ms) return;
  const std::string shown = one_line(text);
  std::fprintf(stderr, "\r%s\x1b[K", shown.c_str());
  std::fflush(stderr);
  visible_ = true;
  shown_ = now;
}

void StatusLine::clear() {
  if (visible_) std::fputs("\r\x1b[K", stderr);
  visible_ = false;
}

std::string printable(std::string_view bytes) {
  const nlohmann::json value = std::string(bytes);
  const std::string quoted = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return nlohmann::json::parse(quoted).get<std::string>();
}

}  // namespace culet::cli
