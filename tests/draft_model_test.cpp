// A draft model beside its target, tiny random models.
//
//   * float activations and cache: the reference's logits, hidden rows and greedy tokens
//     (tests/golden/tiny/SOURCE.md says how they were made);
//   * against the oracle (oracle.h): any length, targets with and without shared caches, streams;
//   * any instruction set, number of threads, plan and way to the same tokens: the same bits;
//   * a session is the same, to the bit, whether somebody drafts for it or not;
//   * guess, check, go on from the right hidden row: exactly the target's own tokens;
//   * what does not go together is refused with a sentence that names it.
#include "culet/measure.h"
#include "oracle.h"
#include "support.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>
#include <thread>
#include <unistd.h>

namespace culet::test {
namespace {

using nlohmann::json;

constexpr int64_t kWidth = 64;       // of the target
constexpr double kTolerance = 1e-4;  // against the oracle, whose logits have a deviation of 2

std::string target_file() { return golden("tiny/gemma4-e/model.gguf"); }
std::string draft_model_file() { return golden("tiny/gemma4-assistant/model.gguf"); }
std::string quantized_target() { return golden("tiny/gemma4-e/model-q8_0.gguf"); }

struct Pair {
  std::shared_ptr<const Model> target, draft_model;
};

std::shared_ptr<const Model> draft_model_of(const std::shared_ptr<const Model>& target,
                                            ModelOptions options = {},
                                            const std::string& file = draft_model_file()) {
  options.target = target;
  return load(file, options);
}

Pair load_pair(const ModelOptions& options, const std::string& target = target_file(),
               const std::string& draft_model = draft_model_file()) {
  Pair pair;
  pair.target = load(target, options);
  pair.draft_model = draft_model_of(pair.target, options, draft_model);
  return pair;
}

std::vector<Token> random_tokens(int64_t count, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::vector<Token> tokens(static_cast<size_t>(count));
  for (Token& t : tokens) t = static_cast<Token>(random() % 512);
  return tokens;
}

std::vector<float> copy(std::span<const float> row) { return {row.begin(), row.end()}; }

// Appends and gives the last token's hidden row.
std::vector<float> append_hidden(Session& session, std::span<const Token> tokens) {
  std::vector<float> row;
  int calls = 0;
  const auto keep = [&](int64_t index, std::span<const float> hidden) {
    EXPECT_EQ(index, session.length() + static_cast<int64_t>(tokens.size()) - 1);
    row = copy(hidden);
    ++calls;
  };
  const AppendItem item{&session, tokens, true, {}, keep};
  expect_ok(append_batch({&item, 1})[0]);
  EXPECT_EQ(calls, 1);
  return row;
}

Draft draft_ok(const Model& draft_model, const Session& session, Token token,
               std::span<const float> hidden) {
  auto made = draft(draft_model, session, token, hidden);
  if (!made) throw std::runtime_error(made.error().message);
  return *std::move(made);
}

// Logits and hidden rows of greedy steps, one after another.
Rows chain(const Model& draft_model, const Session& session, Token token, std::vector<float> hidden,
           int steps) {
  Rows rows;
  for (int i = 0; i < steps; ++i) {
    Draft step = draft_ok(draft_model, session, token, hidden);
    token = best(step.logits);
    hidden = step.hidden;
    rows.push_back(std::move(step.logits));
    rows.push_back(std::move(step.hidden));
  }
  return rows;
}

Rows append_and_chain(const Model& draft_model, Session& session, std::span<const Token> tokens,
                      int steps = 3) {
  const std::vector<float> hidden = append_hidden(session, tokens);
  return chain(draft_model, session, best(session.logits()), hidden, steps);
}

class Files {
 public:
  std::string operator()(const std::string& name) const { return folder_ / name; }
  Files() { std::filesystem::create_directories(folder_); }
  ~Files() { std::filesystem::remove_all(folder_); }
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;

