#include "resolve/disk.h"

#include "base/os_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <sys/stat.h>

namespace culet::resolve {
namespace {

namespace fs = std::filesystem;

}  // namespace

std::vector<DirEntry> list_folder(const std::string& path, std::vector<std::string>* problems,
                                  bool hidden) {
  std::vector<DirEntry> out;
  std::error_code error;
  fs::directory_iterator it(path, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    DirEntry entry{it->path().filename().string()};
    if (!hidden && entry.name.starts_with('.')) continue;
    std::error_code ignored;  // a link that leads nowhere is neither
    entry.is_folder = it->is_directory(ignored);
    entry.is_file = it->is_regular_file(ignored);
    out.push_back(std::move(entry));
  }
  if (error && problems && error != std::errc::no_such_file_or_directory) {
    problems->push_back(fmt::format("cannot read {}: {}", path, error.message()));
  }
  std::sort(out.begin(), out.end(),
            [](const DirEntry& a, const DirEntry& b) { return a.name < b.name; });
  return out;
}

bool is_file(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

bool is_folder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

uint64_t file_bytes(const std::string& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) ? uint64_t(info.st_size) : 0;
}

Result<void> make_folders(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return tl::unexpected(base::os_error("create", path, error.value()));
  return {};
}

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = char(c - 'A' + 'a');
  }
  return out;
}

bool is_safe_relative(std::string_view path) {
  constexpr size_t kLongestComponent = 200, kLongestPath = 1000;
  if (path.size() > kLongestPath) return false;
  for (size_t start = 0; start <= path.size();) {
    const size_t end = std::min(path.find('/', start), path.size());
    const std::string_view part = path.substr(start, end - start);
    if (part.empty() || part == "." || part == ".." || part.size() > kLongestComponent) {
      return false;
    }
    start = end + 1;
  }
  return std::all_of(path.begin(), path.end(),
                     [](char c) { return c >= ' ' && c <= '~' && c != '\\' && c != ':'; });
}

}  // namespace culet::resolve
