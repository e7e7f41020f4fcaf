// UTF-8, and what Python's str methods ask of a character: its class and its other case.
//
// A byte that is not part of valid UTF-8 counts as one character of no class. Classes and cases are
// those of the Unicode version of utf8proc; docs/formats/templates.md says where they differ from
// Python's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace culet::chat::unicode {

constexpr uint32_t kInvalid = 0xFFFFFFFF;

struct Character {
  uint32_t code;  // kInvalid: a stray byte
  size_t size;    // bytes
};

Character decode(std::string_view text, size_t at);  // at < text.size()
void append(std::string& out, uint32_t code);
size_t count(std::string_view text);                      // characters
size_t offset(std::string_view text, size_t characters);  // bytes of that many characters

bool is_alpha(uint32_t code);
bool is_digit(uint32_t code);
bool is_upper(uint32_t code);
bool is_lower(uint32_t code);
bool is_space(uint32_t code);
bool is_printable(uint32_t code);

size_t skip_space(std::string_view text, size_t from);  // offset of the first character not a space
size_t strip_end(std::string_view text);                // size without the spaces at the end

enum class Case : uint8_t { kUpper, kLower, kTitle };
// Appends the character of `size` bytes at `at` in that case. The text around it decides which form
// a capital sigma gets.
void append_case(std::string& out, Case to, std::string_view text, size_t at, size_t size);

}  // namespace culet::chat::unicode
