// Sessions and generation through the public API, on tiny models: what errors and cancelling leave
// behind, the order of events, several models and threads in one process.
#include "culet/culet.h"
#include "support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <thread>
#include <unistd.h>

namespace culet::test {
namespace {

std::string llama() { return golden("tiny/llama/model-q8_0.gguf"); }
std::string gemma() { return golden("tiny/gemma3/model-q8_0.gguf"); }

std::vector<Token> some_tokens(size_t n) {
  std::vector<Token> tokens;
  for (size_t i = 0; i < n; ++i) tokens.push_back(static_cast<Token>(7 + (i * 37) % 200));
  return tokens;
}

std::unique_ptr<Session> with_context(std::shared_ptr<const Model> model, int64_t context) {
  auto made = Session::make(std::move(model), {.context = context});
  EXPECT_TRUE(made) << made.error().message;
  return *std::move(made);
}

// ---------------------------------------------------------------- sessions

// Verifies answers.generate.
TEST(Session, AFullContextIsAnErrorBeforeAnyWork) {
  const auto one = with_context(load(llama()), 20);
  expect_ok(one->append(some_tokens(15)));
  const std::vector<float> before(one->logits().begin(), one->logits().end());
  int passes = 0;
  const auto refused = one->append(some_tokens(6), [&](const Progress&) { return ++passes > 0; });
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kExhausted);
  EXPECT_NE(refused.error().message.find("20"), std::string::npos) << refused.error().message;
  EXPECT_NE(refused.error().message.find("21"), std::string::npos) << refused.error().message;
  EXPECT_EQ(passes, 0);
  EXPECT_EQ(one->tokens().size(), 15u);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), one->logits().begin()));
  expect_ok(one->append(some_tokens(5)));
}

TEST(Session, TheContextIsAtMostWhatTheModelWasTrainedFor) {
  const auto model = load(llama());
  EXPECT_EQ(session(model)->context(), model->info().context_length);
  const auto refused = Session::make(model, {.context = model->info().context_length + 1});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_FALSE(Session::make(model, {.context = -1}));
}

TEST(Session, TokensOutsideTheVocabularyAreRefused) {
  const auto one = session(load(llama()));
  for (const Token bad : {-1, 512, INT32_MAX}) {
    const std::vector<Token> tokens{5, bad, 6};
    const auto refused = one->append(tokens);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
    EXPECT_TRUE(one->tokens().empty());
  }
  expect_ok(one->append({}));
  EXPECT_TRUE(one->logits().empty());
}

// Also where the window of a layer has already dropped what the old length needs.
// Verifies memory.pool.
TEST(Session, CancelLeavesTheSessionAsItWas) {
  for (const std::string& file : {llama(), gemma()}) {
    ModelOptions options;
    options.ubatch_size = 16;
    const auto model = load(file, options);
    const auto tokens = some_tokens(40), more = some_tokens(300), then = some_tokens(9);
    const auto one = session(model), straight = session(model);
    expect_ok(one->append(tokens));
    const std::vector<float> before(one->logits().begin(), one->logits().end());
    const auto stopped = one->append(more, [](const Progress& p) { return p.done < 200; });
    ASSERT_FALSE(stopped);
    EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
    EXPECT_EQ(one->tokens().size(), tokens.size());
    EXPECT_TRUE(std::equal(before.begin(), before.end(), one->logits().begin()));
    append_rows(*straight, tokens);
    EXPECT_EQ(first_difference(append_rows(*one, then), append_rows(*straight, then)), "") << file;
  }
}

TEST(Session, RewindTooFarChangesNothing) {
  const auto model = load(gemma());
  const auto one = session(model), straight = session(model);
  const auto tokens = some_tokens(200), then = some_tokens(3);
  expect_ok(one->append(tokens));
  expect_ok(straight->append(tokens));
  EXPECT_FALSE(one->rewind(201));
  EXPECT_FALSE(one->rewind(-1));
  EXPECT_TRUE(one->rewind(200));
  if (!one->rewind(40)) {
    EXPECT_EQ(one->tokens().size(), tokens.size());
    EXPECT_EQ(first_difference(append_rows(*one, then), append_rows(*straight, then)), "");
  }
  EXPECT_TRUE(one->rewind(0) || one->tokens().size() == 203);
}

