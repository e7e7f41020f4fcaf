// Python's operators on values: truth, equality, order, arithmetic, membership, items, iteration.
//
// Deep comparisons pay fuel at every step, since shared values let a small list stand for a huge
// tree. Integers are 64 bits wide; where Python would grow them, the result is an error.
#include "template/builtins.h"
#include "template/eval.h"
#include "template/runtime.h"
#include "template/unicode.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace culet::chat {

Error type_error(std::string message) {
  return Error{ErrorCode::kInvalidArgument, std::move(message)};
}

bool truth(const Value& v) {
  if (v.is_undefined() || v.is_none()) return false;
  if (v.is_number()) return v.as_double() != 0;
  if (const Text* t = v.text()) return !t->empty();
  if (const List* l = v.list()) return !l->has_length() || !l->items.empty();
  if (const Dict* d = v.dict()) return !d->items.empty();
  return true;
}

namespace {

tl::unexpected<Error> limit(const Factory& f) { return tl::unexpected<Error>(f.limit_error()); }

std::string quoted_type(const Value& v) { return std::string("'") + v.type_name() + "'"; }

tl::unexpected<Error> undefined_failure(const Undefined& u) {
  return type_failure(u.name != nullptr ? "'" + u.name->substr(0, 200) + "' is undefined"
                                        : std::string("a value that is undefined is used"));
}

bool same_flavor(const List& a, const List& b) {
  return a.flavor == b.flavor && a.flavor != Flavor::kGenerator && a.flavor != Flavor::kValues;
}

Result<bool> equal_lists(const Factory& f, const List& a, const List& b) {
  if (&a == &b) return true;
  if (!same_flavor(a, b) || a.items.size() != b.items.size()) return false;
  for (size_t i = 0; i < a.items.size(); ++i) {
    CULET_TRY(const bool same, equal(f, a.items[i], b.items[i]));
    if (!same) return false;
  }
  return true;
}

Result<bool> equal_dicts(const Factory& f, const Dict& a, const Dict& b) {
  if (&a == &b) return true;
  if (a.items.size() != b.items.size()) return false;
  for (size_t i = 0; i < a.items.size(); ++i) {
    const auto &x = a.items[a.order[i]], &y = b.items[b.order[i]];
    if (compare_keys(x.first, y.first) != 0) return false;
    CULET_TRY(const bool same, equal(f, x.second, y.second));
    if (!same) return false;
  }
  return true;
}

int three_way(double a, double b) { return a < b ? -1 : (b < a ? 1 : 0); }

int order_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) {
    return a.as_int() < b.as_int() ? -1 : (b.as_int() < a.as_int() ? 1 : 0);
  }
  return three_way(a.as_double(), b.as_double());
}

}  // namespace

Result<bool> equal(const Factory& f, const Value& a, const Value& b) {
  const Text *s = a.text(), *t = b.text();
  if (!f.budget().spend_bytes(s != nullptr ? s->size() : 0)) return limit(f);
  if (s != nullptr || t != nullptr) return s != nullptr && t != nullptr && s->bytes() == t->bytes();
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_int() == b.as_int();
    return a.as_double() == b.as_double();
  }
  if (a.list() != nullptr && b.list() != nullptr) return equal_lists(f, *a.list(), *b.list());
  if (a.dict() != nullptr && b.dict() != nullptr) return equal_dicts(f, *a.dict(), *b.dict());
  if (a.is_undefined() && b.is_undefined()) return true;
  return a.same_object(b);
}

Result<int> order(const Factory& f, const Value& a, const Value& b) {
  if (const Undefined* u = a.undefined()) return undefined_failure(*u);
  if (const Undefined* u = b.undefined()) return undefined_failure(*u);
  if (a.is_number() && b.is_number()) return order_numbers(a, b);
  const Text *s = a.text(), *t = b.text();
  if (s != nullptr && t != nullptr) {
    if (!f.budget().spend_bytes(std::min(s->size(), t->size()))) return limit(f);
    return s->bytes().compare(t->bytes());
  }
  const List *x = a.list(), *y = b.list();
  if (x == nullptr || y == nullptr || x->flavor != y->flavor || x->flavor > Flavor::kTuple) {
    return type_failure("values of the types " + quoted_type(a) + " and " + quoted_type(b) +
                        " have no order");
  }
  for (size_t i = 0; i < std::min(x->items.size(), y->items.size()); ++i) {
    CULET_TRY(const bool same, equal(f, x->items[i], y->items[i]));
    if (!same) return order(f, x->items[i], y->items[i]);
  }
  return three_way(static_cast<double>(x->items.size()), static_cast<double>(y->items.size()));
}