 private:
  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("culet-draft-model-" + std::to_string(getpid()));
};

// Q8_0: 32 values, one half-precision scale. A power of two needs no rounding of the scale.
std::string q8_0(const format::TensorInfo& tensor) {
  std::vector<float> values(tensor.elements());
  std::memcpy(values.data(), tensor.data, tensor.bytes);
  std::string out;
  for (size_t at = 0; at < values.size(); at += 32) {
    float most = 0;
    for (size_t i = at; i < at + 32; ++i) most = std::max(most, std::fabs(values[i]));
    const int exponent = most > 0 ? std::max(-14, std::ilogb(most) - 6) : -14;
    const auto half = static_cast<uint16_t>((exponent + 15) << 10);
    out.append(reinterpret_cast<const char*>(&half), 2);
    for (size_t i = at; i < at + 32; ++i)
      out += static_cast<char>(
          std::lround(std::clamp(std::ldexp(values[i], -exponent), -127.0f, 127.0f)));
  }
  return out;
}

void write_quantized_draft_model(const std::string& path) {
  rewrite_tensors(draft_model_file(), path, [](const format::TensorInfo& tensor) {
    return tensor.n_dims == 2 ? TensorBytes{8, q8_0(tensor)} : unchanged(tensor);
  });
}

// ---------------------------------------------------------------- against the reference

// Requirement answers.draft-models "draft models": loaded with its target and refused without or
// with another; reads the target's session, any KV type, streams too, and changes nothing of it, to
// the bit; hidden rows for it are given when asked for. The loop of guesses and checks is not built
// yet, but done by hand it gives the target's own tokens
TEST(DraftModel, LogitsAndHiddenRowsAreTheReferences) {
  const json expected = read_json(golden("tiny/gemma4-assistant/expected.json"));
  const auto tokens = expected["tokens"].get<std::vector<Token>>();
  const double logits_abs = expected["tolerance"]["logits_abs"].get<double>();
  const double hidden_abs = expected["tolerance"]["hidden_abs"].get<double>();
  const Pair pair = load_pair({.threads = 2, .precise = true});
  EXPECT_EQ(pair.draft_model->info().kind, ModelKind::kDraft);
  EXPECT_EQ(pair.draft_model->info().vocabulary_size, 512);
  ASSERT_FALSE(expected["cases"].empty());
  for (const json& c : expected["cases"]) {
    const auto length = c["context_length"].get<size_t>();
    SCOPED_TRACE(length);
    const auto one = session(pair.target, KvType::kF32);
    std::vector<float> hidden = append_hidden(*one, std::span(tokens).first(length));
    EXPECT_EQ(one->length(), c["position"].get<int64_t>());
    EXPECT_LE(largest_difference(hidden, c["hidden_in"]), hidden_abs);
    auto token = c["bonus_token"].get<Token>();
    EXPECT_EQ(best(one->logits()), token);
    for (const json& step : c["steps"]) {
      const Draft made = draft_ok(*pair.draft_model, *one, token, hidden);
      if (!step["logits"].is_null()) {
        EXPECT_LE(largest_difference(made.logits, step["logits"]), logits_abs);
      }
      EXPECT_LE(largest_difference(made.hidden, step["hidden_out"]), hidden_abs);
      token = best(made.logits);
      EXPECT_EQ(token, step["token"].get<Token>());
      hidden = made.hidden;
    }
  }
}

TEST(DraftModel, HalfCachesStayNear) {
  const Pair pair = load_pair({.threads = 1, .precise = true});
  const auto tokens = random_tokens(70);
  Rows rows[3];
  size_t i = 0;
  for (const KvType kv : {KvType::kF32, KvType::kF16, KvType::kQ8}) {
    const auto one = session(pair.target, kv);
    const std::vector<float> hidden = append_hidden(*one, tokens);
    rows[i++] = chain(*pair.draft_model, *one, 7, hidden, 1);
  }
  const json exact = rows[0][0];
  EXPECT_LE(largest_difference(rows[1][0], exact), 0.05);
  EXPECT_LE(largest_difference(rows[2][0], exact), 1);
  EXPECT_NE(first_difference(rows[0], rows[1]), "");
  EXPECT_NE(first_difference(rows[1], rows[2]), "");
}

// ---------------------------------------------------------------- against the oracle

double difference(std::span<const float> a, std::span<const double> b) {
  if (a.size() != b.size()) return INFINITY;
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = std::fabs(static_cast<double>(a[i]) - b[i]);
    if (!(d <= largest)) largest = d;  // a NaN stays
  }
  return largest;
}

// A step behind each of these lengths, with any row and token: nothing is special about greedy
// ones.
void expect_oracle(const std::string& target, const std::optional<StreamOptions>& stream,
                   std::span<const int64_t> lengths) {
  const Oracle theirs(target);
  const Oracle oracle(draft_model_file(), "", &theirs);
  const Pair pair = load_pair({.threads = 1, .precise = true}, target);
  SessionOptions options;
  options.keys = options.values = KvType::kF32;
  options.stream = stream;
  auto made = Session::make(pair.target, options);
  ASSERT_TRUE(made) << made.error().message;
  const auto tokens = random_tokens(lengths.back(), 5);
  std::mt19937 random(9);
  std::normal_distribution<float> normal;
  for (const int64_t length : lengths) {
    const auto done = static_cast<size_t>((*made)->length());
    expect_ok((*made)->append(std::span(tokens).subspan(done, static_cast<size_t>(length) - done)));
    std::vector<float> hidden(kWidth);
    for (float& x : hidden) x = normal(random);
    const auto token = static_cast<Token>(random() % 512);
    const Draft got = draft_ok(*pair.draft_model, **made, token, hidden);
    const Oracle::Draft want =
        oracle.draft(std::span(tokens).first(static_cast<size_t>(length)), token,
                     std::vector<double>(hidden.begin(), hidden.end()), stream);
    const std::string what =
        fmt::format("{}, {} tokens, {}", target, length, stream ? "streaming" : "full");
    EXPECT_LE(difference(got.logits, want.logits), kTolerance) << what;
    EXPECT_LE(difference(got.hidden, want.hidden), kTolerance) << what;
  }
}

constexpr int64_t kLengths[] = {1, 2, 7, 8, 9, 31, 32, 33, 64, 100, 130};

// Verifies answers.draft-models.
TEST(DraftModel, IsItsDefinitionAtAnyLength) {
  expect_oracle(target_file(), {}, kLengths);
  expect_oracle(golden("tiny/gemma4-dense/model.gguf"), {}, kLengths);  // no layer shares a cache
}

// Verifies answers.draft-models.
TEST(DraftModel, FollowsAStream) {
  for (const StreamOptions stream :
       {StreamOptions{4, 12}, StreamOptions{0, 8}, StreamOptions{40, 33}, StreamOptions{1, 64}})
    expect_oracle(target_file(), stream, kLengths);
}

// More keys than one part of attention's sum has, the step in a part without keys too.
TEST(DraftModel, ReadsLongContexts) {
  constexpr int64_t kLong[] = {1024, 1025};
  expect_oracle(target_file(), {}, std::span(kLong).last(small_tests() ? 1 : 2));
}

// ---------------------------------------------------------------- the same bits

struct BitsCase {
  std::string target, draft_model;
  bool precise;
  KvType kv;
};

void expect_same_bits(const BitsCase& c) {
  const auto tokens = random_tokens(100, 3);
  const auto run = [&](ModelOptions options) {
    options.precise = c.precise;
    const Pair pair = load_pair(options, c.target, c.draft_model);
    Rows all;
    for (const size_t length : {1, 9, 32, 100}) {
      const auto one = session(pair.target, c.kv);
      for (auto& row : append_and_chain(*pair.draft_model, *one, std::span(tokens).first(length)))
        all.push_back(std::move(row));
    }
    return all;
  };
  const Rows expected = run({.threads = 1, .fuse = false, .isa = "scalar"});
  for (const std::string& isa : usable_sets()) {
    for (const bool fuse : {false, true}) {
      for (const bool repack : {true, false}) {
        for (const int threads : {1, 2}) {
          if (small_tests() && (threads == 1) == fuse) continue;
          const ModelOptions options{
              .threads = threads, .fuse = fuse, .isa = isa, .repack = repack};
          ASSERT_EQ(first_difference(expected, run(options)), "")
              << isa << (fuse ? ", fused" : "") << (repack ? "" : ", not repacked") << ", "
              << threads << " threads";
        }
      }
    }
  }
}

// Verifies answers.draft-models.
TEST(DraftModelBits, InstructionSetsPlansAndThreads) {
  expect_same_bits({target_file(), draft_model_file(), true, KvType::kF32});
  const Files files;
  write_quantized_draft_model(files("q8_0.gguf"));
  expect_same_bits({quantized_target(), files("q8_0.gguf"), false, KvType::kF16});
  expect_same_bits({quantized_target(), files("q8_0.gguf"), true, KvType::kBf16});
  expect_same_bits({quantized_target(), draft_model_file(), false, KvType::kQ8});
}

// Chunks, forks, rewinds, restored files, and what was drafted before.
// Verifies answers.draft-models.
TEST(DraftModelBits, AnyWayToTheSameTokens) {
  const Pair pair = load_pair({.threads = 2});
  const auto tokens = random_tokens(90, 8), others = random_tokens(20, 4);
  const auto straight = session(pair.target);
  const Rows want = append_and_chain(*pair.draft_model, *straight, tokens);
  const auto same = [&](Session& one, std::span<const float> hidden, const std::string& what) {
    EXPECT_EQ(first_difference(
                  chain(*pair.draft_model, one, best(straight->logits()), copy(hidden), 3), want),
              "")
        << what;
  };
  const auto cut = session(pair.target);
  for (size_t at = 0; at < 80; at += 10) {
    const std::vector<float> hidden = append_hidden(*cut, std::span(tokens).subspan(at, 10));
    draft_ok(*pair.draft_model, *cut, 5, hidden);
  }
  const std::vector<float> hidden = append_hidden(*cut, std::span(tokens).subspan(80));
  same(*cut, hidden, "in chunks, drafting after each");
  same(*cut->fork(), hidden, "a fork");
  expect_ok(cut->append(others));
  ASSERT_TRUE(cut->rewind(90));
  same(*cut, hidden, "taken back");
  const Files files;
  expect_ok(cut->save(files("session")));
  const auto restored = session(pair.target);
  expect_ok(restored->restore(files("session")));
  same(*restored, hidden, "restored");
}

// ---------------------------------------------------------------- the session

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Verifies answers.draft-models.
TEST(Drafting, ChangesNothingOfTheSession) {
  const Pair pair = load_pair({.threads = 2});
  const Files files;
  const auto then = random_tokens(40, 6);
  for (const std::optional<StreamOptions>& stream :
       {std::optional<StreamOptions>(), std::optional(StreamOptions{4, 28})}) {
    for (const int64_t length : {1, 31, 32, 64, 77}) {  // also where a new block would begin
      const auto tokens = random_tokens(length, 2);
      SessionOptions options;
      options.stream = stream;
      auto one = Session::make(pair.target, options), alone = Session::make(pair.target, options);
      ASSERT_TRUE(one && alone);
      const std::vector<float> hidden = append_hidden(**one, tokens);
      expect_ok((*alone)->append(tokens));
      const std::vector<float> logits = copy((*one)->logits());
      chain(*pair.draft_model, **one, 3, hidden, 4);
      EXPECT_EQ((*one)->length(), length);
      EXPECT_EQ(held_bytes(**one), held_bytes(**alone));
      EXPECT_EQ(first_difference({copy((*one)->logits())}, {logits}), "");
      expect_ok((*one)->save(files("drafted")));
      expect_ok((*alone)->save(files("alone")));
      EXPECT_EQ(bytes_of(files("drafted")), bytes_of(files("alone")));
      EXPECT_EQ(first_difference(append_rows(**one, then), append_rows(**alone, then)), "");
    }
  }
}

// The tokens of an append under way are in the caches already, but not in the session.
TEST(Drafting, SeesNoTokensOfAnUnfinishedAppend) {
  ModelOptions options;
  options.ubatch_size = 16;
  const auto target = load(target_file(), options);
  ModelOptions with;
  with.target = target;
  const auto draft_model = load(draft_model_file(), with);
  const auto one = session(target);
  const std::vector<float> hidden = append_hidden(*one, random_tokens(20));
  const Draft before = draft_ok(*draft_model, *one, 9, hidden);
  int calls = 0;
  const auto check = [&] {
    const Draft now = draft_ok(*draft_model, *one, 9, hidden);
    EXPECT_EQ(now.logits, before.logits);
    EXPECT_EQ(now.hidden, before.hidden);
    ++calls;
  };
  for (const int64_t more : {8, 50}) {  // in one pass, and in several
    const auto fork = one->fork();
    expect_ok(one->append_each(
        random_tokens(more, 2),
        [&](int64_t index, std::span<const float>) {
          if (index % 10 == 5) check();
        },
        [&](const Progress& progress) {
          if (progress.done < progress.total) check();
          return true;
        }));
    expect_ok(one->assign(*fork));
  }
  EXPECT_GT(calls, 6);
}

TEST(Drafting, ThreadsDraftForSessionsOfOneTarget) {
  const Pair pair = load_pair({.threads = 2});
  constexpr int kThreads = 4;
  std::vector<Rows> want(kThreads), got(kThreads);
  const auto run = [&](int i) {
    const auto one = session(pair.target);
    return append_and_chain(*pair.draft_model, *one,
                            random_tokens(30 + i, static_cast<unsigned>(i)));
  };
  for (int i = 0; i < kThreads; ++i) want[static_cast<size_t>(i)] = run(i);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] { got[static_cast<size_t>(i)] = run(i); });
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < kThreads; ++i) EXPECT_EQ(first_difference(got[i], want[i]), "") << i;
}

