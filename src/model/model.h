// A model file made ready to run: everything that is the same for all of its sessions.
//
// load() maps the file, compiles its architecture to a plan, reads the vocabulary and the chat
// template and binds the plan to kernels. Bytes are untrusted: whatever the lower layers do not
// refuse by themselves is refused here, in one sentence that names the file and the key or tensor.
// A LoadedModel never changes after load() and may be read by any number of threads; passes on its
// executor take a workspace each and share the threads, and sessions take their memory from one
// pool.
#pragma once

#include "backend/executor.h"
#include "base/thread_pool.h"
#include "cache/memory_pool.h"
#include "culet/model.h"
#include "culet/result.h"
#include "format/gguf.h"
#include "kernels/kernels.h"
#include "plan/compile.h"
#include "template/chat_template.h"
#include "text/tokenizer.h"

#include <memory>
#include <string>

namespace culet::model {

constexpr int64_t kDefaultContext = 4096;  // where nobody asks for one and the model allows it

// Members are in order of need: each refers only to those above it, so they go in reverse.
struct LoadedModel {
  format::GgufFile file;
  const LoadedModel* target = nullptr;  // of a draft model; its owner keeps it alive
  plan::Compiled compiled;
  kernels::Kernels kernels{};
  std::shared_ptr<base::ThreadPool> pool;       // none when text_only; a draft model: its target's
  std::unique_ptr<backend::Executor> executor;  // none when text_only
  std::shared_ptr<const text::Tokenizer> tokenizer;
  uint64_t memory_limit = 0;  // ModelOptions'
  // Of all sessions, and the account of the workspaces; none when text_only.
  std::shared_ptr<cache::MemoryPool> memory;
  int64_t context = 0;      // that the plan was made for; matters if its ropes depend on it
  int32_t ubatch_size = 0;  // rows that a pass is filled to; one sequence of an encoder may have
                            // more, up to the executor's limit
  // At most one of the two: the template, or why the one in the file cannot be used.
  std::shared_ptr<const chat::ChatTemplate> chat;
  // The file's own for conversations with tools, where it has one of the name "tool_use".
  std::shared_ptr<const chat::ChatTemplate> chat_tools;
  std::string chat_error;
  ModelInfo info;

  plan::Tensors tensors() const { return {file, target ? &target->file : nullptr}; }
};

// kExhausted "WHAT needs X, and ... Y; ADVICE", if `bytes` are more than `limit`; limit 0: more
// than the system has left.
Result<void> check_memory(uint64_t limit, uint64_t bytes, const std::string& what,
                          const std::string& advice);

// target: the model of options.target, which outlives the result; null: none.
Result<std::unique_ptr<LoadedModel>> load(const std::string& path, const ModelOptions& options,
                                          const LoadedModel* target);

}  // namespace culet::model
