// In a file of its own, so that no caller has an operator inlined.
#include "base/allocation_counter.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace culet::base {
namespace {

std::atomic<int64_t> allocations{0};

void* counted(size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(bytes);
}
void* counted(size_t bytes, std::align_val_t align) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  const auto a = static_cast<size_t>(align);
  return std::aligned_alloc(a, (bytes + a - 1) / a * a);
}
void* or_throw(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

int64_t allocation_count() { return allocations.load(); }

}  // namespace culet::base

using culet::base::counted;
using culet::base::or_throw;

void* operator new(size_t bytes) { return or_throw(counted(bytes)); }
void* operator new(size_t bytes, std::align_val_t align) { return or_throw(counted(bytes, align)); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return counted(bytes); }
void* operator new(size_t bytes, std::align_val_t align, const std::nothrow_t&) noexcept {
  return counted(bytes, align);
}
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"  // g++ with sanitizers: they do match
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
#pragma GCC diagnostic pop
