// The printable stand-ins that byte-level BPE vocabularies (GPT-2's) use for the 256 bytes: a byte
// that is a printable Latin-1 character is itself, the others are U+0100, U+0101, ... in order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace culet::text {

constexpr int kAlphabetEnd = 0x144;  // one past the highest stand-in

constexpr bool stands_for_itself(int byte) {
  return (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte < 0x100 && byte != 0xad);
}

struct ByteAlphabet {
  std::array<char32_t, 256> code{};             // of each byte
  std::array<int16_t, kAlphabetEnd> byte_of{};  // of each code point, -1: not in the alphabet
};

constexpr ByteAlphabet make_byte_alphabet() {
  ByteAlphabet alphabet;
  alphabet.byte_of.fill(-1);
  char32_t next = 0x100;
  for (int b = 0; b < 256; ++b) {
    const char32_t code = stands_for_itself(b) ? static_cast<char32_t>(b) : next++;
    alphabet.code[static_cast<size_t>(b)] = code;
    alphabet.byte_of[code] = static_cast<int16_t>(b);
  }
  return alphabet;
}

inline constexpr ByteAlphabet kByteAlphabet = make_byte_alphabet();

}  // namespace culet::text
