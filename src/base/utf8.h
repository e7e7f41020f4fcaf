// UTF-8, strictly: overlong forms, surrogates and code points above U+10FFFF are invalid.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace culet::base {

constexpr char32_t kReplacement = 0xfffd;

struct Utf8Step {
  char32_t code;  // kReplacement when invalid
  int length;     // bytes to move on by: 1..4; 1 when invalid; 0 only at the end of the text
  bool valid;
};

// The code point that starts at text[pos]. Reads nothing past the end.
Utf8Step utf8_step(std::string_view text, size_t pos);

bool utf8_valid(std::string_view text);

// Bytes at the end of `text` (0..3) that begin a code point whose other bytes may still come.
int utf8_incomplete_tail(std::string_view text);

// Appends the code point; one that UTF-8 cannot carry is appended as U+FFFD.
void utf8_append(char32_t code, std::string* out);
std::string utf8_encode(char32_t code);

// A name from a file as messages show it: at most so many bytes ("..." follows if it is cut), with
// '?' for control characters and for what is no UTF-8.
std::string utf8_shown(std::string_view name, size_t most = 80);

}  // namespace culet::base
