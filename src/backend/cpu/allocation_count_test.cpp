// The test program's operator new, counting. In a file of its own, so that no caller has it
// inlined.
#include "backend/cpu/test_model.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

static std::atomic<int64_t> allocations{0};

void* operator new(size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(bytes);
}
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"  // g++ with sanitizers: they do match
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
#pragma GCC diagnostic pop

namespace culet::backend::test {

int64_t allocation_count() { return allocations; }

TEST(AllocationCount, Counts) {
  const int64_t before = allocation_count();
  std::vector<int> some(100);
  EXPECT_GT(some.size(), 0u);
  EXPECT_GT(allocation_count(), before);
}

}  // namespace culet::backend::test
