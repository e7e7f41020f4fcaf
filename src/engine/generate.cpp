// Prompt in, events out: append, then sample - emit - append until something ends it.
//
// A token's text goes out before the token is evaluated, so nobody waits for a pass whose result is
// the next token. Every emitted token is evaluated all the same, also the last: the session then
// holds what the caller has seen, and the next turn continues from there. The tokens of a stop text
// are part of the session like any other; only their text is not shown.
#include "base/float_mode.h"
#include "culet/engine.h"
#include "engine/model_impl.h"
#include "sample/logprobs.h"
#include "sample/stops.h"
#include "text/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

namespace culet {
namespace {

constexpr Token kNoToken = -1;

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

class Generation {
 public:
  Generation(Session& session, const GenerateOptions& options, Sampler sampler,
             const EventFn& on_event)
      : session_(session),
        options_(options),
        sampler_(std::move(sampler)),
        logprobs_(engine::impl(session.model()).loaded().kernels),
        detokenizer_(*engine::impl(session.model()).loaded().tokenizer),
        stops_(options.stop),
        on_event_(on_event) {}

  Result<Finished> run(std::span<const Token> prompt);

 private:
  // False: the caller wants to stop.
  bool emit(const Event& event) { return !on_event_ || on_event_(event); }
  Result<FinishReason> read_prompt(std::span<const Token> prompt);
  Result<FinishReason> answer();
  std::optional<FinishReason> must_end() const;
  Result<TextDelta> delta(Token token);
  Result<bool> step(Token token);
  void finish_text(FinishReason* reason);

  Session& session_;
  const GenerateOptions& options_;
  Sampler sampler_;
  sample::LogProbs logprobs_;
  text::Detokenizer detokenizer_;
  sample::StopFilter stops_;
  const EventFn& on_event_;
  int64_t generated_ = 0;
};

// kStop when the prompt is in; kCancelled when the caller stopped it.
Result<FinishReason> Generation::read_prompt(std::span<const Token> prompt) {
  if (!emit(Started{static_cast<int64_t>(prompt.size())})) return FinishReason::kCancelled;
  const auto progress = [this](int64_t done, int64_t all) { return emit(Progress{done, all}); };
  const Result<void> appended = session_.append(prompt, progress);
  if (appended) return FinishReason::kStop;
  if (appended.error().code == ErrorCode::kCancelled) return FinishReason::kCancelled;
  return tl::unexpected(appended.error());
}

std::optional<FinishReason> Generation::must_end() const {
  if (options_.max_tokens >= 0 && generated_ >= options_.max_tokens) return FinishReason::kLength;
  if (session_.length() >= session_.context()) {
    return FinishReason::kContext;
  }
  return std::nullopt;
}

Result<TextDelta> Generation::delta(Token token) {
  TextDelta delta{stops_.push(detokenizer_.push(token)), token};
  if (options_.logprobs < 0) return delta;
  CULET_TRY_VOID(logprobs_.start(session_.logits()));
  delta.logprob = static_cast<float>(logprobs_.logprob(token));
  std::vector<sample::LogProb> best;
  logprobs_.top(static_cast<size_t>(options_.logprobs), &best);
  for (const sample::LogProb& candidate : best) {
    delta.top.push_back({candidate.id, static_cast<float>(candidate.logprob)});
  }
  return delta;
}

// Emits and evaluates one token; false when the caller wants to stop.
Result<bool> Generation::step(Token token) {
  CULET_TRY(const TextDelta next, delta(token));
  const bool go_on = emit(next);
  CULET_TRY_VOID(session_.append({&token, 1}));
  ++generated_;
  return go_on;
}

Result<FinishReason> Generation::answer() {
  while (true) {
    if (const auto end = must_end()) return *end;
    CULET_TRY(const Token token, sampler_.pick(session_.logits(), session_.tokens()));
    if (session_.model().is_end_of_generation(token)) return FinishReason::kStop;
    CULET_TRY(const bool go_on, step(token));
    if (!go_on) return FinishReason::kCancelled;
    if (stops_.matched() >= 0) return FinishReason::kStop;
  }
}

// Shows what was held back; the bytes of an unfinished character may still complete a stop.
void Generation::finish_text(FinishReason* reason) {
  std::string rest = stops_.push(detokenizer_.flush());
  if (stops_.matched() >= 0) *reason = FinishReason::kStop;
  rest += stops_.flush();
  if (!rest.empty()) emit(TextDelta{rest, kNoToken});
}

Result<Finished> Generation::run(std::span<const Token> prompt) {
  const Stopwatch prompt_time;
  CULET_TRY(FinishReason reason, read_prompt(prompt));
  const double prompt_seconds = prompt_time.seconds();
  const Stopwatch answer_time;
  if (reason != FinishReason::kCancelled) {
    CULET_TRY(reason, answer());
    if (reason != FinishReason::kCancelled) finish_text(&reason);
  }
  Finished finished{reason, static_cast<int64_t>(prompt.size()), generated_, prompt_seconds,
                    answer_time.seconds()};
  if (stops_.matched() >= 0) finished.stop = options_.stop[static_cast<size_t>(stops_.matched())];
  emit(finished);
  return finished;
}

Result<void> check_room(const Session& session, std::span<const Token> prompt) {
  const int64_t there = session.length();
  const auto more = static_cast<int64_t>(prompt.size());
  if (more > session.context() - there) {
    return fail(
        ErrorCode::kExhausted,
        fmt::format("the prompt needs {} tokens of context, but the session holds {}; use a "
                    "larger context or a shorter prompt",
                    there + more, session.context()));
  }
  if (prompt.empty() && session.logits().empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "the prompt has no tokens, so there is nothing to continue; give some text");
  }
  return {};
}

}  // namespace

Result<Finished> generate(Session& session, std::span<const Token> prompt,
                          const GenerateOptions& options, const EventFn& on_event) {
  CULET_TRY_VOID(check_room(session, prompt));
  CULET_TRY(Sampler sampler, Sampler::make(session.model().vocabulary(), options.sampling));
  CULET_TRY_VOID(sample::check_stops(options.stop));
  base::set_float_mode();
  return Generation(session, options, std::move(sampler), on_event).run(prompt);
}

}  // namespace culet
