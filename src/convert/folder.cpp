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
                                  "config_sentence_transformers.json"};

// What the first module of a sentence encoder is set by; the first that is there counts.
constexpr const char* kModelSettings[] = {
    "sentence_bert_config.json",       "sentence_roberta_config.json",
    "sentence_distilbert_config.json", "sentence_camembert_config.json",
    "sentence_albert_config.json",     "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json"};

// Files that say that the folder is something else than a model with plain weights.
struct OtherFolder {
  const char* file;
  const char* what;
};
constexpr OtherFolder kOtherFolders[] = {
    {"adapter_config.json",
     "an adapter (LoRA), which is no model of its own; merge it into its base model first (with "
     "merge_and_unload() of peft), save that and convert the new folder"},
    {"quantize_config.json",
     "a model whose weights are quantized (GPTQ); take the folder with BF16 or F16 weights"},
    {"quant_config.json",
     "a model whose weights are quantized (AWQ); take the folder with BF16 or F16 weights"},
    {"hf_quant_config.json",
     "a model whose weights are quantized; take the folder with BF16 or F16 weights"}};

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
    folder_.modules.push_back({"modules.json", "modules.", modules});
    return read_settings();
  }

 private:
  // "sentence_transformers.models.Pooling": Pooling. "": code of somebody else.
  static std::string kind_of(const Json& module) {
    const std::string type = text_of(member(&module, "type"));
    return type.starts_with("sentence_transformers.") ? type.substr(type.rfind('.') + 1) : "";
  }

  Result<void> read_module(const Json& module) {
    const std::string kind = kind_of(module);
    std::string path = text_of(member(&module, "path"));
    while (path.ends_with('/')) path.pop_back();
    if (kind == "Normalize") return read_normalize(path);
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
    if (!settings.is_object()) {
      return fail(ErrorCode::kCorrupt, inside + "/config.json holds no object");
    }
    if (pooling) {
      folder_.pooling = std::move(settings);
      folder_.pooling_file = path + "/config.json";
      return {};
    }
    folder_.dense_files.push_back(path + "/config.json");
    folder_.dense.push_back(std::move(settings));
    return folder_.checkpoint.add_folder(inside, path + ".");
  }

  // Vectors of unit length are the reader's choice, so only what would be odd about it counts.
  Result<void> read_normalize(const std::string& path) {
    const bool inside =
        !path.empty() && !path.starts_with('/') && path.find("..") == std::string::npos;
    if (!inside) return {};
    return read_module_file(path + "/config.json", "normalize.");
  }

  Result<void> read_module_file(const std::string& file, const std::string& prefix) {
    folder_.files.push_back(folder_.path + "/" + file);
    CULET_TRY(Json json, read_optional_json(folder_.path + "/" + file));
    if (!json.is_null()) folder_.modules.push_back({file, prefix, std::move(json)});
    return {};
  }

  // Settings of the model's own step, and of the whole.
  Result<void> read_settings() {
    for (const char* file : kModelSettings) {
      if (!is_there(folder_.path + "/" + file)) continue;
      CULET_TRY_VOID(read_module_file(file, "sentence_bert."));
      break;
    }
    return read_module_file("config_sentence_transformers.json", "sentence_transformers.");
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
  if (classes != config.end() && classes->is_array() && classes->size() > 1) {
    std::string names;
    for (const Json& entry : *classes) names += (names.empty() ? "" : ", ") + text_of(&entry);
    return fail(ErrorCode::kCorrupt,
                fmt::format("{}/config.json names several classes of models (architectures: {}); "
                            "leave the one that the weights are of",
                            path, base::utf8_shown(names)));
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
  for (const OtherFolder& other : kOtherFolders) {
    if (!is_there(in + other.file)) continue;
    return fail(ErrorCode::kUnsupported, fmt::format("the folder {} is {} ({} is there)",
                                                     folder.path, other.what, other.file));
  }
  if (!is_there(in + "config.json")) {
    return fail(ErrorCode::kNotFound,
                fmt::format("the folder {} has no config.json; name the folder that a model was "
                            "published in",
                            folder.path));
  }
  CULET_TRY(folder.config, read_json(in + "config.json"));
  if (!folder.config.is_object()) {
    return fail(ErrorCode::kCorrupt, in + "config.json holds no object");
  }
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
