#include "model/vocabulary.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace culet::model {
namespace {

using format::GgufFile;
using format::MetaType;

template <class T>
std::string number(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);  // little-endian machine
}
std::string text(std::string_view value) {
  return number<uint64_t>(value.size()) + std::string(value);
}

// Metadata entries by key, each the bytes of its type and value.
using Entries = std::map<std::string, std::string>;

std::string scalar(MetaType type, const std::string& bytes) {
  return number(static_cast<uint32_t>(type)) + bytes;
}
std::string string_entry(std::string_view value) { return scalar(MetaType::kString, text(value)); }
std::string array(MetaType element, const std::vector<std::string>& values) {
  std::string bytes = number(static_cast<uint32_t>(MetaType::kArray)) +
                      number(static_cast<uint32_t>(element)) + number<uint64_t>(values.size());
  for (const std::string& value : values) bytes += value;
  return bytes;
}

Entries good() {
  std::vector<std::string> tokens, scores, kinds;
  for (const char* t : {"<unk>", "<s>", "</s>", "a"}) {
    tokens.push_back(text(t));
    scores.push_back(number(-1.5f * static_cast<float>(tokens.size())));
  }
  for (const int32_t kind : {2, 3, 3, 1}) kinds.push_back(number(kind));
  return {{"model", string_entry("llama")},
          {"tokens", array(MetaType::kString, tokens)},
          {"scores", array(MetaType::kFloat32, scores)},
          {"token_type", array(MetaType::kInt32, kinds)},
          {"eos_token_id", scalar(MetaType::kUint32, number<uint32_t>(2))},
          {"add_bos_token", scalar(MetaType::kBool, std::string(1, '\1'))}};
}

// The file that these entries make; `change` edits them first.
struct File {
  explicit File(const std::function<void(Entries*)>& change = [](Entries*) {}) {
    Entries entries = good();
    change(&entries);
    bytes = "GGUF" + number<uint32_t>(3) + number<uint64_t>(0) + number<uint64_t>(entries.size());
    for (const auto& [key, value] : entries) bytes += text("tokenizer.ggml." + key) + value;
    file = GgufFile::parse(std::as_bytes(std::span(bytes)), "test.gguf", true);
  }
  std::string bytes;
  Result<GgufFile> file = fail(ErrorCode::kIo, "");
};

TEST(Vocabulary, ReadsWhatIsThere) {
  const File f([](Entries* e) {
    (*e)["pre"] = string_entry("default");
    (*e)["add_space_prefix"] = scalar(MetaType::kBool, std::string(1, '\0'));
    (*e)["unknown_token_id"] = scalar(MetaType::kUint32, number<uint32_t>(0));
  });
  ASSERT_TRUE(f.file) << f.file.error().message;
  const auto v = read_vocabulary(*f.file);
  ASSERT_TRUE(v) << v.error().message;
  EXPECT_EQ(v->model, "llama");
  EXPECT_EQ(v->pre, "default");
  EXPECT_EQ(v->tokens, (std::vector<std::string_view>{"<unk>", "<s>", "</s>", "a"}));
  EXPECT_EQ(v->scores, (std::vector<float>{-1.5f, -3.0f, -4.5f, -6.0f}));
  EXPECT_EQ(v->kinds[1], text::TokenKind::kControl);
  EXPECT_EQ(v->eos, 2);
  EXPECT_EQ(v->unk, 0);
  EXPECT_EQ(v->bos, std::nullopt);
  EXPECT_EQ(v->add_bos, true);
  EXPECT_EQ(v->add_space_prefix, false);
  EXPECT_EQ(v->add_eos, std::nullopt);
  const auto tokenizer = text::Tokenizer::make(*v);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ((*tokenizer)->bos(), 1);
}

