// A read-only memory mapping of a whole file. The file must not shrink while it is mapped.
#pragma once

#include "culet/result.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace culet::base {

class MappedFile {
 public:
  // Errors: kNotFound, kIo (a directory, no permission, empty file maps to an empty span).
  static Result<MappedFile> open(const std::string& path);
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }
  // Tells the kernel that these bytes will not be read again soon, so their pages can go.
  void release(std::span<const std::byte> part) const;
  // Tells the kernel that few of these bytes will be read, here and there: it need not read ahead.
  void read_sparsely(std::span<const std::byte> part) const;

 private:
  void advise(std::span<const std::byte> part, int advice) const;

  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::string path_;
};

}  // namespace culet::base
