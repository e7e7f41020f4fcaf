// The vocabulary of a GGUF file, as the text layer takes it.
#pragma once

#include "culet/result.h"
#include "format/gguf.h"
#include "text/tokenizer.h"

namespace culet::model {

// Reads the keys tokenizer.ggml.*. The texts are views into `file`. Errors name the key: kCorrupt
// (an element type, an array length or an id that cannot be), kUnsupported (no vocabulary, or none
// that Tokenizer::make knows how to use).
Result<text::Vocabulary> read_vocabulary(const format::GgufFile& file);

}  // namespace culet::model