TEST(Session, ATextOnlyModelHasNone) {
  ModelOptions options;
  options.text_only = true;
  const auto model = load(gemma(), options);
  EXPECT_EQ(*model->vocabulary().tokenize("the rain"),
            *load(gemma())->vocabulary().tokenize("the rain"));
  EXPECT_NE(model->explain().find("rope"), std::string::npos);
  const auto refused = Session::make(model, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
}

TEST(Session, MemoryGrowsWithTokensAndGoesWithClear) {
  const auto one = session(load(llama()));
  const uint64_t empty = held_bytes(*one);
  expect_ok(one->append(some_tokens(500)));
  EXPECT_GT(held_bytes(*one), empty);
}

// ---------------------------------------------------------------- probabilities

TEST(Logits, ProbabilitiesAddUp) {
  const auto model = load(llama());
  const auto one = session(model);
  expect_ok(one->append(some_tokens(10)));
  const auto all = distribution(*model, one->logits(), 512);
  ASSERT_TRUE(all);
  ASSERT_EQ(all->top.size(), 512u);
  double sum = 0, entropy = 0;
  for (size_t i = 0; i < all->top.size(); ++i) {
    const auto [id, logprob] = all->top[i];
    EXPECT_LE(logprob, all->top[i > 0 ? i - 1 : 0].logprob);
    EXPECT_NEAR(*culet::logprob(*model, one->logits(), id), logprob, 1e-5);
    sum += std::exp(static_cast<double>(logprob));
    entropy -= std::exp(static_cast<double>(logprob)) * logprob;
  }
  EXPECT_NEAR(sum, 1, 1e-5);
  EXPECT_NEAR(all->entropy, entropy, 1e-4);
  EXPECT_EQ(all->top[0].id, best(one->logits()));
  EXPECT_EQ(distribution(*model, one->logits(), 3)->top.size(), 3u);
}

TEST(Logits, NumbersThatAreNoneAreErrors) {
  const auto model = load(llama());
  std::vector<float> logits(512, 0.5f);
  logits[100] = NAN;
  EXPECT_EQ(logprob(*model, logits, 3).error().code, ErrorCode::kNumeric);
  logits[100] = INFINITY;
  EXPECT_EQ(distribution(*model, logits, 3).error().code, ErrorCode::kNumeric);
  logits[100] = 0.5f;
  EXPECT_EQ(logprob(*model, logits, 512).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(logprob(*model, std::span(logits).first(9), 1).error().code,
            ErrorCode::kInvalidArgument);
}

// ---------------------------------------------------------------- generate

struct Recorded {
  std::string kinds;  // s p t a f
  std::vector<Token> ids;
  std::string text;
};

EventFn recorder(Recorded* all, size_t stop_after = SIZE_MAX) {
  return [all, stop_after](const Event& event) {
    all->kinds += "sptaf"[event.index()];
    if (const auto* delta = std::get_if<TextDelta>(&event)) {
      if (delta->id >= 0) all->ids.push_back(delta->id);
      all->text += delta->text;
    }
    return all->ids.size() < stop_after;
  };
}

GenerateOptions options(int64_t max_tokens, float temperature = 0, uint64_t seed = 0) {
  GenerateOptions made;
  made.max_tokens = max_tokens;
  made.sampling.temperature = temperature;
  made.sampling.seed = seed;
  return made;
}

TEST(Generate, EventsComeInOrderAndTheSessionHoldsTheAnswer) {
  const auto model = load(gemma());
  const auto one = session(model);
  const auto prompt = some_tokens(12);
  Recorded all;
  const auto finished = generate(*one, prompt, options(20), recorder(&all));
  ASSERT_TRUE(finished) << finished.error().message;
  EXPECT_EQ(all.kinds.front(), 's');
  EXPECT_EQ(all.kinds.back(), 'f');
  EXPECT_EQ(std::count(all.kinds.begin(), all.kinds.end(), 'f'), 1);
  EXPECT_EQ(finished->cost.prompt_tokens, 12);
  EXPECT_EQ(finished->cost.generated_tokens, static_cast<int64_t>(all.ids.size()));
  std::vector<Token> held(prompt);
  held.insert(held.end(), all.ids.begin(), all.ids.end());
  EXPECT_TRUE(std::equal(held.begin(), held.end(), one->tokens().begin(), one->tokens().end()));
  const auto straight = session(model);
  expect_ok(straight->append(held));
  EXPECT_EQ(first_difference({{one->logits().begin(), one->logits().end()}},
                             {{straight->logits().begin(), straight->logits().end()}}),
            "");
}

// Verifies reports-bits.llama.cpp#38.
TEST(Generate, TheSameSeedGivesTheSameText) {
  const auto model = load(llama());
  std::set<std::vector<Token>> answers;
  for (const uint64_t seed : {1, 1, 2, 3}) {
    Recorded all;
    ASSERT_TRUE(generate(*session(model), some_tokens(5), options(12, 1.5f, seed), recorder(&all)));
    answers.insert(all.ids);
  }
  EXPECT_EQ(answers.size(), 3u);
}

// Verifies answers.stream.
TEST(Generate, EndsForEveryReason) {
  const auto model = load(llama());
  Recorded all;
  auto finished = generate(*session(model), some_tokens(5), options(3, 1), recorder(&all));
  EXPECT_TRUE(finished->reason == FinishReason::kLength || finished->reason == FinishReason::kStop);
  finished = generate(*session(model), some_tokens(5), options(0), {});
  EXPECT_EQ(finished->reason, FinishReason::kLength);
  EXPECT_EQ(finished->cost.generated_tokens, 0);
  all = {};
  finished = generate(*session(model), some_tokens(5), options(100, 1), recorder(&all, 2));
  EXPECT_EQ(finished->reason, FinishReason::kCancelled);
  EXPECT_EQ(all.kinds.back(), 'f');
  EXPECT_EQ(all.ids.size(), 2u);
  const auto small = with_context(model, 9);
  finished = generate(*small, some_tokens(5), options(-1, 1), recorder(&all));
  EXPECT_TRUE(finished->reason == FinishReason::kContext ||
              finished->reason == FinishReason::kStop);
  EXPECT_LE(small->tokens().size(), 9u);
}

TEST(Generate, AnEndTokenIsNotPartOfTheAnswer) {
  const auto model = load(llama());
  // At a high temperature over 512 tokens one of the end tokens comes up for some seed.
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Recorded all;
    const auto one = session(model);
    const auto finished = generate(*one, some_tokens(5), options(60, 50, seed), recorder(&all));
    if (finished->reason != FinishReason::kStop) continue;
    for (const Token token : all.ids) EXPECT_FALSE(model->vocabulary().is_end_of_generation(token));
    EXPECT_EQ(one->tokens().size(), 5 + all.ids.size());
    return;
  }
  FAIL() << "no answer ended";
}

// Verifies answers.stream.
TEST(Generate, StopsWhileThePromptIsRead) {
  ModelOptions small;
  small.ubatch_size = 8;
  const auto one = session(load(llama(), small));
  std::string kinds;
  const auto finished = generate(*one, some_tokens(50), options(5), [&](const Event& event) {
    kinds += "sptaf"[event.index()];
    return event.index() != 1;
  });
  ASSERT_TRUE(finished);
  EXPECT_EQ(finished->reason, FinishReason::kCancelled);
  EXPECT_EQ(kinds, "spf");
  EXPECT_TRUE(one->tokens().empty());
}

// Verifies reports-bits.llama.cpp#38.
TEST(Generate, ContinuesFromTheLogitsOfTheSession) {
  const auto model = load(llama());
  const auto one = session(model), two = session(model);
  Recorded a, b;
  ASSERT_TRUE(generate(*one, some_tokens(5), options(8), recorder(&a)));
  expect_ok(two->append(some_tokens(5)));
  ASSERT_TRUE(generate(*two, {}, options(8), recorder(&b)));
  EXPECT_EQ(a.ids, b.ids);
  const auto refused = generate(*session(model), {}, options(8), {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
}

// What the session says after every token is what the events say.
// Verifies reports-bits.llama.cpp#8942.
TEST(Generate, LogprobsAreThoseOfTheSession) {
  const auto model = load(llama());
  GenerateOptions made = options(6, 2);
  made.sampling.repeat_penalty = 1.5f;  // changes what is drawn, not what is told
  made.logprobs = 3;
  struct Reported {
    Token id;
    std::optional<float> logprob;
    std::vector<TokenLogprob> top;
  };
  std::vector<Reported> deltas;
  const auto record = [&](const Event& event) {
    if (const auto* delta = std::get_if<TextDelta>(&event))
      deltas.push_back({delta->id, delta->logprob, {delta->top.begin(), delta->top.end()}});
    return true;
  };
  ASSERT_TRUE(generate(*session(model), some_tokens(5), made, record));
  const auto straight = session(model);
  expect_ok(straight->append(some_tokens(5)));
  ASSERT_FALSE(deltas.empty());
  for (const Reported& delta : deltas) {
    if (delta.id < 0) continue;
    const auto wanted = distribution(*model, straight->logits(), 3);
    ASSERT_TRUE(delta.logprob);
    EXPECT_EQ(*delta.logprob,
              static_cast<float>(*culet::logprob(*model, straight->logits(), delta.id)));
    ASSERT_EQ(delta.top.size(), 3u);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(delta.top[i].id, wanted->top[i].id);
      EXPECT_EQ(delta.top[i].logprob, wanted->top[i].logprob);
    }
    expect_ok(straight->append({&delta.id, 1}));
  }
}

bool ascii(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<int8_t>(c) >= 0; });
}

