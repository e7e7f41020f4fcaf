// Tiny random encoders against exact hidden rows, and every way of running one against every other.
//
//   * float activations: the reference's rows within its tolerance, and what pooling makes of them
//     (tests/golden/tiny/SOURCE.md says how they were made);
//   * any company in a pass, any number of threads, any instruction set, fused or not, repacked or
//     not: the same bits.
#include "support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

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

TEST_P(Encoder, HiddenRowsAndWhatPoolingMakesOfThem) {
  const double row = expected_["tolerance"]["hidden_abs"].get<double>();
  const double pooled = expected_["tolerance"]["pooled_abs"].get<double>();
  const auto model = this->model();
  EXPECT_EQ(model->info().kind, "encoder");
  EXPECT_EQ(model->info().width, static_cast<int64_t>(width_));
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

TEST_P(Encoder, CompanyAndThreadsChangeNothing) {
  const Sequences all = sequences();
  Rows want;
  const auto plain = model();
  for (const auto& tokens : all) want.push_back(encode_one(*plain, tokens));
  EXPECT_EQ(first_difference({want[0]}, {want[3]}), "");
  EXPECT_TRUE(want[1].empty());
  for (const int threads : {1, 2, 8}) {
    for (const int rows : {1, 40, 256, 2000}) {
      const auto other = model({.threads = threads, .pass_rows = rows});
      EXPECT_EQ(first_difference(encode_all(*other, all), want), "")
          << threads << " threads, passes of " << rows << " rows";
    }
  }
}

TEST_P(Encoder, WhatCannotBeReadIsAnErrorBeforeAnyWork) {
  const auto model = this->model({.threads = 1, .pass_rows = 16});
  const auto most = static_cast<size_t>(model->info().context_length);
  Sequences all = {tokens_, std::vector<Token>(most, 9)};
  EXPECT_EQ(encode_all(*model, all)[1].size(), most * width_);
  all[1].push_back(9);
  int calls = 0;
  const auto count = [&](int64_t, int64_t) { return ++calls > 0; };
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
  EXPECT_EQ(calls, 0);
  EXPECT_TRUE(encode_all(*model, {}).empty());
}

TEST_P(Encoder, StopsWhenAsked) {
  const auto model = this->model();
  std::vector<int64_t> done;
  const Sequences all(20, tokens_);
  const auto two = [&](int64_t now, int64_t whole) {
    EXPECT_EQ(whole, static_cast<int64_t>(20 * tokens_.size()));
    done.push_back(now);
    return done.size() < 2;
  };
  const auto rows = encode(*model, all, two);
  ASSERT_FALSE(rows);
  EXPECT_EQ(rows.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(done, (std::vector<int64_t>{240, 480}));  // five whole sequences of 48 in 256 rows
}

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
  EXPECT_EQ(model->info().kind, "decoder");
  const auto rows = encode(*model, Sequences{{1, 2, 3}});
  ASSERT_FALSE(rows);
  EXPECT_EQ(rows.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(rows.error().message.find("is a decoder"), std::string::npos) << rows.error().message;
}

// A sequence longer than an ordinary pass asks for the memory first.
TEST(Memory, ALongSequenceIsCheckedBeforeTheWork) {
  const std::string file = file_of("gemma-embedding/model.gguf");
  const auto model = load(file, {.threads = 1, .pass_rows = 8});
  ModelOptions options{.threads = 1, .pass_rows = 8};
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
