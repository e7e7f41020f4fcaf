// One table-free decoder; everything else is built on it. The bounds of the second byte exclude
// overlong forms, surrogates and code points past the end of Unicode (Unicode 15, table 3-7).
#include "base/utf8.h"

namespace culet::base {
namespace {

struct Lead {
  int length;         // of the whole sequence; 0: cannot start one
  uint8_t low, high;  // bounds of the second byte
};

Lead lead_of(uint8_t b) {
  if (b < 0x80) return {1, 0, 0};
  if (b < 0xc2) return {0, 0, 0};
  if (b < 0xe0) return {2, 0x80, 0xbf};
  if (b < 0xf0) return {3, uint8_t(b == 0xe0 ? 0xa0 : 0x80), uint8_t(b == 0xed ? 0x9f : 0xbf)};
  if (b < 0xf5) return {4, uint8_t(b == 0xf0 ? 0x90 : 0x80), uint8_t(b == 0xf4 ? 0x8f : 0xbf)};
  return {0, 0, 0};
}

// How many bytes from pos on are good: up to lead.length.
int good_bytes(std::string_view text, size_t pos, const Lead& lead) {
  int good = 1;
  while (good < lead.length && pos + size_t(good) < text.size()) {
    const uint8_t b = uint8_t(text[pos + size_t(good)]);
    const uint8_t low = good == 1 ? lead.low : 0x80, high = good == 1 ? lead.high : 0xbf;
    if (b < low || b > high) break;
    ++good;
  }
  return good;
}

}  // namespace

Utf8Step utf8_step(std::string_view text, size_t pos) {
  if (pos >= text.size()) return {kReplacement, 0, false};
  const uint8_t first = uint8_t(text[pos]);
  if (first < 0x80) return {first, 1, true};
  const Lead lead = lead_of(first);
  if (lead.length == 0 || good_bytes(text, pos, lead) != lead.length) {
    return {kReplacement, 1, false};
  }
  char32_t code = first & (0x7f >> lead.length);
  for (int i = 1; i < lead.length; ++i) code = code << 6 | (uint8_t(text[pos + size_t(i)]) & 0x3f);
  return {code, lead.length, true};
}

bool utf8_valid(std::string_view text) {
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Step step = utf8_step(text, pos);
    if (!step.valid) return false;
    pos += size_t(step.length);
  }
  return true;
}

int utf8_incomplete_tail(std::string_view text) {
  for (int back = 1; back <= 3 && size_t(back) <= text.size(); ++back) {
    const size_t pos = text.size() - size_t(back);
    const uint8_t b = uint8_t(text[pos]);
    if ((b & 0xc0) == 0x80) continue;  // a later byte: look further back for its lead
    const Lead lead = lead_of(b);
    return lead.length > back && good_bytes(text, pos, lead) == back ? back : 0;
  }
  return 0;
}

void utf8_append(char32_t code, std::string* out) {
  if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) code = kReplacement;
  if (code < 0x80) {
    out->push_back(char(code));
    return;
  }
  const int length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  const unsigned mark = 0xf00u >> length & 0xff;
  out->push_back(char(mark | code >> (6 * (length - 1))));
  for (int i = length - 2; i >= 0; --i) out->push_back(char(0x80 | (code >> (6 * i) & 0x3f)));
}

std::string utf8_encode(char32_t code) {
  std::string out;
  utf8_append(code, &out);
  return out;
}

std::string utf8_shown(std::string_view name, size_t most) {
  std::string out;
  for (size_t pos = 0; pos < name.size();) {
    const Utf8Step step = utf8_step(name, pos);
    const auto length = static_cast<size_t>(step.length);
    if (out.size() + length > most) return out + "...";
    const bool plain = step.valid && step.code >= 0x20 && (step.code < 0x7f || step.code > 0x9f);
    out += plain ? name.substr(pos, length) : "?";
    pos += length;
  }
  return out;
}

}  // namespace culet::base
