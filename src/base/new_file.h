// Files that appear whole or not at all.
#pragma once

#include "culet/result.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace culet::base {

// A file that is written beside its place, under a name of its own, and gets its name in the end.
// What is not committed is gone with the object; a file of that name stays as it was until then.
// Through a link the file that it leads to is replaced. What is there and no ordinary file is an
// error.
// Belongs to one thread.
class NewFile {
 public:
  // Errors of all calls: those of the system, with the path that was asked for.
  static Result<NewFile> create(const std::string& path);
  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();

  Result<void> write(std::span<const std::byte> bytes);  // behind what was written before
  uint64_t bytes() const { return bytes_; }              // written so far
  // Syncs the file, gives it its name, in place of an older one, and syncs the folder.
  Result<void> commit();

 private:
  NewFile(int fd, std::string path, std::string scratch);

  int fd_;
  std::string path_, scratch_;  // scratch_: "" when it is gone
  uint64_t bytes_ = 0;
};

// Syncs a file that was written under another name, gives it its name, syncs the folder.
Result<void> publish(const std::string& scratch, const std::string& path);

// The whole text or the file as it was before.
Result<void> write_whole(const std::string& path, std::string_view text);

// Bytes that this user may still write in the folder's file system.
Result<uint64_t> free_bytes(const std::string& folder);

std::string folder_of(const std::string& path);  // "." for a name alone

// "1.2 GB", "98 MB", "512 bytes": powers of 1000.
std::string in_words(uint64_t bytes);

}  // namespace culet::base
