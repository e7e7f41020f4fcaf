// The tokenizer of a published model as GGUF metadata (tokenizer.ggml.*, tokenizer.chat_template).
#pragma once

#include "culet/result.h"
#include "format/gguf_writer.h"

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace culet::convert {

// What the folder has; nullptr or "" for files that are not there.
struct TokenizerFiles {
  const nlohmann::ordered_json* tokenizer = nullptr;   // tokenizer.json
  const nlohmann::ordered_json* settings = nullptr;    // tokenizer_config.json
  const nlohmann::ordered_json* config = nullptr;      // config.json
  const nlohmann::ordered_json* generation = nullptr;  // generation_config.json
  std::string sentencepiece{};                         // tokenizer.model
  std::string chat_template{};                         // a file of its own
};

struct TokenizerOptions {
  uint64_t rows = 0;  // of the embedding: ids that no token has get a name that no text spells
  // From the family: the kind of the merging tokenizer with byte tokens, where it is another one
  // than SentencePiece's; the name of the pre-tokenizer, where several have the same steps.
  std::string kind{}, pre{};
  std::vector<std::string> visible{};  // special tokens that a text shows
};

// Added tokens behind the last row of the embedding, which no model can read, are left out: a
// sentence in `notes`. Errors: kNotFound (no tokenizer), kUnsupported (a kind, or steps of a
// pre-tokenizer, that files cannot say), kCorrupt (ids that are no ids, a token twice).
Result<void> add_tokenizer(const TokenizerFiles& files, const TokenizerOptions& options,
                           format::GgufMetadata* metadata, std::vector<std::string>* notes);

}  // namespace culet::convert
