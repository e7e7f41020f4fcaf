// Where models are kept and where they are fetched from, by the environment's rules.
#pragma once

#include "base/user_folders.h"

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

Places places_from(const base::Variables& variables);
Places places_from_environment();

}  // namespace culet::resolve
