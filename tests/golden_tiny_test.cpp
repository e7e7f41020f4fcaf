// Tiny random models against exact logits, and every way of running one against every other.
//
//   * float activations and cache: the reference's logits within its tolerance, its greedy tokens
//     exactly (tests/golden/tiny/SOURCE.md says how they were made);
//   * any way to cut a prompt into passes and appends, any number of threads, any instruction set,
//     fused or not: the same bits.
#include "support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <random>
#include <unistd.h>

namespace culet::test {
namespace {

using nlohmann::json;

ModelOptions precise_options() { return {.threads = 2, .precise = true}; }

std::string file_of(const std::string& name) { return golden("tiny/" + name); }

// ---------------------------------------------------------------- against the reference

class Reference : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string folder = std::string(GetParam());
    expected_ = read_json(file_of(folder + "/expected.json"));
    tokens_ = expected_["tokens"].get<std::vector<Token>>();
    tolerance_ = expected_["tolerance"]["logits_abs"].get<double>();
    ModelOptions options = precise_options();
    options.context = 256;  // phi3-longrope was computed with the factors of short contexts
    model_ = load(file_of(folder + "/model.gguf"), options);
  }

  json expected_;
  std::vector<Token> tokens_;
  double tolerance_ = 0;
  std::shared_ptr<const Model> model_;
};

// Verifies language.windows-layer-by-layer, arithmetic.experts, language.rotation.
TEST_P(Reference, LogitsAndNll) {
  const auto one = session(model_, KvType::kF32);
  const Rows rows = append_rows(*one, tokens_);
  ASSERT_EQ(rows.size(), tokens_.size());
  const auto& positions = expected_["positions_checked"];
  for (size_t i = 0; i < positions.size(); ++i) {
    const size_t position = positions[i].get<size_t>();
    EXPECT_LE(largest_difference(rows[position], expected_["logits"][i]), tolerance_)
        << "position " << position;
  }
  for (size_t i = 0; i + 1 < tokens_.size(); ++i) {
    EXPECT_NEAR(nll(*model_, rows[i], tokens_[i + 1]), expected_["nll"][i].get<double>(),
                expected_["tolerance"]["nll_abs"].get<double>())
        << "position " << i;
  }
}

TEST_P(Reference, HalfCacheStaysWithinItsBound) {
  const auto half = session(model_, KvType::kF16);
  const Rows rows = append_rows(*half, tokens_);
  // gemma3n's reference was not run with such a cache: the least of the others' bounds, about.
  const double bound = expected_["tolerance"].value("f16_cache_logits_abs", 0.02);
  const auto& positions = expected_["positions_checked"];
  for (size_t i = 0; i < positions.size(); ++i) {
    EXPECT_LE(largest_difference(rows[positions[i].get<size_t>()], expected_["logits"][i]), bound);
  }
}

TEST_P(Reference, GreedyTokens) {
  const auto one = session(model_, KvType::kF32);
  const auto prompt = expected_["greedy"]["prompt_length"].get<size_t>();
  expect_ok(one->append(std::span(tokens_).first(prompt)));
  const auto ids = expected_["greedy"]["ids"].get<std::vector<Token>>();
  for (size_t step = 0; step < ids.size(); ++step) {
    ASSERT_EQ(best(one->logits()), ids[step]) << "step " << step;
    expect_ok(one->append({&ids[step], 1}));
  }
}

// Requirement reports-bits.llama.cpp#28368 "ggml-org/llama.cpp#28368: a warm cache changes the
// logits of the same context": the same context gives the same bits, however it was cut into passes
// and batches
TEST_P(Reference, SplitPrefillIsBitEqual) {
  const Rows whole = append_rows(*session(model_, KvType::kF32), tokens_);
  const auto chunks = expected_["split_prefill"]["chunks"].get<std::vector<int64_t>>();
  const Rows split = append_rows(*session(model_, KvType::kF32), tokens_, chunks);
  EXPECT_EQ(first_difference(whole, split), "");
}

