// Tokens without outputs stop behind the last write to a cache or state. For a model whose last
// layers read an earlier layer's cache (Gemma 4 E2B, E4B) that saves most of a prompt's work.
//
//   * how many tokens run where, counted in the kernel of a norm;
//   * against the same equations with a write in the last layer, so that nothing stops early
//     (tests/arch/late): the same bits, of logits and of hidden values, asked for or not;
//   * a decoder without memory, where tokens stop right away.
#include "backend/executor.h"
#include "plan/compile.h"
#include "support.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <random>

namespace culet::test {
namespace {

std::string file_of(const std::string& name) { return golden("tiny/" + name); }

std::vector<Token> random_tokens(size_t count) {
  std::mt19937 random(1);
  std::vector<Token> tokens(count);
  for (Token& t : tokens) t = static_cast<Token>(random() % 512);
  return tokens;
}

// ---------------------------------------------------------------- counted

std::atomic<int64_t> norms;
decltype(kernels::Kernels::rms_norm) real_norm;

// Norms of a pass of `rows` rows, the last `wanted` of which are wanted.
int64_t norms_of(const std::string& arch_dir, int32_t rows, int32_t wanted) {
  const auto get = [](auto result) {
    if (!result) throw std::runtime_error(result.error().message);
    return *std::move(result);
  };
  const format::GgufFile file = get(format::GgufFile::open(file_of("gemma4-e/model.gguf")));
  const plan::ArchLibrary library = get(plan::ArchLibrary::open(arch_dir));
  const plan::Compiled compiled =
      get(plan::compile(library, file, {.precise = true, .fuse = false}));
  kernels::Kernels kernels{};
  EXPECT_EQ(kernels::select_kernels("scalar", &kernels), nullptr);
  real_norm = kernels.rms_norm;
  kernels.rms_norm = [](const float* x, const float* w, float eps, int64_t n, float* y) {
    ++norms;
    real_norm(x, w, eps, n, y);
  };
  base::ThreadPool pool(1);
  backend::PrepareOptions options;
  options.precise = true;
  const auto executor =
      get(backend::Executor::prepare(compiled.plan, file, kernels, pool, options));
  const auto workspace = executor->make_workspace();
  const auto caches = get(cache::CacheSet::make(compiled.plan, {}));
  const auto tokens = random_tokens(static_cast<size_t>(rows));
  std::vector<int32_t> last(static_cast<size_t>(wanted));
  std::iota(last.begin(), last.end(), rows - wanted);
  const backend::SequenceChunk sequence{caches.get(), 0, tokens, last};
  norms = 0;
  expect_ok(executor->run(*workspace, {&sequence, 1}));
  EXPECT_EQ(executor->output(*workspace, "logits").size(), static_cast<size_t>(wanted) * 512);
  return norms;
}

// 9 layers of which 3 read an earlier one's cache, 4 heads, 2 key heads, a vector a layer and
// token.
// Requirement answers.tokens-without-outputs "tokens without outputs": behind the last layer that
// writes keys, only output tokens are computed: of Gemma 4 E2B 15 layers of 35, less than a third
// of the products. Logits and hidden values have the same bits as when every token runs through;
// all tokens run where all are output tokens. What it saves is a measurement, not a test: 404
// against 118 tokens/s of prefill (medians of 6 runs in turns, best ones 647 and 173) for a file in
// the shape of E2B at half its hidden size, random Q8_0 weights, 512 tokens, against
// `tests/arch/late` (one thread of an Intel Xeon, AVX-512 VNNI, 2026-11-30; the machine was busy,
// so only the ratio says something)
TEST(OutputTokens, StopBehindTheLastKey) {
  constexpr int64_t kLayer = 1 + 4 + 2 + 2 + 4;           // input, q, k, v, behind attention
  constexpr int64_t kEvery = 9 + 5 * kLayer + 1 + 4 + 4;  // up to the keys of the sixth layer
  constexpr int64_t kOutputs =
      4 + 3 * (1 + 4 + 4) + 1;  // the rest of it, three layers, the last norm
  for (const auto& [rows, wanted] : std::vector<std::pair<int32_t, int32_t>>{
           {40, 0}, {40, 1}, {40, 7}, {40, 40}, {1, 1}, {1, 0}})
    EXPECT_EQ(norms_of("", rows, wanted), rows * kEvery + wanted * kOutputs)
        << wanted << " of " << rows << " rows are wanted";
  EXPECT_EQ(norms_of(arch_folder("late"), 40, 1), 40 * (kEvery + kOutputs - 1) + 1);
}

// ---------------------------------------------------------------- the same bits

struct Outputs {
  Rows last;            // logits and hidden row of the last token, when nothing else was asked for
  Rows logits, hidden;  // of every token
  Rows then;            // logits after some more tokens, behind a part that nobody asked about
};

std::vector<float> copy(std::span<const float> row) { return {row.begin(), row.end()}; }

Outputs outputs_of(const std::string& file, const ModelOptions& options, int64_t count) {
  const auto model = load(file, options);
  const auto tokens = random_tokens(static_cast<size_t>(count) + 5);
  const auto prompt = std::span(tokens).first(static_cast<size_t>(count));
  const auto keep = [](Rows* to) {
    return [to](int64_t, std::span<const float> row) { to->push_back(copy(row)); };
  };
  const auto append = [](const AppendItem& item) { expect_ok(append_batch({&item, 1})[0]); };
  Outputs out;
  const auto brief = session(model), full = session(model), silent = session(model);
  append({brief.get(), prompt, true, {}, keep(&out.last)});
  out.last.push_back(copy(brief->logits()));
  append({full.get(), prompt, true, keep(&out.logits), keep(&out.hidden)});
  append({silent.get(), prompt, false});
  EXPECT_TRUE(silent->logits().empty());
  out.then = append_rows(*silent, std::span(tokens).last(5));
  return out;
}

// Verifies answers.tokens-without-outputs.
TEST(OutputTokens, GiveTheBitsOfAllTokens) {
  const std::string file = file_of("gemma4-e/model-q8_0.gguf");
  for (const bool precise : {false, true}) {
    for (const int threads : {1, 3}) {
      for (const int32_t pass : {0, 16}) {  // one pass and a bit, and nineteen
        ModelOptions options{.threads = threads, .precise = precise, .ubatch_size = pass};
        const Outputs early = outputs_of(file, options, 300);
        options.arch_dir = arch_folder("late");
        const Outputs late = outputs_of(file, options, 300);
        ASSERT_EQ(early.logits.size(), 300u);
        ASSERT_EQ(early.hidden.size(), 300u);
        EXPECT_EQ(first_difference(early.logits, late.logits), "");
        EXPECT_EQ(first_difference(early.hidden, late.hidden), "");
        EXPECT_EQ(first_difference(early.last, late.last), "");
        EXPECT_EQ(first_difference(early.last, {early.hidden.back(), early.logits.back()}), "");
        EXPECT_EQ(first_difference(early.then, late.then), "");
      }
    }
  }
}

// Verifies answers.tokens-without-outputs.
TEST(OutputTokens, OfADecoderWithoutMemory) {
  ModelOptions options;
  options.arch_dir = arch_folder("memoryless");
  const Outputs out = outputs_of(file_of("llama/model-q8_0.gguf"), options, 20);
  ASSERT_EQ(out.logits.size(), 20u);
  EXPECT_EQ(first_difference(out.last, {out.hidden.back(), out.logits.back()}), "");
  const Rows whole =
      append_rows(*session(load(file_of("llama/model-q8_0.gguf"), options)), random_tokens(25));
  EXPECT_EQ(first_difference({whole.begin() + 20, whole.end()}, out.then), "");
}

}  // namespace
}  // namespace culet::test
