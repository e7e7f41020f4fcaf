// A session: one timeline, and what can be done with it. Appending is in forward.cpp, bytes are in
// snapshot.cpp.
//
// A stream's history keeps what some layer still sees and what a sampler's penalties may look at;
// the rest is a digest (history.h).
#include "base/check.h"
#include "engine/session_impl.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace culet {
namespace engine {
namespace {

constexpr int64_t kRemembered = 4096;                // tokens of a stream, at least
constexpr int64_t kMostPosition = int64_t{1} << 40;  // angles are exact far beyond

int64_t widest_window(const ModelImpl& model) {
  int64_t most = 0;
  for (const plan::CacheSpec& spec : model.loaded().compiled.plan.caches)
    if (spec.policy == plan::CachePolicy::kWindow) most = std::max(most, spec.window);
  return most;
}

}  // namespace

tl::unexpected<Error> no_sessions(const ModelInfo& model) {
  return fail(ErrorCode::kUnsupported,
              model.kind == ModelKind::kEncoder
                  ? fmt::format("{} is an encoder (architecture {}): it makes vectors of texts and "
                                "cannot continue them, so it has no sessions; use culet embed "
                                "(culet::embed, culet::encode), or use a decoder",
                                model.path, model.architecture)
                  : fmt::format("{} is a draft model (architecture {}): it proposes tokens for the "
                                "sessions of its target and has none of its own; call culet::draft",
                                model.path, model.architecture));
}

SessionImpl::SessionImpl(std::shared_ptr<const Model> model, const SessionOptions& options,
                         Timeline timeline)
    : model_(std::move(model)),
      options_(options),
      remembered_(std::max({kRemembered, options.context, widest_window(model_->impl())})),
      timeline_(std::move(timeline)) {}

int64_t SessionImpl::evicted() const {
  if (!options_.stream) return 0;
  return std::max<int64_t>(0, length() - options_.stream->sinks - options_.stream->window);
}

Result<void> SessionImpl::check(std::span<const Token> tokens) const {
  const auto more = static_cast<int64_t>(tokens.size());
  if (more > context() - length()) {
    return fail(
        ErrorCode::kExhausted,
        fmt::format("the context holds {} tokens, but {} are needed ({} there, {} new); use a "
                    "session with a larger context",
                    context(), length() + more, length(), more));
  }
  if (more > kMostPosition - options_.start_position - length()) {
    return fail(ErrorCode::kExhausted,
                fmt::format("a session ends at position {}; start a new one", kMostPosition));
  }
  const int64_t vocabulary = model_->info().vocabulary_size;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocabulary) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("token {} of the input is {}, but the vocabulary has ids 0 to {}", i,
                              tokens[i], vocabulary - 1));
    }
  }
  return {};
}

void SessionImpl::appended(std::span<const Token> tokens, LogitsBuffer* logits) {
  timeline_.history.append(tokens);
  std::swap(timeline_.logits, *logits);
  logits->clear();
  if (options_.stream) timeline_.history.forget_all_but(remembered_);
}

void SessionImpl::clear() {
  timeline_.caches.clear();
  timeline_.history.clear();
  timeline_.logits.clear();
}

bool SessionImpl::can_rewind(int64_t length) const {
  if (length < 0 || length >= this->length()) return length == this->length();
  if (length < timeline_.history.forgotten() && length > 0) return false;
  return timeline_.caches.can_truncate(options_.start_position + length);
}

bool SessionImpl::rewind(int64_t length) {
  if (!can_rewind(length)) return false;
  if (length == this->length()) return true;
  const auto cut = timeline_.caches.truncate(options_.start_position + length);
  CULET_CHECK(cut == cache::Truncation::kDone);
  CULET_CHECK(timeline_.history.resize(length));
  timeline_.logits.clear();
  return true;
}

Timeline SessionImpl::settled() const {
  Timeline copy = timeline_;
  const cache::Position end = options_.start_position + length();
  if (copy.caches.length() == end) return copy;
  if (undo_ != nullptr) {
    copy.caches = *undo_;
  } else {
    CULET_CHECK(copy.caches.truncate(end) == cache::Truncation::kDone);
  }
  return copy;
}

int64_t SessionImpl::rewind_limit() const {
  const int64_t start = options_.start_position;
  const int64_t lowest = std::max(
      {int64_t{1}, timeline_.history.forgotten(), timeline_.caches.rewind_limit() - start});
  return timeline_.caches.can_truncate(start + lowest) ? std::min(lowest, length()) : length();
}

