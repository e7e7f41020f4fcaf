// Tiny random encoders against exact hidden rows, and every way of running one against every other.
//
//   * float activations: the reference's rows within its tolerance, and what pooling makes of them
//     (tests/golden/tiny/SOURCE.md says how they were made);
//   * the vector of each sequence, which the architecture file pools, normalizes and projects;
//   * any company in a pass, any number of threads, any instruction set, fused or not, repacked or
//     not: the same bits.
#include "support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <unistd.h>
#include <utility>

namespace culet::test {
namespace {

using nlohmann::json;

std::string file_of(const std::string& name) { return golden("tiny/" + name); }

using Sequences = std::vector<std::vector<Token>>;

// Rows of every sequence, or a failed test.
Rows encode_all(const Model& model, const Sequences& sequences) {
  auto rows = encode(model, sequences);
  EXPECT_TRUE(rows) << (rows ? "" : rows.error().message);
  return rows ? *std::move(rows) : Rows(sequences.size());
}
std::vector<float> encode_one(const Model& model, const std::vector<Token>& tokens) {
  return encode_all(model, {tokens})[0];
}

Rows embed_all(const Model& model, const Sequences& sequences, const EmbedOptions& options = {}) {
  auto vectors = embed(model, sequences, options);
  EXPECT_TRUE(vectors) << (vectors ? "" : vectors.error().message);
  return vectors ? *std::move(vectors) : Rows(sequences.size(), std::vector<float>(1));
}

class Encoder : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    expected_ = read_json(file_of(std::string(GetParam()) + "/expected.json"));
    tokens_ = expected_["tokens"].get<std::vector<Token>>();
    width_ = expected_["n_embd"].get<size_t>();
  }
  std::shared_ptr<const Model> model(ModelOptions options = {.threads = 2}) const {
    options.precise = true;
    return load(file_of(std::string(GetParam()) + "/model.gguf"), options);
  }
  std::vector<float> mean(std::span<const float> rows) const {
    const size_t n = rows.size() / width_;
    std::vector<double> sum(width_);
    for (size_t i = 0; i < rows.size(); ++i) sum[i % width_] += static_cast<double>(rows[i]);
    std::vector<float> out;
    for (const double x : sum) out.push_back(static_cast<float>(x / static_cast<double>(n)));
    return out;
  }
  // Sequences of lengths from 1 to what fits, some more than once.
  Sequences sequences() const {
    std::mt19937 random(3);
    Sequences all = {tokens_, {}, expected_["short"]["tokens"].get<std::vector<Token>>(), tokens_};
    for (const size_t n : {1, 31, 32, 33, 100, 2, 64, 128, 5}) {
      all.emplace_back();
      for (size_t i = 0; i < n; ++i) all.back().push_back(static_cast<Token>(random() % 512));
    }
    return all;
  }

  json expected_;
  std::vector<Token> tokens_;
  size_t width_ = 0;
};

// Verifies answers.embed.
TEST_P(Encoder, HiddenRowsAndWhatPoolingMakesOfThem) {
  const double row = expected_["tolerance"]["hidden_abs"].get<double>();
  const double pooled = expected_["tolerance"]["pooled_abs"].get<double>();
  const auto model = this->model();
  EXPECT_EQ(model->info().kind, ModelKind::kEncoder);
  EXPECT_EQ(model->info().hidden_size, static_cast<int64_t>(width_));
  const std::vector<float> hidden = encode_one(*model, tokens_);
  ASSERT_EQ(hidden.size(), tokens_.size() * width_);
  const std::span<const float> rows(hidden);
  for (size_t i = 0; i < expected_["positions_checked"].size(); ++i) {
    const auto position = expected_["positions_checked"][i].get<size_t>();
    EXPECT_LE(largest_difference(rows.subspan(position * width_, width_), expected_["hidden"][i]),
              row)
        << "position " << position;
  }
  EXPECT_LE(largest_difference(mean(rows), expected_["pooled_mean"]), pooled);
  EXPECT_LE(largest_difference(rows.first(width_), expected_["pooled_cls"]), row);
  EXPECT_LE(largest_difference(rows.last(width_), expected_["pooled_last"]), row);
  const auto few = expected_["short"]["tokens"].get<std::vector<Token>>();
  EXPECT_LE(largest_difference(mean(encode_one(*model, few)), expected_["short"]["pooled_mean"]),
            pooled);
}

