// Whole files: what is kept, what is written, what is left when it goes wrong. The weights
// themselves are measured against files that another quantizer made (tests/golden/tiny).
#include "quant/quantize.h"

#include "base/files.h"
#include "culet/convert.h"
#include "format/gguf.h"
#include "format/gguf_writer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <set>
#include <string>
#include <unistd.h>

namespace culet::convert {
namespace {

using format::GgufFile;
using format::TensorInfo;
using quant::TensorType;

const std::string kTiny = CULET_TEST_DATA "/golden/tiny/";

class Quantized : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/culet-quantize-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  std::string path(const std::string& name) const { return folder + "/" + name; }
  std::set<std::string> files() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }

  std::string folder;
};

GgufFile opened(const std::string& path) {
  auto file = GgufFile::open(path);
  if (!file) throw std::runtime_error(file.error().message);
  return *std::move(file);
}

std::vector<float> values_of(const TensorInfo& tensor) {
  std::vector<float> out(tensor.elements());
  quant::dequantize_fn(tensor.type)(
      tensor.data, int64_t(out.size()) / quant::type_info(tensor.type).block, out.data());
  return out;
}

double error_between(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    sum += (double(a[i]) - double(b[i])) * (double(a[i]) - double(b[i]));
  }
  return std::sqrt(sum / double(a.size()));
}

// A file of float32 tensors, whose values follow from their place.
void write_source(const std::string& path, const std::vector<format::NewTensor>& tensors,
                  format::GgufMetadata metadata = {}, float odd_value = 0.5f) {
  metadata.set_string("general.architecture", "test");
  auto writer = format::GgufWriter::create(path, metadata, tensors);
  ASSERT_TRUE(writer) << writer.error().message;
  for (const format::NewTensor& tensor : tensors) {
    size_t count = 1;
    for (const uint64_t dim : tensor.dims) count *= dim;
    std::vector<float> x(count);
    for (size_t i = 0; i < count; ++i) x[i] = std::sin(float(i * 37 % 1009) + 0.3f);
    x[count / 2] = odd_value;
    ASSERT_TRUE(writer->write(std::as_bytes(std::span(x))));
  }
  ASSERT_TRUE(writer->finish());
}

const std::vector<format::NewTensor> kTensors{
    {"token_embd.weight", TensorType::F32, {256, 300}},
    {"blk.0.attn_norm.weight", TensorType::F32, {256}},
    {"blk.0.ffn_up.weight", TensorType::F32, {256, 4000}}};

// Verifies files.making-quantized-files.
TEST_F(Quantized, OnlyTheTypesAreOthers) {
  const std::string source = kTiny + "llama/model.gguf", out = path("a.gguf");
  const auto written = quantize_model(source, out, {.type = "Q8_0"});
  ASSERT_TRUE(written) << written.error().message;
  EXPECT_EQ(files(), std::set<std::string>{"a.gguf"});
  EXPECT_EQ(written->bytes, std::filesystem::file_size(out));
  EXPECT_EQ(written->source_bytes, std::filesystem::file_size(source));
  EXPECT_TRUE(written->notes.empty());
  const GgufFile before = opened(source), after = opened(out);
  EXPECT_TRUE(after.warnings().empty());
  EXPECT_EQ(after.metadata().size(), before.metadata().size() + 1);
  for (const format::MetaEntry& entry : before.metadata()) {
    if (entry.key == "general.file_type") continue;
    const format::MetaValue* value = after.find(entry.key);
    ASSERT_NE(value, nullptr) << entry.key;
    EXPECT_EQ(value->type(), entry.value.type()) << entry.key;
    EXPECT_TRUE(std::ranges::equal(value->bytes(), entry.value.bytes())) << entry.key;
  }
  EXPECT_EQ(after.find("general.file_type")->as_int(), 7);
  EXPECT_EQ(after.find("general.quantization_version")->as_int(), 2);
  ASSERT_EQ(after.tensors().size(), before.tensors().size());
  for (size_t i = 0; i < after.tensors().size(); ++i) {
    const TensorInfo &a = before.tensors()[i], &b = after.tensors()[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.dims, b.dims);
    EXPECT_EQ(a.n_dims, b.n_dims);
    EXPECT_EQ(b.type, a.n_dims > 1 ? TensorType::Q8_0 : TensorType::F32) << b.name;
  }
}

