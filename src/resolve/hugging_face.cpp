// Takes `org/repo[@revision][:quant]`, gives a file of one snapshot. The revision is followed
// through refs/ as the hub's own programs do; only a cache without refs/main is searched by time,
// and the origin then says so.
#include "resolve/hugging_face.h"

#include "base/files.h"
#include "resolve/disk.h"
#include "resolve/gguf_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace culet::resolve {

std::string digest_of_link(const std::string& file) {
  std::error_code error;
  if (!std::filesystem::is_symlink(file, error)) return "";
  const std::filesystem::path target = std::filesystem::canonical(file, error);
  if (error || target.parent_path().filename() != "blobs") return "";
  const std::string name = target.filename().string();
  return is_hex(name, 64) ? name : "";
}

namespace {

constexpr size_t kCommitDigits = 40, kShortestCommit = 7, kShownDigits = 8;

bool is_repo_word(std::string_view word) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !word.empty() && word.size() <= 96 && word[0] != '.' && word[0] != '-' &&
         word.find("--") == word.npos && word.find("..") == word.npos &&
         std::all_of(word.begin(), word.end(), allowed);
}

struct Snapshot {
  std::string folder, commit;
  bool by_time = false;
};

std::vector<std::string> folders_in(const std::string& path, std::vector<std::string>* problems) {
  std::vector<std::string> out;
  for (const DirEntry& entry : list_folder(path, problems)) {
    if (entry.is_folder) out.push_back(entry.name);
  }
  return out;
}

// The snapshot with the newest time; among equals the last by name.
std::optional<std::string> newest(const std::string& snapshots,
                                  const std::vector<std::string>& commits) {
  std::optional<std::string> out;
  int64_t best = 0;
  for (const std::string& commit : commits) {
    const auto id = identity_of(fmt::format("{}/{}", snapshots, commit));
    if (!id || (out && id->mtime_ns < best)) continue;
    best = id->mtime_ns;
    out = commit;
  }
  return out;
}

std::optional<std::string> read_ref(const std::string& path) {
  constexpr uint64_t kMostBytes = 256;
  auto text = base::read_file(path, kMostBytes);
  if (!text) return std::nullopt;
  while (!text->empty() && (text->back() == '\n' || text->back() == '\r' || text->back() == ' ')) {
    text->pop_back();
  }
  return is_hex(*text, kCommitDigits) ? std::optional(*text) : std::nullopt;
}

Result<Snapshot> find_snapshot(const std::string& repo, const std::string& revision,
                               const std::string& what) {
  const std::string wanted = revision.empty() ? "main" : revision;
  const std::string snapshots = repo + "/snapshots";
  const std::string ref = repo + "/refs/" + wanted;
  if (is_file(ref)) {
    const auto commit = read_ref(ref);
    if (!commit || !is_folder(snapshots + "/" + *commit)) {
      return fail(ErrorCode::kCorrupt,
                  fmt::format("{} is in the Hugging Face cache, but {} names no snapshot that is "
                              "there; download it again",
                              what, ref));
    }
    return Snapshot{snapshots + "/" + *commit, *commit};
  }
  std::vector<std::string> commits = folders_in(snapshots, nullptr);
  std::erase_if(commits, [](const std::string& name) { return !is_hex(name, kCommitDigits); });
  if (revision.empty()) {
    if (const auto commit = newest(snapshots, commits)) {
      return Snapshot{snapshots + "/" + *commit, *commit, true};
    }
  } else if (const auto commit = match_commit(commits, revision)) {
    return Snapshot{snapshots + "/" + *commit, *commit};
  }
  return fail(ErrorCode::kNotFound,
              fmt::format("{} is in the Hugging Face cache ({}), but not its revision {}", what,
                          repo, wanted));
}

Result<void> check_parts(const std::string& folder, const std::string& first,
                         const std::string& what) {
  const std::vector<std::string> parts = parts_of(first);
  if (parts.empty()) {
    return fail(ErrorCode::kCorrupt, fmt::format("{}: {} says it has too many parts", what, first));
  }
  for (const std::string& part : parts) {
    if (is_file(fmt::format("{}/{}", folder, part))) continue;
    return fail(ErrorCode::kCorrupt,
                fmt::format("{} is in the Hugging Face cache, but {}/{} is missing or leads "
                            "nowhere; download it again",
                            what, folder, part));
  }
  return {};
}

void collect_gguf(const std::string& root, const std::string& below, int depth,
                  std::vector<std::string>* problems, std::vector<std::string>* out) {
  constexpr int kDeepest = 4;
  for (const DirEntry& entry : list_folder(fmt::format("{}/{}", root, below), problems)) {
    const std::string path = below + entry.name;
    if (entry.is_folder && depth < kDeepest) {
      collect_gguf(root, path + "/", depth + 1, problems, out);
    } else if (!entry.is_folder && lower(entry.name).ends_with(".gguf")) {
      out->push_back(path);  // a dangling link too: it is missed by name
    }
  }
}

