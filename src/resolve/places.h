// Where models are kept and where they are fetched from, by the environment's rules.
#pragma once

#include <functional>
#include <string>

namespace culet::resolve {

// Folders may be missing on disk; an empty one is not known (no HOME) and is not searched.
struct Places {
  std::string home;
  std::string ollama;        // has manifests/ and blobs/
  std::string hugging_face;  // the hub: has models--ORG--REPO/
  std::string cache;         // culet's own
  std::string hf_endpoint;
  std::string hf_token;       // of the environment; "": the one in the file, if it is there
  std::string hf_token_path;  // where a login left one; "" is no place
  std::string ollama_registry;
  std::string pypi_index;
};

// The value of a variable, "" when it is not set.
using Variables = std::function<std::string(const char*)>;
Places places_from(const Variables& variables);
Places places_from_environment();

// "~" and "~/x" with the home folder in place of the "~"; anything else as it is.
std::string expand_home(const Places& places, const std::string& path);

}  // namespace culet::resolve