// bert's file asks for the first row, modernbert's for the mean; gemma-embedding's mean has
// length 1.
// Verifies answers.embed.
TEST_P(Encoder, VectorsAreWhatTheFileAsksFor) {
  const std::string name = GetParam();
  const std::string what = name == "bert"         ? "pooled_cls"
                           : name == "modernbert" ? "pooled_mean"
                                                  : "pooled_mean_l2";
  const double tolerance =
      expected_["tolerance"][name == "bert" ? "hidden_abs" : "pooled_abs"].get<double>();
  const auto model = this->model();
  EXPECT_EQ(model->info().embedding_dimension, static_cast<int64_t>(width_));
  const auto few = expected_["short"]["tokens"].get<std::vector<Token>>();
  const Rows vectors = embed_all(*model, {tokens_, few});
  ASSERT_EQ(vectors[0].size(), width_);
  EXPECT_LE(largest_difference(vectors[0], expected_[what]), tolerance);
  if (name != "gemma-embedding") {
    EXPECT_LE(largest_difference(vectors[1], expected_["short"][what]), tolerance);
  }
  if (name == "bert") {
    const std::vector<float> rows = encode_one(*model, tokens_);
    EXPECT_EQ(first_difference({vectors[0]}, {{rows.begin(), rows.begin() + 64}}), "");
  }
  const Rows unit = embed_all(*model, {tokens_}, {.normalize = true});
  double length = 0;
  for (const float x : unit[0]) length += static_cast<double>(x) * static_cast<double>(x);
  EXPECT_NEAR(length, 1, 1e-6);
  if (what == "pooled_mean") {
    EXPECT_LE(largest_difference(unit[0], expected_["pooled_mean_l2"]), tolerance);
  }
}

// The other pooling of the same weights: the file's pooling_type, changed in a copy.
// Verifies answers.embed.
TEST_P(Encoder, PoolingFollowsTheFile) {
  const std::string name = GetParam();
  const std::string source = file_of(name + "/model.gguf");
  const auto with = [&](uint32_t pooling) {
    const std::string path = (std::filesystem::temp_directory_path() /
                              ("culet-pooling-" + name + std::to_string(getpid())))
                                 .string();
    std::ifstream in(source, std::ios::binary);
    std::string data((std::istreambuf_iterator<char>(in)), {});
    const std::string arch = name == "modernbert" ? "modern-bert" : name;
    const size_t at = data.find(arch + ".pooling_type") + arch.size() + 13 + 4;
    std::memcpy(data.data() + at, &pooling, 4);
    std::ofstream(path, std::ios::binary) << data;
    auto loaded = Model::load(path, {.threads = 2, .precise = true});
    std::filesystem::remove(path);
    return loaded;
  };
  const auto unknown = with(3);
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("pooling_type is not supported"), std::string::npos);
  const auto none = with(0);
  ASSERT_TRUE(none) << none.error().message;
  EXPECT_EQ((*none)->info().embedding_dimension, 0);
  EXPECT_EQ(encode_one(**none, tokens_).size(), tokens_.size() * width_);
  const auto refused = embed(**none, Sequences{tokens_});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(refused.error().message.find("no output 'pooled'"), std::string::npos);
  if (name == "gemma-embedding") return;
  for (const auto& [pooling, what] : {std::pair{1u, "pooled_mean"}, {2u, "pooled_cls"}}) {
    const auto model = with(pooling);
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_LE(largest_difference(embed_all(**model, {tokens_})[0], expected_[what]),
              expected_["tolerance"]["hidden_abs"].get<double>())
        << what;
  }
}

// Verifies answers.embed.
TEST_P(Encoder, VectorsHaveTheSameBitsInAnyCompany) {
  Sequences all = sequences();
  all.erase(all.begin() + 1);  // the empty one
  for (int i = 0; i < 150; ++i) all.push_back({static_cast<Token>(i), 3});
  const ModelOptions plain{.threads = 1, .fuse = false, .isa = "scalar"};
  Rows want;
  const auto one = model(plain);
  for (const auto& tokens : all) want.push_back(embed_all(*one, {tokens})[0]);
  for (const std::string& isa : usable_sets()) {
    for (const int threads : {1, 3}) {
      for (const int rows : {1, 40, 2000}) {
        ModelOptions options{.threads = threads, .isa = isa};
        options.ubatch_size = rows;
        EXPECT_EQ(first_difference(embed_all(*model(options), all), want), "")
            << isa << ", " << threads << " threads, passes of " << rows << " rows";
      }
    }
  }
}

