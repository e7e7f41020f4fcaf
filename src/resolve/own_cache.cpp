#include "resolve/own_cache.h"

#include "base/files.h"
#include "base/json.h"
#include "base/os_error.h"
#include "resolve/disk.h"
#include "resolve/fields.h"
#include "resolve/gguf_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <unistd.h>
#include <utility>

namespace culet::resolve {
namespace {

constexpr uint64_t kNoteBytes = 64 << 10;
constexpr std::string_view kSourceFormat = "culet-source 1";

// A commit folder that a revision leads to.
struct PulledCommit {
  std::string commit;
  int64_t pulled = 0;
  std::vector<std::string> files;
};

// The commits of a repository that were pulled under this revision, the newest first.
std::vector<PulledCommit> pulled_commits(const std::string& repo, const std::string& revision) {
  std::vector<std::string> commits;
  for (const DirEntry& entry : list_folder(repo, nullptr)) {
    if (entry.is_folder && is_hex(entry.name, 40)) commits.push_back(entry.name);
  }
  const std::string wanted = revision.empty() ? "main" : revision;
  const auto named = match_commit(commits, wanted);
  std::vector<PulledCommit> out;
  for (const std::string& commit : commits) {
    PulledCommit found{commit, 0, {}};
    for (const std::string& file : gguf_below(fmt::format("{}/{}", repo, commit), nullptr)) {
      const auto source = read_source(fmt::format("{}/{}/{}", repo, commit, file));
      if (!source) continue;
      const auto& asked = source->asked;
      if (named != commit && std::find(asked.begin(), asked.end(), wanted) == asked.end()) continue;
      found.files.push_back(file);
      found.pulled = std::max(found.pulled, source->pulled);
    }
    if (!found.files.empty()) out.push_back(std::move(found));
  }
  std::sort(out.begin(), out.end(), [](const PulledCommit& a, const PulledCommit& b) {
    return a.pulled != b.pulled ? a.pulled > b.pulled : a.commit < b.commit;
  });
  return out;
}

ModelRef own_ref(const Places& places, const std::string& path, std::string origin,
                 std::string revision) {
  return {
      path, std::move(origin), known_digest(places, path).value_or(""), std::move(revision), {}};
}

void list_hub_files(const Places& places, std::vector<std::string>* problems,
                    std::vector<OwnFile>* out) {
  const std::string root = places.cache + "/hf";
  for (const DirEntry& org : list_folder(root, problems)) {
    for (const DirEntry& repo : list_folder(root + "/" + org.name, problems)) {
      const std::string folder = root + "/" + org.name + "/" + repo.name;
      for (const DirEntry& commit : list_folder(folder, problems)) {
        for (const std::string& file : gguf_below(folder + "/" + commit.name, problems)) {
          const std::string path = fmt::format("{}/{}/{}", folder, commit.name, file);
          const auto source = read_source(path);
          if (!source || !choose_gguf({file}, "", "")) continue;
          const auto& asked = source->asked;
          const bool main = std::find(asked.begin(), asked.end(), "main") != asked.end();
          std::string quant = quant_in_name(file);
          if (quant.empty()) quant = file;
          const HubName name{org.name, repo.name, main ? "" : commit.name, quant};
          out->push_back({(quant == file ? "hf:" : "") + to_text(name), path});
        }
      }
    }
  }
}

void list_ollama_files(const Places& places, std::vector<std::string>* problems,
                       std::vector<OwnFile>* out) {
  const std::string root = places.cache + "/ollama";
  for (const std::string& file : gguf_below(root, problems)) {
    std::string name = file.substr(0, file.size() - 5);
    const size_t slash = name.rfind('/');
    if (slash == name.npos) continue;
    name[slash] = ':';
    if (const auto parsed = parse_ollama_name(name)) {
      std::string path = fmt::format("{}/{}", root, file);
      if (ollama_path(places, *parsed) == path) {
        out->push_back({to_text(*parsed), std::move(path)});
      }
    }
  }
}

}  // namespace

// ---------------------------------------------------------------- where a file came from

Result<Source> parse_source(std::string_view text) {
  constexpr int kDepth = 4;
  CULET_TRY(const Json json, base::parse_json(text, kDepth, kNoteBytes));
  Source source;
  source.origin = text_of(json, "origin").value_or("");
  source.revision = text_of(json, "revision").value_or("");
  source.sha256 = text_of(json, "sha256").value_or("");
  source.bytes = count_of(json, "bytes").value_or(0);
  source.pulled = int64_t(count_of(json, "pulled").value_or(0) & 0x7fffffffffffffff);
  for (const Json& asked : array_of(json, "asked")) {
    if (asked.is_string()) source.asked.push_back(asked.get<std::string>());
  }
  if (text_of(json, "format") != kSourceFormat || !is_hex(source.sha256, 64)) {
    return fail(ErrorCode::kCorrupt, "this does not say where a model came from");
  }
  return source;
}

std::optional<Source> read_source(const std::string& path) {
  const auto text = base::read_file(beside(path, "source"), kNoteBytes);
  if (!text) return std::nullopt;
  auto source = parse_source(*text);
  return source ? std::optional(std::move(*source)) : std::nullopt;
}

Result<void> write_source(const std::string& path, const Source& source) {
  const Json json = {{"format", kSourceFormat},     {"origin", source.origin},
                     {"revision", source.revision}, {"asked", source.asked},
                     {"sha256", source.sha256},     {"bytes", source.bytes},
                     {"pulled", source.pulled}};
  return write_whole(beside(path, "source"), base::dump_json(json, 1) + "\n");
}

// ---------------------------------------------------------------- digests

std::optional<std::string> known_digest(const Places& places, const std::string& path) {
  return base::DigestCache(places.cache).known(path);
}

void remember_digest(const Places& places, const std::string& path, const std::string& sha256) {
  base::DigestCache(places.cache).remember(path, sha256);
}

// ---------------------------------------------------------------- finding

std::string catalogue_path(const Places& places, const CatalogueModel& model) {
  return places.cache + "/" + model.file;
}

std::string hub_folder(const Places& places, const HubName& name) {
  return fmt::format("{}/hf/{}/{}", places.cache, name.org, name.repo);
}

std::string ollama_path(const Places& places, const OllamaName& name) {
  return fmt::format("{}/ollama/{}/{}/{}/{}.gguf", places.cache, name.host, name.space, name.model,
                     name.tag);
}

Result<std::optional<ModelRef>> find_own(const Places& places, const CatalogueModel& model) {
  const std::string path = catalogue_path(places, model);
  if (places.cache.empty() || !is_file(path)) return std::nullopt;
  const auto digest = known_digest(places, path);
  if (file_bytes(path) != model.bytes || (digest && *digest != model.sha256)) {
    return fail(ErrorCode::kCorrupt,
                fmt::format("{} is damaged; run: culet pull {}", path, model.name));
  }
  return std::optional(own_ref(places, path, "catalogue:" + model.name, ""));
}

Result<std::optional<ModelRef>> find_own(const Places& places, const HubName& name) {
  if (places.cache.empty()) return std::nullopt;
  const std::string repo = hub_folder(places, name);
  const std::string what = fmt::format("{}/{} in culet's cache", name.org, name.repo);
  Result<std::optional<ModelRef>> missed = std::nullopt;
  for (const PulledCommit& commit : pulled_commits(repo, name.revision)) {
    const auto file = choose_gguf(commit.files, name.quant, what);
    if (!file) {
      if (file.error().code != ErrorCode::kNotFound) return tl::unexpected(file.error());
      if (missed) missed = tl::unexpected(file.error());
      continue;
    }
    const std::string path = repo + "/" + commit.commit + "/" + *file;
    const auto source = read_source(path);
    return std::optional(
        own_ref(places, path, source ? source->origin : "hf:" + to_text(name), commit.commit));
  }
  return missed;
}

Result<std::optional<ModelRef>> find_own(const Places& places, const OllamaName& name) {
  const std::string path = ollama_path(places, name);
  if (places.cache.empty() || !is_file(path)) return std::nullopt;
  return std::optional(own_ref(places, path, "ollama:" + to_text(name), ""));
}

std::vector<OwnFile> list_own(const Places& places, const Catalogue& catalogue,
                              std::vector<std::string>* problems) {
  std::vector<OwnFile> out;
  if (places.cache.empty()) return out;
  for (const DirEntry& entry : list_folder(places.cache, problems)) {
    if (!entry.is_file || !lower(entry.name).ends_with(".gguf")) continue;
    OwnFile own{places.cache + "/" + entry.name, places.cache + "/" + entry.name};
    for (const CatalogueModel& model : catalogue.models) {
      if (model.file == entry.name) own.name = model.name;
    }
    out.push_back(std::move(own));
  }
  list_hub_files(places, problems, &out);
  list_ollama_files(places, problems, &out);
  return out;
}

// ---------------------------------------------------------------- removing

Result<RemovedModel> remove_own(const Places& places, const std::string& path) {
  RemovedModel out;
  for (const std::string& part : parts_of(path)) {
    const uint64_t bytes = file_bytes(part);
    if (::unlink(part.c_str()) != 0) {
      if (errno == ENOENT && part != path) continue;
      return tl::unexpected(base::os_error("remove", part, errno));
    }
    out.files.push_back(part);
    out.bytes += bytes;
    for (const char* what : {"verified", "source", "part", "part.state", "lock"}) {
      ::unlink(beside(part, what).c_str());
    }
  }
  std::error_code error;
  for (std::string folder = folder_of(path); is_inside(folder, places.cache);
       folder = folder_of(folder)) {
    if (!std::filesystem::remove(folder, error) || error) break;  // not empty
  }
  return out;
}

}  // namespace culet::resolve
