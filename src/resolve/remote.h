// What hubs and package indexes answer: documents from outside to lists of files.
#pragma once

#include "culet/result.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace culet::resolve {

struct RemoteFile {
  std::string name;    // path in the repository, or the file's name
  std::string url;     // package indexes only; absolute
  std::string sha256;  // "" when it is not said
  uint64_t bytes = 0;  // 0: not said
};

struct HubRevision {
  std::string commit;
  std::vector<RemoteFile> files;  // GGUF files only, with names that are safe to join to a folder
};

// The hub's answer about a revision: {"sha": ..., "siblings": [{"rfilename", "size", "lfs":
// {"sha256", "size"}}]}.
Result<HubRevision> parse_hub_revision(std::string_view text);

// A project's page of a package index, JSON (PEP 691) or HTML (PEP 503); addresses are relative to
// `url`.
Result<std::vector<RemoteFile>> parse_package_page(std::string_view text, bool json,
                                                   const std::string& url);

// The wheel of exactly this version: one for any platform if there is, else the first by name.
const RemoteFile* choose_wheel(const std::vector<RemoteFile>& files, const std::string& package,
                               const std::string& version);

// PEP 503: lower case, runs of "-", "_" and "." are one "-".
std::string normalized_package(std::string_view name);

}  // namespace culet::resolve