TEST(Drafting, KeepsTheTargetAlive) {
  Pair pair = load_pair({.threads = 1});
  const auto one = session(pair.target);
  pair.target.reset();
  EXPECT_EQ(append_and_chain(*pair.draft_model, *one, random_tokens(5)).size(), 6u);
  const auto draft_model = draft_model_of(load(target_file()));
  EXPECT_NE(draft_model->explain().find("target.token_embd.weight{64,512}"), std::string::npos)
      << draft_model->explain();
  EXPECT_EQ(draft_model->vocabulary().piece(300), one->model().vocabulary().piece(300));
  EXPECT_GT(costs(*draft_model).row_operations, 0u);
  EXPECT_TRUE(context_memory(*draft_model, {})->layers.empty());
}

// ---------------------------------------------------------------- a round of guesses

// What a session and a draft model go on from: the token that was drawn, not yet appended, and the
// row that it was drawn from.
struct State {
  Token token;
  std::vector<float> hidden;
};

// Appends the token and its guesses, takes back what does not hold, and says how many did. The
// tokens that are sure now go to *out; rows of logits of those that stay to *logits.
size_t verify(Session& session, std::span<const Token> guesses, State* state,
              std::vector<Token>* out, Rows* logits) {
  std::vector<Token> tokens{state->token};
  tokens.insert(tokens.end(), guesses.begin(), guesses.end());
  const int64_t before = session.length();
  Rows rows, hidden;
  const auto keep = [](Rows* to) {
    return [to](int64_t, std::span<const float> row) { to->push_back(copy(row)); };
  };
  const AppendItem item{&session, tokens, true, keep(&rows), keep(&hidden)};
  expect_ok(append_batch({&item, 1})[0]);
  size_t right = 0;
  while (right < guesses.size() && best(rows[right]) == guesses[right]) ++right;
  EXPECT_TRUE(session.rewind(before + 1 + static_cast<int64_t>(right)));
  out->insert(out->end(), guesses.begin(), guesses.begin() + static_cast<std::ptrdiff_t>(right));
  *state = {best(rows[right]), hidden[right]};
  out->push_back(state->token);
  rows.resize(right + 1);
  for (auto& row : rows) logits->push_back(std::move(row));
  return right;
}

