// Filters and methods of strings. Every piece taken over keeps its provenance; fill characters,
// ellipses and the like have that of the argument they come from.
#include "template/native.h"

#include <algorithm>

namespace culet::chat {

namespace {

bool markup_of(const Value& v) { return v.string() != nullptr && v.string()->markup; }

// Each character through `convert(out, at, size, first_of_word)`, keeping provenance.
template <class F>
Result<Value> map_characters(Call& c, F&& convert) {
  CULET_TRY(const Value s, self_string(c));
  const Text& text = *s.text();
  if (!factory(c).budget().fits(4 * text.footprint()) ||
      !factory(c).budget().spend(static_cast<int64_t>(text.size() / 4))) {
    return limit_failure(c);
  }
  Text out;
  std::string piece;
  for (size_t at = 0; at < text.size();) {
    const size_t size = unicode::decode(text.bytes(), at).size;
    piece.clear();
    convert(piece, text.bytes(), at, size);
    out.append(piece, text.source_at(at));
    at += size;
  }
  return factory(c).string(std::move(out), markup_of(c.self));
}

Result<Value> change_case(Call& c, unicode::Case to) {
  return map_characters(c, [to](std::string& out, const std::string& in, size_t at, size_t size) {
    unicode::append_case(out, to, in, at, size);
  });
}

}  // namespace

// ---- case ----

Result<Value> filter_upper(Call& c) { return change_case(c, unicode::Case::kUpper); }
Result<Value> filter_lower(Call& c) { return change_case(c, unicode::Case::kLower); }

Result<Value> filter_capitalize(Call& c) {
  return map_characters(c, [](std::string& out, const std::string& in, size_t at, size_t size) {
    unicode::append_case(out, at == 0 ? unicode::Case::kTitle : unicode::Case::kLower, in, at,
                         size);
  });
}

// The filter starts words after spaces and -({[<, the method after anything without case.
Result<Value> filter_title(Call& c) {
  bool start = true;
  size_t rest = 0;  // where the lower-case part of the word starts; it knows nothing before it
  return map_characters(c, [&](std::string& out, const std::string& in, size_t at, size_t size) {
    const auto to = start ? unicode::Case::kUpper : unicode::Case::kLower;
    if (start) rest = at;
    unicode::append_case(out, to, std::string_view(in).substr(rest), at - rest, size);
    if (start) rest = at + size;
    const uint32_t code = unicode::decode(in, at).code;
    start = unicode::is_space(code) ||
            (code < 0x80 && std::string_view("-({[<").find(in[at]) != std::string_view::npos);
  });
}

namespace {

bool is_cased(uint32_t code) { return unicode::is_upper(code) || unicode::is_lower(code); }

}  // namespace

Result<Value> string_title(Call& c) {
  bool start = true;
  return map_characters(c, [&](std::string& out, const std::string& in, size_t at, size_t size) {
    unicode::append_case(out, start ? unicode::Case::kTitle : unicode::Case::kLower, in, at, size);
    start = !is_cased(unicode::decode(in, at).code);
  });
}

// ---- stripping and splitting ----

namespace {

// Whether a character is among those to strip: `chars`, or spaces when it is null.
bool strippable(const String* chars, std::string_view text, size_t at, size_t size) {
  if (chars == nullptr) return unicode::is_space(unicode::decode(text, at).code);
  return find_text(chars->text.bytes(), text.substr(at, size)) != std::string::npos;
}

size_t character_before(std::string_view text, size_t end) {
  size_t at = end - 1;
  while (at > 0 && end - at < 4 && (text[at] & 0xC0) == 0x80) --at;
  return unicode::decode(text, at).size == end - at ? at : end - 1;
}

Result<Value> strip(Call& c, bool left, bool right) {
  CULET_TRY(Value s, self_string(c));
  CULET_TRY(const String* chars, string_arg(c, 0));
  const std::string& bytes = s.text()->bytes();
  size_t from = 0, to = bytes.size();
  const size_t cost = chars != nullptr ? chars->text.size() / 32 : 0;
  while (left && from < to) {
    const size_t size = unicode::decode(bytes, from).size;
    if (!factory(c).budget().spend(static_cast<int64_t>(cost))) return limit_failure(c);
    if (!strippable(chars, bytes, from, size)) break;
    from += size;
  }
  while (right && to > from) {
    const size_t at = character_before(bytes, to);
    if (!factory(c).budget().spend(static_cast<int64_t>(cost))) return limit_failure(c);
    if (!strippable(chars, bytes, at, to - at)) break;
    to = at;
  }
  if (from == 0 && to == bytes.size()) return s;
  return factory(c).string(s.text()->slice(from, to - from), markup_of(c.self));
}

}  // namespace

Result<Value> filter_trim(Call& c) { return strip(c, true, true); }
Result<Value> string_strip(Call& c) { return strip(c, true, true); }
Result<Value> string_lstrip(Call& c) { return strip(c, true, false); }
Result<Value> string_rstrip(Call& c) { return strip(c, false, true); }

namespace {

struct Span {
  size_t from, to;
};

Result<Value> pieces(const Call& c, const Text& text, const std::vector<Span>& spans) {
  std::vector<Value> out;
  for (const Span& span : spans) {
    CULET_TRY(Value piece,
              factory(c).string(text.slice(span.from, span.to - span.from), markup_of(c.self)));
    out.push_back(std::move(piece));
  }
  return factory(c).list(std::move(out));
}

std::vector<Span> split_spaces(const std::string& bytes, int64_t limit) {
  std::vector<Span> out;
  for (size_t at = unicode::skip_space(bytes, 0); at < bytes.size();) {
    if (limit >= 0 && static_cast<int64_t>(out.size()) == limit) {
      out.push_back({at, bytes.size()});
      break;
    }
    size_t end = at;
    while (end < bytes.size()) {
      const unicode::Character ch = unicode::decode(bytes, end);
      if (unicode::is_space(ch.code)) break;
      end += ch.size;
    }
    out.push_back({at, end});
    at = unicode::skip_space(bytes, end);
  }
  return out;
}

std::vector<Span> split_spaces_from_end(const std::string& bytes, int64_t limit) {
  std::vector<Span> all = split_spaces(bytes, -1);
  const size_t keep = static_cast<size_t>(limit);
  if (limit < 0 || all.size() <= keep) return all;
  std::vector<Span> out = {{0, all[all.size() - keep - 1].to}};
  out.insert(out.end(), all.end() - static_cast<ptrdiff_t>(keep), all.end());
  return out;
}

std::vector<Span> split_at(const std::string& bytes, const std::string& by, int64_t limit) {
  std::vector<Span> out;
  size_t from = 0;
  while (limit < 0 || static_cast<int64_t>(out.size()) < limit) {
    const size_t at = find_text(bytes, by, from);
    if (at == std::string::npos) break;
    out.push_back({from, at});
    from = at + by.size();
  }
  out.push_back({from, bytes.size()});
  return out;
}

std::vector<Span> split_at_from_end(const std::string& bytes, const std::string& by,
                                    int64_t limit) {
  std::vector<Span> out;
  size_t to = bytes.size();
  while (to >= by.size() && (limit < 0 || static_cast<int64_t>(out.size()) < limit)) {
    const size_t at = find_last_text(std::string_view(bytes).substr(0, to), by);
    if (at == std::string::npos) break;
    out.push_back({at + by.size(), to});
    to = at;
  }
  out.push_back({0, to});
  std::reverse(out.begin(), out.end());
  return out;
}

// Pays for the places that a search may find.
bool pay_search(const Call& c, size_t text, size_t pattern) {
  return fits_times(c, sizeof(Span), text / std::max<size_t>(pattern, 1));
}

Result<Value> split(Call& c, bool from_end) {
  CULET_TRY(const Value s, self_string(c));
  CULET_TRY(const String* by, string_arg(c, 0));
  CULET_TRY(const int64_t limit, int_arg(c, 1, -1));
  const std::string& bytes = s.text()->bytes();
  if (by != nullptr && by->text.empty()) return call_failure(c, "needs a separator with text");
  if (!pay_search(c, bytes.size(), by != nullptr ? by->text.size() : 2)) return limit_failure(c);
  if (by == nullptr) {
    return pieces(c, *s.text(),
                  from_end ? split_spaces_from_end(bytes, limit) : split_spaces(bytes, limit));
  }
  return pieces(c, *s.text(),
                from_end ? split_at_from_end(bytes, by->text.bytes(), limit)
                         : split_at(bytes, by->text.bytes(), limit));
}

}  // namespace

Result<Value> string_split(Call& c) { return split(c, false); }
Result<Value> string_rsplit(Call& c) { return split(c, true); }

namespace {

bool is_line_break(uint32_t code) {
  return (code >= 0x0A && code <= 0x0D) || (code >= 0x1C && code <= 0x1E) || code == 0x85 ||
         code == 0x2028 || code == 0x2029;
}

std::vector<Span> line_spans(const std::string& bytes, bool keep_ends) {
  std::vector<Span> out;
  size_t from = 0;
  for (size_t at = 0; at < bytes.size();) {
    const unicode::Character ch = unicode::decode(bytes, at);
    size_t next = at + ch.size;
    if (is_line_break(ch.code)) {
      if (ch.code == '\r' && next < bytes.size() && bytes[next] == '\n') ++next;
      out.push_back({from, keep_ends ? next : at});
      from = next;
    }
    at = next;
  }
  if (from < bytes.size()) out.push_back({from, bytes.size()});
  return out;
}

}  // namespace

Result<Value> string_splitlines(Call& c) {
  CULET_TRY(const Value s, self_string(c));
  if (!pay_search(c, s.text()->size(), 1)) return limit_failure(c);
  return pieces(c, *s.text(), line_spans(s.text()->bytes(), bool_arg(c, 0, false)));
}

namespace {

Result<Value> partition(Call& c, bool from_end) {
  CULET_TRY(const Value s, self_string(c));
  CULET_TRY(const String* by, string_arg(c, 0));
  if (by == nullptr || by->text.empty()) return call_failure(c, "needs a separator with text");
  const Text& text = *s.text();
  const size_t at = from_end ? find_last_text(text.bytes(), by->text.bytes())
                             : find_text(text.bytes(), by->text.bytes());
  std::vector<Text> parts(3);
  if (at == std::string::npos) {
    parts[from_end ? 2 : 0] = text;
  } else {
    const size_t after = at + by->text.size();
    parts = {text.slice(0, at), text.slice(at, after - at), text.slice(after, text.size() - after)};
  }
  std::vector<Value> out;
  for (Text& part : parts) {
    CULET_TRY(Value piece, factory(c).string(std::move(part), markup_of(c.self)));
    out.push_back(std::move(piece));
  }
  return factory(c).list(std::move(out), Flavor::kTuple);
}

}  // namespace

Result<Value> string_partition(Call& c) { return partition(c, false); }
Result<Value> string_rpartition(Call& c) { return partition(c, true); }

Result<Value> string_removeprefix(Call& c) {
  CULET_TRY(Value s, self_string(c));
  CULET_TRY(const String* prefix, string_arg(c, 0));
  if (prefix == nullptr || !s.text()->bytes().starts_with(prefix->text.bytes())) return s;
  const size_t n = prefix->text.size();
  return factory(c).string(s.text()->slice(n, s.text()->size() - n), markup_of(c.self));
}

Result<Value> string_removesuffix(Call& c) {
  CULET_TRY(Value s, self_string(c));
  CULET_TRY(const String* suffix, string_arg(c, 0));
  if (suffix == nullptr || !s.text()->bytes().ends_with(suffix->text.bytes())) return s;
  return factory(c).string(s.text()->slice(0, s.text()->size() - suffix->text.size()),
                           markup_of(c.self));
}

// ---- joining, replacing, filling ----

Result<Value> string_join(Call& c) {
  CULET_TRY(const std::vector<Value> items, iterate(factory(c), *c.arg(0)));
  const Text& separator = *c.self.text();
  if (!fits_times(c, separator.footprint(), items.size())) return limit_failure(c);
  Text out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (items[i].text() == nullptr) {
      return call_failure(c, std::string("joins strings, not a ") + items[i].type_name());
    }
    if (i > 0) out.append(separator);
    out.append(*items[i].text());
    if (!factory(c).budget().fits(out.footprint())) return limit_failure(c);
  }
  return factory(c).string(std::move(out), markup_of(c.self));
}