// Requirement reports-bits.llama.cpp#38 "am17an/llama.cpp#38 (ggml-org/llama.cpp#28527),
// ggml-org/llama.cpp#7594, #19981: a greedy request repeated after reuse of the cache differs": the
// same context, the same logits, whatever was there before
// Verifies memory.kv-isolation.
TEST_P(Reference, RewindForgets) {
  const auto& rewind = expected_["rewind"];
  const auto keep = rewind["keep"].get<int64_t>();
  const auto then = rewind["then"].get<std::vector<Token>>();
  const auto one = session(model_, KvType::kF32);
  append_rows(*one, tokens_);
  const bool cut = one->rewind(keep);
  EXPECT_EQ(cut, GetParam() != std::string("lfm2"));  // a state cannot go back: says so
  if (!cut) {
    EXPECT_EQ(one->length(), static_cast<int64_t>(tokens_.size()));
    one->clear();
    expect_ok(one->append(std::span(tokens_).first(static_cast<size_t>(keep))));
  } else {
    EXPECT_TRUE(one->logits().empty());
  }
  EXPECT_EQ(static_cast<int64_t>(one->tokens().size()), keep);
  const Rows rows = append_rows(*one, then);
  for (size_t i = 0; i < rewind["positions"].size(); ++i) {
    const auto row = static_cast<size_t>(rewind["positions"][i].get<int64_t>() - keep);
    EXPECT_LE(largest_difference(rows.at(row), rewind["logits"][i]), tolerance_);
  }
  std::vector<Token> straight(tokens_.begin(), tokens_.begin() + keep);
  straight.insert(straight.end(), then.begin(), then.end());
  Rows fresh = append_rows(*session(model_, KvType::kF32), straight);
  fresh.erase(fresh.begin(), fresh.begin() + keep);
  EXPECT_EQ(first_difference(rows, fresh), "");
}

// Requirement memory.kv-isolation "KV isolation": a cleared session is a new one, and a rewound one
// a shorter one, bit for bit
// Verifies reports-bits.llama.cpp#38.
TEST_P(Reference, ClearIsANewSession) {
  const auto one = session(model_, KvType::kF32);
  const Rows first = append_rows(*one, tokens_);
  one->clear();
  EXPECT_TRUE(one->tokens().empty());
  EXPECT_TRUE(one->logits().empty());
  EXPECT_EQ(first_difference(append_rows(*one, tokens_), first), "");
}

INSTANTIATE_TEST_SUITE_P(Tiny, Reference,
                         testing::Values("llama", "llama3-rope", "qwen2", "qwen3", "gemma3",
                                         "gemma3-linear", "gemma4-dense", "gemma4-e", "lfm2",
                                         "gemma", "gemma2", "olmo2", "olmo3", "granite", "smollm3",
                                         "phi3", "phi3-longrope", "phi3-window", "glm4", "qwen3moe",
                                         "gemma4-moe", "mixtral", "gemma3n"),
                         test_name);

TEST(Context, DecidesTheRotationOfModelsThatFollowIt) {
  const std::string file = file_of("phi3-longrope/model.gguf");
  const auto tokens =
      read_json(file_of("phi3-longrope/expected.json"))["tokens"].get<std::vector<Token>>();
  ModelOptions options = precise_options();
  options.context = 256;
  const auto brief = load(file, options);
  options.context = 257;
  const auto longer = load(file, options);
  EXPECT_EQ(session(brief)->context(), 256);
  EXPECT_NE(
      first_difference(append_rows(*session(brief), tokens), append_rows(*session(longer), tokens)),
      "");
  SessionOptions wide;
  wide.context = 512;
  const auto refused = Session::make(brief, wide);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("a context of 512 tokens is more than the 256 that "),
            std::string::npos)
      << refused.error().message;
  // What was saved with one rotation is no memory for the other.
  const std::string saved =
      (std::filesystem::temp_directory_path() / ("culet-rotation-" + std::to_string(getpid())))
          .string();
  const auto one = session(brief);
  expect_ok(one->append(tokens));
  expect_ok(one->save(saved));
  expect_ok(session(brief)->restore(saved));
  EXPECT_FALSE(session(longer)->restore(saved));
  std::filesystem::remove(saved);
}

