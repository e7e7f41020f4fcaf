// A stream equals its definition: one pass over the whole input in which every row sees, in layers
// that see everything, the first `sinks` keys and the last `window`; window keys at distance p -
// s, sink keys at distance min(p, sinks + window - 1) - s (oracle.h).
//
//   * the oracle itself against the reference's logits;
//   * the engine against the oracle, every row at first, then rows after 100 and 1,000 windows;
//   * any way to append, any number of threads, any instruction set, fused or not: the same bits;
//   * far positions: the same logits; before anything is evicted: the bits of a full context;
//   * a model whose rotation follows the length of the context has no stream.
#include "oracle.h"
#include "support.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace culet::test {
namespace {

using nlohmann::json;

constexpr double kTolerance = 1e-4;  // absolute; the models' logits have a deviation of 2
constexpr const char* kModels[] = {"llama",         "llama3-rope",  "qwen2",    "qwen3", "gemma3",
                                   "gemma3-linear", "gemma4-dense", "gemma4-e", "lfm2",  "gemma3n"};

std::string file_of(const std::string& name, const std::string& file = "model.gguf") {
  return golden("tiny/" + name + "/" + file);
}

std::vector<Token> random_tokens(int64_t count, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::vector<Token> tokens(static_cast<size_t>(count));
  for (Token& t : tokens) t = static_cast<Token>(random() % 512);
  return tokens;
}

std::shared_ptr<const Model> precise_model(const std::string& name, int threads = 1) {
  return load(file_of(name), {.threads = threads, .precise = true});
}

Oracle oracle_of(const std::string& name) { return Oracle(file_of(name)); }

SessionOptions options_of(const std::optional<StreamOptions>& stream, KvType kv = KvType::kF32) {
  SessionOptions options;
  options.keys = options.values = kv;
  options.stream = stream;
  return options;
}

std::unique_ptr<Session> session_of(std::shared_ptr<const Model> model,
                                    const SessionOptions& options) {
  auto made = Session::make(std::move(model), options);
  if (!made) throw std::runtime_error(made.error().message);
  return *std::move(made);
}

template <class A, class B>
double difference(const A& a, const B& b) {
  if (a.size() != b.size()) return INFINITY;
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(d <= largest)) largest = d;  // a NaN stays
  }
  return largest;
}

template <class A, class B>
void expect_near(const A& a, const B& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t row = 0; row < a.size(); ++row)
    ASSERT_LE(difference(a[row], b[row]), kTolerance) << what << ", row " << row;
}

std::string show(const StreamOptions& s) {
  return fmt::format("{} sinks, window {}", s.sinks, s.window);
}

class Stream : public testing::TestWithParam<const char*> {
 protected:
  std::string name() const { return GetParam(); }
};

INSTANTIATE_TEST_SUITE_P(, Stream, testing::ValuesIn(kModels), test_name);

// ---------------------------------------------------------------- the oracle

TEST_P(Stream, TheOracleIsTheReference) {
  const json expected = read_json(file_of(name(), "expected.json"));
  const DoubleRows rows = oracle_of(name()).logits(expected["tokens"].get<std::vector<Token>>());
  for (size_t i = 0; i < expected["logits"].size(); ++i) {
    const auto position = expected["positions_checked"][i].get<size_t>();
    const auto logits = expected["logits"][i].get<std::vector<double>>();
    EXPECT_LE(difference(rows.at(position), logits), kTolerance) << "position " << position;
  }
}

// Leaving out rows that the wanted ones do not depend on changes nothing; masks do change them.
TEST(Oracle, SkipsOnlyWhatDoesNotMatter) {
  const auto tokens = random_tokens(150);
  const StreamOptions stream{4, 12};
  for (const std::string name : {"llama", "gemma3"}) {
    const Oracle oracle = oracle_of(name);
    const DoubleRows all = oracle.logits(tokens, stream);
    const std::vector<int64_t> few = {3, 15, 16, 80, 149};
    const DoubleRows some = oracle.logits(tokens, few, stream);
    for (size_t i = 0; i < few.size(); ++i)
      EXPECT_EQ(some[i], all[static_cast<size_t>(few[i])]) << name << " row " << few[i];
    const DoubleRows dense = oracle.logits(tokens);
    EXPECT_LE(difference(all[15], dense[15]), 1e-9);
    EXPECT_GT(difference(all[16], dense[16]), 1e-3);
    EXPECT_GT(difference(all[149], oracle.logits(tokens, {{149}}, StreamOptions{0, 16})[0]), 1e-3);
  }
}