// Every text that the answer holds cuts it there, wherever the tokens' borders are.
TEST(Generate, StopsCutTheTextAlsoAcrossTokens) {
  const auto model = load(llama());
  int cut = 0;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    Recorded whole;
    const auto made_of = [&](std::vector<std::string> stops) {
      GenerateOptions made = options(40, 1.5f, seed);
      made.stop = std::move(stops);
      return made;
    };
    ASSERT_TRUE(generate(*session(model), some_tokens(5), made_of({}), recorder(&whole)));
    for (size_t at = 1; at + 5 < whole.text.size(); at += 5) {
      const std::string stop = whole.text.substr(at, 4);
      if (!ascii(stop)) continue;
      Recorded all;
      const auto one = session(model);
      const auto finished =
          generate(*one, some_tokens(5), made_of({"never in there", stop}), recorder(&all));
      ASSERT_TRUE(finished) << finished.error().message;
      EXPECT_EQ(all.text, whole.text.substr(0, whole.text.find(stop))) << stop;
      EXPECT_EQ(finished->reason, FinishReason::kStop);
      EXPECT_EQ(finished->stop, stop);
      EXPECT_EQ(one->tokens().size(), 5 + all.ids.size());
      ++cut;
    }
  }
  EXPECT_GT(cut, 3);
}

