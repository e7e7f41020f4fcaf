// The notes beside files of the folder are scripts/fetch_model's, member for member: {"sha256",
// "inode", "bytes", "mtime_ns"}. Notes about files of other folders also have the path and the
// device, because one folder holds them all.
#include "base/digest_cache.h"

#include "base/files.h"
#include "base/json.h"
#include "base/new_file.h"
#include "base/os_error.h"
#include "base/sha256.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <span>
#include <sys/stat.h>
#include <system_error>
#include <utility>

namespace culet::base {
namespace {

using NoteJson = nlohmann::ordered_json;

constexpr uint64_t kNoteBytes = 64 << 10;
constexpr size_t kSumDigits = 64;

std::string real_path(const std::string& path) {
  std::error_code error;
  const auto real = std::filesystem::canonical(path, error);
  return error ? path : real.string();
}

// `real`: the path of a file of another folder, "" = the note stands beside the file.
NoteJson note_of(const FileIdentity& id, const std::string& real, const std::string& sha256) {
  NoteJson note = {
      {"sha256", sha256}, {"inode", id.inode}, {"bytes", id.bytes}, {"mtime_ns", id.mtime_ns}};
  if (!real.empty()) {
    note["device"] = id.device;
    note["path"] = real;
  }
  return note;
}

}  // namespace

Result<FileIdentity> identity_of(const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) return tl::unexpected(os_error("read", path, errno));
  constexpr int64_t kSecond = 1'000'000'000;
  return FileIdentity{uint64_t(info.st_dev), uint64_t(info.st_ino), uint64_t(info.st_size),
                      int64_t(info.st_mtim.tv_sec) * kSecond + int64_t(info.st_mtim.tv_nsec)};
}

std::string beside(const std::string& path, std::string_view what) {
  return fmt::format("{}/.{}.{}", folder_of(path), path.substr(path.rfind('/') + 1), what);
}

bool is_inside(const std::string& path, const std::string& folder) {
  return !folder.empty() && path.size() > folder.size() && path.starts_with(folder) &&
         path[folder.size()] == '/';
}

bool is_hex(std::string_view text, size_t digits) {
  return text.size() == digits && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

bool DigestCache::holds(const std::string& path) const { return is_inside(path, folder_); }

std::string DigestCache::note_path(const std::string& path) const {
  if (holds(path)) return beside(path, "verified");
  const std::string real = real_path(path);
  const std::string id = sha256_hex(std::as_bytes(std::span(real)));
  return fmt::format("{}/.digests/{}", folder_, id.substr(0, 32));
}

std::optional<std::string> DigestCache::known(const std::string& path) const {
  if (folder_.empty()) return std::nullopt;
  const auto id = identity_of(path);
  const auto text = read_file(note_path(path), kNoteBytes);
  if (!id || !text) return std::nullopt;
  constexpr int kDepth = 2;
  const auto note = parse_json(*text, kDepth, kNoteBytes);
  if (!note || !note->is_object()) return std::nullopt;
  const auto sum = note->find("sha256");
  if (sum == note->end() || !sum->is_string()) return std::nullopt;
  auto sha256 = sum->get<std::string>();
  const NoteJson expected = note_of(*id, holds(path) ? "" : real_path(path), sha256);
  const bool same =
      std::all_of(expected.items().begin(), expected.items().end(), [&note](const auto& item) {
        const auto found = note->find(item.key());
        return found != note->end() && *found == item.value();
      });
  return same && is_hex(sha256, kSumDigits) ? std::optional(std::move(sha256)) : std::nullopt;
}

void DigestCache::remember(const std::string& path, const std::string& sha256) const {
  const auto id = identity_of(path);
  if (!id || folder_.empty()) return;
  if (!holds(path)) {
    std::error_code error;
    std::filesystem::create_directories(folder_ + "/.digests", error);
    if (error) return;  // computed again next time
  }
  const NoteJson note = note_of(*id, holds(path) ? "" : real_path(path), sha256);
  if (!write_whole(note_path(path), dump_json(note) + "\n")) return;
}

Result<std::string> DigestCache::compute(const std::string& path,
                                         const ProgressFn& progress) const {
  CULET_TRY(const FileIdentity before, identity_of(path));
  const auto report = [&](uint64_t done, uint64_t total) {
    return !progress || progress({"hashing", done, total, path});
  };
  CULET_TRY(std::string sha256, sha256_file(path, report));
  const auto after = identity_of(path);
  if (after && *after == before) remember(path, sha256);
  return sha256;
}

Result<std::vector<std::string>> DigestCache::sums(const std::vector<std::string>& paths,
                                                   const ProgressFn& progress) const {
  std::vector<std::string> sums;
  uint64_t unknown = 0, done = 0;
  for (const std::string& path : paths) {
    sums.push_back(known(path).value_or(""));
    const auto id = identity_of(path);
    if (sums.back().empty() && id) unknown += id->bytes;
  }
  for (size_t i = 0; i < paths.size(); ++i) {
    if (!sums[i].empty()) continue;
    uint64_t bytes = 0;
    const auto step = [&](const Progress& here) {
      bytes = here.done;
      return !progress || progress({"hashing", done + here.done, unknown, here.item});
    };
    CULET_TRY(sums[i], compute(paths[i], step));
    done += bytes;
  }
  return sums;
}

}  // namespace culet::base