// Verifies answers.embed.
TEST_P(Encoder, InstructionSetsAndFusionGiveTheSameBits) {
  ModelOptions plain{.threads = 1, .fuse = false, .isa = "scalar"};
  const Sequences all = sequences();
  const Rows want = encode_all(*model(plain), all);
  for (const std::string& isa : usable_sets()) {
    for (const bool fuse : {false, true}) {
      for (const bool repack : {true, false}) {
        plain.isa = isa, plain.fuse = fuse, plain.repack = repack;
        EXPECT_EQ(first_difference(encode_all(*model(plain), all), want), "")
            << isa << (fuse ? ", fused" : "") << (repack ? "" : ", not repacked");
      }
    }
  }
}

// Verifies answers.embed.
TEST_P(Encoder, CompanyAndThreadsChangeNothing) {
  const Sequences all = sequences();
  Rows want;
  const auto plain = model();
  for (const auto& tokens : all) want.push_back(encode_one(*plain, tokens));
  EXPECT_EQ(first_difference({want[0]}, {want[3]}), "");
  EXPECT_TRUE(want[1].empty());
  for (const int threads : {1, 2, 8}) {
    for (const int rows : {1, 40, 256, 2000}) {
      const auto other = model({.threads = threads, .ubatch_size = rows});
      EXPECT_EQ(first_difference(encode_all(*other, all), want), "")
          << threads << " threads, passes of " << rows << " rows";
    }
  }
}

