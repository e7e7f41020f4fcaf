// Takes a GGUF file, gives its metadata and the list of its tensors as text and numbers.
#include "culet/model_file.h"

#include "format/gguf.h"
#include "quant/tensor_type.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

namespace culet {
namespace {

using format::MetaType;
using format::MetaValue;

constexpr uint64_t kShownElements = 8;

std::string scalar_text(const MetaValue& value) {
  if (const auto text = value.as_string()) return std::string(*text);
  if (const auto flag = value.as_bool()) return *flag ? "true" : "false";
  if (const auto whole = value.as_int()) return fmt::format("{}", *whole);
  if (const auto number = value.as_number()) {
    return value.type() == MetaType::kFloat32 ? fmt::format("{}", static_cast<float>(*number))
                                              : fmt::format("{}", *number);
  }
  return "";
}

MetadataEntry entry_of(const format::MetaEntry& entry) {
  const MetaValue& value = entry.value;
  MetadataEntry out{std::string(entry.key), std::string(format::meta_type_name(value.type())), "",
                    0};
  if (!value.is_array()) {
    out.value = scalar_text(value);
    return out;
  }
  out.type = fmt::format("array of {}", format::meta_type_name(value.element_type()));
  out.size = value.size();
  for (uint64_t i = 0; i < std::min(value.size(), kShownElements); ++i) {
    out.value += (i > 0 ? ", " : "") + scalar_text(value.at(i));
  }
  if (value.size() > kShownElements) out.value += ", ...";
  return out;
}

std::string string_of(const format::GgufFile& file, std::string_view key) {
  const MetaValue* value = file.find(key);
  return value ? std::string(value->as_string().value_or("")) : std::string();
}

}  // namespace

Result<ModelFile> read_model_file(const std::string& path) {
  CULET_TRY(const format::GgufFile file, format::GgufFile::open(path));
  ModelFile out;
  out.path = path;
  out.architecture = string_of(file, "general.architecture");
  out.name = string_of(file, "general.name");
  out.bytes = file.file_bytes();
  for (const format::MetaEntry& entry : file.metadata()) out.metadata.push_back(entry_of(entry));
  for (const format::TensorInfo& tensor : file.tensors()) {
    TensorEntry& entry = out.tensors.emplace_back();
    entry.name = tensor.name;
    entry.type = quant::type_info(tensor.type).name;
    entry.shape.assign(tensor.dims.begin(), tensor.dims.begin() + tensor.n_dims);
    entry.bytes = tensor.bytes;
    out.parameters += tensor.elements();
  }
  return out;
}

}  // namespace culet
