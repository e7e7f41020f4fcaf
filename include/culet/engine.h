// culet: runs open language models on this machine. The whole public C++ API.
//
//   auto model = culet::Model::load("model.gguf", {});
//   auto session = culet::Session::make(*model, {});
//   const culet::Message messages[] = {{"user", "Hello"}};
//   auto prompt = (*model)->render_chat(messages, {});
//   culet::generate(**session, *prompt, {}, [](const culet::Event& e) { ...; return true; });
//
// examples/ask is a whole program with its CMakeLists.txt: link the target culet::culet.
// Threads: a Model may be shared by any number of threads and sessions; a Session belongs to one
// thread at a time. Passes over one model run one after the other on the model's thread pool.
// Nothing here throws or keeps global state; two models live side by side.
// Logits are raw (no temperature), probabilities natural logarithms.
#pragma once

#include "culet/result.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace culet {

using Token = int32_t;

class Model;

struct ModelOptions {
  int threads = 0;         // 0: one a physical core; a drafter computes with its target's
  bool precise = false;    // float32 activations in matrix products instead of int8: slower, closer
  bool fuse = true;        // false: the unfused plan; same bits (CULET_FUSE=off)
  std::string isa{};       // "" = the best this CPU has (CULET_ISA); unknown or unusable: error
  std::string arch_dir{};  // folder of .arch files that add to or replace the built-in ones
  // Rows of one pass, 0: default; never changes a bit. A longer sequence of an encoder is one pass.
  int32_t pass_rows = 0;
  bool text_only = false;  // tokens, templates and the plan; nothing is repacked, no session made
  // false: products read the weights in the file's mapping, whose pages processes share, instead of
  // a repacked copy of their own; slower, same bits.
  bool repack = true;
  // A chat template (Jinja) in place of the file's own; "" = the file's. One that does not parse is
  // kInvalidArgument.
  std::string chat_template{};
  // Tokens of the longest session: what models are made for whose rotation follows the context
  // (session.context in their .arch file). Their sessions hold no more; no other model reads it.
  // 0: as SessionOptions::context.
  int64_t context = 0;
  // Bytes that weights, a pass and a session's cache may take; more is an error before the work.
  // 0: what the system has left; UINT64_MAX: no limit.
  uint64_t memory_limit = 0;
  std::function<void(double)> progress{};  // 0..1 while the model is prepared; may be empty
  // For a drafter, and only for one: the decoder that it was made for, loaded before it, with the
  // same arch_dir. The drafter keeps it alive, reads its embedding and its sessions' caches, and
  // has its tokenizer, context and threads.
  std::shared_ptr<const Model> target{};
};

struct LogitBias {
  Token id;
  float bias;  // added to the token's logit; -infinity: it never comes
};

// How a token is drawn (docs/formats/sampling.md has the order of the steps).
struct Sampling {
  float temperature = 0.8f;                           // 0: greedy, the lowest id on ties
  int32_t top_k = 40;                                 // 0: off
  float top_p = 0.95f;                                // 1: off
  uint64_t seed = 0;                                  // same seed, same text, on every machine
  float min_p = 0;                                    // 0: off
  float typical = 1;                                  // 1: off
  float repeat_penalty = 1;                           // 1: off
  float presence_penalty = 0, frequency_penalty = 0;  // 0: off
  int32_t repeat_window = 64;  // last tokens, prompt and answer, that penalties look at; -1: all
  std::vector<LogitBias> logit_bias{};
};

// What `culet show` prints.
struct ModelInfo {
  std::string path, architecture, name;
  // "decoder": continues texts (Session); "encoder": makes vectors (encode, embed); "draft":
  // guesses tokens for its target (draft).
  std::string kind;
  std::string arch_origin, arch_sha256;
  uint64_t file_bytes = 0, parameters = 0, tensors = 0;
  std::vector<std::pair<std::string, uint64_t>> tensor_types;  // type name, number of tensors
  int64_t context_length = 0, vocabulary = 0, layers = 0, width = 0;
  int64_t vector_width = 0;  // numbers of a vector that embed makes; 0: it makes none
  // Tokens of the longest sequence that encode and embed read; 0: none, or text_only.
  int64_t sequence_length = 0;
  std::string isa{};
  bool precise = false, has_chat_template = false;
  int threads = 0;
  std::vector<std::pair<std::string, uint64_t>> tensor_bytes;  // type name, bytes of its tensors
  bool repacked = true;                                        // or read where they are mapped
  // Of the repacked copy, float32 copies of small tensors, what one pass writes, and the part of
  // the file that is read while the model runs. With text_only: what they would be.
  uint64_t packed_bytes = 0, converted_bytes = 0, workspace_bytes = 0, mapped_bytes = 0;
  std::vector<std::pair<std::string, std::string>>
      caches;  // "layer 3 kv", "window(512) 4 x 256 ..."
  std::vector<std::string> warnings;
  Sampling sampling{};  // the defaults, where the file names its own (general.sampling.*) those
};

