#include "convert/output.h"

#include "quant/tensor_type.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <sys/stat.h>
#include <system_error>

namespace culet::convert {

// The new file gets its name while the old one is mapped, so it would even work; but nobody who
// names one file twice means to lose the original.
Result<void> check_not_a_source(const std::string& out, const std::vector<std::string>& sources,
                                const std::string& folder) {
  struct stat target{}, source{};
  if (::stat(out.c_str(), &target) != 0) return {};
  std::error_code error;
  const std::filesystem::path place = std::filesystem::canonical(out, error);
  const bool model = place.extension() == ".gguf";  // an earlier result
  if (!folder.empty() && !model &&
      std::filesystem::relative(place, std::filesystem::canonical(folder, error), error)
              .string()
              .rfind("..", 0) != 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is an input file in the folder; give the new file another name, "
                            "such as one that ends in .gguf",
                            out));
  }
  for (const std::string& path : sources) {
    if (::stat(path.c_str(), &source) == 0 && source.st_ino == target.st_ino &&
        source.st_dev == target.st_dev) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("'{}' is an input file; give the new file another name", out));
    }
  }
  return {};
}

void set_file_type(format::GgufMetadata* metadata, uint32_t file_type) {
  constexpr uint32_t kQuantizationVersion = 2;  // as ggml counts them
  metadata->set_uint32("general.file_type", file_type);
  metadata->set_uint32("general.quantization_version", kQuantizationVersion);
}

void describe(std::span<const format::NewTensor> tensors, WrittenModel* written) {
  std::map<std::string_view, TypeShare> by_type;
  for (const format::NewTensor& tensor : tensors) {
    const quant::TypeInfo& info = quant::type_info(tensor.type);
    uint64_t values = 1;
    for (const uint64_t dim : tensor.dims) values *= dim;
    TypeShare& share = by_type[info.name];
    share.type = info.name;
    ++share.tensors;
    share.bytes += values / uint64_t(info.block) * uint64_t(info.block_bytes);
    written->parameters += values;
  }
  for (auto& [name, share] : by_type) written->types.push_back(std::move(share));
  std::sort(written->types.begin(), written->types.end(),
            [](const TypeShare& a, const TypeShare& b) {
              return a.bytes != b.bytes ? a.bytes > b.bytes : a.type < b.type;
            });
}

}  // namespace culet::convert
