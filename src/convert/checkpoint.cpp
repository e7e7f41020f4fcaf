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

constexpr const char* kWhole = "model.safetensors";

// Which file has which tensor, by an index: pairs of tensor and file.
using Places = std::map<std::string, std::string>;

Result<Places> places_of_index(const std::string& path, const Json& index) {
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object()) {
    return fail(ErrorCode::kCorrupt, path + " has no weight_map; fetch it again");
  }
  Places places;
  for (const auto& [tensor, file] : map->items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || name.find_first_of("/\\") != std::string::npos) {
      return fail(ErrorCode::kCorrupt,
                  fmt::format("{}: '{}' is in no file of the folder", path, tensor));
    }
    places.emplace(tensor, name);
  }
  return places;
}

struct WeightFiles {
  std::set<std::string> files;
  Places places;                    // by the index, if there is one
  std::vector<std::string> unread;  // other safetensors
};

// An index says which files there are. Without one, model.safetensors is the whole model.
Result<WeightFiles> files_of(const std::string& folder) {
  std::error_code error;
  WeightFiles out;
  std::set<std::string> there;
  bool other = false;
  for (fs::directory_iterator it(folder, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.ends_with(".safetensors")) there.insert(name);
    other = other || name.ends_with(".bin") || name.ends_with(".pth");
  }
  const std::string index = folder + "/" + kIndex;
  if (fs::is_regular_file(index, error)) {
    CULET_TRY(const std::string text, base::read_file(index));
    const auto json = base::parse_json(text);
    if (!json) return fail(json.error().code, index + ": " + json.error().message);
    CULET_TRY(out.places, places_of_index(index, *json));
    for (const auto& [tensor, file] : out.places) out.files.insert(file);
    if (there.contains(kWhole) && !out.files.contains(kWhole)) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("the folder {} has two sets of weights: {}, and the files of {}; "
                              "remove the one that is not the model",
                              folder, kWhole, kIndex));
    }
  } else if (there.contains(kWhole)) {
    out.files = {kWhole};
  } else {
    out.files = there;
  }
  std::set_difference(there.begin(), there.end(), out.files.begin(), out.files.end(),
                      std::back_inserter(out.unread));
  if (!out.files.empty()) return out;
  return fail(ErrorCode::kNotFound,
              fmt::format("the folder {} has no *.safetensors{}", folder,
                          other ? "; its other files of weights are not read, so get the model "
                                  "with safetensors"
                                : "; name a folder that a model was published in"));
}

}  // namespace

Result<void> Checkpoint::add_folder(const std::string& folder, const std::string& prefix) {
  CULET_TRY(const WeightFiles found, files_of(folder));
  for (const std::string& file : found.files) {
    std::error_code error;
    if (!fs::exists(fmt::format("{}/{}", folder, file), error)) {
      return fail(ErrorCode::kNotFound,
                  fmt::format("{}/{} names {}, which is not there; fetch the folder again", folder,
                              kIndex, file));
    }
    CULET_TRY_VOID(add(fmt::format("{}/{}", folder, file), prefix));
  }
  for (const auto& [tensor, file] : found.places) {
    if (find(prefix + tensor) != nullptr) continue;
    return fail(ErrorCode::kCorrupt,
                fmt::format("{}/{} names the tensor '{}', which {} does not have; fetch the folder "
                            "again",
                            folder, kIndex, tensor, file));
  }
  for (const std::string& file : found.unread) unread_.push_back(prefix + file);
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
