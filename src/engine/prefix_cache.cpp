// Kept states in the order of their last use. Every look-up compares the prompt with each of them:
// they are few, and comparing is cheap beside evaluating one token.
#include "culet/prefix_cache.h"

#include "base/check.h"
#include "engine/session_impl.h"

#include <fmt/format.h>

#include <algorithm>
#include <list>
#include <utility>

namespace culet {
namespace {

using State = std::unique_ptr<Session>;

// The longest length, at most `length`, that the state can go back to; 0: none.
int64_t reachable(const Session& session, int64_t length) {
  if (session.impl().can_rewind(length)) return length;
  const int64_t limit = session.rewind_limit();
  return limit <= length ? limit : 0;
}

const engine::History& history(const Session& session) { return session.impl().timeline().history; }

// Whether going back makes `longer` what `shorter` is, so that it is enough to keep the former.
bool holds(const Session& longer, const Session& shorter) {
  return history(longer).begins_with(history(shorter)) &&
         longer.impl().can_rewind(shorter.length());
}

// Bytes of blocks and logits that dropping the state frees.
uint64_t gain(const Session& session) {
  const uint64_t ids = session.tokens().size_bytes();
  const uint64_t own = session.memory().own;
  return own > ids ? own - ids : 0;
}

}  // namespace

struct PrefixCache::Impl {
  std::shared_ptr<const Model> model;
  SessionOptions session;
  PrefixCacheOptions options;
  std::list<State> states;  // the last used first
  Stats stats;

  void use(std::list<State>::iterator state) { states.splice(states.begin(), states, state); }
  void drop(std::list<State>::iterator state) {
    ++stats.dropped;
    states.erase(state);
  }
  bool drop_one();
};

// The one that was not used for longest, of those that free memory if there are any. Where none
// does, each block belongs to two states or to a live session, and dropping one of two states lets
// the other free it.
bool PrefixCache::Impl::drop_one() {
  if (states.empty()) return false;
  for (auto state = states.rbegin(); state != states.rend(); ++state) {
    if (gain(**state) == 0) continue;
    drop(std::next(state).base());
    return true;
  }
  drop(std::prev(states.end()));
  return true;
}

Result<std::unique_ptr<PrefixCache>> PrefixCache::make(std::shared_ptr<const Model> model,
                                                       const SessionOptions& session,
                                                       const PrefixCacheOptions& options) {
  CULET_CHECK(model != nullptr);
  if (options.max_states < 1) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("max_states is {}; it must be at least 1", options.max_states));
  }
  CULET_TRY(const auto first, Session::make(model, session));
  auto impl = std::make_unique<Impl>();
  impl->session = first->options();
  impl->model = std::move(model);
  impl->options = options;
  return std::unique_ptr<PrefixCache>(new PrefixCache(std::move(impl)));
}

PrefixCache::PrefixCache(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PrefixCache::~PrefixCache() = default;

Result<PrefixCache::Match> PrefixCache::take(std::span<const Token> tokens) {
  if (tokens.empty()) return fail(ErrorCode::kInvalidArgument, "the prompt has no tokens");
  const auto wanted = static_cast<int64_t>(tokens.size());
  auto best = impl_->states.end();
  int64_t reused = 0, branch = 0;
  for (auto state = impl_->states.begin(); state != impl_->states.end(); ++state) {
    const int64_t common = std::min(history(**state).common_prefix(tokens), wanted - 1);
    const int64_t there = reachable(**state, common);
    branch = std::max(branch, common);
    if (there > reused) best = state, reused = there;
  }
  Match match{.session = nullptr, .reused = reused, .branch = branch > reused ? branch : 0};
  if (best != impl_->states.end()) {
    match.session = (*best)->fork();
    CULET_CHECK(match.session->rewind(reused));
    impl_->use(best);
  } else {
    for (;;) {
      auto made = Session::make(impl_->model, impl_->session);
      if (!made && made.error().code == ErrorCode::kExhausted && impl_->drop_one()) continue;
      CULET_TRY(match.session, std::move(made));
      break;
    }
  }
  Stats& stats = impl_->stats;
  ++stats.takes;
  stats.hits += reused > 0 ? 1 : 0;
  stats.tokens += wanted;
  stats.reused += reused;
  trim();
  return match;
}

Result<void> PrefixCache::keep(const Session& session) {
  if (session.shared_model() != impl_->model ||
      !engine::same_memory(session.options(), impl_->session)) {
    return fail(ErrorCode::kInvalidArgument,
                "the session has another model or other options than the prefix cache");
  }
  if (session.length() == 0) return {};
  auto& states = impl_->states;
  State kept = session.fork();
  for (auto state = states.begin(); state != states.end();) {
    if (holds(*kept, **state)) {
      state = states.erase(state);
    } else if (holds(**state, *kept)) {
      impl_->use(state);
      trim();
      return {};
    } else {
      ++state;
    }
  }
  states.push_front(std::move(kept));
  while (static_cast<int64_t>(states.size()) > impl_->options.max_states) {
    impl_->drop(std::prev(states.end()));
  }
  trim();
  return {};
}

bool PrefixCache::trim(uint64_t bytes) {
  while (impl_->model->memory().used > bytes) {
    if (!impl_->drop_one()) return false;
  }
  return true;
}

bool PrefixCache::trim() { return trim(impl_->options.max_bytes); }

void PrefixCache::clear() { impl_->states.clear(); }

PrefixCache::Stats PrefixCache::stats() const {
  Stats stats = impl_->stats;
  stats.states = static_cast<int64_t>(impl_->states.size());
  return stats;
}

}  // namespace culet