namespace {

// An empty pattern stands before every character and at the end.
std::vector<size_t> find_all(const std::string& bytes, const std::string& what, int64_t limit) {
  std::vector<size_t> out;
  for (size_t at = 0; limit < 0 || static_cast<int64_t>(out.size()) < limit;) {
    at = find_text(bytes, what, at);
    if (at == std::string::npos) break;
    out.push_back(at);
    if (what.empty() && at == bytes.size()) break;
    at += what.empty() ? unicode::decode(bytes, at).size : what.size();
  }
  return out;
}

}  // namespace

Result<Value> filter_replace(Call& c) {
  CULET_TRY(Value s, self_string(c));
  CULET_TRY(const Text from, to_text(factory(c), *c.arg(0)));
  CULET_TRY(const Text to, to_text(factory(c), *c.arg(1)));
  CULET_TRY(const int64_t limit, int_arg(c, 2, -1));
  const Text& text = *s.text();
  if (!pay_search(c, text.size() + 1, from.size())) return limit_failure(c);
  const std::vector<size_t> found = find_all(text.bytes(), from.bytes(), limit);
  if (found.empty()) return s;
  if (!fits_times(c, to.footprint() + 2 * sizeof(Text::Run), found.size())) return limit_failure(c);
  Text out;
  size_t done = 0;
  for (const size_t at : found) {
    out.append(text, done, at - done);
    out.append(to);
    done = at + from.size();
  }
  out.append(text, done, text.size() - done);
  return factory(c).string(std::move(out), markup_of(c.self));
}

