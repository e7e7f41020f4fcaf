#include "base/new_file.h"

#include "base/os_error.h"

#include <fmt/format.h>

#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace culet::base {
namespace {

Result<void> sync_path(const std::string& path, int flags) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC);
  if (fd < 0) return tl::unexpected(os_error("open", path, errno));
  const int failed = ::fsync(fd) != 0 ? errno : 0;
  ::close(fd);
  // Some file systems cannot sync a folder; the rename is still atomic there.
  if (failed && failed != EINVAL) return tl::unexpected(os_error("sync", path, failed));
  return {};
}

constexpr int kAttempts = 1000;

// Where a file of this name lies: behind links. A device or pipe would be replaced, not written.
Result<std::string> place_of(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    if (!std::filesystem::is_symlink(path, error)) return path;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} is a link to nothing; give another name", path));
  }
  if (status.type() != std::filesystem::file_type::regular) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} is there and no ordinary file; give another name", path));
  }
  const std::filesystem::path place = std::filesystem::canonical(path, error);
  return error ? path : place.string();
}

}  // namespace

Result<NewFile> NewFile::create(const std::string& asked) {
  CULET_TRY(const std::string path, place_of(asked));
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::string scratch = fmt::format("{}.{}-{}.new", path, ::getpid(), attempt);
    const int fd = ::open(scratch.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 && errno == EEXIST) continue;  // another thread's, or of a process that was killed
    if (fd < 0) return tl::unexpected(os_error("create", path, errno));
    struct stat old{};
    if (::stat(path.c_str(), &old) == 0) ::fchmod(fd, old.st_mode & 0777);  // who may read it stays
    return NewFile(fd, path, std::move(scratch));
  }
  return tl::unexpected(os_error("create", path, EEXIST));
}

NewFile::NewFile(int fd, std::string path, std::string scratch)
    : fd_(fd), path_(std::move(path)), scratch_(std::move(scratch)) {}

NewFile::NewFile(NewFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      path_(std::move(other.path_)),
      scratch_(std::exchange(other.scratch_, {})),
      bytes_(other.bytes_) {}

NewFile::~NewFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!scratch_.empty()) ::unlink(scratch_.c_str());
}

Result<void> NewFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return tl::unexpected(os_error("write", path_, errno));
    bytes = bytes.subspan(size_t(written));
    bytes_ += uint64_t(written);
  }
  return {};
}

Result<void> NewFile::commit() {
  if (::close(std::exchange(fd_, -1)) != 0) {
    return tl::unexpected(os_error("write", path_, errno));
  }
  CULET_TRY_VOID(publish(scratch_, path_));
  scratch_.clear();
  return {};
}

Result<void> publish(const std::string& scratch, const std::string& path) {
  CULET_TRY_VOID(sync_path(scratch, O_RDONLY));
  if (::rename(scratch.c_str(), path.c_str()) != 0) {
    return tl::unexpected(os_error("create", path, errno));
  }
  return sync_path(folder_of(path), O_RDONLY | O_DIRECTORY);
}

Result<void> write_whole(const std::string& path, std::string_view text) {
  CULET_TRY(NewFile file, NewFile::create(path));
  CULET_TRY_VOID(file.write(std::as_bytes(std::span(text))));
  return file.commit();
}

Result<uint64_t> free_bytes(const std::string& folder) {
  struct statvfs info{};
  if (::statvfs(folder.c_str(), &info) != 0) {
    return tl::unexpected(os_error("read", folder, errno));
  }
  return uint64_t(info.f_bavail) * uint64_t(info.f_frsize);
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string in_words(uint64_t bytes) {
  const auto value = double(bytes);
  if (bytes >= 1'000'000'000) return fmt::format("{:.1f} GB", value / 1e9);
  if (bytes >= 10'000'000) return fmt::format("{:.0f} MB", value / 1e6);
  if (bytes >= 1'000'000) return fmt::format("{:.1f} MB", value / 1e6);
  if (bytes >= 10'000) return fmt::format("{:.0f} kB", value / 1e3);
  return fmt::format("{} bytes", bytes);
}

}  // namespace culet::base