// Verifies answers.embed.
TEST_P(Encoder, WhatCannotBeReadIsAnErrorBeforeAnyWork) {
  const auto model = this->model({.threads = 1, .ubatch_size = 16});
  const auto most = static_cast<size_t>(model->info().context_length);
  Sequences all = {tokens_, std::vector<Token>(most, 9)};
  EXPECT_EQ(encode_all(*model, all)[1].size(), most * width_);
  all[1].push_back(9);
  int calls = 0;
  const auto count = [&](const Progress&) { return ++calls > 0; };
  auto rows = encode(*model, all, count);
  ASSERT_FALSE(rows);
  EXPECT_EQ(rows.error().code, ErrorCode::kExhausted);
  for (const std::string& part :
       std::vector<std::string>{"sequence 1", std::to_string(most + 1), std::to_string(most)})
    EXPECT_NE(rows.error().message.find(part), std::string::npos) << rows.error().message;
  for (const Token outside : {-1, 512}) {
    rows = encode(*model, Sequences{tokens_, {4, outside}}, count);
    ASSERT_FALSE(rows);
    EXPECT_EQ(rows.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(rows.error().message.find("sequence 1"), std::string::npos) << rows.error().message;
  }
  rows = embed(*model, all, {}, count);
  ASSERT_FALSE(rows);
  EXPECT_EQ(rows.error().code, ErrorCode::kExhausted);
  EXPECT_NE(rows.error().message.find(std::to_string(most + 1)), std::string::npos);
  rows = embed(*model, Sequences{tokens_, {}}, {}, count);
  ASSERT_FALSE(rows);
  EXPECT_EQ(rows.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(rows.error().message.find("sequence 1 is empty"), std::string::npos);
  EXPECT_EQ(calls, 0);
  EXPECT_TRUE(encode_all(*model, {}).empty());
  EXPECT_TRUE(embed_all(*model, {}).empty());
  EXPECT_EQ(model->info().sequence_length, static_cast<int64_t>(most));
}

TEST_P(Encoder, StopsWhenAsked) {
  const auto model = this->model();
  std::vector<int64_t> done;
  const Sequences all(20, tokens_);
  const auto two = [&](const Progress& p) {
    EXPECT_EQ(p.total, 20 * tokens_.size());
    done.push_back(static_cast<int64_t>(p.done));
    return done.size() < 2;
  };
  const auto rows = encode(*model, all, two);
  ASSERT_FALSE(rows);
  EXPECT_EQ(rows.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(done, (std::vector<int64_t>{240, 480}));  // five whole sequences of 48 in 256 rows
}

// Verifies answers.embed.
TEST_P(Encoder, HasNoSessions) {
  const auto session = Session::make(model(), {});
  ASSERT_FALSE(session);
  EXPECT_EQ(session.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(session.error().message.find("is an encoder"), std::string::npos);
  EXPECT_NE(session.error().message.find("culet::encode"), std::string::npos);
  const auto rows = encode(*model({.text_only = true}), {});
  ASSERT_FALSE(rows);
  EXPECT_EQ(rows.error().code, ErrorCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Tiny, Encoder, testing::Values("bert", "modernbert", "gemma-embedding"),
                         [](const testing::TestParamInfo<const char*>& model) {
                           std::string name = model.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST(Decoder, MakesNoVectors) {
  const auto model = load(file_of("llama/model.gguf"));
  EXPECT_EQ(model->info().kind, ModelKind::kDecoder);
  const auto rows = encode(*model, Sequences{{1, 2, 3}});
  ASSERT_FALSE(rows);
  EXPECT_EQ(rows.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(rows.error().message.find("of kind decoder"), std::string::npos)
      << rows.error().message;
  EXPECT_EQ(model->info().embedding_dimension, 0);
  const auto vectors = embed(*model, Sequences{{1, 2, 3}});
  ASSERT_FALSE(vectors);
  EXPECT_EQ(vectors.error().message, rows.error().message);
}

// Behind the pooling come products: EmbeddingGemma's dense layers, here two matrices of its layers.
// Verifies answers.embed.
TEST(Pooled, VectorsArePooledThenProjected) {
  const std::string file = file_of("gemma-embedding/model.gguf");
  ModelOptions options{.threads = 2, .precise = true};
  options.arch_dir = arch_folder("dense");
  const auto projected = load(file, options);
  EXPECT_EQ(projected->info().embedding_dimension, 64);
  const Sequences all = {{2, 5, 77, 300, 1}, {2, 9, 1}};
  const Rows vectors = embed_all(*projected, all);
  const Rows hidden = encode_all(*projected, all);
  const auto gguf = format::GgufFile::open(file);
  ASSERT_TRUE(gguf);
  const auto weights = [&](const char* name) {
    const format::TensorInfo* t = gguf->tensor(name);
    const auto* data = reinterpret_cast<const float*>(t->data);
    return std::vector<double>(data, data + t->elements());
  };
  const auto times = [](const std::vector<double>& w, const std::vector<double>& x) {
    std::vector<double> y(w.size() / x.size());
    for (size_t i = 0; i < w.size(); ++i) y[i / x.size()] += w[i] * x[i % x.size()];
    return y;
  };
  for (size_t s = 0; s < all.size(); ++s) {
    std::vector<double> mean(64);
    for (size_t i = 0; i < hidden[s].size(); ++i)
      mean[i % 64] += static_cast<double>(hidden[s][i]) / static_cast<double>(all[s].size());
    const std::vector<double> want =
        times(weights("blk.0.ffn_down.weight"), times(weights("blk.0.ffn_up.weight"), mean));
    for (size_t i = 0; i < 64; ++i) EXPECT_NEAR(vectors[s][i], want[i], 1e-4) << s << " " << i;
  }
}

// A sequence longer than an ordinary pass asks for the memory first.
TEST(Memory, ALongSequenceIsCheckedBeforeTheWork) {
  const std::string file = file_of("gemma-embedding/model.gguf");
  const auto model = load(file, {.threads = 1, .ubatch_size = 8});
  ModelOptions options{.threads = 1, .ubatch_size = 8};
  options.memory_limit =
      model->info().packed_bytes + model->info().converted_bytes + model->info().workspace_bytes;
  const auto small = load(file, options);
  EXPECT_TRUE(encode(*small, Sequences{std::vector<Token>(8, 5)}));
  const auto rows = encode(*small, Sequences{std::vector<Token>(256, 5)});
  ASSERT_FALSE(rows);
  EXPECT_EQ(rows.error().code, ErrorCode::kExhausted);
  EXPECT_NE(rows.error().message.find("256 tokens"), std::string::npos) << rows.error().message;
}

}  // namespace
}  // namespace culet::test
