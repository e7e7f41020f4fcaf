#include "convert/json_parts.h"

#include <nlohmann/json.hpp>

namespace culet::convert {

namespace {
using Json = nlohmann::ordered_json;
}

const Json* member(const Json* object, std::string_view name) {
  if (object == nullptr || !object->is_object()) return nullptr;
  const auto at = object->find(name);
  return at == object->end() || at->is_null() ? nullptr : &*at;
}

std::string text_of(const Json* value) {
  return value != nullptr && value->is_string() ? value->get<std::string>() : "";
}

}  // namespace culet::convert
