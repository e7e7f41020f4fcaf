#include "convert/folder.h"

#include "base/files.h"
#include "base/json.h"
#include "base/utf8.h"
#include "convert/json_parts.h"

#include <fmt/format.h>

#include <filesystem>

namespace culet::convert {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr const char* kFiles[] = {"config.json",
                                  "tokenizer.json",
                                  "tokenizer_config.json",
                                  "tokenizer.model",
                                  "chat_template.jinja",
                                  "generation_config.json",
                                  "modules.json",
                                  "model.safetensors.index.json",
                                  "sentence_bert_config.json"};

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

// modules.json of sentence encoders says through what a text goes, in order: the model, a pooling,
// perhaps dense layers, each in a folder with its settings and weights. Vectors of unit length are
// the reader's choice, so Normalize is no part.
class Modules {
 public:
  explicit Modules(Folder* folder) : folder_(*folder), file_(folder->path + "/modules.json") {}

  Result<void> read() {
    if (!is_there(file_)) return {};
    CULET_TRY(const Json modules, read_json(file_));
    if (!modules.is_array() || modules.empty() || kind_of(modules[0]) != "Transformer") {
      return fail(ErrorCode::kUnsupported,
                  file_ + " is not a list of modules that begins with the model (Transformer)");
    }
    for (const Json& module : modules) CULET_TRY_VOID(read_module(module));
    return check_case();
  }

 private:
  // "sentence_transformers.models.Pooling": Pooling
  static std::string kind_of(const Json& module) {
    const std::string type = text_of(member(&module, "type"));
    return type.substr(type.rfind('.') + 1);
  }

  Result<void> read_module(const Json& module) {
    const std::string kind = kind_of(module);
    std::string path = text_of(member(&module, "path"));
    while (path.ends_with('/')) path.pop_back();
    if (kind == "Normalize") return {};
    if (kind == "Transformer" && !seen_model_ && path.empty()) {
      seen_model_ = true;
      return {};
    }
    const bool dense = kind == "Dense" && !folder_.pooling.is_null();
    const bool pooling = kind == "Pooling" && folder_.pooling.is_null();
    if (!dense && !pooling) {
      return fail(
          ErrorCode::kUnsupported,
          fmt::format(
              "{}: the model also applies '{}' (in '{}'), which cannot be converted, so the "
              "vectors would differ; remove its entry to get the vectors before that step",
              file_, base::utf8_shown(text_of(member(&module, "type"))), base::utf8_shown(path)));
    }
    if (path.empty() || path == "." || path.starts_with('/') || path.starts_with("..") ||
        path.find("/..") != std::string::npos) {
      return fail(
          ErrorCode::kCorrupt,
          fmt::format("{}: the path '{}' of a module of the kind {} is not a folder in this one",
                      file_, base::utf8_shown(path), kind));
    }
    const std::string inside = fmt::format("{}/{}", folder_.path, path);
    folder_.files.push_back(inside + "/config.json");
    CULET_TRY(Json settings, read_json(inside + "/config.json"));
    if (pooling) {
      folder_.pooling = std::move(settings);
      return {};
    }
    folder_.dense.push_back(std::move(settings));
    return folder_.checkpoint.add_folder(inside, path + ".");
  }

  // Settings of the model's own step.
  Result<void> check_case() {
    const std::string file = folder_.path + "/sentence_bert_config.json";
    CULET_TRY(const Json settings, read_optional_json(file));
    const Json* lower = member(&settings, "do_lower_case");
    if (lower == nullptr || *lower != true) return {};
    return fail(
        ErrorCode::kUnsupported,
        file +
            ": texts are made lower case first (do_lower_case), which a GGUF file cannot express");
  }

  Folder& folder_;
  std::string file_;
  bool seen_model_ = false;
};

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
        fmt::format("'{}' is not a folder; name the folder that a model was published in", path));
  }
  folder.name = fs::path(folder.path).filename().string();
  const std::string in = folder.path + "/";
  for (const char* name : kFiles) folder.files.push_back(in + name);
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
  CULET_TRY_VOID(Modules(&folder).read());
  return folder;
}

}  // namespace culet::convert
