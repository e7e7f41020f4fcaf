// The two standard streams: results on standard output, everything else on standard error. What
// would steer a terminal is shown on one instead (terminal.h), whoever wrote it; in a pipe and in a
// file all bytes stay.
#pragma once

#include "cli/terminal.h"
#include "culet/result.h"

#include <chrono>
#include <string>
#include <string_view>

namespace culet::cli {

// Opens /dev/null on a standard stream that the caller left closed, so that no file the program
// opens later takes its number, and sees to signals: SIGPIPE and SIGXFSZ are ignored, so that a
// closed pipe and a file that may grow no further are failed writes; SIGBUS ends with a sentence.
void prepare_streams();

// Standard output. After a write has failed every later one fails too, without a message of its
// own.
class Output {
 public:
  Output();
  bool write(std::string_view text);  // buffered; false: failed now or before
  bool flush();
  bool finish();  // at the end: with what was held back, see TerminalText
  // On a terminal: ends the line, if it is not ended.
  void end_line_on_terminal();
  bool failed() const { return error_ != 0; }
  // kIo with the system's reason; kCancelled when whoever read our output has gone.
  Error error() const;

 private:
  bool put(std::string_view bytes);

  bool terminal_;
  bool ends_line_ = true;
  TerminalText text_;
  int error_ = 0;
};

// "culet: TEXT" as one line of standard error: what ends a line in it becomes a space.
void print_error(std::string_view text);
void print_note(std::string_view text);  // the same without the prefix

// A line of progress on standard error that is rewritten in place; shown only on a terminal, and
// only when the work has taken a second.
class StatusLine {
 public:
  explicit StatusLine(bool wanted);
  ~StatusLine() { clear(); }
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;
  void show(std::string_view text);
  void clear();

 private:
  bool enabled_;
  bool visible_ = false;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point shown_{};
};

// The bytes as UTF-8: what is not, becomes U+FFFD.
std::string printable(std::string_view bytes);

}  // namespace culet::cli
