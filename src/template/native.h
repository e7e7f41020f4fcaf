// Small helpers of the native functions: typed access to the value and the arguments of a call.
#pragma once

#include "template/builtins.h"
#include "template/eval.h"
#include "template/runtime.h"
#include "template/unicode.h"

#include <string>
#include <string_view>

namespace culet::chat {

inline const Factory& factory(const Call& c) { return c.in.factory(); }

inline tl::unexpected<Error> limit_failure(const Call& c) {
  return tl::unexpected<Error>(factory(c).limit_error());
}

inline tl::unexpected<Error> call_failure(const Call& c, const std::string& what) {
  return type_failure(std::string("'") + c.entry.name + "' " + what);
}

// An argument that is absent or none counts as not given.
inline bool given(const Call& c, size_t i) { return c.arg(i) != nullptr && !c.arg(i)->is_none(); }

inline Result<int64_t> int_arg(const Call& c, size_t i, int64_t fallback) {
  if (!given(c, i)) return fallback;
  if (!c.arg(i)->is_integral()) {
    return call_failure(c, std::string("needs an integer, not a ") + c.arg(i)->type_name());
  }
  return c.arg(i)->as_int();
}

inline bool bool_arg(const Call& c, size_t i, bool fallback) {
  return c.arg(i) != nullptr ? truth(*c.arg(i)) : fallback;
}

// A string argument; null when it is not given.
inline Result<const String*> string_arg(const Call& c, size_t i) {
  if (!given(c, i)) return nullptr;
  const String* s = c.arg(i)->string();
  if (s == nullptr) {
    return call_failure(c, std::string("needs a str, not a ") + c.arg(i)->type_name());
  }
  return s;
}

// The subject as text. Pays for reading it.
inline Result<Value> self_string(const Call& c) {
  CULET_TRY(Value s, to_string(factory(c), c.self));
  if (!factory(c).budget().spend_bytes(s.text()->size())) return limit_failure(c);
  return s;
}

// Whether `times` pieces of `bytes` may be built.
inline bool fits_times(const Call& c, size_t bytes, uint64_t times) {
  size_t total = 0;
  if (__builtin_mul_overflow(bytes, times, &total)) total = SIZE_MAX;
  return factory(c).budget().fits(total) && factory(c).budget().spend_bytes(total);
}

inline Result<Value> tuple(const Factory& f, Value a, Value b) {
  std::vector<Value> items;
  items.push_back(std::move(a));
  items.push_back(std::move(b));
  return f.list(std::move(items), Flavor::kTuple);
}

}  // namespace culet::chat