Result<bool> compare(const Factory& f, Op op, const Value& a, const Value& b) {
  switch (op) {
    case Op::kEq:
      return equal(f, a, b);
    case Op::kNe: {
      CULET_TRY(const bool same, equal(f, a, b));
      return !same;
    }
    case Op::kIn:
      return contains(f, b, a);
    case Op::kNotIn: {
      CULET_TRY(const bool found, contains(f, b, a));
      return !found;
    }
    default:
      break;
  }
  const bool nan =
      (a.is_float() && std::isnan(a.as_double())) || (b.is_float() && std::isnan(b.as_double()));
  CULET_TRY(const int c, order(f, a, b));
  if (nan) return false;
  if (op == Op::kLt) return c < 0;
  if (op == Op::kLe) return c <= 0;
  return op == Op::kGt ? c > 0 : c >= 0;
}

Result<bool> contains(const Factory& f, const Value& container, const Value& item) {
  if (container.is_undefined()) return false;
  if (const Text* text = container.text()) {
    if (item.text() == nullptr) {
      return type_failure("only a str can be 'in' a str, not a " + quoted_type(item));
    }
    if (!f.budget().spend_bytes(text->size() + item.text()->size())) return limit(f);
    return find_text(text->bytes(), item.text()->bytes()) != std::string_view::npos;
  }
  if (const Dict* d = container.dict()) {
    if (!hashable(item)) return type_failure("a " + quoted_type(item) + " is no key of a dict");
    if (item.text() != nullptr && !f.budget().spend_bytes(item.text()->size())) return limit(f);
    return d->find(item) != nullptr;
  }
  if (container.list() == nullptr) {
    return type_failure("a value of type " + quoted_type(container) + " contains nothing");
  }
  const List& list = *container.list();
  for (size_t i = list.has_length() ? 0 : list.taken; i < list.items.size(); ++i) {
    CULET_TRY(const bool same, equal(f, list.items[i], item));
    if (same) return true;
  }
  return false;
}

// ---- arithmetic ----

namespace {

tl::unexpected<Error> operand_failure(Op op, const Value& a, const Value& b) {
  static constexpr const char* kSigns[] = {"+", "-", "*", "/", "//", "%", "**"};
  if (const Undefined* u = a.undefined()) return undefined_failure(*u);
  if (const Undefined* u = b.undefined()) return undefined_failure(*u);
  return type_failure(std::string("'") + kSigns[static_cast<int>(op)] + "' cannot join " +
                      quoted_type(a) + " and " + quoted_type(b));
}

tl::unexpected<Error> overflow() { return type_failure("an integer grows beyond 64 bits"); }

Result<Value> integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return type_failure("zero is raised to a negative power");
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (true) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return overflow();
    exponent >>= 1;
    if (exponent == 0) return Value(result);
    if (__builtin_mul_overflow(base, base, &base)) return overflow();
  }
}

Result<Value> integers(Op op, int64_t a, int64_t b) {
  int64_t out = 0;
  switch (op) {
    case Op::kAdd:
      if (__builtin_add_overflow(a, b, &out)) return overflow();
      return Value(out);
    case Op::kSub:
      if (__builtin_sub_overflow(a, b, &out)) return overflow();
      return Value(out);
    case Op::kMul:
      if (__builtin_mul_overflow(a, b, &out)) return overflow();
      return Value(out);
    case Op::kPow:
      return integer_power(a, b);
    default:
      break;
  }
  if (b == 0) return type_failure("a number is divided by zero");
  if (op == Op::kDiv) return Value(static_cast<double>(a) / static_cast<double>(b));
  if (b == -1) {
    if (op == Op::kMod) return Value(int64_t{0});
    if (__builtin_sub_overflow(int64_t{0}, a, &out)) return overflow();
    return Value(out);
  }
  const int64_t rest = a % b;
  const bool adjust = rest != 0 && (rest < 0) != (b < 0);
  return Value(op == Op::kMod ? (adjust ? rest + b : rest) : a / b - (adjust ? 1 : 0));
}

