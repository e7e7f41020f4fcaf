// Filters over sequences and numbers, and the global functions. Each row of filters.def names one.
#include "base/numbers.h"
#include "template/native.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <time.h>

namespace culet::chat {

// ---- attribute paths ("a.b.0"), as map, sort and others take them ----

namespace {

// The item that an attribute argument names: parts between dots, digits being indices.
Result<Value> follow_path(Call& c, Value item, const Value& path) {
  if (path.text() == nullptr) return get_item(c.in, item, path);
  std::string_view rest = path.text()->bytes();
  while (true) {
    const size_t dot = std::min(rest.find('.'), rest.size());
    const std::string_view part = rest.substr(0, dot);
    int64_t index = 0;
    const auto parsed = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool number = !part.empty() && parsed.ec == std::errc() &&
                        parsed.ptr == part.data() + part.size() && part[0] != '-';
    Value key(index);
    if (!number) {
      CULET_TRY(key, factory(c).string(std::string(part)));
    }
    CULET_TRY(item, get_item(c.in, item, key));
    if (dot == rest.size()) return item;
    rest.remove_prefix(dot + 1);
  }
}

// Strings in lower case when case does not count; everything else as it is.
Result<Value> fold_case(Call& c, Value v, bool case_sensitive) {
  if (case_sensitive || v.text() == nullptr) return v;
  return c.in.apply_filter("lower", v, {});
}

Result<Value> sort_key(Call& c, const Value& item, const Value* path, bool case_sensitive) {
  if (path == nullptr || path->is_none()) return fold_case(c, item, case_sensitive);
  CULET_TRY(Value key, follow_path(c, item, *path));
  return fold_case(c, std::move(key), case_sensitive);
}

struct Keyed {
  Value key, item;
};

// Merges the sorted halves [from, middle) and [middle, to) of `in` into `out`.
template <class F>
Result<void> merge(std::vector<Keyed>& in, std::vector<Keyed>& out, size_t from, size_t middle,
                   size_t to, F&& less) {
  size_t left = from, right = middle;
  for (size_t at = from; at < to; ++at) {
    bool take_right = left == middle;
    if (left < middle && right < to) {
      CULET_TRY(take_right, less(in[right], in[left]));
    }
    out[at] = std::move(in[take_right ? right++ : left++]);
  }
  return {};
}

// A stable merge sort: unlike the library's it may stop with an error, and an order that
// contradicts itself (NaN) cannot lead it astray.
Result<std::vector<Value>> sort_keyed(Call& c, std::vector<Keyed> keyed, bool reverse) {
  const auto less = [&](const Keyed& a, const Keyed& b) -> Result<bool> {
    CULET_TRY(const int o, order(factory(c), reverse ? b.key : a.key, reverse ? a.key : b.key));
    return o < 0;
  };
  std::vector<Keyed> merged(keyed.size());
  for (size_t width = 1; width < keyed.size(); width *= 2) {
    for (size_t from = 0; from < keyed.size(); from += 2 * width) {
      const size_t middle = std::min(from + width, keyed.size());
      CULET_TRY_VOID(
          merge(keyed, merged, from, middle, std::min(middle + width, keyed.size()), less));
    }
    std::swap(keyed, merged);
  }
  std::vector<Value> items;
  items.reserve(keyed.size());
  for (Keyed& k : keyed) items.push_back(std::move(k.item));
  return items;
}

}  // namespace

// ---- sequences ----

Result<Value> filter_length(Call& c) {
  CULET_TRY(const int64_t n, length(factory(c), c.self));
  return Value(n);
}

Result<Value> filter_list(Call& c) {
  CULET_TRY(std::vector<Value> items, iterate(factory(c), c.self));
  return factory(c).list(std::move(items));
}

Result<Value> filter_first(Call& c) {
  if (const String* s = c.self.string()) return character_at(factory(c), *s, 0);
  if (const List* l = c.self.list(); l != nullptr) {
    const size_t at = l->has_length() ? 0 : l->taken;
    if (at >= l->items.size()) return Value();
    if (!l->has_length()) ++l->taken;
    return l->items[at];
  }
  CULET_TRY(const std::vector<Value> items, iterate(factory(c), c.self));
  return items.empty() ? Value() : items.front();
}

Result<Value> filter_last(Call& c) {
  if (const String* s = c.self.string()) return character_at(factory(c), *s, -1);
  if (const List* l = c.self.list()) {
    if (!l->has_length()) return call_failure(c, "cannot go back from the end of a generator");
    return l->items.empty() ? Value() : l->items.back();
  }
  CULET_TRY(const std::vector<Value> items, iterate(factory(c), c.self));
  return items.empty() ? Value() : items.back();
}

Result<Value> filter_items(Call& c) {
  std::vector<Value> pairs;
  if (c.self.is_undefined()) return factory(c).list({}, Flavor::kGenerator);
  const Dict* d = c.self.dict();
  if (d == nullptr) return call_failure(c, "needs a dict");
  for (const auto& [key, value] : d->items) {
    CULET_TRY(Value pair, tuple(factory(c), key, value));
    pairs.push_back(std::move(pair));
  }
  return factory(c).list(std::move(pairs), Flavor::kGenerator);
}

Result<Value> filter_reverse(Call& c) {
  if (c.self.string() != nullptr) {
    return slice(factory(c), c.self, Value(None{}), Value(None{}), Value(int64_t{-1}));
  }
  CULET_TRY(std::vector<Value> items, iterate(factory(c), c.self));
  std::reverse(items.begin(), items.end());
  return factory(c).list(std::move(items), Flavor::kGenerator);
}

Result<Value> filter_join(Call& c) {
  CULET_TRY(std::vector<Value> items, iterate(factory(c), c.self));
  Text separator;
  if (c.arg(0) != nullptr) {
    CULET_TRY(separator, to_text(factory(c), *c.arg(0)));
  }
  if (!fits_times(c, separator.footprint(), items.size())) return limit_failure(c);
  Text out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (given(c, 1)) {
      CULET_TRY(items[i], follow_path(c, items[i], *c.arg(1)));
    }
    if (i > 0) out.append(separator);
    CULET_TRY_VOID(append_str(factory(c), out, items[i]));
    if (!factory(c).budget().fits(out.footprint())) return limit_failure(c);
  }
  return factory(c).string(std::move(out));
}

