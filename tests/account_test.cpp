// The memory of a model and its sessions: one account, one limit, what a checkpoint costs, how far
// a session can go back, and snapshots to memory and to streams.
#include "culet/culet.h"
#include "engine/session_impl.h"
#include "support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <string>

namespace culet::test {
namespace {

using Tokens = std::vector<Token>;
using Bytes = std::vector<std::byte>;

const char* const kLlama = "tiny/llama/model-q8_0.gguf";   // every layer keeps everything
const char* const kGemma = "tiny/gemma3/model-q8_0.gguf";  // layers with windows, too
const char* const kStates = "tiny/lfm2/model.gguf";        // recurrent states, too
const char* const kModels[] = {kLlama, kGemma, kStates, "tiny/gemma4-e/model-q8_0.gguf"};

std::shared_ptr<const Model> model_of(const std::string& file) {
  static std::map<std::string, std::shared_ptr<const Model>> loaded;
  auto& model = loaded[file];
  if (!model) model = load(golden(file), {.threads = 2});
  return model;
}

std::unique_ptr<Session> make(const std::shared_ptr<const Model>& model,
                              const SessionOptions& options) {
  auto made = Session::make(model, options);
  if (!made) throw std::runtime_error(made.error().message);
  return *std::move(made);
}

Tokens many_tokens(size_t n, uint32_t seed = 1) {
  std::mt19937 rng(seed);
  Tokens tokens(n);
  for (Token& token : tokens) token = static_cast<Token>(5 + rng() % 120);
  return tokens;
}

std::vector<float> copy(std::span<const float> logits) { return {logits.begin(), logits.end()}; }

uint64_t fixed_bytes(const Model& model) {  // of weights and one workspace
  const ModelInfo& info = model.info();
  return info.packed_bytes + info.converted_bytes + info.workspace_bytes;
}

uint64_t logits_bytes(const Model& model) {
  return static_cast<uint64_t>(model.info().vocabulary_size) * sizeof(float);
}

// The options that the tests of all plans go through: everything kept; a stream with few sinks; one
// whose sinks fill blocks.
const SessionOptions kAllOptions[] = {
    {.context = 400}, {.stream = StreamOptions{4, 40}}, {.stream = StreamOptions{70, 33}}};

// ---------------------------------------------------------------- how far back

// rewind_limit() against rewind() itself, at every length.
TEST(Account, RewindLimitIsWhereRewindStopsToWork) {
  for (const char* name : kModels) {
    for (const SessionOptions& options : kAllOptions) {
      const auto session = make(model_of(name), options);
      const bool states = name == kStates;
      const int64_t sink_blocks = options.stream ? (options.stream->sinks + 31) / 32 * 32 : 0;
      EXPECT_EQ(session->rewind_limit(), 0);
      std::mt19937 rng(7);
      while (session->length() < 350) {
        const size_t chunk = std::array<size_t, 4>{1, 1, 7, 90}[rng() % 4];
        const int64_t before = session->length();
        expect_ok(session->append(many_tokens(chunk, rng())));
        const int64_t length = session->length(), limit = session->rewind_limit();
        SCOPED_TRACE(std::string(name) + " at " + std::to_string(length));
        ASSERT_GE(limit, 1);
        ASSERT_LE(limit, length);
        for (int64_t to = 0; to <= length; ++to) {
          const bool works = session->fork()->rewind(to);
          if (to == 0 || to == limit || to == length) {
            ASSERT_TRUE(works) << to;
          } else if (to > limit) {
            ASSERT_EQ(works, !states) << to << ", limit " << limit;
          } else if (to > sink_blocks || states) {
            ASSERT_FALSE(works) << to << ", limit " << limit;
          }
        }
        if (states) {
          ASSERT_TRUE(limit == length || limit == before) << limit;
        }
        if (name == kLlama && !options.stream) {
          ASSERT_EQ(limit, 1);
        }
      }
    }
  }
}

// A stream goes back no further than its history reaches.
TEST(Account, RewindLimitHeedsForgottenTokens) {
  const auto session = make(model_of(kLlama), {.stream = StreamOptions{0, 20}});
  expect_ok(session->append(many_tokens(9000)));
  const int64_t limit = session->rewind_limit();
  EXPECT_TRUE(session->fork()->rewind(limit));
  EXPECT_FALSE(session->fork()->rewind(limit - 1));
}

// ---------------------------------------------------------------- what a checkpoint costs

// Promised when it is taken; paid, to the byte, when the session has gone on for several windows.
TEST(Account, ACheckpointCostsWhatWasPromised) {
  for (const char* name : kModels) {
    for (const SessionOptions& options : kAllOptions) {
      for (const size_t length : {1, 31, 32, 33, 64, 75, 128, 150}) {
        SCOPED_TRACE(std::string(name) + " at " + std::to_string(length));
        const auto model = model_of(name);
        const auto session = make(model, options);
        expect_ok(session->append(many_tokens(length)));
        const uint64_t promised = session->checkpoint_bytes();
        const auto checkpoint = session->fork();
        EXPECT_EQ(checkpoint->memory().own, checkpoint->tokens().size_bytes());
        const Tokens more = many_tokens(240, 2);
        for (size_t at = 0; at < more.size(); at += 8)
          expect_ok(session->append(std::span(more).subspan(at, 8)));
        EXPECT_EQ(checkpoint->memory().own, promised);
        // Still a session, with the bits it had.
        expect_ok(checkpoint->append(many_tokens(10, 3)));
        const auto cold = make(model, options);
        Tokens all = many_tokens(length);
        const Tokens end = many_tokens(10, 3);
        all.insert(all.end(), end.begin(), end.end());
        expect_ok(cold->append(all));
        EXPECT_EQ(copy(checkpoint->logits()), copy(cold->logits()));
      }
    }
  }
}

// ---------------------------------------------------------------- the account

TEST(Account, CountsWeightsWorkspacesAndSessions) {
  const auto model = load(golden(kLlama), {.threads = 2});
  const ModelInfo& info = model->info();
  MemoryAccount now = model->memory();
  EXPECT_EQ(now.limit, UINT64_MAX);
  EXPECT_EQ(now.weights, info.packed_bytes + info.converted_bytes);
  EXPECT_EQ(now.total(), now.weights);
  {
    const auto session = make(model, {.context = 256});
    EXPECT_EQ(model->memory().total(), now.weights);  // an empty session takes nothing
    expect_ok(session->append(many_tokens(100)));
    now = model->memory();
    EXPECT_EQ(now.workspaces, info.workspace_bytes);
    EXPECT_EQ(now.used, session->memory().own - session->tokens().size_bytes());
    const auto fork = session->fork();
    EXPECT_EQ(model->memory().used, now.used);
    // A callback that computes needs a second workspace.
    const auto other = make(model, {.context = 256});
    expect_ok(session->append_each(Tokens{5}, [&](int64_t, std::span<const float>) {
      expect_ok(other->append(Tokens{6}));
      EXPECT_EQ(model->memory().workspaces, 2 * info.workspace_bytes);
    }));
    EXPECT_EQ(model->memory().workspaces, 2 * info.workspace_bytes);
  }
  now = model->memory();
  EXPECT_EQ(now.used, 0u);
  EXPECT_GT(now.spare, 0u);
  model->trim_memory();
  now = model->memory();
  EXPECT_EQ(now.spare, 0u);
  EXPECT_EQ(now.workspaces, 0u);
  const auto again = make(model, {});
  expect_ok(again->append(many_tokens(3)));  // a trimmed model works
  EXPECT_EQ(model->memory().workspaces, info.workspace_bytes);
}

TEST(Account, OfAModelWithoutWeights) {
  const auto model = load(golden(kLlama), {.text_only = true, .memory_limit = 5});
  EXPECT_EQ(model->memory().limit, 5u);
  EXPECT_EQ(model->memory().total(), 0u);
  model->trim_memory();
}

// Spare blocks serve the next session: the second one takes nothing from the system.
TEST(Account, TheNextSessionUsesWhatTheLastOneLeft) {
  for (const char* name : kModels) {
    const auto model = load(golden(name), {.threads = 2});
    const Tokens tokens = many_tokens(200);
    uint64_t first = 0;
    for (int round = 0; round < 3; ++round) {
      const auto session = make(model, {.context = 256});
      for (size_t at = 0; at < 200; at += 50)
        expect_ok(session->append(std::span(tokens).subspan(at, 50)));
      const MemoryAccount now = model->memory();
      if (round == 0) first = now.used + now.spare;
      EXPECT_EQ(now.used + now.spare, first) << name;
    }
  }
}

// A stream that is under way takes nothing more, token after token.
TEST(Account, AStreamUnderWayTakesNothingMore) {
  for (const char* name : kModels) {
    const auto model = load(golden(name), {.threads = 2});
    const auto session = make(model, {.stream = StreamOptions{4, 60}});
    expect_ok(session->append(many_tokens(150)));
    const Tokens more = many_tokens(400, 2);
    uint64_t held = 0;
    for (size_t i = 0; i < more.size(); ++i) {
      expect_ok(session->append(std::span(more).subspan(i, 1)));
      const MemoryAccount now = model->memory();
      if (i == 40) held = now.used + now.spare;
      if (i > 40) {
        ASSERT_EQ(now.used + now.spare, held) << name << " at " << i;
      }
    }
  }
}

// ---------------------------------------------------------------- the limit

// Sessions grow until there is no more: who asks for too much is refused and keeps what it has; the
// others go on; what a closed session leaves can be used at once, by blocks of other sizes too.
TEST(Account, TheLimitRefusesOneAppendAndNothingElse) {
  for (const char* name : kModels) {
    const auto unlimited = load(golden(name), {.threads = 2});
    const SessionOptions options{.context = 400},
        wide{.context = 400, .keys = KvType::kF32, .values = KvType::kF32};
    const auto memory = context_memory(*unlimited, wide);
    ASSERT_TRUE(memory);
    ModelOptions limited{.threads = 2};
    limited.memory_limit = fixed_bytes(*unlimited) + memory->peak + logits_bytes(*unlimited) + 4096;
    const auto model = load(golden(name), limited);
    const auto expect_within = [&] {
      EXPECT_LE(model->memory().total(), limited.memory_limit) << name;
    };
    std::vector<std::unique_ptr<Session>> sessions;
    std::vector<Tokens> held;
    bool refused = false;
    for (uint32_t seed = 0; seed < 60 && !refused; ++seed) {
      sessions.push_back(make(model, options));
      held.emplace_back();
      for (int i = 0; i < 3 && !refused; ++i) {
        const Tokens more = many_tokens(70, seed);
        const std::vector<float> before = copy(sessions.back()->logits());
        const uint64_t own = sessions.back()->memory().own;
        const auto done = sessions.back()->append(more);
        expect_within();
        if (done) {
          held.back().insert(held.back().end(), more.begin(), more.end());
          continue;
        }
        refused = true;
        EXPECT_EQ(done.error().code, ErrorCode::kExhausted);
        EXPECT_NE(done.error().message.find("memory limit"), std::string::npos)
            << done.error().message;
        EXPECT_NE(done.error().message.find("iB"), std::string::npos) << done.error().message;
        EXPECT_EQ(sessions.back()->length(), static_cast<int64_t>(held.back().size()));
        EXPECT_EQ(copy(sessions.back()->logits()), before);
        EXPECT_LE(sessions.back()->memory().own, own);
      }
    }
    ASSERT_TRUE(refused) << name;
    ASSERT_GE(sessions.size(), 2u);

    // Two in one pass: the first still has room in its open block, the last has none for many more.
    const Tokens one_more{9}, many_more = many_tokens(150);
    const AppendItem items[] = {{sessions.back().get(), many_more}, {sessions[0].get(), one_more}};
    const auto both = append_batch(items);
    EXPECT_FALSE(both[0]);
    expect_ok(both[1]);
    held[0].push_back(9);
    expect_within();

    // A session of other types needs the room of the closed ones.
    const auto other = make(model, wide);
    EXPECT_FALSE(other->append(many_tokens(390))) << name;
    EXPECT_EQ(other->length(), 0);
    sessions.resize(1);
    expect_ok(sessions[0]->append(one_more));
    held[0].push_back(9);
    EXPECT_EQ(sessions[0]->length(), static_cast<int64_t>(held[0].size()));
    const auto cold = make(unlimited, options);
    expect_ok(cold->append(held[0]));
    EXPECT_EQ(copy(sessions[0]->logits()), copy(cold->logits())) << name;
    sessions.clear();
    expect_ok(other->append(many_tokens(390)));
    expect_within();
  }
}

// Whatever is refused on the way, sessions hold what they held, and the numbers add up.
TEST(Account, RandomProgramsAtTheLimit) {
  int refused = 0;
  const auto exhausted = [&refused](const Result<void>& done) {
    if (done) return false;
    EXPECT_EQ(done.error().code, ErrorCode::kExhausted);
    refused += done.error().message.find("memory") != std::string::npos;
    return true;
  };
  const uint32_t programs = small_tests() ? 6 : 40;
  for (uint32_t seed = 0; seed < programs; ++seed) {
    const char* name = kModels[seed % std::size(kModels)];
    ModelOptions limited{.threads = 2, .ubatch_size = 16};
    const auto unlimited = load(golden(name), limited);
    const SessionOptions options = kAllOptions[seed / 4 % 3];
    const auto memory = context_memory(*unlimited, options);
    ASSERT_TRUE(memory);
    limited.memory_limit =
        fixed_bytes(*unlimited) + memory->peak + 2 * logits_bytes(*unlimited) + 1000;
    const auto model = load(golden(name), limited);
    std::mt19937 rng(seed);
    std::vector<std::unique_ptr<Session>> sessions(4);
    std::vector<Tokens> held(4);
    for (auto& session : sessions) session = make(model, options);
    for (int step = 0; step < 80; ++step) {
      const size_t i = rng() % 4;
      Session& session = *sessions[i];
      switch (rng() % 8) {
        case 0: {
          const size_t from = rng() % 4;
          sessions[i] = sessions[from]->fork();
          held[i] = Tokens(held[from]);
          break;
        }
        case 1: {
          const auto to = static_cast<size_t>(std::max(
              session.rewind_limit(), session.length() - static_cast<int64_t>(rng() % 20)));
          if (name == kStates && static_cast<int64_t>(to) != session.rewind_limit()) break;
          ASSERT_TRUE(session.rewind(static_cast<int64_t>(to)));
          held[i].resize(to);
          break;
        }
        case 2:
          if (rng() % 4 != 0) break;
          session.clear();
          held[i].clear();
          break;
        case 3: {
          const auto bytes = session.snapshot();
          ASSERT_TRUE(bytes);
          const size_t into = rng() % 4;
          const auto done = sessions[into]->restore(*bytes);
          if (!exhausted(done)) held[into] = Tokens(held[i]);
          break;
        }
        default: {
          const Tokens more = many_tokens(1 + rng() % 60, rng());
          const auto done = session.append(more);
          if (!exhausted(done)) held[i].insert(held[i].end(), more.begin(), more.end());
        }
      }
      EXPECT_LE(model->memory().total(), limited.memory_limit);
      uint64_t sum = 0;
      std::set<const cache::Block*> seen;
      for (size_t k = 0; k < 4; ++k) {
        ASSERT_EQ(sessions[k]->length(), static_cast<int64_t>(held[k].size()));
        const auto count = [&](const cache::BlockRef& block) {
          if (seen.insert(block.block()).second) sum += block.bytes();
        };
        sessions[k]->impl().timeline().caches.for_each_block(count);
        if (sessions[k]->impl().timeline().logits)
          count(sessions[k]->impl().timeline().logits.block());
      }
      ASSERT_EQ(sum, model->memory().used);
    }
    for (size_t k = 0; k < 4; ++k) {
      if (sessions[k]->logits().empty()) continue;
      const auto cold = make(unlimited, options);
      expect_ok(cold->append(held[k]));
      EXPECT_EQ(copy(sessions[k]->logits()), copy(cold->logits())) << name << ", seed " << seed;
    }
  }
  EXPECT_GT(refused, static_cast<int>(programs) * 5);
}

TEST(Account, ASessionThatCanNeverFitIsRefusedAtOnce) {
  const auto unlimited = model_of(kLlama);
  const SessionOptions options{.context = 400};
  const auto memory = context_memory(*unlimited, options);
  ASSERT_TRUE(memory);
  ModelOptions limited{.threads = 2};
  limited.memory_limit = fixed_bytes(*unlimited) + memory->peak + logits_bytes(*unlimited);
  EXPECT_TRUE(Session::make(load(golden(kLlama), limited), options));
  --limited.memory_limit;
  const auto refused = Session::make(load(golden(kLlama), limited), options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kExhausted);
  EXPECT_NE(refused.error().message.find("400 tokens"), std::string::npos)
      << refused.error().message;
}

// The workspace of a call inside a callback is under the limit, too.
TEST(Account, WorkspacesCountUnderTheLimit) {
  const auto unlimited = model_of(kLlama);
  const SessionOptions options{.context = 64};
  const auto memory = context_memory(*unlimited, options);
  ASSERT_TRUE(memory);
  ModelOptions limited{.threads = 2};
  limited.memory_limit =
      fixed_bytes(*unlimited) + 2 * (memory->peak + logits_bytes(*unlimited)) + 4096;
  if (limited.memory_limit - fixed_bytes(*unlimited) >= unlimited->info().workspace_bytes)
    GTEST_FAIL() << "the workspace is too small for this test";
  const auto model = load(golden(kLlama), limited);
  const auto outer = make(model, options), inner = make(model, options);
  int calls = 0;
  expect_ok(outer->append_each(Tokens{5, 6}, [&](int64_t, std::span<const float>) {
    ++calls;
    const auto done = inner->append(Tokens{7});
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, ErrorCode::kExhausted);
  }));
  EXPECT_EQ(calls, 2);
  expect_ok(inner->append(Tokens{7}));  // now there is one
  EXPECT_EQ(model->memory().workspaces, model->info().workspace_bytes);
}

// ---------------------------------------------------------------- during an append

// A callback may fork and save the session: it has the tokens of before the append.
TEST(Account, ForksAndSnapshotsDuringAnAppendAreOfBefore) {
  for (const char* name : kModels) {
    for (const SessionOptions& options : kAllOptions) {
      for (const size_t length : {1, 20, 33, 120, 300}) {  // cut back, or kept; one pass, or two
        SCOPED_TRACE(std::string(name) + ", " + std::to_string(length) + " tokens");
        const auto model = model_of(name);
        const auto one = make(model, options), restored = make(model, options),
                   assigned = make(model, options), cold = make(model, options);
        const Tokens before = many_tokens(90), new_tokens = many_tokens(length, 2);
        expect_ok(one->append(before));
        const std::vector<float> logits = copy(one->logits());
        std::unique_ptr<Session> fork;
        const auto look = [&] {
          fork = one->fork();
          const auto bytes = one->snapshot();
          ASSERT_TRUE(bytes);
          expect_ok(restored->restore(*bytes));
          expect_ok(assigned->assign(*one));
        };
        const auto middle = static_cast<int64_t>(before.size() + length / 2);
        expect_ok(one->append_each(
            new_tokens,
            [&](int64_t index, std::span<const float>) {
              if (index == middle) look();
            },
            [&](const Progress&) { return true; }));
        ASSERT_TRUE(fork);
        expect_ok(cold->append(before));
        expect_ok(cold->append(many_tokens(40, 3)));
        for (Session* s : {fork.get(), restored.get(), assigned.get()}) {
          ASSERT_EQ(s->length(), static_cast<int64_t>(before.size()));
          EXPECT_EQ(copy(s->logits()), logits);
          expect_ok(s->append(many_tokens(40, 3)));
          EXPECT_EQ(copy(s->logits()), copy(cold->logits()));
        }
      }
    }
  }
}

// ---------------------------------------------------------------- snapshots

// Bytes through a pipe that carries a few at a time, never the same number.
class Pipe {
 public:
  Result<void> put(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const size_t n = std::min(bytes.size(), next());
      all_.insert(all_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n));
      bytes = bytes.subspan(n);
    }
    return {};
  }
  Result<void> get(std::span<std::byte> out) {
    while (!out.empty()) {
      const size_t n = std::min({out.size(), next(), all_.size() - at_});
      if (n == 0) return fail(ErrorCode::kIo, "the pipe is empty");
      std::copy_n(all_.begin() + static_cast<std::ptrdiff_t>(at_), n, out.begin());
      at_ += n;
      out = out.subspan(n);
    }
    return {};
  }
  const Bytes& all() const { return all_; }

 private:
  size_t next() { return turn_ = turn_ * 7 % 1009 + 1; }
  Bytes all_;
  size_t at_ = 0, turn_ = 1;
};

