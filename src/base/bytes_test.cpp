#include "base/bytes.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>

namespace culet::base {
namespace {

// Requirement reports-loading.llama.cpp#18674 "ggml-org/llama.cpp#18674: a dimension makes the size
// wrap to 0": sizes are multiplied with checks
TEST(Bytes, CheckedArithmetic) {
  uint64_t out = 0;
  EXPECT_TRUE(checked_mul<uint64_t>(uint64_t{1} << 32, (uint64_t{1} << 32) - 1, &out));
  EXPECT_EQ(out, 0xffffffff00000000u);
  EXPECT_FALSE(checked_mul<uint64_t>(uint64_t{1} << 32, uint64_t{1} << 32, &out));
  EXPECT_TRUE(checked_add<uint64_t>(UINT64_MAX - 1, 1, &out));
  EXPECT_FALSE(checked_add<uint64_t>(UINT64_MAX, 1, &out));
  int64_t s = 0;
  EXPECT_FALSE(checked_add<int64_t>(std::numeric_limits<int64_t>::max(), 1, &s));
}

TEST(Bytes, CursorStopsAtTheEnd) {
  const std::array<std::byte, 7> raw = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4},
                                        std::byte{5}, std::byte{6}, std::byte{7}};
  Cursor c{raw};
  uint32_t u32 = 0;
  ASSERT_TRUE(c.read(&u32));
  EXPECT_EQ(u32, 0x04030201u);
  EXPECT_FALSE(c.read(&u32));  // three bytes are left, and stay
  EXPECT_EQ(c.remaining(), 3u);
  std::span<const std::byte> part;
  EXPECT_FALSE(c.take(UINT64_MAX, &part));
  EXPECT_FALSE(c.skip(4));
  ASSERT_TRUE(c.take(2, &part));
  EXPECT_EQ(part[1], std::byte{6});
  uint8_t u8 = 0;
  ASSERT_TRUE(c.read(&u8));
  EXPECT_EQ(u8, 7);
  EXPECT_EQ(c.position(), 7u);
  EXPECT_FALSE(c.read(&u8));
}

TEST(Bytes, ReadsFloats) {
  const std::array<std::byte, 4> raw = {std::byte{0}, std::byte{0}, std::byte{0xc0},
                                        std::byte{0xbf}};
  EXPECT_EQ(load_le<float>(raw.data()), -1.5f);
}

}  // namespace
}  // namespace culet::base
