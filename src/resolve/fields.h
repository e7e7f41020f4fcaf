// Members of JSON objects from outside: each getter answers "nothing" for a missing member or one
// of another type, so that a parser says in one place what it needs.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace culet::resolve {

using Json = nlohmann::ordered_json;

inline const Json* member(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(key);
  return it == object.end() ? nullptr : &*it;
}

inline std::optional<std::string> text_of(const Json& object, const char* key) {
  const Json* value = member(object, key);
  if (!value || !value->is_string()) return std::nullopt;
  return value->get<std::string>();
}

inline std::optional<uint64_t> count_of(const Json& object, const char* key) {
  const Json* value = member(object, key);
  if (!value || !value->is_number_integer()) return std::nullopt;
  if (!value->is_number_unsigned() && value->get<int64_t>() < 0) return std::nullopt;
  return value->get<uint64_t>();
}

// The array, or an empty one.
inline const Json& array_of(const Json& object, const char* key) {
  static const Json kEmpty = Json::array();
  const Json* value = member(object, key);
  return value && value->is_array() ? *value : kEmpty;
}

}  // namespace culet::resolve