TEST(Snapshot, ThroughMemoryAndThroughAStream) {
  for (const char* name : kModels) {
    for (const SessionOptions& options : kAllOptions) {
      for (const size_t length : {0, 1, 32, 45, 170}) {
        const auto model = model_of(name);
        const auto one = make(model, options);
        expect_ok(one->append(many_tokens(length)));
        const auto bytes = one->snapshot();
        ASSERT_TRUE(bytes);
        Pipe pipe;
        expect_ok(one->save([&](std::span<const std::byte> more) { return pipe.put(more); }));
        EXPECT_EQ(pipe.all(), *bytes) << name;
        const auto by_memory = make(model, options), by_stream = make(model, options);
        expect_ok(by_memory->append(many_tokens(50, 9)));  // forgotten
        expect_ok(by_memory->restore(*bytes));
        expect_ok(by_stream->restore(bytes->size(),
                                     [&](std::span<std::byte> out) { return pipe.get(out); }));
        const Tokens more = many_tokens(60, 4);
        for (const size_t n : {size_t{0}, size_t{1}, size_t{59}}) {
          if (n > 0) {
            const auto next = std::span(more).subspan(n == 1 ? 0 : 1, n);
            for (Session* s : {one.get(), by_memory.get(), by_stream.get()})
              expect_ok(s->append(next));
          }
          for (const Session* s : {by_memory.get(), by_stream.get()}) {
            EXPECT_TRUE(std::equal(one->tokens().begin(), one->tokens().end(), s->tokens().begin(),
                                   s->tokens().end()));
            ASSERT_EQ(copy(s->logits()), copy(one->logits())) << name << " at " << length;
          }
          EXPECT_EQ(*by_memory->snapshot(), *one->snapshot());
        }
      }
    }
  }
}