struct Message {
  std::string role, content;
};
struct ChatOptions {
  bool add_generation_prompt = true;
  // Renders only what follows an answer that a session already holds: how the template ends an
  // answer, then the messages. kUnsupported for a template that does not show answers as they are.
  bool after_answer = false;
  // Object merged into the template's variables: tools, flags; "" = none. It may not name what
  // comes from elsewhere: messages, add_generation_prompt, bos_token, eos_token.
  std::string extra_json{};
};

class Session;

class Model {
 public:
  static Result<std::shared_ptr<const Model>> load(const std::string& path,
                                                   const ModelOptions& options);
  virtual ~Model() = default;

  virtual const ModelInfo& info() const = 0;
  // The plan as text, one operation a line (see docs/formats/arch.md).
  virtual std::string explain() const = 0;

  virtual Result<std::vector<Token>> tokenize(std::string_view text, bool add_special,
                                              bool parse_special) const = 0;
  // The same for a text that comes bit by bit: only the first part gets what the file wants at the
  // start of a text, no part what it wants at the end. Tokens do not reach over the border of two
  // parts; behind a line's end, before a line that does not begin with white space, they do not
  // anyway.
  virtual Result<std::vector<Token>> tokenize_part(std::string_view text, bool first) const = 0;
  virtual std::string detokenize(std::span<const Token> ids, bool special) const = 0;
  virtual std::string piece(Token id, bool special) const = 0;
  virtual bool is_end_of_generation(Token id) const = 0;
  // Tokens of a conversation by the file's own template; text of a message never becomes a control
  // token. kUnsupported when the file has no template.
  virtual Result<std::vector<Token>> render_chat(std::span<const Message> messages,
                                                 const ChatOptions& options) const = 0;
  virtual Result<std::string> render_chat_text(std::span<const Message> messages,
                                               const ChatOptions& options) const = 0;
};

// How a cache stores keys or values; kQ8 is q8_0: 8 bits and one scale for each 32.
enum class KvType : uint8_t { kF32, kF16, kBf16, kQ8 };

// A session without an end: layers that see everything keep the first `pinned` tokens (attention
// sinks, or a whole system turn) and the last `window`; layers with a window of their own keep it.
// A token costs the same, and the memory stays the same, for ever (docs/streaming.md).
struct StreamOptions {
  int64_t pinned = 4;
  int64_t window = 0;  // 0: the context less the pinned tokens
};

struct SessionOptions {
  // Tokens the session can hold: an append past it is an error before any work. 0: the smaller of
  // 4096 and what the model was trained for; more than it was trained for is an error.
  int64_t context = 0;
  KvType keys = KvType::kF16, values = KvType::kF16;
  // (keys, values) of layers with a window of their own, where they differ.
  std::optional<std::pair<KvType, KvType>> window_types{};
  std::optional<StreamOptions> stream{};
  int64_t start = 0;  // position of the first token, a multiple of 32: to try far positions
};

// Bytes of one kind of layer's memory when the context is full, or the stream is under way.
struct LayerMemory {
  std::string kind;  // "window(512)", "full", "stream(4, 4092)", "state"
  int64_t layers = 0;
  uint64_t payload = 0;    // of the rows that are seen
  uint64_t allocated = 0;  // between passes: whole blocks, and rows kept for a rewind
};
struct ContextMemory {
  std::vector<LayerMemory> layers;
  uint64_t payload = 0, allocated = 0;  // of all
  uint64_t most = 0;                    // allocated during a pass
};
// Known before anything is allocated. Errors: as Session::make for options that make no sense.
Result<ContextMemory> context_memory(const Model& model, const SessionOptions& options);
// The most of it that is allocated at any time; 0 for options that make no sense.
uint64_t context_bytes(const Model& model, const SessionOptions& options);

