// Over made-up /proc and /sys trees, and once over the real one.
#include "base/memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace culet::base {
namespace {

namespace fs = std::filesystem;

class Memory : public testing::Test {
 protected:
  void SetUp() override {
    root_ =
        fs::path(testing::TempDir()) /
        ("memory-" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(root_);
    write("proc/meminfo", "MemTotal:  9000 kB\nMemAvailable:    1000 kB\n");
  }
  void TearDown() override { fs::remove_all(root_); }
  void write(const std::string& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  uint64_t available() const { return available_memory(root_.string()); }

  fs::path root_;
};

TEST_F(Memory, OfTheMachine) {
  EXPECT_EQ(available(), 1024000u);
  fs::remove_all(root_);
  EXPECT_EQ(available(), UINT64_MAX);
}

TEST_F(Memory, OfTheNarrowestGroup) {
  write("proc/self/cgroup", "0::/a/b\n");
  write("sys/fs/cgroup/a/b/memory.max", "max\n");
  write("sys/fs/cgroup/a/b/memory.current", "100\n");
  EXPECT_EQ(available(), 1024000u);
  write("sys/fs/cgroup/a/memory.max", "5000\n");
  write("sys/fs/cgroup/a/memory.current", "4000\n");
  EXPECT_EQ(available(), 1000u);
  write("sys/fs/cgroup/a/memory.stat", "anon 700\ninactive_file 500\n");
  EXPECT_EQ(available(), 1500u);
  write("sys/fs/cgroup/a/memory.current", "9000\n");
  EXPECT_EQ(available(), 0u);
  write("sys/fs/cgroup/a/memory.max", "not a number\n");
  EXPECT_EQ(available(), 1024000u);
}

TEST_F(Memory, OfTheOldGroups) {
  write("proc/self/cgroup", "9:cpu,cpuacct:/x\n7:memory:/docker/1\n3:pids:/\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "3000\n");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "1000\n");
  EXPECT_EQ(available(), 2000u);
}

TEST(RealMemory, IsThere) { EXPECT_GT(available_memory(), uint64_t{1} << 20); }

}  // namespace
}  // namespace culet::base
