// Looking into JSON of a published folder, where anything may be absent or of another kind.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <string_view>

namespace culet::convert {

// nullptr: no object, no such member, or null.
const nlohmann::ordered_json* member(const nlohmann::ordered_json* object, std::string_view name);

// "": nothing, or no text.
std::string text_of(const nlohmann::ordered_json* value);

}  // namespace culet::convert
