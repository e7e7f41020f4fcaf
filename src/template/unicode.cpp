// Python's notion of characters, made of utf8proc's properties. ASCII, nearly all there is, is
// answered first.
//
// utf8proc maps cases one character to one. Where Python's upper() and title() give several (the
// German sharp s, ligatures, Greek with iota), they are made of the character's case folding, which
// utf8proc has in full.
#include "template/unicode.h"

#include "base/utf8.h"

#include <utf8proc.h>

#include <algorithm>

namespace culet::chat::unicode {

namespace {

constexpr uint32_t kAscii = 0x80;
constexpr uint32_t kCapitalSigma = 0x3A3, kFinalSigma = 0x3C2, kCapitalIWithDot = 0x130,
                   kSharpS = 0xDF;
constexpr uint32_t kSmallIota = 0x3B9, kIotaBelow = 0x345;
constexpr int kMostFolded = 4;  // characters that one folds to

bool is_continuation(std::string_view text, size_t at) {
  return at < text.size() && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80;
}

utf8proc_int32_t as_signed(uint32_t code) { return static_cast<utf8proc_int32_t>(code); }

utf8proc_category_t category(uint32_t code) { return utf8proc_category(as_signed(code)); }

// The case folding: up to kMostFolded characters, at least one.
int fold(uint32_t code, utf8proc_int32_t (&to)[kMostFolded]) {
  int boundary = 0;
  const auto size =
      utf8proc_decompose_char(as_signed(code), to, kMostFolded, UTF8PROC_CASEFOLD, &boundary);
  if (size >= 1 && size <= kMostFolded) return static_cast<int>(size);
  to[0] = as_signed(code);
  return 1;
}

void append_upper(std::string& out, uint32_t code) {
  utf8proc_int32_t folded[kMostFolded];
  const int size = category(code) == UTF8PROC_CATEGORY_LU ? 1 : fold(code, folded);
  if (size == 1) return append(out, static_cast<uint32_t>(utf8proc_toupper(as_signed(code))));
  for (int i = 0; i < size; ++i) {
    append(out, static_cast<uint32_t>(utf8proc_toupper(folded[i])));
  }
}

void append_title(std::string& out, uint32_t code) {
  const auto title = static_cast<uint32_t>(utf8proc_totitle(as_signed(code)));
  utf8proc_int32_t folded[kMostFolded];
  const bool capital = category(code) == UTF8PROC_CATEGORY_LU || title != code;
  const int size = capital && code != kSharpS ? 1 : fold(code, folded);
  if (size == 1 || category(code) == UTF8PROC_CATEGORY_LT) return append(out, title);
  bool done = false;
  for (int i = 0; i < size; ++i) {
    const utf8proc_int32_t first = done ? folded[i] : utf8proc_totitle(folded[i]);
    done = done || first != folded[i];
    const auto c = static_cast<uint32_t>(first);
    // Greek writes the iota of a capital beside others below it.
    append(out, c == kSmallIota ? kIotaBelow : c);
  }
}

// The character before byte `at`, from its first byte on; npos: there is none.
size_t before(std::string_view text, size_t at) {
  if (at == 0) return std::string_view::npos;
  size_t from = at - 1;
  while (from > 0 && at - from < 4 && is_continuation(text, from)) --from;
  return from;
}

// Whether a sigma at `at` ends a word: a letter stands before it and none after.
bool ends_word(std::string_view text, size_t at, size_t size) {
  const size_t left = before(text, at);
  if (left == std::string_view::npos || !is_alpha(decode(text, left).code)) return false;
  return at + size >= text.size() || !is_alpha(decode(text, at + size).code);
}

void append_lower(std::string& out, uint32_t code, std::string_view text, size_t at, size_t size) {
  if (code == kCapitalSigma && ends_word(text, at, size)) return append(out, kFinalSigma);
  if (code == kCapitalIWithDot) {
    out += "i\xcc\x87";
    return;
  }
  append(out, static_cast<uint32_t>(utf8proc_tolower(as_signed(code))));
}

}  // namespace

Character decode(std::string_view text, size_t at) {
  const uint8_t lead = static_cast<uint8_t>(text[at]);
  if (lead < kAscii) return {lead, 1};
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

bool is_alpha(uint32_t code) {
  if (code < kAscii) return (code | 0x20) >= 'a' && (code | 0x20) <= 'z';
  if (code == kInvalid) return false;
  const utf8proc_category_t of = category(code);
  return of >= UTF8PROC_CATEGORY_LU && of <= UTF8PROC_CATEGORY_LO;
}

bool is_digit(uint32_t code) {
  if (code < kAscii) return code >= '0' && code <= '9';
  if (code == kInvalid) return false;
  if (category(code) != UTF8PROC_CATEGORY_NO) return category(code) == UTF8PROC_CATEGORY_ND;
  // Superscripts and circled digits are written as their digits.
  utf8proc_int32_t plain[kMostFolded];
  int boundary = 0;
  const auto size = utf8proc_decompose_char(
      as_signed(code), plain, kMostFolded,
      static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT), &boundary);
  return size == 1 && plain[0] >= '0' && plain[0] <= '9';
}

bool is_upper(uint32_t code) {
  if (code < kAscii) return code >= 'A' && code <= 'Z';
  if (code == kInvalid || category(code) == UTF8PROC_CATEGORY_LT) return false;
  return category(code) == UTF8PROC_CATEGORY_LU || utf8proc_isupper(as_signed(code)) != 0;
}

bool is_lower(uint32_t code) {
  if (code < kAscii) return code >= 'a' && code <= 'z';
  if (code == kInvalid || category(code) == UTF8PROC_CATEGORY_LT) return false;
  return category(code) == UTF8PROC_CATEGORY_LL || utf8proc_islower(as_signed(code)) != 0;
}

bool is_space(uint32_t code) {
  if (code < kAscii)
    return code == ' ' || (code >= 9 && code <= 13) || (code >= 0x1C && code <= 0x1F);
  if (code == kInvalid) return false;
  const utf8proc_property_t* of = utf8proc_get_property(as_signed(code));
  return of->category == UTF8PROC_CATEGORY_ZS || of->bidi_class == UTF8PROC_BIDI_CLASS_WS ||
         of->bidi_class == UTF8PROC_BIDI_CLASS_B || of->bidi_class == UTF8PROC_BIDI_CLASS_S;
}

bool is_printable(uint32_t code) {
  if (code < kAscii) return code >= 0x20 && code != 0x7F;
  if (code == kInvalid) return false;
  const utf8proc_category_t of = category(code);
  return of != UTF8PROC_CATEGORY_CN && (of < UTF8PROC_CATEGORY_ZS || of > UTF8PROC_CATEGORY_CO);
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
    const size_t at = before(text, end);
    const Character c = decode(text, at);
    if (at + c.size != end || !is_space(c.code)) break;
    end = at;
  }
  return end;
}

void append_case(std::string& out, Case to, std::string_view text, size_t at, size_t size) {
  const uint32_t code = decode(text, at).code;
  if (code == kInvalid) {
    out.append(text.substr(at, size));
  } else if (to == Case::kLower) {
    append_lower(out, code, text, at, size);
  } else if (to == Case::kUpper) {
    append_upper(out, code);
  } else {
    append_title(out, code);
  }
}

}  // namespace culet::chat::unicode
