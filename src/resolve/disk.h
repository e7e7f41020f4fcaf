// Folders and small files of the stores: what std::filesystem says, without exceptions, in order.
#pragma once

#include "base/digest_cache.h"
#include "base/new_file.h"
#include "culet/result.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace culet::resolve {

using base::beside;
using base::FileIdentity;
using base::folder_of;
using base::free_bytes;
using base::identity_of;
using base::in_words;
using base::is_hex;
using base::is_inside;
using base::publish;
using base::write_whole;

struct DirEntry {
  std::string name;
  bool is_folder = false;  // links are followed
  bool is_file = false;    // neither: a dangling link, a device
};

// The entries of a folder by name (byte order), names that start with "." left out unless asked
// for. A folder that is not there is empty; one that cannot be read is empty and a line in
// *problems (which may be null).
std::vector<DirEntry> list_folder(const std::string& path, std::vector<std::string>* problems,
                                  bool hidden = false);

bool is_file(const std::string& path);  // a regular file, or a link to one
bool is_folder(const std::string& path);
// Size of a file; 0 when it is not there.
uint64_t file_bytes(const std::string& path);

Result<void> make_folders(const std::string& path);
std::string base_name(const std::string& path);
std::string lower(std::string_view text);  // ASCII

// A relative path of one or more components, none of them "", "." or "..", of printable ASCII
// without backslash and colon, that can be joined to a folder without leaving it.
bool is_safe_relative(std::string_view path);

}  // namespace culet::resolve
