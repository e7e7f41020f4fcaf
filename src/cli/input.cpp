#include "cli/input.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <limits>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
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

Result<int> open_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd >= 0) return fd;
  return fail(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
              "cannot open " + path + ": " + std::generic_category().message(errno));
}

}  // namespace

bool input_is_terminal() { return ::isatty(STDIN_FILENO) != 0; }

Result<std::string> read_standard_input() { return read_all(STDIN_FILENO, "standard input"); }

Result<std::string> read_text_file(const std::string& path) {
  if (path == "-") return read_standard_input();
  CULET_TRY(const int fd, open_file(path));
  auto text = read_all(fd, path);
  ::close(fd);
  return text;
}

// ---------------------------------------------------------------- standard input beside a text

namespace {

enum class InputKind : uint8_t { kNone, kFile, kPipe };

InputKind input_kind() {
  struct stat about{};
  if (::fstat(STDIN_FILENO, &about) != 0) return InputKind::kNone;
  if (S_ISREG(about.st_mode)) return InputKind::kFile;
  return S_ISFIFO(about.st_mode) || S_ISSOCK(about.st_mode) ? InputKind::kPipe : InputKind::kNone;
}

// Whether the pipe has a byte or has ended within this time.
bool pipe_speaks(int milliseconds) {
  pollfd wait{STDIN_FILENO, POLLIN, 0};
  int ready = -1;
  do {
    ready = ::poll(&wait, 1, milliseconds);
  } while (ready < 0 && errno == EINTR);
  return ready != 0;
}

}  // namespace

Result<std::string> read_input_beside(bool* silent) {
  *silent = false;
  const InputKind kind = input_kind();
  if (kind == InputKind::kNone) return std::string();
  *silent = kind == InputKind::kPipe && !pipe_speaks(kSilence * 1000);
  return *silent ? std::string() : read_standard_input();
}

bool input_waits() {
  const InputKind kind = input_kind();
  if (kind == InputKind::kNone) return false;
  if (kind == InputKind::kFile) {
    struct stat about{};
    return ::fstat(STDIN_FILENO, &about) == 0 && ::lseek(STDIN_FILENO, 0, SEEK_CUR) < about.st_size;
  }
  int bytes = 0;
  return pipe_speaks(0) && ::ioctl(STDIN_FILENO, FIONREAD, &bytes) == 0 && bytes > 0;
}

Result<void> refuse_input_beside(std::string_view given) {
  if (!input_waits()) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("standard input holds a text, but {} is given too, and only one can be "
                          "taken; leave {} out to take standard input, or leave standard input "
                          "empty (< /dev/null)",
                          given, given));
}

Result<int> with_one_text(std::string_view given, const std::function<Result<int>()>& work) {
  if (given.empty()) return work();
  CULET_TRY_VOID(refuse_input_beside(given));
  CULET_TRY(const int status, work());
  CULET_TRY_VOID(refuse_input_beside(given));
  return status;
}

// ---------------------------------------------------------------- pieces

namespace {

constexpr size_t kLongLine = size_t{1} << 20;
constexpr int kGlanceMs = 100;  // how often Ctrl-C is looked for while there is nothing to read

bool is_white(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }

}  // namespace

bool is_input(const std::string& input, const std::string& file) {
  struct stat a{}, b{};
  const int known = input == "-" ? ::fstat(STDIN_FILENO, &a) : ::stat(input.c_str(), &a);
  return known == 0 && ::stat(file.c_str(), &b) == 0 && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino;
}

Result<TextPieces> TextPieces::open(const std::string& path) {
  if (path == "-") return TextPieces(STDIN_FILENO, "standard input");
  CULET_TRY(const int fd, open_file(path));
  return TextPieces(fd, path);
}

TextPieces::~TextPieces() {
  if (fd_ > STDIN_FILENO) ::close(fd_);
}

// White space beyond ASCII may begin a line, too; such a line is kept with the one before.
size_t TextPieces::border() {
  const size_t seen = std::exchange(seen_, text_.size());
  for (size_t i = text_.size(); i-- > std::max<size_t>(1, seen);) {
    if (text_[i - 1] == '\n' && is_ascii(text_[i]) && !is_white(text_[i])) return i;
  }
  if (text_.size() < kLongLine) return 0;
  for (size_t i = text_.size(); i-- > 1;) {
    if (text_[i] == ' ' && !is_white(text_[i - 1])) return i;
  }
  size_t end = text_.size();
  while (end > 1 && (static_cast<unsigned char>(text_[end - 1]) & 0xc0) == 0x80) --end;
  return end - 1;
}

Result<void> TextPieces::read_more(const InterruptWatch& interrupt) {
  char buffer[1 << 16];
  while (!interrupt.interrupted()) {
    pollfd wait{fd_, POLLIN, 0};  // read() would go on waiting after Ctrl-C
    const int ready = ::poll(&wait, 1, kGlanceMs);
    if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
    const ssize_t got = ::read(fd_, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      return fail(ErrorCode::kIo,
                  "cannot read " + name_ + ": " + std::generic_category().message(errno));
    ended_ = got == 0;
    text_.append(buffer, static_cast<size_t>(got));
    return {};
  }
  ended_ = true;
  return {};
}

Result<std::optional<std::string>> TextPieces::next(const InterruptWatch& interrupt) {
  while (!ended_) {
    CULET_TRY_VOID(read_more(interrupt));
    if (interrupt.interrupted()) return std::nullopt;
    if (const size_t end = ended_ ? 0 : border(); end > 0) {
      std::string piece = text_.substr(0, end);
      text_.erase(0, end);
      seen_ = text_.size();
      return piece;
    }
  }
  if (text_.empty()) return std::nullopt;
  return std::exchange(text_, std::string());
}

Result<std::vector<Token>> parse_ids(const std::string& json, std::string_view what) {
  const auto value = nlohmann::json::parse(json, nullptr, false);
  if (!value.is_array()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} is not a JSON array of token ids such as [1, 504, 33059]", what));
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

Result<void> check_ids(const std::vector<Token>& ids, int64_t vocabulary) {
  const auto bad = std::find_if(ids.begin(), ids.end(), [&](Token id) { return id >= vocabulary; });
  if (bad == ids.end()) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("token {} of the input is {}, but the vocabulary has ids 0 to {}",
                          bad - ids.begin(), *bad, vocabulary - 1));
}

}  // namespace culet::cli
