// Many sequences of one model in common forward passes (continuous batching, chunked prefill).
//
//   auto scheduler = culet::Scheduler::make(model, {});
//   scheduler->submit({.session = session.get(), .tokens = prompt, .generate = options,
//                      .on_event = [](const culet::Event& e) { ...; return true; }});
//   while (scheduler->step().sequences > 0) {}
//
// Sequences join and leave at any time. A sequence's bits do not depend on its company.
//
// Threads: one thread at a time drives (step, wait), and calls every callback from there. submit(),
// cancel() and size() may be called by any thread, also from callbacks.
#pragma once

#include "culet/generate.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace culet {

using SequenceId = uint64_t;  // never used twice by one scheduler

struct SchedulerOptions {
  // The most tokens of one forward pass; 0: the model's ubatch_size, and never more than that. A
  // smaller number makes decoding sequences wait less while prompts are read; prompts take longer.
  int32_t max_step_tokens = 0;
};

// What to do with a session: append tokens, and then, with `generate`, draw an answer.
struct SequenceRequest {
  // Belongs to the scheduler until the sequence has ended: its last event is being sent, or
  // on_done is called.
  Session* session = nullptr;
  std::vector<Token> tokens{};
  std::optional<GenerateOptions> generate{};
  EventFn on_event{};
  // As in AppendItem, of `tokens` only.
  bool logits = true;
  LogitsFn on_logits{}, on_hidden{};
};

// What a forward pass did.
struct StepReport {
  int64_t sequences = 0;                         // not ended yet, waiting ones included
  int64_t decode_tokens = 0, prompt_tokens = 0;  // computed in this pass
  double seconds = 0;                            // of the pass
};

class Scheduler final {
 public:
  static Result<std::unique_ptr<Scheduler>> make(std::shared_ptr<const Model> model,
                                                 const SchedulerOptions& options);
  // Sequences that have not ended leave without an event; a session is left as cancel() leaves it.
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Errors, before any work: kInvalidArgument (another model, a session that is here already, a
  // token outside the vocabulary, options that make no sense), kExhausted (more tokens than the
  // session's context holds), kUnsupported (as append_batch).
  Result<SequenceId> submit(SequenceRequest request);
  // The sequence ends with Finished{kCancelled}: before the next forward pass while its prompt is
  // read, and the session is what it was; later, when the token that was reported last is in the
  // session, and the tokens so far stay. False: no such sequence; it may have ended just now.
  bool cancel(SequenceId id);
  int64_t size() const;  // sequences that have not ended

  // Runs one forward pass: first one token of every sequence that is generating, then pieces of the
  // prompts, in equal shares. What does not fit comes in the next pass, before what was in this
  // one. A sequence that fails ends with Failed; the others go on. Without sequences it does
  // nothing.
  StepReport step();
  // Blocks until there is a sequence to step, at most for `timeout`. False: there is none.
  bool wait(std::chrono::milliseconds timeout);

 private:
  struct Impl;
  explicit Scheduler(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace culet
