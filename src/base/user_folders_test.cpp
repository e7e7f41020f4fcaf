#include "base/user_folders.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>

namespace culet::base {
namespace {

std::string cache_with(const std::map<std::string, std::string>& set) {
  return culet_cache([&set](const char* name) {
    const auto found = set.find(name);
    return found == set.end() ? std::string() : found->second;
  });
}

TEST(UserFolders, TheCacheFollowsTheEnvironment) {
  EXPECT_EQ(cache_with({}), "");
  EXPECT_EQ(cache_with({{"HOME", "/h"}}), "/h/.cache/culet/models");
  EXPECT_EQ(cache_with({{"XDG_CACHE_HOME", "/x"}}), "/x/culet/models");
  EXPECT_EQ(cache_with({{"HOME", "/h"}, {"XDG_CACHE_HOME", "/x"}}), "/x/culet/models");
  EXPECT_EQ(cache_with({{"HOME", "/h"}, {"CULET_CACHE", "~/models//"}}), "/h/models");
  EXPECT_EQ(cache_with({{"CULET_CACHE", "models"}}),
            std::filesystem::current_path().string() + "/models");
}

TEST(UserFolders, ATildeIsTheHomeFolderOnlyAtTheFront) {
  EXPECT_EQ(expand_home("/h", "~"), "/h");
  EXPECT_EQ(expand_home("/h", "~/a"), "/h/a");
  EXPECT_EQ(expand_home("/h", "~other/a"), "~other/a");
  EXPECT_EQ(expand_home("/h", "a/~"), "a/~");
  EXPECT_EQ(expand_home("", "~/a"), "~/a");
}

}  // namespace
}  // namespace culet::base