// ---------------------------------------------------------------- int8 against the reference

TEST(Int8, Q8CopiesStayNearTheirReference) {
  for (const std::string name : {"llama", "qwen2", "gemma3", "gemma4-e"}) {
    const json expected = read_json(file_of(name + "/expected-q8_0.json"));
    const auto tokens = expected["tokens"].get<std::vector<Token>>();
    const std::string file = file_of(name + "/model-q8_0.gguf");
    const Rows fast = rows_of(file, {.threads = 2}, KvType::kF16, tokens);
    const Rows precise = rows_of(file, precise_options(), KvType::kF32, tokens);
    const auto& positions = expected["positions_checked"];
    for (size_t i = 0; i < positions.size(); ++i) {
      const auto at = positions[i].get<size_t>();
      EXPECT_LE(largest_difference(fast[at], expected["logits"][i]),
                expected["tolerance"]["logits_abs_8bit_activations"].get<double>())
          << name << " position " << at;
      EXPECT_LE(largest_difference(precise[at], expected["logits"][i]),
                expected["tolerance"]["logits_abs_f32_activations"].get<double>())
          << name << " position " << at;
    }
  }
}

// Verifies arithmetic.products-of-quantized-rows.
TEST(Int8, EveryTensorTypeStaysNearItsReference) {
  const json all = read_json(file_of("llama-quant/dequant.json"));
  const auto tokens = all["tokens"].get<std::vector<Token>>();
  for (const auto& [type, expected] : all["types"].items()) {
    const std::string file = file_of("llama-quant/" + expected["file"].get<std::string>());
    const Rows fast = rows_of(file, {.threads = 2}, KvType::kF16, tokens);
    const Rows precise = rows_of(file, precise_options(), KvType::kF32, tokens);
    for (size_t i = 0; i < expected["positions"].size(); ++i) {
      const auto at = expected["positions"][i].get<size_t>();
      EXPECT_LE(largest_difference(fast[at], expected["logits"][i]),
                expected["tolerance"]["logits_abs_8bit_activations"].get<double>())
          << type << " position " << at;
      EXPECT_LE(largest_difference(precise[at], expected["logits"][i]),
                expected["tolerance"]["logits_abs_f32_activations"].get<double>())
          << type << " position " << at;
    }
  }
}

// ---------------------------------------------------------------- the same bits

// ---------------------------------------------------------------- tokens that may not come

TEST(Suppressed, TokensNeverComeAndTheOthersAreAsTheyWere) {
  const json expected = read_json(file_of("gemma4-dense/expected.json"));
  const auto tokens = expected["tokens"].get<std::vector<Token>>();
  const auto free = load(file_of("gemma4-dense/model.gguf"), precise_options());
  const Rows rows = append_rows(*session(free), tokens);
  const Token banned[] = {best(rows.back()), 7};
  const std::string path =
      (std::filesystem::temp_directory_path() / ("culet-suppressed-" + std::to_string(getpid())))
          .string();
  add_metadata(file_of("gemma4-dense/model.gguf"), path, "tokenizer.ggml.suppress_tokens",
               {banned[0], banned[1]});
  const auto model = load(path, precise_options());
  std::filesystem::remove(path);
  const auto one = session(model);
  Rows without = append_rows(*one, tokens);
  ASSERT_EQ(without.size(), rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    for (const Token id : banned) {
      EXPECT_EQ(without[i][static_cast<size_t>(id)], -std::numeric_limits<float>::infinity());
      const auto probability = logprob(*model, without[i], id);
      ASSERT_TRUE(probability) << probability.error().message;
      EXPECT_EQ(*probability, -std::numeric_limits<double>::infinity());
    }
    const auto all = distribution(*model, without[i], 512);
    ASSERT_TRUE(all) << all.error().message;
    EXPECT_TRUE(all->entropy > 0 && std::isfinite(all->entropy));
    EXPECT_EQ(all->top.size(), 510u);
    double sum = 0;
    for (const TokenLogprob& c : all->top) sum += std::exp(static_cast<double>(c.logprob));
    EXPECT_NEAR(sum, 1, 1e-5);
    for (const Token id : banned)
      without[i][static_cast<size_t>(id)] = rows[i][static_cast<size_t>(id)];
  }
  EXPECT_EQ(first_difference(rows, without), "");
  EXPECT_NE(best(one->logits()), banned[0]);
}

