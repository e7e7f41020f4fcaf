// Takes the places, gives their models in the order in which names are searched. Nothing here
// fails: what cannot be read is a line, and a model that cannot be used is listed with the reason.
#include "resolve/list.h"

#include "format/gguf.h"
#include "resolve/disk.h"
#include "resolve/gguf_files.h"
#include "resolve/hugging_face.h"
#include "resolve/name.h"
#include "resolve/ollama.h"
#include "resolve/own_cache.h"

#include <algorithm>
#include <map>

namespace culet::resolve {
namespace {

// A quant that is a file's name would make the whole look like a path.
std::string name_of(const HubFile& file) {
  const std::string text = to_text(file.name);
  return looks_like_path(text) ? "hf:" + text : text;
}

std::string dominant_type(const format::GgufFile& file) {
  std::map<std::string_view, uint64_t> bytes;
  for (const format::TensorInfo& tensor : file.tensors()) {
    bytes[quant::type_info(tensor.type).name] += tensor.bytes;
  }
  const auto most = std::max_element(
      bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == bytes.end() ? "" : std::string(most->first);
}

void describe(ModelEntry* entry) {
  for (const std::string& part : parts_of(entry->path)) entry->bytes += file_bytes(part);
  const auto file = format::GgufFile::open(entry->path);
  if (!file) {
    entry->problem = file.error().message;
    return;
  }
  const format::MetaValue* architecture = file->find("general.architecture");
  if (architecture) entry->architecture = architecture->as_string().value_or("");
  entry->quantization = dominant_type(*file);
}

void add(const std::string& name, const Result<std::optional<ModelRef>>& found,
         const std::string& origin, ModelList* list) {
  ModelEntry entry;
  entry.name = name;
  entry.origin = origin;
  if (!found) {
    entry.problem = found.error().message;
  } else if (found->has_value()) {
    const ModelRef& ref = **found;
    entry.path = ref.path;
    entry.origin = ref.origin;
    entry.sha256 = ref.sha256;
    entry.revision = ref.revision;
    describe(&entry);
  } else {
    return;  // gone since
  }
  list->models.push_back(std::move(entry));
}

void add_own(const Places& places, const Catalogue& catalogue, const OwnFile& own,
             ModelList* list) {
  ModelEntry entry;
  entry.name = own.name;
  entry.path = own.path;
  entry.owned = true;
  entry.sha256 = known_digest(places, own.path).value_or("");
  entry.origin = "path";
  if (const auto source = read_source(own.path)) {
    entry.origin = source->origin;
    entry.revision = source->revision;
  } else if (const CatalogueModel* model = catalogue.find(own.name)) {
    entry.origin = "catalogue:" + model->name;
  }
  describe(&entry);
  if (const CatalogueModel* model = catalogue.find(own.name)) {
    const auto found = find_own(places, *model);
    if (!found) entry.problem = found.error().message;
  }
  list->models.push_back(std::move(entry));
}

}  // namespace

std::vector<std::string> model_names(const Places& places, const Catalogue& catalogue,
                                     std::vector<std::string>* problems) {
  std::vector<std::string> out;
  for (const OllamaName& name : list_ollama(places, problems)) out.push_back(to_text(name));
  for (const HubFile& file : list_hub(places, problems)) out.push_back(name_of(file));
  for (const OwnFile& own : list_own(places, catalogue, problems)) out.push_back(own.name);
  return out;
}

ModelNames list_model_names(const Places& places, const Catalogue& catalogue) {
  ModelNames names;
  std::vector<std::string> problems;
  names.here = model_names(places, catalogue, &problems);
  for (const OwnFile& own : list_own(places, catalogue, &problems)) names.owned.push_back(own.name);
  for (const CatalogueModel& model : catalogue.models) {
    if (!is_file(catalogue_path(places, model))) names.not_here.push_back(model.name);
  }
  return names;
}

ModelList list_models(const Places& places, const Catalogue& catalogue) {
  ModelList list;
  for (const OllamaName& name : list_ollama(places, &list.problems)) {
    add(to_text(name), find_in_ollama(places, name), "ollama:" + to_text(name), &list);
  }
  for (const HubFile& file : list_hub(places, &list.problems)) {
    add(name_of(file), find_in_hub(places, file.name), "hf:" + to_text(file.name), &list);
  }
  for (const OwnFile& own : list_own(places, catalogue, &list.problems)) {
    add_own(places, catalogue, own, &list);
  }
  for (const CatalogueModel& model : catalogue.models) {
    if (is_file(catalogue_path(places, model))) continue;
    list.not_here.push_back({model.name, model.about, model.license, model.bytes,
                             model.name == catalogue.default_name});
  }
  return list;
}

}  // namespace culet::resolve
