#include "base/files.h"

#include "base/mapped_file.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <unistd.h>
#include <utility>

namespace culet::base {
namespace {

class Files : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = ::testing::TempDir() + "culet-files-" + std::to_string(::getpid());
  }
  void TearDown() override { std::remove(path_.c_str()); }
  void write(const std::string& bytes) { std::ofstream(path_, std::ios::binary) << bytes; }
  std::string path_;
};

TEST_F(Files, ReadsWholeFile) {
  const std::string want = std::string("a\0b\n", 4) + std::string(300000, 'x');
  write(want);
  const auto got = read_file(path_);
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ(*got, want);
}

TEST_F(Files, LimitIsExact) {
  write("12345");
  EXPECT_TRUE(read_file(path_, 5));
  const auto got = read_file(path_, 4);
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, ErrorCode::kExhausted);
}

TEST_F(Files, SizeThatTheSystemDoesNotTell) {
  const auto got = read_file("/proc/self/status");
  ASSERT_TRUE(got);
  EXPECT_NE(got->find("Pid:"), std::string::npos);
}

TEST_F(Files, Errors) {
  EXPECT_EQ(read_file(path_).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(read_file("/").error().code, ErrorCode::kIo);
  EXPECT_EQ(MappedFile::open(path_).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(MappedFile::open("/").error().code, ErrorCode::kIo);
  EXPECT_EQ(MappedFile::open("/dev/null").error().code, ErrorCode::kIo);
  EXPECT_NE(MappedFile::open(path_).error().message.find(path_), std::string::npos);
}

TEST_F(Files, MapsAndReleases) {
  std::string want(20000, '\0');
  for (size_t i = 0; i < want.size(); ++i) want[i] = char(i * 7 + 1);
  write(want);
  auto opened = MappedFile::open(path_);
  ASSERT_TRUE(opened);
  MappedFile file = std::move(*opened);
  file.read_sparsely(file.bytes().subspan(5000));
  file.release(file.bytes().subspan(100, 15000));
  const auto bytes = file.bytes();
  ASSERT_EQ(bytes.size(), want.size());
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), want);
  EXPECT_EQ(file.path(), path_);
}

TEST_F(Files, EmptyFileMapsToNothing) {
  write("");
  const auto file = MappedFile::open(path_);
  ASSERT_TRUE(file);
  EXPECT_TRUE(file->bytes().empty());
}

}  // namespace
}  // namespace culet::base
