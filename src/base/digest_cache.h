// SHA-256 sums of large files, remembered so that no file is read twice for its sum.
#pragma once

#include "culet/progress.h"
#include "culet/result.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace culet::base {

// What must be unchanged for a file to count as unchanged.
struct FileIdentity {
  uint64_t device = 0, inode = 0, bytes = 0;
  int64_t mtime_ns = 0;
  bool operator==(const FileIdentity&) const = default;
};
Result<FileIdentity> identity_of(const std::string& path);

// Notes about files, in one folder: beside a file that is itself in the folder (.FILE.verified),
// below .digests for all others. A note counts only for the file that it was written for: same
// identity. Threads and processes may use the same folder at once; a note appears whole or not at
// all.
class DigestCache {
 public:
  // culet's cache folder (base/user_folders.h), made when it is needed; "": nothing is remembered.
  explicit DigestCache(std::string folder) : folder_(std::move(folder)) {}

  // The sum of this file as it is now, 64 digits, if it was remembered.
  std::optional<std::string> known(const std::string& path) const;
  // Silently does nothing when the folder cannot be written.
  void remember(const std::string& path, const std::string& sha256) const;
  // Reads the file; remembers its sum unless the file changed meanwhile. Errors: those of
  // sha256_file. Progress: stage "hashing", in bytes.
  Result<std::string> compute(const std::string& path, const ProgressFn& progress = {}) const;
  // The known sums of the files, or computed ones, in order. The progress counts the bytes of all
  // files that have to be read.
  Result<std::vector<std::string>> sums(const std::vector<std::string>& paths,
                                        const ProgressFn& progress = {}) const;

 private:
  bool holds(const std::string& path) const;
  std::string note_path(const std::string& path) const;

  std::string folder_;
};

// The name of a file's companion: ".FILE.<what>" in the same folder.
std::string beside(const std::string& path, std::string_view what);

bool is_inside(const std::string& path, const std::string& folder);
bool is_hex(std::string_view text, size_t digits);  // that many lower-case digits

}  // namespace culet::base