// Verifies files.making-quantized-files.
TEST_F(Quantized, Q8_0EqualsAnotherQuantizersByteForByte) {
  for (const std::string name : {"llama", "qwen2", "gemma3", "gemma4-e"}) {
    const std::string out = path("a.gguf");
    const auto written = quantize_model(kTiny + name + "/model.gguf", out, {.type = "Q8_0"});
    ASSERT_TRUE(written) << written.error().message;
    const GgufFile want = opened(kTiny + name + "/model-q8_0.gguf"), got = opened(out);
    ASSERT_EQ(want.tensors().size(), got.tensors().size());
    size_t compared = 0;
    for (const TensorInfo& tensor : want.tensors()) {
      const TensorInfo* other = got.tensor(tensor.name);
      ASSERT_NE(other, nullptr) << tensor.name;
      if (other->type != tensor.type) {
        EXPECT_EQ(tensor.name, "per_layer_model_proj.weight");  // it is BF16 there
        continue;
      }
      ASSERT_EQ(std::memcmp(tensor.data, other->data, tensor.bytes), 0) << name << tensor.name;
      compared += tensor.type == TensorType::Q8_0;
    }
    EXPECT_GT(compared, 20u);
  }
}

// Files of the same weights by another quantizer: no type loses more here, but for half a percent
// that weighing large values more may cost. The F16 file has the float32 weights, that the other
// quantizer started from, to eleven bits.
// Verifies files.making-quantized-files.
TEST_F(Quantized, LosesNoMoreThanAnotherQuantizer) {
  const GgufFile source = opened(kTiny + "llama-quant/model-f16.gguf");
  for (const std::string& type : tensor_types()) {
    std::string lower = type;
    for (char& c : lower) c = char(std::tolower(c));
    const std::string reference = kTiny + "llama-quant/model-" + lower + ".gguf";
    if (!std::filesystem::exists(reference) || type == "F16") {
      EXPECT_TRUE(type == "F16" || type == "F32" || type == "MXFP4") << type;
      continue;
    }
    const std::string out = path(type + ".gguf");
    const auto written = quantize_model(source.name(), out, {.type = type});
    ASSERT_TRUE(written) << written.error().message;
    const GgufFile theirs = opened(reference), ours = opened(out);
    double their_sum = 0, our_sum = 0;
    for (const TensorInfo& tensor : source.tensors()) {
      const TensorInfo *a = theirs.tensor(tensor.name), *b = ours.tensor(tensor.name);
      ASSERT_TRUE(a != nullptr && b != nullptr) << tensor.name;
      if (a->type != b->type || quant::type_info(b->type).block == 1) continue;
      const std::vector<float> want = values_of(tensor);
      their_sum += error_between(want, values_of(*a));
      our_sum += error_between(want, values_of(*b));
    }
    EXPECT_LE(our_sum, their_sum * 1.005) << type;
  }
}

TEST_F(Quantized, SameBytesForAnyNumberOfThreads) {
  const std::string source = path("source.gguf");
  write_source(source, {{"blk.0.ffn_up.weight", TensorType::F32, {256, 9000}}});
  std::string first;
  for (const int threads : {1, 2, 5}) {
    const std::string out = path("a.gguf");
    const auto written = quantize_model(source, out, {.type = "Q4_0", .threads = threads});
    ASSERT_TRUE(written) << written.error().message;
    const auto bytes = base::read_file(out);
    ASSERT_TRUE(bytes);
    if (first.empty()) first = *bytes;
    EXPECT_TRUE(first == *bytes) << threads;
  }
}

TEST_F(Quantized, BlocksAreThoseOfTheWholeTensor) {
  const std::string source = path("source.gguf"), out = path("a.gguf");
  write_source(source, kTensors);
  const auto written = quantize_model(source, out, {.type = "Q6_K"});
  ASSERT_TRUE(written) << written.error().message;
  EXPECT_EQ(written->parameters, 256u * 300 + 256 + 256 * 4000);
  ASSERT_EQ(written->types.size(), 2u);
  EXPECT_EQ(written->types[0].type, "Q6_K");
  EXPECT_EQ(written->types[0].tensors, 2u);
  EXPECT_EQ(written->types[0].bytes, 4300u * 210);
  const GgufFile before = opened(source), after = opened(out);
  for (const TensorInfo& tensor : after.tensors()) {
    if (tensor.type != TensorType::Q6_K) continue;
    const std::vector<float> x = values_of(*before.tensor(tensor.name));
    std::string want(tensor.bytes, '\0');
    ASSERT_TRUE(quant::quantize_fn(tensor.type)(x.data(), int64_t(x.size()) / 256, want.data()));
    EXPECT_EQ(std::memcmp(want.data(), tensor.data, want.size()), 0) << tensor.name;
  }
}

TEST_F(Quantized, TheAlignmentStays) {
  const std::string source = path("source.gguf"), out = path("a.gguf");
  format::GgufMetadata metadata;
  metadata.set_uint32("general.alignment", 256);
  write_source(source, kTensors, metadata);
  ASSERT_TRUE(quantize_model(source, out, {.type = "Q4_1"}));
  const GgufFile written = opened(out);
  for (const TensorInfo& tensor : written.tensors()) EXPECT_EQ(tensor.offset % 256, 0u);
}