// ---------------------------------------------------------------- against the definition

void expect_every_row(const Oracle& oracle, const std::shared_ptr<const Model>& model,
                      const StreamOptions& stream) {
  const int64_t windows = small_tests() ? 3 : 10;
  const auto tokens = random_tokens(stream.sinks + windows * stream.window);
  const auto one = session_of(model, options_of(stream));
  expect_near(append_rows(*one, tokens), oracle.logits(tokens, stream), show(stream));
  EXPECT_EQ(one->evicted(), (windows - 1) * stream.window);
}

// Requirement memory.endless-streams "endless streams": global layers keep the first tokens and a
// window, window layers their own; equal to one masked pass over the whole input, at 10, 100 and
// 1,000 windows and at position 10^8; refused with the reason where the rotation follows the
// context
TEST_P(Stream, EveryRowOfTenWindows) {
  const Oracle oracle = oracle_of(name());
  const auto model = precise_model(name());
  for (const StreamOptions stream : {StreamOptions{0, 1}, StreamOptions{0, 12}, StreamOptions{1, 8},
                                     StreamOptions{4, 33}, StreamOptions{40, 12}})
    expect_every_row(oracle, model, stream);
}

// Layers 2 and 3 read the caches of layers 0, which has a window, and 1, which streams.
TEST(Streams, LayersThatShareACache) {
  const std::string file = file_of("llama"), folder = arch_folder("shared");
  const Oracle oracle(file, folder);
  const auto model = load(file, {.threads = 1, .precise = true, .arch_dir = folder});
  ASSERT_EQ(model->info().caches.size(), 2u);
  const auto tokens = random_tokens(60);
  expect_near(append_rows(*session_of(model, options_of({})), tokens), oracle.logits(tokens),
              "without a stream");
  for (const StreamOptions stream : {StreamOptions{0, 8}, StreamOptions{4, 12}, {33, 31}})
    expect_every_row(oracle, model, stream);
}

// Rows that are looked at, ascending: the first that evicts, some on the way, the last ones.
std::vector<int64_t> sampled_rows(const StreamOptions& stream, int64_t count) {
  std::mt19937 random(static_cast<unsigned>(count));
  std::vector<int64_t> rows = {stream.sinks + stream.window, count - 2, count - 1};
  for (int i = 0; i < 4; ++i) rows.push_back(static_cast<int64_t>(random()) % count);
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

void expect_sampled(const std::string& name, const StreamOptions& stream, int64_t windows) {
  const auto tokens = random_tokens(stream.sinks + windows * stream.window);
  const auto count = static_cast<int64_t>(tokens.size());
  const std::vector<int64_t> rows = sampled_rows(stream, count);
  const DoubleRows expected = oracle_of(name).logits(tokens, rows, stream);
  const auto one = session_of(precise_model(name), options_of(stream));
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto done = static_cast<size_t>(one->length());
    expect_ok(
        one->append(std::span(tokens).subspan(done, static_cast<size_t>(rows[i] + 1) - done)));
    EXPECT_LE(difference(one->logits(), expected[i]), kTolerance)
        << show(stream) << ", row " << rows[i] << " of " << count;
  }
}

// Verifies memory.endless-streams, reports-caches.llama.cpp#12433.
TEST_P(Stream, AHundredWindows) {
  expect_sampled(name(), {4, 33}, small_tests() ? 20 : 100);
  expect_sampled(name(), {40, 12}, small_tests() ? 20 : 100);
}

// Requirement reports-caches.koboldcpp#2112 "LostRuins/koboldcpp#2112, #2088, #2131,
// ikawrakow/ik_llama.cpp#2459: shifting with windows is refused or crashes": nothing is shifted:
// keys stay where they were rotated, in any KV type
// Verifies memory.endless-streams.
TEST_P(Stream, AThousandWindows) { expect_sampled(name(), {1, 8}, small_tests() ? 40 : 1000); }