Result<Value> floats(Op op, double a, double b) {
  switch (op) {
    case Op::kAdd:
      return Value(a + b);
    case Op::kSub:
      return Value(a - b);
    case Op::kMul:
      return Value(a * b);
    case Op::kPow: {
      if (a == 0 && b < 0) return type_failure("zero is raised to a negative power");
      const double power = std::pow(a, b);
      if (std::isinf(power) && std::isfinite(a) && std::isfinite(b)) {
        return type_failure("a number grows beyond what a float holds");
      }
      if (std::isnan(power) && a < 0) return type_failure("a power has no real value");
      return Value(power);
    }
    default:
      break;
  }
  if (b == 0) return type_failure("a number is divided by zero");
  if (op == Op::kDiv) return Value(a / b);
  double rest = std::fmod(a, b);
  const bool adjust = rest != 0 && (rest < 0) != (b < 0);
  if (adjust) rest += b;
  if (op == Op::kMod) return Value(rest == 0 ? std::copysign(0.0, b) : rest);
  return Value(std::round((a - rest) / b));
}

Result<Value> add_strings(const Factory& f, const String& a, const String& b) {
  const bool markup = a.markup || b.markup;
  if (!f.budget().fits(6 * (a.text.footprint() + b.text.footprint()))) return limit(f);
  Text out = markup && !a.markup ? escape_html(a.text) : a.text;
  out.append(markup && !b.markup ? escape_html(b.text) : b.text);
  return f.string(std::move(out), markup);
}

bool joinable(const List* a, const List* b) {
  return a != nullptr && b != nullptr && a->flavor == b->flavor && a->flavor <= Flavor::kTuple;
}

Result<Value> add_lists(const Factory& f, const List& a, const List& b) {
  if (!f.budget().fits((a.items.size() + b.items.size()) * sizeof(Value))) return limit(f);
  std::vector<Value> items = a.items;
  items.insert(items.end(), b.items.begin(), b.items.end());
  return f.list(std::move(items), a.flavor);
}

// Whether `times` copies of `bytes` may be built.
bool fits_times(const Factory& f, size_t bytes, uint64_t times) {
  size_t total = 0;
  if (__builtin_mul_overflow(bytes, times, &total)) total = std::numeric_limits<size_t>::max();
  return f.budget().fits(total) && f.budget().spend_bytes(total);
}

Result<Value> repeat(const Factory& f, const Value& v, int64_t count) {
  const uint64_t times = count > 0 ? static_cast<uint64_t>(count) : 0;
  if (const String* s = v.string()) {
    if (!fits_times(f, s->text.footprint(), times)) return limit(f);
    Text out;
    if (!s->text.empty()) {
      for (uint64_t i = 0; i < times; ++i) out.append(s->text);
    }
    return f.string(std::move(out), s->markup);
  }
  const List& list = *v.list();
  if (!fits_times(f, list.items.size() * sizeof(Value), times)) return limit(f);
  std::vector<Value> items;
  if (!list.items.empty()) {
    for (uint64_t i = 0; i < times; ++i) {
      items.insert(items.end(), list.items.begin(), list.items.end());
    }
  }
  return f.list(std::move(items), list.flavor);
}

bool repeatable(const Value& v) {
  return v.string() != nullptr || (v.list() != nullptr && v.list()->flavor <= Flavor::kTuple);
}

}  // namespace

Result<Value> arithmetic(const Factory& f, Op op, const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return integers(op, a.as_int(), b.as_int());
  if (a.is_number() && b.is_number()) return floats(op, a.as_double(), b.as_double());
  if (op == Op::kAdd) {
    if (a.string() != nullptr && b.string() != nullptr) {
      return add_strings(f, *a.string(), *b.string());
    }
    if (joinable(a.list(), b.list())) return add_lists(f, *a.list(), *b.list());
  }
  if (op == Op::kMul && b.is_integral() && repeatable(a)) return repeat(f, a, b.as_int());
  if (op == Op::kMul && a.is_integral() && repeatable(b)) return repeat(f, b, a.as_int());
  if (op == Op::kMod && a.string() != nullptr) return format_percent(f, *a.string(), b);
  return operand_failure(op, a, b);
}

