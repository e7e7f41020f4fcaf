#include "format/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>

namespace culet::format {
namespace {

std::string file_of(const std::string& header, const std::string& data = "") {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

Result<SafetensorsFile> parse_safetensors(const std::string& file) {
  return SafetensorsFile::parse(std::as_bytes(std::span(file)), "m.safetensors");
}

std::string error_of(const std::string& header, const std::string& data = "12345678") {
  const auto file = parse_safetensors(file_of(header, data));
  if (file) return "";
  EXPECT_EQ(file.error().message.find("m.safetensors: "), 0u);
  return file.error().message.substr(15);
}

const std::string kHeader =
    R"({"__metadata__": {"format": "pt"},)"
    R"( "b": {"dtype": "F16", "shape": [2, 1], "data_offsets": [4, 8]},)"
    R"( "a": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]},)"
    R"( "none": {"dtype": "I64", "shape": [0, 7], "data_offsets": [8, 8]}})";

TEST(Safetensors, TensorsAreByName) {
  const std::string bytes = file_of(kHeader, "12345678");
  const auto file = parse_safetensors(bytes);
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_EQ(file->tensors().size(), 3u);
  const SafeTensor* b = file->tensor("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->dtype, "F16");
  EXPECT_EQ(b->shape, (std::vector<uint64_t>{2, 1}));
  EXPECT_EQ(b->bytes, 4u);
  EXPECT_EQ(b->elements(), 2u);
  EXPECT_EQ(std::memcmp(b->data, "5678", 4), 0);
  EXPECT_EQ(file->tensor("a")->elements(), 1u);
  EXPECT_EQ(file->tensor("none")->bytes, 0u);
  EXPECT_EQ(file->tensor("c"), nullptr);
  EXPECT_EQ(file->tensor("__metadata__"), nullptr);
}

// Verifies files.conversion.
TEST(Safetensors, Rules) {
  const auto one = [](const std::string& entry) { return error_of("{\"t\": " + entry + "}"); };
  EXPECT_EQ(one(R"({"dtype": "F32", "shape": [2], "data_offsets": [0, 8]})"), "");
  EXPECT_EQ(one(R"({"dtype": "F31", "shape": [2], "data_offsets": [0, 8]})"),
            "'t' has the unknown dtype 'F31'");
  EXPECT_EQ(one(R"({"shape": [2], "data_offsets": [0, 8]})"), "'t' has no dtype");
  EXPECT_EQ(one(R"({"dtype": "F32", "data_offsets": [0, 8]})"), "'t' has no shape");
  EXPECT_EQ(one(R"({"dtype": "F32", "shape": [2]})"), "'t' has no data_offsets");
  EXPECT_EQ(one(R"({"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]})"),
            "the shape of 't' has something that is no number");
  EXPECT_EQ(one(R"({"dtype": "F32", "shape": [3], "data_offsets": [0, 8]})"),
            "'t' has 8 bytes, but its shape and dtype make 12");
  EXPECT_EQ(one(R"({"dtype": "F4", "shape": [3], "data_offsets": [0, 1]})"),
            "'t' has 1 bytes, but its shape and dtype make 1");
  for (const char* offsets : {"[0, 9]", "[8, 0]", "[0]", "[0, 18446744073709551615]"}) {
    const std::string entry = R"({"dtype": "F32", "shape": [2], "data_offsets": )";
    EXPECT_NE(one(entry + offsets + "}").find("does not lie inside the file"), std::string::npos);
  }
  EXPECT_NE(one(R"({"dtype": "F32", "shape": [4294967296, 4294967296], "data_offsets": [0, 8]})")
                .find("overflows"),
            std::string::npos);
  EXPECT_NE(one(R"({"dtype": "U8", "shape": [1,1,1,1,1,1,1,1,8], "data_offsets": [0, 8]})")
                .find("9 dimensions"),
            std::string::npos);
  EXPECT_EQ(one("3"), "'t' is no tensor");
  EXPECT_EQ(error_of(R"({"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]},)"
                     R"( "b": {"dtype": "U8", "shape": [4], "data_offsets": [3, 7]}})"),
            "the data of 'b' overlaps that of another tensor");
  EXPECT_EQ(error_of(R"({"a": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]},)"
                     R"( "b": {"dtype": "U8", "shape": [4], "data_offsets": [4, 8]}})"),
            "1 bytes in front of the data of 'b' belong to no tensor; fetch it again");
  EXPECT_EQ(error_of(R"({"a": {"dtype": "U8", "shape": [7], "data_offsets": [0, 7]}})"),
            "1 bytes at its end belong to no tensor; fetch it again");
  EXPECT_NE(error_of(R"({"a": 1, "a": 2})").find("no JSON"), std::string::npos);
  EXPECT_EQ(error_of("[]"), "its header is no JSON object");
  EXPECT_NE(error_of("{").find("its header is no JSON: "), std::string::npos);
  EXPECT_NE(error_of(std::string(100, '[')).find("nested deeper"), std::string::npos);
}

// Verifies files.conversion.
TEST(Safetensors, EveryTruncation) {
  const std::string whole = file_of(kHeader, "12345678");
  for (size_t length = 0; length < whole.size(); ++length) {
    const auto file = parse_safetensors(whole.substr(0, length));
    ASSERT_FALSE(file) << length;
    EXPECT_EQ(file.error().code, ErrorCode::kCorrupt);
  }
  EXPECT_FALSE(parse_safetensors(std::string(8, '\xff')));
}

// Verifies files.conversion.
TEST(Safetensors, RandomFlips) {
  const std::string whole = file_of(kHeader, "12345678");
  std::mt19937 random(1);
  for (int round = 0; round < 5000; ++round) {
    std::string file = whole;
    for (int flips = 0; flips <= round % 3; ++flips) {
      file[random() % file.size()] ^= char(1 << random() % 8);
    }
    const auto parsed = parse_safetensors(file);
    if (!parsed) continue;
    uint64_t sum = 0;
    for (const SafeTensor& tensor : parsed->tensors()) {
      for (uint64_t i = 0; i < tensor.bytes; ++i) sum += uint64_t(tensor.data[i]);
    }
    EXPECT_LT(sum, 1u << 20);
  }
}

}  // namespace
}  // namespace culet::format