// What a sink or a source says is what the caller gets; the session is as it was.
TEST(Snapshot, ErrorsOfSinksAndSourcesAreReturnedAsGiven) {
  const auto model = model_of(kGemma);
  const auto one = make(model, {.stream = StreamOptions{4, 40}});
  expect_ok(one->append(many_tokens(100)));
  const auto bytes = one->snapshot();
  ASSERT_TRUE(bytes);
  const auto other = make(model, {.stream = StreamOptions{4, 40}});
  expect_ok(other->append(many_tokens(20, 2)));
  const std::vector<float> before = copy(other->logits());
  int calls = 0;
  expect_ok(one->save([&](std::span<const std::byte>) -> Result<void> {
    ++calls;
    return {};
  }));
  ASSERT_GT(calls, 5);
  for (int stop = 0; stop < calls; ++stop) {
    int call = 0;
    const auto saved = one->save([&](std::span<const std::byte>) -> Result<void> {
      EXPECT_LE(call, stop);  // never called again
      if (call++ < stop) return {};
      return fail(ErrorCode::kNumeric, "the disk is tired");
    });
    ASSERT_FALSE(saved);
    EXPECT_EQ(saved.error().code, ErrorCode::kNumeric);
    EXPECT_EQ(saved.error().message, "the disk is tired");
  }
  size_t at = 0;
  const auto read = [&](std::span<std::byte> out) {
    std::memcpy(out.data(), bytes->data() + at, out.size());
    at += out.size();
  };
  calls = 0;
  expect_ok(one->fork()->restore(bytes->size(), [&](std::span<std::byte> out) -> Result<void> {
    ++calls;
    read(out);
    return {};
  }));
  EXPECT_EQ(at, bytes->size());
  for (int stop = 0; stop < calls; ++stop) {
    at = 0;
    int call = 0;
    const auto restored =
        other->restore(bytes->size(), [&](std::span<std::byte> out) -> Result<void> {
          EXPECT_LE(call, stop);
          if (call++ == stop) return fail(ErrorCode::kNumeric, "the line is dead");
          read(out);
          return {};
        });
    ASSERT_FALSE(restored);
    EXPECT_EQ(restored.error().code, ErrorCode::kNumeric);
    EXPECT_EQ(restored.error().message, "the line is dead");
    EXPECT_EQ(other->length(), 20);
    EXPECT_EQ(copy(other->logits()), before);
  }
}

