// Making model files: quantize_model() writes a GGUF file with other weight types, convert_model()
// makes a GGUF file of a folder as published on Hugging Face.
//
// The same input and options give the same bytes on every machine, with any number of threads. The
// output appears when it is complete. After an error or a stop, an older file of that name is
// unchanged. Threads: any number of calls may run at the same time, if they write different files.
// Callbacks are called on the calling thread and must not throw.
#pragma once

#include "culet/progress.h"
#include "culet/result.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace culet {

// Sets the type of some tensors. `tensors` is a role (one of tensor_roles()) or a pattern of names,
// in which * stands for any characters: "blk.0.*". `type` is one of tensor_types().
struct TensorTypeRule {
  std::string tensors, type;
};

struct QuantizeOptions {
  std::string type;  // one of quantization_types()
  // Other types for some tensors. The last rule that matches a tensor decides, also for tensors
  // that would stay as they are.
  std::vector<TensorTypeRule> keep{};
  int threads = 0;        // 0: one per physical core
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
  std::vector<std::string> notes{};  // what differs from the request, one sentence each
};

// Writes `out`: a copy of the GGUF file `in` (split or not) with weights of other types. Matrices
// get the type. Vectors, norms, biases, routers and convolutions stay as they are. So does the
// metadata, except general.file_type and general.quantization_version. A tensor that has the type
// already is copied. If the rows of a tensor are no multiple of the type's block size, another type
// is used and noted (docs/quantization.md). Errors: kInvalidArgument (an unknown type or role, a
// pattern that matches no tensor, or `out` is a file of `in`), kUnsupported (a tensor type that
// this build cannot read), kNumeric (a value that is not finite or too large for its type),
// kExhausted (no room on the disk), kCancelled, and those of reading and writing files.
Result<WrittenModel> quantize_model(const std::string& in, const std::string& out,
                                    const QuantizeOptions& options);

struct ConvertOptions {
  std::string type{};  // as QuantizeOptions::type; "": F32, F16 or BF16, what the folder uses most
  std::vector<TensorTypeRule> keep{};
  std::string family{};  // path of a family file; "": the built-in one for the model's class
  // Members of the configuration files that change nothing, though no family knows them: "NAME" of
  // config.json, "generation_config.NAME" and so on, as the error names them. Each becomes a note.
  std::vector<std::string> ignore_config{};
  int threads = 0;        // 0: one per physical core
  ProgressFn progress{};  // stage "converting", in values
};

// Writes `out`, a GGUF file of the model in `folder`, as Hugging Face publishes them: config.json,
// *.safetensors (with their index), tokenizer.json or tokenizer.model, tokenizer_config.json,
// chat_template.jinja, generation_config.json, and modules.json of encoders. A family file says how
// names, tensors and numbers become those of the GGUF file (docs/formats/family.md). Every member
// of the configuration files is used, known to change nothing, named in WrittenModel::notes, or an
// error. Errors, in addition to those of quantize_model: kUnsupported (a model class, tokenizer,
// tensor or setting that the family does not know), kNotFound (a file, tensor or setting is
// missing), kCorrupt (a file breaks its format, or shapes of tensors contradict the configuration),
// kInvalidArgument (ignore_config names what is not there).
Result<WrittenModel> convert_model(const std::string& folder, const std::string& out,
                                   const ConvertOptions& options);

// The model classes ("architectures" in config.json) that convert_model() knows.
std::vector<std::string> convertible_models();

// "F32", ..., "Q4_K_M": the types, then the mixes of types.
std::vector<std::string> quantization_types();
std::vector<std::string> tensor_types();  // without the mixes
std::vector<std::string> tensor_roles();  // "embd", "head", "attn_q", ...

}  // namespace culet
