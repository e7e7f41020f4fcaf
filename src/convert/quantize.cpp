// quantize_model: the types are chosen for all tensors, then the file is written in the order of
// the source, one tensor at a time. Pages of the source that are done are given back.
#include "base/float_mode.h"
#include "convert/output.h"
#include "convert/stream.h"
#include "convert/threads.h"
#include "convert/types.h"
#include "culet/convert.h"
#include "format/gguf.h"
#include "format/gguf_writer.h"

#include <fmt/format.h>

#include <map>

namespace culet {
namespace convert {
namespace {

using format::GgufFile;
using format::TensorInfo;
using quant::TensorType;

std::span<const uint64_t> dims_of(const TensorInfo& tensor) {
  return std::span(tensor.dims).first(size_t(tensor.n_dims));
}

Result<TypeChoice> choose(const GgufFile& file, const QuantizeOptions& options) {
  std::vector<TensorShape> shapes;
  for (const TensorInfo& tensor : file.tensors()) {
    shapes.push_back({tensor.name, tensor.type, dims_of(tensor)});
  }
  CULET_TRY(TypeChoice choice, choose_types(shapes, options.type, options.keep));
  for (size_t i = 0; i < shapes.size(); ++i) {
    const quant::TypeInfo& from = quant::type_info(shapes[i].type);
    if (shapes[i].type == choice.types[i] || from.readable) continue;
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: '{}' has the type {}, which cannot be read; get the model in "
                            "another type",
                            file.name(), shapes[i].name, from.name));
  }
  return choice;
}

// Where the source has lost something already.
void note_quantized(const GgufFile& file, const TypeChoice& choice,
                    std::vector<std::string>* notes) {
  std::map<std::string_view, int> count;
  for (size_t i = 0; i < choice.types.size(); ++i) {
    const quant::TypeInfo& from = quant::type_info(file.tensors()[i].type);
    if (from.type != choice.types[i] && from.block > 1) ++count[from.name];
  }
  for (const auto& [type, tensors] : count) {
    notes->push_back(
        fmt::format("{} tensor{} of the source {} {} already; what that lost does not "
                    "come back",
                    tensors, tensors == 1 ? "" : "s", tensors == 1 ? "is" : "are", type));
  }
}

format::GgufMetadata metadata_of(const GgufFile& file, uint32_t file_type) {
  format::GgufMetadata metadata;
  for (const format::MetaEntry& entry : file.metadata()) {
    if (!entry.key.starts_with("split.")) metadata.set(entry.key, entry.value);
  }
  set_file_type(&metadata, file_type);
  return metadata;
}

ReadValues reader_of(const TensorInfo& tensor) {
  const quant::TypeInfo& info = quant::type_info(tensor.type);
  const quant::DequantizeFn dequantize = quant::dequantize_fn(tensor.type);
  return [&info, dequantize, data = tensor.data](int64_t first, int64_t count, float* out) {
    dequantize(data + first / info.block * info.block_bytes, count / info.block, out);
  };
}

class Job {
 public:
  Job(const GgufFile& file, const TypeChoice& choice, const QuantizeOptions& options)
      : file_(file), choice_(choice), options_(options), pool_(options.threads) {
    for (const TensorInfo& tensor : file.tensors()) total_ += tensor.bytes;
  }

  Result<void> write(format::GgufWriter* writer) {
    base::set_float_mode();
    for (size_t i = 0; i < choice_.types.size(); ++i) {
      const TensorInfo& tensor = file_.tensors()[i];
      CULET_TRY_VOID(write_tensor(writer, tensor, choice_.types[i]));
      file_.release({tensor.data, tensor.bytes});
    }
    return writer->finish();
  }

 private:
  Result<void> write_tensor(format::GgufWriter* writer, const TensorInfo& tensor, TensorType type) {
    const uint64_t before = done_;
    const quant::TypeInfo& from = quant::type_info(tensor.type);
    const auto tell = [&](uint64_t bytes) {
      done_ += bytes;
      return !options_.progress || options_.progress({"quantizing", done_, total_});
    };
    if (tensor.type == type) {
      return write_bytes(writer, {tensor.data, tensor.bytes},
                         [&](int64_t bytes) { return tell(uint64_t(bytes)); });
    }
    CULET_TRY_VOID(write_values(
        writer, &pool_, {tensor.name, int64_t(tensor.elements()), reader_of(tensor)}, type,
        [&](int64_t values) { return tell(uint64_t(values / from.block * from.block_bytes)); }));
    done_ = before + tensor.bytes;
    return {};
  }

  const GgufFile& file_;
  const TypeChoice& choice_;
  const QuantizeOptions& options_;
  base::ThreadPool pool_;
  uint64_t done_ = 0, total_ = 0;
};

Result<WrittenModel> write_quantized(const std::string& in, const std::string& out,
                                     const QuantizeOptions& options) {
  CULET_TRY(const GgufFile file, GgufFile::open(in));
  CULET_TRY(TypeChoice choice, choose(file, options));
  CULET_TRY_VOID(check_not_a_source(out, file.paths()));
  std::vector<format::NewTensor> tensors;
  WrittenModel written{.path = out, .type = options.type, .source_bytes = file.file_bytes()};
  for (size_t i = 0; i < choice.types.size(); ++i) {
    const TensorInfo& tensor = file.tensors()[i];
    const auto dims = dims_of(tensor);
    tensors.push_back({std::string(tensor.name), choice.types[i], {dims.begin(), dims.end()}});
  }
  const format::GgufMetadata metadata = metadata_of(file, choice.file_type);
  CULET_TRY(format::GgufWriter writer, format::GgufWriter::create(out, metadata, tensors));
  written.bytes = writer.file_bytes();
  describe(tensors, &written);
  CULET_TRY_VOID(Job(file, choice, options).write(&writer));
  written.notes = std::move(choice.notes);
  note_quantized(file, choice, &written.notes);
  return written;
}

}  // namespace
}  // namespace convert

Result<WrittenModel> quantize_model(const std::string& in, const std::string& out,
                                    const QuantizeOptions& options) {
  return convert::with_threads(options.threads,
                               [&] { return convert::write_quantized(in, out, options); });
}

}  // namespace culet
