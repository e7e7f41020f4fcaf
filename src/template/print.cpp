// Values as text: Python's str() and repr(), and json.dumps(). Bytes keep their provenance: quotes,
// brackets, escapes' backslashes and numbers are the template's, the letters of a string its own.
#include "template/runtime.h"
#include "template/unicode.h"

#include <charconv>
#include <cmath>

namespace culet::chat {

namespace {

// Digits and decimal exponent of the shortest text that reads back as d: 0.digits * 10^point.
struct Decimal {
  std::string digits;
  int point;
};

Decimal shortest(double d) {
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<size_t>(end.ptr - buffer));
  const size_t e = text.find('e');
  int exponent = 0;
  const size_t sign = text[e + 1] == '+' ? 2 : 1;
  std::from_chars(text.data() + e + sign, text.data() + text.size(), exponent);
  Decimal out{{}, exponent + 1};
  for (const char c : text.substr(0, e)) {
    if (c != '.') out.digits += c;
  }
  return out;
}

}  // namespace

std::string format_float(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
  const std::string sign = std::signbit(d) ? "-" : "";
  if (d == 0) return sign + "0.0";
  auto [digits, point] = shortest(std::fabs(d));
  if (point > 16 || point < -3) {
    std::string out = sign + digits[0];
    if (digits.size() > 1) out += "." + digits.substr(1);
    const int exponent = point - 1;
    const std::string number = std::to_string(std::abs(exponent));
    return out + (exponent < 0 ? "e-" : "e+") + (number.size() < 2 ? "0" : "") + number;
  }
  if (point <= 0) return sign + "0." + std::string(static_cast<size_t>(-point), '0') + digits;
  const size_t whole = static_cast<size_t>(point);
  if (digits.size() <= whole) return sign + digits + std::string(whole - digits.size(), '0') + ".0";
  return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

namespace {

class Printer {
 public:
  Printer(const Factory& f, Text& out) : f_(f), out_(out) {}

  Result<void> str(const Value& v) {
    if (v.is_undefined()) return {};
    if (const Text* t = v.text()) {
      out_.append(*t);
      return check(t->size() / 16);
    }
    return repr(v);
  }

  Result<void> repr(const Value& v) {
    CULET_TRY_VOID(check(1));
    if (const Text* t = v.text()) return repr_text(*t);
    if (const List* l = v.list()) return repr_list(*l);
    if (const Dict* d = v.dict()) return repr_pairs(*d);
    put(scalar(v));
    return {};
  }

  Result<void> json(const Value& v, const JsonStyle& style, size_t level) {
    CULET_TRY_VOID(check(1));
    if (const Text* t = v.text()) return json_text(*t, style.ascii);
    if (v.is_none()) return put("null");
    if (v.is_bool()) return put(v.as_bool() ? "true" : "false");
    if (v.is_int()) return put(std::to_string(v.as_int()));
    if (v.is_float()) return put(json_float(v.as_double()));
    if (const List* l = v.list();
        l != nullptr && (l->flavor == Flavor::kList || l->flavor == Flavor::kTuple)) {
      return json_list(*l, style, level);
    }
    if (const Dict* d = v.dict()) return json_dict(*d, style, level);
    return type_failure(std::string("a value of type ") + v.type_name() +
                        " cannot be written as JSON");
  }

 private:
  Result<void> put(std::string_view text) {
    out_.append(text, false);
    return {};
  }

  // Pays for the work done and refuses to grow past what memory allows.
  Result<void> check(size_t steps) {
    if (out_.footprint() > checked_ + 4096) {
      checked_ = out_.footprint();
      if (!f_.budget().fits(2 * checked_)) return tl::unexpected<Error>(f_.limit_error());
    }
    if (!f_.budget().spend(static_cast<int64_t>(steps))) {
      return tl::unexpected<Error>(f_.limit_error());
    }
    return {};
  }

  static std::string scalar(const Value& v) {
    if (v.is_undefined()) return "Undefined";
    if (v.is_none()) return "None";
    if (v.is_bool()) return v.as_bool() ? "True" : "False";
    if (v.is_int()) return std::to_string(v.as_int());
    if (v.is_float()) return format_float(v.as_double());
    if (v.macro() != nullptr) {
      const Name* name = v.macro()->node->name;
      return "<Macro " + (name != nullptr ? "'" + name->text + "'" : std::string("anonymous")) +
             ">";
    }
    if (v.method() != nullptr) {
      return std::string("<built-in method ") + v.method()->entry->name + " of " +
             v.method()->self.type_name() + " object>";
    }
    if (const LoopState* loop = v.loop()) {
      return "<LoopContext " + std::to_string(loop->index + 1) + "/" +
             std::to_string(loop->source.size()) + ">";
    }
    if (v.name_space() != nullptr) return "<Namespace>";
    return std::string("<function ") + v.function()->name + ">";
  }

  Result<void> repr_text(const Text& text) {
    const std::string& bytes = text.bytes();
    const bool use_double =
        bytes.find('\'') != std::string::npos && bytes.find('"') == std::string::npos;
    const char quote = use_double ? '"' : '\'';
    put({&quote, 1});
    for (size_t i = 0; i < bytes.size();) {
      const unicode::Character c = unicode::decode(bytes, i);
      const Source source = text.source_at(i);
      if (c.code == static_cast<uint32_t>(quote) || c.code == '\\') {
        const char escaped[] = {'\\', bytes[i]};
        out_.append({escaped, 2}, source);
      } else if (unicode::is_printable(c.code)) {
        out_.append(std::string_view(bytes).substr(i, c.size), source);
      } else {
        out_.append(python_escape(c, bytes[i]), source);
      }
      i += c.size;
    }
    put({&quote, 1});
    return check(1 + bytes.size() / 8);
  }

  static std::string python_escape(unicode::Character c, char byte) {
    if (c.code == '\n') return "\\n";
    if (c.code == '\r') return "\\r";
    if (c.code == '\t') return "\\t";
    const uint32_t code = c.code == unicode::kInvalid ? static_cast<uint8_t>(byte) : c.code;
    if (code < 0x100) return "\\x" + hex(code, 2);
    return code < 0x10000 ? "\\u" + hex(code, 4) : "\\U" + hex(code, 8);
  }

  static std::string hex(uint32_t code, size_t digits) {
    std::string out(digits, '0');
    for (size_t i = digits; i-- > 0; code >>= 4) out[i] = "0123456789abcdef"[code & 15];
    return out;
  }

  Result<void> repr_list(const List& l) {
    static constexpr std::string_view kOpen[] = {
        "[", "(", "[", "<generator object>", "dict_keys([", "dict_values([", "dict_items(["};
    static constexpr std::string_view kClose[] = {"]", ")", "]", "", "])", "])", "])"};
    const size_t flavor = static_cast<size_t>(l.flavor);
    if (l.flavor == Flavor::kRange) return repr_range(l);
    put(kOpen[flavor]);
    if (l.flavor == Flavor::kGenerator) return {};
    for (size_t i = 0; i < l.items.size(); ++i) {
      if (i > 0) put(", ");
      CULET_TRY_VOID(repr(l.items[i]));
    }
    if (l.flavor == Flavor::kTuple && l.items.size() == 1) put(",");
    return put(kClose[flavor]);
  }

  Result<void> repr_range(const List& l) {
    if (l.items.empty()) return put("range(0, 0)");
    const int64_t first = l.items.front().as_int(), last = l.items.back().as_int();
    const int64_t step = l.items.size() > 1 ? l.items[1].as_int() - first : 1;
    std::string text =
        "range(" + std::to_string(first) + ", " + std::to_string(last + (step > 0 ? 1 : -1));
    if (step != 1) text += ", " + std::to_string(step);
    return put(text + ")");
  }

  Result<void> repr_pairs(const Dict& d) {
    put("{");
    for (size_t i = 0; i < d.items.size(); ++i) {
      if (i > 0) put(", ");
      CULET_TRY_VOID(repr(d.items[i].first));
      put(": ");
      CULET_TRY_VOID(repr(d.items[i].second));
    }
    return put("}");
  }

  Result<void> json_text(const Text& text, bool ascii) {
    const std::string& bytes = text.bytes();
    put("\"");
    for (size_t i = 0; i < bytes.size();) {
      const unicode::Character c = unicode::decode(bytes, i);
      out_.append(json_escape(c, std::string_view(bytes).substr(i, c.size), ascii),
                  text.source_at(i));
      i += c.size;
    }
    put("\"");
    return check(1 + bytes.size() / 8);
  }

  static std::string json_escape(unicode::Character c, std::string_view raw, bool ascii) {
    switch (c.code) {
      case '"':
        return "\\\"";
      case '\\':
        return "\\\\";
      case '\n':
        return "\\n";
      case '\r':
        return "\\r";
      case '\t':
        return "\\t";
      case '\b':
        return "\\b";
      case '\f':
        return "\\f";
      default:
        break;
    }
    if (c.code < 0x20 || (ascii && c.code >= 0x7F && c.code < 0x10000)) {
      return "\\u" + hex(c.code, 4);
    }
    if (!ascii || c.code < 0x7F) return std::string(raw);
    if (c.code == unicode::kInvalid) return "\\ufffd";
    const uint32_t rest = c.code - 0x10000;
    return "\\u" + hex(0xD800 + (rest >> 10), 4) + "\\u" + hex(0xDC00 + (rest & 0x3FF), 4);
  }

  static std::string json_float(double d) {
    if (std::isnan(d)) return "NaN";
    if (std::isinf(d)) return d < 0 ? "-Infinity" : "Infinity";
    return format_float(d);
  }

  void new_line(const JsonStyle& style, size_t level) {
    if (!style.indent) return;
    put("\n");
    for (size_t i = 0; i < level; ++i) out_.append(*style.indent);
  }

  Result<void> json_list(const List& l, const JsonStyle& style, size_t level) {
    if (l.items.empty()) return put("[]");
    put("[");
    for (size_t i = 0; i < l.items.size(); ++i) {
      if (i > 0) out_.append(style.item_separator);
      new_line(style, level + 1);
      CULET_TRY_VOID(json(l.items[i], style, level + 1));
    }
    new_line(style, level);
    return put("]");
  }

  Result<void> json_dict(const Dict& d, const JsonStyle& style, size_t level) {
    if (d.items.empty()) return put("{}");
    put("{");
    for (size_t i = 0; i < d.items.size(); ++i) {
      const auto& [key, value] = d.items[style.sort_keys ? d.order[i] : i];
      if (i > 0) out_.append(style.item_separator);
      new_line(style, level + 1);
      CULET_TRY_VOID(json_key(key, style));
      out_.append(style.key_separator);
      CULET_TRY_VOID(json(value, style, level + 1));
    }
    new_line(style, level);
    return put("}");
  }

  Result<void> json_key(const Value& key, const JsonStyle& style) {
    if (key.text() != nullptr) return json_text(*key.text(), style.ascii);
    if (!key.is_none() && !key.is_number()) {
      return type_failure(std::string("a key of type ") + key.type_name() +
                          " cannot be written as JSON");
    }
    put("\"");
    CULET_TRY_VOID(json(key, style, 0));
    return put("\"");
  }

  const Factory& f_;
  Text& out_;
  size_t checked_ = 0;
};

}  // namespace

Result<void> append_str(const Factory& f, Text& out, const Value& v) {
  return Printer(f, out).str(v);
}
Result<void> append_repr(const Factory& f, Text& out, const Value& v) {
  return Printer(f, out).repr(v);
}
Result<void> append_json(const Factory& f, Text& out, const Value& v, const JsonStyle& style) {
  return Printer(f, out).json(v, style, 0);
}

Result<Value> to_string(const Factory& f, const Value& v) {
  if (v.text() != nullptr) return v;
  CULET_TRY(Text text, to_text(f, v));
  return f.string(std::move(text));
}

Result<Text> to_text(const Factory& f, const Value& v) {
  Text text;
  CULET_TRY_VOID(append_str(f, text, v));
  return text;
}

Text escape_html(const Text& text) {
  Text out;
  const std::string& bytes = text.bytes();
  for (size_t i = 0; i < bytes.size(); ++i) {
    const Source source = text.source_at(i);
    switch (bytes[i]) {
      case '&':
        out.append("&amp;", source);
        break;
      case '<':
        out.append("&lt;", source);
        break;
      case '>':
        out.append("&gt;", source);
        break;
      case '\'':
        out.append("&#39;", source);
        break;
      case '"':
        out.append("&#34;", source);
        break;
      default:
        out.append({&bytes[i], 1}, source);
        break;
    }
  }
  return out;
}

}  // namespace culet::chat