TEST(Streams, AThousandLongerWindows) {
  expect_sampled("llama", {4, 33}, small_tests() ? 30 : 1000);
  expect_sampled("gemma3", {40, 12}, small_tests() ? 30 : 1000);
}

// More sink keys than one part of the attention's sum has.
// Requirement reports-caches.llama.cpp#3440 "ggml-org/llama.cpp#3440,
// NousResearch/hermes-agent#43900: half the context is thrown away, the system prompt with it": one
// token goes for each that comes; sinks, or the whole prompt, stay
TEST(Streams, AWholePreambleStays) {
  expect_sampled("llama", {small_tests() ? 300 : 1030, 40}, small_tests() ? 2 : 60);
}

// ---------------------------------------------------------------- the same bits

std::vector<int64_t> chunks_of(int64_t size, size_t tokens) {
  std::vector<int64_t> chunks;
  for (auto left = static_cast<int64_t>(tokens); left > 0; left -= chunks.back())
    chunks.push_back(std::min(size, left));
  return chunks;
}

struct BitsCase {
  std::string file;
  bool precise;
  StreamOptions stream;
  KvType kv = KvType::kF32;
  int64_t start = 0;
  int64_t compared = INT64_MAX;  // last rows; those before are appended at once
  bool brief = false;            // few windows, one by one and at once alone
};

// Each number of threads with each way to cut; instruction sets and fusion in turn.
void expect_same_bits(const BitsCase& c) {
  const int64_t windows = small_tests() || c.brief ? 3 : 10;
  const auto tokens = random_tokens(c.stream.sinks + windows * c.stream.window, 2);
  const auto count = static_cast<int64_t>(tokens.size());
  const auto compared = static_cast<size_t>(std::min(count, c.compared));
  const auto run = [&](const ModelOptions& options, int64_t chunk) {
    SessionOptions memory = options_of(c.stream, c.kv);
    memory.start_position = c.start;
    const auto one = session_of(load(c.file, options), memory);
    expect_ok(one->append(std::span(tokens).first(tokens.size() - compared)));
    return append_rows(*one, std::span(tokens).last(compared), chunks_of(chunk, compared));
  };
  const Rows expected =
      run({.threads = 1, .precise = c.precise, .fuse = false, .isa = "scalar"}, 1);
  const std::vector<std::string> sets = usable_sets();
  std::vector<int64_t> chunks = {1, count};
  if (!c.brief) chunks.insert(chunks.end(), {7, 64, 3 * c.stream.window});
  size_t turn = 0;
  for (const int threads : {1, 2, 8}) {
    for (const int64_t chunk : chunks) {
      ModelOptions options{.threads = threads, .precise = c.precise};
      options.fuse = turn % 2 == 0;
      options.isa = sets[turn % sets.size()];
      ++turn;
      ASSERT_EQ(first_difference(expected, run(options, chunk)), "")
          << c.file << ", " << show(c.stream) << ": chunks of " << chunk << ", " << threads
          << " threads, " << options.isa << (options.fuse ? ", fused" : ", unfused");
    }
  }
}

TEST(SameBits, PreciseStreams) {
  expect_same_bits({file_of("llama"), true, {4, 12}});
  expect_same_bits({file_of("gemma3"), true, {40, 8}});
  expect_same_bits({file_of("qwen2"), true, {0, 33}, KvType::kF16});
  expect_same_bits({file_of("lfm2"), true, {4, 12}});
}

// Verifies reports-caches.koboldcpp#2112.
TEST(SameBits, Int8Streams) {
  expect_same_bits({file_of("llama", "model-q8_0.gguf"), false, {1, 33}, KvType::kF16});
  expect_same_bits({file_of("gemma3", "model-q8_0.gguf"), false, {4, 12}, KvType::kQ8});
  expect_same_bits({file_of("gemma4-e", "model-q8_0.gguf"), false, {4, 12}, KvType::kF16});
}

