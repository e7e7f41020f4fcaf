// Every file of tests/golden/bad-gguf: faults of the container are refused with the stated reason;
// faults of meaning (a key's value, a missing tensor) pass, because the model loader judges them.
#include "base/files.h"
#include "base/json.h"
#include "format/gguf.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <set>
#include <string>

namespace culet::format {
namespace {

const std::string kBadFolder = CULET_TEST_DATA "/golden/bad-gguf/";

// The model loader's part.
const std::set<std::string> kReaderAccepts = {
    "good.gguf",           "key-wrong-type.gguf",  "missing-key.gguf",  "missing-arch.gguf",
    "missing-tensor.gguf", "wrong-shape.gguf",     "unknown-arch.gguf", "vocab-rows.gguf",
    "head-count-0.gguf",   "head-count-kv-3.gguf", "n-layer-huge.gguf", "context-0.gguf",
    "rms-eps-nan.gguf",    "short-scores.gguf",    "no-scores.gguf",    "bos-range.gguf",
    "extra-tensor.gguf",   "extra-layer.gguf",     "extra-key.gguf",    "trailing-bytes.gguf",
};

// Requirement reports-loading.CVE-2024-21802 "CVE-2024-21802, -21825, -21836, -23496, -23605,
// CVE-2025-53630, GHSA-vgg9, CVE-2026-7482: counts, lengths, offsets of a header": as above; also
// fuzzed (`fuzz/gguf_fuzz.cpp`)
TEST(BadGguf, EveryCase) {
  const auto text = base::read_file(kBadFolder + "cases.json");
  ASSERT_TRUE(text) << text.error().message;
  const auto cases = base::parse_json(*text);
  ASSERT_TRUE(cases) << cases.error().message;
  size_t accepted = 0;
  for (const auto& item : *cases) {
    const auto name = item["file"].get<std::string>(), reason = item["reason"].get<std::string>();
    const auto file = GgufFile::open(kBadFolder + name);
    if (kReaderAccepts.count(name) != 0) {
      ASSERT_TRUE(file) << name << ": " << file.error().message;
      ++accepted;
      continue;
    }
    ASSERT_EQ(item["expected"], "refuse") << name;
    ASSERT_FALSE(file) << name;
    const std::string& message = file.error().message;
    EXPECT_NE(message.find(reason), std::string::npos) << name << ": " << message;
    EXPECT_NE(message.find(kBadFolder + name), std::string::npos) << message;
  }
  EXPECT_EQ(accepted, kReaderAccepts.size());
  EXPECT_EQ(cases->size(), 50u);
}

TEST(BadGguf, TrailingBytesAreAWarning) {
  const auto file = GgufFile::open(kBadFolder + "trailing-bytes.gguf");
  ASSERT_TRUE(file);
  ASSERT_EQ(file->warnings().size(), 1u);
  EXPECT_NE(file->warnings()[0].find("trailing"), std::string::npos) << file->warnings()[0];
}

TEST(GoodGguf, Contents) {
  const auto file = GgufFile::open(kBadFolder + "good.gguf");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_TRUE(file->warnings().empty());
  EXPECT_EQ(file->version(), 3u);
  EXPECT_EQ(file->metadata()[0].key, "general.architecture");
  EXPECT_EQ(file->find("general.architecture")->as_string(), "llama");
  EXPECT_EQ(file->find("llama.block_count")->as_int(), 2);
  EXPECT_FALSE(file->find("llama.block_count")->as_string());
  EXPECT_FLOAT_EQ(float(*file->find("llama.attention.layer_norm_rms_epsilon")->as_number()), 1e-5f);
  EXPECT_EQ(file->find("no.such.key"), nullptr);

  const MetaValue* tokens = file->find("tokenizer.ggml.tokens");
  ASSERT_TRUE(tokens->is_array());
  ASSERT_EQ(tokens->size(), 268u);
  EXPECT_EQ(tokens->at(0).as_string(), "<unk>");
  EXPECT_EQ(tokens->at(3 + 0xab).as_string(), "<0xAB>");
  EXPECT_EQ(tokens->at(267).as_string(), "h");
  EXPECT_EQ(file->find("tokenizer.ggml.scores")->at(267).as_number(), -267.0);
  EXPECT_EQ(file->find("tokenizer.ggml.token_type")->at(1).as_int(), 3);

  EXPECT_EQ(file->tensors().size(), 20u);
  const TensorInfo* down = file->tensor("blk.1.ffn_down.weight");
  ASSERT_NE(down, nullptr);
  EXPECT_EQ(down, &file->tensors()[19]);
  EXPECT_EQ(down->n_dims, 2);
  EXPECT_EQ(down->dims, (std::array<uint64_t, 4>{16, 16, 1, 1}));
  EXPECT_EQ(down->bytes, 1024u);
  for (const TensorInfo& tensor : file->tensors()) {
    EXPECT_LE(tensor.data + tensor.bytes, down->data + down->bytes) << tensor.name;
  }
  EXPECT_EQ(file->tensor("blk.2.ffn_down.weight"), nullptr);
}

}  // namespace
}  // namespace culet::format