Result<Value> negate(const Value& v) {
  if (v.is_float()) return Value(-v.as_double());
  if (v.is_integral()) {
    int64_t out = 0;
    if (__builtin_sub_overflow(int64_t{0}, v.as_int(), &out)) return overflow();
    return Value(out);
  }
  if (const Undefined* u = v.undefined()) return undefined_failure(*u);
  return type_failure("a value of type " + quoted_type(v) + " has no negative");
}

// ---- sequences ----

namespace {

Result<std::vector<Value>> characters(const Factory& f, const String& s) {
  std::vector<Value> out;
  const std::string& bytes = s.text.bytes();
  for (size_t at = 0; at < bytes.size();) {
    const size_t size = unicode::decode(bytes, at).size;
    CULET_TRY(Value c, f.string(s.text.slice(at, size), s.markup));
    out.push_back(std::move(c));
    at += size;
  }
  return out;
}

}  // namespace

Result<std::vector<Value>> iterate(const Factory& f, const Value& v) {
  std::vector<Value> out;
  if (v.is_undefined()) return out;
  if (v.string() != nullptr) return characters(f, *v.string());
  if (const Dict* d = v.dict()) {
    if (!f.budget().fits(d->items.size() * sizeof(Value))) return limit(f);
    for (const auto& item : d->items) out.push_back(item.first);
  } else if (const List* l = v.list()) {
    const size_t from = l->has_length() ? 0 : l->taken;
    if (!f.budget().fits((l->items.size() - from) * sizeof(Value))) return limit(f);
    out.assign(l->items.begin() + static_cast<ptrdiff_t>(from), l->items.end());
    l->taken = l->items.size();
  } else {
    return type_failure("a value of type " + quoted_type(v) + " cannot be iterated over");
  }
  if (!f.budget().spend_bytes(out.size() * sizeof(Value))) return limit(f);
  return out;
}

Result<int64_t> length(const Factory& f, const Value& v) {
  if (v.is_undefined()) return 0;
  if (const Text* t = v.text()) {
    if (!f.budget().spend_bytes(t->size())) return limit(f);
    return static_cast<int64_t>(unicode::count(t->bytes()));
  }
  if (const Dict* d = v.dict()) return static_cast<int64_t>(d->items.size());
  if (const List* l = v.list(); l != nullptr && l->has_length()) {
    return static_cast<int64_t>(l->items.size());
  }
  return type_failure("a value of type " + quoted_type(v) + " has no length");
}

namespace {

struct Bounds {
  int64_t start, stop, step;
};

Result<int64_t> slice_part(const Value& v, int64_t fallback) {
  if (v.is_none()) return fallback;
  if (v.is_integral()) return v.as_int();
  return type_failure("a slice needs integers, not a " + quoted_type(v));
}

// Where a slice of `size` items starts and stops, as Python's slice.indices() says.
Result<Bounds> slice_bounds(int64_t size, const Value& start, const Value& stop,
                            const Value& step) {
  CULET_TRY(const int64_t by, slice_part(step, 1));
  if (by == 0) return type_failure("the step of a slice is zero");
  const int64_t low = by < 0 ? -1 : 0, high = by < 0 ? size - 1 : size;
  const auto clamp = [&](int64_t i) { return std::clamp(i < 0 ? i + size : i, low, high); };
  CULET_TRY(const int64_t from, slice_part(start, 0));
  CULET_TRY(const int64_t to, slice_part(stop, 0));
  return Bounds{start.is_none() ? (by < 0 ? high : low) : clamp(from),
                stop.is_none() ? (by < 0 ? low : high) : clamp(to), by};
}

template <class F>
void for_each_index(const Bounds& b, F&& visit) {
  for (int64_t i = b.start; b.step > 0 ? i < b.stop : i > b.stop;) {
    visit(static_cast<size_t>(i));
    if (__builtin_add_overflow(i, b.step, &i)) break;
  }
}

Result<Value> slice_string(const Factory& f, const String& s, const Value& start, const Value& stop,
                           const Value& step) {
  const std::string& bytes = s.text.bytes();
  if (!f.budget().spend_bytes(bytes.size())) return limit(f);
  CULET_TRY(const Bounds b,
            slice_bounds(static_cast<int64_t>(unicode::count(bytes)), start, stop, step));
  if (b.step == 1) {
    if (b.start >= b.stop) return f.string(Text(), s.markup);
    const size_t from = unicode::offset(bytes, static_cast<size_t>(b.start));
    const size_t count = unicode::offset(std::string_view(bytes).substr(from),
                                         static_cast<size_t>(b.stop - b.start));
    return f.string(s.text.slice(from, count), s.markup);
  }
  if (!f.budget().fits(bytes.size() * sizeof(size_t)) ||
      !f.budget().spend(static_cast<int64_t>(bytes.size() / 16))) {
    return limit(f);
  }
  std::vector<size_t> starts;
  for (size_t at = 0; at < bytes.size(); at += unicode::decode(bytes, at).size) {
    starts.push_back(at);
  }
  starts.push_back(bytes.size());
  Text out;
  for_each_index(b, [&](size_t i) { out.append(s.text, starts[i], starts[i + 1] - starts[i]); });
  return f.string(std::move(out), s.markup);
}

}  // namespace

