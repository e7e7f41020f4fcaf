// convert_model: the folder is read, its family found, every tensor and key decided; then the file
// is written, one tensor at a time.
#include "culet/convert.h"

#include "base/files.h"
#include "base/float_mode.h"
#include "base/utf8.h"
#include "convert/family.h"
#include "convert/folder.h"
#include "convert/mapping.h"
#include "convert/members.h"
#include "convert/output.h"
#include "convert/stream.h"
#include "convert/threads.h"
#include "convert/tokenizer.h"
#include "convert/types.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>

namespace culet {
namespace convert {
namespace {

using quant::TensorType;

constexpr int64_t kMostLayers = 4096;

// ---------------------------------------------------------------- the family and the configuration

Result<Family> family_of(const Folder& folder, const std::string& file) {
  if (file.empty()) {
    CULET_TRY(const std::string model, folder.model_class());
    return find_family(model, builtin_families());
  }
  CULET_TRY(const std::string text, base::read_file(file));
  constexpr std::string_view kEnding = ".family";
  std::string_view name = file;
  if (name.ends_with(kEnding)) name.remove_suffix(kEnding.size());
  return parse_family(name, text, builtin_families());
}

Scope scope_of(const Family& family, const Folder& folder) {
  Scope scope(&folder.config);
  if (const auto text = folder.config.find("text_config");
      text != folder.config.end() && text->is_object()) {
    scope.look_first_in(&*text);
  }
  for (const auto& [name, value] : family.definitions) scope.define(name, value);
  for (const DefaultRow& row : family.defaults) scope.set_default(row.name, row.value, row.when);
  for (const auto& [a, b] : family.aliases) scope.alias(a, b);
  scope.name("tokenizer_config", &folder.settings);
  scope.name("generation_config", &folder.generation);
  scope.name("pooling", &folder.pooling);
  scope.name("dense", &folder.dense);
  const Checkpoint& checkpoint = folder.checkpoint;
  scope.ask_about_tensors(
      {[&checkpoint](std::string_view name) { return checkpoint.find(name) != nullptr; },
       [&checkpoint](std::string_view a, std::string_view b) {
         const format::SafeTensor *const x = checkpoint.find(a), *const y = checkpoint.find(b);
         return x != nullptr && y != nullptr && x->dtype == y->dtype && x->shape == y->shape &&
                std::memcmp(x->data, y->data, x->bytes) == 0;
       }});
  return scope;
}

// The files whose members the family must account for.
std::vector<ConfigFile> configuration_of(const Folder& folder) {
  std::vector<ConfigFile> files{
      {"config.json", "", &folder.config},
      {"generation_config.json", "generation_config.", &folder.generation},
      {folder.pooling_file, "pooling.", &folder.pooling}};
  for (size_t i = 0; i < folder.dense_files.size(); ++i) {
    files.push_back({folder.dense_files[i], "dense.", &folder.dense[i]});
  }
  for (const ModuleFile& module : folder.modules) {
    files.push_back({module.file, module.prefix, &module.json});
  }
  return files;
}

Result<int64_t> layers_of(const Scope& scope) {
  CULET_TRY(const Expression layers, Expression::parse("layers"));
  CULET_TRY(const int64_t count, scope.integer(layers));
  if (count >= 1 && count <= kMostLayers) return count;
  return fail(ErrorCode::kUnsupported, fmt::format("the configuration has {} layers; 1 to {} are "
                                                   "possible",
                                                   count, kMostLayers));
}

// A message with the values of the expressions that it has in braces.
Result<std::string> filled(const std::string& message, const Scope& scope,
                           std::optional<int64_t> layer) {
  std::string out;
  for (size_t at = 0; at < message.size();) {
    const size_t open = message.find('{', at), close = message.find('}', open);
    out += message.substr(at, std::min(open, close) - at);
    if (close == std::string::npos) break;
    CULET_TRY(const Expression value,
              Expression::parse(message.substr(open + 1, close - open - 1)));
    CULET_TRY(const Value found, scope.value(value, layer));
    out += found.show();
    at = close + 1;
  }
  return out;
}

Result<void> check_requirements(const Family& family, const Scope& scope, int64_t layers) {
  for (const Requirement& row : family.requirements) {
    for (int64_t layer = 0; layer < (row.each ? layers : 1); ++layer) {
      const std::optional<int64_t> i = row.each ? std::optional(layer) : std::nullopt;
      CULET_TRY(const bool good, scope.holds(row.condition, i));
      if (good) continue;
      CULET_TRY(const std::string message, filled(row.message, scope, i));
      return fail(ErrorCode::kUnsupported, fmt::format("{} ({})", message, row.location));
    }
  }
  return {};
}

Result<void> rename_tensors(const Family& family, Checkpoint* checkpoint) {
  return checkpoint->rename([&family](const std::string& name) {
    for (const Rename& row : family.renames) {
      if (name.starts_with(row.from)) return row.to + name.substr(row.from.size());
    }
    return name;
  });
}

// ---------------------------------------------------------------- metadata

class MetadataBuilder {
 public:
  MetadataBuilder(const Family& family, const Scope& scope, int64_t layers,
                  format::GgufMetadata* out)
      : family_(family), scope_(scope), layers_(layers), out_(*out) {}

