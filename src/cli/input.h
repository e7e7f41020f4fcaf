// Text that a command works on: an argument, a file, or standard input.
#pragma once

#include "cli/interrupt.h"
#include "culet/culet.h"
#include "culet/result.h"

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace culet::cli {

bool input_is_terminal();
// Whether both are one file; the first may be "-", standard input.
bool is_input(const std::string& input, const std::string& file);
Result<std::string> read_standard_input();
Result<std::string> read_text_file(const std::string& path);  // "-": standard input

// ---- Standard input of a command whose text stands in an argument.
// A file, a pipe or a socket may hold a text, which must not be lost; a terminal and a device such
// as /dev/null hold none.

// Reads that text to its end; "": there is none. A pipe that stays open and silent may belong to
// a program that runs this one and never closes it: after kSilence seconds without a byte it
// counts as empty, and *silent becomes true. A text that has begun is waited for.
constexpr int kSilence = 3;
Result<std::string> read_input_beside(bool* silent);
// Whether such a text waits now.
bool input_waits();
// An error if a text waits although `given` ("TEXT", "FILE") is there.
Result<void> refuse_input_beside(std::string_view given);
// For commands that take one text: does the work, and refuses a text on standard input beside it,
// before the work, and after it, because a pipe may be slow. given "": the text is standard input.
Result<int> with_one_text(std::string_view given, const std::function<Result<int>()>& work);

// A text of any length, piece by piece as it comes: whole lines, cut where no token reaches across
// (behind a line's end, before a line that does not begin with white space; in a line longer than
// 1 MiB before a space, else between two characters).
class TextPieces {
 public:
  static Result<TextPieces> open(const std::string& path);  // "-": standard input
  TextPieces(TextPieces&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {
    std::swap(text_, other.text_);
    std::swap(name_, other.name_);
    seen_ = other.seen_;
    ended_ = other.ended_;
  }
  TextPieces& operator=(TextPieces&&) = delete;
  ~TextPieces();

  // Nothing: the text has ended, or Ctrl-C was pressed while waiting for more.
  Result<std::optional<std::string>> next(const InterruptWatch& interrupt);

 private:
  TextPieces(int fd, std::string name) : fd_(fd), name_(std::move(name)) {}
  Result<void> read_more(const InterruptWatch& interrupt);
  size_t border();  // where the text that is there can be cut; 0: nowhere yet

  int fd_;
  std::string name_, text_;
  size_t seen_ = 0;  // of text_: no line's border lies before
  bool ended_ = false;
};

// A JSON array of integers. `what` names it in an error: "the input of --ids".
Result<std::vector<Token>> parse_ids(const std::string& json, std::string_view what);
// kInvalidArgument with the place of the first id that is not in the vocabulary.
Result<void> check_ids(const std::vector<Token>& ids, int64_t vocabulary);

}  // namespace culet::cli
