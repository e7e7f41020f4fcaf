// The one place where JSON text is parsed or written. Members keep the order of the text.
//
// Objects are looked up linearly: take what you need from a large one in a single pass.
#pragma once

#include "culet/result.h"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace culet::base {

constexpr int kJsonDepth = 64;
constexpr uint64_t kJsonBytes = uint64_t{64} << 20;

// RFC 8259 text in UTF-8. Refused: a syntax error (the message has the byte position), the same key
// twice in one object, numbers no double holds, nesting deeper than max_depth, more than max_bytes.
// The locale of the program does not matter. Time and memory grow with the length of the text,
// whatever is in it. Include <nlohmann/json.hpp> where the result is used.
Result<nlohmann::ordered_json> parse_json(std::string_view text, int max_depth = kJsonDepth,
                                          uint64_t max_bytes = kJsonBytes);

// Never fails: bytes that are not UTF-8 become U+FFFD, NaN and infinities null. indent < 0: one
// line.
std::string dump_json(const nlohmann::ordered_json& value, int indent = -1);

}  // namespace culet::base
