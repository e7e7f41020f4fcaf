// The Session that Session::make makes.
//
// What a session is lies in its Timeline, which is copied for a fork, a snapshot, or to be able to
// go back: caches share their blocks, logits are shared, tokens are few.
#pragma once

#include "cache/cache_set.h"
#include "culet/engine.h"
#include "engine/history.h"
#include "engine/model_impl.h"

#include <memory>
#include <string>
#include <vector>

namespace culet::engine {

using Logits = std::shared_ptr<const std::vector<float>>;

struct Timeline {
  cache::CacheSet caches;
  History history;
  Logits logits;  // after the last token; null: none
};

class SessionImpl final : public Session {
 public:
  SessionImpl(std::shared_ptr<const Model> model, const SessionOptions& options, Timeline timeline);

  const Model& model() const override { return *model_; }
  const SessionOptions& options() const override { return options_; }
  int64_t context() const override { return options_.stream ? INT64_MAX : options_.context; }
  int64_t length() const override { return timeline_.history.length(); }
  std::span<const Token> tokens() const override { return timeline_.history.kept(); }
  int64_t evicted() const override;
  std::span<const float> logits() const override {
    return timeline_.logits ? std::span<const float>(*timeline_.logits) : std::span<const float>();
  }
  Result<void> append(std::span<const Token> tokens, const Progress& progress) override;
  Result<void> append_each(std::span<const Token> tokens, const RowFn& row,
                           const Progress& progress) override;
  void clear() override;
  bool rewind(int64_t length) override;
  std::unique_ptr<Session> fork() const override;
  Result<void> become(const Session& other) override;
  Result<void> save(const std::string& path, const Progress& progress) const override;
  Result<void> restore(const std::string& path, const Progress& progress) override;
  Result<Synced> sync(std::span<const Token> tokens, const Progress& progress) override;
  uint64_t memory_bytes() const override;

  const ModelImpl& model_impl() const { return impl_; }
  Timeline& timeline() { return timeline_; }
  const Timeline& timeline() const { return timeline_; }
  // Everything that can be known about an append of these tokens before any work is done.
  Result<void> check(std::span<const Token> tokens) const;
  // The tokens are in the caches: remember them, and forget what a stream need not know.
  void appended(std::span<const Token> tokens, Logits logits);

 private:
  std::shared_ptr<const Model> model_;
  const ModelImpl& impl_;
  SessionOptions options_;
  int64_t remembered_;  // tokens of a stream that stay in the history, at least
  Timeline timeline_;
};

// Why a model that is no decoder has none.
tl::unexpected<Error> no_sessions(const ModelInfo& model);
// options with every default filled in. Errors: kInvalidArgument, kUnsupported (no stream).
Result<SessionOptions> resolve_options(const ModelImpl& model, const SessionOptions& options);
cache::CacheOptions cache_options(const SessionOptions& options);
bool same_memory(const SessionOptions& a,
                 const SessionOptions& b);  // snapshots of one fit the other

// The bytes of a snapshot (docs/formats/snapshot.md); `digests`: sha256 of the model's files.
Result<void> write_snapshot(const SessionImpl& session, const std::vector<std::string>& digests,
                            const cache::Sink& sink);
// The timeline in `size` bytes of a snapshot, if it fits the session.
Result<Timeline> read_snapshot(const SessionImpl& session, const std::vector<std::string>& digests,
                               uint64_t size, const cache::Source& source);

}  // namespace culet::engine