// Parts of the attention's sum end 768 rows after this start.
TEST(SameBits, StreamsFarAway) {
  expect_same_bits({file_of("qwen3"), true, {4, 12}, KvType::kF32, 100'000'000});
}

// So many keys that threads share the parts of one row's sum.
TEST(SameBits, SinkKeysInSeveralParts) {
  const int64_t compared = small_tests() ? 3 : 30;
  expect_same_bits({file_of("llama"), true, {1030, 40}, KvType::kF16, 0, compared, true});
}

// ---------------------------------------------------------------- far positions

// Verifies memory.endless-streams.
TEST_P(Stream, FarPositionsGiveTheSameLogits) {
  const auto model = precise_model(name());
  for (const std::optional<StreamOptions>& stream :
       {std::optional<StreamOptions>(), std::optional(StreamOptions{4, 12})}) {
    const auto tokens = random_tokens(small_tests() ? 60 : 130, 3);
    const Rows near = append_rows(*session_of(model, options_of(stream)), tokens);
    for (const int64_t start : {int64_t{100'000'000}, int64_t{1'000'000'000'000}}) {
      SessionOptions far = options_of(stream);
      far.start_position = start;
      expect_near(append_rows(*session_of(model, far), tokens), near,
                  fmt::format("start {}, {}", start, stream ? "streaming" : "full"));
    }
  }
}

// ---------------------------------------------------------------- until something is evicted

void expect_full_until_evicted(const std::string& name, const StreamOptions& stream, KvType kv,
                               size_t first) {
  const auto model = precise_model(name, 2);
  const auto seen = static_cast<size_t>(stream.sinks + stream.window);
  const auto tokens = random_tokens(static_cast<int64_t>(seen) + 3, 4);
  const auto rows = [&](const SessionOptions& options) {
    const auto one = session_of(model, options);
    expect_ok(one->append(std::span(tokens).first(first)));
    return append_rows(*one, std::span(tokens).subspan(first));
  };
  SessionOptions dense = options_of({}, kv);
  dense.context = static_cast<int64_t>(tokens.size());
  const Rows full = rows(dense), streamed = rows(options_of(stream, kv));
  const std::string what = name + ": " + show(stream);
  const auto same = static_cast<std::ptrdiff_t>(seen - first);
  EXPECT_EQ(first_difference({full.begin(), full.begin() + same},
                             {streamed.begin(), streamed.begin() + same}),
            "")
      << what;
  for (size_t i = seen - first; i < full.size(); ++i)
    EXPECT_NE(full[i], streamed[i]) << what << ", row " << first + i;
}

TEST_P(Stream, IsAFullContextUntilSomethingIsEvicted) {
  for (const StreamOptions stream :
       {StreamOptions{0, 8}, StreamOptions{1, 12}, StreamOptions{4, 33}, StreamOptions{40, 70}}) {
    expect_full_until_evicted(name(), stream, KvType::kF32, 0);
    expect_full_until_evicted(name(), stream, KvType::kF16, 3);
  }
}

// Sink keys in one part of the attention's sum, the window in others.
TEST(Streams, AreAFullContextAcrossPartsOfTheSum) {
  for (const std::string name : {"llama", "gemma3"}) {
    expect_full_until_evicted(name, {40, 1070}, KvType::kF16, 1000);
    expect_full_until_evicted(name, {1030, 40}, KvType::kF16, 1000);
  }
}

// ---------------------------------------------------------------- refused

// Verifies memory.endless-streams.
TEST(Streams, AreRefusedWhereTheRotationFollowsTheContext) {
  const auto model = precise_model("phi3-longrope");
  EXPECT_TRUE(Session::make(model, options_of({})));
  const auto made = Session::make(model, options_of(StreamOptions{4, 12}));
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::kUnsupported);
  const std::string& why = made.error().message;
  EXPECT_NE(why.find("phi3-longrope/model.gguf cannot follow an endless stream: the rotary factors "
                     "depend on the length of the context ("),
            std::string::npos)
      << why;
  EXPECT_NE(why.find("llama.arch:"), std::string::npos) << why;
  EXPECT_NE(why.find(": let long "), std::string::npos) << why;
}

}  // namespace
}  // namespace culet::test