Result<Value> string_replace(Call& c) {
  for (size_t i = 0; i < 2; ++i) {
    if (c.arg(i)->text() == nullptr) {
      return call_failure(c, std::string("needs a str, not a ") + c.arg(i)->type_name());
    }
  }
  return filter_replace(c);
}

Result<Value> filter_indent(Call& c) {
  CULET_TRY(const Value s, self_string(c));
  Text indent("    ", false);
  if (given(c, 0)) {
    if (c.arg(0)->text() != nullptr) {
      indent = *c.arg(0)->text();
    } else {
      CULET_TRY(const int64_t width, int_arg(c, 0, 4));
      if (!fits_times(c, 1, static_cast<uint64_t>(std::max<int64_t>(width, 0)))) {
        return limit_failure(c);
      }
      indent = Text(std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' '), false);
    }
  }
  Text text = *s.text();
  text.append("\n", false);
  const std::vector<Span> lines = line_spans(text.bytes(), false);
  if (!fits_times(c, indent.footprint() + sizeof(Text::Run), lines.size())) return limit_failure(c);
  const bool blank = bool_arg(c, 2, false);
  Text out;
  for (size_t i = 0; i < lines.size(); ++i) {
    const size_t size = lines[i].to - lines[i].from;
    if (i > 0) out.append("\n", text.source_at(lines[i].from - 1));
    const bool wanted = i == 0 ? bool_arg(c, 1, false) : blank || size > 0;
    if (wanted) out.append(indent);
    out.append(text, lines[i].from, size);
  }
  return factory(c).string(std::move(out), markup_of(c.self));
}

