#include "backend/cpu/region.h"

#include "base/check.h"

#include <sys/mman.h>
#include <utility>

namespace culet::backend {

Region::Region(Region&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Region& Region::operator=(Region&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Region::~Region() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

bool Region::allocate(size_t bytes, Use use) {
  CULET_CHECK(data_ == nullptr);
  if (bytes == 0) return true;
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | (use == kSparse ? MAP_NORESERVE : 0), -1, 0);
  if (memory == MAP_FAILED) return false;
  if (use == kFilled) ::madvise(memory, bytes, MADV_HUGEPAGE);  // a wish: refusal costs nothing
  data_ = static_cast<uint8_t*>(memory);
  size_ = bytes;
  return true;
}

}  // namespace culet::backend
