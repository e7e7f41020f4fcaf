// Takes a name, asks the places in their order, gives the first answer. A place that has the name
// but not what was asked of it (another quantization) lets the search go on; one that has it
// damaged ends it, because running another model than the one named would be a guess.
#include "resolve/name.h"

#include "base/sha256.h"
#include "resolve/disk.h"
#include "resolve/gguf_files.h"
#include "resolve/hugging_face.h"
#include "resolve/list.h"
#include "resolve/ollama.h"
#include "resolve/own_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <optional>
#include <system_error>

namespace culet::resolve {
namespace {

constexpr size_t kLongestName = 1000, kShownNames = 12;

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

Result<ModelRef> find_path(const Places& places, const std::string& name) {
  const std::string path = base::expand_home(places.home, name);
  if (is_file(path)) return ModelRef{path, "path", "", "", {}};
  if (is_folder(path)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is a folder; name a GGUF file in it", path));
  }
  std::error_code ec;
  if (std::filesystem::exists(path, ec)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is not a regular file, and a model must be one; copy its bytes "
                            "into a file first",
                            path));
  }
  return fail(ErrorCode::kNotFound, fmt::format("the model file '{}' does not exist; check the "
                                                "path, or see what there is with: culet list",
                                                path));
}

using Found = Result<std::optional<ModelRef>>;

class Search {
 public:
  Search(const Places& places, const Catalogue& catalogue, const std::string& name, Only only)
      : places_(places), catalogue_(catalogue), name_(name), only_(only) {
    if (only != Only::kHuggingFace) ollama_ = parse_ollama_name(name);
    if (only != Only::kOllama) hub_ = parse_hub_name(name);
    if (only == Only::kAnyPlace) model_ = catalogue.find(name);
  }

  Found in_stores() {
    if (ollama_ && take(find_in_ollama(places_, *ollama_))) return std::move(found_);
    if (hub_ && take(find_in_hub(places_, *hub_))) return std::move(found_);
    return std::nullopt;
  }
  Found in_own() {
    if (ollama_ && take(find_own(places_, *ollama_))) return std::move(found_);
    if (hub_ && take(find_own(places_, *hub_))) return std::move(found_);
    if (model_ && take(find_own(places_, *model_))) return std::move(found_);
    return std::nullopt;
  }
  Error not_found() const;

 private:
  // Whether this ends the search.
  bool take(Found found) {
    if (!found && found.error().code == ErrorCode::kNotFound) {
      if (reason_.empty()) reason_ = found.error().message;
      return false;
    }
    found_ = std::move(found);
    return !found_ || found_->has_value();
  }
  std::string places_in_words() const;
  std::string names_in_words(const std::vector<std::string>& names) const;

  const Places& places_;
  const Catalogue& catalogue_;
  const std::string name_;
  const Only only_;
  std::optional<OllamaName> ollama_;
  std::optional<HubName> hub_;
  const CatalogueModel* model_ = nullptr;
  Found found_ = std::nullopt;
  std::string reason_;
};

std::string Search::places_in_words() const {
  const auto shown = [](const std::string& path) {
    return path.empty() ? std::string("no place, HOME is not set") : path;
  };
  std::string out;
  if (only_ != Only::kHuggingFace) {
    out += fmt::format("the Ollama store ({}), ", shown(places_.ollama));
  }
  if (only_ != Only::kOllama) {
    out += fmt::format("the Hugging Face cache ({}), ", shown(places_.hugging_face));
  }
  return out + fmt::format("culet's own cache and catalogue ({})", shown(places_.cache));
}

std::string Search::names_in_words(const std::vector<std::string>& names) const {
  if (names.empty()) return "; there is no model on this machine yet";
  std::string out;
  for (size_t i = 0; i < names.size() && i < kShownNames; ++i) out += (i ? ", " : "") + names[i];
  if (names.size() > kShownNames) out += fmt::format(" and {} more", names.size() - kShownNames);
  return "; there are: " + out;
}

