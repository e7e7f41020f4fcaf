#include "base/files.h"

#include "base/os_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace culet::base {
namespace {

Result<std::string> read_all(int fd, const std::string& path, uint64_t max_bytes) {
  std::string out;
  struct stat info{};
  if (::fstat(fd, &info) != 0) return tl::unexpected(os_error("read", path, errno));
  const uint64_t expected = S_ISREG(info.st_mode) ? uint64_t(info.st_size) : 0;
  uint64_t chunk = std::min(expected, max_bytes) + 1;  // + 1 sees the end without another round
  for (;;) {
    const size_t have = out.size();
    chunk = std::max<uint64_t>(chunk, 64 << 10);
    out.resize(have + size_t(std::min(chunk, max_bytes - have + 1)));
    const ssize_t got = ::read(fd, out.data() + have, out.size() - have);
    if (got < 0 && errno != EINTR) return tl::unexpected(os_error("read", path, errno));
    out.resize(have + size_t(std::max<ssize_t>(got, 0)));
    if (got == 0) return out;
    if (out.size() > max_bytes) {
      return fail(
          ErrorCode::kExhausted,
          fmt::format("'{}' is longer than the {} bytes that are allowed here", path, max_bytes));
    }
    chunk = out.size();
  }
}

}  // namespace

Result<std::string> read_file(const std::string& path, uint64_t max_bytes) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return tl::unexpected(os_error("open", path, errno));
  Result<std::string> out = read_all(fd, path, std::min(max_bytes, uint64_t{1} << 40));
  ::close(fd);
  return out;
}

}  // namespace culet::base
