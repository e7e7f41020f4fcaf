// What a Session is inside.
//
// What a session remembers lies in its Timeline, which is copied for a fork, a snapshot, or to be
// able to go back: caches share their blocks, logits are shared, tokens are few.
#pragma once

#include "cache/cache_set.h"
#include "culet/session.h"
#include "engine/history.h"
#include "engine/logits_buffer.h"
#include "engine/model_impl.h"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace culet::engine {

struct Timeline {
  cache::CacheSet caches;
  History history;
  LogitsBuffer logits;  // after the last token; empty: not known
};

class SessionImpl final {
 public:
  SessionImpl(std::shared_ptr<const Model> model, const SessionOptions& options, Timeline timeline);

  const std::shared_ptr<const Model>& model() const { return model_; }
  const ModelImpl& model_impl() const { return model_->impl(); }
  const SessionOptions& options() const { return options_; }
  int64_t context() const { return options_.stream ? INT64_MAX : options_.context; }
  int64_t length() const { return timeline_.history.length(); }
  std::span<const Token> tokens() const { return timeline_.history.kept(); }
  int64_t evicted() const;
  std::span<const float> logits() const { return timeline_.logits.values(); }

  void clear();
  bool can_rewind(int64_t length) const;
  bool rewind(int64_t length);
  int64_t rewind_limit() const;
  Result<void> assign(const SessionImpl& other);

  Timeline& timeline() { return timeline_; }
  const Timeline& timeline() const { return timeline_; }
  // A copy without the tokens of an append that is under way: these are in the caches already.
  Timeline settled() const;
  // What the caches become if the append under way is undone; null: the new tokens are cut off.
  void set_undo(const cache::CacheSet* caches) { undo_ = caches; }
  // Everything that can be known about an append of these tokens before any work is done.
  Result<void> check(std::span<const Token> tokens) const;
  // The tokens are in the caches: remember them, and forget what a stream need not know. Takes over
  // the logits after the last of them (empty: not computed).
  void appended(std::span<const Token> tokens, LogitsBuffer* logits);

 private:
  std::shared_ptr<const Model> model_;
  SessionOptions options_;
  int64_t remembered_;  // tokens of a stream that stay in the history, at least
  Timeline timeline_;
  const cache::CacheSet* undo_ = nullptr;
};

// Why a model that is no decoder has none.
tl::unexpected<Error> no_sessions(const ModelInfo& model);
// options with every default filled in. Errors: kInvalidArgument, kUnsupported (no stream).
Result<SessionOptions> resolve_options(const ModelImpl& model, const SessionOptions& options);
cache::CacheOptions cache_options(const SessionOptions& options);
// culet::context_memory, of options that are resolved.
Result<ContextMemory> context_memory(const ModelImpl& model, const SessionOptions& options);
// kExhausted: a session with these options (resolved) can never fit the memory limit, or the system
// has not enough memory now.
Result<void> check_room(const ModelImpl& model, const SessionOptions& options);
// Empty caches that take their memory from the model's pool.
Result<std::unique_ptr<cache::CacheSet>> make_caches(const ModelImpl& model,
                                                     const SessionOptions& options);
// Whether a snapshot of one fits the other.
bool same_memory(const SessionOptions& a, const SessionOptions& b);

}  // namespace culet::engine