// Verifies answers.stream.
TEST(Generate, HeldBackTextComesAtTheEnd) {
  const auto model = load(llama());
  int held = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Recorded whole, all;
    GenerateOptions made = options(20, 1.5f, seed);
    ASSERT_TRUE(generate(*session(model), some_tokens(5), made, recorder(&whole)));
    if (whole.text.empty() || !ascii(whole.text.substr(whole.text.size() - 1))) continue;
    made.stop = {whole.text.substr(whole.text.size() - 1) + " and more that never comes"};
    const auto finished = generate(*session(model), some_tokens(5), made, recorder(&all));
    ASSERT_TRUE(finished) << finished.error().message;
    EXPECT_EQ(all.text, whole.text);
    EXPECT_EQ(all.ids, whole.ids);
    EXPECT_EQ(finished->stop, "");
    ++held;
  }
  EXPECT_GT(held, 0);
  GenerateOptions empty = options(20);
  empty.stop = {""};
  EXPECT_EQ(generate(*session(model), some_tokens(5), empty, {}).error().code,
            ErrorCode::kInvalidArgument);
}

TEST(Generate, PenaltiesLookAtPromptAndAnswer) {
  const auto model = load(llama());
  const auto prompt = some_tokens(30);
  GenerateOptions made = options(60);
  made.sampling.presence_penalty = 100;
  made.sampling.repeat_last_n = -1;
  Recorded all;
  ASSERT_TRUE(generate(*session(model), prompt, made, recorder(&all)));
  std::set<Token> seen(prompt.begin(), prompt.end());
  for (const Token id : all.ids) EXPECT_TRUE(seen.insert(id).second) << id;
  EXPECT_GT(all.ids.size(), 1u);
}

TEST(Generate, RefusesOptionsThatMakeNoSense) {
  const auto model = load(llama());
  for (const SamplerOptions& bad :
       {SamplerOptions{.temperature = -1}, SamplerOptions{.temperature = NAN},
        SamplerOptions{.top_k = -1}, SamplerOptions{.top_p = 0}, SamplerOptions{.top_p = 2},
        SamplerOptions{.min_p = 2}, SamplerOptions{.logit_bias = {{512, 1}}}}) {
    GenerateOptions made;
    made.sampling = bad;
    const auto one = session(model);
    const auto refused = generate(*one, some_tokens(5), made, {});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
    EXPECT_TRUE(one->tokens().empty());
  }
}

// ---------------------------------------------------------------- memory

