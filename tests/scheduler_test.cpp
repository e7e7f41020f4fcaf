// Many sequences in common forward passes, through the public headers alone: the same bits as
// alone, fair, each with its own end.
#include "culet/culet.h"
#include "support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <thread>

namespace culet::test {
namespace {

std::string llama() { return golden("tiny/llama/model.gguf"); }
std::string gemma() { return golden("tiny/gemma3/model.gguf"); }
std::string lfm() { return golden("tiny/lfm2/model.gguf"); }

GenerateOptions sampled(int64_t max_tokens, uint64_t seed, float temperature = 1) {
  GenerateOptions options;
  options.max_tokens = max_tokens;
  options.sampling.temperature = temperature;
  options.sampling.seed = seed;
  return options;
}

// What a sequence said.
struct Heard {
  std::vector<Token> ids;
  std::string text, kinds;
  std::optional<Finished> finished;
  std::optional<Failed> failed;

  bool ended() const { return finished || failed; }
  bool take(const Event& event) {
    kinds += "sptaFE"[event.index()];
    if (const auto* delta = std::get_if<TextDelta>(&event)) {
      if (delta->id >= 0) ids.push_back(delta->id);
      text += delta->text;
    }
    if (const auto* f = std::get_if<Finished>(&event)) finished = *f;
    if (const auto* f = std::get_if<Failed>(&event)) failed = *f;
    return true;
  }
};

std::unique_ptr<Scheduler> scheduler_of(const std::shared_ptr<const Model>& model,
                                        int32_t max_step_tokens = 0) {
  auto made = Scheduler::make(model, {.max_step_tokens = max_step_tokens});
  EXPECT_TRUE(made) << made.error().message;
  return *std::move(made);
}

SequenceId submit(Scheduler& scheduler, SequenceRequest request) {
  const auto id = scheduler.submit(std::move(request));
  EXPECT_TRUE(id) << id.error().message;
  return id.value_or(0);
}

void run(Scheduler& scheduler) {
  for (int steps = 0; scheduler.step().sequences > 0; ++steps) ASSERT_LT(steps, 100'000);
}

std::vector<float> logits_of(const Session& session) {
  return {session.logits().begin(), session.logits().end()};
}

// One sequence, its session and what it said.
struct Job {
  std::vector<Token> prompt;
  GenerateOptions options;
  std::unique_ptr<Session> session;
  Heard heard;

  Job(const std::shared_ptr<const Model>& model, size_t length, unsigned seed)
      : prompt(tokens_of(length, seed)),
        options(sampled(3 + seed % 9, seed)),
        session(test::session(model)) {}
  SequenceRequest request() {
    return {.session = session.get(),
            .tokens = prompt,
            .generate = options,
            .on_event = [this](const Event& event) { return heard.take(event); }};
  }
  // That it ended as generate() alone ends.
  void expect_as_alone(const std::shared_ptr<const Model>& model, const std::string& what) {
    Heard alone;
    const auto other = test::session(model);
    ASSERT_TRUE(generate(*other, prompt, options, [&](const Event& e) { return alone.take(e); }));
    EXPECT_EQ(heard.ids, alone.ids) << what;
    EXPECT_EQ(heard.text, alone.text) << what;
    ASSERT_TRUE(heard.finished) << what;
    EXPECT_EQ(heard.finished->reason, alone.finished->reason) << what;
    EXPECT_EQ(heard.finished->cost.generated_tokens, alone.finished->cost.generated_tokens);
    EXPECT_TRUE(std::equal(session->tokens().begin(), session->tokens().end(),
                           other->tokens().begin(), other->tokens().end()));
    EXPECT_EQ(first_difference({logits_of(*session)}, {logits_of(*other)}), "") << what;
  }
};

class Company : public testing::TestWithParam<const char*> {};

TEST_P(Company, ChangesNoBit) {
  const auto model = load(golden(std::string("tiny/") + GetParam() + "/model.gguf"));
  for (const int32_t most : {0, 7, 33}) {
    const auto scheduler = scheduler_of(model, most);
    std::vector<std::unique_ptr<Job>> jobs;
    for (unsigned i = 0; i < 9; ++i) {
      jobs.push_back(std::make_unique<Job>(model, 1 + i * i * 3, i));
      submit(*scheduler, jobs.back()->request());
    }
    run(*scheduler);
    for (const auto& job : jobs) job->expect_as_alone(model, std::to_string(most));
  }
}

// Sequences join and are cancelled at any step; those that end by themselves end as alone.
TEST_P(Company, MayComeAndGo) {
  const auto model = load(golden(std::string("tiny/") + GetParam() + "/model.gguf"));
  for (unsigned seed = 0; seed < (small_tests() ? 2u : 6u); ++seed) {
    std::mt19937 random(seed);
    const auto scheduler = scheduler_of(model, 5 + static_cast<int32_t>(random() % 60));
    std::vector<std::unique_ptr<Job>> jobs;
    std::vector<SequenceId> ids;
    std::vector<bool> cancelled;
    while (jobs.size() < 14 || scheduler->size() > 0) {
      if (jobs.size() < 14 && random() % 3 == 0) {
        jobs.push_back(std::make_unique<Job>(model, 1 + random() % 150, random() % 1000));
        ids.push_back(submit(*scheduler, jobs.back()->request()));
        cancelled.push_back(false);
      }
      if (!jobs.empty() && random() % 12 == 0) {
        const size_t i = random() % jobs.size();
        cancelled[i] = scheduler->cancel(ids[i]) || cancelled[i];
      }
      scheduler->step();
    }
    for (size_t i = 0; i < jobs.size(); ++i) {
      ASSERT_TRUE(jobs[i]->heard.finished);
      if (!cancelled[i]) {
        jobs[i]->expect_as_alone(model, std::to_string(seed));
        continue;
      }
      // The session holds what was reported: nothing, or the prompt and every token.
      const auto& job = *jobs[i];
      const bool nothing = job.session->length() == 0;
      EXPECT_EQ(job.session->length(),
                nothing ? 0 : static_cast<int64_t>(job.prompt.size() + job.heard.ids.size()));
      EXPECT_TRUE(!nothing || job.heard.ids.empty());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Company, testing::Values("llama", "gemma3", "lfm2", "qwen3moe"),
                         test_name);

// ---------------------------------------------------------------- steps

TEST(Steps, AreBoundedAndDecodingComesFirst) {
  const auto model = load(llama());
  const auto scheduler = scheduler_of(model, 40);
  std::vector<std::unique_ptr<Job>> jobs;
  for (unsigned i = 0; i < 4; ++i) {
    jobs.push_back(std::make_unique<Job>(model, 4, i));
    jobs.back()->options = sampled(200, i, 0);
    submit(*scheduler, jobs.back()->request());
  }
  while (jobs[3]->heard.ids.empty()) scheduler->step();
  Job late(model, 300, 9);
  submit(*scheduler, late.request());
  int steps = 0;
  while (late.heard.ids.empty()) {
    const auto decoding = std::count_if(jobs.begin(), jobs.end(),
                                        [](const auto& job) { return !job->heard.ended(); });
    const StepReport report = scheduler->step();
    EXPECT_LE(report.decode_tokens + report.prompt_tokens, 40);
    EXPECT_EQ(report.decode_tokens, decoding);  // a long prompt stalls nobody
    ASSERT_LT(++steps, 100);
  }
  EXPECT_GE(steps, 300 / 40);
  run(*scheduler);
}

TEST(Steps, PromptsShareThemEqually) {
  const auto model = load(llama());
  const auto scheduler = scheduler_of(model, 128);
  std::map<int, int64_t> done;
  std::vector<std::unique_ptr<Session>> sessions;
  for (int i = 0; i < 2; ++i) {
    sessions.push_back(session(model));
    submit(*scheduler, {.session = sessions.back().get(),
                        .tokens = tokens_of(400, static_cast<unsigned>(i)),
                        .on_event = [&done, i](const Event& event) {
                          if (const auto* p = std::get_if<PromptProgress>(&event))
                            done[i] = p->done;
                          return true;
                        }});
  }
  while (scheduler->step().sequences > 0) {
    ASSERT_EQ(done.size(), 2u);
    EXPECT_LE(std::abs(done[0] - done[1]), 64);
  }
  EXPECT_EQ(done[0], 400);
  EXPECT_EQ(done[1], 400);
}

// More of them than one pass computes logits for.
TEST(Steps, NobodyIsForgotten) {
  const auto model = load(llama());
  const auto scheduler = scheduler_of(model, 16);
  std::vector<std::unique_ptr<Job>> jobs;
  for (unsigned i = 0; i < 50; ++i) {
    jobs.push_back(std::make_unique<Job>(model, 1, i));
    jobs.back()->options = sampled(10, i);
    jobs.back()->options.sampling.logit_bias = {};
    submit(*scheduler, jobs.back()->request());
  }
  while (scheduler->step().sequences > 0) {
    size_t least = SIZE_MAX, most = 0;
    for (const auto& job : jobs) {
      if (job->heard.ended()) continue;
      least = std::min(least, job->heard.ids.size());
      most = std::max(most, job->heard.ids.size());
    }
    EXPECT_TRUE(least == SIZE_MAX || most - least <= 1) << least << " " << most;
  }
  for (const auto& job : jobs) job->expect_as_alone(model, "");
}

// Answers alone fill every pass: by tokens (a pass of 4), or by outputs (64 of them).
TEST(Steps, PromptsAreReadBesideAnyNumberOfAnswers) {
  const auto model = load(llama());
  for (const int32_t answers : {4, 64, 100}) {
    std::vector<std::unique_ptr<Job>> jobs;  // sessions outlive the scheduler that still has them
    const auto scheduler = scheduler_of(model, answers == 4 ? 4 : 0);
    for (int32_t i = 0; i < answers; ++i) {
      jobs.push_back(std::make_unique<Job>(model, 1, static_cast<unsigned>(i)));
      jobs.back()->options = sampled(1000, static_cast<uint64_t>(i));
      for (const Token end : model->vocabulary().end_of_generation())
        jobs.back()->options.sampling.logit_bias.push_back(
            {end, -std::numeric_limits<float>::infinity()});
      submit(*scheduler, jobs.back()->request());
    }
    for (int i = 0; i < 3; ++i) scheduler->step();
    Job late(model, 20, 1000);
    late.options = sampled(3, 1);
    submit(*scheduler, late.request());
    for (int steps = 0; !late.heard.ended(); ++steps) {
      ASSERT_LT(steps, 60) << answers;
      scheduler->step();
    }
    late.expect_as_alone(model, "late");
  }
}

TEST(Steps, WithoutSequencesDoNothing) {
  const auto scheduler = scheduler_of(load(llama()));
  EXPECT_EQ(scheduler->step().sequences, 0);
  EXPECT_FALSE(scheduler->wait(std::chrono::milliseconds(1)));
}

// ---------------------------------------------------------------- events

// A fork made when a token was appended holds it, and has the logits behind it.
TEST(Events, WhatIsReportedIsInTheSession) {
  const auto model = load(gemma());
  const auto prompt = tokens_of(20, 1);
  const auto one = session(model);
  std::vector<std::unique_ptr<Session>> forks;
  std::vector<Token> ids;
  const auto listen = [&](const Event& event) {
    if (const auto* delta = std::get_if<TextDelta>(&event)) {
      if (delta->id >= 0) ids.push_back(delta->id);
      EXPECT_EQ(one->length(), static_cast<int64_t>(prompt.size() + ids.size()) -
                                   (delta->id >= 0 ? 1 : 0));  // the text goes out first
    }
    if (const auto* appended = std::get_if<Appended>(&event)) {
      EXPECT_EQ(appended->length, one->length());
      EXPECT_EQ(appended->length, static_cast<int64_t>(prompt.size() + ids.size()));
      EXPECT_TRUE(ids.empty() || one->tokens().back() == ids.back());
      forks.push_back(one->fork());
    }
    return true;
  };
  ASSERT_TRUE(generate(*one, prompt, sampled(8, 5), listen));
  ASSERT_EQ(forks.size(), ids.size() + 1);
  std::vector<Token> held(prompt);
  for (size_t i = 0; i < forks.size(); ++i) {
    if (i > 0) held.push_back(ids[i - 1]);
    const auto cold = session(model);
    expect_ok(cold->append(held));
    EXPECT_EQ(first_difference({logits_of(*forks[i])}, {logits_of(*cold)}), "") << i;
  }
}

TEST(Events, ASequenceThatOnlyAppendsHasNoAnswer) {
  const auto model = load(llama());
  const auto scheduler = scheduler_of(model);
  const auto one = session(model), cold = session(model);
  const auto tokens = tokens_of(70, 2);
  Rows rows;
  Heard heard;
  submit(*scheduler, {.session = one.get(),
                      .tokens = tokens,
                      .on_event = [&](const Event& event) { return heard.take(event); },
                      .on_logits =
                          [&](int64_t index, std::span<const float> logits) {
                            EXPECT_EQ(index, static_cast<int64_t>(rows.size()));
                            rows.emplace_back(logits.begin(), logits.end());
                          }});
  run(*scheduler);
  EXPECT_EQ(first_difference(rows, append_rows(*cold, tokens)), "");
  EXPECT_EQ(heard.kinds.front(), 's');
  EXPECT_EQ(heard.kinds.substr(heard.kinds.size() - 2), "aF");
  EXPECT_EQ(heard.finished->cost.prompt_tokens, 70);
  EXPECT_EQ(heard.finished->cost.generated_tokens, 0);
}

TEST(Events, CostsAreOfTheSequenceAlone) {
  const auto model = load(llama());
  const auto scheduler = scheduler_of(model, 64);
  Job small(model, 10, 1), large(model, 200, 2);
  small.options = large.options = sampled(4, 3, 0);
  submit(*scheduler, small.request());
  submit(*scheduler, large.request());
  double seconds = 0;
  while (true) {
    const StepReport report = scheduler->step();
    seconds += report.seconds;
    if (report.sequences == 0) break;
  }
  const Cost a = small.heard.finished->cost, b = large.heard.finished->cost;
  EXPECT_EQ(a.prompt_tokens, 10);
  EXPECT_EQ(b.prompt_tokens, 200);
  EXPECT_GT(b.forward_passes, a.forward_passes);
  EXPECT_NEAR(a.compute_seconds + b.compute_seconds, seconds, 1e-9 + seconds * 1e-6);
  EXPECT_GT(b.compute_seconds, a.compute_seconds);
}

// ---------------------------------------------------------------- ends

TEST(Ends, ACancelledPromptLeavesTheSessionAsItWas) {
  const auto model = load(lfm());
  const auto scheduler = scheduler_of(model, 16);
  const auto one = session(model), straight = session(model);
  const auto before = tokens_of(50, 1), then = tokens_of(5, 3);
  expect_ok(one->append(before));
  Heard heard;
  const SequenceId id =
      submit(*scheduler, {.session = one.get(),
                          .tokens = tokens_of(100, 2),
                          .generate = sampled(5, 1),
                          .on_event = [&](const Event& event) { return heard.take(event); }});
  scheduler->step();
  scheduler->step();
  EXPECT_TRUE(scheduler->cancel(id));
  EXPECT_EQ(scheduler->step().sequences, 0);
  EXPECT_FALSE(scheduler->cancel(id));
  ASSERT_TRUE(heard.finished);
  EXPECT_EQ(heard.finished->reason, FinishReason::kCancelled);
  EXPECT_EQ(one->length(), 50);
  append_rows(*straight, before);
  EXPECT_EQ(first_difference(append_rows(*one, then), append_rows(*straight, then)), "");
}

// A cancel that was accepted always ends with kCancelled, whichever callback it comes from.
TEST(Ends, CallbacksMayCancelTheirOwnSequence) {
  const auto model = load(llama());
  for (const bool answers : {false, true}) {
    for (const char when : {'s', 'p', 'a'}) {
      const auto scheduler = scheduler_of(model);
      const auto one = session(model);
      SequenceId id = 0;
      Heard heard;
      SequenceRequest request{.session = one.get(), .tokens = tokens_of(20, 1)};
      if (answers) request.generate = sampled(5, 1);
      request.on_event = [&](const Event& event) {
        heard.take(event);
        if (heard.kinds.back() == when) {
          EXPECT_TRUE(scheduler->cancel(id));
        }
        return true;
      };
      id = submit(*scheduler, std::move(request));
      run(*scheduler);
      ASSERT_TRUE(heard.finished) << when;
      EXPECT_EQ(heard.finished->reason, FinishReason::kCancelled) << when;
      EXPECT_EQ(heard.kinds.substr(heard.kinds.size() - 2), when + std::string("F"));
      EXPECT_EQ(one->length(), when == 'a' ? 20 : 0) << when;
    }
  }
}

// Text that might have become a stop text is held back; a cancelled sequence still shows it.
TEST(Ends, ACancelledAnswerShowsWhatWasHeldBack) {
  const auto model = load(llama());
  const auto prompt = tokens_of(20, 1);
  std::string so_far, held_from;
  size_t count = 0;
  Heard straight;
  const auto other = session(model);
  ASSERT_TRUE(generate(*other, prompt, sampled(40, 1), [&](const Event& event) {
    straight.take(event);
    const auto* delta = std::get_if<TextDelta>(&event);
    if (delta == nullptr || count > 0 || straight.ids.size() < 5 || delta->text.empty())
      return true;
    count = straight.ids.size();
    so_far = straight.text;
    held_from = delta->text;
    return true;
  }));
  ASSERT_GT(count, 0u);

  const auto scheduler = scheduler_of(model);
  const auto one = session(model);
  GenerateOptions options = sampled(40, 1);
  options.stop = {held_from + " never comes"};
  Heard heard;
  std::string shown;
  submit(*scheduler, {.session = one.get(),
                      .tokens = prompt,
                      .generate = options,
                      .on_event = [&](const Event& event) {
                        heard.take(event);
                        if (!std::holds_alternative<TextDelta>(event)) return true;
                        if (heard.ids.size() == count && shown.empty()) shown = heard.text;
                        return heard.ids.size() < count;
                      }});
  run(*scheduler);
  ASSERT_TRUE(heard.finished);
  EXPECT_EQ(heard.finished->reason, FinishReason::kCancelled);
  EXPECT_EQ(heard.text, so_far);
  EXPECT_EQ(shown + held_from, so_far);
  EXPECT_EQ(heard.kinds.substr(heard.kinds.size() - 3), "atF");
}

TEST(Ends, ACallbackMayCancelAnyOtherBeforeThePass) {
  const auto model = load(llama());
  Job first(model, 10, 1), second(model, 10, 2);
  const auto scheduler = scheduler_of(model);
  const SequenceId id = submit(*scheduler, first.request());
  auto request = second.request();
  request.on_event = [&](const Event& event) {
    second.heard.take(event);
    if (std::holds_alternative<Started>(event)) {
      EXPECT_TRUE(scheduler->cancel(id));
    }
    return true;
  };
  submit(*scheduler, std::move(request));
  EXPECT_EQ(scheduler->step().prompt_tokens, 10);  // the second's
  EXPECT_EQ(first.heard.kinds, "sF");
  EXPECT_EQ(first.session->length(), 0);
}

TEST(Ends, ASessionIsInUseUntilItsLastEvent) {
  const auto model = load(llama());
  const auto scheduler = scheduler_of(model);
  const auto first = session(model), second = session(model);
  int refused = 0;
  submit(*scheduler,
         {.session = first.get(), .tokens = tokens_of(5, 1), .on_event = [&](const Event& event) {
            if (!std::holds_alternative<Finished>(event)) return true;
            refused += !scheduler->submit({.session = second.get(), .tokens = {5}});
            return true;
          }});
  submit(*scheduler, {.session = second.get(), .tokens = tokens_of(5, 2)});
  run(*scheduler);
  EXPECT_EQ(refused, 1);  // both end in one step; the second has had no last event then
  EXPECT_EQ(second->length(), 5);
}

TEST(Ends, ADestroyedSchedulerLeavesSessionsUsable) {
  const auto model = load(llama());
  const auto one = session(model), straight = session(model);
  const auto before = tokens_of(40, 1), then = tokens_of(5, 3);
  expect_ok(one->append(before));
  {
    const auto scheduler = scheduler_of(model, 16);
    submit(*scheduler, {.session = one.get(), .tokens = tokens_of(100, 2)});
    scheduler->step();
  }
  EXPECT_EQ(one->length(), 40);
  append_rows(*straight, before);
  EXPECT_EQ(first_difference(append_rows(*one, then), append_rows(*straight, then)), "");
}

TEST(Ends, OneThatFailsFailsAlone) {
  const auto model = load(llama());
  const auto scheduler = scheduler_of(model);
  Job good(model, 10, 1), bad(model, 10, 2);
  good.options = sampled(12, 1);
  bad.options = sampled(12, 2);
  bad.options.mask = [](std::span<const Token> answer, TokenMask*) -> Result<void> {
    if (answer.size() < 3) return {};
    return fail(ErrorCode::kInvalidArgument, "no more");
  };
  submit(*scheduler, good.request());
  submit(*scheduler, bad.request());
  run(*scheduler);
  ASSERT_TRUE(bad.heard.failed);
  EXPECT_EQ(bad.heard.failed->error.message, "no more");
  EXPECT_EQ(bad.heard.kinds.back(), 'E');
  EXPECT_EQ(bad.session->length(), 10 + static_cast<int64_t>(bad.heard.ids.size()));
  good.expect_as_alone(model, "");
}

TEST(Ends, TheSessionMayBeSubmittedAgainFromTheLastEvent) {
  const auto model = load(llama());
  const auto scheduler = scheduler_of(model);
  const auto one = session(model);
  int rounds = 0;
  std::function<bool(const Event&)> listen = [&](const Event& event) {
    if (std::holds_alternative<Finished>(event) && ++rounds < 3) {
      submit(*scheduler, {.session = one.get(), .tokens = tokens_of(7, 1), .on_event = listen});
    }
    return true;
  };
  submit(*scheduler, {.session = one.get(), .tokens = tokens_of(7, 1), .on_event = listen});
  run(*scheduler);
  EXPECT_EQ(rounds, 3);
  EXPECT_EQ(one->length(), 21);
}

TEST(Refused, WhatMakesNoSense) {
  const auto model = load(llama()), other = load(llama());
  const auto scheduler = scheduler_of(model);
  const auto one = session(model), foreign = session(other);
  const auto code = [&](SequenceRequest request) {
    const auto id = scheduler->submit(std::move(request));
    EXPECT_FALSE(id);
    return id ? ErrorCode::kIo : id.error().code;
  };
  EXPECT_EQ(code({.session = foreign.get(), .tokens = {5}}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({.session = one.get(), .tokens = {5, 512}}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({.session = one.get(), .tokens = tokens_of(5000, 1)}), ErrorCode::kExhausted);
  EXPECT_EQ(code({.session = one.get(), .tokens = {}, .generate = sampled(1, 1)}),
            ErrorCode::kInvalidArgument);
  GenerateOptions bad = sampled(1, 1);
  bad.sampling.top_p = 7;
  EXPECT_EQ(code({.session = one.get(), .tokens = {5}, .generate = bad}),
            ErrorCode::kInvalidArgument);
  submit(*scheduler, {.session = one.get(), .tokens = {5}});  // none of them holds the session
  EXPECT_EQ(code({.session = one.get(), .tokens = {5}}), ErrorCode::kInvalidArgument);
  run(*scheduler);
  EXPECT_FALSE(Scheduler::make(model, {.max_step_tokens = -1}));
  EXPECT_EQ(Scheduler::make(load(golden("tiny/bert/model.gguf")), {}).error().code,
            ErrorCode::kUnsupported);
}

// ---------------------------------------------------------------- masks

TEST(Masks, OnlyWhatTheyAllowComes) {
  const auto model = load(llama());
  for (const float temperature : {0.0f, 1.5f}) {
    const auto one = session(model);
    GenerateOptions options = sampled(20, 4, temperature);
    std::vector<Token> seen;
    options.mask = [&seen](std::span<const Token> answer, TokenMask* mask) -> Result<void> {
      seen.assign(answer.begin(), answer.end());
      mask->forbid_all();
      for (Token id = 100; id < 110; ++id) mask->allow(id);
      return {};
    };
    Heard heard;
    ASSERT_TRUE(generate(*one, tokens_of(6, 1), options,
                         [&](const Event& event) { return heard.take(event); }));
    EXPECT_EQ(heard.ids.size(), 20u);
    for (const Token id : heard.ids) EXPECT_TRUE(id >= 100 && id < 110) << id;
    EXPECT_EQ(seen, std::vector<Token>(heard.ids.begin(), heard.ids.end() - 1));
  }
  GenerateOptions nothing = sampled(20, 4);
  nothing.mask = [](std::span<const Token>, TokenMask* mask) -> Result<void> {
    mask->forbid_all();
    return {};
  };
  const auto refused = generate(*session(model), tokens_of(6, 1), nothing, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
}

// ---------------------------------------------------------------- threads

TEST(Threads, AnyMaySubmitWhileOneDrives) {
  const auto model = load(llama(), {.threads = 2});
  const auto scheduler = scheduler_of(model, 64);
  constexpr int kThreads = 4, kEach = 6;
  std::vector<std::unique_ptr<Job>> jobs;
  for (unsigned i = 0; i < kThreads * kEach; ++i)
    jobs.push_back(std::make_unique<Job>(model, 1 + i * 5, i));
  std::atomic<int> running{kThreads};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        Job& job = *jobs[static_cast<size_t>(t * kEach + i)];
        const SequenceId id = submit(*scheduler, job.request());
        if (i == 3) scheduler->cancel(id);
      }
      --running;
    });
  }
  while (running > 0 || scheduler->size() > 0) {
    scheduler->wait(std::chrono::milliseconds(1));
    scheduler->step();
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < jobs.size(); ++i) {
    ASSERT_TRUE(jobs[i]->heard.finished) << i;
    if (i % kEach != 3) jobs[i]->expect_as_alone(model, std::to_string(i));
  }
}

}  // namespace
}  // namespace culet::test
