#include "cli/terminal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

namespace culet::cli {
namespace {

struct Range {
  uint32_t first, last;
};
constexpr Range kSpelled[] = {
    {0x7f, 0x9f}, {0x61c, 0x61c}, {0x200e, 0x200f}, {0x202a, 0x202e}, {0x2066, 0x2069}};

bool is_spelled(uint32_t c) {
  return std::any_of(std::begin(kSpelled), std::end(kSpelled),
                     [c](Range r) { return c >= r.first && c <= r.last; });
}

enum class Reading : uint8_t { kWhole, kUnfinished, kWrong };
struct Character {
  Reading reading;
  size_t size;  // bytes; of kWrong 1
  uint32_t code;
};

// The first character of bytes that are not empty (RFC 3629).
Character read_character(std::string_view bytes) {
  const auto at = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(bytes[i])); };
  const uint32_t lead = at(0);
  if (lead < 0x80) return {Reading::kWhole, 1, lead};
  if (lead < 0xc2 || lead > 0xf4) return {Reading::kWrong, 1, lead};
  const size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  uint32_t code = lead & (0xffU >> (size + 1));
  for (size_t i = 1; i < size; ++i) {
    if (i == bytes.size()) return {Reading::kUnfinished, i, code};
    // The second byte decides on overlong forms, surrogates and what is above U+10FFFF.
    const uint32_t low = i == 1 && lead == 0xe0 ? 0xa0 : i == 1 && lead == 0xf0 ? 0x90 : 0x80;
    const uint32_t high = i == 1 && lead == 0xed ? 0x9f : i == 1 && lead == 0xf4 ? 0x8f : 0xbf;
    if (at(i) < low || at(i) > high) return {Reading::kWrong, 1, lead};
    code = code << 6 | (at(i) & 0x3f);
  }
  return {Reading::kWhole, size, code};
}

}  // namespace

void TerminalText::take(std::string_view bytes, bool last, std::string* out) {
  while (!bytes.empty()) {
    const Character c = read_character(bytes);
    const bool waits = c.reading == Reading::kUnfinished || bytes == "\r";
    if (waits && !last) {
      held_ = bytes;
      return;
    }
    const bool plain = c.code == '\n' || c.code == '\t' || bytes.starts_with("\r\n");
    if (c.reading != Reading::kWhole) {
      for (const char byte : bytes.substr(0, c.size)) {
        *out += fmt::format("\\x{:02x}", static_cast<uint8_t>(byte));
      }
    } else if (c.code < 0x20 && !plain) {
      *out += fmt::format("\\x{:02x}", c.code);
    } else if (is_spelled(c.code)) {
      *out += fmt::format("\\u{:04x}", c.code);
    } else {
      *out += bytes.substr(0, c.size);
    }
    bytes.remove_prefix(c.size);
  }
}

std::string TerminalText::push(std::string_view bytes) {
  std::string out;
  const std::string all = std::exchange(held_, std::string()).append(bytes);
  take(all, false, &out);
  return out;
}

std::string TerminalText::finish() {
  std::string out;
  const std::string all = std::exchange(held_, std::string());
  take(all, true, &out);
  return out;
}

std::string for_terminal(std::string_view text) {
  TerminalText terminal;
  std::string out = terminal.push(text);
  return out += terminal.finish();
}

}  // namespace culet::cli