// A random draft model guesses little, so some rounds get right guesses, with or without a wrong
// one behind them: then row m of the round, not its last one, is what counts. Verifies
// answers.draft-models.
TEST(Drafting, RoundsGiveTheTargetsOwnTokens) {
  const Pair pair = load_pair({.threads = 2});
  const auto prompt = random_tokens(40, 11);
  constexpr size_t kTokens = 60;
  const auto plain = session(pair.target);
  std::vector<Token> want;
  Rows want_logits, want_hidden;
  want_hidden.push_back(append_hidden(*plain, prompt));
  while (want.size() < kTokens) {
    want.push_back(best(plain->logits()));
    want_hidden.push_back(append_hidden(*plain, {&want.back(), 1}));
    want_logits.push_back(copy(plain->logits()));
  }

  const auto one = session(pair.target);
  State state{0, append_hidden(*one, prompt)};
  state.token = best(one->logits());
  std::vector<Token> got{state.token};
  Rows logits;
  std::vector<size_t> accepted;
  std::mt19937 random(1);
  while (got.size() + 5 < kTokens) {
    ASSERT_EQ(first_difference({state.hidden}, {want_hidden[got.size() - 1]}), "");
    std::vector<Token> guesses;
    std::vector<float> hidden = state.hidden;
    Token token = state.token;
    const size_t known = random() % 4;
    for (size_t k = 0; k < 4; ++k) {
      const Draft step = draft_ok(*pair.draft_model, *one, token, hidden);
      token = k < known ? want[got.size() + k] : best(step.logits);
      hidden = step.hidden;
      guesses.push_back(token);
    }
    accepted.push_back(verify(*one, guesses, &state, &got, &logits));
    EXPECT_EQ(one->length(), static_cast<int64_t>(prompt.size() + got.size()) - 1);
  }
  want.resize(got.size());
  EXPECT_EQ(got, want);
  want_logits.resize(logits.size());
  EXPECT_EQ(first_difference(logits, want_logits), "");
  for (const size_t m : {0, 1, 2, 3}) EXPECT_NE(std::count(accepted.begin(), accepted.end(), m), 0);
}

