// Lookups in the ranges of unicode_tables.inc. ASCII, nearly all there is, is answered first.
#include "template/unicode.h"

#include "base/utf8.h"

#include <algorithm>
#include <array>
#include <span>

namespace culet::chat::unicode {

namespace {

struct Range {
  uint32_t first, last;
};
struct Mapping {
  uint32_t first, last, stride;
  int32_t delta;
};
struct Special {
  uint32_t code;
  const char* text;
};

#include "template/unicode_tables.inc"

constexpr std::array<std::span<const Range>, 8> kClasses = {kSpace,   kAlpha, kDecimal, kDigit,
                                                            kNumeric, kUpper, kLower,   kHidden};
constexpr std::array<std::span<const Mapping>, 4> kMappings = {kToUpper, kToLower, kToTitle,
                                                               kToFold};
constexpr std::array<std::span<const Special>, 4> kSpecials = {kToUpperSpecial, kToLowerSpecial,
                                                               kToTitleSpecial, kToFoldSpecial};

template <class Row>
const Row* find_range(std::span<const Row> rows, uint32_t code) {
  const auto at = std::lower_bound(rows.begin(), rows.end(), code,
                                   [](const Row& row, uint32_t c) { return row.last < c; });
  return at != rows.end() && at->first <= code ? &*at : nullptr;
}

bool is_continuation(std::string_view text, size_t at) {
  return at < text.size() && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80;
}

}  // namespace

Character decode(std::string_view text, size_t at) {
  const uint8_t lead = static_cast<uint8_t>(text[at]);
  if (lead < 0x80) return {lead, 1};
  const base::Utf8Step step = base::utf8_step(text, at);
  return {step.valid ? static_cast<uint32_t>(step.code) : kInvalid,
          static_cast<size_t>(step.length)};
}

void append(std::string& out, uint32_t code) { base::utf8_append(code, &out); }

size_t count(std::string_view text) {
  size_t n = 0;
  for (size_t at = 0; at < text.size(); at += decode(text, at).size) ++n;
  return n;
}

size_t offset(std::string_view text, size_t characters) {
  size_t at = 0;
  for (; characters > 0 && at < text.size(); --characters) at += decode(text, at).size;
  return at;
}

bool is(Class what, uint32_t code) {
  if (code == kInvalid) return what == Class::kHidden;
  return find_range(kClasses[static_cast<size_t>(what)], code) != nullptr;
}

bool is_space(uint32_t code) {
  if (code < 0x80)
    return code == ' ' || (code >= 9 && code <= 13) || (code >= 0x1C && code <= 0x1F);
  return is(Class::kSpace, code);
}

bool is_printable(uint32_t code) {
  if (code < 0x80) return code >= 0x20 && code != 0x7F;
  return !is(Class::kHidden, code);
}

size_t skip_space(std::string_view text, size_t from) {
  while (from < text.size()) {
    const Character c = decode(text, from);
    if (!is_space(c.code)) break;
    from += c.size;
  }
  return from;
}

size_t strip_end(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t at = end - 1;
    while (at > 0 && end - at < 4 && is_continuation(text, at)) --at;
    const Character c = decode(text, at);
    if (at + c.size != end || !is_space(c.code)) break;
    end = at;
  }
  return end;
}

namespace {

constexpr uint32_t kCapitalSigma = 0x3A3, kFinalSigma = 0x3C2;

// Whether a sigma at `at` ends a word: a letter stands before it and none after.
bool ends_word(std::string_view text, size_t at, size_t size) {
  size_t before = at;
  while (before > 0 && at - before < 4) {
    --before;
    if (!is_continuation(text, before)) break;
  }
  if (before == at || !is(Class::kAlpha, decode(text, before).code)) return false;
  return at + size >= text.size() || !is(Class::kAlpha, decode(text, at + size).code);
}

}  // namespace

void append_case(std::string& out, Case to, std::string_view text, size_t at, size_t size) {
  const uint32_t code = decode(text, at).code;
  const size_t table = static_cast<size_t>(to);
  if (code == kInvalid) {
    out.append(text.substr(at, size));
    return;
  }
  if (to == Case::kLower && code == kCapitalSigma && ends_word(text, at, size)) {
    append(out, kFinalSigma);
    return;
  }
  const std::span<const Special> specials = kSpecials[table];
  const auto special =
      std::lower_bound(specials.begin(), specials.end(), code,
                       [](const Special& row, uint32_t c) { return row.code < c; });
  if (special != specials.end() && special->code == code) {
    out.append(special->text);
    return;
  }
  const Mapping* row = find_range(kMappings[table], code);
  const bool mapped = row != nullptr && (code - row->first) % row->stride == 0;
  append(out, mapped ? code + static_cast<uint32_t>(row->delta) : code);
}

}  // namespace culet::chat::unicode