// Longer than a block, a window and a pass, so that every border is crossed somewhere.
std::vector<Token> long_tokens(const json& expected) {
  const auto once = expected["tokens"].get<std::vector<Token>>();
  std::vector<Token> tokens;
  for (int i = 0; i < 3; ++i) tokens.insert(tokens.end(), once.begin(), once.end());
  return tokens;
}

std::vector<int64_t> random_chunks(size_t tokens, std::mt19937* random) {
  std::vector<int64_t> chunks;
  for (auto left = static_cast<int64_t>(tokens); left > 0; left -= chunks.back()) {
    const int64_t most = std::min<int64_t>(left, (*random)() % 3 == 0 ? 70 : 9);
    chunks.push_back(1 + static_cast<int64_t>((*random)()) % most);
  }
  return chunks;
}

struct Case {
  std::string file;
  std::vector<Token> tokens;
};

std::vector<Case> cases() {
  std::vector<Case> list;
  for (const std::string name : {"llama/model-q8_0", "qwen2/model-q8_0", "gemma3/model-q8_0",
                                 "gemma4-e/model-q8_0", "gemma4-dense/model", "lfm2/model",
                                 "qwen3moe/model", "gemma4-moe/model", "gemma3n/model"}) {
    const std::string folder = name.substr(0, name.find('/'));
    list.push_back(
        {file_of(name + ".gguf"), long_tokens(read_json(file_of(folder + "/expected.json")))});
  }
  const json all = read_json(file_of("llama-quant/dequant.json"));
  for (const auto& [type, expected] : all["types"].items()) {
    list.push_back(
        {file_of("llama-quant/" + expected["file"].get<std::string>()), long_tokens(all)});
  }
  return list;
}

// Families whose own operations need no more than to be the same on every instruction set.
std::vector<Case> more_cases() {
  std::vector<Case> list;
  for (const std::string name : {"gemma", "gemma2", "olmo2", "olmo3", "granite", "smollm3", "phi3",
                                 "phi3-longrope", "phi3-window", "glm4"}) {
    list.push_back(
        {file_of(name + "/model.gguf"),
         read_json(file_of(name + "/expected.json"))["tokens"].get<std::vector<Token>>()});
  }
  return list;
}

class SameBits : public testing::TestWithParam<bool> {
 protected:
  // The plainest way: scalar, one thread, unfused.
  ModelOptions plain() const {
    return {.threads = 1, .precise = GetParam(), .fuse = false, .isa = "scalar"};
  }
  void expect_same(const Case& c, const ModelOptions& options, const std::string& what) {
    const Rows rows = rows_of(c.file, options, KvType::kF16, c.tokens);
    EXPECT_EQ(first_difference(expected_, rows), "") << c.file << ": " << what;
  }
  Rows expected_;
};

// Requirement arithmetic.instruction-sets "instruction sets": chosen at run time, can be forced,
// shown by `culet show`; every one gives the same bits
TEST_P(SameBits, InstructionSetsAndFusion) {
  std::vector<Case> all = cases();
  for (Case& c : more_cases()) all.push_back(std::move(c));
  for (const Case& c : all) {
    expected_ = rows_of(c.file, plain(), KvType::kF16, c.tokens);
    for (const std::string& isa : usable_sets()) {
      ModelOptions options = plain();
      options.isa = isa;
      if (isa != "scalar") expect_same(c, options, isa + ", unfused");
      options.fuse = true;
      expect_same(c, options, isa + ", fused");
      options.repack = false;
      expect_same(c, options, isa + ", fused, not repacked");
    }
  }
}

