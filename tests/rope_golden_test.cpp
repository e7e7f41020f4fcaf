// Folders whose positions are scaled, whose layers have windows, or whose experts are weighted in
// another way than usual, against transformers: tests/golden/rope/cases.json has configurations and
// scores, scripts/make_rope_cases.py made it. Weights follow from their names, here as there.
#include "checkpoint.h"
#include "culet/convert.h"
#include "support.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <numeric>
#include <unistd.h>

namespace culet::test {
namespace {

// What values() of the script gives.
Weights weights(const std::string& name, std::vector<uint64_t> shape) {
  uint32_t state = 2166136261U;
  for (const char c : name) state = (state ^ static_cast<uint8_t>(c)) * 16777619U;
  const bool vector = shape.size() == 1, norm = vector && name.ends_with(".weight");
  Weights out{std::move(shape), {}};
  const uint64_t count =
      std::accumulate(out.shape.begin(), out.shape.end(), uint64_t{1}, std::multiplies<>());
  out.values.reserve(count);
  for (uint64_t k = 0; k < count; ++k) {
    state = state * 1664525U + 1013904223U;
    const double v = (static_cast<double>(state >> 8) - 8388608.0) / 8388608.0;  // [-1, 1)
    out.values.push_back(static_cast<float>(norm ? 1 + v / 4 : vector ? v / 8 : v / 2));
  }
  return out;
}

class RopeGolden : public testing::Test {
 protected:
  void SetUp() override {
    folder = fmt::format("{}/culet-rope-{}-{}", std::filesystem::temp_directory_path().string(),
                         getpid(), testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder);
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  // Converts the folder of a case whose configuration may be changed; the path of the file.
  Result<std::string> converted(const std::string& name,
                                const std::function<void(Json*)>& change = {}) const {
    const Json given = cases.at("cases").at(name);
    Json config = given.at("config");
    if (change) change(&config);
    const std::string in = folder + "/" + name, out = in + ".gguf";
    std::filesystem::create_directories(in);
    Checkpoint checkpoint;
    for (const auto& [tensor, shape] : given.at("tensors").items())
      checkpoint[tensor] = weights(tensor, shape.get<std::vector<uint64_t>>());
    write_text(in + "/config.json", config.dump());
    write_safetensors(in + "/model.safetensors", checkpoint);
    for (const char* file : {"/tokenizer.json", "/tokenizer_config.json"}) {
      std::filesystem::copy_file(golden("rope") + file, in + file,
                                 std::filesystem::copy_options::overwrite_existing);
    }
    const auto written = convert_model(in, out, {.type = "F32"});
    if (!written) return tl::unexpected(written.error());
    return out;
  }

  std::vector<Token> ids() const { return cases.at("ids").get<std::vector<Token>>(); }

  // The largest difference of a token's score (nats) from the case's, over the first `count`
  // tokens, in a model that is loaded for `context` tokens.
  double difference(const std::string& path, const std::string& name, int64_t context = 200,
                    size_t count = std::numeric_limits<size_t>::max()) const {
    const auto model = load(path, {.precise = true, .context = context});
    const auto made =
        Session::make(model, {.context = context, .keys = KvType::kF32, .values = KvType::kF32});
    if (!made) throw std::runtime_error(made.error().message);
    const auto tokens = ids();
    const Rows rows = append_rows(**made, tokens);
    const auto expected = cases.at("cases").at(name).at("nll").get<std::vector<double>>();
    double largest = 0;
    for (size_t t = 0; t < std::min(count, expected.size()); ++t) {
      const double difference = std::abs(nll(*model, rows[t], tokens[t + 1]) - expected[t]);
      if (!(difference <= largest)) largest = difference;
    }
    return largest;
  }
  std::string refusal(const std::string& name, const std::function<void(Json*)>& change) const {
    const auto path = converted(name, change);
    EXPECT_FALSE(path);
    return path ? "" : path.error().message;
  }

  Json cases = Json(read_json(golden("rope/cases.json")));
  std::string folder;
};

// The scores were rounded to 7 digits behind the point.
constexpr double kClose = 2e-5;

// Verifies files.conversion.
TEST_F(RopeGolden, EveryCaseScoresAsTransformersDoes) {
  ASSERT_GE(cases.at("cases").size(), 28U);
  for (const auto& [name, unused] : cases.at("cases").items()) {
    SCOPED_TRACE(name);
    const auto path = converted(name);
    ASSERT_TRUE(path) << path.error().message;
    EXPECT_LE(difference(*path, name), kClose);
  }
}

// The text is longer than every window and every original length: what is left out, counts.
TEST_F(RopeGolden, TheCasesTellTheValuesApart) {
  struct Left {
    const char* name;
    std::function<void(Json*)> change;
  };
  const Left changes[] = {
      {"llama-yarn", [](Json* c) { (*c)["rope_parameters"]["rope_type"] = "linear"; }},
      {"llama-yarn", [](Json* c) { (*c)["rope_parameters"]["attention_factor"] = 1.0; }},
      {"llama-yarn-betas", [](Json* c) { (*c)["rope_parameters"].erase("beta_fast"); }},
      {"llama-yarn-betas", [](Json* c) { (*c)["rope_parameters"].erase("beta_slow"); }},
      {"llama-yarn-untruncated", [](Json* c) { (*c)["rope_parameters"].erase("truncate"); }},
      {"llama-yarn-mscale", [](Json* c) { (*c)["rope_parameters"].erase("mscale"); }},
      {"phi3-attention-factor", [](Json* c) { (*c)["rope_parameters"].erase("attention_factor"); }},
      {"mistral-window", [](Json* c) { (*c)["sliding_window"] = nullptr; }},
      {"mixtral-window", [](Json* c) { (*c)["sliding_window"] = nullptr; }},
      {"qwen2-window", [](Json* c) { (*c)["use_sliding_window"] = false; }},
      {"qwen3-window", [](Json* c) { (*c)["use_sliding_window"] = false; }},
      {"smollm3-window", [](Json* c) { (*c)["use_sliding_window"] = false; }},
      {"qwen3moe-free", [](Json* c) { (*c)["norm_topk_prob"] = true; }},
      {"granitehybrid-rope", [](Json* c) { (*c)["position_embedding_type"] = nullptr; }},
  };
  for (const Left& left : changes) {
    SCOPED_TRACE(left.name);
    const auto path = converted(left.name, [&](Json* config) {
      left.change(config);
      // Lists of kinds follow from use_sliding_window where there are none.
      if (config->contains("use_sliding_window")) config->erase("layer_types");
    });
    ASSERT_TRUE(path) << path.error().message;
    EXPECT_GT(difference(*path, left.name), 0.01);
  }
}

// Which of the two lists of LongRoPE: by the context that the model is loaded for, not by the text.
TEST_F(RopeGolden, LongRopeTakesItsListByTheContext) {
  for (const char* name : {"llama-longrope", "phi3-longrope"}) {
    SCOPED_TRACE(name);
    const auto path = converted(name);
    ASSERT_TRUE(path) << path.error().message;
    EXPECT_LE(difference(*path, name, 200), kClose);
    EXPECT_LE(difference(*path, name, 121), kClose);
    const auto model = load(*path, {.precise = true, .context = 32});
    EXPECT_EQ(model->info().rope_context, 32);
    EXPECT_EQ(model->info().rope_factors, "rope_factors_short.weight");
    EXPECT_EQ(load(*path, {.context = 33})->info().rope_factors, "rope_factors_long.weight");
    const auto refused = Session::make(model, {.context = 33});
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().message.find("loaded for"), std::string::npos)
        << refused.error().message;
    // The short list gives what a folder gives whose long list is the short one.
    const auto same = converted(name, [](Json* config) {
      Json& rope = (*config)["rope_parameters"];
      rope["long_factor"] = rope["short_factor"];
    });
    ASSERT_TRUE(same);
    const auto tokens = ids();
    const auto first = std::span(tokens).first(32);
    const auto rows = [&](const std::string& file, int64_t context) {
      const auto loaded = load(file, {.precise = true, .context = context});
      const auto made =
          Session::make(loaded, {.context = context, .keys = KvType::kF32, .values = KvType::kF32});
      if (!made) throw std::runtime_error(made.error().message);
      return append_rows(**made, first);
    };
    const Rows expected = rows(*same, 200);
    const auto again = converted(name);
    ASSERT_TRUE(again);
    EXPECT_EQ(first_difference(rows(*again, 32), expected), "");
    EXPECT_NE(first_difference(rows(*again, 33), expected), "");
  }
}

// Dynamic scaling of the reference begins behind max_position_embeddings; no session gets there.
TEST_F(RopeGolden, DynamicScalingEndsAtTheTrainedLength) {
  const auto path = converted("llama-dynamic");
  ASSERT_TRUE(path) << path.error().message;
  const auto model = load(*path, {.context = 256});
  EXPECT_TRUE(Session::make(model, {.context = 256}));
  const auto refused = Session::make(model, {.context = 257});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("trained for"), std::string::npos);
}

TEST_F(RopeGolden, WhatCannotRunIsRefused) {
  struct Fault {
    const char* name;
    const char* part;
    std::function<void(Json*)> change;
  };
  const Fault faults[] = {
      {"granitehybrid", "has a state (Mamba)", [](Json* c) { (*c)["layer_types"][1] = "mamba"; }},
      {"granitehybrid", "experts are not known", [](Json* c) { (*c)["num_local_experts"] = 4; }},
      {"llama-yarn", "is not known", [](Json* c) { (*c)["rope_parameters"]["rope_type"] = "new"; }},
      {"llama-yarn", "beta_fast", [](Json* c) { (*c)["rope_parameters"]["beta_fast"] = 0.5; }},
      {"phi3-longrope", "is not known",
       [](Json* c) { (*c)["rope_parameters"]["rope_type"] = "linear"; }},
      {"olmo3-yarn", "whose positions are scaled",
       [](Json* c) {
         Json& rope = (*c)["rope_parameters"];
         rope["sliding_attention"] = rope["full_attention"];
       }},
  };
  for (const Fault& fault : faults) {
    const std::string message = refusal(fault.name, fault.change);
    EXPECT_NE(message.find(fault.part), std::string::npos) << fault.name << ": " << message;
  }
}

}  // namespace
}  // namespace culet::test
