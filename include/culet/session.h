// A session: one sequence of tokens and what a decoder remembers of it.
//
// The logits after a token depend on the model, the tokens up to it and the session's options
// alone, bit for bit: not on how the tokens were appended, on forks, rewinds, snapshots, or on
// other sessions that were computed in the same forward pass.
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

// How a cache stores keys or values; kQ8 is q8_0: 8 bits, and one scale for each 32 numbers.
enum class KvType : uint8_t { kF32, kF16, kBf16, kQ8 };
std::string_view kv_type_name(KvType type);  // "f32", "f16", "bf16", "q8_0"

// A session without an end, as in StreamingLLM (arXiv:2309.17453): layers that would see everything
// keep the first `sinks` tokens and the last `window`; layers with a window of their own keep that.
// Time and memory per token stay the same for ever (docs/streaming.md).
struct StreamOptions {
  int64_t sinks = 4;   // first tokens that stay: attention sinks, or a whole system turn
  int64_t window = 0;  // 0: the context less the sinks
};

struct SessionOptions {
  // Tokens the session can hold; an append past it is an error before any work. 0: the smaller of
  // 4096 and what the model was trained for. More than it was trained for is an error.
  int64_t context = 0;
  KvType keys = KvType::kF16, values = KvType::kF16;
  // Types of (keys, values) in layers with a window of their own, where they differ.
  std::optional<std::pair<KvType, KvType>> window_types{};
  std::optional<StreamOptions> stream{};
  int64_t start_position = 0;  // of the first token; a multiple of 32. For tests of far positions
};

// Memory of all layers of one kind when the context is full, or the stream is under way; bytes.
struct LayerMemory {
  CacheKind kind = CacheKind::kFull;
  int64_t sinks = 0, window = 0;  // window 0: everything is kept
  int64_t layers = 0;
  uint64_t payload = 0;    // keys and values that the next token sees
  uint64_t allocated = 0;  // between passes: whole blocks, and tokens kept for a rewind
};
struct ContextMemory {
  std::vector<LayerMemory> layers;
  uint64_t payload = 0, allocated = 0;  // of all layers
  uint64_t peak = 0;                    // the most that is allocated, during a pass
};
// Known before anything is allocated. Errors: as Session::make for options that make no sense.
Result<ContextMemory> context_memory(const Model& model, const SessionOptions& options);

// What a session holds now; bytes.
struct SessionMemory {
  uint64_t own = 0;     // what closing the session would give back, and its tokens (4 bytes each)
  uint64_t shared = 0;  // what a fork holds too
};

// Bytes to and from anything: a file, a socket, memory. A sink returns an error to stop; a source
// fills the whole span or returns an error. Either error is returned to the caller as it is.
using SnapshotSink = std::function<Result<void>(std::span<const std::byte>)>;
using SnapshotSource = std::function<Result<void>(std::span<std::byte>)>;

// Called with the index of a token in the session and the raw logits after it, [vocabulary size],
// or the hidden values they are computed from, [hidden size]. The numbers are valid during the
// call.
using LogitsFn = std::function<void(int64_t index, std::span<const float> values)>;