Result<Value> filter_sort(Call& c) {
  CULET_TRY(std::vector<Value> items, iterate(factory(c), c.self));
  std::vector<Keyed> keyed;
  for (Value& item : items) {
    CULET_TRY(Value key, sort_key(c, item, c.arg(2), bool_arg(c, 1, false)));
    keyed.push_back({std::move(key), std::move(item)});
  }
  CULET_TRY(items, sort_keyed(c, std::move(keyed), bool_arg(c, 0, false)));
  return factory(c).list(std::move(items));
}

Result<Value> filter_dictsort(Call& c) {
  const Dict* d = c.self.dict();
  if (d == nullptr) return call_failure(c, "needs a dict");
  bool by_value = false;
  if (c.arg(1) != nullptr) {
    const Text* by = c.arg(1)->text();
    by_value = by != nullptr && by->bytes() == "value";
    if (by == nullptr || (!by_value && by->bytes() != "key")) {
      return call_failure(c, "sorts by 'key' or by 'value'");
    }
  }
  std::vector<Keyed> keyed;
  for (const auto& [key, value] : d->items) {
    CULET_TRY(Value by, fold_case(c, by_value ? value : key, bool_arg(c, 0, false)));
    CULET_TRY(Value pair, tuple(factory(c), key, value));
    keyed.push_back({std::move(by), std::move(pair)});
  }
  CULET_TRY(std::vector<Value> items, sort_keyed(c, std::move(keyed), bool_arg(c, 2, false)));
  return factory(c).list(std::move(items));
}

