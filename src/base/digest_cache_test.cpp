#include "base/digest_cache.h"

#include "base/sha256.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

namespace culet::base {
namespace {

class DigestCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/culet-digests-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder_ = name;
    cache_ = DigestCache(folder_ + "/cache");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) const {
    const std::string path = folder_ + "/" + name;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path) << text;
    return path;
  }
  static std::string sum_of(const std::string& text) {
    return sha256_hex(std::as_bytes(std::span(text)));
  }

  std::string folder_;
  DigestCache cache_{""};
};

TEST_F(DigestCacheTest, ReadsWhatIsNotKnownAndTellsItsBytes) {
  const std::string a = write("a", "first"), b = write("b", "the second");
  ASSERT_TRUE(cache_.compute(a));
  uint64_t last = 0, all = 0;
  const auto sums = cache_.sums({a, b}, [&](const Progress& p) {
    last = p.done, all = p.total;
    return true;
  });
  ASSERT_TRUE(sums) << sums.error().message;
  EXPECT_EQ(*sums, (std::vector{sum_of("first"), sum_of("the second")}));
  EXPECT_EQ(all, 10u);
  EXPECT_EQ(last, 10u);
  EXPECT_EQ(cache_.known(b), sum_of("the second"));
  const auto again = cache_.sums({a, b}, [](const Progress&) { return false; });
  ASSERT_TRUE(again) << again.error().message;  // nothing is read, so nothing can be stopped
}

TEST_F(DigestCacheTest, ForgetsAFileThatChanged) {
  const std::string path = write("m", "content");
  ASSERT_TRUE(cache_.compute(path));
  EXPECT_EQ(cache_.known(path), sum_of("content"));
  write("m", "changed");  // the same size and inode, another time
  const timespec times[2] = {{2000, 0}, {2000, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  EXPECT_EQ(cache_.known(path), std::nullopt);
  EXPECT_EQ(cache_.compute(path), sum_of("changed"));
}

TEST_F(DigestCacheTest, ANoteIsForOneFileByAnyOfItsNames) {
  const std::string path = write("m", "content");
  cache_.remember(path, sum_of("content"));
  std::filesystem::create_symlink(path, folder_ + "/link");
  EXPECT_EQ(cache_.known(folder_ + "/link"), sum_of("content"));
  std::filesystem::rename(path, folder_ + "/moved");  // the same inode, size and time
  EXPECT_EQ(cache_.known(folder_ + "/moved"), std::nullopt);
}

TEST_F(DigestCacheTest, NotesOfItsOwnFilesStandBesideThem) {
  const std::string path = write("cache/m", "content");
  cache_.remember(path, sum_of("content"));
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/cache/.m.verified"));
  EXPECT_EQ(cache_.known(path), sum_of("content"));
  write("cache/.m.verified", "[]");
  EXPECT_EQ(cache_.known(path), std::nullopt);
  write("cache/.m.verified", "{\"sha256\": \"" + sum_of("content") + "\"}");
  EXPECT_EQ(cache_.known(path), std::nullopt);  // without what the file must be like
}

TEST_F(DigestCacheTest, WithoutAFolderNothingIsRemembered) {
  const std::string path = write("m", "content");
  const DigestCache none("");
  EXPECT_EQ(none.compute(path), sum_of("content"));
  EXPECT_EQ(none.known(path), std::nullopt);
  const DigestCache blocked(write("file", "") + "/below");
  EXPECT_EQ(blocked.compute(path), sum_of("content"));
  EXPECT_EQ(blocked.known(path), std::nullopt);
}

TEST_F(DigestCacheTest, ErrorsAndStops) {
  EXPECT_EQ(cache_.compute(folder_ + "/gone").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(cache_.sums({folder_ + "/gone"}).error().code, ErrorCode::kNotFound);
  const std::string path = write("m", "content");
  const auto stop = [](const Progress&) { return false; };
  EXPECT_EQ(cache_.compute(path, stop).error().code, ErrorCode::kCancelled);
  EXPECT_EQ(cache_.known(path), std::nullopt);
}

}  // namespace
}  // namespace culet::base
