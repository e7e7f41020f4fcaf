// Text from a session: prompt in, events out. generate() runs one sequence; the Scheduler
// (culet/scheduler.h) runs many in common forward passes, with the same events.
#pragma once

#include "culet/logprobs.h"
#include "culet/sampler.h"
#include "culet/session.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace culet {

// Allows the tokens that may come next: called before each token is drawn, with the answer's tokens
// so far and a mask that allows everything. An error ends the sequence with it.
using MaskFn = std::function<Result<void>(std::span<const Token> answer, TokenMask* mask)>;

struct GenerateOptions {
  SamplerOptions sampling;
  int64_t max_tokens = 512;  // < 0: until the context is full
  // Texts that end the answer and are not part of what is shown, also across tokens. Text that may
  // become one is held back. At most 64, of at most 1024 bytes.
  std::vector<std::string> stop{};
  int logprobs = -1;  // likeliest tokens to report with each token; -1: no log-probabilities
  MaskFn mask{};      // empty: every token may come
};

// ---------------------------------------------------------------- events, in the order they come

struct Started {
  int64_t prompt_tokens;
};
struct PromptProgress {
  int64_t done, total;  // tokens of the prompt
};
// A token was chosen. Its text goes out at once, before the token is evaluated.
struct TextDelta {
  std::string_view text;  // whole characters only; may be empty. Valid during the call
  // -1: what was left at the end of an unfinished character, or held back for a stop text.
  Token id;
  // With GenerateOptions::logprobs, from raw logits: of this token, and of the likeliest ones.
  std::optional<float> logprob{};
  std::span<const TokenLogprob> top{};  // valid during the call
};
// The prompt, or the token of the last TextDelta, is in the session now: a fork made in the
// callback holds it.
struct Appended {
  int64_t length;  // tokens in the session
};
// kStop: an end-of-generation token or a stop text; kLength: max_tokens; kContext: it is full.
enum class FinishReason : uint8_t { kStop, kLength, kContext, kCancelled };
struct Cost {
  int64_t prompt_tokens = 0, generated_tokens = 0;
  int64_t forward_passes = 0;
  double queued_seconds = 0;    // until its first forward pass began
  double prompt_seconds = 0;    // from then until the prompt was in
  double generate_seconds = 0;  // from then until the end
  double compute_seconds = 0;   // its share, by tokens, of the time of the forward passes it was in
};
struct Finished {
  FinishReason reason;
  Cost cost;
  std::string stop{};  // the text of GenerateOptions::stop that ended the answer
};
// The last event instead of Finished. generate() returns the error and does not send this.
struct Failed {
  Error error;
  Cost cost;
};
using Event = std::variant<Started, PromptProgress, TextDelta, Appended, Finished, Failed>;
// Return false to stop: Finished{kCancelled} follows. Callbacks may read and fork the session; they
// must not change it and must not throw.
using EventFn = std::function<bool(const Event&)>;

// Appends the prompt and generates until an end-of-generation token, a stop text, max_tokens or a
// full context. The session then holds the prompt and every token of a TextDelta; the
// end-of-generation token is not appended. An empty prompt continues from the session's logits.
// Errors: before the answer, nothing was appended; later, the tokens so far stay.
Result<Finished> generate(Session& session, std::span<const Token> prompt,
                          const GenerateOptions& options, const EventFn& on_event);

}  // namespace culet