  Result<void> add_rows() {
    for (const MetaRow& row : family_.metadata) CULET_TRY_VOID(add(row));
    return {};
  }

 private:
  Result<void> add(const MetaRow& row);
  Result<void> add_one(const MetaRow& row, const std::string& key);
  Result<void> add_each(const MetaRow& row, const std::string& key);
  Result<uint32_t> small(const MetaRow& row, std::optional<int64_t> layer) const;

  const Family& family_;
  const Scope& scope_;
  int64_t layers_;
  format::GgufMetadata& out_;
};

Result<void> MetadataBuilder::add(const MetaRow& row) {
  if (row.when) {
    CULET_TRY(const bool is_for, scope_.holds(*row.when));
    if (!is_for) return {};
  }
  if (row.optional) {
    CULET_TRY(const Value value,
              scope_.value(row.value, row.each ? std::optional<int64_t>(0) : std::nullopt));
    if (value.is_none()) return {};
  }
  const bool own = row.key.starts_with("general.") || row.key.starts_with("tokenizer.");
  const std::string key = own ? row.key : family_.name + "." + row.key;
  return row.each ? add_each(row, key) : add_one(row, key);
}

Result<uint32_t> MetadataBuilder::small(const MetaRow& row, std::optional<int64_t> layer) const {
  CULET_TRY(const int64_t value, scope_.integer(row.value, layer));
  if (value >= 0 && value <= std::numeric_limits<uint32_t>::max()) return uint32_t(value);
  return fail(ErrorCode::kUnsupported, fmt::format("{} would be {}, which is out of range ({})",
                                                   row.key, value, row.location));
}

Result<void> MetadataBuilder::add_one(const MetaRow& row, const std::string& key) {
  switch (row.kind) {
    case MetaKind::kUint32: {
      CULET_TRY(const uint32_t value, small(row, std::nullopt));
      out_.set_uint32(key, value);
      return {};
    }
    case MetaKind::kFloat32: {
      CULET_TRY(const double value, scope_.number(row.value));
      out_.set_float32(key, float(value));
      return {};
    }
    case MetaKind::kBool: {
      CULET_TRY(const bool value, scope_.holds(row.value));
      out_.set_bool(key, value);
      return {};
    }
    case MetaKind::kString: {
      CULET_TRY(const Value value, scope_.value(row.value));
      const std::string* const text = value.text();
      if (text == nullptr) {
        return fail(ErrorCode::kUnsupported,
                    fmt::format("{} is no text ({})", value.show(), row.location));
      }
      out_.set_string(key, *text);
    }
  }
  return {};
}

// Whole numbers are signed in arrays, as other writers of the format have them.
Result<void> MetadataBuilder::add_each(const MetaRow& row, const std::string& key) {
  std::vector<int32_t> numbers;
  std::vector<float> floats;
  std::vector<bool> bools;
  for (int64_t i = 0; i < layers_; ++i) {
    if (row.kind == MetaKind::kUint32) {
      CULET_TRY(const uint32_t value, small(row, i));
      numbers.push_back(int32_t(value));
    } else if (row.kind == MetaKind::kFloat32) {
      CULET_TRY(const double value, scope_.number(row.value, i));
      floats.push_back(float(value));
    } else {
      CULET_TRY(const bool value, scope_.holds(row.value, i));
      bools.push_back(value);
    }
  }
  if (row.kind == MetaKind::kUint32) out_.set_int32s(key, numbers);
  if (row.kind == MetaKind::kFloat32) out_.set_float32s(key, floats);
  if (row.kind == MetaKind::kBool) out_.set_bools(key, bools);
  return {};
}

// The ids of special tokens, which may stand in the configuration of the text part alone.
nlohmann::ordered_json with_token_ids(const nlohmann::ordered_json& config) {
  nlohmann::ordered_json out = config;
  const auto text = config.find("text_config");
  if (text == config.end() || !text->is_object()) return out;
  for (const auto& [name, value] : text->items()) {
    if (!name.ends_with("_token_id")) continue;
    if (!out.contains(name) || out[name].is_null()) out[name] = value;
  }
  return out;
}

Result<format::GgufMetadata> metadata_of(const Family& family, const Scope& scope,
                                         const Folder& folder, int64_t layers, uint32_t file_type,
                                         uint64_t rows, std::vector<std::string>* notes) {
  format::GgufMetadata metadata;
  metadata.set_string("general.architecture", family.name);
  metadata.set_string("general.type", "model");
  metadata.set_string("general.name", folder.name);
  set_file_type(&metadata, file_type);
  const auto or_null = [](const nlohmann::ordered_json& json) {
    return json.is_null() ? nullptr : &json;
  };
  const nlohmann::ordered_json config = with_token_ids(folder.config);
  const TokenizerFiles files{
      or_null(folder.tokenizer),  or_null(folder.settings), &config,
      or_null(folder.generation), folder.sentencepiece,     folder.chat_template};
  const TokenizerOptions options{rows, family.tokenizer, family.pre_tokenizer, family.visible};
  CULET_TRY_VOID(add_tokenizer(files, options, &metadata, notes));
  CULET_TRY_VOID(MetadataBuilder(family, scope, layers, &metadata).add_rows());
  return metadata;
}

// ---------------------------------------------------------------- tensors

// The type that most bytes of the folder have.
std::string usual_type(const std::vector<MappedTensor>& tensors) {
  std::map<std::string_view, uint64_t> values;
  for (const MappedTensor& tensor : tensors) values[tensor.dtype] += tensor.elements();
  const auto most =
      std::max_element(values.begin(), values.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  return std::string(most->first);
}

TensorType type_of(std::string_view dtype) {
  for (const TensorType type : {TensorType::F16, TensorType::BF16}) {
    if (quant::type_info(type).name == dtype) return type;
  }
  return TensorType::F32;
}

struct Plan {
  std::vector<MappedTensor> tensors;
  std::vector<format::NewTensor> made;
  TypeChoice choice;
  std::string type;
  uint64_t rows = 0;  // of the embedding
};

Result<Plan> plan_tensors(const Family& family, const Scope& scope, const Folder& folder,
                          int64_t layers, const ConvertOptions& options) {
  Plan plan;
  CULET_TRY(plan.tensors, map_tensors(family, scope, layers, folder.checkpoint));
  std::vector<std::vector<uint64_t>> dims;
  dims.reserve(plan.tensors.size());
  for (const MappedTensor& tensor : plan.tensors) dims.push_back(tensor.dims());
  std::vector<TensorShape> shapes;
  for (size_t i = 0; i < dims.size(); ++i) {
    const MappedTensor& tensor = plan.tensors[i];
    const TensorShape shape{tensor.name, type_of(tensor.dtype), dims[i]};
    shapes.push_back({tensor.name, stays(shape) ? TensorType::F32 : shape.type, dims[i]});
    if (tensor.name == "token_embd.weight" && dims[i].size() == 2) plan.rows = dims[i][1];
  }
  if (plan.rows == 0) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("the family {} makes no token_embd.weight", family.name));
  }
  plan.type = options.type.empty() ? usual_type(plan.tensors) : options.type;
  CULET_TRY(plan.choice, choose_types(shapes, plan.type, options.keep));
  for (size_t i = 0; i < dims.size(); ++i) {
    plan.made.push_back({plan.tensors[i].name, plan.choice.types[i], std::move(dims[i])});
  }
  return plan;
}

Result<void> write_tensors(const Plan& plan, const Checkpoint& checkpoint,
                           const ConvertOptions& options, format::GgufWriter* writer) {
  base::set_float_mode();
  base::ThreadPool pool(options.threads);
  uint64_t done = 0, total = 0;
  for (const MappedTensor& tensor : plan.tensors) total += tensor.elements();
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const MappedTensor& tensor = plan.tensors[i];
    const Source source{tensor.name, int64_t(tensor.elements()), tensor.reader()};
    CULET_TRY_VOID(write_values(writer, &pool, source, plan.choice.types[i], [&](int64_t values) {
      done += uint64_t(values);
      return !options.progress || options.progress({"converting", done, total});
    }));
    for (const format::SafeTensor* read : tensor.sources) checkpoint.release(*read);
  }
  return writer->finish();
}

// ---------------------------------------------------------------- the whole

Result<WrittenModel> write_converted(const std::string& path, const std::string& out,
                                     const ConvertOptions& options) {
  CULET_TRY(Folder folder, open_folder(path));
  CULET_TRY(const Family family, family_of(folder, options.family));
  std::vector<std::string> sources = folder.checkpoint.paths();
  sources.insert(sources.end(), folder.files.begin(), folder.files.end());
  sources.push_back(options.family);
  CULET_TRY_VOID(check_not_a_source(out, sources, path));
  CULET_TRY_VOID(rename_tensors(family, &folder.checkpoint));
  const Scope scope = scope_of(family, folder);
  CULET_TRY(const int64_t layers, layers_of(scope));
  CULET_TRY_VOID(check_requirements(family, scope, layers));
  CULET_TRY(Plan plan, plan_tensors(family, scope, folder, layers, options));
  CULET_TRY_VOID(check_shapes(family, scope, layers, plan.tensors));
  CULET_TRY(const format::GgufMetadata metadata,
            metadata_of(family, scope, folder, layers, plan.choice.file_type, plan.rows,
                        &plan.choice.notes));
  const std::vector<ConfigFile> files = configuration_of(folder);
  CULET_TRY_VOID(check_members(family, scope, files, options.ignore_config, &plan.choice.notes));
  for (const std::string& file : folder.checkpoint.unread()) {
    plan.choice.notes.push_back(
        fmt::format("not read: {}, which is no part of the model by its index or name",
                    base::utf8_shown(file)));
  }
  CULET_TRY(format::GgufWriter writer, format::GgufWriter::create(out, metadata, plan.made));
  WrittenModel written{.path = out, .type = plan.type, .bytes = writer.file_bytes()};
  written.source_bytes = folder.checkpoint.bytes();
  describe(plan.made, &written);
  written.notes = std::move(plan.choice.notes);
  CULET_TRY_VOID(write_tensors(plan, folder.checkpoint, options, &writer));
  return written;
}

}  // namespace
}  // namespace convert

Result<WrittenModel> convert_model(const std::string& folder, const std::string& out,
                                   const ConvertOptions& options) {
  return convert::with_threads(options.threads, [&]() -> Result<WrittenModel> {
    auto written = convert::write_converted(folder, out, options);
    if (written) return written;
    const Error& error = written.error();
    const bool named = error.message.find(folder) != std::string::npos;
    return fail(error.code, named ? error.message : fmt::format("{}: {}", folder, error.message));
  });
}

std::vector<std::string> convertible_models() {
  std::vector<std::string> models;
  for (const convert::FamilyText& entry : convert::builtin_families()) {
    const auto family = convert::parse_family(entry.name, entry.text, convert::builtin_families());
    if (family) models.insert(models.end(), family->models.begin(), family->models.end());
  }
  return models;
}

}  // namespace culet
