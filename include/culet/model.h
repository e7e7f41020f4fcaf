// A model: a GGUF file, the plan that an architecture file makes of it, and its weights in memory.
//
// Threads: a Model never changes after load(). Any number of threads and sessions may share it;
// their forward passes take turns on its thread pool. Two models live side by side in one process.
#pragma once

#include "culet/progress.h"
#include "culet/result.h"
#include "culet/sampler.h"
#include "culet/token.h"
#include "culet/vocabulary.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace culet {

namespace engine {
class ModelImpl;
}  // namespace engine

class Model;

struct ModelOptions {
  int threads = 0;  // 0: one per physical core. A draft model computes with its target's threads
  // float32 activations in matrix products, instead of int8 with a scale per 32 values: slower, and
  // closer to the published model. Changes results.
  bool precise = false;
  bool fuse = true;  // false: run the plan without fused operations; same bits, slower
  // Instruction set, a name of instruction_sets(); "": the best that this CPU has. One that the CPU
  // does not have is an error.
  std::string isa{};
  std::string arch_dir{};  // folder of .arch files that add to or replace the built-in ones
  // The most tokens that one forward pass computes (llama.cpp: n_ubatch); 0: 256. It never changes
  // a bit. An encoder computes each sequence in one pass, even if it is longer.
  int32_t ubatch_size = 0;
  // Vocabulary, chat template and plan only: no weights are prepared, no session can be made.
  bool text_only = false;
  // false: compute from the mapped file, whose pages processes share, instead of from a repacked
  // copy; slower, same bits.
  bool repack = true;
  // A chat template (Jinja) in place of the file's own; "": the file's. One that does not parse is
  // kInvalidArgument.
  std::string chat_template{};
  // Maximum context, in tokens. Selects the short or the long RoPE factors of LongRoPE models once,
  // at load, and their sessions cannot be longer; other models ignore it. 0: the default of
  // SessionOptions::context.
  int64_t context = 0;
  // The most bytes that the weights, the workspaces of forward passes and all sessions of the model
  // may take together. Calls that would need more return kExhausted with the numbers:
  //   load(): the model does not fit. Session::make(): the context could never fit.
  //   encode(), embed(): the forward pass of a sequence does not fit.
  //   append(), restore(): other sessions leave too little; the session stays as it was.
  // 0: no limit, but load, Session::make, encode and embed check what the system has left.
  // UINT64_MAX: nothing is checked.
  uint64_t memory_limit = 0;
  // Stage "loading", in bytes, while weights are repacked. Stopping: load() returns kCancelled.
  ProgressFn progress{};
  // Only for a draft model: the decoder that it was trained for, loaded before with the same
  // arch_dir. The draft model keeps it alive, reads its embedding and the caches of its sessions,
  // and uses its vocabulary, context and threads.
  std::shared_ptr<const Model> target{};
};

enum class ModelKind : uint8_t {
  kDecoder,  // continues texts: Session
  kEncoder,  // makes vectors: encode(), embed()
  kDraft,    // proposes tokens for the sessions of its target: draft()
};
std::string_view kind_name(ModelKind kind);  // "decoder", "encoder", "draft"

// What one layer keeps of the tokens it has seen.
enum class CacheKind : uint8_t {
  kFull,    // every key and value; a stream keeps its sinks and its window
  kWindow,  // keys and values of the last `window` tokens
  kState,   // the last `tokens` inputs of a recurrent operation
};
struct LayerCacheInfo {
  int32_t layer = 0;
  std::string name;  // in the architecture file
  CacheKind kind = CacheKind::kFull;
  int64_t window = 0;                                  // kWindow
  int32_t kv_heads = 0, key_size = 0, value_size = 0;  // kFull, kWindow; sizes of one head
  int32_t tokens = 0, width = 0;                       // kState: shape of the state
};

struct TensorTypeInfo {
  std::string type;  // "Q4_K"
  uint64_t tensors = 0, bytes = 0;
};

struct ModelInfo {
  std::string path, architecture, name;
  ModelKind kind = ModelKind::kDecoder;
  // The architecture file: "built in" or its path, and the sha256 of its text with its includes.
  std::string arch_origin, arch_sha256;
  uint64_t file_bytes = 0, parameters = 0, tensors = 0;
  std::vector<TensorTypeInfo> tensor_types;  // by name
  int64_t context_length = 0;                // tokens it was trained for; 0: the file does not say
  int64_t vocabulary_size = 0, layers = 0, hidden_size = 0;
  int64_t embedding_dimension = 0;  // numbers in a vector of embed(); 0: the model makes none
  // Tokens of the longest sequence for encode() and embed(); 0: no encoder, or text_only.
  int64_t sequence_length = 0;
  // Of a model whose rotation follows the context (LongRoPE): the context that it was loaded for,
  // which its sessions cannot exceed, and the tensor with the factors for it. 0 and "": any
  // context.
  int64_t rope_context = 0;
  std::string rope_factors{};
  // Only with text_only: why load() without it would fail with kUnsupported, a sentence. "": it
  // would not.
  std::string cannot_run{};
  std::string isa{};
  bool precise = false, repacked = true;
  bool has_chat_template = false;
  int threads = 0;
  // Bytes: repacked weights; float32 copies of small tensors; memory of one forward pass; pages of
  // the mapped file that are read while the model runs. With text_only: what they would be.
  uint64_t packed_bytes = 0, converted_bytes = 0, workspace_bytes = 0, mapped_bytes = 0;
  std::vector<LayerCacheInfo> caches;
  std::vector<std::string> warnings;  // sentences
  SamplerOptions sampling{};          // defaults, and the file's own (general.sampling.*)
};

// The memory of a model now, in bytes. All its sessions and their forks take memory from one pool
// of blocks, which `used` and `spare` describe. Not counted: pages of the mapped file, and the
// token ids of sessions (4 bytes each).
struct MemoryAccount {
  uint64_t limit = 0;       // ModelOptions::memory_limit; UINT64_MAX: none is set
  uint64_t weights = 0;     // repacked and converted
  uint64_t workspaces = 0;  // of forward passes, running or kept for the next one
  // Caches, states and logits of all sessions. A block that several sessions share counts once.
  uint64_t used = 0;
  uint64_t spare = 0;  // unused blocks, kept for later sessions

  uint64_t total() const { return weights + workspaces + used + spare; }
};

class Model final {
 public:
  // Loads the GGUF file at `path` (the first part of a split model). Errors: kInvalidArgument (an
  // option), kNotFound, kIo, kCorrupt (damaged file), kUnsupported (an architecture, type or
  // tokenizer), kExhausted (memory), kCancelled (by options.progress).
  static Result<std::shared_ptr<const Model>> load(const std::string& path,
                                                   const ModelOptions& options);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const ModelInfo& info() const;
  const Vocabulary& vocabulary() const;
  // The plan as text, one operation a line (docs/formats/arch.md).
  std::string explain() const;
  // The numbers of one moment.
  MemoryAccount memory() const;
  // Frees unused blocks and workspaces. Without it they are kept for later sessions and passes.
  // When the limit is reached, unused blocks are freed without this call.
  void trim_memory() const;

  // For culet's own sources.
  const engine::ModelImpl& impl() const { return *impl_; }

 private:
  explicit Model(std::unique_ptr<engine::ModelImpl> impl);
  std::unique_ptr<engine::ModelImpl> impl_;
};

// Instruction sets of this build, lowest first, and whether this CPU can run each.
std::vector<std::pair<std::string, bool>> instruction_sets();
std::string_view version();

}  // namespace culet
