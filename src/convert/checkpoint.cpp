#include "convert/checkpoint.h"

#include "base/files.h"
#include "base/json.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <set>

namespace culet::convert {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr const char* kIndex = "model.safetensors.index.json";

// The files that an index names.
Result<std::set<std::string>> files_of_index(const std::string& path, const Json& index) {
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object()) {
    return fail(ErrorCode::kCorrupt, path + " has no weight_map; fetch it again");
  }
  std::set<std::string> files;
  for (const auto& [tensor, file] : map->items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || name.find_first_of("/\\") != std::string::npos) {
      return fail(ErrorCode::kCorrupt,
                  fmt::format("{}: '{}' is in no file of the folder", path, tensor));
    }
    files.insert(name);
  }
  return files;
}

Result<std::set<std::string>> files_of(const std::string& folder) {
  std::error_code error;
  const std::string index = folder + "/" + kIndex;
  if (fs::is_regular_file(index, error)) {
    CULET_TRY(const std::string text, base::read_file(index));
    const auto json = base::parse_json(text);
    if (!json) return fail(json.error().code, index + ": " + json.error().message);
    return files_of_index(index, *json);
  }
  std::set<std::string> files;
  bool other = false;
  for (fs::directory_iterator it(folder, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.ends_with(".safetensors")) files.insert(name);
    other = other || name.ends_with(".bin") || name.ends_with(".pth");
  }
  if (!files.empty()) return files;
  return fail(ErrorCode::kNotFound,
              fmt::format("the folder {} has no *.safetensors{}", folder,
                          other ? "; its other files of weights are not read, so get the model "
                                  "with safetensors"
                                : "; name a folder that a model was published in"));
}

}  // namespace

Result<void> Checkpoint::add_folder(const std::string& folder, const std::string& prefix) {
  CULET_TRY(const std::set<std::string> files, files_of(folder));
  for (const std::string& file : files)
    CULET_TRY_VOID(add(fmt::format("{}/{}", folder, file), prefix));
  return {};
}

Result<void> Checkpoint::add(const std::string& path, const std::string& prefix) {
  CULET_TRY(format::SafetensorsFile file, format::SafetensorsFile::open(path));
  files_.push_back(std::move(file));
  for (const format::SafeTensor& tensor : files_.back().tensors()) {
    CULET_TRY_VOID(insert(prefix + tensor.name, &tensor));
  }
  return {};
}

Result<void> Checkpoint::insert(std::string name, const format::SafeTensor* tensor) {
  if (tensors_.emplace(name, tensor).second) return {};
  return fail(ErrorCode::kCorrupt, fmt::format("the folder has the tensor '{}' twice", name));
}

const format::SafeTensor* Checkpoint::find(std::string_view name) const {
  const auto at = tensors_.find(name);
  return at == tensors_.end() ? nullptr : at->second;
}

uint64_t Checkpoint::bytes() const {
  uint64_t sum = 0;
  for (const auto& [name, tensor] : tensors_) sum += tensor->bytes;
  return sum;
}

std::vector<std::string> Checkpoint::paths() const {
  std::vector<std::string> paths;
  paths.reserve(files_.size());
  for (const format::SafetensorsFile& file : files_) paths.push_back(file.name());
  return paths;
}

void Checkpoint::release(const format::SafeTensor& tensor) const {
  for (const format::SafetensorsFile& file : files_) file.release({tensor.data, tensor.bytes});
}

}  // namespace culet::convert
