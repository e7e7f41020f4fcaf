#include "convert/folder.h"

#include "base/files.h"
#include "base/json.h"

#include <fmt/format.h>

#include <filesystem>

namespace culet::convert {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

// A link to nothing, as an unfinished download leaves, and a folder are there: reading them fails.
bool is_there(const std::string& path) {
  std::error_code error;
  return fs::symlink_status(path, error).type() != fs::file_type::not_found;
}

// The file's text; "" when it is not there.
Result<std::string> read_optional(const std::string& path) {
  if (!is_there(path)) return std::string();
  return base::read_file(path);
}

Result<Json> read_json(const std::string& path) {
  CULET_TRY(const std::string text, base::read_file(path));
  auto json = base::parse_json(text);
  if (!json) return fail(ErrorCode::kCorrupt, fmt::format("{}: {}", path, json.error().message));
  if (!json->is_object() && !json->is_array()) {
    return fail(ErrorCode::kCorrupt, path + " holds no object");
  }
  return json;
}

Result<Json> read_optional_json(const std::string& path) {
  if (!is_there(path)) return Json();
  return read_json(path);
}

// modules.json of sentence encoders says through what a text goes, in order, and names folders with
// the settings and weights of the pooling and the dense layers behind it. Vectors of unit length
// are the reader's choice, so Normalize is no part.
Result<void> read_modules(Folder* folder) {
  const std::string file = folder->path + "/modules.json";
  CULET_TRY(const Json modules, read_optional_json(file));
  if (!modules.is_array()) return {};
  for (const Json& module : modules) {
    const auto text = [&module](const char* name) {
      const auto at = module.is_object() ? module.find(name) : module.end();
      return at != module.end() && at->is_string() ? at->get<std::string>() : std::string();
    };
    const std::string path = text("path"), type = text("type");
    if (type.ends_with(".Transformer") || type.ends_with(".Normalize")) continue;
    const bool dense = type.ends_with(".Dense") && !folder->pooling.is_null();
    if (!type.ends_with(".Pooling") && !dense) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{}: texts go through '{}' as well, which is not converted, so the "
                              "vectors would be others; without its entry there the vectors are "
                              "those that enter it",
                              file, type));
    }
    if (path.empty() || path.find("..") != std::string::npos || path.starts_with('/')) {
      return fail(ErrorCode::kCorrupt,
                  fmt::format("{}: the path of '{}' leaves the folder", file, type));
    }
    const std::string inside = fmt::format("{}/{}", folder->path, path);
    CULET_TRY(Json settings, read_json(inside + "/config.json"));
    if (!dense) {
      folder->pooling = std::move(settings);
      continue;
    }
    folder->dense.push_back(std::move(settings));
    CULET_TRY_VOID(folder->checkpoint.add_folder(inside, path + "."));
  }
  return {};
}

}  // namespace

Result<std::string> Folder::model_class() const {
  const auto classes = config.find("architectures");
  if (classes != config.end() && classes->is_array() && classes->size() == 1 &&
      (*classes)[0].is_string()) {
    return (*classes)[0].get<std::string>();
  }
  return fail(ErrorCode::kCorrupt,
              path + "/config.json does not say which class of models it is (architectures)");
}

Result<Folder> open_folder(const std::string& path) {
  std::error_code error;
  Folder folder;
  folder.path = path;
  while (folder.path.size() > 1 && folder.path.ends_with('/')) folder.path.pop_back();
  if (!fs::is_directory(folder.path, error)) {
    return fail(
        ErrorCode::kNotFound,
        fmt::format("'{}' is no folder; name the folder that a model was published in", path));
  }
  folder.name = fs::path(folder.path).filename().string();
  const std::string in = folder.path + "/";
  if (!is_there(in + "config.json")) {
    return fail(ErrorCode::kNotFound,
                fmt::format("the folder {} has no config.json; name the folder that a model was "
                            "published in",
                            folder.path));
  }
  CULET_TRY(folder.config, read_json(in + "config.json"));
  CULET_TRY(folder.tokenizer, read_optional_json(in + "tokenizer.json"));
  CULET_TRY(folder.settings, read_optional_json(in + "tokenizer_config.json"));
  CULET_TRY(folder.generation, read_optional_json(in + "generation_config.json"));
  CULET_TRY(folder.sentencepiece, read_optional(in + "tokenizer.model"));
  CULET_TRY(folder.chat_template, read_optional(in + "chat_template.jinja"));
  CULET_TRY_VOID(folder.checkpoint.add_folder(folder.path, ""));
  CULET_TRY_VOID(read_modules(&folder));
  return folder;
}

}  // namespace culet::convert
