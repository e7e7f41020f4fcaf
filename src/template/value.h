// Values of the template language: Python's, as far as templates see them, plus provenance of text.
//
// Values are immutable and shared; only a Namespace changes, and namespaces and scopes belong to
// the interpreter, never to a value, so values cannot form a cycle. Lists and dicts know their
// height, which is bounded, so no walk or destructor recurses without a limit. A Budget bounds the
// work and the live bytes of one rendering and must outlive every value made with it.
#pragma once

#include "culet/result.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace culet::chat {

// Where text came from.
struct Source {
  bool user = false;    // from the data; false: the template's own, or the program's
  uint32_t origin = 0;  // the part of the data, as its Mark numbers it; 0: none in particular
  Source(bool from_user = false, uint32_t part = 0)  // NOLINT(google-explicit-constructor)
      : user(from_user), origin(part) {}
  bool operator==(const Source&) const = default;
};

// A string whose every byte is known to come from the template or from the data.
class Text {
 public:
  struct Run {
    size_t end;  // one past the last byte of the run; runs are ascending and never empty
    Source source;
    bool operator==(const Run&) const = default;
  };

  Text() = default;
  Text(std::string bytes, Source source);

  const std::string& bytes() const { return bytes_; }
  const std::vector<Run>& runs() const { return runs_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  size_t footprint() const { return bytes_.size() + runs_.size() * sizeof(Run); }

  void append(std::string_view bytes, Source source);
  void append(const Text& other) { append(other, 0, other.size()); }
  void append(const Text& other, size_t from, size_t count);
  Text slice(size_t from, size_t count) const;
  Source source_at(size_t byte) const;  // byte < size()
  bool has_user() const;

 private:
  std::string bytes_;
  std::vector<Run> runs_;
};

// What one rendering may still spend. Once a limit is hit, `broken` names it and stays.
class Budget {
 public:
  enum class Broken : uint8_t { kNone, kFuel, kMemory };
  Budget(int64_t fuel, size_t memory) : fuel_(fuel), memory_(memory) {}

  bool spend(int64_t steps) {
    fuel_ -= steps;
    if (fuel_ < 0 && broken_ == Broken::kNone) broken_ = Broken::kFuel;
    return broken_ == Broken::kNone;
  }
  // Work over text: one step for each started 64 bytes.
  bool spend_bytes(size_t bytes) { return spend(1 + static_cast<int64_t>(bytes / 64)); }
  // False when `bytes` more would not fit; asks before something big is built.
  bool fits(size_t bytes);
  void hold(size_t bytes);
  void release(size_t bytes) { live_ -= bytes; }
  Broken broken() const { return broken_; }
  bool ok() const { return broken_ == Broken::kNone; }

 private:
  int64_t fuel_;
  size_t memory_;
  size_t live_ = 0;
  Broken broken_ = Broken::kNone;
};

// Bytes held against a budget for as long as the owner lives.
class Held {
 public:
  Held(Budget* budget, size_t bytes) : budget_(budget), bytes_(bytes) {
    if (budget_ != nullptr) budget_->hold(bytes_);
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() {
    if (budget_ != nullptr) budget_->release(bytes_);
  }

 private:
  Budget* budget_;
  size_t bytes_;
};

class Value;
struct String;
struct List;
struct Dict;
struct Macro;
struct Method;
struct LoopState;
struct Namespace;
struct NativeEntry;

struct Undefined {
  const std::string* name = nullptr;  // of the missing thing, for messages; owned by the template
};
struct None {};

class Value {
 public:
  Value() : v_(Undefined{}) {}
  explicit Value(Undefined u) : v_(u) {}
  explicit Value(None n) : v_(n) {}
  explicit Value(bool b) : v_(b) {}
  explicit Value(int64_t i) : v_(i) {}
  explicit Value(double d) : v_(d) {}
  explicit Value(std::shared_ptr<const String> s) : v_(std::move(s)) {}
  explicit Value(std::shared_ptr<const List> l) : v_(std::move(l)) {}
  explicit Value(std::shared_ptr<const Dict> d) : v_(std::move(d)) {}
  explicit Value(std::shared_ptr<const Macro> m) : v_(std::move(m)) {}
  explicit Value(std::shared_ptr<const Method> m) : v_(std::move(m)) {}
  explicit Value(std::shared_ptr<LoopState> l) : v_(std::move(l)) {}
  explicit Value(Namespace* n) : v_(n) {}
  explicit Value(const NativeEntry* f) : v_(f) {}