// ---- searching ----

namespace {

struct Window {
  size_t from, to;  // bytes
  bool valid;       // false: the window starts behind the end of the text
};

// The part of a string that start and end arguments (in characters) leave.
Result<Window> window_of(const Call& c, const std::string& bytes) {
  CULET_TRY(int64_t start, int_arg(c, 1, 0));
  CULET_TRY(int64_t end, int_arg(c, 2, INT64_MAX));
  if (start == 0 && end == INT64_MAX) return Window{0, bytes.size(), true};
  const int64_t size = static_cast<int64_t>(unicode::count(bytes));
  if (start < 0) start = std::max<int64_t>(start + size, 0);
  if (end < 0) end = std::max<int64_t>(end + size, 0);
  end = std::min(end, size);
  if (start > end) return Window{0, 0, false};
  return Window{unicode::offset(bytes, static_cast<size_t>(start)),
                unicode::offset(bytes, static_cast<size_t>(end)), true};
}

Result<int64_t> find(Call& c, bool from_end) {
  CULET_TRY(const Value s, self_string(c));
  CULET_TRY(const String* what, string_arg(c, 0));
  if (what == nullptr) return call_failure(c, "needs a str to look for");
  const std::string& bytes = s.text()->bytes();
  CULET_TRY(const Window w, window_of(c, bytes));
  if (!w.valid) return -1;
  const std::string_view part = std::string_view(bytes).substr(w.from, w.to - w.from);
  const size_t at =
      from_end ? find_last_text(part, what->text.bytes()) : find_text(part, what->text.bytes());
  if (at == std::string_view::npos) return -1;
  return static_cast<int64_t>(unicode::count(std::string_view(bytes).substr(0, w.from + at)));
}

Result<Value> index_of(Call& c, bool from_end) {
  CULET_TRY(const int64_t at, find(c, from_end));
  if (at < 0) return call_failure(c, "finds no such text");
  return Value(at);
}

template <class F>
Result<Value> any_affix(Call& c, F&& matches) {
  CULET_TRY(const Value s, self_string(c));
  CULET_TRY(const Window w, window_of(c, s.text()->bytes()));
  const std::string_view part = std::string_view(s.text()->bytes()).substr(w.from, w.to - w.from);
  const Value& affix = *c.arg(0);
  if (affix.text() != nullptr) return Value(w.valid && matches(part, affix.text()->bytes()));
  const List* list = affix.list();
  if (list == nullptr || list->flavor != Flavor::kTuple) {
    return call_failure(c, "needs a str or a tuple of them");
  }
  for (const Value& item : list->items) {
    if (item.text() == nullptr) return call_failure(c, "needs a str or a tuple of them");
    if (w.valid && matches(part, item.text()->bytes())) return Value(true);
  }
  return Value(false);
}

}  // namespace