TEST_F(Quantized, SmallerTypesAreReadAndNoted) {
  const std::string out = path("a.gguf"), again = path("b.gguf");
  const std::string source = kTiny + "llama-quant/model-q4_k.gguf";
  const auto written = quantize_model(source, out, {.type = "Q8_0"});
  ASSERT_TRUE(written) << written.error().message;
  ASSERT_EQ(written->notes.size(), 1u);
  EXPECT_NE(written->notes[0].find("of the source are Q4_K already"), std::string::npos);
  // What has its type is copied, not made again.
  const auto same = quantize_model(source, again, {.type = "Q4_K"});
  ASSERT_TRUE(same) << same.error().message;
  EXPECT_TRUE(same->notes.empty());
  const GgufFile before = opened(source), after = opened(again);
  for (const TensorInfo& tensor : before.tensors()) {
    EXPECT_EQ(std::memcmp(tensor.data, after.tensor(tensor.name)->data, tensor.bytes), 0);
  }
}

TEST_F(Quantized, PartsBecomeOneFile) {
  const std::string first = path("m-00001-of-00002.gguf"), second = path("m-00002-of-00002.gguf");
  format::GgufMetadata metadata;
  metadata.set_uint32("split.count", 2);
  metadata.set_uint32("split.no", 0);
  write_source(first, {kTensors[0], kTensors[1]}, metadata);
  metadata.set_uint32("split.no", 1);
  write_source(second, {kTensors[2]}, metadata);
  const auto own = quantize_model(first, second, {.type = "Q4_0"});
  ASSERT_FALSE(own);
  EXPECT_EQ(own.error().code, ErrorCode::kInvalidArgument);
  const auto written = quantize_model(first, path("a.gguf"), {.type = "Q4_0"});
  ASSERT_TRUE(written) << written.error().message;
  const GgufFile file = opened(path("a.gguf"));
  EXPECT_EQ(file.tensors().size(), 3u);
  EXPECT_EQ(file.find("split.count"), nullptr);
  EXPECT_EQ(file.find("split.no"), nullptr);
}

// Verifies files.making-quantized-files.
TEST_F(Quantized, TheSourceIsNotOverwritten) {
  const std::string source = path("source.gguf");
  write_source(source, kTensors);
  const auto before = base::read_file(source);
  std::filesystem::create_symlink(source, path("link.gguf"));
  std::filesystem::create_hard_link(source, path("hard.gguf"));
  for (const char* name : {"source.gguf", "link.gguf", "hard.gguf"}) {
    const auto written = quantize_model(source, path(name), {.type = "Q4_0"});
    ASSERT_FALSE(written) << name;
    EXPECT_EQ(written.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(written.error().message.find("another name"), std::string::npos);
  }
  EXPECT_TRUE(*before == *base::read_file(source));
  EXPECT_EQ(files().size(), 3u);
}

// Verifies files.making-quantized-files.
TEST_F(Quantized, NothingIsLeftOfWhatFailed) {
  const std::string source = path("source.gguf"), out = path("a.gguf");
  write_source(source, kTensors);
  std::filesystem::copy_file(source, out);
  int calls = 0;
  const auto stopped =
      quantize_model(source, out, {.type = "Q4_0", .progress = [&calls](const Progress& p) {
                                     const uint64_t done = p.done, total = p.total;
                                     EXPECT_LE(done, total);
                                     return ++calls < 3;
                                   }});
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(calls, 3);

  write_source(source, kTensors, {}, std::numeric_limits<float>::quiet_NaN());
  const auto bad = quantize_model(source, out, {.type = "Q4_K"});
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().code, ErrorCode::kNumeric);
  EXPECT_NE(bad.error().message.find("value 38400 of 'token_embd.weight' is nan"),
            std::string::npos)
      << bad.error().message;

  write_source(source, kTensors, {}, 1e6f);
  const auto large = quantize_model(source, out, {.type = "F16"});
  ASSERT_FALSE(large);
  EXPECT_NE(large.error().message.find("is 1000000, too large for F16"), std::string::npos)
      << large.error().message;
  EXPECT_TRUE(opened(out).tensors()[0].type == TensorType::F32);
  EXPECT_EQ(files(), (std::set<std::string>{"a.gguf", "source.gguf"}));
}

TEST_F(Quantized, WhatMakesNoSenseIsRefusedBeforeTheWork) {
  const std::string source = path("source.gguf");
  write_source(source, kTensors);
  const auto code = [](const Result<WrittenModel>& r) { return r ? ErrorCode{} : r.error().code; };
  EXPECT_EQ(code(quantize_model(source, path("a"), {.type = "Q9"})), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(quantize_model(source, path("a"), {.type = "Q4_0", .threads = -1})),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(quantize_model(path("none"), path("a"), {.type = "Q4_0"})), ErrorCode::kNotFound);
  EXPECT_EQ(code(quantize_model(source, path("none/a"), {.type = "Q4_0"})), ErrorCode::kNotFound);
  EXPECT_EQ(files().size(), 1u);
}

}  // namespace
}  // namespace culet::convert
