// Values: text with provenance, shared immutable containers, and the budget that bounds them.
//
// Provenance is a list of runs beside the bytes: almost every string has one or two, so slices and
// joins cost little more than the copy of the bytes. Dicts keep their items in insertion order and
// an index sorted by key: lookups are logarithmic whatever the keys are, with no hash to attack.
#include "template/value.h"

#include "template/runtime.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace culet::chat {

Text::Text(std::string bytes, Source source) : bytes_(std::move(bytes)) {
  if (!bytes_.empty()) runs_.push_back({bytes_.size(), source});
}

void Text::append(std::string_view bytes, Source source) {
  if (bytes.empty()) return;
  bytes_.append(bytes);
  if (!runs_.empty() && runs_.back().source == source) {
    runs_.back().end = bytes_.size();
  } else {
    runs_.push_back({bytes_.size(), source});
  }
}

void Text::append(const Text& other, size_t from, size_t count) {
  if (count == 0) return;
  const auto end_of = [](const Run& run, size_t at) { return run.end <= at; };
  auto run = std::lower_bound(other.runs_.begin(), other.runs_.end(), from, end_of);
  const size_t stop = from + count;
  for (size_t at = from; at < stop; ++run) {
    const size_t end = std::min(run->end, stop);
    append(std::string_view(other.bytes_).substr(at, end - at), run->source);
    at = end;
  }
}

Text Text::slice(size_t from, size_t count) const {
  Text out;
  out.append(*this, from, count);
  return out;
}

Source Text::source_at(size_t byte) const {
  const auto end_of = [](const Run& run, size_t at) { return run.end <= at; };
  return std::lower_bound(runs_.begin(), runs_.end(), byte, end_of)->source;
}

bool Text::has_user() const {
  return std::any_of(runs_.begin(), runs_.end(), [](const Run& run) { return run.source.user; });
}

bool Budget::fits(size_t bytes) {
  if (bytes > memory_ || live_ > memory_ - bytes) {
    if (broken_ == Broken::kNone) broken_ = Broken::kMemory;
  }
  return broken_ == Broken::kNone;
}

void Budget::hold(size_t bytes) {
  fits(bytes);
  live_ += bytes;
}

const Text* Value::text() const {
  const String* s = string();
  return s != nullptr ? &s->text : nullptr;
}

int Value::height() const {
  if (const List* l = list()) return l->height;
  if (const Dict* d = dict()) return d->height;
  if (const Method* m = method()) return m->self.height() + 1;
  if (const LoopState* l = loop()) return l->height();
  return 0;
}

namespace {

const char* list_type_name(Flavor flavor) {
  static constexpr const char* kNames[] = {"list",      "tuple",       "range",     "generator",
                                           "dict_keys", "dict_values", "dict_items"};
  return kNames[static_cast<int>(flavor)];
}

}  // namespace

const char* Value::type_name() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "NoneType";
  if (is_bool()) return "bool";
  if (is_int()) return "int";
  if (is_float()) return "float";
  if (string() != nullptr) return "str";
  if (const List* l = list()) return list_type_name(l->flavor);
  if (dict() != nullptr) return "dict";
  if (macro() != nullptr) return "Macro";
  if (method() != nullptr) return "method";
  if (loop() != nullptr) return "LoopContext";
  if (name_space() != nullptr) return "Namespace";
  return "function";
}

bool Value::same_object(const Value& o) const {
  if (v_.index() != o.v_.index()) return false;
  if (is_none()) return true;
  if (is_undefined()) return false;
  if (is_number()) return as_double() == o.as_double();
  if (const Text* t = text()) return t->bytes() == o.text()->bytes();
  if (list() != nullptr) return list() == o.list();
  if (dict() != nullptr) return dict() == o.dict();
  if (macro() != nullptr) return macro() == o.macro();
  if (method() != nullptr) return method() == o.method();
  if (loop() != nullptr) return loop() == o.loop();
  if (name_space() != nullptr) return name_space() == o.name_space();
  return function() == o.function();
}

bool hashable(const Value& v) {
  if (const List* l = v.list()) return l->flavor == Flavor::kTuple && l->height == 1;
  return v.is_undefined() || v.is_none() || v.is_number() || v.text() != nullptr;
}

namespace {

int key_rank(const Value& v) {
  if (v.is_number()) return 0;
  if (v.text() != nullptr) return 1;
  if (v.list() != nullptr) return 2;
  if (v.is_none()) return 3;
  return v.is_undefined() ? 4 : 5;
}

template <class T>
int three_way(const T& a, const T& b) {
  return a < b ? -1 : (b < a ? 1 : 0);
}

}  // namespace

