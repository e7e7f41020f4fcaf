#include "base/sha256.h"

#include "base/check.h"
#include "base/os_error.h"

#include <openssl/evp.h>

#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace culet::base {
namespace {

constexpr size_t kChunk = size_t{4} << 20;

Result<std::string> sum_of(int fd, const std::string& path, const Sha256Progress& progress) {
  struct stat info{};
  if (::fstat(fd, &info) != 0) return tl::unexpected(os_error("read", path, errno));
  Sha256 sum;
  std::vector<std::byte> buffer(kChunk);
  uint64_t done = 0;
  for (;;) {
    const ssize_t got = ::read(fd, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return tl::unexpected(os_error("read", path, errno));
    if (got == 0) return sum.hex();
    sum.update({buffer.data(), size_t(got)});
    done += uint64_t(got);
    if (progress && !progress(done, uint64_t(info.st_size))) {
      return fail(ErrorCode::kCancelled, "stopped while checking '" + path + "'");
    }
  }
}

}  // namespace

struct Sha256::Impl {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~Impl() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : impl_(std::make_unique<Impl>()) {
  CULET_CHECK(impl_->context != nullptr);
  CULET_CHECK(EVP_DigestInit_ex(impl_->context, EVP_sha256(), nullptr) == 1);
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(std::span<const std::byte> bytes) {
  CULET_CHECK(EVP_DigestUpdate(impl_->context, bytes.data(), bytes.size()) == 1);
}

std::string Sha256::hex() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  CULET_CHECK(EVP_DigestFinal_ex(impl_->context, digest, &length) == 1 && length == 32);
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (unsigned i = 0; i < length; ++i) {
    out.push_back(kDigits[digest[i] >> 4]);
    out.push_back(kDigits[digest[i] & 15]);
  }
  return out;
}

std::string sha256_hex(std::span<const std::byte> bytes) {
  Sha256 sum;
  sum.update(bytes);
  return sum.hex();
}

Result<std::string> sha256_file(const std::string& path, const Sha256Progress& progress) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return tl::unexpected(os_error("open", path, errno));
  Result<std::string> out = sum_of(fd, path, progress);
  ::close(fd);
  return out;
}

}  // namespace culet::base
