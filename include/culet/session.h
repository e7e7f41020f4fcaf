// A session: one sequence of tokens, with its key and value cache and its last logits.
//
// The logits after a token depend only on the model, the tokens up to it and the session's options,
// bit for bit. They do not depend on how the tokens were appended, on forks, rewinds or snapshots,
// or on other sessions in the same forward pass.
//
// Threads: a session belongs to one thread at a time; forks may live on different threads.
#pragma once

#include "culet/model.h"
#include "culet/progress.h"
#include "culet/result.h"
#include "culet/token.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace culet {

namespace engine {
class SessionImpl;
}  // namespace engine

// How a cache stores keys or values. kQ8 is q8_0: 8 bits per number, and one scale per 32 numbers.
enum class KvType : uint8_t { kF32, kF16, kBf16, kQ8 };
std::string_view kv_type_name(KvType type);  // "f32", "f16", "bf16", "q8_0"

// A session without an end, as in StreamingLLM (arXiv:2309.17453). Layers with full attention keep
// the first `sinks` tokens and the last `window` tokens. Layers with a window of their own keep
// that. Time per token and memory stay constant (docs/streaming.md).
struct StreamOptions {
  int64_t sinks = 4;   // first tokens, which stay: attention sinks, or a whole system prompt
  int64_t window = 0;  // last tokens, which stay. 0: the context minus the sinks
};

struct SessionOptions {
  // Tokens that the session can hold (llama.cpp: n_ctx). Appending more is an error before any
  // work. 0: the smaller of 4096 and what the model was trained for. More than that is an error.
  // With `stream`: the sum of sinks and window.
  int64_t context = 0;
  KvType keys = KvType::kF16, values = KvType::kF16;
  // Types of (keys, values) in layers with a window of their own; empty: as the other layers.
  std::optional<std::pair<KvType, KvType>> window_types{};
  std::optional<StreamOptions> stream{};
  int64_t start_position = 0;  // of the first token, a multiple of 32. For tests of large positions
};

// Memory of all layers of one kind, in bytes, when the context is full or the stream's window is.
struct LayerMemory {
  CacheKind kind = CacheKind::kFull;
  int64_t sinks = 0, window = 0;  // tokens; window 0: all tokens are kept
  int64_t layers = 0;
  uint64_t payload = 0;    // keys and values that the next token sees
  uint64_t allocated = 0;  // between forward passes: whole blocks, and tokens kept for a rewind
};
struct ContextMemory {
  std::vector<LayerMemory> layers;
  uint64_t payload = 0, allocated = 0;  // of all layers
  uint64_t peak = 0;                    // the most that is allocated, during a forward pass
};
// Computed from the plan; allocates nothing. Errors: as Session::make.
Result<ContextMemory> context_memory(const Model& model, const SessionOptions& options);

// The memory of a session now, in bytes.
struct SessionMemory {
  uint64_t own = 0;  // what closing the session would free, its token ids (4 bytes each) included
  uint64_t shared = 0;  // what other sessions (forks) hold, too
};

// Where the bytes of a snapshot go to or come from: a file, a socket, memory. A sink takes the
// bytes or returns an error. A source fills the whole span or returns an error. The caller of
// save() or restore() gets that error.
using SnapshotSink = std::function<Result<void>(std::span<const std::byte>)>;
using SnapshotSource = std::function<Result<void>(std::span<std::byte>)>;

// Called with the index of a token in the session (from 0) and, as `values`, either the raw logits
// after it, [vocabulary size], or the hidden values that these are computed from, [hidden size].
// `values` is valid during the call.
using LogitsFn = std::function<void(int64_t index, std::span<const float> values)>;

