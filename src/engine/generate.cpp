// One prompt, one answer: a scheduler with a single sequence.
#include "culet/generate.h"

#include "culet/scheduler.h"

#include <utility>

namespace culet {

Result<Finished> generate(Session& session, std::span<const Token> prompt,
                          const GenerateOptions& options, const EventFn& on_event) {
  CULET_TRY(const auto scheduler, Scheduler::make(session.shared_model(), {}));
  Result<Finished> result;
  SequenceRequest request;
  request.session = &session;
  request.tokens.assign(prompt.begin(), prompt.end());
  request.generate = options;
  request.on_event = [&](const Event& event) {
    if (const auto* failed = std::get_if<Failed>(&event)) {
      result = tl::unexpected(failed->error);
      return false;
    }
    if (const auto* finished = std::get_if<Finished>(&event)) result = *finished;
    return !on_event || on_event(event);
  };
  CULET_TRY_VOID(scheduler->submit(std::move(request)));
  while (scheduler->step().sequences > 0) {
  }
  return result;
}

}  // namespace culet