Result<Value> filter_unique(Call& c) {
  CULET_TRY(std::vector<Value> items, iterate(factory(c), c.self));
  std::vector<std::pair<Value, Value>> first;  // a dict keeps the first key, in order
  for (Value& item : items) {
    CULET_TRY(Value key, sort_key(c, item, c.arg(1), bool_arg(c, 0, false)));
    first.emplace_back(std::move(key), Value(static_cast<int64_t>(first.size())));
  }
  std::reverse(first.begin(), first.end());
  CULET_TRY(const Value seen, factory(c).dict(std::move(first)));
  std::vector<size_t> kept;
  kept.reserve(seen.dict()->items.size());
  for (const auto& [key, place] : seen.dict()->items) {
    kept.push_back(static_cast<size_t>(place.as_int()));
  }
  std::sort(kept.begin(), kept.end());
  std::vector<Value> out;
  out.reserve(kept.size());
  for (const size_t i : kept) out.push_back(std::move(items[i]));
  return factory(c).list(std::move(out), Flavor::kGenerator);
}

namespace {

Result<Value> extreme(Call& c, int sign) {
  CULET_TRY(std::vector<Value> items, iterate(factory(c), c.self));
  Value best, best_key;
  for (size_t i = 0; i < items.size(); ++i) {
    CULET_TRY(Value key, sort_key(c, items[i], c.arg(1), bool_arg(c, 0, false)));
    if (i > 0) {
      CULET_TRY(const int o, order(factory(c), key, best_key));
      if (o * sign <= 0) continue;
    }
    best = items[i];
    best_key = std::move(key);
  }
  return best;
}

}  // namespace

Result<Value> filter_max(Call& c) { return extreme(c, 1); }
Result<Value> filter_min(Call& c) { return extreme(c, -1); }

Result<Value> filter_sum(Call& c) {
  CULET_TRY(const std::vector<Value> items, iterate(factory(c), c.self));
  Value total = c.arg(1) != nullptr ? *c.arg(1) : Value(int64_t{0});
  if (total.text() != nullptr) return call_failure(c, "adds numbers, not strings");
  for (Value item : items) {
    if (given(c, 0)) {
      CULET_TRY(item, follow_path(c, item, *c.arg(0)));
    }
    CULET_TRY(total, arithmetic(factory(c), Op::kAdd, total, item));
  }
  return total;
}

Result<Value> filter_attr(Call& c) {
  CULET_TRY(const String* name, string_arg(c, 0));
  const Name* known = name != nullptr ? c.in.names().find(name->text.bytes()) : nullptr;
  if (known == nullptr || c.self.dict() != nullptr) return Value();
  return get_attribute(c.in, c.self, *known);
}

// ---- map, select and their kin ----

namespace {

// The arguments for the filter or test that this one applies to each item.
Arguments rest_of(const Call& c, size_t from) {
  Arguments rest;
  factory(c).budget().spend(static_cast<int64_t>(c.arguments.positional.size() / 4));
  for (size_t i = from; i < c.arguments.positional.size(); ++i) {
    rest.positional.push_back(c.arguments.positional[i]);
  }
  rest.named = c.arguments.named;
  return rest;
}

Result<Value> map_attribute(Call& c, const Value& item) {
  const Value *path = nullptr, *fallback = nullptr;
  for (const auto& [name, value] : c.arguments.named) {
    if (name == "attribute") path = &value;
    if (name == "default") fallback = &value;
  }
  if (path == nullptr) return call_failure(c, "needs the name of a filter or an attribute");
  CULET_TRY(Value out, follow_path(c, item, *path));
  return out.is_undefined() && fallback != nullptr ? *fallback : out;
}

Result<bool> passes(Call& c, const Value& subject, size_t test_at) {
  if (c.arguments.positional.size() <= test_at) return truth(subject);
  const Text* test = c.arguments.positional[test_at].text();
  if (test == nullptr) return call_failure(c, "needs the name of a test");
  return c.in.apply_test(test->bytes(), subject, rest_of(c, test_at + 1));
}

Result<Value> select(Call& c, bool by_attribute, bool wanted) {
  if (!truth(c.self)) return factory(c).list({}, Flavor::kGenerator);  // none and 0 too
  CULET_TRY(const std::vector<Value> items, iterate(factory(c), c.self));
  if (by_attribute && c.arguments.positional.empty()) {
    return call_failure(c, "needs the name of an attribute");
  }
  std::vector<Value> out;
  for (const Value& item : items) {
    Value subject = item;
    if (by_attribute) {
      CULET_TRY(subject, follow_path(c, item, c.arguments.positional[0]));
    }
    CULET_TRY(const bool passed, passes(c, subject, by_attribute ? 1 : 0));
    if (passed == wanted) out.push_back(item);
  }
  return factory(c).list(std::move(out), Flavor::kGenerator);
}

}  // namespace

