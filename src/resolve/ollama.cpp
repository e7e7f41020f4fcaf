// Takes a name, gives the blob its manifest points to. A name leads to exactly one path, so nothing
// depends on the order of a folder and a store of any size costs one look-up. Digests become file
// names, therefore they must be 64 hexadecimal digits and nothing else.
#include "resolve/ollama.h"

#include "base/files.h"
#include "base/json.h"
#include "resolve/disk.h"
#include "resolve/fields.h"

#include <fmt/format.h>

#include <algorithm>

namespace culet::resolve {
namespace {

constexpr std::string_view kRegistry = "registry.ollama.ai", kLibrary = "library",
                           kLatest = "latest";
constexpr uint64_t kManifestBytes = 4 << 20;

// What a layer is for, by the end of its media type. An empty word: nothing worth a note.
struct LayerKind {
  std::string_view media_type, note;
};
constexpr LayerKind kKinds[] = {
    {"application/vnd.ollama.image.adapter", "an adapter, which culet does not apply"},
    {"application/vnd.ollama.image.projector", "a projector for images, which culet does not use"},
    {"application/vnd.ollama.image.template",
     "a template of Ollama; culet uses the one in the model file"},
    {"application/vnd.ollama.image.system",
     "a system message of Ollama, which culet does not send"},
    {"application/vnd.ollama.image.params", "parameters of Ollama, which culet does not apply"},
};
constexpr std::string_view kModelType = "application/vnd.ollama.image.model";

bool is_component(std::string_view part, bool host) {
  const auto allowed = [host](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-' || (host && c == ':');
  };
  return !part.empty() && part.size() <= 128 && part[0] != '.' && part[0] != '-' &&
         std::all_of(part.begin(), part.end(), allowed);
}

std::optional<OllamaLayer> read_layer(const Json& from) {
  const std::string digest = text_of(from, "digest").value_or("");
  const bool named = digest.starts_with("sha256:") || digest.starts_with("sha256-");
  OllamaLayer layer{named ? digest.substr(7) : "", count_of(from, "size").value_or(0)};
  if (!is_hex(layer.sha256, 64) || layer.bytes == 0) return std::nullopt;
  return layer;
}

std::string manifest_path(const Places& places, const OllamaName& name) {
  return fmt::format("{}/manifests/{}/{}/{}/{}", places.ollama, name.host, name.space, name.model,
                     name.tag);
}

tl::unexpected<Error> damaged(const OllamaName& name, std::string_view what) {
  return fail(ErrorCode::kCorrupt,
              fmt::format("'{}' is in the Ollama store, but {}; run: ollama pull {}", to_text(name),
                          what, to_text(name)));
}

}  // namespace

std::optional<OllamaName> parse_ollama_name(std::string_view text) {
  OllamaName name{std::string(kRegistry), std::string(kLibrary), "", std::string(kLatest)};
  const size_t slash = text.rfind('/');
  const size_t colon = text.rfind(':');
  if (colon != text.npos && (slash == text.npos || colon > slash)) {
    name.tag = text.substr(colon + 1);
    text = text.substr(0, colon);
  }
  std::vector<std::string> parts;
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find('/', start), text.size());
    parts.emplace_back(text.substr(start, end - start));
    start = end + 1;
  }
  if (parts.size() > 3) return std::nullopt;
  name.model = parts.back();
  if (parts.size() >= 2) name.space = parts[parts.size() - 2];
  if (parts.size() == 3) name.host = parts[0];
  const bool good = is_component(name.host, true) && is_component(name.space, false) &&
                    is_component(name.model, false) && is_component(name.tag, false);
  return good ? std::optional(name) : std::nullopt;
}

std::string to_text(const OllamaName& name) {
  std::string out;
  if (name.host != kRegistry) out += name.host + "/";
  if (name.host != kRegistry || name.space != kLibrary) out += name.space + "/";
  return out + name.model + ":" + name.tag;
}

Result<OllamaManifest> parse_ollama_manifest(std::string_view text) {
  constexpr int kDepth = 16;
  auto json = base::parse_json(text, kDepth, kManifestBytes);
  if (!json) return fail(ErrorCode::kCorrupt, "its manifest is not JSON: " + json.error().message);
  OllamaManifest manifest;
  int models = 0;
  for (const Json& from : array_of(*json, "layers")) {
    const std::string type = text_of(from, "mediaType").value_or("");
    for (const LayerKind& kind : kKinds) {
      if (type == kind.media_type) manifest.notes.push_back(fmt::format("it has {}", kind.note));
    }
    if (type != kModelType) continue;
    const auto layer = read_layer(from);
    if (!layer) {
      return fail(ErrorCode::kCorrupt,
                  "its manifest has a model layer without a sha256 digest and a size");
    }
    if (models++ == 0) manifest.model = *layer;
  }
  if (models == 0) {
    return fail(ErrorCode::kUnsupported, "its manifest names no model of the GGUF format");
  }
  if (models > 1) {
    manifest.notes.push_back(fmt::format("it has {} model layers; the first is used", models));
  }
  return manifest;
}

Result<std::optional<ModelRef>> find_in_ollama(const Places& places, const OllamaName& name) {
  if (places.ollama.empty()) return std::nullopt;
  const std::string path = manifest_path(places, name);
  if (is_folder(path)) return damaged(name, "its manifest is a folder");
  auto text = base::read_file(path, kManifestBytes);
  if (!text && text.error().code == ErrorCode::kNotFound) return std::nullopt;
  if (!text) return damaged(name, text.error().message);
  const auto manifest = parse_ollama_manifest(*text);
  if (!manifest && manifest.error().code == ErrorCode::kUnsupported) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("'{}' is in the Ollama store, but {}; give another model",
                            to_text(name), manifest.error().message));
  }
  if (!manifest) return damaged(name, manifest.error().message);
  const OllamaLayer& layer = manifest->model;
  const std::string blob = fmt::format("{}/blobs/sha256-{}", places.ollama, layer.sha256);
  if (!is_file(blob)) return damaged(name, fmt::format("its file {} is missing", blob));
  if (file_bytes(blob) != layer.bytes) {
    return damaged(name, fmt::format("its file {} has {} bytes instead of {}", blob,
                                     file_bytes(blob), layer.bytes));
  }
  ModelRef ref{blob, "ollama:" + to_text(name), layer.sha256, "", manifest->notes};
  return std::optional(std::move(ref));
}

std::vector<OllamaName> list_ollama(const Places& places, std::vector<std::string>* problems) {
  std::vector<OllamaName> out;
  if (places.ollama.empty()) return out;
  const std::string root = places.ollama + "/manifests";
  const auto folders = [problems](const std::string& path) {
    auto entries = list_folder(path, problems);
    std::erase_if(entries, [](const DirEntry& entry) { return !entry.is_folder; });
    return entries;
  };
  for (const DirEntry& host : folders(root)) {
    for (const DirEntry& space : folders(root + "/" + host.name)) {
      const std::string in_space = root + "/" + host.name + "/" + space.name;
      for (const DirEntry& model : folders(in_space)) {
        for (const DirEntry& tag : list_folder(in_space + "/" + model.name, problems)) {
          OllamaName name{host.name, space.name, model.name, tag.name};
          if (tag.is_file && parse_ollama_name(to_text(name))) out.push_back(std::move(name));
        }
      }
    }
  }
  return out;
}

}  // namespace culet::resolve
