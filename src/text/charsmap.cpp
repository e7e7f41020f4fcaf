#include "text/charsmap.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace culet::text {
namespace {

// NFKC rewrites at most a handful of characters at a time, into 18 (U+FDFA, 33 bytes) at most.
constexpr size_t kMostKey = 64, kMostText = 256;

constexpr uint32_t kValue = 0x7fffffff;  // of the unit of an end

bool key_ends(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t label_of(uint32_t unit) { return unit & 0x800000ff; }  // no byte for the unit of an end
uint32_t children_of(uint32_t unit) { return unit >> 10 << ((unit & 1u << 9) >> 6); }

uint32_t read_u32(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) {
    value |= uint32_t{static_cast<uint8_t>(bytes[at + i])} << (8 * i);
  }
  return value;
}

tl::unexpected<Error> bad(std::string_view problem) {
  return fail(ErrorCode::kCorrupt,
              fmt::format("the table of characters (tokenizer.ggml.precompiled_charsmap) {}; the "
                          "file is damaged or badly converted, fetch it again",
                          problem));
}

}  // namespace

Result<Charsmap> Charsmap::make(std::string_view bytes) {
  Charsmap map;
  if (bytes.empty()) return map;
  if (bytes.size() < 4) return bad("is cut off");
  const size_t trie = read_u32(bytes, 0);
  bytes.remove_prefix(4);
  if (trie > bytes.size() || trie % 4 != 0) return bad("has a trie that does not fit into it");
  for (size_t at = 0; at < trie; at += 4) map.units_.push_back(read_u32(bytes, at));
  map.texts_ = bytes.substr(trie);
  for (size_t at = 0; at < map.texts_.size();) {
    const size_t end = map.texts_.find('\0', at);
    if (end == std::string::npos) return bad("has a text that is not closed");
    if (end - at > kMostText) return bad("has a text longer than any that a character stands for");
    at = end + 1;
  }
  return map;
}

Charsmap::Found Charsmap::find(std::string_view text) const {
  Found found;
  if (units_.empty()) return found;
  size_t at = children_of(units_[0]);
  const size_t most = std::min(text.size(), kMostKey);
  for (size_t i = 0; i < most; ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    at ^= byte;
    if (at >= units_.size() || label_of(units_[at]) != byte) break;
    const uint32_t unit = units_[at];
    at ^= children_of(unit);
    if (!key_ends(unit)) continue;
    if (at >= units_.size()) break;
    const size_t place = units_[at] & kValue;
    if (place >= texts_.size()) break;
    found = {i + 1, std::string_view(texts_.data() + place)};
  }
  return found;
}

}  // namespace culet::text