Result<Value> filter_map(Call& c) {
  if (!truth(c.self)) return factory(c).list({}, Flavor::kGenerator);  // none and 0 too
  CULET_TRY(std::vector<Value> items, iterate(factory(c), c.self));
  const bool filter = !c.arguments.positional.empty();
  const Text* name = filter ? c.arguments.positional[0].text() : nullptr;
  if (filter && name == nullptr) return call_failure(c, "needs the name of a filter");
  for (Value& item : items) {
    if (filter) {
      CULET_TRY(item, c.in.apply_filter(name->bytes(), item, rest_of(c, 1)));
    } else {
      CULET_TRY(item, map_attribute(c, item));
    }
  }
  return factory(c).list(std::move(items), Flavor::kGenerator);
}

Result<Value> filter_select(Call& c) { return select(c, false, true); }
Result<Value> filter_reject(Call& c) { return select(c, false, false); }
Result<Value> filter_selectattr(Call& c) { return select(c, true, true); }
Result<Value> filter_rejectattr(Call& c) { return select(c, true, false); }

// ---- scalars ----

Result<Value> filter_default(Call& c) {
  const bool absent = c.self.is_undefined() || (bool_arg(c, 1, false) && !truth(c.self));
  if (!absent) return c.self;
  return c.arg(0) != nullptr ? Result<Value>(*c.arg(0)) : factory(c).string("");
}

Result<Value> filter_abs(Call& c) {
  if (!c.self.is_number()) return call_failure(c, "needs a number");
  if (c.self.is_float()) return Value(std::fabs(c.self.as_double()));
  return c.self.as_int() < 0 ? negate(c.self) : Value(c.self.as_int());
}

namespace {

// The digits of a number as Python's int() and float() take them: trimmed, single underscores out.
std::string number_text(const Text& text) {
  const std::string& bytes = text.bytes();
  const size_t from = unicode::skip_space(bytes, 0);
  std::string_view core = std::string_view(bytes).substr(from);
  core = core.substr(0, unicode::strip_end(core));
  std::string out;
  for (size_t i = 0; i < core.size(); ++i) {
    const bool joins =
        core[i] == '_' && i > 0 && i + 1 < core.size() && core[i - 1] != '_' && core[i + 1] != '_';
    if (!joins) out += core[i];
  }
  return out;
}

std::optional<int64_t> parse_int(std::string text, int64_t base) {
  if (base < 2 || base > 36 || text.empty()) return std::nullopt;
  if (text[0] == '+') text.erase(0, 1);
  const size_t digits = text.starts_with('-') ? 1 : 0;
  const char mark = base == 16 ? 'x' : (base == 8 ? 'o' : (base == 2 ? 'b' : '\0'));
  if (mark != '\0' && text.size() > digits + 2 && text[digits] == '0' &&
      (text[digits + 1] | 0x20) == mark) {
    text.erase(digits, 2);
  }
  int64_t out = 0;
  const char* last = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), last, out, static_cast<int>(base));
  if (parsed.ec != std::errc() || parsed.ptr != last) return std::nullopt;
  return out;
}

std::optional<double> parse_float(std::string text) {
  if (text.starts_with('+')) text.erase(0, 1);
  if (text.find('(') != std::string::npos) return std::nullopt;
  return base::parse_double(text);
}

std::optional<int64_t> truncate_to_int(double d) {
  if (!(std::fabs(d) < 9.2e18)) return std::nullopt;
  return static_cast<int64_t>(d);
}

}  // namespace

