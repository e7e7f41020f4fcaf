// Models in several files: made here from the tiny models by moving tensors into parts.
#include "format/gguf.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

namespace culet::format {
namespace {

namespace fs = std::filesystem;

struct Bytes {
  std::string data;
  template <class T>
  void number(T value) {
    data.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(std::string_view value) {
    number(uint64_t{value.size()});
    data += value;
  }
  void entry(std::string_view key, uint16_t value) {
    text(key);
    number(uint32_t{2});
    number(value);
  }
  void pad() { data.resize((data.size() + 31) / 32 * 32, '\0'); }
};

struct Part {
  int no = 0, count = 1, all = 0;  // all: split.tensors.count; 0: left out
  std::vector<std::string> tensors;
};

// Each tensor is one F32 row of 8 values that hold its name.
std::string bytes_of(const Part& part) {
  Bytes b;
  b.data = "GGUF";
  b.number(uint32_t{3});
  b.number(uint64_t{part.tensors.size()});
  b.number(uint64_t(part.all ? 3 : 2));
  b.entry("split.no", static_cast<uint16_t>(part.no));
  b.entry("split.count", static_cast<uint16_t>(part.count));
  if (part.all) b.entry("split.tensors.count", static_cast<uint16_t>(part.all));
  for (size_t i = 0; i < part.tensors.size(); ++i) {
    b.text(part.tensors[i]);
    b.number(uint32_t{1});
    b.number(uint64_t{8});
    b.number(uint32_t{0});
    b.number(uint64_t{32 * i});
  }
  b.pad();
  for (const std::string& name : part.tensors) {
    b.data += name;
    b.pad();
  }
  return b.data;
}

class Split : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        fs::path(testing::TempDir()) /
        ("split-" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& name, const Part& part) const {
    std::ofstream(path(name), std::ios::binary) << bytes_of(part);
    return path(name);
  }
  std::string write_three() const {
    write("m-00003-of-00003.gguf", {2, 3, 0, {"e"}});
    write("m-00002-of-00003.gguf", {1, 3, 0, {"c", "d"}});
    return write("m-00001-of-00003.gguf", {0, 3, 5, {"b", "a"}});
  }
  static Error error_of(const std::string& path) {
    auto file = GgufFile::open(path);
    EXPECT_FALSE(file) << path;
    return file ? Error{} : file.error();
  }
  static void expect_says(const Error& error, ErrorCode code, std::string_view words) {
    EXPECT_EQ(error.code, code);
    EXPECT_NE(error.message.find(words), std::string::npos) << error.message;
  }

  fs::path folder_;
};

TEST_F(Split, TensorsOfAllPartsAreOneDirectory) {
  auto file = GgufFile::open(write_three());
  ASSERT_TRUE(file) << file.error().message;
  const GgufFile moved = *std::move(file);
  EXPECT_EQ(moved.parts(), 3u);
  ASSERT_EQ(moved.tensors().size(), 5u);
  uint64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(folder_)) bytes += entry.file_size();
  EXPECT_EQ(moved.file_bytes(), bytes);
  for (const std::string name : {"a", "b", "c", "d", "e"}) {
    const TensorInfo* tensor = moved.tensor(name);
    ASSERT_NE(tensor, nullptr) << name;
    EXPECT_EQ(tensor->bytes, 32u);
    EXPECT_EQ(std::memcmp(tensor->data, name.c_str(), name.size() + 1), 0) << name;
    moved.release({tensor->data, tensor->bytes});
  }
  EXPECT_EQ(moved.tensor("f"), nullptr);
}

TEST_F(Split, AMissingPartIsNamed) {
  const std::string first = write_three();
  fs::remove(path("m-00002-of-00003.gguf"));
  const Error error = error_of(first);
  expect_says(error, ErrorCode::kNotFound, "part 2 of 3 is missing");
  expect_says(error, ErrorCode::kNotFound, path("m-00002-of-00003.gguf"));
}

TEST_F(Split, AnotherPartNamesTheFirst) {
  const std::string first = write_three();
  const Error error = error_of(path("m-00003-of-00003.gguf"));
  expect_says(error, ErrorCode::kInvalidArgument, "part 3 of 3");
  expect_says(error, ErrorCode::kInvalidArgument, first);
  expect_says(error_of(write("odd.gguf", {1, 3, 0, {"c"}})), ErrorCode::kInvalidArgument,
              "-00001-of-00003.gguf");
}

TEST_F(Split, PartsMustFitTogether) {
  expect_says(error_of(write("renamed.gguf", {0, 3, 0, {"a"}})), ErrorCode::kInvalidArgument,
              "-00001-of-00003.gguf");
  const std::string first = write_three();
  write("m-00003-of-00003.gguf", {1, 3, 0, {"e"}});
  expect_says(error_of(first), ErrorCode::kCorrupt, "part 3 of 3");
  write("m-00003-of-00003.gguf", {2, 4, 0, {"e"}});
  expect_says(error_of(first), ErrorCode::kCorrupt, "m-00003-of-00003.gguf");
  write("m-00003-of-00003.gguf", {2, 3, 0, {"c"}});
  expect_says(error_of(first), ErrorCode::kCorrupt, "'c'");
  write("m-00003-of-00003.gguf", {2, 3, 0, {"e", "f"}});
  expect_says(error_of(first), ErrorCode::kCorrupt, "split.tensors.count");
  std::ofstream(path("m-00003-of-00003.gguf")) << "nothing";
  expect_says(error_of(first), ErrorCode::kCorrupt, "m-00003-of-00003.gguf");
  expect_says(error_of(write("n-00001-of-00002.gguf", {2, 2, 0, {"a"}})), ErrorCode::kCorrupt,
              "split.no");
}

TEST_F(Split, OnePartIsAWholeModel) {
  const auto file = GgufFile::open(write("whole.gguf", {0, 1, 1, {"a"}}));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->parts(), 1u);
}

}  // namespace
}  // namespace culet::format
