#include "format/gguf_writer.h"

#include "base/files.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <unistd.h>

namespace culet::format {
namespace {

using quant::TensorType;

class GgufWriters : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/culet-gguf-writer-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  std::string folder;
};

std::string bytes_for(const TensorInfo& tensor) {
  std::string out(tensor.bytes, '\0');
  for (size_t i = 0; i < out.size(); ++i) out[i] = char(i * 7 + tensor.name.size());
  return out;
}

void write_all(GgufWriter* writer, std::span<const NewTensor> tensors) {
  for (const NewTensor& tensor : tensors) {
    TensorInfo info{};
    info.name = tensor.name;
    info.bytes = uint64_t(quant::type_info(tensor.type).block_bytes);
    for (size_t i = 0; i < tensor.dims.size(); ++i) {
      info.bytes *= tensor.dims[i] / uint64_t(i == 0 ? quant::type_info(tensor.type).block : 1);
    }
    const std::string bytes = bytes_for(info);
    const size_t half = bytes.size() / 2;
    for (const auto& piece : {bytes.substr(0, half), bytes.substr(half)}) {
      const auto written = writer->write(std::as_bytes(std::span(piece)));
      ASSERT_TRUE(written) << written.error().message;
    }
  }
  const auto finished = writer->finish();
  ASSERT_TRUE(finished) << finished.error().message;
}

GgufMetadata all_kinds() {
  GgufMetadata metadata;
  metadata.set_string("general.architecture", "test");
  metadata.set_uint32("a.uint32", 4000000000u);
  metadata.set_int32("a.int32", -5);
  metadata.set_float32("a.float32", 0.1f);
  metadata.set_bool("a.bool", true);
  metadata.set_int32s("a.int32s", std::vector<int32_t>{1, -2, 3});
  metadata.set_float32s("a.float32s", std::vector<float>{0.5f, -1});
  metadata.set_bools("a.bools", {true, false});
  metadata.set_bytes("a.bytes", std::vector<uint8_t>{0, 255});
  metadata.set_strings("a.strings", std::vector<std::string>{"", "two", std::string("\0x", 2)});
  metadata.set_strings("a.none", {});
  metadata.set_uint32("a.gone", 1);
  metadata.set_uint32("a.uint32", 7);
  metadata.remove("a.gone");
  return metadata;
}

const std::vector<NewTensor> kTensors{{"one", TensorType::F32, {3}},
                                      {"two.weight", TensorType::Q4_0, {64, 5}},
                                      {"three", TensorType::Q6_K, {256, 2, 3, 1}},
                                      {"four", TensorType::F16, {1, 7}}};

TEST_F(GgufWriters, TheReaderFindsWhatWasWritten) {
  const std::string path = folder + "/a.gguf";
  auto writer = GgufWriter::create(path, all_kinds(), kTensors);
  ASSERT_TRUE(writer) << writer.error().message;
  EXPECT_FALSE(std::filesystem::exists(path));
  write_all(&*writer, kTensors);
  EXPECT_EQ(std::filesystem::file_size(path), writer->file_bytes());

  const auto file = GgufFile::open(path);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_TRUE(file->warnings().empty());
  EXPECT_EQ(file->version(), 3u);
  ASSERT_EQ(file->metadata().size(), 11u);
  EXPECT_EQ(file->metadata()[1].key, "a.uint32");
  EXPECT_EQ(file->find("a.uint32")->as_int(), 7);
  EXPECT_EQ(file->find("a.uint32")->type(), MetaType::kUint32);
  EXPECT_EQ(file->find("a.int32")->as_int(), -5);
  EXPECT_EQ(file->find("a.float32")->as_number(), double(0.1f));
  EXPECT_EQ(file->find("a.bool")->as_bool(), true);
  EXPECT_EQ(file->find("a.int32s")->at(1).as_int(), -2);
  EXPECT_EQ(file->find("a.float32s")->at(1).as_number(), -1.0);
  EXPECT_EQ(file->find("a.bools")->at(0).as_bool(), true);
  EXPECT_EQ(file->find("a.bools")->at(1).as_bool(), false);
  EXPECT_EQ(file->find("a.bytes")->at(1).as_int(), 255);
  EXPECT_EQ(file->find("a.strings")->at(2).as_string(), std::string_view("\0x", 2));
  EXPECT_EQ(file->find("a.none")->size(), 0u);
  EXPECT_EQ(file->find("a.gone"), nullptr);

  ASSERT_EQ(file->tensors().size(), kTensors.size());
  for (size_t i = 0; i < kTensors.size(); ++i) {
    const TensorInfo& tensor = file->tensors()[i];
    EXPECT_EQ(tensor.name, kTensors[i].name);
    EXPECT_EQ(tensor.type, kTensors[i].type);
    ASSERT_EQ(size_t(tensor.n_dims), kTensors[i].dims.size());
    for (size_t d = 0; d < kTensors[i].dims.size(); ++d) {
      EXPECT_EQ(tensor.dims[d], kTensors[i].dims[d]);
    }
    EXPECT_EQ(std::memcmp(tensor.data, bytes_for(tensor).data(), tensor.bytes), 0) << tensor.name;
  }
}

TEST_F(GgufWriters, ValuesOfAnotherFileAreCopiedBitForBit) {
  const std::string first = folder + "/a.gguf", second = folder + "/b.gguf";
  auto writer = GgufWriter::create(first, all_kinds(), kTensors);
  ASSERT_TRUE(writer);
  write_all(&*writer, kTensors);
  const auto file = GgufFile::open(first);
  ASSERT_TRUE(file);
  GgufMetadata copy;
  for (const MetaEntry& entry : file->metadata()) copy.set(entry.key, entry.value);
  auto again = GgufWriter::create(second, copy, kTensors);
  ASSERT_TRUE(again) << again.error().message;
  write_all(&*again, kTensors);
  EXPECT_TRUE(*base::read_file(first) == *base::read_file(second));
}

TEST_F(GgufWriters, TheAlignmentOfTheMetadataIsUsed) {
  for (const uint32_t alignment : {8u, 16u, 32u, 64u, 4096u}) {
    const std::string path = folder + "/a.gguf";
    GgufMetadata metadata;
    metadata.set_uint32("general.alignment", alignment);
    auto writer = GgufWriter::create(path, metadata, kTensors);
    ASSERT_TRUE(writer) << writer.error().message;
    write_all(&*writer, kTensors);
    const auto file = GgufFile::open(path);
    ASSERT_TRUE(file) << file.error().message;
    for (const TensorInfo& tensor : file->tensors()) {
      EXPECT_EQ(tensor.offset % alignment, 0u);
      EXPECT_EQ(std::memcmp(tensor.data, bytes_for(tensor).data(), tensor.bytes), 0) << tensor.name;
    }
  }
}

TEST_F(GgufWriters, WhatTheReaderRefusesIsNotWritten) {
  const auto message = [&](const GgufMetadata& metadata, const NewTensor& tensor) {
    const auto writer = GgufWriter::create(folder + "/a.gguf", metadata, {&tensor, 1});
    return writer ? "" : writer.error().message;
  };
  const NewTensor good{"a", TensorType::F32, {4}};
  const uint64_t huge = uint64_t{1} << 40;
  EXPECT_EQ(message({}, good), "");
  EXPECT_NE(message({}, {std::string(65, 'a'), TensorType::F32, {4}}).find("at most 64"),
            std::string::npos);
  EXPECT_NE(message({}, {"a", TensorType::F32, {}}), "");
  EXPECT_NE(message({}, {"a", TensorType::F32, {4, 0}}).find("zero"), std::string::npos);
  EXPECT_NE(message({}, {"a", TensorType::Q4_K, {128}}).find("no multiple of the Q4_K block"),
            std::string::npos);
  EXPECT_NE(message({}, {"a", TensorType::F32, {huge, huge}}).find("overflow"), std::string::npos);
  GgufMetadata metadata;
  metadata.set_uint32("general.alignment", 24);
  EXPECT_NE(message(metadata, good).find("alignment"), std::string::npos);
  const NewTensor two[] = {good, good};
  const auto twice = GgufWriter::create(folder + "/a.gguf", {}, two);
  ASSERT_FALSE(twice);
  EXPECT_NE(twice.error().message.find("duplicate tensor 'a'"), std::string::npos);
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

TEST_F(GgufWriters, NoRoomOnTheDiskIsKnownBefore) {
  const NewTensor tensor{"a", TensorType::F32, {uint64_t{1} << 40, 1024}};
  const auto writer = GgufWriter::create(folder + "/a.gguf", {}, {&tensor, 1});
  ASSERT_FALSE(writer);
  EXPECT_EQ(writer.error().code, ErrorCode::kExhausted);
  EXPECT_NE(writer.error().message.find("of disk space in " + folder), std::string::npos);
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

TEST_F(GgufWriters, AnUnfinishedFileIsGone) {
  {
    auto writer = GgufWriter::create(folder + "/a.gguf", {}, kTensors);
    ASSERT_TRUE(writer);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

}  // namespace
}  // namespace culet::format