// ---------------------------------------------------------------- hidden rows of sessions

// Verifies answers.draft-models.
TEST(HiddenRows, AreTheSameHoweverTheyAreAskedFor) {
  const auto model = load(quantized_target(), {.threads = 2, .ubatch_size = 16});
  const auto tokens = random_tokens(50, 12);
  Rows logits, hidden;
  std::vector<int64_t> order;
  const auto one = session(model);
  const AppendItem each{one.get(), tokens, true,
                        [&](int64_t index, std::span<const float> row) {
                          order.push_back(index);
                          logits.push_back(copy(row));
                        },
                        [&](int64_t index, std::span<const float> row) {
                          order.push_back(index);
                          hidden.push_back(copy(row));
                        }};
  expect_ok(append_batch({&each, 1})[0]);
  ASSERT_EQ(hidden.size(), tokens.size());
  ASSERT_EQ(order.size(), 2 * tokens.size());
  for (size_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], static_cast<int64_t>(i / 2));
  for (const auto& row : hidden) ASSERT_EQ(row.size(), static_cast<size_t>(kWidth));
  EXPECT_EQ(first_difference(append_rows(*session(model), tokens), logits), "");
  EXPECT_EQ(first_difference({append_hidden(*session(model), tokens)}, {hidden.back()}), "");

  // Beside a session that asks for none, and one that asks for nothing at all.
  const auto a = session(model), b = session(model), c = session(model);
  Rows rows;
  const auto keep = [&](int64_t, std::span<const float> row) { rows.push_back(copy(row)); };
  const AppendItem items[] = {{a.get(), tokens},
                              {b.get(), std::span(tokens).first(20), false, {}, keep},
                              {c.get(), tokens, false}};
  for (const auto& result : append_batch(items)) expect_ok(result);
  EXPECT_EQ(first_difference(rows, {hidden[19]}), "");
  EXPECT_EQ(first_difference({copy(a->logits())}, {logits.back()}), "");
  EXPECT_TRUE(b->logits().empty());
  EXPECT_TRUE(c->logits().empty());
}

