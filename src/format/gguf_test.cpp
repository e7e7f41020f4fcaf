// The reader over files made here byte by byte: value kinds, versions, header-only parsing, and
// damage (every truncation, random flips), which must be refused or parsed but never misread.
#include "format/gguf.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <random>
#include <string>

namespace culet::format {
namespace {

// Appends little-endian pieces (the test machines are little-endian).
struct Writer {
  std::string bytes;
  template <class T>
  Writer& number(T value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Writer& u32(uint32_t value) { return number(value); }
  Writer& u64(uint64_t value) { return number(value); }
  Writer& text(std::string_view value) {
    u64(value.size());
    bytes += value;
    return *this;
  }
  Writer& header(uint64_t tensors, uint64_t entries, uint32_t version = 3) {
    bytes += "GGUF";
    return u32(version).u64(tensors).u64(entries);
  }
  template <class T>
  Writer& entry(std::string_view key, MetaType type, T value) {
    return text(key).u32(uint32_t(type)).number(value);
  }
  Writer& array(std::string_view key, MetaType element, uint64_t count) {
    return text(key).u32(uint32_t(MetaType::kArray)).u32(uint32_t(element)).u64(count);
  }
  Writer& tensor(std::string_view name, std::initializer_list<uint64_t> dims, uint32_t type,
                 uint64_t offset) {
    text(name).u32(uint32_t(dims.size()));
    for (const uint64_t dim : dims) u64(dim);
    return u32(type).u64(offset);
  }
  Writer& pad(size_t alignment) {
    while (bytes.size() % alignment != 0) bytes.push_back('\0');
    return *this;
  }
  Writer& data(size_t n) {
    bytes.append(n, '\1');
    return *this;
  }
};

Result<GgufFile> parse(const std::string& bytes, bool header_only = false) {
  return GgufFile::parse(std::as_bytes(std::span(bytes)), "test", header_only);
}

std::string error_of(const Writer& writer) {
  const auto file = parse(writer.bytes);
  return file ? "no error" : file.error().message;
}

#define EXPECT_REFUSED(writer, words)                             \
  do {                                                            \
    const std::string message = error_of(writer);                 \
    EXPECT_NE(message.find(words), std::string::npos) << message; \
  } while (false)

// All value kinds, two arrays, two tensors.
Writer small_file() {
  Writer w;
  w.header(2, 17);
  w.entry("u8", MetaType::kUint8, uint8_t{255}).entry("i8", MetaType::kInt8, int8_t{-128});
  w.entry("u16", MetaType::kUint16, uint16_t{65535}).entry("i16", MetaType::kInt16, int16_t{-2});
  w.entry("u32", MetaType::kUint32, uint32_t{1u << 31}).entry("i32", MetaType::kInt32, int32_t{-3});
  w.entry("u64", MetaType::kUint64, uint64_t{UINT64_MAX});
  w.entry("i64", MetaType::kInt64, std::numeric_limits<int64_t>::min());
  w.entry("f32", MetaType::kFloat32, 1.5f).entry("f64", MetaType::kFloat64, -0.1);
  w.entry("yes", MetaType::kBool, uint8_t{1}).entry("no", MetaType::kBool, uint8_t{0});
  w.text("string").u32(uint32_t(MetaType::kString)).text("any \xff byte");
  w.array("strings", MetaType::kString, 3).text("").text("one").text("two");
  w.array("shorts", MetaType::kInt16, 2).number(int16_t{-1}).number(int16_t{7});
  w.array("nothing", MetaType::kString, 0);
  w.array("bools", MetaType::kBool, 2).number(uint8_t{0}).number(uint8_t{1});
  w.tensor("a", {3, 2}, 0, 0).tensor("q", {32, 5}, 8, 32);  // F32: 24 bytes; Q8_0: 170
  return w.pad(32).data(32 + 170);
}

TEST(Gguf, EveryKindOfValue) {
  const std::string bytes = small_file().bytes;
  const auto file = parse(bytes);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_TRUE(file->warnings().empty());
  const auto integer = [&](const char* key) { return file->find(key)->as_int(); };
  EXPECT_EQ(integer("u8"), 255);
  EXPECT_EQ(integer("i8"), -128);
  EXPECT_EQ(integer("u16"), 65535);
  EXPECT_EQ(integer("i16"), -2);
  EXPECT_EQ(integer("u32"), int64_t{1} << 31);
  EXPECT_EQ(integer("i32"), -3);
  EXPECT_EQ(integer("i64"), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(integer("u64"), std::nullopt);  // does not fit
  EXPECT_EQ(integer("f32"), std::nullopt);
  EXPECT_EQ(integer("yes"), std::nullopt);
  EXPECT_EQ(integer("string"), std::nullopt);
  EXPECT_EQ(integer("shorts"), std::nullopt);
  EXPECT_EQ(file->find("u64")->as_number(), 18446744073709551616.0);
  EXPECT_EQ(file->find("i8")->as_number(), -128.0);
  EXPECT_EQ(file->find("f32")->as_number(), 1.5);
  EXPECT_EQ(file->find("f64")->as_number(), -0.1);
  EXPECT_EQ(file->find("yes")->as_number(), std::nullopt);
  EXPECT_EQ(file->find("yes")->as_bool(), true);
  EXPECT_EQ(file->find("no")->as_bool(), false);
  EXPECT_EQ(file->find("u8")->as_bool(), std::nullopt);
  EXPECT_EQ(file->find("string")->as_string(), "any \xff byte");
  EXPECT_EQ(file->find("u8")->as_string(), std::nullopt);
  const MetaValue& strings = *file->find("strings");
  ASSERT_EQ(strings.size(), 3u);
  EXPECT_EQ(strings.element_type(), MetaType::kString);
  EXPECT_EQ(strings.at(0).as_string(), "");
  EXPECT_EQ(strings.at(2).as_string(), "two");
  EXPECT_EQ(strings.as_string(), std::nullopt);
  EXPECT_EQ(file->find("shorts")->at(1).as_int(), 7);
  EXPECT_EQ(file->find("bools")->at(1).as_bool(), true);
  EXPECT_TRUE(file->find("nothing")->is_array());
  EXPECT_EQ(file->find("nothing")->size(), 0u);
  EXPECT_FALSE(file->find("u8")->is_array());
}

TEST(Gguf, MovedFilesKeepTheirViews) {
  const std::string bytes = small_file().bytes;
  auto parsed = parse(bytes);
  ASSERT_TRUE(parsed);
  const GgufFile file = std::move(*parsed);
  EXPECT_EQ(file.find("strings")->at(1).as_string(), "one");
  const TensorInfo* q = file.tensor("q");
  ASSERT_NE(q, nullptr);
  EXPECT_EQ(q->elements(), 160u);
  EXPECT_EQ(q->bytes, 170u);
  EXPECT_EQ(reinterpret_cast<const char*>(q->data) + q->bytes, bytes.data() + bytes.size());
}

TEST(Gguf, HeaderOnly) {
  const std::string bytes = small_file().bytes;
  const std::string header = bytes.substr(0, bytes.size() - 32 - 170);
  EXPECT_FALSE(parse(header));
  const auto file = parse(header, true);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->tensor("q")->data, nullptr);
  EXPECT_EQ(file->tensor("q")->bytes, 170u);
  EXPECT_TRUE(file->warnings().empty());
}

TEST(Gguf, Versions) {
  EXPECT_TRUE(parse(Writer{}.header(0, 0, 2).bytes));
  EXPECT_TRUE(parse(Writer{}.header(0, 0, 3).bytes));
  EXPECT_REFUSED(Writer{}.header(0, 0, 1), "version 1 ");
  EXPECT_REFUSED(Writer{}.header(0, 0, 4), "version 4 ");
  EXPECT_REFUSED(Writer{}.header(0, 0, 0x03000000), "big-endian");
}

// Requirement reports-loading.llama.cpp#26318 "ggml-org/llama.cpp#26318: an alignment of the wrong
// type aborts; padding wraps": an error with a sentence
TEST(Gguf, Alignment) {
  const auto with = [](uint64_t alignment, uint64_t offset) {
    Writer w;
    w.header(1, 1).entry("general.alignment", MetaType::kUint32, uint32_t(alignment));
    return w.tensor("t", {1}, 0, offset).pad(alignment).data(size_t(offset) + 4);
  };
  EXPECT_EQ(error_of(with(8, 8)), "no error");
  EXPECT_EQ(error_of(with(4096, 4096)), "no error");
  EXPECT_REFUSED(with(4, 0), "alignment");
  EXPECT_REFUSED(with(24, 0), "alignment");
  EXPECT_REFUSED(with(64, 32), "alignment 64");
  Writer text;
  text.header(0, 1).text("general.alignment").u32(uint32_t(MetaType::kString)).text("32");
  EXPECT_REFUSED(text, "not an integer");
}

// Verifies reports-loading.llama.cpp#18674, reports-loading.CVE-2024-21802.
TEST(Gguf, TensorRules) {
  const auto one = [](std::string_view name, std::initializer_list<uint64_t> dims, uint32_t type) {
    Writer w;
    return w.header(1, 0).tensor(name, dims, type, 0).pad(32).data(64);
  };
  EXPECT_EQ(error_of(one("t", {2, 2, 2, 2}, 0)), "no error");
  EXPECT_EQ(error_of(one(std::string(64, 'n'), {2}, 0)), "no error");
  EXPECT_EQ(error_of(one("iq", {256}, 19)),
            "no error");  // IQ1_S: known, not readable; the loader's
  EXPECT_REFUSED(one(std::string(65, 'n'), {2}, 0), "name of 65 bytes");
  EXPECT_REFUSED(one("", {2}, 0), "empty tensor name");
  EXPECT_REFUSED(one("\xc3(", {2}, 0), "UTF-8");
  EXPECT_REFUSED(one("t", {}, 0), "0 dimensions");
  EXPECT_REFUSED(one("t", {1, 1, 1, 1, 1}, 0), "5 dimensions");
  EXPECT_REFUSED(one("t", {1, 0}, 0), "zero");
  EXPECT_REFUSED(one("t", {1}, 4), "tensor type 4");
  EXPECT_REFUSED(one("t", {48}, 2), "block of 32");
  EXPECT_REFUSED(one("t", {uint64_t{1} << 62, 2}, 24), "overflow");
  EXPECT_REFUSED(one("t", {uint64_t{1} << 62}, 0), "overflow");
  EXPECT_REFUSED(one("t", {UINT64_MAX}, 24), "overflow");
  EXPECT_REFUSED(one("t", {17}, 0), "past end");
  EXPECT_REFUSED(one("bell\a", {17}, 0), "'bell?'");
}

// Verifies reports-loading.CVE-2024-21802.
TEST(Gguf, MetadataRules) {
  EXPECT_REFUSED(Writer{}.header(0, 1).entry("b", MetaType::kBool, uint8_t{2}), "neither true");
  EXPECT_REFUSED(Writer{}.header(0, 1).array("b", MetaType::kBool, 2).number(uint16_t{0x0300}),
                 "neither true");
  EXPECT_REFUSED(Writer{}.header(0, 1).array("n", MetaType::kArray, 1).data(64), "nested array");
  EXPECT_REFUSED(Writer{}.header(0, 1).entry("", MetaType::kUint8, uint64_t{1}), "empty");
  EXPECT_REFUSED(Writer{}.header(0, 1).entry(std::string(65536, 'k'), MetaType::kUint8, uint8_t{1}),
                 "key of 65536 bytes");
}

// Reads everything the index offers; sanitizers see stray reads.
void walk(const GgufFile& file) {
  uint64_t sum = 0;
  for (const MetaEntry& entry : file.metadata()) {
    ASSERT_EQ(file.find(entry.key), &entry.value);
    for (uint64_t i = 0; i < entry.value.size(); ++i) {
      for (const char c : entry.value.at(i).as_string().value_or("")) sum += uint8_t(c);
      sum += uint64_t(entry.value.at(i).as_int().value_or(0));
    }
    for (const char c : entry.value.as_string().value_or("")) sum += uint8_t(c);
  }
  for (const TensorInfo& tensor : file.tensors()) {
    ASSERT_EQ(file.tensor(tensor.name), &tensor);
    if (tensor.data == nullptr) continue;
    for (uint64_t i = 0; i < tensor.bytes; ++i) sum += uint8_t(tensor.data[i]);
  }
  static volatile uint64_t sink = 0;
  sink = sink + sum;
}

// Requirement files.gguf-safety "GGUF safety": every length against the file; truncated at every
// byte, flipped at random, 50 stated mistakes
TEST(Gguf, EveryTruncation) {
  const std::string bytes = small_file().bytes;
  for (size_t length = 0; length < bytes.size(); ++length) {
    const std::string cut(bytes.data(), length);  // exact allocation: a byte too far is seen
    EXPECT_FALSE(parse(cut)) << length;
    if (const auto file = parse(cut, true)) walk(*file);
  }
}

// Verifies files.gguf-safety.
TEST(Gguf, RandomFlips) {
  const std::string good = small_file().bytes;
  std::mt19937 random(1);
  int refused = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = good;
    for (uint32_t flips = 1 + random() % 3; flips > 0; --flips) {
      bytes[random() % bytes.size()] = char(random());
    }
    for (const bool header_only : {false, true}) {
      const auto file = parse(bytes, header_only);
      if (file) walk(*file);
      refused += !file;
    }
  }
  EXPECT_GT(refused, 1000);
}

// Requirement reports-loading.llama.cpp#19919 "ggml-org/llama.cpp#19919: checks that made loading
// slow": linear in keys and tensors
TEST(Gguf, ManyNamesAreNotQuadratic) {
  Writer w;
  constexpr uint64_t kMany = 100'000;
  w.header(kMany, kMany);
  for (uint64_t i = 0; i < kMany; ++i)
    w.entry("k" + std::to_string(i), MetaType::kBool, uint8_t{0});
  for (uint64_t i = 0; i < kMany; ++i) w.tensor("t" + std::to_string(i), {1}, 24, 32 * i);
  w.pad(32).data(32 * kMany);
  const auto start = std::chrono::steady_clock::now();
  const auto file = parse(w.bytes);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_NE(file->find("k99999"), nullptr);
  EXPECT_EQ(file->tensor("t99999")->offset, 32 * (kMany - 1));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

}  // namespace
}  // namespace culet::format