// Verifies reports-caches.ollama#16744, reports-loading.llama.cpp#12149.
TEST(Memory, WhatDoesNotFitIsRefusedBeforeTheWork) {
  int steps = 0;
  ModelOptions small;
  small.memory_limit = 1000;
  small.progress = [&steps](const Progress&) { return ++steps > 0; };
  const auto refused = Model::load(llama(), small);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kExhausted);
  EXPECT_NE(refused.error().message.find("needs"), std::string::npos) << refused.error().message;
  EXPECT_EQ(steps, 0);
  small.text_only = true;
  EXPECT_TRUE(Model::load(llama(), small));
  const auto model = load(llama());
  const ModelInfo& info = model->info();
  ModelOptions enough;
  enough.memory_limit = info.packed_bytes + info.converted_bytes + info.workspace_bytes;
  const auto tight = load(llama(), enough);
  const SessionOptions all{.context = info.context_length, .keys = KvType::kF32};
  EXPECT_EQ(Session::make(tight, all).has_value(),
            context_memory(*tight, all)->peak <= enough.memory_limit);
  enough.memory_limit = UINT64_MAX;
  EXPECT_TRUE(Session::make(load(llama(), enough), all));
}

// What is told beforehand is what is there afterwards.
// Verifies reports-loading.llama.cpp#12149.
TEST(Memory, TheEstimateIsTrue) {
  for (const std::string& file : {llama(), gemma()}) {
    ModelOptions text_only;
    text_only.text_only = true;
    const auto told = load(file, text_only), real = load(file);
    EXPECT_EQ(told->info().packed_bytes, real->info().packed_bytes);
    EXPECT_EQ(told->info().workspace_bytes, real->info().workspace_bytes);
    const auto one = with_context(real, 600);
    expect_ok(one->append(some_tokens(600)));
    const auto memory = context_memory(*real, {.context = 600});
    ASSERT_TRUE(memory);
    const uint64_t logits = one->logits().size_bytes() + 64;  // and the header of their block
    const uint64_t held = held_bytes(*one) - logits - one->tokens().size_bytes();
    EXPECT_LE(held, memory->allocated);
    EXPECT_GE(held * 10, memory->allocated * 8);  // a window may be a block or two below its most
    EXPECT_LE(memory->payload, held);
    EXPECT_GE(memory->peak, memory->allocated);
  }
}

// ---------------------------------------------------------------- side by side

// Verifies memory.pool.
TEST(SideBySide, TwoModelsInOneProcess) {
  const auto tokens = some_tokens(30);
  const Rows alone_a = rows_of(llama(), {.threads = 1}, KvType::kF16, tokens);
  const Rows alone_b = rows_of(gemma(), {.threads = 1}, KvType::kF16, tokens);
  ModelOptions precise{.threads = 2, .precise = true};
  const auto a = load(llama(), {.threads = 2}), b = load(gemma(), {.threads = 2});
  const auto c = load(llama(), precise);
  const auto in_a = session(a), in_b = session(b), in_c = session(c);
  Rows rows_a, rows_b;
  for (const Token token : tokens) {
    rows_a.push_back(append_rows(*in_a, {&token, 1}).front());
    append_rows(*in_c, {&token, 1});
    rows_b.push_back(append_rows(*in_b, {&token, 1}).front());
  }
  EXPECT_EQ(first_difference(alone_a, rows_a), "");
  EXPECT_EQ(first_difference(alone_b, rows_b), "");
}

// Requirement memory.load-memo "load memo": no table of loaded models exists: a load is a value
// that its owner shares, an error is not remembered
// Requirement memory.pool "pool": sessions are not limited in number; they share one model's
// weights and take turns pass by pass, and a cancelled or failed one leaves the model as it was.
// Queues belong to the server, which is not built yet
TEST(SideBySide, ThreadsShareAModel) {
  const auto model = load(gemma(), {.threads = 2});
  std::vector<Rows> expected, got(4);
  for (size_t i = 0; i < got.size(); ++i) {
    expected.push_back(append_rows(*session(model), some_tokens(20 + 13 * i)));
  }
  std::vector<std::thread> threads;
  for (size_t i = 0; i < got.size(); ++i) {
    threads.emplace_back([&, i] {
      const std::vector<int64_t> chunks{3, 9, 1};
      got[i] = append_rows(*session(model), some_tokens(20 + 13 * i), chunks);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(first_difference(expected[i], got[i]), "");
}

// Verifies memory.load-memo.
TEST(SideBySide, SessionsOutliveTheirModelsOwner) {
  auto one = session(load(llama()));
  expect_ok(one->append(some_tokens(5)));
  EXPECT_FALSE(one->model().explain().empty());
}

}  // namespace
}  // namespace culet::test
