// Zeroed memory straight from the system, 64-byte aligned, resident only where it was touched.
// For what is large and lives long: packed weights, arenas, scratch.
#pragma once

#include <cstddef>
#include <cstdint>

namespace culet::backend {

class Region {
 public:
  Region() = default;
  Region(Region&& other) noexcept;
  Region& operator=(Region&& other) noexcept;
  ~Region();

  // False: the system has no room. kFilled: all of it will be used, in large pages if there are
  // any; kSparse: address space of which little may ever be touched.
  enum Use { kFilled, kSparse };
  bool allocate(size_t bytes, Use use);
  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace culet::backend
