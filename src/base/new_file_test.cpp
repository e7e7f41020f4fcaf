#include "base/new_file.h"

#include "base/files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

namespace culet::base {
namespace {

class NewFiles : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/culet-new-file-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  size_t files() const {
    size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
    return count;
  }
  static std::span<const std::byte> bytes_of(const std::string& text) {
    return std::as_bytes(std::span(text));
  }

  std::string folder;
};

TEST_F(NewFiles, AppearWhenTheyAreCommitted) {
  const std::string path = folder + "/a";
  std::ofstream(path) << "old";
  auto file = NewFile::create(path);
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_TRUE(file->write(bytes_of("new ")));
  ASSERT_TRUE(file->write(bytes_of("text")));
  EXPECT_EQ(file->bytes(), 8u);
  EXPECT_EQ(*read_file(path), "old");
  ASSERT_TRUE(file->commit());
  EXPECT_EQ(*read_file(path), "new text");
  EXPECT_EQ(files(), 1u);
}

TEST_F(NewFiles, LeaveNothingWhenTheyAreNot) {
  {
    auto file = NewFile::create(folder + "/a");
    ASSERT_TRUE(file);
    ASSERT_TRUE(file->write(bytes_of("text")));
    const NewFile moved = std::move(*file);
    EXPECT_EQ(files(), 1u);
  }
  EXPECT_EQ(files(), 0u);
}

TEST_F(NewFiles, ErrorsNameThePathThatWasAskedFor) {
  const auto missing = NewFile::create(folder + "/none/a");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_NE(missing.error().message.find("'" + folder + "/none/a'"), std::string::npos);

  std::filesystem::create_directory(folder + "/a");
  ASSERT_EQ(::mkfifo((folder + "/pipe").c_str(), 0600), 0);
  std::filesystem::create_symlink(folder + "/none", folder + "/link");
  for (const char* name : {"/a", "/pipe", "/link"}) {
    const auto file = NewFile::create(folder + name);
    ASSERT_FALSE(file);
    EXPECT_EQ(file.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(file.error().message.find(folder + name), std::string::npos);
  }
  EXPECT_EQ(files(), 3u);
}

TEST_F(NewFiles, ReplaceWhatALinkLeadsToAndKeepItsMode) {
  const std::string path = folder + "/a", link = folder + "/link";
  std::ofstream(path) << "old";
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  std::filesystem::create_symlink(path, link);
  auto file = NewFile::create(link), other = NewFile::create(link);  // two at once
  ASSERT_TRUE(file && other);
  ASSERT_TRUE(file->write(bytes_of("new")));
  ASSERT_TRUE(file->commit());
  EXPECT_EQ(*read_file(path), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  struct stat info{};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST(Folders, OfPaths) {
  EXPECT_EQ(folder_of("a"), ".");
  EXPECT_EQ(folder_of("/a"), "/");
  EXPECT_EQ(folder_of("/a/b"), "/a");
  EXPECT_EQ(folder_of("a/b/"), "a/b");
}

TEST(Folders, HaveFreeBytes) {
  const auto free = free_bytes("/");
  ASSERT_TRUE(free) << free.error().message;
  EXPECT_GT(*free, 0u);
  EXPECT_FALSE(free_bytes("/no such folder"));
}

}  // namespace
}  // namespace culet::base