class Session final {
 public:
  // Errors: kUnsupported (an encoder or a draft model; a stream of an architecture that cannot
  // stream), kInvalidArgument (an option out of range; a model loaded with text_only), kExhausted
  // (not enough memory).
  static Result<std::unique_ptr<Session>> make(std::shared_ptr<const Model> model,
                                               const SessionOptions& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const Model& model() const;
  const std::shared_ptr<const Model>& shared_model() const;
  const SessionOptions& options() const;  // with every default filled in
  int64_t context() const;                // tokens that it can hold; a stream: INT64_MAX
  int64_t length() const;                 // tokens appended, evicted ones included
  // The tokens. Of a stream: the last ones, at least all that some layer still sees. Valid until
  // the session changes.
  std::span<const Token> tokens() const;
  int64_t evicted() const;  // tokens that layers with full attention no longer see (streams)

  // Appends tokens and evaluates them, in as many forward passes as needed. On an error, nothing is
  // appended. Progress: stage "prompt", in tokens, after each forward pass; if it stops the work,
  // nothing is appended. Callbacks are called on the calling thread. They may read and fork this
  // session, but must not change it. Errors before any work: kExhausted (more tokens than the
  // context or the memory holds), kInvalidArgument (a token outside the vocabulary). Later:
  // kExhausted (memory), kNumeric (a logit is NaN or +infinity), kCancelled.
  Result<void> append(std::span<const Token> tokens, const ProgressFn& progress = {});
  // The same, and calls on_logits for every new token, in order.
  Result<void> append_each(std::span<const Token> tokens, const LogitsFn& on_logits,
                           const ProgressFn& progress = {});
  // Raw logits after the last token, [vocabulary size]. Empty before the first append, after a
  // rewind, and after an append with AppendItem::logits false. Valid until the session changes.
  std::span<const float> logits() const;

  void clear();  // removes all tokens; then the same as a new session, bit for bit
  // Removes all tokens from index `length` on. False: impossible, because the memory that is needed
  // is gone (see rewind_limit); nothing has changed then.
  bool rewind(int64_t length);
  // How far back rewind() can go: the smallest length above 0 that works. length() if there is
  // none; 0 for an empty session. What is possible depends on the layers:
  //   full attention: every length. Windows and streams: as far back as their blocks reach.
  //   Recurrent states: the length before the last forward pass, and nothing in between.
  // Without recurrent states, every length from rewind_limit() on works. Length 0 always works, and
  // so do lengths within the sinks if all layers keep them; these do not count here.
  int64_t rewind_limit() const;

  // A new session with the same tokens, logits and options. The two share all blocks; a block is
  // copied when one of them writes to it. A fork that is kept is a checkpoint: assign() returns to
  // it.
  std::unique_ptr<Session> fork() const;
  // What a checkpoint taken now will cost, in bytes: the SessionMemory::own of a fork after this
  // session has appended very many more tokens. These are blocks that have left the windows, the
  // last block of each layer if it is not full, states, logits and token ids. Exact if no other
  // fork holds these blocks; otherwise an upper bound. If this session is cleared or rewound, the
  // fork holds more.
  uint64_t checkpoint_bytes() const;
  // Makes this session a fork of `other`. Errors: kInvalidArgument (another model or other options;
  // the context may differ), kExhausted (more tokens than this session's context holds).
  Result<void> assign(const Session& other);

  // Snapshots: the session as bytes (docs/formats/snapshot.md), and back. Progress is in bytes;
  // stages "saving" and "restoring". If restore() fails, the session is as before. Errors: kIo
  // (files), kInvalidArgument (another model or other options), kCorrupt (damaged bytes),
  // kUnsupported (another version of the format), kExhausted (memory or context), kCancelled, and
  // those of the sink or source.
  Result<void> save(const std::string& path, const ProgressFn& progress = {}) const;
  Result<void> save(const SnapshotSink& sink) const;
  Result<std::vector<std::byte>> snapshot() const;
  Result<void> restore(const std::string& path, const ProgressFn& progress = {});
  Result<void> restore(uint64_t bytes, const SnapshotSource& source);
  Result<void> restore(std::span<const std::byte> snapshot);

  // Prefix reuse: makes the session hold exactly these tokens. Keeps the longest common prefix that
  // the layers can rewind to, and evaluates the rest. On an error the session is as before. Errors
  // and progress as append().
  struct PrefixReuse {
    int64_t reused = 0, evaluated = 0;  // tokens
    int64_t evicted = 0;                // evicted() afterwards
  };
  Result<PrefixReuse> set_tokens(std::span<const Token> tokens, const ProgressFn& progress = {});

  SessionMemory memory() const;

  // For culet's own sources.
  engine::SessionImpl& impl() { return *impl_; }
  const engine::SessionImpl& impl() const { return *impl_; }
  explicit Session(std::unique_ptr<engine::SessionImpl> impl);

 private:
  std::unique_ptr<engine::SessionImpl> impl_;
};

// Appends to several sessions of one model in common forward passes. Each item succeeds or fails
// independently, as Session::append does, and gives the same bits as a separate append.
struct AppendItem {
  Session* session;  // no session twice
  std::span<const Token> tokens;
  bool logits = true;    // false: the logits after the last token are not computed
  LogitsFn on_logits{};  // if set: called for every token
  // If set: called with the hidden values after the last norm (the output `hidden` of the
  // architecture file), for every token if on_logits is set, otherwise for the last token; always
  // after on_logits. Error kUnsupported: the architecture has no such output.
  LogitsFn on_hidden{};
};
// Returns one result per item, in order. Progress: stage "prompt", in tokens of all items; if it
// stops the work, items that were not finished before get kCancelled.
std::vector<Result<void>> append_batch(std::span<const AppendItem> items,
                                       const ProgressFn& progress = {});

// Tokens of the session in a snapshot file, as its header says: what restore() will need of the
// context. Errors: kIo, kCorrupt, kUnsupported (another version of the format).
Result<int64_t> snapshot_length(const std::string& path);

}  // namespace culet