int compare_keys(const Value& a, const Value& b) {
  const int rank = key_rank(a);
  if (rank != key_rank(b)) return three_way(rank, key_rank(b));
  if (rank == 0) {
    if (a.is_integral() && b.is_integral()) return three_way(a.as_int(), b.as_int());
    const double x = a.as_double(), y = b.as_double();
    if (std::isnan(x) || std::isnan(y)) return three_way(std::isnan(x), std::isnan(y));
    return three_way(x, y);
  }
  if (rank == 1) return three_way(a.text()->bytes(), b.text()->bytes());
  if (rank == 2) {
    const auto &x = a.list()->items, &y = b.list()->items;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (const int c = compare_keys(x[i], y[i]); c != 0) return c;
    }
    return three_way(x.size(), y.size());
  }
  return 0;
}

const Value* Dict::find(const Value& key) const {
  const auto below = [this](uint32_t item, const Value& k) {
    return compare_keys(items[item].first, k) < 0;
  };
  const auto at = std::lower_bound(order.begin(), order.end(), key, below);
  if (at == order.end() || compare_keys(items[*at].first, key) != 0) return nullptr;
  return &items[*at].second;
}

const Value* Dict::find(std::string_view key) const {
  const auto below = [this](uint32_t item, std::string_view k) {
    const int rank = key_rank(items[item].first);
    return rank < 1 || (rank == 1 && items[item].first.text()->bytes() < k);
  };
  const auto at = std::lower_bound(order.begin(), order.end(), key, below);
  if (at == order.end()) return nullptr;
  const Text* found = items[*at].first.text();
  return found != nullptr && found->bytes() == key ? &items[*at].second : nullptr;
}

Error Factory::limit_error() const {
  const bool fuel = budget_->broken() == Budget::Broken::kFuel;
  return Error{ErrorCode::kExhausted,
               fuel ? "used up its evaluation steps" : "needs more memory than a template may use"};
}

Result<Value> Factory::string(Text text, bool markup) const {
  const size_t bytes = text.footprint() + sizeof(String);
  if (!budget_->spend_bytes(bytes) || !budget_->fits(bytes)) {
    return tl::unexpected<Error>(limit_error());
  }
  return Value(std::shared_ptr<const String>(
      new String{.text = std::move(text), .markup = markup, .held = Held(budget_, bytes)}));
}

Result<Value> Factory::list(std::vector<Value> items, Flavor flavor) const {
  int height = 0;
  for (const Value& item : items) height = std::max(height, item.height());
  if (height >= max_height_) return fail(ErrorCode::kExhausted, "nests lists too deeply");
  const size_t bytes = items.size() * sizeof(Value) + sizeof(List);
  if (!budget_->spend_bytes(bytes) || !budget_->fits(bytes)) {
    return tl::unexpected<Error>(limit_error());
  }
  return Value(std::shared_ptr<const List>(new List{.items = std::move(items),
                                                    .flavor = flavor,
                                                    .height = height + 1,
                                                    .held = Held(budget_, bytes)}));
}

Result<Value> Factory::dict(std::vector<std::pair<Value, Value>> items) const {
  int height = 0;
  for (const auto& [key, value] : items) {
    if (!hashable(key)) {
      return fail(ErrorCode::kInvalidArgument,
                  std::string("uses a ") + key.type_name() + " as the key of a dict");
    }
    height = std::max({height, key.height(), value.height()});
  }
  if (height >= max_height_) return fail(ErrorCode::kExhausted, "nests dicts too deeply");
  const int64_t rounds = std::bit_width(items.size());  // of the sort, each reading every key
  for (const auto& [key, value] : items) {
    const size_t size = key.text() != nullptr ? key.text()->size() : 0;
    if (!budget_->spend((1 + static_cast<int64_t>(size / 64)) * rounds)) {
      return tl::unexpected<Error>(limit_error());
    }
  }
  std::vector<uint32_t> order(items.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const int c = compare_keys(items[a].first, items[b].first);
    return c != 0 ? c < 0 : a < b;
  });
  std::vector<bool> repeated(items.size(), false);
  bool any = false;
  for (size_t i = 0, first = 0; i < order.size(); ++i) {
    if (i == first || compare_keys(items[order[first]].first, items[order[i]].first) != 0) {
      first = i;
    } else {
      items[order[first]].second = items[order[i]].second;
      repeated[order[i]] = any = true;
    }
  }
  if (any) {
    std::vector<std::pair<Value, Value>> kept;
    for (size_t i = 0; i < items.size(); ++i) {
      if (!repeated[i]) kept.push_back(std::move(items[i]));
    }
    return dict(std::move(kept));
  }
  const size_t bytes = items.size() * (sizeof(items[0]) + sizeof(uint32_t)) + sizeof(Dict);
  if (!budget_->spend_bytes(bytes) || !budget_->fits(bytes)) {
    return tl::unexpected<Error>(limit_error());
  }
  return Value(std::shared_ptr<const Dict>(new Dict{.items = std::move(items),
                                                    .order = std::move(order),
                                                    .height = height + 1,
                                                    .held = Held(budget_, bytes)}));
}

Value constant_string(std::string bytes) {
  return Value(std::shared_ptr<const String>(new String{
      .text = Text(std::move(bytes), false), .markup = false, .held = Held(nullptr, 0)}));
}

}  // namespace culet::chat