Error Search::not_found() const {
  if (!reason_.empty()) return {ErrorCode::kNotFound, reason_};
  if (model_) {
    return {ErrorCode::kNotFound,
            fmt::format("{} ({}) is not on this machine yet; run: culet pull {}", model_->name,
                        in_words(model_->bytes), model_->name)};
  }
  std::vector<std::string> problems;
  const std::vector<std::string> here = model_names(places_, catalogue_, &problems);
  std::vector<std::string> known = here;
  for (const CatalogueModel& model : catalogue_.models) {
    known.push_back(model.name);
    known.insert(known.end(), model.aliases.begin(), model.aliases.end());
  }
  std::string out = fmt::format("no model is called '{}'; searched: {}", name_, places_in_words());
  const std::string near = closest(name_, known);
  if (!near.empty()) out += fmt::format("; did you mean '{}'", near);
  out += names_in_words(here);
  if (!problems.empty()) out += "; " + problems[0];
  const bool hub = hub_ && only_ != Only::kOllama;
  out += hub ? fmt::format("; to fetch it, run: culet pull hf:{}", to_text(*hub_))
             : fmt::format("; give a path or another name, or run: culet pull {}",
                           catalogue_.default_name);
  return {ErrorCode::kNotFound, out};
}

// Insertions, deletions, changes and swaps of neighbors between two short texts (optimal string
// alignment), or `limit` when there are not fewer.
size_t distance(std::string_view a, std::string_view b, size_t limit) {
  const size_t longer = std::max(a.size(), b.size()), shorter = std::min(a.size(), b.size());
  if (longer - shorter >= limit) return limit;
  std::vector<size_t> older(b.size() + 1), old(b.size() + 1), now(b.size() + 1);
  std::iota(now.begin(), now.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    std::swap(older, old);
    std::swap(old, now);
    now[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool same = a[i - 1] == b[j - 1];
      now[j] = std::min({old[j - 1] + !same, old[j] + 1, now[j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) now[j] = std::min(now[j], older[j - 2] + 1);
    }
  }
  return std::min(now[b.size()], limit);
}

// The parts of a name that people leave out.
std::string core_of(std::string_view name) {
  name.remove_prefix(name.rfind('/') + 1);
  return lower(name.substr(0, name.find_first_of(":@")));
}

}  // namespace

bool looks_like_path(std::string_view name) {
  for (const std::string_view start : {"/", "./", "../", "~"}) {
    if (name.starts_with(start)) return true;
  }
  return name == "." || name == ".." || name.find('\\') != name.npos ||
         (name.size() >= 2 && name[1] == ':' && is_letter(name[0])) ||
         lower(name).ends_with(".gguf");
}

Only split_prefix(std::string_view* name) {
  for (const auto& [word, only] : {std::pair{std::string_view("hf:"), Only::kHuggingFace},
                                   std::pair{std::string_view("ollama:"), Only::kOllama}}) {
    if (!name->starts_with(word)) continue;
    name->remove_prefix(word.size());
    return only;
  }
  return Only::kAnyPlace;
}

Result<std::string> checked_name(std::string_view name) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t first = name.find_first_not_of(kSpace);
  if (first == name.npos) {
    return fail(ErrorCode::kInvalidArgument,
                "no model was named; give a path or a name (culet list shows what there is)");
  }
  name = name.substr(first, name.find_last_not_of(kSpace) - first + 1);
  if (name.size() > kLongestName || name.find('\0') != name.npos) {
    return fail(ErrorCode::kInvalidArgument,
                "the name of the model is too long or has a zero byte; give a path or a name");
  }
  return std::string(name);
}

Result<ModelRef> find_model(const Places& places, const Catalogue& catalogue,
                            std::string_view name) {
  CULET_TRY(const std::string whole, checked_name(name));
  if (is_file(whole)) return ModelRef{whole, "path", "", "", {}};
  std::string_view rest = whole;
  const Only only = split_prefix(&rest);
  if (only == Only::kAnyPlace && looks_like_path(whole)) return find_path(places, whole);
  Search search(places, catalogue, std::string(rest), only);
  CULET_TRY(std::optional<ModelRef> found, search.in_stores());
  if (!found) {
    CULET_TRY(found, search.in_own());
  }
  if (!found) return tl::unexpected(search.not_found());
  return std::move(*found);
}