// One timeline of tokens with its memory.
//
// The logits of a token depend on the model, the tokens before it and the options alone, bit for
// bit: not on how they were appended, on forks, rewinds, snapshots or on other sessions.
class Session {
 public:
  // kUnsupported: a stream of an architecture that cannot have one, with the reason; an encoder or
  // a drafter.
  static Result<std::unique_ptr<Session>> make(std::shared_ptr<const Model> model,
                                               const SessionOptions& options);
  virtual ~Session() = default;

  virtual const Model& model() const = 0;
  virtual const SessionOptions& options() const = 0;  // with every default filled in
  virtual int64_t context() const = 0;                // tokens it can hold; a stream: INT64_MAX
  virtual int64_t length() const = 0;                 // tokens appended
  // The tokens; of a stream the last of them, at least as many as some layer still sees.
  virtual std::span<const Token> tokens() const = 0;
  virtual int64_t evicted() const = 0;  // tokens that layers without a window do not see any more
  // Evaluates tokens behind the present ones. On an error nothing was appended.
  // progress(done, all) after each pass; may be empty; returning false stops with kCancelled and
  // the session as it was before the call. Callbacks must not use this session, and must not throw.
  // A logit that is NaN or +infinity in a row that is read is kNumeric.
  using Progress = std::function<bool(int64_t, int64_t)>;
  virtual Result<void> append(std::span<const Token> tokens, const Progress& progress = {}) = 0;
  // The same, and calls row(index, logits) for every new token's logits in order.
  using RowFn = std::function<void(int64_t, std::span<const float>)>;
  virtual Result<void> append_each(std::span<const Token> tokens, const RowFn& row,
                                   const Progress& progress = {}) = 0;
  // Raw logits after the last token: [vocabulary]; empty before the first append and after a
  // rewind.
  virtual std::span<const float> logits() const = 0;
  virtual void clear() = 0;  // as a new session, bit for bit
  // Forgets tokens from `length` on. False: the memory needed is gone, or a state cannot go back
  // that far; clear and append again (then nothing changed).
  virtual bool rewind(int64_t length) = 0;

  // Another session with the same past. Memory is shared until one of the two appends.
  virtual std::unique_ptr<Session> fork() const = 0;
  // Becomes a fork of `other`. kInvalidArgument: it is of another model or has other options.
  virtual Result<void> become(const Session& other) = 0;
  // To and from a file (docs/formats/snapshot.md). What restore() refuses (another model, other
  // options, a damaged file) leaves the session as it was.
  virtual Result<void> save(const std::string& path, const Progress& progress = {}) const = 0;
  virtual Result<void> restore(const std::string& path, const Progress& progress = {}) = 0;

  // Makes the session hold exactly these tokens: keeps the longest prefix it can and evaluates the
  // rest. On an error the session is as it was.
  struct Synced {
    int64_t reused = 0, evaluated = 0, evicted = 0;  // evicted: as evicted() afterwards
  };
  virtual Result<Synced> sync(std::span<const Token> tokens, const Progress& progress = {}) = 0;

  virtual uint64_t memory_bytes() const = 0;  // held now; what forks share counts for each
};

// Appends to several sessions of one model in common passes: a token here, a piece of a prompt
// there. Each entry succeeds or fails by itself, as Session::append does. The bits are those of
// separate appends.
struct BatchItem {
  Session* session;  // each only once
  std::span<const Token> tokens;
  bool logits = true;    // false: the last token's logits are not wanted; logits() is empty
  Session::RowFn row{};  // given: called for every token's logits, as append_each does
  // Given: called, after `row`, with the hidden row that the logits of a token are made of (the
  // output `hidden` of the architecture file, behind the last norm): of every token if `row` is
  // given, else of the last. kUnsupported: the architecture has no such output. kNumeric as logits.
  Session::RowFn hidden{};
};
std::vector<Result<void>> append_batch(std::span<const BatchItem> items,
                                       const Session::Progress& progress = {});

// Hidden rows of whole sequences, by a model of kind "encoder": for each sequence the rows of its
// tokens, one behind another, info().width numbers each. A token sees its whole sequence and
// nothing of the others, so a row's bits do not depend on them. An empty sequence has no rows.
// progress as in Session::append. Errors, before any work: kUnsupported (a decoder), kExhausted (a
// sequence longer than the model reads), kInvalidArgument (a token outside the vocabulary); later:
// kNumeric (a row that is not finite), kCancelled.
Result<std::vector<std::vector<float>>> encode(const Model& model,
                                               std::span<const std::vector<Token>> sequences,
                                               const Session::Progress& progress = {});

