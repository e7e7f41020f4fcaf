#include "base/allocation_counter.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace culet::base {
namespace {

TEST(AllocationCounter, Counts) {
  const int64_t before = allocation_count();
  std::vector<int> some(100);
  EXPECT_GT(some.size(), 0u);
  EXPECT_EQ(allocation_count(), before + 1);
  struct alignas(64) Line {
    char bytes[64];
  };
  EXPECT_NE(std::make_unique<Line>(), nullptr);
  EXPECT_EQ(allocation_count(), before + 2);
}

}  // namespace
}  // namespace culet::base
