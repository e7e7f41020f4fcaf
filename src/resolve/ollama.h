// Models that the Ollama program keeps: manifests by name, contents by sha256. Only ever read.
//
// Layout: manifests/HOST/NAMESPACE/MODEL/TAG is a JSON document that lists layers, each a file
// blobs/sha256-<64 hex>. A name leaves out what is the default: registry.ollama.ai, library,
// latest.
#pragma once

#include "culet/hub.h"
#include "culet/result.h"
#include "resolve/places.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace culet::resolve {

struct OllamaName {
  std::string host, space, model, tag;
};

// `[host/][namespace/]model[:tag]`; nothing when the text cannot be such a name.
std::optional<OllamaName> parse_ollama_name(std::string_view text);
std::string to_text(const OllamaName& name);  // without defaults, but with the tag

struct OllamaLayer {
  std::string sha256;
  uint64_t bytes = 0;
};

struct OllamaManifest {
  OllamaLayer model;
  std::vector<std::string> notes;  // layers that culet does not use
};

// kCorrupt: no JSON, a digest that is none. kUnsupported: no layer is a GGUF model.
Result<OllamaManifest> parse_ollama_manifest(std::string_view text);

// Nothing: the store has no such name. kCorrupt: it has, but what is there is damaged.
Result<std::optional<ModelRef>> find_in_ollama(const Places& places, const OllamaName& name);

// The names of all manifests, sorted; folders that cannot be read are lines in *problems.
std::vector<OllamaName> list_ollama(const Places& places, std::vector<std::string>* problems);

}  // namespace culet::resolve
