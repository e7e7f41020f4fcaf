// Python's two ways to fill in strings: "%s" % values and "{}".format(values).
//
// Filled-in text keeps its provenance; padding is the template's. Widths are bounded by memory.
#include "base/numbers.h"
#include "template/native.h"

#include <charconv>
#include <cmath>
#include <cstdio>

namespace culet::chat {

namespace {

struct Spec {
  std::string fill = " ";
  char align = '\0';  // < > ^ =
  char sign = '\0';   // + - or space
  bool alternate = false, zero = false, group = false;
  int64_t width = 0;
  int64_t precision = -1;
  char type = '\0';
};

constexpr int64_t kMaxPrecision = 300;

bool is_decimal(char c) { return c >= '0' && c <= '9'; }

// A decimal number at `at`, moved past it; capped so that sums stay small.
int64_t read_number(std::string_view s, size_t& at) {
  int64_t n = 0;
  for (; at < s.size() && is_decimal(s[at]); ++at)
    n = std::min<int64_t>(n * 10 + s[at] - '0', 1 << 30);
  return n;
}

// Puts `body` into a field. Numbers get their zeros between sign and digits.
Result<void> append_field(const Factory& f, Text& out, const Text& body, const Spec& spec,
                          char default_align) {
  const int64_t size = static_cast<int64_t>(unicode::count(body.bytes()));
  const int64_t missing = std::max<int64_t>(spec.width - size, 0);
  const size_t bytes = static_cast<size_t>(missing) * spec.fill.size() + body.footprint();
  if (!f.budget().fits(out.footprint() + bytes) || !f.budget().spend_bytes(bytes)) {
    return tl::unexpected<Error>(f.limit_error());
  }
  const char align = spec.align != '\0' ? spec.align : default_align;
  const int64_t left = align == '<' ? 0 : (align == '^' ? missing / 2 : missing);
  size_t head = 0;
  if (align == '=' && !body.empty() && !is_decimal(body.bytes()[0])) head = 1;
  out.append(body, 0, head);
  for (int64_t i = 0; i < left; ++i) out.append(spec.fill, false);
  out.append(body, head, body.size() - head);
  for (int64_t i = left; i < missing; ++i) out.append(spec.fill, false);
  return {};
}

std::string with_groups(std::string digits) {
  size_t end = 0;
  while (end < digits.size() && is_decimal(digits[end])) ++end;
  for (size_t i = end; i > 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

std::string sign_of(bool negative, const Spec& spec) {
  if (negative) return "-";
  return spec.sign == '+' || spec.sign == ' ' ? std::string(1, spec.sign) : "";
}

Result<std::string> format_integer(int64_t value, const Spec& spec) {
  const bool negative = value < 0;
  const uint64_t size = negative ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  const char type = static_cast<char>(spec.type | 0x20);
  const int base = type == 'x' ? 16 : (type == 'o' ? 8 : (type == 'b' ? 2 : 10));
  char buffer[72];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, size, base);
  std::string digits(buffer, end.ptr);
  if (spec.type == 'X') {
    for (char& c : digits) c = c >= 'a' ? static_cast<char>(c - 32) : c;
  }
  const size_t wanted = static_cast<size_t>(std::min(spec.precision, kMaxPrecision));
  if (spec.precision > 0 && digits.size() < wanted) digits.insert(0, wanted - digits.size(), '0');
  if (spec.group) digits = with_groups(std::move(digits));
  std::string prefix;
  if (spec.alternate && base != 10) prefix = {'0', spec.type};
  return sign_of(negative, spec) + prefix + digits;
}

Result<std::string> format_real(double value, const Spec& spec) {
  double size = std::fabs(value);
  char type = spec.type == '\0' ? 'g' : spec.type;
  if (spec.precision > kMaxPrecision) {
    return type_failure("a format asks for more than " + std::to_string(kMaxPrecision) + " digits");
  }
  std::string digits;
  if (spec.type == '\0' && spec.precision < 0) {
    digits = format_float(size);
  } else {
    if (type == '%') {
      size *= 100;
      type = 'f';
    }
    const char format[] = {'%', '.', '*', type, '\0'};
    char buffer[1024];
    const base::CLocale c_locale;  // a point, whatever the program's locale has
    std::snprintf(buffer, sizeof buffer, format,
                  static_cast<int>(spec.precision < 0 ? 6 : spec.precision), size);
    digits = buffer;
    const bool plain = digits.find_first_not_of("0123456789") == std::string::npos;
    if (spec.type == '\0' && plain) digits += ".0";
  }
  if (spec.group) digits = with_groups(std::move(digits));
  if (spec.type == '%') digits += "%";
  return sign_of(std::signbit(value) && !std::isnan(value), spec) + digits;
}

Text cut_characters(const Text& text, int64_t precision) {
  if (precision < 0) return text;
  return text.slice(0, unicode::offset(text.bytes(), static_cast<size_t>(precision)));
}

// ---- "%s" % values ----

class Percent {
 public:
  Percent(const Factory& f, const Text& format, const Value& arguments)
      : f_(f), format_(format), bytes_(format.bytes()), arguments_(arguments) {
    const List* list = arguments.list();
    tuple_ = list != nullptr && list->flavor == Flavor::kTuple ? list : nullptr;
  }

  Result<Text> run() {
    if (!f_.budget().spend_bytes(bytes_.size())) return tl::unexpected<Error>(f_.limit_error());
    while (at_ < bytes_.size()) {
      const size_t percent = std::min(bytes_.find('%', at_), bytes_.size());
      out_.append(format_, at_, percent - at_);
      at_ = percent;
      if (at_ < bytes_.size()) CULET_TRY_VOID(directive());
    }
    const size_t given = tuple_ != nullptr ? tuple_->items.size() : 1;
    const bool unused = tuple_ != nullptr ? used_ < given : used_ == 0 && !may_be_unused();
    if (unused) return type_failure("not all values of a '%' format are used");
    return std::move(out_);
  }

 private:
  bool may_be_unused() const {
    return arguments_.dict() != nullptr || arguments_.list() != nullptr ||
           arguments_.is_undefined();
  }

  Result<Value> next_value() {
    if (tuple_ == nullptr && used_ == 0) {
      ++used_;
      return arguments_;
    }
    if (tuple_ == nullptr || used_ >= tuple_->items.size()) {
      return type_failure("a '%' format needs more values");
    }
    return tuple_->items[used_++];
  }

  Result<Value> named_value() {
    const size_t close = bytes_.find(')', at_);
    if (close == std::string::npos) return type_failure("a '%(' in a format is not closed");
    const Dict* d = arguments_.dict();
    if (d == nullptr) return type_failure("a format with names needs a dict");
    const Value* found = d->find(std::string_view(bytes_).substr(at_ + 1, close - at_ - 1));
    if (found == nullptr) return type_failure("a format names a key that its dict lacks");
    at_ = close + 1;
    used_ = 1;
    return *found;
  }

  Result<int64_t> read_size() {
    if (at_ >= bytes_.size() || bytes_[at_] != '*') return read_number(bytes_, at_);
    ++at_;
    CULET_TRY(const Value v, next_value());
    if (!v.is_integral()) return type_failure("the '*' of a format needs an integer");
    return std::clamp<int64_t>(v.as_int(), 0, 1 << 30);
  }

  Result<void> directive() {
    ++at_;
    Spec spec;
    std::optional<Value> named;
    if (at_ < bytes_.size() && bytes_[at_] == '(') {
      CULET_TRY(named, named_value());
    }
    for (; at_ < bytes_.size(); ++at_) {
      const char c = bytes_[at_];
      if (c == '-')
        spec.align = '<';
      else if (c == '0')
        spec.zero = true;
      else if (c == '#')
        spec.alternate = true;
      else if (c == '+' || (c == ' ' && spec.sign == '\0'))
        spec.sign = c;
      else if (c != ' ')
        break;
    }
    CULET_TRY(spec.width, read_size());
    if (at_ < bytes_.size() && bytes_[at_] == '.') {
      ++at_;
      CULET_TRY(spec.precision, read_size());
    }
    if (at_ >= bytes_.size()) return type_failure("a format ends within a '%' directive");
    spec.type = bytes_[at_++];
    if (spec.type == '%') {
      out_.append(format_, at_ - 1, 1);
      return {};
    }
    if (!named) {
      CULET_TRY(named, next_value());
    }
    return convert(spec, *named);
  }

  Result<void> convert(Spec& spec, const Value& v) {
    Text body;
    switch (spec.type) {
      case 's':
      case 'r':
      case 'a': {
        CULET_TRY_VOID(spec.type == 's' ? append_str(f_, body, v) : append_repr(f_, body, v));
        return append_field(f_, out_, cut_characters(body, spec.precision), spec, '>');
      }
      case 'c':
        if (v.text() == nullptr) return type_failure("'%c' needs a str");
        return append_field(f_, out_, *v.text(), spec, '>');
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o':
        return convert_integer(spec, v);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G': {
        if (!v.is_number()) return type_failure("a '%' format needs a number");
        CULET_TRY(const std::string digits, format_real(v.as_double(), spec));
        return number(spec, digits);
      }
      default:
        return type_failure(std::string("a format has the unknown directive '%") + spec.type + "'");
    }
  }

  Result<void> convert_integer(const Spec& spec, const Value& v) {
    const bool whole = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
    if (!v.is_integral() && !(whole && v.is_float() && std::fabs(v.as_double()) < 9e18)) {
      return type_failure("a '%' format needs an integer");
    }
    const int64_t n = v.is_float() ? static_cast<int64_t>(v.as_double()) : v.as_int();
    CULET_TRY(const std::string digits, format_integer(n, spec));
    return number(spec, digits);
  }

  Result<void> number(const Spec& given, const std::string& digits) {
    Spec spec = given;
    if (spec.zero && spec.align == '\0') {
      spec.align = '=';
      spec.fill = "0";
    }
    return append_field(f_, out_, Text(digits, false), spec, '>');
  }

  const Factory& f_;
  const Text& format_;
  const std::string& bytes_;
  const Value& arguments_;
  const List* tuple_;
  size_t at_ = 0;
  size_t used_ = 0;
  Text out_;
};

// ---- "{}".format(values) ----

class Braces {
 public:
  Braces(Interpreter& in, const Text& format, const Arguments& arguments)
      : in_(in), f_(in.factory()), format_(format), bytes_(format.bytes()), arguments_(arguments) {}

