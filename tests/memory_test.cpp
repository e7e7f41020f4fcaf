// Same context, same bits, whatever led to it: random programs over four sessions, each result
// compared with the same tokens computed cold, and the model's account with what the sessions hold.
//
// CULET_PROGRAMS=10000 makes it a soak (the default runs with make test; fewer under sanitizers,
// which take their time). A failing program prints its number; CULET_FIRST_PROGRAM starts there.
#include "culet/culet.h"
#include "engine/session_impl.h"
#include "format/gguf.h"
#include "support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <unistd.h>

namespace culet::test {
namespace {

using Tokens = std::vector<Token>;

// FILE, or FILE@FOLDER: read by the architecture files of tests/arch/FOLDER.
const char* const kModels[] = {
    "tiny/llama/model-q8_0.gguf",  "tiny/qwen2/model-q8_0.gguf",
    "tiny/gemma3/model-q8_0.gguf", "tiny/gemma4-e/model-q8_0.gguf",
    "tiny/lfm2/model.gguf",        "tiny/llama/model-q8_0.gguf@shared",
    "tiny/qwen3moe/model.gguf",    "tiny/gemma4-moe/model.gguf",
    "tiny/gemma3n/model.gguf",
};

constexpr int64_t kPrograms = 500, kFewPrograms = 20;

int64_t from_environment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoll(text) : otherwise;
}

std::shared_ptr<const Model> model_of(const std::string& file, bool precise = false) {
  static std::map<std::pair<std::string, bool>, std::shared_ptr<const Model>> loaded;
  auto& model = loaded[{file, precise}];
  if (!model) {
    ModelOptions options;
    options.precise = precise;
    options.threads = 2;
    const size_t at = file.find('@');
    if (at != std::string::npos) options.arch_dir = arch_folder(file.substr(at + 1));
    model = load(golden(file.substr(0, at)), options);
  }
  return model;
}

std::unique_ptr<Session> make(const std::shared_ptr<const Model>& model,
                              const SessionOptions& options) {
  auto made = Session::make(model, options);
  if (!made) throw std::runtime_error(made.error().message);
  return *std::move(made);
}

uint64_t cache_bytes(const Session& session) {
  return session.impl().timeline().caches.held_bytes().all();
}

std::vector<float> copy(std::span<const float> logits) { return {logits.begin(), logits.end()}; }

// A file name of this process that is removed in the end.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& name)
      : path_(std::filesystem::temp_directory_path() /
              ("culet-memory-test-" + std::to_string(getpid()) + "-" + name)) {}
  ~TemporaryFile() { std::filesystem::remove(path_); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

// ---------------------------------------------------------------- random programs

class Program {
 public:
  explicit Program(uint32_t seed) : rng_(seed), file_("program") {
    model_ = model_of(kModels[seed % std::size(kModels)], pick(4) == 0);
    options_ = random_options();
    for (Line& line : lines_) line.session = make(model_, options_);
  }

  void run(int steps) {
    for (int step = 0; step < steps && !::testing::Test::HasFailure(); ++step) {
      Line& line = lines_[pick(4)];
      switch (pick(12)) {
        case 0:
        case 1:
        case 2:
          append(&line);
          break;
        case 3:
          append_to_several();
          break;
        case 4:
          rewind(&line);
          break;
        case 5:
          fork(&line, lines_[pick(4)]);
          break;
        case 6:
          assign(&line, lines_[pick(4)]);
          break;
        case 7:
          set_tokens(&line);
          break;
        case 8:
          save(line);
          break;
        case 9:
          restore(&line);
          break;
        case 10:
          fail(&line);
          break;
        default:
          if (pick(3) == 0) clear(&line);
      }
      check(line);
      check_account();
      check_rewind_limit(line);
    }
    for (const Line& line : lines_) check(line);
  }

  std::string description() const {
    std::string text = model_->info().path + " context " + std::to_string(options_.context);
    if (options_.stream) {
      text += " stream " + std::to_string(options_.stream->sinks) + " " +
              std::to_string(options_.stream->window);
    }
    return text;
  }

 private:
  struct Line {
    std::unique_ptr<Session> session;
    Tokens tokens;        // what it must hold
    bool logits = false;  // whether it must have some
  };

  size_t pick(size_t n) { return static_cast<size_t>(rng_() % n); }

  SessionOptions random_options() {
    const KvType types[] = {KvType::kF16, KvType::kF16, KvType::kF32, KvType::kBf16, KvType::kQ8};
    SessionOptions options;
    options.keys = types[pick(5)];
    options.values = types[pick(5)];
    if (pick(3) == 0) options.window_types = {types[pick(5)], types[pick(5)]};
    options.context = 160;
    if (pick(2) == 0) {
      options.context = 0;
      options.stream = StreamOptions{static_cast<int64_t>(pick(3) == 0 ? pick(50) : pick(5)),
                                     static_cast<int64_t>(1 + pick(60))};
      if (pick(4) == 0) options.start_position = 32 * static_cast<int64_t>(pick(100000));
    }
    return options;
  }

  Tokens some(size_t most) {
    Tokens tokens(1 + pick(most));
    for (Token& token : tokens) token = static_cast<Token>(5 + pick(120));
    return tokens;
  }
  Tokens random_chunk() {
    const size_t most[] = {1, 1, 3, 20, 40, 90};
    return some(most[pick(6)]);
  }
  size_t room(const Line& line) const {
    return options_.stream ? 200 - std::min<size_t>(200, line.tokens.size())
                           : static_cast<size_t>(options_.context) - line.tokens.size();
  }
  void append_checked(Line* line, const Tokens& tokens) {
    line->tokens.insert(line->tokens.end(), tokens.begin(), tokens.end());
    line->logits = line->logits || !tokens.empty();
  }

  void append(Line* line) {
    Tokens tokens = random_chunk();
    tokens.resize(std::min(tokens.size(), room(*line)));
    if (pick(3) == 0) {
      int64_t next = static_cast<int64_t>(line->tokens.size());
      expect_ok(line->session->append_each(
          tokens, [&](int64_t index, std::span<const float>) { EXPECT_EQ(index, next++); }));
      EXPECT_EQ(next, static_cast<int64_t>(line->tokens.size() + tokens.size()));
    } else {
      expect_ok(line->session->append(tokens));
    }
    append_checked(line, tokens);
  }

  void append_to_several() {
    std::vector<Tokens> tokens(4);
    std::vector<AppendItem> items;
    std::vector<size_t> which;
    for (size_t i = 0; i < 4; ++i) {
      if (pick(3) == 0) continue;
      tokens[i] = random_chunk();
      tokens[i].resize(std::min(tokens[i].size(), room(lines_[i])));
      AppendItem item{lines_[i].session.get(), tokens[i]};
      if (pick(4) == 0) item.on_logits = [](int64_t, std::span<const float>) {};
      item.logits = item.on_logits || pick(3) > 0;
      items.push_back(item);
      which.push_back(i);
    }
    const auto results = append_batch(items);
    for (size_t k = 0; k < items.size(); ++k) {
      expect_ok(results[k]);
      append_checked(&lines_[which[k]], tokens[which[k]]);
      if (!tokens[which[k]].empty()) lines_[which[k]].logits = items[k].logits;
    }
  }

  void rewind(Line* line) {
    const size_t to =
        line->tokens.size() - std::min(pick(pick(2) == 0 ? 8 : 200), line->tokens.size());
    const bool same = to == line->tokens.size();
    if (!line->session->rewind(static_cast<int64_t>(to))) {
      EXPECT_FALSE(same);
      return;
    }
    line->tokens.resize(to);
    line->logits = line->logits && same;
  }

  void fork(Line* line, const Line& from) {
    Line made{from.session->fork(), from.tokens, from.logits};
    *line = std::move(made);
  }

  void assign(Line* line, const Line& from) {
    expect_ok(line->session->assign(*from.session));
    line->tokens = Tokens(from.tokens);
    line->logits = from.logits;
  }

  void set_tokens(Line* line) {
    Tokens target(line->tokens.begin(),
                  line->tokens.end() - static_cast<std::ptrdiff_t>(std::min(
                                           pick(2) == 0 ? 0 : pick(60), line->tokens.size())));
    const size_t common = target.size();
    const Tokens more = pick(3) == 0 ? Tokens() : some(30);
    target.insert(target.end(), more.begin(), more.end());
    if (!options_.stream)
      target.resize(std::min(target.size(), static_cast<size_t>(options_.context)));
    const auto set = line->session->set_tokens(target);
    ASSERT_TRUE(set) << set.error().message;
    EXPECT_EQ(set->reused + set->evaluated, static_cast<int64_t>(target.size()));
    if (common == line->tokens.size() && line->logits) {
      EXPECT_EQ(set->reused, static_cast<int64_t>(std::min(common, target.size())));
    }
    line->tokens = target;
    line->logits = !target.empty();
  }

  void save(const Line& line) {
    expect_ok(line.session->save(file_.path()));
    auto bytes = line.session->snapshot();
    ASSERT_TRUE(bytes);
    saved_bytes_ = *std::move(bytes);
    saved_ = true;
    saved_tokens_ = line.tokens;
    saved_logits_ = line.logits;
  }

  void restore(Line* line) {
    if (!saved_) return;
    expect_ok(pick(2) == 0 ? line->session->restore(file_.path())
                           : line->session->restore(saved_bytes_));
    line->tokens = saved_tokens_;
    line->logits = saved_logits_;
  }

  // What fails or is stopped leaves everything as it was.
  void fail(Line* line) {
    if (pick(2) == 0) {
      const Tokens tokens = some(90);
      const auto stopped = line->session->append(tokens, [](const Progress&) { return false; });
      ASSERT_FALSE(stopped);
      if (tokens.size() > room(*line) && !options_.stream)
        EXPECT_EQ(stopped.error().code, ErrorCode::kExhausted);
      else
        EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
    } else {
      EXPECT_FALSE(line->session->append(Tokens{5, 6, 1 << 20}));
      EXPECT_FALSE(line->session->restore("/nowhere/at/all"));
    }
  }

  void clear(Line* line) {
    line->session->clear();
    line->tokens.clear();
    line->logits = false;
  }

  void check(const Line& line) {
    const auto tokens = line.session->tokens();
    ASSERT_EQ(line.session->length(), static_cast<int64_t>(line.tokens.size()));
    ASSERT_TRUE(std::equal(tokens.begin(), tokens.end(), line.tokens.begin(), line.tokens.end()));
    if (options_.stream) {
      const int64_t seen = options_.stream->sinks + options_.stream->window;
      EXPECT_EQ(line.session->evicted(), std::max<int64_t>(0, line.session->length() - seen));
    }
    ASSERT_EQ(line.session->logits().empty(), !line.logits);
    if (!line.logits) return;
    const std::vector<float>& expected = cold(line.tokens);
    ASSERT_TRUE(std::equal(expected.begin(), expected.end(), line.session->logits().begin(),
                           line.session->logits().end()))
        << "after " << line.tokens.size() << " tokens";
  }

  // What each session holds alone, and each shared block once, is what the model says is used.
  void check_account() {
    uint64_t own = 0, shared = 0, told_shared = 0;
    std::set<const cache::Block*> seen;
    for (const Line& line : lines_) {
      const SessionMemory memory = line.session->memory();
      const engine::Timeline& timeline = line.session->impl().timeline();
      own += memory.own - line.session->tokens().size_bytes();
      told_shared += memory.shared;
      const auto count = [&](const cache::BlockRef& block) {
        if (block.shared() && seen.insert(block.block()).second) shared += block.bytes();
      };
      timeline.caches.for_each_block(count);
      if (timeline.logits) count(timeline.logits.block());
    }
    const MemoryAccount account = model_->memory();
    EXPECT_EQ(own + shared, account.used);
    EXPECT_LE(2 * shared, told_shared);  // two sessions hold it, at least
    EXPECT_EQ(account.total(), account.weights + account.workspaces + account.used + account.spare);
  }

  void check_rewind_limit(const Line& line) {
    const int64_t limit = line.session->rewind_limit(), length = line.session->length();
    const auto works = [&line](int64_t to) { return line.session->fork()->rewind(to); };
    ASSERT_LE(limit, length);
    EXPECT_GT(limit, length == 0 ? -1 : 0);
    EXPECT_TRUE(works(limit)) << limit << " of " << length;
    const int64_t sinks = options_.stream ? (options_.stream->sinks + 31) / 32 * 32 : 0;
    if (limit - 1 > sinks) {
      EXPECT_FALSE(works(limit - 1)) << limit << " of " << length;
    }
  }

  // The same tokens in a session of their own, at once.
  const std::vector<float>& cold(const Tokens& tokens) {
    std::vector<float>& logits = cold_[tokens];
    if (logits.empty()) {
      const auto fresh = make(model_, options_);
      expect_ok(fresh->append(tokens));
      logits = copy(fresh->logits());
    }
    return logits;
  }

  std::mt19937 rng_;
  std::shared_ptr<const Model> model_;
  SessionOptions options_;
  Line lines_[4];
  TemporaryFile file_;
  bool saved_ = false, saved_logits_ = false;
  Tokens saved_tokens_;
  std::vector<std::byte> saved_bytes_;
  std::map<Tokens, std::vector<float>> cold_;
};

// Requirement memory.same-context-same-bits "same context, same bits": random programs of append,
// batches, fork, rewind, sync, snapshot, restore, clear over four sessions against the same tokens
// computed cold; keys and values in lockstep over 4,096 tokens
// Requirement reports-caches.mlx-lm#118 "ml-explore/mlx-lm#118, #1914, Blaizzy/mlx-vlm#1715,
// ggml-org/llama.cpp#20819: windows that cannot be cut back or appended to in chunks, wrong output
// after the first turn, hybrid models": rows within the rewind reserve can always be taken back,
// chunks may be longer than the window, and what cannot go back says so; never another answer
// Requirement reports-caches.ik_llama.cpp#1205 "ikawrakow/ik_llama.cpp#1205: a quantized cache is
// wrong past the window": every KV type across the window's edge, and the same bits from every
// instruction set
// Verifies reports-caches.llama.cpp#14434.
TEST(Memory, RandomProgramsEqualTheSameTokensComputedCold) {
  const int64_t first = from_environment("CULET_FIRST_PROGRAM", 0);
  const int64_t count =
      from_environment("CULET_PROGRAMS", small_tests() ? kFewPrograms : kPrograms);
  for (int64_t seed = first; seed < first + count && !HasFailure(); ++seed) {
    Program program(static_cast<uint32_t>(seed));
    SCOPED_TRACE("program " + std::to_string(seed) + ": " + program.description());
    program.run(40);
  }
}

// ---------------------------------------------------------------- lockstep

Tokens many_tokens(size_t n, uint32_t seed = 1) {
  std::mt19937 rng(seed);
  Tokens tokens(n);
  for (Token& token : tokens) token = static_cast<Token>(5 + rng() % 120);
  return tokens;
}

std::string bytes_of(const Session& session, const TemporaryFile& file) {
  expect_ok(session.save(file.path()));
  std::ifstream in(file.path(), std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A snapshot holds every committed key and value, so equal files are equal caches.
// Verifies memory.same-context-same-bits, reports-caches.mlx-lm#118, reports-caches.gemma.cpp#608.
TEST(Memory, KeysAndValuesInLockstep) {
  const Tokens tokens = many_tokens(small_tests() ? 400 : 4096);
  const size_t step = tokens.size() / 4;
  const TemporaryFile file("lockstep");
  for (const char* name : kModels) {
    const auto model = model_of(name);
    const SessionOptions options{.stream = StreamOptions{4, small_tests() ? 70 : 300}};
    const auto whole = make(model, options), single = make(model, options);
    expect_ok(whole->append(tokens));
    for (size_t done = 0; done < tokens.size(); ++done) {
      expect_ok(single->append(std::span(tokens).subspan(done, 1)));
      if (done % step != step - 1) continue;
      const auto chunked = make(model, options);
      for (size_t at = 0; at <= done;) {
        const size_t n = std::min<size_t>(1 + (at * 7 + 13) % 700, done + 1 - at);
        expect_ok(chunked->append(std::span(tokens).subspan(at, n)));
        at += n;
      }
      ASSERT_EQ(bytes_of(*single, file), bytes_of(*chunked, file)) << name << " at " << done;
    }
    EXPECT_EQ(bytes_of(*single, file), bytes_of(*whole, file)) << name;
  }
}

// ---------------------------------------------------------------- batches

// The tiny llama with the embedding of `token` made of NaN.
std::shared_ptr<const Model> with_a_poisoned_token(Token token, const TemporaryFile& copy) {
  std::ifstream in(golden(kModels[0]), std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  const auto file = format::GgufFile::parse(std::as_bytes(std::span(bytes)), "model");
  if (!file) throw std::runtime_error(file.error().message);
  for (const format::TensorInfo& tensor : file->tensors()) {
    if (tensor.name != "token_embd.weight") continue;
    const size_t row = tensor.dims[0] / 32 * 34;  // Q8_0: a scale and 32 numbers
    const uint16_t nan = 0x7e00;
    char* scale = bytes.data() + (reinterpret_cast<const char*>(tensor.data) - bytes.data()) +
                  static_cast<size_t>(token) * row;
    std::memcpy(scale, &nan, sizeof nan);
  }
  std::ofstream(copy.path(), std::ios::binary) << bytes;
  return load(copy.path());
}

// Requirement reports-caches.llama.cpp#12433 "ggml-org/llama.cpp#12433, #26088,
// sgl-project/sglang#4807: garbage after long contexts, overflow": sums in float32; a row with NaN
// or infinity fails its request alone
// Verifies memory.same-context-same-bits.
TEST(Memory, ANumberThatIsNoneFailsItsSessionAlone) {
  constexpr Token kPoison = 300;
  const TemporaryFile copy_of_model("poisoned.gguf");
  const auto model = with_a_poisoned_token(kPoison, copy_of_model);
  const Tokens before = many_tokens(50), more = many_tokens(30, 2);
  for (const size_t length : {size_t{1}, size_t{20}, size_t{70}}) {  // cut back, or a fork kept
    Tokens bad = many_tokens(length, 3);
    bad[length / 2] = kPoison;
    const auto healthy = make(model, {.stream = StreamOptions{2, 30}}),
               ill = make(model, {.stream = StreamOptions{2, 30}});
    expect_ok(healthy->append(before));
    expect_ok(ill->append(before));
    const AppendItem items[] = {{ill.get(), bad}, {healthy.get(), more}};
    const auto results = append_batch(items);
    ASSERT_FALSE(results[0]) << length;
    EXPECT_EQ(results[0].error().code, ErrorCode::kNumeric);
    expect_ok(results[1]);
    EXPECT_EQ(ill->length(), 50);
    expect_ok(ill->append(more));
    EXPECT_EQ(copy(ill->logits()), copy(healthy->logits())) << length;
  }
}

TEST(Memory, ABatchOfOneSessionTwiceIsRefused) {
  const auto one = make(model_of(kModels[0]), {});
  const Tokens tokens = many_tokens(3);
  const AppendItem items[] = {{one.get(), tokens}, {one.get(), tokens}};
  for (const auto& result : append_batch(items)) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(one->length(), 0);
}

TEST(Memory, AnEntryOfABatchFailsAlone) {
  const auto model = model_of(kModels[0]);
  const auto small = make(model, {.context = 32}), large = make(model, {.context = 128});
  const Tokens tokens = many_tokens(100);
  const AppendItem items[] = {{small.get(), tokens}, {large.get(), tokens}};
  const auto results = append_batch(items);
  ASSERT_FALSE(results[0]);
  EXPECT_EQ(results[0].error().code, ErrorCode::kExhausted);
  expect_ok(results[1]);
  EXPECT_EQ(small->length(), 0);
  const auto alone = make(model, {.context = 128});
  expect_ok(alone->append(tokens));
  EXPECT_EQ(copy(alone->logits()), copy(large->logits()));
}

// ---------------------------------------------------------------- threads

// Verifies memory.same-context-same-bits.
TEST(Memory, ManyThreadsFromOneSnapshot) {
  for (const char* name : kModels) {
    const auto model = model_of(name);
    const SessionOptions options{.stream = StreamOptions{4, 40}};
    const auto past = make(model, options);
    const Tokens before = many_tokens(100);
    expect_ok(past->append(before));
    const auto snapshot = past->fork();
    std::vector<std::vector<float>> found(4);
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (int round = 0; round < 3; ++round) {
          const auto mine = snapshot->fork();
          for (const Token token : many_tokens(20, t)) expect_ok(mine->append({&token, 1}));
          found[t] = copy(mine->logits());
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (uint32_t t = 0; t < 4; ++t) {
      Tokens all = before;
      const Tokens more = many_tokens(20, t);
      all.insert(all.end(), more.begin(), more.end());
      const auto cold = make(model, options);
      expect_ok(cold->append(all));
      EXPECT_EQ(copy(cold->logits()), found[t]) << name << " thread " << t;
    }
  }
}

// ---------------------------------------------------------------- forks and streams

TEST(Memory, AForkCostsNothingUntilItDiverges) {
  const auto model = model_of(kModels[0]);
  const auto one = make(model, {.context = 256});
  expect_ok(one->append(many_tokens(200)));
  const uint64_t used = model->memory().used;
  const SessionMemory before = one->memory();
  EXPECT_EQ(before.shared, 0u);
  const auto other = one->fork();
  EXPECT_EQ(model->memory().used, used);
  const uint64_t tokens = one->tokens().size_bytes();
  for (Session* session : {&*one, &*other}) {
    EXPECT_EQ(session->memory().own, tokens);
    EXPECT_EQ(session->memory().shared, before.own - tokens);
  }
  EXPECT_EQ(copy(other->logits()), copy(one->logits()));
}

// A stream's history is bounded, and yet knows what it has read.
TEST(Memory, AStreamForgetsTokensButKnowsThem) {
  const auto model = model_of(kModels[0]);
  const auto one = make(model, {.stream = StreamOptions{2, 20}});
  const Tokens tokens = many_tokens(20000);
  expect_ok(one->append(std::span(tokens).first(19000)));
  EXPECT_EQ(one->length(), 19000);
  EXPECT_LT(one->tokens().size(), 6000u);
  EXPECT_EQ(one->evicted(), 19000 - 22);
  const auto kept = one->tokens();
  EXPECT_TRUE(std::equal(kept.begin(), kept.end(), tokens.begin() + 19000 - kept.size()));
  const auto more = one->set_tokens(tokens);
  ASSERT_TRUE(more);
  EXPECT_EQ(more->reused, 19000);
  EXPECT_EQ(more->evaluated, 1000);
  const auto again = one->set_tokens(tokens);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->reused, 20000);
  EXPECT_EQ(again->evaluated, 0);
  Tokens other = tokens;
  other[3] = other[3] == 9 ? 8 : 9;
  const auto rebuilt = one->set_tokens(other);
  ASSERT_TRUE(rebuilt);
  EXPECT_EQ(rebuilt->reused, 0);
}

// What was read once is not read again, whatever the windows have let go.
// Requirement reports-caches.llama.cpp#14157 "ggml-org/llama.cpp#14157, #14071, #21831,
// ikawrakow/ik_llama.cpp#455: the same prompt is read again on models with windows": `sync` keeps
// the longest prefix of ids: the same prompt again costs nothing, ten more tokens cost ten, and the
// numbers are told
TEST(Memory, TheSamePromptAgainCostsNothing) {
  for (const char* name : kModels) {
    const auto model = model_of(name);
    const auto one = make(model, {.context = 400});
    const Tokens all = many_tokens(310);
    const std::span<const Token> prompt = std::span(all).first(300);
    const auto set = [&](std::span<const Token> tokens) {
      const auto done = one->set_tokens(tokens);
      EXPECT_TRUE(done);
      const auto cold = make(model, {.context = 400});
      expect_ok(cold->append(tokens));
      EXPECT_EQ(copy(one->logits()), copy(cold->logits())) << name;
      return done ? *done : Session::PrefixReuse{};
    };
    EXPECT_EQ(set(prompt).evaluated, 300);
    EXPECT_EQ(set(prompt).reused, 300);
    const auto longer = set(all);
    EXPECT_EQ(longer.reused, 300) << name;
    EXPECT_EQ(longer.evaluated, 10) << name;
    Tokens edited = all;
    edited[295] = edited[295] == 9 ? 8 : 9;
    const bool states = std::string(name).find("lfm2") != std::string::npos;  // go back one pass
    EXPECT_EQ(set(edited).reused, states ? 0 : 295) << name;
  }
}

// Saved at three windows, taken up by another session: the next rows are those of the first.
// Requirement reports-caches.llama.cpp#25297 "ggml-org/llama.cpp#25297, #26676: a saved sequence
// longer than the window goes on differently, or is not used": bit-equal past the window, in every
// family
// Verifies memory.snapshots.
TEST(Memory, ASnapshotGoesOnPastTheWindow) {
  const TemporaryFile file("past-the-window");
  const Tokens tokens = many_tokens(3 * 44 + 32);
  for (const char* name : kModels) {
    const auto model = model_of(name);
    const SessionOptions options{.stream = StreamOptions{4, 40}};
    const auto one = make(model, options), other = make(model, options);
    expect_ok(one->append(std::span(tokens).first(3 * 44)));
    expect_ok(one->save(file.path()));
    expect_ok(other->append(std::span(tokens).first(7)));  // forgotten
    expect_ok(other->restore(file.path()));
    EXPECT_EQ(copy(other->logits()), copy(one->logits())) << name;
    for (size_t at = 3 * 44; at < tokens.size(); ++at) {
      expect_ok(one->append(std::span(tokens).subspan(at, 1)));
      expect_ok(other->append(std::span(tokens).subspan(at, 1)));
      ASSERT_EQ(copy(other->logits()), copy(one->logits())) << name << " at " << at;
    }
  }
}

// Requirement reports-caches.llama.cpp#14434 "ggml-org/llama.cpp#14434: an empty one crashes, a
// missing file wipes what was there": an empty session is saved and restored; a file that is none
// changes nothing
TEST(Memory, AnEmptySessionCanBeSavedToo) {
  const TemporaryFile file("empty");
  const auto model = model_of(kModels[0]);
  const auto empty = make(model, {}), other = make(model, {});
  expect_ok(empty->save(file.path()));
  expect_ok(other->append(many_tokens(50)));
  expect_ok(other->restore(file.path()));
  EXPECT_EQ(other->length(), 0);
  EXPECT_TRUE(other->logits().empty());
  expect_ok(other->append(many_tokens(20)));
  expect_ok(empty->append(many_tokens(20)));
  EXPECT_EQ(copy(other->logits()), copy(empty->logits()));
}

// Requirement memory.snapshots "snapshots": a file goes on in another process with the same bits;
// foreign, cut or damaged ones are refused and change nothing; an old file stays until the new one
// is whole; also fuzzed (`fuzz/snapshot_fuzz.cpp`)
TEST(Memory, SnapshotsThatDoNotFitAreRefused) {
  const TemporaryFile file("snapshot");
  const auto model = model_of(kModels[0]);
  const SessionOptions options{.stream = StreamOptions{4, 40}};
  const auto one = make(model, options);
  expect_ok(one->append(many_tokens(120)));
  expect_ok(one->save(file.path()));

  const auto refuses = [&](const std::shared_ptr<const Model>& other, const SessionOptions& o,
                           const char* word) {
    const auto session = make(other, o);
    expect_ok(session->append(many_tokens(5)));
    const auto before = copy(session->logits());
    const auto restored = session->restore(file.path());
    ASSERT_FALSE(restored) << word;
    EXPECT_NE(restored.error().message.find(word), std::string::npos) << restored.error().message;
    EXPECT_EQ(session->length(), 5);
    EXPECT_EQ(copy(session->logits()), before);
  };
  SessionOptions other = options;
  other.keys = KvType::kF32;
  refuses(model, other, "keys");
  other = options;
  other.values = KvType::kQ8;
  refuses(model, other, "values");
  other = options;
  other.stream->window = 41;
  refuses(model, other, "stream");
  other = options;
  other.stream.reset();
  refuses(model, other, "stream");
  other = options;
  other.start_position = 64;
  refuses(model, other, "start");
  refuses(model_of(kModels[0], true), options, "precise");
  refuses(model_of(kModels[1]), options, "model");

  // Every byte counts.
  std::ifstream in(file.path(), std::ios::binary);
  const std::string good{std::istreambuf_iterator<char>(in), {}};
  const auto write = [&](const std::string& bytes) {
    std::ofstream(file.path(), std::ios::binary | std::ios::trunc) << bytes;
  };
  const auto session = make(model, options);
  for (size_t cut = 0; cut < good.size(); cut += 1 + good.size() / 200) {
    write(good.substr(0, cut));
    EXPECT_FALSE(session->restore(file.path())) << cut;
  }
  std::mt19937 rng(1);
  for (int i = 0; i < 200; ++i) {
    std::string bytes = good;
    bytes[rng() % bytes.size()] ^= static_cast<char>(1 << rng() % 8);
    write(bytes);
    EXPECT_FALSE(session->restore(file.path()));
  }
  write(good + "x");
  EXPECT_FALSE(session->restore(file.path()));
  EXPECT_EQ(session->length(), 0);
  write(good);
  expect_ok(session->restore(file.path()));
  EXPECT_EQ(copy(session->logits()), copy(one->logits()));
}

// A header may announce any number of tokens; memory follows the bytes that are really there.
TEST(Memory, ASnapshotCannotAskForMoreThanItHas) {
  const auto model = model_of(kModels[0]);
  const auto one = make(model, {.stream = StreamOptions{4, 40}});
  expect_ok(one->append(many_tokens(50)));
  const auto bytes = one->snapshot();
  ASSERT_TRUE(bytes);
  std::string text(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  const std::string length = "\"length\":50,", lie = "\"length\":999999999999,";
  text.replace(text.find(length), length.size(), lie);
  uint32_t header = 0;
  std::memcpy(&header, text.data() + 12, sizeof header);
  header += static_cast<uint32_t>(lie.size() - length.size());
  std::memcpy(text.data() + 12, &header, sizeof header);
  size_t at = 0;
  const auto source = [&](std::span<std::byte> out) -> Result<void> {
    if (out.size() > text.size() - at) return fail(ErrorCode::kCorrupt, "the end");
    std::memcpy(out.data(), text.data() + at, out.size());
    at += out.size();
    return {};
  };
  const auto restored = one->restore(UINT64_MAX, source);
  ASSERT_FALSE(restored);
  EXPECT_EQ(restored.error().message, "the end");
  EXPECT_EQ(one->length(), 50);
}

// ---------------------------------------------------------------- what is known in advance

// Requirement reports-caches.gemma.cpp#608 "google/gemma.cpp#608: an overrun in long contexts": the
// tests of memory run under sanitizers too, past three windows
// Verifies memory.memory-known-in-advance.
TEST(Memory, AStreamHoldsWhatWasToldAndNoMore) {
  for (const char* name : kModels) {
    const auto model = model_of(name);
    const SessionOptions options{.stream = StreamOptions{4, 100}};
    const auto memory = context_memory(*model, options);
    ASSERT_TRUE(memory);
    const auto one = make(model, options);
    const Tokens tokens = many_tokens(small_tests() ? 1300 : 3000);
    for (size_t at = 0; at < tokens.size(); at += at < 1000 ? 250 : 1) {
      expect_ok(one->append(std::span(tokens).subspan(at, at < 1000 ? 250 : 1)));
      ASSERT_LE(cache_bytes(*one), memory->allocated) << name << " at " << at;
    }
  }
}

}  // namespace
}  // namespace culet::test