Result<Value> string_find(Call& c) {
  CULET_TRY(const int64_t at, find(c, false));
  return Value(at);
}
Result<Value> string_rfind(Call& c) {
  CULET_TRY(const int64_t at, find(c, true));
  return Value(at);
}
Result<Value> string_index(Call& c) { return index_of(c, false); }
Result<Value> string_rindex(Call& c) { return index_of(c, true); }

Result<Value> string_startswith(Call& c) {
  return any_affix(c, [](std::string_view s, std::string_view a) { return s.starts_with(a); });
}
Result<Value> string_endswith(Call& c) {
  return any_affix(c, [](std::string_view s, std::string_view a) { return s.ends_with(a); });
}

Result<Value> string_count(Call& c) {
  CULET_TRY(const Value s, self_string(c));
  CULET_TRY(const String* what, string_arg(c, 0));
  if (what == nullptr) return call_failure(c, "needs a str to look for");
  const std::string& bytes = s.text()->bytes();
  CULET_TRY(const Window w, window_of(c, bytes));
  if (!w.valid) return Value(int64_t{0});
  if (!pay_search(c, bytes.size() + 1, what->text.size())) return limit_failure(c);
  const std::string part = bytes.substr(w.from, w.to - w.from);
  return Value(static_cast<int64_t>(find_all(part, what->text.bytes(), -1).size()));
}

// ---- classes ----

namespace {

template <class F>
Result<Value> all_characters(Call& c, F&& holds) {
  CULET_TRY(const Value s, self_string(c));
  const std::string& bytes = s.text()->bytes();
  if (bytes.empty()) return Value(false);
  for (size_t at = 0; at < bytes.size();) {
    const unicode::Character ch = unicode::decode(bytes, at);
    if (!holds(ch.code)) return Value(false);
    at += ch.size;
  }
  return Value(true);
}

// Some character of `wanted` case and none of `other`.
using IsCase = bool (*)(uint32_t);
Result<Value> one_case(Call& c, IsCase wanted, IsCase other) {
  CULET_TRY(const Value s, self_string(c));
  const std::string& bytes = s.text()->bytes();
  bool found = false;
  for (size_t at = 0; at < bytes.size();) {
    const unicode::Character ch = unicode::decode(bytes, at);
    if (other(ch.code)) return Value(false);
    found = found || wanted(ch.code);
    at += ch.size;
  }
  return Value(found);
}

}  // namespace

Result<Value> string_isalpha(Call& c) { return all_characters(c, unicode::is_alpha); }
Result<Value> string_isdigit(Call& c) { return all_characters(c, unicode::is_digit); }
Result<Value> string_isspace(Call& c) { return all_characters(c, unicode::is_space); }
Result<Value> string_isalnum(Call& c) {
  return all_characters(
      c, [](uint32_t code) { return unicode::is_alpha(code) || unicode::is_digit(code); });
}
Result<Value> test_lower(Call& c) { return one_case(c, unicode::is_lower, unicode::is_upper); }
Result<Value> test_upper(Call& c) { return one_case(c, unicode::is_upper, unicode::is_lower); }

// ---- markup and formatting ----

Result<Value> filter_string(Call& c) { return to_string(factory(c), c.self); }

Result<Value> filter_safe(Call& c) {
  CULET_TRY(const Value s, self_string(c));
  return factory(c).string(*s.text(), true);
}

Result<Value> filter_escape(Call& c) {
  if (markup_of(c.self)) return c.self;
  CULET_TRY(const Value s, self_string(c));
  if (!factory(c).budget().fits(6 * s.text()->footprint())) return limit_failure(c);
  return factory(c).string(escape_html(*s.text()), true);
}

Result<Value> string_format(Call& c) { return format_braces(c.in, *c.self.string(), c.arguments); }

Result<Value> filter_format(Call& c) {
  CULET_TRY(const Value s, self_string(c));
  const Arguments& a = c.arguments;
  if (!a.positional.empty() && !a.named.empty()) {
    return call_failure(c, "takes positional or named values, not both");
  }
  if (a.named.empty()) {
    CULET_TRY(const Value values, factory(c).list(a.positional, Flavor::kTuple));
    return format_percent(factory(c), *s.string(), values);
  }
  std::vector<std::pair<Value, Value>> pairs;
  for (const auto& [name, value] : a.named) {
    CULET_TRY(Value key, factory(c).string(name));
    pairs.emplace_back(std::move(key), value);
  }
  CULET_TRY(const Value values, factory(c).dict(std::move(pairs)));
  return format_percent(factory(c), *s.string(), values);
}

}  // namespace culet::chat