TEST(HiddenRows, OfADefinitionWithoutThemAreRefused) {
  const Files files;
  std::ofstream(files("mine.arch")) << "arch-lang 1\narch llama\ninclude llama\n\nmodel:\n"
                                       "  x = embed(token_embd)\n  layers: layer\n"
                                       "  x = rms_norm(x, output_norm, eps)\n"
                                       "  output logits = linear(x, output | token_embd)\n";
  ModelOptions options;
  options.arch_dir = files("");
  const auto one = session(load(golden("tiny/llama/model.gguf"), options));
  const Token token = 5;
  int calls = 0;
  const AppendItem item{
      one.get(), {&token, 1}, true, {}, [&](int64_t, std::span<const float>) { ++calls; }};
  const auto refused = append_batch({&item, 1})[0];
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(refused.error().message.find("mine.arch"), std::string::npos)
      << refused.error().message;
  EXPECT_NE(refused.error().message.find("no output 'hidden'"), std::string::npos);
  EXPECT_EQ(one->length(), 0);
  EXPECT_EQ(calls, 0);
  expect_ok(one->append({&token, 1}));
}

// ---------------------------------------------------------------- refusals

void expect_refused(const std::string& file, const ModelOptions& options, ErrorCode code,
                    const std::vector<std::string>& parts) {
  const auto model = Model::load(file, options);
  ASSERT_FALSE(model) << file;
  EXPECT_EQ(model.error().code, code) << model.error().message;
  for (const std::string& part : parts)
    EXPECT_NE(model.error().message.find(part), std::string::npos)
        << part << " is not in: " << model.error().message;
}

