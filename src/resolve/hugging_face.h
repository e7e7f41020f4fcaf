// The cache that the Hugging Face programs keep: models--ORG--REPO/{refs,snapshots,blobs}. Only
// ever read. refs/NAME holds a commit; snapshots/COMMIT/FILE is a link to blobs/ETAG, and the ETag
// of a large file is its sha256.
#pragma once

#include "culet/hub.h"
#include "culet/result.h"
#include "resolve/places.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace culet::resolve {

// The name of the blob that the file of a snapshot links to, when that is a sha256; else "".
std::string digest_of_link(const std::string& path);

struct HubName {
  std::string org, repo;
  std::string revision;  // branch, tag, or a commit (also its first 7 or more digits); "": main
  std::string quant;     // "": not said
};

// `org/repo[@revision][:quant]`; nothing when the text cannot be such a name.
std::optional<HubName> parse_hub_name(std::string_view text);
std::string to_text(const HubName& name);

// Nothing: the repository is not in the cache. kNotFound: it is, but not this revision or file;
// kInvalidArgument: several files could be meant; kCorrupt: a file of it is missing.
Result<std::optional<ModelRef>> find_in_hub(const Places& places, const HubName& name);

// All repositories that have a GGUF file, one name for each candidate file of each snapshot that
// refs/main (or, without it, the newest time) points to.
struct HubFile {
  HubName name;  // with the quant, or the file's name, that leads to this file alone
  std::string path;
};
std::vector<HubFile> list_hub(const Places& places, std::vector<std::string>* problems);

// GGUF files below a folder, as relative paths, sorted; at most four folders deep.
std::vector<std::string> gguf_below(const std::string& folder, std::vector<std::string>* problems);

// The commit in `commits` that the text names by its first 7 or more digits, when it is only one.
std::optional<std::string> match_commit(const std::vector<std::string>& commits,
                                        std::string_view text);

}  // namespace culet::resolve
