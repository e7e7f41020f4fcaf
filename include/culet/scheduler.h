// Many sequences of one model in common forward passes (continuous batching, chunked prefill).
//
//   auto scheduler = culet::Scheduler::make(model, {});
//   scheduler->submit({.session = session.get(), .tokens = prompt, .generate = options,
//                      .on_event = [](const culet::Event& e) { ...; return true; }});
//   while (scheduler->step().sequences > 0) {}
//
// Sequences join and leave at any time. A sequence's logits do not depend on the other sequences,
// bit for bit. Use one scheduler per model, and wait() when there is nothing to do.
//
// Threads: one thread at a time calls step() and wait(). step() calls all callbacks, masks
// included, on that thread. Any thread may call submit(), cancel() and size(), also from callbacks.
// Callbacks must not throw.
#pragma once

#include "culet/generate.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace culet {

using SequenceId = uint64_t;  // a scheduler never uses one twice

struct SchedulerOptions {
  // The most tokens of one forward pass. 0, or more than the model's ubatch_size: the ubatch_size.
  // With a smaller number, generating sequences wait less while prompts are read, and prompts take
  // longer.
  int32_t max_step_tokens = 0;
};

// What to do with a session: append `tokens`, and then generate an answer if `generate` is set. The
// events and what the session holds afterwards are as in generate().
//
// The scheduler does not look for common prefixes. To reuse one: rewind() the session, or a fork of
// a checkpoint, to the longest prefix that it shares with the prompt, and submit the rest. Keep at
// least one token for `tokens`, because after a rewind there are no logits to continue from.
struct SequenceRequest {
  // In use by the scheduler until the last event of the sequence (Finished or Failed), and must
  // live until then. Callbacks may read and fork it; nobody may change it. The callback of the last
  // event may already submit it again.
  Session* session = nullptr;
  std::vector<Token> tokens{};  // may be empty if the session has logits
  std::optional<GenerateOptions> generate{};
  EventFn on_event{};  // may be empty
  // As in AppendItem, for `tokens` only (not for the answer).
  bool logits = true;
  LogitsFn on_logits{}, on_hidden{};
};

// What a forward pass did.
struct StepReport {
  int64_t sequences = 0;                         // that have not ended, waiting ones included
  int64_t decode_tokens = 0, prompt_tokens = 0;  // tokens computed in this pass
  double seconds = 0;                            // duration of the pass
};

class Scheduler final {
 public:
  // Errors: kUnsupported (no decoder, or loaded with text_only), kInvalidArgument (an option).
  static Result<std::unique_ptr<Scheduler>> make(std::shared_ptr<const Model> model,
                                                 const SchedulerOptions& options);
  // Sequences that have not ended get no event. Their sessions are as after their last Appended
  // event (before the first: as before submit()), so the token of a TextDelta after it is missing.
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Adds a sequence; it takes part from the next step() on. Errors: kInvalidArgument (a session of
  // another model or one that is in use here, a token outside the vocabulary, nothing to continue,
  // an option out of range), kExhausted (more tokens than the session's context holds),
  // kUnsupported (on_hidden, as AppendItem).
  Result<SequenceId> submit(SequenceRequest request);
  // Ends a sequence with Finished{kCancelled}. While its prompt is read: before the next forward
  // pass; the session is as before submit(). While it generates: after the token of the last
  // TextDelta has been appended; prompt and answer so far stay in the session. False: there is no
  // such sequence (any more).
  bool cancel(SequenceId id);
  int64_t size() const;  // sequences that have not ended

  // Runs one forward pass. It takes one token of every generating sequence first, and then pieces
  // of prompts in equal shares. Sequences that do not fit are first in the next pass; a prompt gets
  // one token when the generating sequences alone would fill the pass. A sequence that fails ends
  // with Failed; the others continue. If there are no sequences, it returns at once with
  // StepReport::sequences 0; then call wait().
  StepReport step();
  // Blocks until there is a sequence, for at most `timeout`. False: there is none.
  bool wait(std::chrono::milliseconds timeout);

 private:
  struct Impl;
  explicit Scheduler(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace culet