// Verifies answers.draft-models.
TEST(Refused, ADraftModelAlone) {
  for (const bool text_only : {false, true}) {
    ModelOptions options;
    options.text_only = text_only;
    expect_refused(
        draft_model_file(), options, ErrorCode::kUnsupported,
        {draft_model_file(), "this is a draft model", "its target", "ModelOptions::target"});
  }
}

// Verifies answers.draft-models.
TEST(Refused, TargetsThatItWasNotMadeFor) {
  const auto with = [](const std::string& name, ModelOptions how = {}) {
    ModelOptions options;
    options.target = load(golden("tiny/" + name), how);
    return options;
  };
  const std::string advice = "the model that it was trained for";
  expect_refused(draft_model_file(), with("llama/model.gguf"), ErrorCode::kUnsupported,
                 {"llama/model.gguf (architecture llama) has no hyperparameter 'local'", advice});
  expect_refused(draft_model_file(), with("bert/model.gguf"), ErrorCode::kUnsupported,
                 {"bert/model.gguf is a model of kind encoder", advice});
  ModelOptions drafting;
  drafting.target = draft_model_of(load(target_file()));
  expect_refused(draft_model_file(), drafting, ErrorCode::kUnsupported,
                 {"is a model of kind draft", advice});
  expect_refused(draft_model_file(), with("gemma4-e/model.gguf", {.text_only = true}),
                 ErrorCode::kInvalidArgument, {"loaded with text_only"});
  expect_refused(golden("tiny/llama/model.gguf"), with("gemma4-e/model.gguf"),
                 ErrorCode::kUnsupported, {"is of kind decoder", "without a target"});
  ModelOptions threads = with("gemma4-e/model.gguf", {.threads = 2});
  threads.threads = 3;
  expect_refused(draft_model_file(), threads, ErrorCode::kInvalidArgument,
                 {"threads of its target, which are 2"});
  threads.threads = 2;
  EXPECT_TRUE(Model::load(draft_model_file(), threads));
}

// Copies of a file with bytes replaced by as many others.
void write_changed(const std::string& source, const std::string& path, const std::string& from,
                   const std::string& to) {
  std::string bytes = bytes_of(source);
  ASSERT_EQ(from.size(), to.size());
  size_t count = 0;
  for (size_t at = bytes.find(from); at != std::string::npos;
       at = bytes.find(from, at + 1), ++count)
    bytes.replace(at, from.size(), to);
  ASSERT_GT(count, 0u) << from;
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string number(uint64_t n, size_t bytes) {
  std::string out(bytes, '\0');
  std::memcpy(out.data(), &n, bytes);
  return out;
}

// Verifies answers.draft-models.
TEST(Refused, FilesThatDoNotFitTheTarget) {
  const Files files;
  ModelOptions options;
  options.target = load(target_file());
  const std::string path = files("changed.gguf");
  const std::string u32 = number(4, 4);

  write_changed(draft_model_file(), path, "embedding_length_out" + u32 + number(64, 4),
                "embedding_length_out" + u32 + number(96, 4));
  expect_refused(path, options, ErrorCode::kUnsupported,
                 {path, "belongs to another model", "embedding_length_out"});
  write_changed(draft_model_file(), path, "nextn_predict_layers" + u32 + number(4, 4),
                "nextn_predict_layers" + u32 + number(3, 4));
  expect_refused(path, options, ErrorCode::kUnsupported, {"only some layers predict"});

  // The vocabulary: another number of logits, another word, another number of words.
  const std::string head = "token_embd.weight" + number(2, 4) + number(32, 8);
  write_changed(draft_model_file(), path, head + number(512, 8), head + number(511, 8));
  expect_refused(path, options, ErrorCode::kUnsupported,
                 {"computes 511 logits", target_file(), "512 tokens"});
  Token id = 260;  // of a word that the file spells as it is
  const auto spelled = [&] {
    const std::string piece(options.target->vocabulary().piece(id));
    return piece.size() > 2 && std::all_of(piece.begin(), piece.end(),
                                           [](unsigned char c) { return std::isalpha(c) != 0; });
  };
  while (!spelled()) ASSERT_LT(++id, 512);
  const std::string word(options.target->vocabulary().piece(id));
  const std::string length = number(word.size(), 8);
  write_changed(draft_model_file(), path, length + word,
                length + std::string(word.size(), word[0] == 'Q' ? 'W' : 'Q'));
  expect_refused(
      path, options, ErrorCode::kUnsupported,
      {fmt::format("token {} of the draft model's vocabulary differs", id), target_file()});
  write_changed(draft_model_file(), path, "tokenizer.ggml.tokens", "tokenizer.ggml.tokenz");
  EXPECT_TRUE(Model::load(path, options));  // which has no text of its own
  write_changed(path, files("scores.gguf"), "tokenizer.ggml.merges", "tokenizer.ggml.tokens");
  expect_refused(files("scores.gguf"), options, ErrorCode::kUnsupported,
                 {"vocabulary of ", "one of 512"});
}

// The target is as it was loaded, whatever folder of architecture files the draft model is loaded
// with.
TEST(Target, ItsDefinitionIsTheOneItWasLoadedWith) {
  const Files files;
  std::ofstream(files("gemma4.arch")) << "arch-lang 1\narch gemma4\ninclude gemma4\n"
                                         "let spare = 1\nrequire spare == 1, \"a part\"\n";
  ModelOptions changed, options;
  changed.arch_dir = files("");
  options.target = load(target_file(), changed);
  const auto built_in = Model::load(draft_model_file(), options);
  ASSERT_TRUE(built_in) << built_in.error().message;
  changed.target = options.target;
  const auto from_folder = Model::load(draft_model_file(), changed);
  ASSERT_TRUE(from_folder) << from_folder.error().message;
  EXPECT_EQ((*built_in)->explain(), (*from_folder)->explain());
  // A folder whose text of the target is broken by now is no matter either.
  std::ofstream(files("gemma4.arch")) << "nonsense\n";
  EXPECT_TRUE(Model::load(draft_model_file(), changed));
}

void expect_refused(const Result<Draft>& made, ErrorCode code, const std::string& part) {
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, code) << made.error().message;
  EXPECT_NE(made.error().message.find(part), std::string::npos) << made.error().message;
}

