// Takes /proc/meminfo and the memory files of the control groups; gives one number. A file that is
// not there or says "max" sets no limit. Groups are asked from the process's own up to the root; a
// path that is not visible (a container's view) is skipped, its root is there all the same.
#include "base/memory.h"

#include "base/files.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

namespace culet::base {
namespace {

constexpr uint64_t kFileLimit = 1 << 20;
constexpr uint64_t kUnknown = UINT64_MAX;

std::string read(const std::string& path) {
  return read_file(path, kFileLimit).value_or(std::string());
}

std::optional<uint64_t> number(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t:"), text.size()));
  uint64_t value = 0;
  const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || at == text.data()) return std::nullopt;
  return value;
}

// The number behind `key` at the beginning of a line.
std::optional<uint64_t> field(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.starts_with(key)) return number(line.substr(key.size()));
  }
  return std::nullopt;
}

struct GroupFiles {
  const char *limit, *used, *cache;  // cache: the line of memory.stat
};
constexpr GroupFiles kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes",
                               "total_inactive_file"};
constexpr GroupFiles kVersion2{"memory.max", "memory.current", "inactive_file"};

uint64_t left_in_group(const std::string& folder, const GroupFiles& files) {
  const auto limit = number(read(folder + "/" + files.limit));
  const auto used = number(read(folder + "/" + files.used));
  if (!limit || !used) return kUnknown;
  const uint64_t cache = field(read(folder + "/memory.stat"), files.cache).value_or(0);
  const uint64_t held = *used - std::min(cache, *used);
  return *limit - std::min(held, *limit);
}

uint64_t left_in_groups(const std::string& mount, std::string path, const GroupFiles& files) {
  uint64_t left = left_in_group(mount, files);
  while (path.size() > 1) {
    left = std::min(left, left_in_group(mount + path, files));
    path.resize(path.rfind('/'));
  }
  return left;
}

}  // namespace

uint64_t available_memory(const std::string& root) {
  const auto kib = field(read(root + "/proc/meminfo"), "MemAvailable");
  uint64_t left = kib ? *kib * 1024 : kUnknown;
  const std::string groups = read(root + "/proc/self/cgroup");
  std::string_view text = groups;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) continue;
    const std::string controllers =
        "," + std::string(line.substr(first + 1, second - first - 1)) + ",";
    const std::string path(line.substr(second + 1));
    if (!path.starts_with('/')) continue;
    if (controllers == ",,") {
      left = std::min(left, left_in_groups(root + "/sys/fs/cgroup", path, kVersion2));
    } else if (controllers.find(",memory,") != std::string::npos) {
      left = std::min(left, left_in_groups(root + "/sys/fs/cgroup/memory", path, kVersion1));
    }
  }
  return left;
}

}  // namespace culet::base
