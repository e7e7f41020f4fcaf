// What a token is: its id, an index into the model's vocabulary, and its kind.
#pragma once

#include <cstdint>

namespace culet {

using Token = int32_t;

enum class TokenKind : uint8_t {  // the numbers are those of tokenizer.ggml.token_type
  kNormal = 1,                    // text
  kUnknown = 2,                   // stands for text that has no token
  kControl = 3,                   // no text: the end of a turn, the start of a text, ...
  kUserDefined = 4,               // text with an id of its own, matched before all others
  kUnused = 5,                    // a gap in the vocabulary, or an id outside it
  kByte = 6,                      // one byte, where a character has no token
};

}  // namespace culet