  Result<Text> run() {
    if (!f_.budget().spend_bytes(bytes_.size())) return tl::unexpected<Error>(f_.limit_error());
    while (at_ < bytes_.size()) {
      const size_t brace = std::min(bytes_.find_first_of("{}", at_), bytes_.size());
      out_.append(format_, at_, brace - at_);
      at_ = brace;
      if (at_ == bytes_.size()) break;
      if (at_ + 1 < bytes_.size() && bytes_[at_ + 1] == bytes_[at_]) {
        out_.append(format_, at_, 1);
        at_ += 2;
      } else if (bytes_[at_] == '}') {
        return type_failure("a format has a '}' without '{'");
      } else {
        CULET_TRY_VOID(field());
      }
    }
    return std::move(out_);
  }

 private:
  Result<void> field() {
    const size_t close = bytes_.find('}', at_);
    if (close == std::string::npos) return type_failure("a '{' in a format is not closed");
    std::string_view inside = std::string_view(bytes_).substr(at_ + 1, close - at_ - 1);
    at_ = close + 1;
    if (inside.find('{') != std::string_view::npos) {
      return type_failure("fields inside the fields of a format are not supported");
    }
    const size_t colon = std::min(inside.find(':'), inside.size());
    std::string_view name = inside.substr(0, colon);
    const std::string_view spec_text = inside.substr(std::min(colon + 1, inside.size()));
    char conversion = '\0';
    if (const size_t mark = name.find('!'); mark != std::string_view::npos) {
      if (mark + 2 != name.size()) return type_failure("a format has a malformed conversion");
      conversion = name[mark + 1];
      name = name.substr(0, mark);
    }
    CULET_TRY(Value value, look_up(name));
    if (conversion == 'r' || conversion == 's') {
      Text text;
      CULET_TRY_VOID(conversion == 'r' ? append_repr(f_, text, value)
                                       : append_str(f_, text, value));
      CULET_TRY(value, f_.string(std::move(text)));
    } else if (conversion != '\0') {
      return type_failure("a format knows only the conversions !r and !s");
    }
    CULET_TRY(const Spec spec, parse_spec(spec_text));
    return convert(spec, value);
  }

