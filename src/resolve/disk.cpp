#include "resolve/disk.h"

#include "base/os_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

namespace culet::resolve {
namespace {

namespace fs = std::filesystem;

Result<void> sync_path(const std::string& path, int flags) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC);
  if (fd < 0) return tl::unexpected(base::os_error("open", path, errno));
  const int failed = ::fsync(fd) != 0 ? errno : 0;
  ::close(fd);
  // Some file systems cannot sync a folder; the rename is still atomic there.
  if (failed && failed != EINVAL) return tl::unexpected(base::os_error("sync", path, failed));
  return {};
}

Result<void> write_all(const std::string& path, std::string_view text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return tl::unexpected(base::os_error("create", path, errno));
  int failed = 0;
  while (!text.empty() && !failed) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written >= 0) text.remove_prefix(size_t(written));
    if (written < 0 && errno != EINTR) failed = errno;
  }
  if (::close(fd) != 0 && !failed) failed = errno;
  if (failed) return tl::unexpected(base::os_error("write", path, failed));
  return {};
}

}  // namespace

std::vector<DirEntry> list_folder(const std::string& path, std::vector<std::string>* problems,
                                  bool hidden) {
  std::vector<DirEntry> out;
  std::error_code error;
  fs::directory_iterator it(path, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    DirEntry entry{it->path().filename().string()};
    if (!hidden && entry.name.starts_with('.')) continue;
    std::error_code ignored;  // a link that leads nowhere is neither
    entry.is_folder = it->is_directory(ignored);
    entry.is_file = it->is_regular_file(ignored);
    out.push_back(std::move(entry));
  }
  if (error && problems && error != std::errc::no_such_file_or_directory) {
    problems->push_back(fmt::format("cannot read {}: {}", path, error.message()));
  }
  std::sort(out.begin(), out.end(),
            [](const DirEntry& a, const DirEntry& b) { return a.name < b.name; });
  return out;
}

bool is_file(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

bool is_folder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

uint64_t file_bytes(const std::string& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) ? uint64_t(info.st_size) : 0;
}

Result<FileIdentity> identity_of(const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) return tl::unexpected(base::os_error("read", path, errno));
  constexpr int64_t kSecond = 1'000'000'000;
  return FileIdentity{uint64_t(info.st_dev), uint64_t(info.st_ino), uint64_t(info.st_size),
                      int64_t(info.st_mtim.tv_sec) * kSecond + int64_t(info.st_mtim.tv_nsec)};
}

Result<void> make_folders(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return tl::unexpected(base::os_error("create", path, error.value()));
  return {};
}

Result<void> write_whole(const std::string& path, std::string_view text) {
  const std::string scratch = fmt::format("{}.{}.new", path, ::getpid());
  Result<void> done = write_all(scratch, text);
  if (done) done = publish(scratch, path);
  if (!done) ::unlink(scratch.c_str());
  return done;
}

Result<void> publish(const std::string& scratch, const std::string& path) {
  CULET_TRY_VOID(sync_path(scratch, O_RDONLY));
  if (::rename(scratch.c_str(), path.c_str()) != 0) {
    return tl::unexpected(base::os_error("create", path, errno));
  }
  return sync_path(folder_of(path), O_RDONLY | O_DIRECTORY);
}

Result<uint64_t> free_bytes(const std::string& folder) {
  struct statvfs info{};
  if (::statvfs(folder.c_str(), &info) != 0) {
    return tl::unexpected(base::os_error("read", folder, errno));
  }
  return uint64_t(info.f_bavail) * uint64_t(info.f_frsize);
}

std::string in_words(uint64_t bytes) {
  const auto value = double(bytes);
  if (bytes >= 1'000'000'000) return fmt::format("{:.1f} GB", value / 1e9);
  if (bytes >= 10'000'000) return fmt::format("{:.0f} MB", value / 1e6);
  if (bytes >= 1'000'000) return fmt::format("{:.1f} MB", value / 1e6);
  if (bytes >= 10'000) return fmt::format("{:.0f} kB", value / 1e3);
  return fmt::format("{} bytes", bytes);
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == path.npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = char(c - 'A' + 'a');
  }
  return out;
}

bool is_hex(std::string_view text, size_t digits) {
  return text.size() == digits && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

bool is_safe_relative(std::string_view path) {
  constexpr size_t kLongestComponent = 200, kLongestPath = 1000;
  if (path.size() > kLongestPath) return false;
  for (size_t start = 0; start <= path.size();) {
    const size_t end = std::min(path.find('/', start), path.size());
    const std::string_view part = path.substr(start, end - start);
    if (part.empty() || part == "." || part == ".." || part.size() > kLongestComponent) {
      return false;
    }
    start = end + 1;
  }
  return std::all_of(path.begin(), path.end(),
                     [](char c) { return c >= ' ' && c <= '~' && c != '\\' && c != ':'; });
}

}  // namespace culet::resolve