Result<Value> filter_int(Call& c) {
  CULET_TRY(const int64_t base, int_arg(c, 1, 10));
  if (c.self.is_undefined()) return call_failure(c, "is given a value that is undefined");
  std::optional<int64_t> out;
  if (c.self.is_integral()) out = c.self.as_int();
  if (c.self.is_float()) out = truncate_to_int(c.self.as_double());
  if (const Text* t = c.self.text(); t != nullptr && t->size() < 1000) {
    out = parse_int(number_text(*t), base);
    if (!out) {
      const std::optional<double> d = parse_float(number_text(*t));
      if (d) out = truncate_to_int(*d);
    }
  }
  if (out) return Value(*out);
  return c.arg(0) != nullptr ? *c.arg(0) : Value(int64_t{0});
}

Result<Value> filter_float(Call& c) {
  if (c.self.is_undefined()) return call_failure(c, "is given a value that is undefined");
  std::optional<double> out;
  if (c.self.is_number()) out = c.self.as_double();
  if (const Text* t = c.self.text(); t != nullptr && t->size() < 1000) {
    out = parse_float(number_text(*t));
  }
  if (out) return Value(*out);
  return c.arg(0) != nullptr ? *c.arg(0) : Value(0.0);
}

namespace {

// round() of Python: to the nearest decimal, which to_chars rounds exactly.
double round_decimal(double d, int64_t precision) {
  if (!std::isfinite(d) || precision > 300) return d;
  if (precision < -300) return 0;
  if (precision < 0) {
    const double unit = std::pow(10.0, static_cast<double>(-precision));
    return std::nearbyint(d / unit) * unit;
  }
  char buffer[700];
  const auto written = std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::fixed,
                                     static_cast<int>(precision));
  return base::parse_double({buffer, static_cast<size_t>(written.ptr - buffer)}).value_or(d);
}

}  // namespace