// Requirement reports-loading.llama.cpp#26690 "ggml-org/llama.cpp#26690: an array of bytes read as
// floats": the element type of every array is checked, and the key named
// Verifies reports-loading.CVE-2025-49847.
TEST(Vocabulary, EveryWrongKeyIsNamed) {
  const auto short_array = [](MetaType type, const std::string& value) {
    return array(type, {value, value, value});
  };
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"model", scalar(MetaType::kUint32, number<uint32_t>(1))},
      {"pre", scalar(MetaType::kBool, std::string(1, '\1'))},
      {"tokens", array(MetaType::kInt32, {number<int32_t>(1)})},
      {"tokens", string_entry("a")},
      {"scores", short_array(MetaType::kFloat32, number(0.0f))},
      {"scores", array(MetaType::kFloat64, std::vector<std::string>(4, number(0.0)))},
      {"token_type", short_array(MetaType::kInt32, number<int32_t>(1))},
      {"token_type", array(MetaType::kInt32, std::vector<std::string>(4, number<int32_t>(0)))},
      {"token_type", array(MetaType::kInt32, std::vector<std::string>(4, number<int32_t>(7)))},
      {"token_type", array(MetaType::kFloat32, std::vector<std::string>(4, number(1.0f)))},
      {"merges", array(MetaType::kUint8, {"x"})},
      {"precompiled_charsmap", string_entry("abc")},
      {"precompiled_charsmap", array(MetaType::kUint16, {number<uint16_t>(1)})},
      {"remove_extra_whitespaces", scalar(MetaType::kUint8, "\1")},
      {"bos_token_id", scalar(MetaType::kUint32, number<uint32_t>(4))},
      {"bos_token_id", scalar(MetaType::kInt32, number<int32_t>(-1))},
      {"eot_token_id", scalar(MetaType::kUint64, number(UINT64_MAX))},
      {"padding_token_id", string_entry("0")},
      {"cls_token_id", scalar(MetaType::kUint32, number<uint32_t>(4))},
      {"add_sep_token", scalar(MetaType::kUint32, number<uint32_t>(1))},
      {"normalizer.lowercase", string_entry("yes")},
      {"normalizer.strip_accents", scalar(MetaType::kUint8, "\1")},
      {"add_eos_token", scalar(MetaType::kUint8, "\1")},
  };
  for (const auto& [key, value] : wrong) {
    SCOPED_TRACE(key);
    const File f([&](Entries* e) { (*e)[key] = value; });
    ASSERT_TRUE(f.file) << f.file.error().message;
    const auto v = read_vocabulary(*f.file);
    ASSERT_FALSE(v);
    EXPECT_EQ(v.error().code, ErrorCode::kCorrupt);
    EXPECT_NE(v.error().message.find("tokenizer.ggml." + key), std::string::npos)
        << v.error().message;
    EXPECT_NE(v.error().message.find("test.gguf"), std::string::npos) << v.error().message;
  }
}

TEST(Vocabulary, WhatATokenizerNeedsMustBeThere) {
  const auto message = [](const std::function<void(Entries*)>& change) {
    const File f(change);
    const auto v = read_vocabulary(*f.file);
    EXPECT_FALSE(v);
    return v ? std::string() : v.error().message;
  };
  EXPECT_NE(message([](Entries* e) { e->erase("scores"); }).find("scores"), std::string::npos);
  EXPECT_NE(message([](Entries* e) {
              (*e)["model"] = string_entry("t5");
              e->erase("scores");
            }).find("scores"),
            std::string::npos);
  EXPECT_NE(message([](Entries* e) { (*e)["model"] = string_entry("gpt2"); }).find("merges"),
            std::string::npos);
  EXPECT_NE(message([](Entries* e) { (*e)["model"] = string_entry("gemma4"); }).find("merges"),
            std::string::npos);
  EXPECT_NE(message([](Entries* e) { e->erase("tokens"); }).find("tokens"), std::string::npos);
  EXPECT_NE(message([](Entries* e) { e->erase("model"); }).find("model"), std::string::npos);
}

TEST(Vocabulary, EveryTinyModelTakesText) {
  int models = 0;
  const std::filesystem::path tiny(std::string(CULET_TEST_DATA) + "/golden/tiny");
  for (const auto& entry : std::filesystem::recursive_directory_iterator(tiny)) {
    if (entry.path().extension() != ".gguf") continue;
    SCOPED_TRACE(entry.path().string());
    const auto file = GgufFile::open(entry.path().string());
    ASSERT_TRUE(file) << file.error().message;
    const auto v = read_vocabulary(*file);
    ASSERT_TRUE(v) << v.error().message;
    const auto tokenizer = text::Tokenizer::make(*v);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    const auto ids = (*tokenizer)->tokenize("The facet\n\n2026 ", {.begin = false, .end = false});
    ASSERT_TRUE(ids) << ids.error().message;
    EXPECT_FALSE(ids->empty());
    if (v->model != "bert") {
      EXPECT_EQ((*tokenizer)->detokenize(*ids, false, false), "The facet\n\n2026 ");
    }
    ++models;
  }
  EXPECT_GE(models, 5);
}

// Requirement reports-loading.CVE-2025-49847 "CVE-2025-49847: loading of a vocabulary": lengths and
// kinds checked; also fuzzed (`fuzz/tokenizer_fuzz.cpp`)
TEST(Vocabulary, MalformedFilesAreRefused) {
  for (const auto& [name, key] : {std::pair("short-scores", "scores"),
                                  {"no-scores", "scores"},
                                  {"bos-range", "bos_token_id"}}) {
    SCOPED_TRACE(name);
    const auto file =
        GgufFile::open(std::string(CULET_TEST_DATA) + "/golden/bad-gguf/" + name + ".gguf");
    ASSERT_TRUE(file) << file.error().message;
    const auto v = read_vocabulary(*file);
    ASSERT_FALSE(v);
    EXPECT_NE(v.error().message.find(key), std::string::npos) << v.error().message;
  }
}

}  // namespace
}  // namespace culet::model
