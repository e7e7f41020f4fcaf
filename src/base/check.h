// CULET_CHECK: for promises only culet itself can break. Kept in release builds; prints and aborts.
#pragma once

namespace culet::base {
[[noreturn]] void check_failed(const char* expression, const char* file, int line);
}  // namespace culet::base

#define CULET_CHECK(x) \
  ((x) ? static_cast<void>(0) : ::culet::base::check_failed(#x, __FILE__, __LINE__))
