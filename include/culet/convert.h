// Making model files: other types of weights (quantize_model), and GGUF files of the folders that
// models are published in (convert_model).
//
// The same input and options give the same bytes on every machine, with any number of threads. A
// file gets its name when it is whole; until then, and after an error or a stop, a file that had
// the name stays as it was.
// Threads: calls may run beside any other call that writes another file. Callbacks are called on
// the calling thread and must not throw.
#pragma once

#include "culet/progress.h"
#include "culet/result.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace culet {

// The type of some tensors. `tensors` is a role (tensor_roles()) or a pattern of names, in which *
// stands for any characters: "blk.0.*".
struct TensorTypeRule {
  std::string tensors, type;
};

struct QuantizeOptions {
  std::string type;  // one of quantization_types()
  // For some tensors another one, a type of tensors: no mix. The last rule that a tensor fits
  // decides, for tensors that would stay as they are, too.
  std::vector<TensorTypeRule> keep{};
  int threads = 0;        // 0: one a physical core
  ProgressFn progress{};  // stage "quantizing", in bytes of source tensors
};

struct TypeShare {
  std::string type;
  uint64_t tensors = 0, bytes = 0;
};
struct WrittenModel {
  std::string path, type;
  uint64_t bytes = 0, source_bytes = 0;  // of the files
  uint64_t parameters = 0;
  std::vector<TypeShare> types{};    // most bytes first
  std::vector<std::string> notes{};  // what was not as asked for, one sentence each
};

// Writes `out`, a GGUF file with the weights of the GGUF file `in` (split or not) in other types.
// Matrices get the type; vectors, norms, biases, routers and convolutions stay as they are, as the
// metadata does, but for general.file_type and general.quantization_version. A tensor that has its
// type already is copied; a row that does not divide into blocks of its type gets the type that
// stands in for it (docs/quantization.md), which is noted.
// Errors: kInvalidArgument (a type, role or pattern that there is not; `out` is a file of `in`),
// kUnsupported (a tensor of a type that this build cannot read), kNumeric (a value that is not
// finite, or too large for its type), kExhausted (no room on the disk), kCancelled, and those of
// reading and writing.
Result<WrittenModel> quantize_model(const std::string& in, const std::string& out,
                                    const QuantizeOptions& options);

struct ConvertOptions {
  std::string type{};  // as QuantizeOptions::type; "": F32, F16 or BF16, as most of the folder has
  std::vector<TensorTypeRule> keep{};
  std::string family{};   // path of a family file; "": the built-in one for the model's class
  int threads = 0;        // 0: one a physical core
  ProgressFn progress{};  // stage "converting", in values
};

// Writes `out`, a GGUF file of the model in `folder`, as Hugging Face publishes them: config.json,
// *.safetensors (with their index), tokenizer.json or tokenizer.model, tokenizer_config.json,
// chat_template.jinja, generation_config.json, and for encoders modules.json. How names, tensors
// and numbers become those of the file, a family file says (docs/formats/family.md).
// Errors, besides those of quantize_model: kUnsupported (a class of models, a kind of tokenizer, a
// tensor or a value of the configuration that the family does not know), kNotFound (a file, a
// tensor or a value that it needs), kCorrupt (files that break their format).
Result<WrittenModel> convert_model(const std::string& folder, const std::string& out,
                                   const ConvertOptions& options);

// Classes of models ("architectures" in config.json) that there are families for.
std::vector<std::string> convertible_models();

// "F32", ..., "Q4_K_M": types that all matrices may have, then mixes of them.
std::vector<std::string> quantization_types();
std::vector<std::string> tensor_types();  // the former alone
std::vector<std::string> tensor_roles();  // "embd", "head", "attn_q", ...

}  // namespace culet
