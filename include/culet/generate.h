// Generation: prompt in, events out. generate() runs one sequence; the Scheduler
// (culet/scheduler.h) runs many sequences in common forward passes, with the same events. Threads:
// generate() calls its callbacks on the calling thread.
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

// Restricts the next token: called before each token is drawn, with the tokens of the answer so far
// and a mask of [vocabulary size] that allows every token. It forbids tokens in this mask, or
// assigns another mask of the same size. Where end-of-generation tokens are forbidden
// (Vocabulary::end_of_generation), the answer cannot end there. An error that it returns ends the
// sequence. Called on the thread that runs generate() or step(). It must not throw.
using MaskFn = std::function<Result<void>(std::span<const Token> answer, TokenMask* mask)>;

struct GenerateOptions {
  // A model file may have settings of its own: ModelInfo::sampling. They apply only if they are
  // copied to this member.
  SamplerOptions sampling{};
  int64_t max_tokens = 512;  // < 0: until the context is full
  // Texts that end the answer, also across tokens. They are not part of the text that is shown;
  // text that may become one is held back. At most 64 texts of 1024 bytes each.
  std::vector<std::string> stop{};
  // How many of the likeliest tokens to report with each token; -1: no log-probabilities.
  int logprobs = -1;
  MaskFn mask{};  // not set: every token may come
};

// ---------------------------------------------------------------- events
//
// Started; PromptProgress, once or more; Appended (the prompt). Then TextDelta and Appended for
// each token of the answer. At the end, TextDelta with id -1 if text was held back; then Finished
// or Failed. An empty prompt has no PromptProgress and no Appended.

struct Started {  // before the first forward pass of the sequence
  int64_t prompt_tokens;
};
struct PromptProgress {  // after each forward pass over the prompt
  int64_t done, total;   // tokens of the prompt
};
// A token was drawn. The event comes before the token is evaluated, so that text goes out at once.
struct TextDelta {
  std::string_view text;  // whole characters only; may be empty. Valid during the call
  // -1: text that was held back until the end (an unfinished character, or a possible stop).
  Token id;
  // With GenerateOptions::logprobs, from raw logits, natural logarithm: of this token, and the
  // likeliest.
  std::optional<float> logprob{};
  std::span<const TokenLogprob> top{};  // valid during the call
};
// The prompt, or the token of the last TextDelta, is in the session now. A fork made in the
// callback contains it.
struct Appended {
  int64_t length;  // tokens in the session
};
// kStop: an end-of-generation token or a stop text; kLength: max_tokens; kContext: the context is
// full; kCancelled: a callback returned false, or Scheduler::cancel(). A sequence without an answer
// (SequenceRequest::generate not set) ends with kStop.
enum class FinishReason : uint8_t { kStop, kLength, kContext, kCancelled };
struct Cost {
  int64_t prompt_tokens = 0, generated_tokens = 0;
  int64_t forward_passes = 0;
  double queued_seconds = 0;    // from submission to its first forward pass
  double prompt_seconds = 0;    // from then until the prompt was evaluated
  double generate_seconds = 0;  // from then until the end
  double compute_seconds = 0;   // its share (by tokens) of the time of its forward passes
};
struct Finished {
  FinishReason reason;
  Cost cost;
  std::string stop{};  // the text of GenerateOptions::stop that ended the answer
};
// The last event if something failed, instead of Finished. generate() returns the error and does
// not send this event.
struct Failed {
  Error error;
  Cost cost;
};
using Event = std::variant<Started, PromptProgress, TextDelta, Appended, Finished, Failed>;
// Return false to stop: Finished{kCancelled} follows. The value is ignored after Finished, Failed
// and the text that was held back until the end (id -1). Callbacks may read and fork the session,
// but must not change it, and must not throw.
using EventFn = std::function<bool(const Event&)>;

// Appends the prompt and generates until an end-of-generation token, a stop text, max_tokens or a
// full context. The session then holds the prompt and every token of a TextDelta. The
// end-of-generation token is not appended. An empty prompt continues from the session's logits; if
// there are none, that is kInvalidArgument. on_event may be empty. Errors: those of
// Scheduler::make, Session::append, Sampler::make, TextStream::make, Sampler::pick and the mask. If
// an error comes before the answer, nothing was appended; later, the tokens so far stay in the
// session.
Result<Finished> generate(Session& session, std::span<const Token> prompt,
                          const GenerateOptions& options, const EventFn& on_event);

}  // namespace culet
