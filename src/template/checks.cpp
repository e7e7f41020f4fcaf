// Tests ("x is string") and the methods of dicts and lists.
#include "template/native.h"

namespace culet::chat {

// ---- tests ----

namespace {

Result<Value> compared(Call& c, Op op) {
  CULET_TRY(const bool holds, compare(factory(c), op, c.self, *c.arg(0)));
  return Value(holds);
}

Result<Value> remainder_is(Call& c, int64_t divisor, int64_t rest) {
  CULET_TRY(const Value left, arithmetic(factory(c), Op::kMod, c.self, Value(divisor)));
  CULET_TRY(const bool same, equal(factory(c), left, Value(rest)));
  return Value(same);
}

bool iterable(const Value& v) {
  return v.is_undefined() || v.text() != nullptr || v.list() != nullptr || v.dict() != nullptr ||
         v.loop() != nullptr;
}

}  // namespace

Result<Value> test_eq(Call& c) { return compared(c, Op::kEq); }
Result<Value> test_ne(Call& c) { return compared(c, Op::kNe); }
Result<Value> test_lt(Call& c) { return compared(c, Op::kLt); }
Result<Value> test_le(Call& c) { return compared(c, Op::kLe); }
Result<Value> test_gt(Call& c) { return compared(c, Op::kGt); }
Result<Value> test_ge(Call& c) { return compared(c, Op::kGe); }
Result<Value> test_in(Call& c) { return compared(c, Op::kIn); }

Result<Value> test_boolean(Call& c) { return Value(c.self.is_bool()); }
Result<Value> test_callable(Call& c) {
  return Value(c.self.macro() != nullptr || c.self.method() != nullptr ||
               c.self.function() != nullptr || c.self.is_undefined());
}
Result<Value> test_defined(Call& c) { return Value(!c.self.is_undefined()); }
Result<Value> test_undefined(Call& c) { return Value(c.self.is_undefined()); }
Result<Value> test_divisibleby(Call& c) {
  CULET_TRY(const Value left, arithmetic(factory(c), Op::kMod, c.self, *c.arg(0)));
  CULET_TRY(const bool same, equal(factory(c), left, Value(int64_t{0})));
  return Value(same);
}
Result<Value> test_even(Call& c) { return remainder_is(c, 2, 0); }
Result<Value> test_odd(Call& c) { return remainder_is(c, 2, 1); }
Result<Value> test_true(Call& c) { return Value(c.self.is_bool() && c.self.as_bool()); }
Result<Value> test_false(Call& c) { return Value(c.self.is_bool() && !c.self.as_bool()); }
Result<Value> test_none(Call& c) { return Value(c.self.is_none()); }
Result<Value> test_number(Call& c) { return Value(c.self.is_number()); }
Result<Value> test_integer(Call& c) { return Value(c.self.is_int()); }
Result<Value> test_float(Call& c) { return Value(c.self.is_float()); }
Result<Value> test_string(Call& c) { return Value(c.self.text() != nullptr); }
Result<Value> test_mapping(Call& c) { return Value(c.self.dict() != nullptr); }
Result<Value> test_iterable(Call& c) { return Value(iterable(c.self)); }
Result<Value> test_sequence(Call& c) {
  const List* l = c.self.list();
  const bool other = c.self.is_undefined() || c.self.text() != nullptr || c.self.dict() != nullptr;
  return Value(l != nullptr ? l->has_index() : other);
}
Result<Value> test_sameas(Call& c) { return Value(c.self.same_object(*c.arg(0))); }

// ---- dicts ----

Result<Value> dict_get(Call& c) {
  const Value& key = *c.arg(0);
  if (!hashable(key)) return call_failure(c, std::string("has no keys of type ") + key.type_name());
  if (key.text() != nullptr && !factory(c).budget().spend_bytes(key.text()->size())) {
    return limit_failure(c);
  }
  if (const Value* found = c.self.dict()->find(key)) return *found;
  return c.arg(1) != nullptr ? *c.arg(1) : Value(None{});
}

Result<Value> dict_copy(Call& c) { return c.self; }

Result<Value> dict_keys(Call& c) {
  CULET_TRY(std::vector<Value> keys, iterate(factory(c), c.self));
  return factory(c).list(std::move(keys), Flavor::kKeys);
}

Result<Value> dict_values(Call& c) {
  std::vector<Value> values;
  for (const auto& item : c.self.dict()->items) values.push_back(item.second);
  return factory(c).list(std::move(values), Flavor::kValues);
}

Result<Value> dict_items(Call& c) {
  std::vector<Value> pairs;
  for (const auto& [key, value] : c.self.dict()->items) {
    CULET_TRY(Value pair, tuple(factory(c), key, value));
    pairs.push_back(std::move(pair));
  }
  return factory(c).list(std::move(pairs), Flavor::kItems);
}

// ---- lists and tuples ----

Result<Value> list_copy(Call& c) { return c.self; }

Result<Value> list_count(Call& c) {
  int64_t n = 0;
  for (const Value& item : c.self.list()->items) {
    CULET_TRY(const bool same, equal(factory(c), item, *c.arg(0)));
    n += same;
  }
  return Value(n);
}

Result<Value> list_index(Call& c) {
  const std::vector<Value>& items = c.self.list()->items;
  for (size_t i = 0; i < items.size(); ++i) {
    CULET_TRY(const bool same, equal(factory(c), items[i], *c.arg(0)));
    if (same) return Value(static_cast<int64_t>(i));
  }
  return call_failure(c, "finds no such item");
}

}  // namespace culet::chat
