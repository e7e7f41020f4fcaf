// Takes a text, gives logical lines of tokens.
//
// A name is letters, digits, '_' with dots between parts (attn_q.bias, meta.rope.freq_base). A
// number is decimal with an optional fraction and exponent. A string is "..." on one line, without
// escapes. Indentation is counted in spaces; a tab is an error, so that what one sees is what
// counts.
#include "expr/lexer.h"

#include "base/check.h"
#include "base/numbers.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>

namespace culet::expr {
namespace {

constexpr size_t kMaxText = 256 << 10;
constexpr size_t kMaxWord = 256;  // bytes of a name or a string
constexpr int kMaxIndent = 200;

bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_part(char c) { return is_name_start(c) || is_digit(c); }

class Lexer {
 public:
  // Bytes [begin, end) of the file; lines and columns count from the file's begin.
  Lexer(const std::vector<SourceFile>& files, int file, size_t begin, size_t end)
      : files_(files),
        file_(file),
        text_(std::string_view(files[static_cast<size_t>(file)].text).substr(0, end)) {
    while (at_ < begin)
      if (text_[at_++] == '\n') ++line_, line_start_ = at_;
  }

  Result<std::vector<LexLine>> run() {
    if (text_.size() > kMaxText) return error(1, 1, "the file is larger than 256 KiB");
    while (at_ < text_.size()) CULET_TRY_VOID(line());
    if (depth_ > 0) return error(open_line_, open_column_, "this parenthesis is never closed");
    return std::move(lines_);
  }

 private:
  tl::unexpected<Error> error(int line, int column, std::string_view message) {
    return tl::unexpected<Error>(
        error_at(files_, {file_, line, column}, ErrorCode::kInvalidArgument, message));
  }
  int column() const { return static_cast<int>(at_ - line_start_) + 1; }
  bool at_end_of_line() const { return at_ >= text_.size() || text_[at_] == '\n'; }

  Result<void> line() {
    ++line_;
    if (text_.substr(0, at_).ends_with('\n')) line_start_ = at_;
    int indent = 0;
    while (at_ < text_.size() && text_[at_] == ' ') ++at_, ++indent;
    if (indent > kMaxIndent) return error(line_, 1, "the indentation is too deep");
    const bool continues = depth_ > 0;
    if (!continues) current_ = LexLine{indent, line_, {}};
    while (!at_end_of_line()) CULET_TRY_VOID(token());
    if (at_ < text_.size()) ++at_;
    if (depth_ == 0 && !current_.tokens.empty()) {
      current_.tokens.push_back({LexToken::Kind::kEnd, "end of line", 0, line_, column()});
      lines_.push_back(std::move(current_));
      current_ = {};
    }
    return {};
  }

  Result<void> token() {
    const char c = text_[at_];
    if (c == ' ' || c == '\r') {
      ++at_;
    } else if (c == '\t') {
      return error(line_, column(), "a tab; indent and separate with spaces");
    } else if (c == '#') {
      while (!at_end_of_line()) ++at_;
    } else if (is_name_start(c)) {
      return name();
    } else if (is_digit(c)) {
      return number();
    } else if (c == '"') {
      return string();
    } else {
      return symbol();
    }
    return {};
  }

  void push(LexToken::Kind kind, size_t begin, double number = 0) {
    current_.tokens.push_back({kind, std::string(text_.substr(begin, at_ - begin)), number, line_,
                               static_cast<int>(begin - line_start_) + 1});
  }

  Result<void> name() {
    const size_t begin = at_;
    while (at_ < text_.size() &&
           (is_name_part(text_[at_]) ||
            (text_[at_] == '.' && at_ + 1 < text_.size() && is_name_part(text_[at_ + 1]))))
      ++at_;
    return push_word(LexToken::Kind::kName, begin, "name");
  }

  Result<void> push_word(LexToken::Kind kind, size_t begin, std::string_view what) {
    if (at_ - begin > kMaxWord)
      return error(line_, static_cast<int>(begin - line_start_) + 1,
                   fmt::format("this {} is longer than {} bytes", what, kMaxWord));
    push(kind, begin);
    return {};
  }

  Result<void> number() {
    const size_t begin = at_;
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    if (at_ + 1 < text_.size() && text_[at_] == '.' && is_digit(text_[at_ + 1])) {
      ++at_;
      while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    }
    if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
      size_t p = at_ + 1;
      if (p < text_.size() && (text_[p] == '-' || text_[p] == '+')) ++p;
      if (p < text_.size() && is_digit(text_[p])) {
        while (p < text_.size() && is_digit(text_[p])) ++p;
        at_ = p;
      }
    }
    if (at_ < text_.size() && is_name_start(text_[at_]))
      return error(line_, column(),
                   "a letter right behind a number; put a space or an operator between them");
    const std::optional<double> value = base::parse_double(text_.substr(begin, at_ - begin));
    CULET_CHECK(value.has_value());
    if (!std::isfinite(*value))
      return error(line_, static_cast<int>(begin - line_start_) + 1, "this number is too large");
    push(LexToken::Kind::kNumber, begin, *value);
    return {};
  }

  Result<void> string() {
    const size_t begin = ++at_;
    while (!at_end_of_line() && text_[at_] != '"') ++at_;
    if (at_end_of_line())
      return error(line_, static_cast<int>(begin - line_start_),
                   "this string has no closing quote on its line");
    CULET_TRY_VOID(push_word(LexToken::Kind::kString, begin, "string"));
    ++at_;
    return {};
  }

  Result<void> symbol() {
    static constexpr std::string_view kSymbols[] = {"==", "!=", "<=", ">=", "+", "-", "*",
                                                    "/",  "<",  ">",  "=",  "(", ")", "[",
                                                    "]",  ",",  ":",  "?",  "|", "."};
    for (std::string_view s : kSymbols) {
      if (text_.substr(at_, s.size()) != s) continue;
      const size_t begin = at_;
      if (s == "(" || s == "[") {
        if (depth_++ == 0) open_line_ = line_, open_column_ = column();
      } else if (s == ")" || s == "]") {
        if (depth_ == 0)
          return error(line_, column(), fmt::format("'{}' without its opening partner", s));
        --depth_;
      }
      at_ += s.size();
      push(LexToken::Kind::kSymbol, begin);
      return {};
    }
    const unsigned char c = static_cast<unsigned char>(text_[at_]);
    return error(line_, column(),
                 c >= 32 && c < 127 ? fmt::format("'{}' has no meaning here", text_[at_])
                                    : fmt::format("byte 0x{:02x} has no meaning here", c));
  }

  const std::vector<SourceFile>& files_;
  int file_;
  std::string_view text_;
  size_t at_ = 0, line_start_ = 0;
  int line_ = 0, depth_ = 0, open_line_ = 0, open_column_ = 0;
  LexLine current_;
  std::vector<LexLine> lines_;
};

}  // namespace

Result<std::vector<LexLine>> lex(const std::vector<SourceFile>& files, int file) {
  return Lexer(files, file, 0, files[static_cast<size_t>(file)].text.size()).run();
}

Result<std::vector<LexLine>> lex_part(const std::vector<SourceFile>& files, int file, size_t begin,
                                      size_t end) {
  return Lexer(files, file, begin, end).run();
}

}  // namespace culet::expr
