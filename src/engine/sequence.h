// One sequence of a scheduler: its prompt, then its answer, one token after another.
#pragma once

#include "culet/scheduler.h"
#include "engine/forward.h"
#include "sample/logprobs.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

namespace culet::engine {

// The text of an answer's tokens, and what ends it.
class Answer;

// Driven by one thread; cancel() may come from any. Between start() and the end, append() is what
// the next forward passes have to compute for it.
class Sequence final {
 public:
  // Errors, before any work, as Scheduler::submit.
  static Result<std::unique_ptr<Sequence>> make(SequenceId id, SequenceRequest request);
  ~Sequence();

  SequenceId id() const { return id_; }
  const SessionImpl* session() const { return append_.session; }
  Append* append() { return &append_; }
  void cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

  bool started() const { return started_; }
  void start();  // before its first pass; a prompt without tokens goes on to the answer
  // A forward pass that its append was in is over; seconds: the sequence's share of it.
  void passed(double seconds);
  bool in_answer() const { return in_answer_; }

  void stop();     // ends it as cancelled
  void abandon();  // leaves the session as after the last Appended event; no event follows
  bool ended() const { return last_.has_value(); }
  // Sends the last event. The session is the caller's again.
  void leave();

 private:
  using Clock = std::chrono::steady_clock;

  Sequence(SequenceId id, SequenceRequest request);
  bool emit(const Event& event) { return !request_.on_event || request_.on_event(event); }
  void appended();  // the append is finished
  void next_token();
  Result<std::optional<Token>> draw();
  void end(FinishReason reason);
  void end_with(const Error& error);
  void close_cost();

  SequenceId id_;
  SequenceRequest request_;
  Append append_;
  std::unique_ptr<Answer> answer_;  // null: nothing is generated
  Token token_ = 0;                 // on its way into the session
  std::atomic<bool> cancelled_{false};
  bool started_ = false, in_answer_ = false;
  Cost cost_;
  Clock::time_point submitted_, began_, prompted_;
  std::optional<Event> last_;
};

}  // namespace culet::engine
