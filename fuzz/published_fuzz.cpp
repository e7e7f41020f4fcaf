// Any bytes as what a folder holds besides weights: tokenizer.json, tokenizer.model, or a family
// file with an expression. The first byte chooses; the readers refuse them or give keys that a GGUF
// file can hold.
#include "base/json.h"
#include "convert/expression.h"
#include "convert/family.h"
#include "convert/tokenizer.h"

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace {

using Json = nlohmann::ordered_json;

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

void read_family(std::string_view text) {
  const auto family =
      culet::convert::parse_family("fuzz", text, culet::convert::builtin_families());
  if (!family) return;
  const Json config = Json::parse(R"({"a": 1, "b": "text", "c": [1, 2], "d": {"a": null}})");
  culet::convert::Scope scope(&config);
  for (const auto& [name, value] : family->definitions) scope.define(name, value);
  for (const auto& row : family->metadata) static_cast<void>(scope.value(row.value, 0));
  for (const auto& row : family->requirements) static_cast<void>(scope.holds(row.condition));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] == 't') read_tokenizer(text);
  if (data[0] == 'm') read_model(text);
  if (data[0] == 'f') read_family(text);
  return 0;
}