Result<Value> slice(const Factory& f, const Value& v, const Value& start, const Value& stop,
                    const Value& step) {
  if (v.string() != nullptr) return slice_string(f, *v.string(), start, stop, step);
  if (const Undefined* u = v.undefined()) return undefined_failure(*u);
  if (v.dict() != nullptr) return type_failure("a dict has no slices");
  const List* l = v.list();
  if (l == nullptr || !l->has_index()) return Value();
  CULET_TRY(const Bounds b, slice_bounds(static_cast<int64_t>(l->items.size()), start, stop, step));
  if (!f.budget().fits(l->items.size() * sizeof(Value))) return limit(f);
  std::vector<Value> items;
  for_each_index(b, [&](size_t i) { items.push_back(l->items[i]); });
  return f.list(std::move(items), l->flavor);
}

Result<Value> character_at(const Factory& f, const String& s, int64_t index) {
  const std::string& bytes = s.text.bytes();
  if (!f.budget().spend_bytes(bytes.size())) return limit(f);
  const int64_t count = static_cast<int64_t>(unicode::count(bytes));
  if (index < 0) index += count;
  if (index < 0 || index >= count) return Value();
  const size_t at = unicode::offset(bytes, static_cast<size_t>(index));
  return f.string(s.text.slice(at, unicode::decode(bytes, at).size), s.markup);
}

// ---- searching ----

namespace {

// Knuth, Morris, Pratt; `reverse` reads both texts from the end. Gives the place of the first match
// in that direction. Used for patterns so long that a plain search could become quadratic.
size_t search_linear(std::string_view text, std::string_view what, bool reverse) {
  const auto letter = [reverse](std::string_view s, size_t i) {
    return reverse ? s[s.size() - 1 - i] : s[i];
  };
  std::vector<size_t> border(what.size(), 0);
  for (size_t i = 1, k = 0; i < what.size(); ++i) {
    while (k > 0 && letter(what, i) != letter(what, k)) k = border[k - 1];
    if (letter(what, i) == letter(what, k)) ++k;
    border[i] = k;
  }
  for (size_t i = 0, k = 0; i < text.size(); ++i) {
    while (k > 0 && letter(text, i) != letter(what, k)) k = border[k - 1];
    if (letter(text, i) == letter(what, k)) ++k;
    if (k == what.size()) return reverse ? text.size() - 1 - i : i + 1 - k;
  }
  return std::string_view::npos;
}

constexpr size_t kShortPattern = 32;

}  // namespace

size_t find_text(std::string_view text, std::string_view what, size_t from) {
  if (what.size() <= kShortPattern || from > text.size()) return text.find(what, from);
  const size_t at = search_linear(text.substr(from), what, false);
  return at == std::string_view::npos ? at : from + at;
}

size_t find_last_text(std::string_view text, std::string_view what) {
  return what.size() <= kShortPattern ? text.rfind(what) : search_linear(text, what, true);
}

// ---- attributes and items ----