class Session final {
 public:
  // kUnsupported: an encoder or a draft model, or a stream that this architecture cannot have, with
  // the reason. kInvalidArgument: options that make no sense. kExhausted: the memory is not there.
  static Result<std::unique_ptr<Session>> make(std::shared_ptr<const Model> model,
                                               const SessionOptions& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const Model& model() const;
  const std::shared_ptr<const Model>& shared_model() const;
  const SessionOptions& options() const;  // with every default filled in
  int64_t context() const;                // tokens it can hold; a stream: INT64_MAX
  int64_t length() const;                 // tokens appended
  // The tokens; of a stream the last of them, at least as many as some layer still sees. Valid
  // until the session changes.
  std::span<const Token> tokens() const;
  int64_t evicted() const;  // tokens that have left the window of layers that would see everything

  // Evaluates tokens behind the present ones. On an error nothing was appended.
  // Progress: stage "prompt", in tokens, after each forward pass; stopping leaves the session as it
  // was. Callbacks may read and fork this session and must not change it.
  // Errors, before any work: kExhausted (more than the context or the memory holds),
  // kInvalidArgument (a token outside the vocabulary); later: kNumeric (a logit is NaN or
  // +infinity), kCancelled.
  Result<void> append(std::span<const Token> tokens, const ProgressFn& progress = {});
  // The same, and calls on_logits for every new token in order.
  Result<void> append_each(std::span<const Token> tokens, const LogitsFn& on_logits,
                           const ProgressFn& progress = {});
  // Raw logits after the last token (no temperature), [vocabulary size]; empty before the first
  // append, after a rewind, and after an append that did not ask for them. Valid until the session
  // changes.
  std::span<const float> logits() const;

  void clear();  // as a new session, bit for bit
  // Forgets tokens from `length` on. False: what is needed is gone (see rewind_limit); the session
  // is then as it was.
  bool rewind(int64_t length);
  // How far back rewind() can go: the smallest length above 0 that works, length() if there is
  // none; 0 for an empty session. Without recurrent states every length from there on works. Layers
  // that keep everything can go anywhere, windows and streams as far as their blocks reach, a
  // recurrent state to before the last forward pass and nowhere between. Besides, length 0 always
  // works, and where all layers keep the sinks of a stream, so do lengths within them, which do not
  // count here.
  int64_t rewind_limit() const;

  // Another session with the same past: a copy of the block lists. Memory is shared until one of
  // the two appends. A fork that is kept is a checkpoint.
  std::unique_ptr<Session> fork() const;
  // The bytes that a fork taken now and kept would hold alone (its SessionMemory::own) when this
  // session has gone on appending for ever: the blocks that windows give up, the last block of each
  // layer if it is not full, states, logits, tokens. Exact if no other fork holds them, else the
  // most it can be. Clearing or rewinding this session leaves the fork more.
  uint64_t checkpoint_bytes() const;
  // Becomes a fork of `other`. kInvalidArgument: it is of another model or has other options.
  Result<void> assign(const Session& other);

  // The session as bytes (docs/formats/snapshot.md), and back. What restore() refuses (another
  // model, other options, damaged bytes) leaves the session as it was. Progress in bytes, stages
  // "saving" and "restoring".
  Result<void> save(const std::string& path, const ProgressFn& progress = {}) const;
  Result<void> save(const SnapshotSink& sink) const;
  Result<std::vector<std::byte>> snapshot() const;
  Result<void> restore(const std::string& path, const ProgressFn& progress = {});
  Result<void> restore(uint64_t bytes, const SnapshotSource& source);
  Result<void> restore(std::span<const std::byte> snapshot);

  // Makes the session hold exactly these tokens: keeps the longest prefix it can and evaluates the
  // rest. On an error the session is as it was.
  struct PrefixReuse {
    int64_t reused = 0, evaluated = 0;  // tokens
    int64_t evicted = 0;                // as evicted() afterwards
  };
  Result<PrefixReuse> set_tokens(std::span<const Token> tokens, const ProgressFn& progress = {});

  SessionMemory memory() const;

  // The engine's own side.
  engine::SessionImpl& impl() { return *impl_; }
  const engine::SessionImpl& impl() const { return *impl_; }
  explicit Session(std::unique_ptr<engine::SessionImpl> impl);

 private:
  std::unique_ptr<engine::SessionImpl> impl_;
};

// Appends to several sessions of one model in common forward passes. Each item succeeds or fails by
// itself, as Session::append does, with the bits of a separate append.
struct AppendItem {
  Session* session;  // each only once
  std::span<const Token> tokens;
  bool logits = true;    // false: the logits after the last token are not computed
  LogitsFn on_logits{};  // given: called for every token
  // Given: called after on_logits with the hidden values behind the last norm (the output `hidden`
  // of the architecture file): of every token if on_logits is given, else of the last.
  // kUnsupported: the architecture has no such output.
  LogitsFn on_hidden{};
};
std::vector<Result<void>> append_batch(std::span<const AppendItem> items,
                                       const ProgressFn& progress = {});

}  // namespace culet
