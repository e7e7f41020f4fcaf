// Reader of tokenizer.model, the file of SentencePiece: a protocol buffer, of which the pieces and
// what prepares a text are read. Untrusted bytes: every length is checked against the file.
// Format: https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto
#pragma once

#include "culet/result.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace culet::convert {

struct SentencePieces {
  struct Piece {
    std::string text;
    float score = 0;
    int32_t kind =
        1;  // as in GGUF: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte
  };
  std::vector<Piece> pieces;
  bool add_space_prefix = true;
  bool is_bpe = false;  // model_type BPE, not unigram
};

// kCorrupt: the message names `name` and the place.
Result<SentencePieces> parse_sentencepiece(std::span<const std::byte> bytes,
                                           const std::string& name);

}  // namespace culet::convert