  bool is_undefined() const { return std::holds_alternative<Undefined>(v_); }
  bool is_none() const { return std::holds_alternative<None>(v_); }
  bool is_bool() const { return std::holds_alternative<bool>(v_); }
  bool is_int() const { return std::holds_alternative<int64_t>(v_); }
  bool is_float() const { return std::holds_alternative<double>(v_); }
  bool is_number() const { return is_bool() || is_int() || is_float(); }
  bool is_integral() const { return is_bool() || is_int(); }

  // nullptr when the value is of another kind.
  const Undefined* undefined() const { return std::get_if<Undefined>(&v_); }
  const Text* text() const;
  const String* string() const { return pointer<std::shared_ptr<const String>>(); }
  const List* list() const { return pointer<std::shared_ptr<const List>>(); }
  const Dict* dict() const { return pointer<std::shared_ptr<const Dict>>(); }
  const Macro* macro() const { return pointer<std::shared_ptr<const Macro>>(); }
  const Method* method() const { return pointer<std::shared_ptr<const Method>>(); }
  LoopState* loop() const { return pointer<std::shared_ptr<LoopState>>(); }
  Namespace* name_space() const { return pointer<Namespace*>(); }
  const NativeEntry* function() const { return pointer<const NativeEntry*>(); }

  bool as_bool() const { return std::get<bool>(v_); }
  int64_t as_int() const { return is_bool() ? as_bool() : std::get<int64_t>(v_); }  // integral
  double as_double() const {                                                        // number
    return is_float() ? std::get<double>(v_) : static_cast<double>(as_int());
  }

  int height() const;                      // 0 for what holds no other value
  const char* type_name() const;           // as Python names it: "str", "dict", ...
  bool same_object(const Value& o) const;  // Python's `is`

 private:
  template <class P>
  auto pointer() const -> decltype(&**static_cast<const P*>(nullptr)) {
    const P* p = std::get_if<P>(&v_);
    return p != nullptr ? &**p : nullptr;
  }
  std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const String>,
               std::shared_ptr<const List>, std::shared_ptr<const Dict>,
               std::shared_ptr<const Macro>, std::shared_ptr<const Method>,
               std::shared_ptr<LoopState>, Namespace*, const NativeEntry*>
      v_;
};

struct String {
  Text text;
  bool markup;  // marked safe: adding plain text to it escapes that text, as jinja2 does
  Held held;
};

// Everything that holds values in order. What Python keeps apart, templates can tell apart too.
enum class Flavor : uint8_t { kList, kTuple, kRange, kGenerator, kKeys, kValues, kItems };

struct List {
  std::vector<Value> items;
  Flavor flavor;
  int height;
  Held held;
  // A generator gives its items once: those before `taken` are gone.
  mutable size_t taken = 0;

  bool has_length() const { return flavor != Flavor::kGenerator; }
  bool has_index() const {
    return flavor == Flavor::kList || flavor == Flavor::kTuple || flavor == Flavor::kRange;
  }
};

struct Dict {
  std::vector<std::pair<Value, Value>> items;  // in insertion order, keys distinct
  std::vector<uint32_t> order;                 // item numbers by ascending key
  int height;
  Held held;

  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
};

// A native function, filter, test or method: one row of filters.def.
struct Call;
struct NativeEntry {
  const char* name;
  Result<Value> (*run)(Call&);  // nullptr: known, but not to be called (it would change data)
  const char* parameters;       // "a! b c": a is required; "*" takes any positional, "**" any named
};

struct Method {
  Value self;
  const NativeEntry* entry;
};

struct Namespace {
  std::map<std::string, Value, std::less<>> items;
};

// Values made during one rendering. Each answers an error when the budget is spent or a container
// would be too high; `Budget` then says which limit it was.
class Factory {
 public:
  Factory(Budget& budget, int max_height) : budget_(&budget), max_height_(max_height) {}
  Result<Value> string(Text text, bool markup = false) const;
  Result<Value> string(std::string bytes, Source source = {}) const {
    return string(Text(std::move(bytes), source));
  }
  Result<Value> list(std::vector<Value> items, Flavor flavor = Flavor::kList) const;
  // The last value of a repeated key counts, at the place of the first.
  Result<Value> dict(std::vector<std::pair<Value, Value>> items) const;
  Budget& budget() const { return *budget_; }
  int max_height() const { return max_height_; }
  Error limit_error() const;

 private:
  Budget* budget_;
  int max_height_;
};

// A string or list that belongs to a template, outside any budget.
Value constant_string(std::string bytes);

// A total order over hashable values: numbers by value, then strings, tuples, the rest by kind.
int compare_keys(const Value& a, const Value& b);
// Scalars and tuples of scalars; only those can be keys.
bool hashable(const Value& v);

}  // namespace culet::chat
