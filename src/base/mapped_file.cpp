// Maps privately and read-only: pages come from the page cache and can be dropped at any time.
#include "base/mapped_file.h"

#include "base/os_error.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace culet::base {

Result<MappedFile> MappedFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return tl::unexpected(os_error("open", path, errno));
  struct stat info{};
  const int stat_error = ::fstat(fd, &info) == 0 ? 0 : errno;
  const bool regular = stat_error == 0 && S_ISREG(info.st_mode);
  void* data = nullptr;
  int map_error = 0;
  if (regular && info.st_size > 0) {
    data = ::mmap(nullptr, size_t(info.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) map_error = errno;
  }
  ::close(fd);
  if (stat_error != 0) return tl::unexpected(os_error("read", path, stat_error));
  if (!regular) {
    if (S_ISDIR(info.st_mode)) return tl::unexpected(os_error("open", path, EISDIR));
    return fail(ErrorCode::kIo, "cannot map '" + path + "': it is not a regular file");
  }
  if (map_error != 0) return tl::unexpected(os_error("map", path, map_error));
  MappedFile file;
  file.data_ = static_cast<const std::byte*>(data);
  file.size_ = size_t(info.st_size);
  file.path_ = path;
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      path_(std::move(other.path_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::release(std::span<const std::byte> part) const { advise(part, MADV_DONTNEED); }

void MappedFile::read_sparsely(std::span<const std::byte> part) const { advise(part, MADV_RANDOM); }

void MappedFile::advise(std::span<const std::byte> part, int advice) const {
  if (data_ == nullptr || part.empty()) return;
  const auto base = reinterpret_cast<uintptr_t>(data_);
  const auto begin = reinterpret_cast<uintptr_t>(part.data());
  if (begin < base || begin - base > size_ || part.size() > size_ - (begin - base)) return;
  const auto page = uintptr_t(::sysconf(_SC_PAGESIZE));
  const uintptr_t first = (begin + page - 1) / page * page;  // only pages that lie wholly inside
  const uintptr_t last = (begin + part.size()) / page * page;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, advice);
}

}  // namespace culet::base
