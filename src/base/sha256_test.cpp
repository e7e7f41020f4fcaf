#include "base/sha256.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <string_view>
#include <unistd.h>

namespace culet::base {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TEST(Sha256, KnownSums) {  // FIPS 180-2, appendix B
  EXPECT_EQ(sha256_hex({}), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex(bytes_of("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Sha256 pieces;
  const std::string chunk(1000, 'a');
  for (int i = 0; i < 1000; ++i) pieces.update(bytes_of(chunk));
  EXPECT_EQ(pieces.hex(), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, FileWithProgress) {
  const std::string path = ::testing::TempDir() + "culet-sha-" + std::to_string(::getpid());
  std::ofstream(path, std::ios::binary) << std::string(1'000'000, 'a');
  uint64_t last = 0, total = 0;
  const auto sum = sha256_file(path, [&](uint64_t done, uint64_t all) {
    EXPECT_GT(done, last);
    last = done;
    total = all;
    return true;
  });
  ASSERT_TRUE(sum) << sum.error().message;
  EXPECT_EQ(*sum, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_EQ(last, 1'000'000u);
  EXPECT_EQ(total, 1'000'000u);
  const auto stopped = sha256_file(path, [](uint64_t, uint64_t) { return false; });
  EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
  std::remove(path.c_str());
  EXPECT_EQ(sha256_file(path).error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace culet::base
