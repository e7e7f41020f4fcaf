// SHA-256, as 64 lower-case hexadecimal digits.
#pragma once

#include "culet/result.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace culet::base {

// Bytes as they come, for a download or a pipe. Not shared between threads.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  void update(std::span<const std::byte> bytes);
  std::string hex();  // ends the sum: no update() and no second hex() after it

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

std::string sha256_hex(std::span<const std::byte> bytes);

// Called with (bytes done, bytes of the file) after each few MiB; false stops with kCancelled.
using Sha256Progress = std::function<bool(uint64_t done, uint64_t total)>;
Result<std::string> sha256_file(const std::string& path, const Sha256Progress& progress = nullptr);

}  // namespace culet::base
