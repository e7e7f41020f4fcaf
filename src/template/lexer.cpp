// The lexer: literal text alternates with tags; a tag's inside is a flat sequence of tokens.
//
// Takes a normalized source, gives tokens with their offsets. Whitespace around tags follows the
// settings chat templates are written for: the line break after %} and #} is dropped (trim_blocks),
// blanks between the start of a line and {% or {# are dropped (lstrip_blocks), - drops all
// whitespace on its side and + keeps it. A closing tag is not seen while a bracket is open, so that
// }} may close two dicts.
#include "template/lexer.h"

#include "template/unicode.h"

#include <array>
#include <charconv>

namespace culet::chat {

std::string normalize_source(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

std::string describe_position(std::string_view source, Position at) {
  size_t line = 1, start = 0;
  for (size_t i = 0; i < at && i < source.size(); ++i) {
    if (source[i] == '\n') {
      ++line;
      start = i + 1;
    }
  }
  return "line " + std::to_string(line) + ", column " + std::to_string(at - start + 1);
}

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80) != 0;
}
bool is_name_part(char c) { return is_name_start(c) || is_digit(c); }

// Longest first, so that the first match is the right one.
constexpr std::array<std::string_view, 26> kOperators = {
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
    "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  Result<std::vector<Token>> run() {
    while (pos_ < source_.size()) {
      const size_t tag = find_tag();
      if (tag == std::string_view::npos) {
        add_text(pos_, source_.size());
        pos_ = source_.size();
        break;
      }
      CULET_TRY_VOID(lex_tag(tag));
    }
    add(TokenKind::kEnd, source_.size());
    return std::move(tokens_);
  }

 private:
  tl::unexpected<Error> error(size_t at, const std::string& what) const {
    return fail(ErrorCode::kInvalidArgument,
                "The chat template cannot be read at " +
                    describe_position(source_, static_cast<Position>(at)) + ": " + what + ".");
  }

  void add(TokenKind kind, size_t at, std::string value = {}) {
    tokens_.push_back({kind, static_cast<Position>(at), std::move(value)});
  }

  void add_text(size_t from, size_t to) {
    if (to > from) add(TokenKind::kText, from, std::string(source_.substr(from, to - from)));
  }

  bool at(size_t i, std::string_view what) const { return source_.substr(i).starts_with(what); }
  char peek(size_t i) const { return i < source_.size() ? source_[i] : '\0'; }
  size_t skip_space(size_t i) const { return unicode::skip_space(source_, i); }

  size_t find_tag() const {
    for (size_t i = source_.find('{', pos_); i != std::string_view::npos;
         i = source_.find('{', i + 1)) {
      const char c = peek(i + 1);
      if (c == '{' || c == '%' || c == '#') return i;
    }
    return std::string_view::npos;
  }

  // The literal text before a tag, less what the tag's sign or lstrip_blocks takes away.
  void add_text_before(size_t tag, char sign, bool is_print) {
    size_t end = tag;
    if (sign == '-') {
      end = pos_ + unicode::strip_end(source_.substr(pos_, tag - pos_));
    } else if (sign != '+' && !is_print) {
      const size_t line = source_.substr(pos_, tag - pos_).rfind('\n');
      const bool found = line != std::string_view::npos;
      const size_t start = found ? pos_ + line + 1 : pos_;
      if ((found || line_starting_) && skip_space(start) >= tag) end = start;
    }
    add_text(pos_, end);
  }

  static char sign_of(char c) { return c == '-' || c == '+' ? c : '\0'; }

  Result<void> lex_tag(size_t tag) {
    const char type = source_[tag + 1];
    const char sign = sign_of(peek(tag + 2));
    add_text_before(tag, sign, type == '{');
    const size_t inside = tag + 2 + (sign != '\0');
    if (type == '#') return skip_comment(tag, inside);
    if (type == '%') {
      if (const size_t raw = raw_begin(inside); raw != 0) return lex_raw(tag, raw);
    }
    add(type == '{' ? TokenKind::kPrintBegin : TokenKind::kBlockBegin, tag);
    return lex_inside(inside, tag, type == '{' ? '}' : '%');
  }

  // Moves past a closing tag whose text ends at `end`, with the whitespace it takes along.
  void close(size_t end, bool strip, bool trim) {
    pos_ = end;
    if (strip) {
      pos_ = skip_space(end);
    } else if (trim && peek(end) == '\n') {
      pos_ = end + 1;
    }
    line_starting_ = source_[pos_ - 1] == '\n';
  }

  // Whether a closing tag such as "%}" starts at i, with or without a sign; closes it if so.
  bool try_close(size_t i, char type) {
    const char sign = sign_of(peek(i));
    if (sign == '+' && type == '}') return false;
    const size_t start = i + (sign != '\0');
    if (peek(start) != type || peek(start + 1) != '}') return false;
    close(start + 2, sign == '-', sign == '\0' && type != '}');
    return true;
  }

  Result<void> skip_comment(size_t tag, size_t from) {
    const size_t end = source_.find("#}", from);
    if (end == std::string_view::npos) return error(tag, "this comment is not closed with '#}'");
    const char sign = end > from ? sign_of(source_[end - 1]) : '\0';
    close(end + 2, sign == '-', sign == '\0');
    return {};
  }

  // The end of "raw %}" when it starts at i, else 0.
  size_t raw_begin(size_t i) const {
    i = skip_space(i);
    if (!at(i, "raw")) return 0;
    i = skip_space(i + 3);
    if (at(i, "-%}")) return skip_space(i + 3);
    return at(i, "%}") ? i + 2 : 0;
  }

  Result<void> lex_raw(size_t tag, size_t from) {
    pos_ = from;
    line_starting_ = source_[from - 1] == '\n';
    for (size_t i = source_.find("{%", from); i != std::string_view::npos;
         i = source_.find("{%", i + 1)) {
      const char sign = sign_of(peek(i + 2));
      size_t end = skip_space(i + 2 + (sign != '\0'));
      if (!at(end, "endraw")) continue;
      end = skip_space(end + 6);
      const size_t text_start = pos_;
      const bool line_starting = line_starting_;
      if (!try_close(end, '%')) continue;
      const size_t after = pos_;
      const bool after_starting = line_starting_;
      pos_ = text_start;
      line_starting_ = line_starting;
      add_text_before(i, sign, false);
      pos_ = after;
      line_starting_ = after_starting;
      return {};
    }
    return error(tag, "this raw block has no '{% endraw %}'");
  }

  Result<void> lex_inside(size_t i, size_t tag, char closing) {
    std::string open;  // the brackets that are open
    while (true) {
      i = skip_space(i);
      if (open.empty() && try_close(i, closing)) {
        add(closing == '}' ? TokenKind::kPrintEnd : TokenKind::kBlockEnd, i);
        return {};
      }
      if (i >= source_.size()) {
        return error(tag, std::string("this tag is not closed with '") + closing + "}'");
      }
      const char c = source_[i];
      if (is_digit(c)) {
        CULET_TRY(i, lex_number(i));
      } else if (is_name_start(c)) {
        const size_t start = i;
        while (is_name_part(peek(i))) ++i;
        add(TokenKind::kName, start, std::string(source_.substr(start, i - start)));
      } else if (c == '\'' || c == '"') {
        CULET_TRY(i, lex_string(i));
      } else {
        CULET_TRY(i, lex_operator(i, open));
      }
    }
  }

  Result<size_t> lex_operator(size_t i, std::string& open) {
    for (const std::string_view op : kOperators) {
      if (!at(i, op)) continue;
      if (op == "(" || op == "[" || op == "{") {
        open += op == "(" ? ')' : (op == "[" ? ']' : '}');
      } else if (op == ")" || op == "]" || op == "}") {
        if (open.empty()) return error(i, "unexpected '" + std::string(op) + "'");
        if (open.back() != op[0]) {
          return error(
              i, "unexpected '" + std::string(op) + "' where '" + open.back() + "' is expected");
        }
        open.pop_back();
      }
      add(TokenKind::kOperator, i, std::string(op));
      return i + op.size();
    }
    return error(i, "unexpected character '" + std::string(1, source_[i]) + "'");
  }

  size_t skip_digits(size_t i) const {
    while (is_digit(peek(i)) || (peek(i) == '_' && is_digit(peek(i + 1)))) ++i;
    return i;
  }

  Result<size_t> lex_number(size_t start) {
    size_t i = skip_digits(start);
    const bool after_dot = !tokens_.empty() && tokens_.back().is_op(".");
    bool real = false;
    if (!after_dot && peek(i) == '.' && is_digit(peek(i + 1))) {
      i = skip_digits(i + 1);
      real = true;
    }
    if (!after_dot && (peek(i) == 'e' || peek(i) == 'E')) {
      const size_t digits = i + 1 + (peek(i + 1) == '+' || peek(i + 1) == '-');
      if (is_digit(peek(digits))) {
        i = skip_digits(digits);
        real = true;
      }
    }
    int base = 10;
    if (!real && i == start + 1 && source_[start] == '0') {
      const char mark = static_cast<char>(peek(i) | 0x20);
      base = mark == 'x' ? 16 : (mark == 'o' ? 8 : (mark == 'b' ? 2 : 10));
      if (base != 10) {
        while (is_name_part(peek(i))) ++i;
      }
    }
    std::string digits;
    for (size_t k = base == 10 ? start : start + 2; k < i; ++k) {
      if (source_[k] != '_') digits += source_[k];
    }
    const bool octal_like = !real && base == 10 && digits.size() > 1 && digits[0] == '0';
    if (octal_like && digits.find_first_not_of('0') != std::string::npos) {
      return error(start, "a number cannot start with '0'");
    }
    Token token{real ? TokenKind::kFloat : TokenKind::kInteger, static_cast<Position>(start), {}};
    const char *first = digits.data(), *last = first + digits.size();
    const auto parsed = real ? std::from_chars(first, last, token.real)
                             : std::from_chars(first, last, token.integer, base);
    if (parsed.ec != std::errc() || parsed.ptr != last) {
      return error(start, "this number cannot be represented");
    }
    tokens_.push_back(std::move(token));
    return i;
  }

  Result<size_t> lex_string(size_t start) {
    const char quote = source_[start];
    std::string value;
    size_t i = start + 1;
    while (true) {
      if (i >= source_.size()) return error(start, "this string is not closed");
      const char c = source_[i];
      if (c == quote) break;
      if (c == '\\') {
        CULET_TRY(i, lex_escape(i, value));
      } else {
        value += c;
        ++i;
      }
    }
    add(TokenKind::kString, start, std::move(value));
    return i + 1;
  }

  Result<size_t> lex_escape(size_t i, std::string& value) {
    static constexpr std::string_view kFrom = "ntrabfv\\'\"", kTo = "\n\t\r\a\b\f\v\\'\"";
    const char c = peek(i + 1);
    if (c == '\n') return i + 2;
    if (const size_t k = kFrom.find(c); c != '\0' && k != std::string_view::npos) {
      value += kTo[k];
      return i + 2;
    }
    if (c >= '0' && c <= '7') {
      size_t end = i + 1;
      while (end < i + 4 && peek(end) >= '0' && peek(end) <= '7') ++end;
      return add_code_point(i, i + 1, end, 8, value);
    }
    const size_t digits = c == 'x' ? 2 : (c == 'u' ? 4 : (c == 'U' ? 8 : 0));
    if (digits != 0) return add_code_point(i, i + 2, i + 2 + digits, 16, value);
    if (c == 'N') return error(i, "named characters (\\N{...}) are not supported");
    value += '\\';
    return i + 1;
  }

  Result<size_t> add_code_point(size_t at, size_t from, size_t to, int base, std::string& value) {
    uint32_t code = 0;
    const char* last = source_.data() + to;
    if (to > source_.size()) return error(at, "this escape is cut short");
    const auto parsed = std::from_chars(source_.data() + from, last, code, base);
    if (parsed.ec != std::errc() || parsed.ptr != last) {
      return error(at, "this escape has digits that are none");
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
      return error(at, "this escape is no character");
    }
    unicode::append(value, code);
    return to;
  }

  std::string_view source_;
  size_t pos_ = 0;             // where the next literal text starts
  bool line_starting_ = true;  // whether a line starts at pos_
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> tokenize(std::string_view source) {
  if (source.size() > UINT32_MAX - 16) {
    return fail(ErrorCode::kInvalidArgument,
                "The chat template is larger than 4 GB; give a smaller one.");
  }
  return Lexer(source).run();
}

}  // namespace culet::chat