  Result<Value> look_up(std::string_view path) {
    const size_t end = std::min(path.find_first_of(".["), path.size());
    CULET_TRY(Value value, argument(path.substr(0, end)));
    for (size_t at = end; at < path.size();) {
      const bool item = path[at] == '[';
      const size_t stop =
          item ? path.find(']', at) : std::min(path.find_first_of(".[", at + 1), path.size());
      if (stop == std::string_view::npos) return type_failure("a '[' in a format is not closed");
      const std::string_view key = path.substr(at + 1, stop - at - 1);
      size_t digits = 0;
      const int64_t index = read_number(key, digits);
      Value key_value(index);
      if (!item || digits != key.size() || key.empty()) {
        CULET_TRY(key_value, f_.string(std::string(key)));
      }
      CULET_TRY(value, get_item(in_, value, key_value));
      at = stop + (item ? 1 : 0);
    }
    return value;
  }

  Result<Value> argument(std::string_view name) {
    size_t digits = 0;
    size_t index = static_cast<size_t>(read_number(name, digits));
    if (name.empty()) index = next_++;
    if (digits == name.size()) {
      if (index >= arguments_.positional.size()) return type_failure("a format needs more values");
      return arguments_.positional[index];
    }
    for (const auto& [key, value] : arguments_.named) {
      if (key == name) return value;
    }
    return type_failure("a format names the value '" + std::string(name.substr(0, 100)) +
                        "', which is not given");
  }

