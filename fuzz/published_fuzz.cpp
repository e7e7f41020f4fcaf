// Any bytes as what a folder holds besides weights: tokenizer.json or tokenizer.model. The first
// byte chooses; the readers refuse them or give keys that a GGUF file can hold.
#include "base/json.h"
#include "convert/tokenizer.h"

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace {

void read_tokenizer(std::string_view text) {
  const auto json = culet::base::parse_json(text);
  if (!json) return;
  for (const char* kind : {"", "other"}) {
    culet::format::GgufMetadata metadata;
    std::vector<std::string> notes;
    culet::convert::TokenizerFiles files{.tokenizer = &*json, .settings = &*json};
    files.config = &*json;
    files.generation = &*json;
    const culet::convert::TokenizerOptions options{.rows = 300, .kind = kind};
    static_cast<void>(culet::convert::add_tokenizer(files, options, &metadata, &notes));
  }
}

void read_model(std::string_view bytes) {
  culet::format::GgufMetadata metadata;
  std::vector<std::string> notes;
  culet::convert::TokenizerFiles files;
  files.sentencepiece = bytes;
  static_cast<void>(culet::convert::add_tokenizer(files, {.rows = 300}, &metadata, &notes));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] == 't') read_tokenizer(text);
  if (data[0] == 'm') read_model(text);
  return 0;
}
