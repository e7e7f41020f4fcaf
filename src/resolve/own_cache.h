// culet's own cache folder: the models it fetched, where each came from, and the digests it has
// computed. scripts/fetch_model writes into the same folder by the same rules.
//
//   FILE                                a model of the catalogue
//   hf/ORG/REPO/COMMIT/FILE             pulled from a Hugging Face hub
//   ollama/HOST/NAMESPACE/MODEL/TAG.gguf  pulled from an Ollama registry
//   .digests/                           digests of files that are somewhere else
// and beside each FILE: .FILE.verified (its digest, with inode, size and time), .FILE.source (where
// it came from); while it is fetched .FILE.part, .FILE.part.state and .NAME.lock.
#pragma once

#include "culet/hub.h"
#include "culet/result.h"
#include "resolve/catalogue.h"
#include "resolve/hugging_face.h"
#include "resolve/ollama.h"
#include "resolve/places.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace culet::resolve {

struct Source {
  std::string origin;    // "hf:org/repo@<commit>:Q4_K_M", "ollama:name:tag", "catalogue:name"
  std::string revision;  // commit, or ""
  std::vector<std::string> asked;  // revisions that led here: "main"
  std::string sha256;
  uint64_t bytes = 0;
  int64_t pulled = 0;  // seconds since 1970
};
Result<Source> parse_source(std::string_view text);
std::optional<Source> read_source(const std::string& path);
Result<void> write_source(const std::string& path, const Source& source);

// What base::DigestCache remembers in culet's cache folder.
std::optional<std::string> known_digest(const Places& places, const std::string& path);
void remember_digest(const Places& places, const std::string& path, const std::string& sha256);

std::string catalogue_path(const Places& places, const CatalogueModel& model);
std::string hub_folder(const Places& places, const HubName& name);  // of the repository
std::string ollama_path(const Places& places, const OllamaName& name);

// As in the stores: nothing when it is not here.
Result<std::optional<ModelRef>> find_own(const Places& places, const CatalogueModel& model);
Result<std::optional<ModelRef>> find_own(const Places& places, const HubName& name);
Result<std::optional<ModelRef>> find_own(const Places& places, const OllamaName& name);

struct OwnFile {
  std::string name, path;
};
std::vector<OwnFile> list_own(const Places& places, const Catalogue& catalogue,
                              std::vector<std::string>* problems);

// The model's file, its other parts, and everything culet keeps beside them; then empty folders.
Result<RemovedModel> remove_own(const Places& places, const std::string& path);

}  // namespace culet::resolve
