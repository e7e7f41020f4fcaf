// Many sequences, one forward pass at a time.
//
// The queue is in the order in which sequences have a right to the next pass. Whoever was in a pass
// goes to the back, so sequences that did not fit come first in the next one.
#include "culet/scheduler.h"

#include "base/check.h"
#include "base/float_mode.h"
#include "engine/forward.h"
#include "engine/sequence.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace culet {

struct Scheduler::Impl {
  Impl(std::shared_ptr<const Model> of, const SchedulerOptions& how)
      : model(std::move(of)), options(how), pass(model->impl()) {}

  void admit();
  void start_and_end();  // sequences that are new, and those that were cancelled
  void compute(StepReport* report);
  void remove_ended();

  const std::shared_ptr<const Model> model;
  const SchedulerOptions options;

  // Of the driving thread:
  engine::ForwardPass pass;
  std::vector<engine::Append*> queue;
  std::vector<std::unique_ptr<engine::Sequence>> active;  // in the order of their right to a pass
  std::vector<std::unique_ptr<engine::Sequence>> reordered, ended;  // kept for their memory

  // Of everybody, guarded by `mutex`:
  mutable std::mutex mutex;
  std::condition_variable submitted;
  std::vector<std::unique_ptr<engine::Sequence>> inbox;
  std::unordered_map<SequenceId, engine::Sequence*> sequences;
  std::unordered_set<const engine::SessionImpl*> sessions;
  SequenceId next_id = 1;
};

void Scheduler::Impl::admit() {
  const std::lock_guard lock(mutex);
  for (auto& sequence : inbox) active.push_back(std::move(sequence));
  inbox.clear();
}

void Scheduler::Impl::start_and_end() {
  const auto end = [](engine::Sequence& sequence) {
    if (sequence.cancelled() && !sequence.in_answer()) sequence.stop();
  };
  for (const auto& sequence : active) {
    end(*sequence);
    if (!sequence->ended() && !sequence->started()) sequence->start();
  }
  for (const auto& sequence : active) end(*sequence);  // by the callbacks of start()
}

void Scheduler::Impl::compute(StepReport* report) {
  queue.clear();
  for (const auto& sequence : active) {
    if (!sequence->ended()) queue.push_back(sequence->append());
  }
  pass.begin(options.max_step_tokens);
  pass.fill(queue);
  if (pass.empty()) return;
  const auto start = std::chrono::steady_clock::now();
  pass.run();
  report->seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double token_seconds = report->seconds / static_cast<double>(pass.tokens());
  for (const auto& sequence : active) {
    const engine::Append* append = sequence->append();
    if (sequence->ended() || !pass.has(append)) continue;
    (sequence->in_answer() ? report->decode_tokens : report->prompt_tokens) += append->chunk;
    sequence->passed(token_seconds * static_cast<double>(append->chunk));
  }
  reordered.clear();
  for (const bool was_in : {false, true}) {
    for (auto& sequence : active) {
      if (sequence && pass.has(sequence->append()) == was_in)
        reordered.push_back(std::move(sequence));
    }
  }
  active.swap(reordered);
}

void Scheduler::Impl::remove_ended() {
  {
    const std::lock_guard lock(mutex);
    for (auto& sequence : active) {
      if (!sequence->ended()) continue;
      sequences.erase(sequence->id());
      ended.push_back(std::move(sequence));
    }
  }
  if (ended.empty()) return;
  std::erase(active, nullptr);
  for (const auto& sequence : ended) {
    {
      const std::lock_guard lock(mutex);
      sessions.erase(sequence->session());
    }
    sequence->leave();
  }
  ended.clear();
}

Result<std::unique_ptr<Scheduler>> Scheduler::make(std::shared_ptr<const Model> model,
                                                   const SchedulerOptions& options) {
  CULET_CHECK(model != nullptr);
  if (model->info().kind != ModelKind::kDecoder || !model->impl().loaded().executor) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{} cannot run sequences: a scheduler needs a decoder that was loaded "
                            "without text_only",
                            model->info().path));
  }
  if (options.max_step_tokens < 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("max_step_tokens is {}; it must be 0 (the model's ubatch_size) or a "
                            "positive number",
                            options.max_step_tokens));
  }
  return std::unique_ptr<Scheduler>(
      new Scheduler(std::make_unique<Impl>(std::move(model), options)));
}

Scheduler::Scheduler(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Scheduler::~Scheduler() {
  for (const auto& sequence : impl_->active) sequence->abandon();
}

Result<SequenceId> Scheduler::submit(SequenceRequest request) {
  CULET_CHECK(request.session != nullptr);
  if (&request.session->model() != impl_->model.get()) {
    return fail(ErrorCode::kInvalidArgument,
                "the session is of another model than the scheduler; use one scheduler per model");
  }
  const engine::SessionImpl* session = &request.session->impl();
  const std::unique_lock lock(impl_->mutex);
  if (!impl_->sessions.insert(session).second) {
    return fail(ErrorCode::kInvalidArgument,
                "the session is in the scheduler already; wait until its sequence has ended, or "
                "submit a fork of it");
  }
  auto sequence = engine::Sequence::make(impl_->next_id, std::move(request));
  if (!sequence) {
    impl_->sessions.erase(session);
    return tl::unexpected(sequence.error());
  }
  const SequenceId id = impl_->next_id++;
  impl_->sequences.emplace(id, sequence->get());
  impl_->inbox.push_back(std::move(*sequence));
  impl_->submitted.notify_one();
  return id;
}

bool Scheduler::cancel(SequenceId id) {
  const std::lock_guard lock(impl_->mutex);
  const auto found = impl_->sequences.find(id);
  if (found == impl_->sequences.end()) return false;
  found->second->cancel();
  return true;
}

int64_t Scheduler::size() const {
  const std::lock_guard lock(impl_->mutex);
  return static_cast<int64_t>(impl_->sequences.size());
}

StepReport Scheduler::step() {
  base::set_float_mode();
  StepReport report;
  impl_->admit();
  impl_->start_and_end();
  impl_->compute(&report);
  impl_->remove_ended();
  report.sequences = size();
  return report;
}

bool Scheduler::wait(std::chrono::milliseconds timeout) {
  std::unique_lock lock(impl_->mutex);
  return impl_->submitted.wait_for(lock, timeout, [this] { return !impl_->sequences.empty(); });
}

}  // namespace culet
