// Text for a terminal: what would steer it is shown instead.
//
// Answers, metadata of files, paths and errors are written by others. Control characters in them
// (escape sequences, returns that overwrite a line) could hide text, change the terminal's state or
// forge other output; bidirectional marks could reorder what is read. On a terminal they are
// spelled. In a pipe or a file the bytes stay as they are.
#pragma once

#include <string>
#include <string_view>

namespace culet::cli {

// A stream of bytes, in parts that may end inside a character. Spelled are:
//   C0 but line feed and tab; a return that no line feed follows                \x1b
//   DEL, C1, and the bidirectional marks U+061C, U+200E, U+200F, U+202A to U+202E,
//   U+2066 to U+2069                                                            \u202e
//   bytes that are not UTF-8                                                    \x9b
// Inside a JSON string, what is spelled with \u means the same.
class TerminalText {
 public:
  std::string push(std::string_view bytes);  // what can be shown now
  std::string finish();                      // what was held back: the beginning of a character

 private:
  void take(std::string_view bytes, bool last, std::string* out);
  std::string held_;
};

// A whole text.
std::string for_terminal(std::string_view text);

}  // namespace culet::cli