// What leads to this file among the others: nothing, its quantization, or its whole name.
std::string quant_for(const std::vector<std::string>& files, const std::string& file) {
  constexpr size_t kMostCompared = 200;  // each against each
  if (files.size() > kMostCompared) return file;
  for (const std::string& quant : {std::string(), quant_in_name(file)}) {
    const auto chosen = choose_gguf(files, quant, "");
    if (chosen && *chosen == file) return quant;
  }
  return file;
}

std::string repo_folder(const Places& places, const HubName& name) {
  return fmt::format("{}/models--{}--{}", places.hugging_face, name.org, name.repo);
}

}  // namespace

std::optional<HubName> parse_hub_name(std::string_view text) {
  HubName name;
  const size_t slash = text.find('/');
  if (slash == text.npos) return std::nullopt;
  name.org = text.substr(0, slash);
  std::string_view rest = text.substr(slash + 1);
  if (const size_t colon = rest.find(':'); colon != rest.npos) {
    name.quant = rest.substr(colon + 1);
    rest = rest.substr(0, colon);
    if (!is_safe_relative(name.quant)) return std::nullopt;
  }
  if (const size_t at = rest.find('@'); at != rest.npos) {
    name.revision = rest.substr(at + 1);
    rest = rest.substr(0, at);
    if (!is_safe_relative(name.revision)) return std::nullopt;
    if (name.revision.find_first_of(" ?#%&\"'<>") != std::string::npos) return std::nullopt;
  }
  name.repo = rest;
  const bool good = is_repo_word(name.org) && is_repo_word(name.repo);
  return good ? std::optional(name) : std::nullopt;
}

std::string to_text(const HubName& name) {
  return fmt::format("{}/{}{}{}{}{}", name.org, name.repo, name.revision.empty() ? "" : "@",
                     name.revision, name.quant.empty() ? "" : ":", name.quant);
}

std::optional<std::string> match_commit(const std::vector<std::string>& commits,
                                        std::string_view text) {
  const std::string wanted = lower(text);
  if (wanted.size() < kShortestCommit) return std::nullopt;
  std::optional<std::string> out;
  for (const std::string& commit : commits) {
    if (!commit.starts_with(wanted)) continue;
    if (out) return std::nullopt;
    out = commit;
  }
  return out;
}

std::vector<std::string> gguf_below(const std::string& folder, std::vector<std::string>* problems) {
  std::vector<std::string> out;
  collect_gguf(folder, "", 0, problems, &out);
  std::sort(out.begin(), out.end());
  return out;
}

Result<std::optional<ModelRef>> find_in_hub(const Places& places, const HubName& name) {
  if (places.hugging_face.empty()) return std::nullopt;
  const std::string repo = repo_folder(places, name);
  if (!is_folder(repo)) return std::nullopt;
  const std::string what = name.org + "/" + name.repo;
  CULET_TRY(const Snapshot snapshot, find_snapshot(repo, name.revision, what));
  const std::vector<std::string> files = gguf_below(snapshot.folder, nullptr);
  CULET_TRY(const std::string file,
            choose_gguf(files, name.quant, what + " in the Hugging Face cache"));
  CULET_TRY_VOID(check_parts(snapshot.folder, file, what));
  ModelRef ref;
  ref.path = snapshot.folder + "/" + file;
  ref.revision = snapshot.commit;
  ref.sha256 = digest_of_link(ref.path);
  ref.origin = fmt::format("hf:{}@{}{}{}", what, snapshot.commit.substr(0, kShownDigits),
                           name.quant.empty() ? "" : ":" + name.quant,
                           snapshot.by_time ? " (the newest snapshot; refs/main is missing)" : "");
  for (const std::string& other : files) {
    if (lower(base_name(other)).find("mmproj") != std::string::npos) {
      ref.notes.push_back(fmt::format("the projector {} is not used", other));
    }
  }
  return std::optional(std::move(ref));
}

std::vector<HubFile> list_hub(const Places& places, std::vector<std::string>* problems) {
  std::vector<HubFile> out;
  if (places.hugging_face.empty()) return out;
  for (const std::string& folder : folders_in(places.hugging_face, problems)) {
    if (!folder.starts_with("models--")) continue;
    const size_t dashes = folder.find("--", 8);
    if (dashes == folder.npos) continue;
    const auto name =
        parse_hub_name(folder.substr(8, dashes - 8) + "/" + folder.substr(dashes + 2));
    if (!name) continue;
    const auto snapshot = find_snapshot(places.hugging_face + "/" + folder, "", to_text(*name));
    if (!snapshot) {
      problems->push_back(snapshot.error().message);
      continue;
    }
    const std::vector<std::string> files = gguf_below(snapshot->folder, problems);
    for (const std::string& file : files) {
      HubFile found{*name, snapshot->folder + "/" + file};
      if (!choose_gguf({file}, "", "")) continue;  // a projector or a later part
      found.name.quant = quant_for(files, file);
      out.push_back(std::move(found));
    }
  }
  return out;
}

}  // namespace culet::resolve