namespace {

const NativeEntry* find_method(const Value& object, std::string_view name) {
  if (object.string() != nullptr) return find_string_method(name);
  if (object.dict() != nullptr) return find_dict_method(name);
  if (object.loop() != nullptr) return find_loop_method(name);
  const List* l = object.list();
  if (l != nullptr && l->flavor == Flavor::kList) return find_list_method(name);
  return l != nullptr && l->has_index() ? find_tuple_method(name) : nullptr;
}

Result<Value> loop_attribute(Interpreter& in, LoopState& loop, std::string_view name) {
  const int64_t index = static_cast<int64_t>(loop.index);
  if (name == "index") return Value(index + 1);
  if (name == "index0") return Value(index);
  if (name == "first") return Value(index == 0);
  if (name == "depth") return Value(int64_t{loop.level} + 1);
  if (name == "depth0") return Value(int64_t{loop.level});
  if (name == "last" || name == "nextitem" || name == "previtem") {
    CULET_TRY(const std::optional<Value> item, in.loop_item(loop, name == "previtem" ? -1 : 1));
    if (name == "last") return Value(!item.has_value());
    return item.value_or(Value());
  }
  if (name != "length" && name != "revindex" && name != "revindex0") return Value();
  CULET_TRY(const int64_t length, in.loop_length(loop));
  if (name == "length") return Value(length);
  return Value(length - index - (name == "revindex0" ? 1 : 0));
}

Value namespace_item(const Namespace& space, std::string_view name) {
  const auto at = space.items.find(name);
  return at != space.items.end() ? at->second : Value();
}

// The attribute that Python's own object would have, nullopt when it has none.
Result<std::optional<Value>> own_attribute(Interpreter& in, const Value& object,
                                           std::string_view name) {
  if (const NativeEntry* entry = find_method(object, name)) {
    // What would change the object is not given away, as in jinja2's sandbox.
    if (entry->run == nullptr) return Value();
    if (object.height() >= in.factory().max_height()) {
      return fail(ErrorCode::kExhausted, "nests values too deeply");
    }
    return Value(std::make_shared<const Method>(Method{object, entry}));
  }
  if (LoopState* loop = object.loop()) return loop_attribute(in, *loop, name);
  if (const Namespace* space = object.name_space()) return namespace_item(*space, name);
  if (const Macro* macro = object.macro(); macro != nullptr && name == "name") {
    if (macro->node->name == nullptr) return Value(None{});
    return in.factory().string(macro->node->name->text);
  }
  return std::nullopt;
}

Result<Value> plain_item(Interpreter& in, const Value& object, const Value& key) {
  if (const Dict* d = object.dict()) {
    if (!hashable(key)) return Value();
    if (key.text() != nullptr && !in.factory().budget().spend_bytes(key.text()->size())) {
      return limit(in.factory());
    }
    const Value* found = d->find(key);
    return found != nullptr ? *found : Value();
  }
  if (!key.is_integral()) return Value();
  if (object.string() != nullptr) return character_at(in.factory(), *object.string(), key.as_int());
  const List* l = object.list();
  if (l == nullptr || !l->has_index()) return Value();
  const int64_t size = static_cast<int64_t>(l->items.size());
  const int64_t index = key.as_int() < 0 ? key.as_int() + size : key.as_int();
  return index < 0 || index >= size ? Value() : l->items[static_cast<size_t>(index)];
}

}  // namespace

Result<Value> get_attribute(Interpreter& in, const Value& object, const Name& name) {
  if (const Undefined* u = object.undefined()) {
    if (u->name != nullptr) return undefined_failure(*u);
    return type_failure("'" + name.text + "' is asked of a value that is undefined");
  }
  CULET_TRY(std::optional<Value> own, own_attribute(in, object, name.text));
  Value out;
  if (own) {
    out = std::move(*own);
  } else if (const Dict* d = object.dict()) {
    if (const Value* found = d->find(name.text)) return *found;
  }
  return out.is_undefined() ? Value(Undefined{&name.text}) : out;
}

Result<Value> get_item(Interpreter& in, const Value& object, const Value& key) {
  if (const Undefined* u = object.undefined()) return undefined_failure(*u);
  CULET_TRY(Value item, plain_item(in, object, key));
  if (!item.is_undefined() || key.text() == nullptr) return item;
  CULET_TRY(std::optional<Value> own, own_attribute(in, object, key.text()->bytes()));
  if (own) item = std::move(*own);
  if (!item.is_undefined()) return item;
  const Name* name = in.names().find(key.text()->bytes());
  return Value(Undefined{name != nullptr ? &name->text : nullptr});
}

}  // namespace culet::chat
