// Mixtures of experts with int8 weights. The reference files are float32; each is copied here with
// every matrix that can be in Q8_0, so that experts of integer weights run from file to logits (a
// hidden width that is no multiple of 32 leaves down in float32: both kinds in one operation).
#include "culet/measure.h"
#include "support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <random>
#include <unistd.h>

namespace culet::test {
namespace {

constexpr const char* kModels[] = {"qwen3moe", "gemma4-moe", "mixtral"};
constexpr uint32_t kQ8 = 8;
constexpr size_t kBlock = 32;

// The nearest half of a positive normal number.
uint16_t half_of(float x) {
  int exponent = 0;
  const float mantissa = std::frexp(x, &exponent);  // in [0.5, 1)
  const auto bits = static_cast<int>(std::lround(mantissa * 2048)) - 1024;
  return static_cast<uint16_t>(((exponent + 14) << 10) + bits);
}

std::string q8_of(const float* x, size_t n) {
  std::string out;
  for (size_t at = 0; at < n; at += kBlock) {
    float most = 1e-3f;
    for (size_t i = 0; i < kBlock; ++i) most = std::max(most, std::fabs(x[at + i]));
    const uint16_t d = half_of(most / 127);
    out.append(reinterpret_cast<const char*>(&d), sizeof d);
    for (size_t i = 0; i < kBlock; ++i) {
      const long q = std::lround(x[at + i] / most * 127);
      out += static_cast<char>(static_cast<int8_t>(q));
    }
  }
  return out;
}

TensorBytes converted(const format::TensorInfo& tensor) {
  const bool matrix = tensor.n_dims > 1 && tensor.dims[0] % kBlock == 0;
  if (!matrix || tensor.name.find("ffn_gate_inp") != std::string_view::npos) {
    return unchanged(tensor);
  }
  return {kQ8, q8_of(reinterpret_cast<const float*>(tensor.data), tensor.elements())};
}

class Experts : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string folder = golden("tiny/" + std::string(GetParam()));
    expected_ = read_json(folder + "/expected.json");
    once_ = expected_["tokens"].get<std::vector<Token>>();
    for (int i = 0; i < 3; ++i) tokens_.insert(tokens_.end(), once_.begin(), once_.end());
    file_ = (std::filesystem::temp_directory_path() /
             ("culet-experts-" + std::string(GetParam()) + std::to_string(getpid())))
                .string();
    rewrite_tensors(folder + "/model.gguf", file_, converted);
  }
  void TearDown() override { std::filesystem::remove(file_); }

  nlohmann::json expected_;
  std::vector<Token> once_, tokens_;
  std::string file_;
};

TEST_P(Experts, StayNearTheReference) {
  const Rows exact = rows_of(golden("tiny/" + std::string(GetParam()) + "/model.gguf"),
                             {.threads = 2, .precise = true}, KvType::kF32, once_);
  for (const bool precise : {true, false}) {
    const Rows rows = rows_of(file_, {.threads = 2, .precise = precise}, KvType::kF32, once_);
    double sum = 0, squares = 0;
    for (size_t r = 0; r < rows.size(); ++r) {
      for (size_t i = 0; i < rows[r].size(); ++i) {
        const double d = static_cast<double>(rows[r][i]) - static_cast<double>(exact[r][i]);
        sum += d * d;
        squares += static_cast<double>(exact[r][i]) * static_cast<double>(exact[r][i]);
      }
    }
    EXPECT_GT(sum, 0);
    // A near tie of the router may fall the other way in some rows; most must not.
    EXPECT_LT(std::sqrt(sum / squares), 0.15) << (precise ? "float" : "int8") << " activations";
  }
}

// Verifies arithmetic.experts.
TEST_P(Experts, EveryWayGivesTheSameBits) {
  for (const bool precise : {false, true}) {
    const Rows expected =
        rows_of(file_, {.threads = 1, .precise = precise, .fuse = false, .isa = "scalar"},
                KvType::kF16, tokens_);
    const auto expect_same = [&](const ModelOptions& options, const std::string& what) {
      EXPECT_EQ(first_difference(expected, rows_of(file_, options, KvType::kF16, tokens_)), "")
          << what << (precise ? ", float" : ", int8");
    };
    for (const std::string& isa : usable_sets()) {
      for (const bool repack : {true, false}) {
        for (const bool fuse : {true, false}) {
          expect_same(
              {.threads = 2, .precise = precise, .fuse = fuse, .isa = isa, .repack = repack},
              isa + (repack ? "" : ", mapped") + (fuse ? ", fused" : ""));
        }
      }
    }
    for (const int rows : {1, 7, 64, 256}) {
      for (const int threads : {1, 3}) {
        ModelOptions options{.threads = threads, .precise = precise};
        options.ubatch_size = rows;
        expect_same(options, "passes of " + std::to_string(rows));
      }
    }
    std::mt19937 random(5);
    const auto model = load(file_, {.threads = 2, .precise = precise});
    std::vector<int64_t> chunks;
    for (auto left = static_cast<int64_t>(tokens_.size()); left > 0; left -= chunks.back()) {
      chunks.push_back(1 + static_cast<int64_t>(random() % 40) % left);
    }
    EXPECT_EQ(first_difference(expected, append_rows(*session(model), tokens_, chunks)), "")
        << testing::PrintToString(chunks);
  }
}

// What explain --profile prints of experts: the weights that were read, the products of a row.
// Verifies arithmetic.experts.
TEST_P(Experts, ProfilesCountWhatWasRead) {
  const auto model = load(file_, {.threads = 2});
  const auto one = session(model);
  const auto measured = profile(*one, once_, std::span(once_).first(5));
  ASSERT_TRUE(measured) << measured.error().message;
  const auto of_experts = [](const PhaseProfile& phase) {
    std::vector<OpTime> found;
    for (const OpTime& op : phase.ops) {
      if (op.names.find("experts") != std::string::npos) found.push_back(op);
    }
    return found;
  };
  const std::vector<OpTime> prefill = of_experts(measured->prefill),
                            decode = of_experts(measured->decode);
  ASSERT_FALSE(decode.empty());
  ASSERT_EQ(prefill.size(), decode.size());
  const auto all = static_cast<uint64_t>(GetParam() == std::string("mixtral") ? 6 : 8);
  for (size_t i = 0; i < decode.size(); ++i) {
    const uint64_t two = decode[i].bytes / 5;  // a token reads two experts of each layer
    EXPECT_GT(two, 0u);
    EXPECT_EQ(two * 5, decode[i].bytes);
    EXPECT_EQ(prefill[i].bytes % (two / 2), 0u);
    EXPECT_LE(prefill[i].bytes, all * (two / 2));
    EXPECT_GT(decode[i].operations, 0u);
    EXPECT_EQ(decode[i].operations % 5, 0u);
    const bool last = i + 1 == decode.size();  // of the last layer's rows one is wanted
    EXPECT_EQ(prefill[i].operations, decode[i].operations / 5 * (last ? 1 : once_.size()));
    EXPECT_GE(prefill[i].bytes, last ? two : 2 * two);
  }
  EXPECT_FALSE(costs(*model).logits_type.empty());
}

INSTANTIATE_TEST_SUITE_P(Tiny, Experts, testing::ValuesIn(kModels), test_name);

}  // namespace
}  // namespace culet::test