TEST(Refused, Steps) {
  const Pair pair = load_pair({.threads = 1});
  const auto one = session(pair.target);
  std::vector<float> hidden(kWidth, 0.5f);
  const auto step = [&](Token token) { return draft(*pair.draft_model, *one, token, hidden); };
  expect_refused(step(5), ErrorCode::kInvalidArgument, "append the prompt before drafting");
  expect_ok(one->append(random_tokens(3)));
  EXPECT_TRUE(step(5));
  expect_refused(step(-1), ErrorCode::kInvalidArgument, "ids are 0 to 511");
  expect_refused(step(512), ErrorCode::kInvalidArgument, "token 512");
  expect_refused(draft(*pair.target, *one, 5, hidden), ErrorCode::kUnsupported,
                 "is a model of kind decoder");
  const auto stranger = session(load(target_file()));
  expect_ok(stranger->append(random_tokens(3)));
  expect_refused(draft(*pair.draft_model, *stranger, 5, hidden), ErrorCode::kInvalidArgument,
                 "another model than the target that the draft model was loaded with");
  hidden[7] = std::numeric_limits<float>::quiet_NaN();
  expect_refused(step(5), ErrorCode::kNumeric, "not finite");
  hidden[7] = 0;
  hidden.pop_back();
  expect_refused(step(5), ErrorCode::kInvalidArgument,
                 "has 63 numbers, but the draft model takes 64");
  hidden.push_back(0);
  EXPECT_TRUE(step(5));
  const auto text = draft_model_of(pair.target, {.text_only = true});
  expect_refused(draft(*text, *one, 5, hidden), ErrorCode::kInvalidArgument, "text_only");
}

TEST(Refused, SessionsAndVectorsOfADraftModel) {
  const Pair pair = load_pair({.threads = 1});
  const auto made = Session::make(pair.draft_model, {});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(made.error().message.find("culet::draft"), std::string::npos) << made.error().message;
  const std::vector<std::vector<Token>> sequences{{1, 2}};
  const auto rows = encode(*pair.draft_model, sequences);
  ASSERT_FALSE(rows);
  EXPECT_NE(rows.error().message.find("is a model of kind draft"), std::string::npos)
      << rows.error().message;
}

}  // namespace
}  // namespace culet::test
