#include "cli/input.h"

#include <nlohmann/json.hpp>

#include <cerrno>
#include <fcntl.h>
#include <limits>
#include <system_error>
#include <unistd.h>

namespace culet::cli {
namespace {

constexpr size_t kMaxInput = size_t{1} << 30;

Result<std::string> read_all(int fd, const std::string& name) {
  std::string text;
  char buffer[1 << 16];
  while (true) {
    const ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got == 0) return text;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      return fail(ErrorCode::kIo,
                  "cannot read " + name + ": " + std::generic_category().message(errno));
    text.append(buffer, static_cast<size_t>(got));
    if (text.size() > kMaxInput) {
      return fail(ErrorCode::kExhausted, name + " is longer than 1 GiB; give a shorter text");
    }
  }
}

}  // namespace

bool input_is_terminal() { return ::isatty(STDIN_FILENO) != 0; }

Result<std::string> read_standard_input() { return read_all(STDIN_FILENO, "standard input"); }

Result<std::string> read_text_file(const std::string& path) {
  if (path == "-") return read_standard_input();
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return fail(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
                "cannot open " + path + ": " + std::generic_category().message(errno));
  }
  auto text = read_all(fd, path);
  ::close(fd);
  return text;
}

Result<std::vector<Token>> parse_ids(const std::string& json) {
  const auto value = nlohmann::json::parse(json, nullptr, false);
  if (!value.is_array()) {
    return fail(ErrorCode::kInvalidArgument,
                "the input of --ids is not a JSON array of token ids such as [1, 504, 33059]");
  }
  std::vector<Token> ids;
  ids.reserve(value.size());
  for (const auto& element : value) {
    const bool fits =
        element.is_number_integer() && element >= 0 && element <= std::numeric_limits<Token>::max();
    if (!fits) {
      return fail(ErrorCode::kInvalidArgument,
                  "element " + std::to_string(ids.size()) + " of the array is not a token id");
    }
    ids.push_back(element.get<Token>());
  }
  return ids;
}

}  // namespace culet::cli