Result<Value> filter_round(Call& c) {
  if (!c.self.is_number()) return call_failure(c, "needs a number");
  CULET_TRY(const int64_t precision, int_arg(c, 0, 0));
  CULET_TRY(const String* method, string_arg(c, 1));
  const std::string how = method != nullptr ? method->text.bytes() : "common";
  if (how == "common") {
    if (c.self.is_integral() && precision >= 0) return Value(c.self.as_int());
    const double rounded = round_decimal(c.self.as_double(), precision);
    return c.self.is_integral() ? Value(static_cast<int64_t>(rounded)) : Value(rounded);
  }
  if (how != "ceil" && how != "floor") return call_failure(c, "knows common, ceil and floor");
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = c.self.as_double() * scale;
  return Value((how == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

namespace {

// An indent of that many blanks, or the given text.
Result<std::optional<Text>> json_indent(Call& c, const Value* v) {
  if (v == nullptr || v->is_none()) return std::nullopt;
  if (v->text() != nullptr && v->text()->size() <= 1000) return *v->text();
  if (v->is_integral() && v->as_int() <= 1000) {
    return Text(std::string(static_cast<size_t>(std::max<int64_t>(v->as_int(), 0)), ' '), false);
  }
  return call_failure(c, "needs an indent of at most 1000");
}

}  // namespace

Result<Value> filter_tojson(Call& c) {
  JsonStyle style;
  style.ascii = bool_arg(c, 0, false);
  style.sort_keys = bool_arg(c, 3, false);
  CULET_TRY(style.indent, json_indent(c, c.arg(1)));
  style.item_separator = Text(style.indent ? "," : ", ", false);
  style.key_separator = Text(": ", false);
  if (given(c, 2)) {
    const List* pair = c.arg(2)->list();
    if (pair == nullptr || pair->items.size() != 2 || pair->items[0].text() == nullptr ||
        pair->items[1].text() == nullptr) {
      return call_failure(c, "needs two strings as separators");
    }
    style.item_separator = *pair->items[0].text();
    style.key_separator = *pair->items[1].text();
  }
  Text out;
  CULET_TRY_VOID(append_json(factory(c), out, c.self, style));
  return factory(c).string(std::move(out));
}

// ---- functions ----

Result<Value> function_range(Call& c) {
  constexpr int64_t kMaxRange = 100'000;  // jinja2's sandbox allows as many
  CULET_TRY(int64_t start, int_arg(c, 0, 0));
  CULET_TRY(int64_t stop, int_arg(c, 1, start));
  CULET_TRY(const int64_t step, int_arg(c, 2, 1));
  if (c.arg(1) == nullptr) start = 0;
  if (step == 0) return call_failure(c, "needs a step other than zero");
  std::vector<Value> items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<int64_t>(items.size()) == kMaxRange) {
      return call_failure(c, "makes at most " + std::to_string(kMaxRange) + " numbers");
    }
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  if (!factory(c).budget().spend(static_cast<int64_t>(items.size() / 4))) return limit_failure(c);
  return factory(c).list(std::move(items), Flavor::kRange);
}

namespace {

// The pairs that dict(...) and namespace(...) are made of.
Result<Value> dict_of_arguments(Call& c) {
  std::vector<std::pair<Value, Value>> pairs;
  if (c.arguments.positional.size() > 1) return call_failure(c, "takes one dict and names");
  if (!c.arguments.positional.empty()) {
    const Value& from = c.arguments.positional[0];
    if (const Dict* d = from.dict()) {
      pairs = d->items;
    } else {
      CULET_TRY(const std::vector<Value> items, iterate(factory(c), from));
      for (const Value& item : items) {
        CULET_TRY(std::vector<Value> pair, iterate(factory(c), item));
        if (pair.size() != 2) return call_failure(c, "needs pairs of a key and a value");
        pairs.emplace_back(std::move(pair[0]), std::move(pair[1]));
      }
    }
  }
  for (const auto& [name, value] : c.arguments.named) {
    CULET_TRY(Value key, factory(c).string(name));
    pairs.emplace_back(std::move(key), value);
  }
  return factory(c).dict(std::move(pairs));
}

}  // namespace

Result<Value> function_dict(Call& c) { return dict_of_arguments(c); }

Result<Value> function_namespace(Call& c) {
  CULET_TRY(const Value dict, dict_of_arguments(c));
  Namespace* space = c.in.new_namespace();
  for (const auto& [key, value] : dict.dict()->items) {
    if (key.text() != nullptr) space->items[key.text()->bytes()] = value;
  }
  return Value(space);
}

Result<Value> function_raise_exception(Call& c) {
  CULET_TRY(const Text message, to_text(factory(c), *c.arg(0)));
  return tl::unexpected<Error>(c.in.raised(message.bytes().substr(0, 4096)));
}

Result<Value> function_strftime_now(Call& c) {
  CULET_TRY(const String* format, string_arg(c, 0));
  if (format == nullptr) return call_failure(c, "needs a format");
  const time_t now = time(nullptr);
  tm local{};
  localtime_r(&now, &local);
  const base::CLocale c_locale;  // names of months and days in English
  const Text& text = format->text;
  if (!fits_times(c, 16, text.size())) return limit_failure(c);
  Text out;
  for (size_t i = 0; i < text.size();) {
    size_t size = 1;
    if (text.bytes()[i] == '%') {
      size = 2 + (i + 1 < text.size() && text.bytes()[i + 1] == '-' ? 1 : 0);
    }
    size = std::min(size, text.size() - i);
    if (size == 1) {
      out.append(text, i, 1);
    } else {
      char buffer[128];
      const std::string directive = text.bytes().substr(i, size);
      const size_t written = strftime(buffer, sizeof buffer, directive.c_str(), &local);
      out.append({buffer, written}, text.source_at(i));
    }
    i += size;
  }
  return factory(c).string(std::move(out));
}

// ---- loop methods ----

Result<Value> loop_cycle(Call& c) {
  const std::vector<Value>& values = c.arguments.positional;
  if (values.empty()) return call_failure(c, "needs something to cycle through");
  return values[c.self.loop()->index % values.size()];
}

Result<Value> loop_changed(Call& c) {
  CULET_TRY(Value now, factory(c).list(c.arguments.positional, Flavor::kTuple));
  LoopState& loop = *c.self.loop();
  if (loop.changed) {
    CULET_TRY(const bool same, equal(factory(c), *loop.changed, now));
    if (same) return Value(false);
  }
  if (loop.statement != nullptr) loop.changed = std::move(now);  // a finished loop keeps nothing
  return Value(true);
}

}  // namespace culet::chat
