#include "expr/source.h"

#include <fmt/format.h>

namespace culet::expr {
namespace {

constexpr size_t kMaxShown = 120;  // of a line in a message

// The text and the names in it may hold any byte; a message is one printable line.
std::string printable(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 32 || static_cast<unsigned char>(c) == 127) c = '?';
  return text;
}

}  // namespace

std::string source_text(const std::vector<SourceFile>& files, SourceLocation location) {
  std::string_view text = files[static_cast<size_t>(location.file)].text;
  for (int line = 1; line < location.line && !text.empty(); ++line) {
    const size_t end = text.find('\n');
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  text = text.substr(0, text.find('\n'));
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\r')) text.remove_suffix(1);
  return printable(std::string(text.substr(0, kMaxShown)));
}

Error error_at(const std::vector<SourceFile>& files, SourceLocation location, ErrorCode code,
               std::string_view message) {
  const std::string text = source_text(files, location);
  std::string out = fmt::format("{}:{}:{}: {}", files[static_cast<size_t>(location.file)].name,
                                location.line, location.column, message);
  if (!text.empty()) out += fmt::format(" (in: {})", text);
  return Error{code, printable(std::move(out))};
}

}  // namespace culet::expr