  static bool is_align(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }

  static Result<Spec> parse_spec(std::string_view s) {
    Spec spec;
    size_t at = 0;
    const size_t first = s.empty() ? 0 : unicode::decode(s, 0).size;
    if (first < s.size() && is_align(s[first])) {
      spec.fill = std::string(s.substr(0, first));
      spec.align = s[first];
      at = first + 1;
    } else if (!s.empty() && is_align(s[0])) {
      spec.align = s[0];
      at = 1;
    }
    const auto skip = [&](char c) {
      const bool is_there = at < s.size() && s[at] == c;
      at += is_there;
      return is_there;
    };
    for (const char c : {'+', '-', ' '}) {
      if (skip(c)) spec.sign = c;
    }
    spec.alternate = skip('#');
    if (skip('0')) {
      spec.zero = true;
      if (spec.align == '\0') {
        spec.align = '=';
        spec.fill = "0";
      }
    }
    spec.width = read_number(s, at);
    spec.group = skip(',');
    if (skip('.')) spec.precision = read_number(s, at);
    if (at < s.size()) spec.type = s[at++];
    if (at != s.size() ||
        std::string_view("\0sdbxXoeEfFgGn%", 15).find(spec.type) == std::string_view::npos) {
      return type_failure("a format has the unknown specification '" +
                          std::string(s.substr(0, 100)) + "'");
    }
    return spec;
  }

  Result<void> convert(const Spec& spec, const Value& v) {
    const bool integer = std::string_view("dbxXon").find(spec.type) != std::string_view::npos;
    const bool plain = spec.type == '\0';
    if (v.is_bool() && plain) {
      Text body;
      CULET_TRY_VOID(append_str(f_, body, v));
      return append_field(f_, out_, body, spec, '<');
    }
    if (v.is_integral() && (integer || plain)) {
      CULET_TRY(const std::string digits, format_integer(v.as_int(), spec));
      return append_field(f_, out_, Text(digits, false), spec, '>');
    }
    if (v.is_number() && spec.type != 's' && !integer) {
      CULET_TRY(const std::string digits, format_real(v.as_double(), spec));
      return append_field(f_, out_, Text(digits, false), spec, '>');
    }
    const bool formatted = spec.width > 0 || spec.precision >= 0 || !plain;
    if (v.text() == nullptr && formatted) {
      return type_failure(std::string("a format specification does not fit a ") + v.type_name());
    }
    if (!plain && spec.type != 's') {
      return type_failure("a format specification for numbers is given a str");
    }
    Text body;
    CULET_TRY_VOID(append_str(f_, body, v));
    return append_field(f_, out_, cut_characters(body, spec.precision), spec, '<');
  }

  Interpreter& in_;
  const Factory& f_;
  const Text& format_;
  const std::string& bytes_;
  const Arguments& arguments_;
  size_t at_ = 0;
  size_t next_ = 0;
  Text out_;
};

}  // namespace

Result<Value> format_percent(const Factory& f, const String& format, const Value& arguments) {
  CULET_TRY(Text text, Percent(f, format.text, arguments).run());
  return f.string(std::move(text), format.markup);
}

Result<Value> format_braces(Interpreter& in, const String& format, const Arguments& arguments) {
  CULET_TRY(Text text, Braces(in, format.text, arguments).run());
  return in.factory().string(std::move(text), format.markup);
}

}  // namespace culet::chat
