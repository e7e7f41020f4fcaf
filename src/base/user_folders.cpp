// scripts/fetch_model has the same rule for culet's cache.
#include "base/user_folders.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace culet::base {

Variables environment() {
  return [](const char* name) {
    const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): we never set any
    return std::string(value ? value : "");
  };
}

std::string expand_home(const std::string& home, const std::string& path) {
  if (home.empty() || path.empty() || path[0] != '~') return path;
  if (path.size() > 1 && path[1] != '/') return path;
  return home + path.substr(1);
}

std::string settled(const std::string& home, const std::string& path) {
  if (path.empty()) return path;
  std::error_code error;
  std::string out = std::filesystem::absolute(expand_home(home, path), error).string();
  if (error) out = path;
  while (out.size() > 1 && out.back() == '/') out.pop_back();
  return out;
}

std::string caches_folder(const Variables& variables) {
  const std::string named = variables("XDG_CACHE_HOME"), home = variables("HOME");
  return !named.empty() ? named : home.empty() ? "" : home + "/.cache";
}

std::string culet_cache(const Variables& variables) {
  std::string folder = variables("CULET_CACHE");
  if (folder.empty() && !caches_folder(variables).empty()) {
    folder = caches_folder(variables) + "/culet/models";
  }
  return settled(variables("HOME"), folder);
}

}  // namespace culet::base