Result<std::optional<ModelRef>> find_own_model(const Places& places, const Catalogue& catalogue,
                                               std::string_view name) {
  CULET_TRY(const std::string whole, checked_name(name));
  const std::string path = base::expand_home(places.home, whole);
  if (is_inside(path, places.cache) && path.find("/..") == path.npos && is_file(path)) {
    return std::optional(ModelRef{path, "path", "", "", {}});
  }
  std::string_view rest = whole;
  const Only only = split_prefix(&rest);
  if (only == Only::kAnyPlace && looks_like_path(whole)) return std::nullopt;
  return Search(places, catalogue, std::string(rest), only).in_own();
}

Result<RemovedModel> remove_model(const Places& places, const Catalogue& catalogue,
                                  std::string_view name) {
  auto own = find_own_model(places, catalogue, name);
  if (!own && own.error().code == ErrorCode::kCorrupt) {  // damaged: its file still goes
    if (const CatalogueModel* model = catalogue.find(name)) {
      return remove_own(places, catalogue_path(places, *model));
    }
  }
  if (!own) return tl::unexpected(own.error());
  if (own->has_value()) return remove_own(places, (*own)->path);
  CULET_TRY(const ModelRef other, find_model(places, catalogue, name));
  const bool ollama = is_inside(other.path, places.ollama);
  const bool hub = is_inside(other.path, places.hugging_face);
  return fail(
      ErrorCode::kUnsupported,
      fmt::format(
          "'{}' is not culet's to remove: it is {} ({}); {}", name,
          ollama ? "in the Ollama store" : (hub ? "in the Hugging Face cache" : "a file of yours"),
          other.path,
          ollama ? "run: ollama rm NAME" : (hub ? "run: hf cache delete" : "remove it yourself")));
}

Result<std::string> model_sha256(const Places& places, const ModelRef& model,
                                 const ProgressFn& progress) {
  if (!model.sha256.empty()) return model.sha256;
  if (auto known = known_digest(places, model.path)) return std::move(*known);
  return base::DigestCache(places.cache).compute(model.path, progress);
}

Result<std::vector<FileDigest>> model_digests(const Places& places, const ModelRef& model,
                                              const ProgressFn& progress) {
  const std::vector<std::string> paths = parts_of(model.path);
  if (paths.empty()) {
    return fail(ErrorCode::kUnsupported, fmt::format("{} has too many parts", model.path));
  }
  std::vector<FileDigest> files;
  uint64_t unknown = 0, done = 0;
  for (const std::string& path : paths) {
    FileDigest file{path, file_bytes(path), path == model.path ? model.sha256 : ""};
    if (file.sha256.empty() && is_inside(path, places.hugging_face)) {
      file.sha256 = digest_of_link(path);
    }
    if (file.sha256.empty()) file.sha256 = known_digest(places, path).value_or("");
    if (file.sha256.empty()) unknown += file.bytes;
    files.push_back(std::move(file));
  }
  for (FileDigest& file : files) {
    if (!file.sha256.empty()) continue;
    const auto step = [&](const Progress& p) {
      return !progress || progress({"hashing", done + p.done, unknown, p.item});
    };
    CULET_TRY(file.sha256, base::DigestCache(places.cache).compute(file.path, step));
    done += file.bytes;
  }
  return files;
}

std::string closest(std::string_view name, const std::vector<std::string>& names) {
  const std::string wanted = lower(name), core = core_of(name);
  if (wanted.size() > 200) return "";
  const size_t allowed = 1 + core.size() / 4;  // the distance must be below allowed + 1
  std::string best;
  size_t best_distance = allowed + 1;
  for (const std::string& candidate : names) {
    if (candidate.size() > 300) continue;
    const size_t found = std::min(distance(wanted, lower(candidate), best_distance),
                                  distance(core, core_of(candidate), best_distance));
    if (found >= best_distance) continue;
    best_distance = found;
    best = candidate;
  }
  return best;
}

}  // namespace culet::resolve