Result<void> SessionImpl::assign(const SessionImpl& other) {
  if (other.model_ != model_ || !same_memory(other.options_, options_)) {
    return fail(ErrorCode::kInvalidArgument,
                "the two sessions have different models or options; assign() needs the same ones");
  }
  if (other.length() > context()) {
    return fail(ErrorCode::kExhausted,
                fmt::format("the context holds {} tokens, the other session has {}", context(),
                            other.length()));
  }
  timeline_ = other.settled();
  return {};
}

}  // namespace engine

// ---------------------------------------------------------------- the public face

Result<std::unique_ptr<Session>> Session::make(std::shared_ptr<const Model> model,
                                               const SessionOptions& options) {
  CULET_CHECK(model != nullptr);
  const engine::ModelImpl& impl = model->impl();
  if (!impl.loaded().executor) {
    return fail(ErrorCode::kInvalidArgument,
                "the model was loaded with text_only, so it cannot run; load it without");
  }
  if (impl.info().kind != ModelKind::kDecoder) return engine::no_sessions(impl.info());
  CULET_TRY(const SessionOptions resolved, engine::resolve_options(impl, options));
  CULET_TRY_VOID(engine::check_room(impl, resolved));
  CULET_TRY(auto caches, engine::make_caches(impl, resolved));
  return std::make_unique<Session>(std::make_unique<engine::SessionImpl>(
      std::move(model), resolved, engine::Timeline{std::move(*caches), {}, {}}));
}

Session::Session(std::unique_ptr<engine::SessionImpl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;

const Model& Session::model() const { return *impl_->model(); }
const std::shared_ptr<const Model>& Session::shared_model() const { return impl_->model(); }
const SessionOptions& Session::options() const { return impl_->options(); }
int64_t Session::context() const { return impl_->context(); }
int64_t Session::length() const { return impl_->length(); }
std::span<const Token> Session::tokens() const { return impl_->tokens(); }
int64_t Session::evicted() const { return impl_->evicted(); }
std::span<const float> Session::logits() const { return impl_->logits(); }
void Session::clear() { impl_->clear(); }
bool Session::rewind(int64_t length) { return impl_->rewind(length); }
int64_t Session::rewind_limit() const { return impl_->rewind_limit(); }
Result<void> Session::assign(const Session& other) { return impl_->assign(*other.impl_); }

std::unique_ptr<Session> Session::fork() const {
  return std::make_unique<Session>(
      std::make_unique<engine::SessionImpl>(impl_->model(), impl_->options(), impl_->settled()));
}

Result<void> Session::append(std::span<const Token> tokens, const ProgressFn& progress) {
  const AppendItem item{this, tokens};
  return append_batch({&item, 1}, progress)[0];
}

Result<void> Session::append_each(std::span<const Token> tokens, const LogitsFn& on_logits,
                                  const ProgressFn& progress) {
  const AppendItem item{this, tokens, true, on_logits};
  return append_batch({&item, 1}, progress)[0];
}

// The last token is evaluated again when its logits are not known.
Result<Session::PrefixReuse> Session::set_tokens(std::span<const Token> tokens,
                                                 const ProgressFn& progress) {
  const auto wanted = static_cast<int64_t>(tokens.size());
  if (wanted > context()) {
    return fail(ErrorCode::kExhausted,
                fmt::format("the context holds {} tokens, but {} are needed; use a session with a "
                            "larger context",
                            context(), wanted));
  }
  engine::Timeline& timeline = impl_->timeline();
  const int64_t common = timeline.history.common_prefix(tokens);
  const bool whole = common == length();
  if (whole && common == wanted && (timeline.logits || wanted == 0))
    return PrefixReuse{wanted, 0, evicted()};
  const int64_t keep = whole && common < wanted ? common : std::min(common, wanted - 1);
  const engine::Timeline before = timeline;
  const bool kept = keep == length() || (keep > 0 && rewind(keep));
  if (!kept) clear();
  const int64_t reused = length();
  const auto done = append(tokens.subspan(static_cast<size_t>(reused)), progress);
  if (!done) {
    timeline = before;
    return tl::unexpected(done.error());
  }
  return PrefixReuse{reused, wanted - reused, evicted()};
}

}  // namespace culet
