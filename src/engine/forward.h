// Appends of several sessions, moved on together by one forward pass after the other.
//
// How tokens are spread over passes never changes a bit. An append is all or nothing: the tokens
// and logits of its session change only when it is finished; if it fails, its caches go back, by
// cutting the new tokens off, or, where that may not be possible by then (long appends, states over
// several passes), to a fork taken before.
#pragma once

#include "cache/cache_set.h"
#include "culet/session.h"
#include "engine/logits_buffer.h"
#include "engine/session_impl.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace culet::engine {

// Tokens on their way into one session. Kept from append to append, it allocates nothing after the
// first ones.
struct Append {
  SessionImpl* session = nullptr;
  std::span<const Token> tokens;
  bool logits = true;                   // after the last token
  const LogitsFn* on_logits = nullptr;  // of every token
  const LogitsFn* on_hidden = nullptr;  // of every token with on_logits, else of the last

  int64_t done = 0;     // tokens in the caches
  bool waited = false;  // did not fit into the last pass that was filled
  Result<void> result;

  int64_t size() const { return static_cast<int64_t>(tokens.size()); }
  bool finished() const { return done == size(); }
  void start(std::span<const Token> next);  // after finish() or undo()
  // All tokens are in the caches: the session takes them over.
  void finish();
  // The session becomes what it was at start().
  void undo();
  // Keeps the caches of before the append, which cannot be cut back to them later.
  void keep_before();
  void forget_before();

  // Of the forward pass that it is in:
  int64_t chunk = 0;             // tokens
  std::vector<int32_t> outputs;  // those of them whose logits are computed
  LogitsBuffer last;
  std::optional<cache::CacheSet> before;
};

// One forward pass over pieces of appends. Keeps its memory from pass to pass.
class ForwardPass {
 public:
  explicit ForwardPass(const ModelImpl& model) : model_(model) {}

  // Empties the pass. max_tokens <= 0, or too many: what the executor takes.
  void begin(int32_t max_tokens);
  // Fills it: first the appends of a single token, then pieces of the others, in equal shares of at
  // least kLeastPiece tokens, in the order of the queue as far as they fit. Where the first kind
  // alone would fill it, one token of those others that did not fit into the last pass counts as
  // well, so nobody waits for ever.
  void fill(std::span<Append* const> queue);
  bool empty() const { return appends_.empty(); }
  std::span<Append* const> appends() const { return appends_; }
  bool has(const Append* append) const {
    return std::find(appends_.begin(), appends_.end(), append) != appends_.end();
  }
  int64_t tokens() const { return tokens_; }

  // Computes it. Each append's `done` moves on, or its result is an error and it is undone.
  void run(std::span<backend::OpCost> op_costs = {});

 private:
  static constexpr int64_t kLeastPiece = 32;  // one cache block

  bool add(Append* append, int64_t most);
  void run_together(std::span<Append* const> appends, std::span<backend::OpCost> op_costs);
  Result<void> compute(backend::Workspace* workspace, std::span<Append* const> appends,
                       std::span<backend::OpCost> op_costs);
  void read(const backend::Workspace& workspace, std::span<Append* const> appends);
  Result<void> read_one(Append* append, std::span<const float> logits,
                        std::span<const float> hidden);

  const ModelImpl& model_;
  std::vector<Append*> appends_;
  std::vector<backend::SequenceChunk> batch_;
  int64_t tokens_ = 0, tokens_left_ = 0, outputs_left_ = 0;
};

// Errors of an append before any work; item.session is of `model`.
Result<void> check_append(const SessionImpl& session, std::span<const Token> tokens, bool hidden);

// append_batch, measured: op_costs as in ModelImpl::run.
std::vector<Result<void>> append_measured(std::span<const AppendItem> items,
                                          const ProgressFn& progress,
                                          std::span<backend::OpCost> op_costs);

}  // namespace culet::engine