// Llama's equations with windows and shared caches: tests/arch/shared.
TEST_P(SameBits, SharedLayers) {
  const std::string file = file_of("llama/model-q8_0.gguf");
  const auto tokens = long_tokens(read_json(file_of("llama/expected.json")));
  ModelOptions options = plain();
  options.arch_dir = arch_folder("shared");
  expected_ = rows_of(file, options, KvType::kF16, tokens);
  EXPECT_NE(first_difference(expected_, rows_of(file, plain(), KvType::kF16, tokens)), "");
  for (const std::string& isa : usable_sets()) {
    for (const bool fuse : {false, true}) {
      for (const int rows : {1, 19, 256}) {
        ModelOptions other = options;
        other.threads = 3, other.isa = isa, other.fuse = fuse, other.ubatch_size = rows;
        EXPECT_EQ(first_difference(expected_, rows_of(file, other, KvType::kF16, tokens)), "")
            << isa << (fuse ? ", fused" : "") << ", passes of " << rows;
      }
    }
  }
}

// Verifies files.mapping.
TEST_P(SameBits, WeightsThatStayMapped) {
  for (const Case& c : cases()) {
    expected_ = rows_of(c.file, plain(), KvType::kF16, c.tokens);
    for (const int threads : {1, 3}) {
      for (const bool fuse : {false, true}) {
        const ModelOptions options{
            .threads = threads, .precise = GetParam(), .fuse = fuse, .repack = false};
        const auto model = load(c.file, options);
        EXPECT_EQ(model->info().packed_bytes, 0u);
        EXPECT_EQ(first_difference(expected_, append_rows(*session(model), c.tokens)), "")
            << c.file;
      }
    }
  }
}

// The reference's list names every type; a file that goes missing must not go unnoticed.
TEST(Files, EveryTypeIsThere) {
  const json all = read_json(file_of("llama-quant/dequant.json"));
  std::vector<std::string> types;
  for (const auto& [type, expected] : all["types"].items()) types.push_back(type);
  for (const std::string type : {"F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K",
                                 "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS"}) {
    EXPECT_EQ(std::count(types.begin(), types.end(), type), 1) << type;
  }
}

// Requirement reports-loading.xllama#58 "gianlucamazza/xllama#58: a load bound by the repack":
// packed by all threads of the pool, with the same bits for any number of them. How fast is a
// measurement: `culet bench` shows the seconds of a load
// Verifies reports-bits.llama.cpp#28368.
TEST_P(SameBits, PassesAndThreads) {
  for (const Case& c : cases()) {
    expected_ = rows_of(c.file, plain(), KvType::kF16, c.tokens);
    for (const int rows : {1, 7, 32, 256}) {
      ModelOptions options{.threads = 2, .precise = GetParam()};
      options.ubatch_size = rows;
      expect_same(c, options, "passes of " + std::to_string(rows) + " rows");
    }
    for (const int threads : {1, 4}) {
      expect_same(c, {.threads = threads, .precise = GetParam()},
                  std::to_string(threads) + " threads");
    }
  }
}

// Verifies reports-bits.llama.cpp#28368.
TEST_P(SameBits, AppendsInRandomChunks) {
  std::mt19937 random(7);
  for (const Case& c : cases()) {
    const auto model = load(c.file, {.threads = 2, .precise = GetParam()});
    const Rows whole = append_rows(*session(model), c.tokens);
    for (int i = 0; i < 3; ++i) {
      const auto chunks = random_chunks(c.tokens.size(), &random);
      EXPECT_EQ(first_difference(whole, append_rows(*session(model), c.tokens, chunks)), "")
          << c.file << ": " << testing::PrintToString(chunks);
    }
    // Rows whose logits nobody wants are left out of the last layers; that must not matter either.
    const auto last_only = session(model);
    expect_ok(last_only->append(c.tokens));
    const auto last = last_only->logits();
    EXPECT_EQ(first_difference({whole.back()}, {{last.begin(), last.end()}}), "") << c.file;
  }
}

std::string arithmetic_name(const testing::TestParamInfo<bool>& param) {
  return param.param ? "Precise" : "Int8";
}

INSTANTIATE_TEST_SUITE_P(, SameBits, testing::Bool(), arithmetic_name);

}  // namespace
}  // namespace culet::test
