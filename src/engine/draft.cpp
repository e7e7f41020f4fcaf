// Takes a session of a draft model's target and a token that may follow it, gives what may follow
// that.
//
// The pass is of one row, at the position behind the session's last token, and only reads: the
// draft model's plan has no append, and its chunk holds the session's caches as const. So drafts
// of several sessions may run at once, and the session is what it was, to the bit.
#include "culet/draft.h"

#include "base/float_mode.h"
#include "engine/session_impl.h"
#include "sample/logprobs.h"

#include <fmt/format.h>

#include <new>

namespace culet {
namespace engine {
namespace {

Result<void> check_draft_model(const ModelImpl& draft_model) {
  const ModelInfo& info = draft_model.info();
  if (info.kind != ModelKind::kDraft) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{} is a model of kind {} (architecture {}), but drafting needs a "
                            "draft model; use the one that was trained for the session's model",
                            info.path, kind_name(info.kind), info.architecture));
  }
  if (!draft_model.loaded().executor) {
    return fail(ErrorCode::kInvalidArgument,
                "the draft model was loaded with text_only, so it cannot run; load it without");
  }
  return {};
}

Result<void> check_session(const ModelImpl& draft_model, const SessionImpl& session) {
  if (session.model().get() != draft_model.target()) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("the session belongs to another model than the target that the draft model was "
                    "loaded with (their files are {} and {}); use a session of the target",
                    session.model()->info().path, draft_model.target()->info().path));
  }
  if (session.length() == 0) {
    return fail(ErrorCode::kInvalidArgument,
                "the session has no tokens; append the prompt before drafting");
  }
  const std::string& why = draft_model.loaded().compiled.plan.no_stream;
  if (session.options().stream && !why.empty()) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{} cannot draft for an endless stream: {}; use a session with a fixed "
                            "context",
                            draft_model.info().path, why));
  }
  return {};
}

Result<void> check_step(const ModelImpl& draft_model, Token token, std::span<const float> hidden) {
  const int64_t vocabulary = draft_model.info().vocabulary_size;
  if (token < 0 || token >= vocabulary) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("token {} is outside the vocabulary, whose ids are 0 to {}", token,
                            vocabulary - 1));
  }
  const auto width = static_cast<size_t>(draft_model.executor().output_width(kHidden));
  if (hidden.size() != width) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("hidden has {} numbers, but the draft model takes {}; pass the hidden "
                            "values of its target or of its previous step",
                            hidden.size(), width));
  }
  return {};
}

std::vector<float> copy(std::span<const float> row) { return {row.begin(), row.end()}; }

Result<Draft> run(const ModelImpl& draft_model, const cache::CacheSet& caches, Token token,
                  std::span<const float> hidden) {
  WorkspaceLease workspace(draft_model);
  const backend::SequenceChunk chunk{nullptr, caches.length(), {&token, 1}, {}, &caches, hidden};
  CULET_TRY_VOID(draft_model.run(workspace.get(), {&chunk, 1}));
  const backend::Executor& executor = draft_model.executor();
  const std::span<const float> logits = executor.output(workspace.get(), kLogits);
  const std::span<const float> next = executor.output(workspace.get(), kHidden);
  if ((!draft_model.is_finite(logits) && !sample::only_suppressed(logits)) ||
      !draft_model.is_finite(next)) {
    return fail(
        ErrorCode::kNumeric,
        fmt::format(
            "the draft model's results for token {} are not finite numbers: the hidden values or "
            "the model file are damaged, or values overflow; compare with --precise",
            token));
  }
  return Draft{copy(logits), copy(next)};
}

}  // namespace
}  // namespace engine

Result<Draft> draft(const Model& draft_model, const Session& session, Token token,
                    std::span<const float> hidden) {
  const engine::ModelImpl& impl = draft_model.impl();
  const engine::SessionImpl& target = session.impl();
  CULET_TRY_VOID(engine::check_draft_model(impl));
  CULET_TRY_VOID(engine::check_session(impl, target));
  CULET_TRY_VOID(engine::check_step(impl, token, hidden));
  base::set_float_mode();
  try {
    const cache::CacheSet& caches = target.timeline().caches;
    if (caches.length() == target.options().start_position + target.length())
      return engine::run(impl, caches, token, hidden);
    const engine::Timeline settled = target.settled();  // in a callback of an append
    return engine::run(impl, settled.caches, token, hidden);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kExhausted,
                "there is not enough memory for a draft; close other programs");
  }
}

}  // namespace culet