TEST(Snapshot, DamagedAndForeignBytesAreRefused) {
  const auto model = model_of(kStates);
  const auto one = make(model, {.context = 200});
  expect_ok(one->append(many_tokens(70)));
  const auto good = one->snapshot();
  ASSERT_TRUE(good);
  const auto session = make(model, {.context = 200});
  expect_ok(session->append(many_tokens(9, 2)));
  const std::vector<float> before = copy(session->logits());
  const uint64_t used = model->memory().used;
  const auto refuses = [&](std::span<const std::byte> bytes) {
    EXPECT_FALSE(session->restore(bytes));
    EXPECT_EQ(session->length(), 9);
    EXPECT_EQ(copy(session->logits()), before);
    EXPECT_EQ(model->memory().used, used);
  };
  for (size_t cut = 0; cut < good->size(); cut += 1 + good->size() / 150)
    refuses(std::span(*good).first(cut));
  std::mt19937 rng(1);
  for (int i = 0; i < 150; ++i) {
    Bytes bytes = *good;
    bytes[rng() % bytes.size()] ^= static_cast<std::byte>(1 << rng() % 8);
    refuses(bytes);
  }
  Bytes longer = *good;
  longer.push_back(std::byte{0});
  refuses(longer);
  // More than there is: the source says so.
  const auto more = session->restore(good->size(), [](std::span<std::byte>) -> Result<void> {
    return fail(ErrorCode::kIo, "nothing there");
  });
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().message, "nothing there");

  const auto foreign = make(model_of(kLlama), {.context = 200});
  const auto of_another = foreign->restore(*good);
  ASSERT_FALSE(of_another);
  EXPECT_EQ(of_another.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(of_another.error().message.find("'model'"), std::string::npos)
      << of_another.error().message;
  EXPECT_EQ(foreign->length(), 0);
  expect_ok(session->restore(*good));
  EXPECT_EQ(copy(session->logits()), copy(one->logits()));
}

}  // namespace
}  // namespace culet::test