// One vector of each whole sequence, info().vector_width numbers: what the architecture file makes
// of the hidden rows of its tokens (output `pooled`). Its bits depend on the sequence alone.
// Errors as encode's, and before any work: kUnsupported (the model makes no such vectors),
// kInvalidArgument (an empty sequence).
struct EmbedOptions {
  bool normalize = false;  // to length 1 (L2), as a cosine wants it; a vector of zeros stays
};
Result<std::vector<std::vector<float>>> embed(const Model& model,
                                              std::span<const std::vector<Token>> sequences,
                                              const EmbedOptions& options = {},
                                              const Session::Progress& progress = {});

// One step of a drafter: what may follow `token`, which in turn may follow the session's tokens.
//
// `hidden` is the row behind the guess of `token`, [target's width]: for the first step the
// target's own (BatchItem::hidden) of the session's last token, from whose logits `token` was
// drawn; then the step before's. So K tokens are guessed by K calls, the session staying as it is:
// all of them are computed at the position behind its last token (as the published drafters were
// trained), whose keys and values nobody has. Appending [token, guesses...] to the session with
// BatchItem::row then says which guesses hold, and BatchItem::hidden has the row to go on from.
// Nothing of the session changes. Bits: as a session's, of the drafter, the session and the
// arguments alone.
// Errors, before any work: kUnsupported (no drafter, or a stream that it cannot follow),
// kInvalidArgument (a session of another model than the target, or without tokens; a token outside
// the vocabulary; a row of another width); later: kNumeric, as Session::append.
struct Draft {
  std::vector<float> logits;  // raw, [vocabulary]
  std::vector<float> hidden;  // the next step's, [target's width]
};
Result<Draft> draft(const Model& drafter, const Session& session, Token token,
                    std::span<const float> hidden);

// Distribution of the next token from raw logits.
struct Candidate {
  Token id;
  float logprob;
};
struct Distribution {
  double entropy = 0;          // nats
  std::vector<Candidate> top;  // highest first; equal logits: lower id first
};
// log-probability of `id`. Error kNumeric when a logit is NaN or +infinity, or all are -infinity
// (which marks a token that cannot come).
Result<double> logprob(const Model& model, std::span<const float> logits, Token id);
Result<Distribution> distribution(const Model& model, std::span<const float> logits, int top);

struct GenerateOptions {
  Sampling sampling;
  int64_t max_tokens = 512;  // < 0: until the context is full
  // Texts that end the answer and are not part of what is shown, also across tokens. Text that may
  // become one is held back. At most 64 of 1024 bytes.
  std::vector<std::string> stop{};
  int logprobs = -1;  // likeliest tokens to tell with each TextDelta; -1: no log-probabilities
};

struct Started {
  int64_t prompt_tokens;
};
struct Progress {
  int64_t done, all;
};  // prompt tokens evaluated
// Whole characters only; may be empty. id -1: what was left of an unfinished character, or held
// back for a stop, at the end.
struct TextDelta {
  std::string text;
  Token id;
  // With GenerateOptions::logprobs, from raw logits: of this token, and of the likeliest ones.
  std::optional<float> logprob{};
  std::vector<Candidate> top{};
};
enum class FinishReason : uint8_t { kStop, kLength, kContext, kCancelled };
struct Finished {
  FinishReason reason;
  int64_t prompt_tokens, generated_tokens;
  double prompt_seconds, generate_seconds;
  std::string stop{};  // the text of GenerateOptions::stop that ended the answer
};
using Event = std::variant<Started, Progress, TextDelta, Finished>;
// Return false to stop; Finished{kCancelled} still follows.
using EventFn = std::function<bool(const Event&)>;

// Appends the prompt and generates until an end-of-generation token, a stop text, max_tokens or a
// full context.
// The session then holds prompt and answer: every token of a TextDelta, not the one that ended it.
// An empty prompt continues from the session's logits. On an error (before the answer: nothing was
// appended; later: the tokens so far stay) no Finished follows.
Result<Finished> generate(Session& session, std::span<const Token> prompt,
                          const GenerateOptions& options, const EventFn& on_event);

// Instruction sets of this build, lowest first, and whether this CPU can run each.
std::vector<std::pair<std::string, bool>> instruction_sets();
std::string_view version();

}  // namespace culet
