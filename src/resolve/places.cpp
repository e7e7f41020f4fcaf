// The rules of the programs that own the stores: docs/models.md lists them with their sources.
// scripts/fetch_model has the same rule for culet's own folder.
#include "resolve/places.h"

#include "resolve/disk.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>

namespace culet::resolve {
namespace {

std::string join(const std::string& folder, const char* rest) {
  return folder.empty() ? "" : folder + "/" + rest;
}

// A path without "~", not depending on the working folder, without a slash at its end.
std::string settled(const Places& places, const std::string& path) {
  if (path.empty()) return path;
  std::error_code error;
  std::string out = std::filesystem::absolute(expand_home(places, path), error).string();
  if (error) out = path;
  while (out.size() > 1 && out.back() == '/') out.pop_back();
  return out;
}

std::string without_slash(std::string url) {
  while (!url.empty() && url.back() == '/') url.pop_back();
  return url;
}

bool is_true(const std::string& value) {
  constexpr const char* kTrue[] = {"1", "on", "yes", "true"};
  return std::any_of(std::begin(kTrue), std::end(kTrue),
                     [&](const char* word) { return lower(value) == word; });
}

std::string or_else(const std::string& value, const std::string& other) {
  return value.empty() ? other : value;
}

}  // namespace

Places places_from(const Variables& variables) {
  Places places;
  places.home = variables("HOME");
  const std::string caches = or_else(variables("XDG_CACHE_HOME"), join(places.home, ".cache"));
  const std::string hf_home = or_else(variables("HF_HOME"), join(caches, "huggingface"));
  const std::string hub = or_else(variables("HF_HUB_CACHE"), variables("HUGGINGFACE_HUB_CACHE"));
  places.ollama =
      settled(places, or_else(variables("OLLAMA_MODELS"), join(places.home, ".ollama/models")));
  places.hugging_face = settled(places, or_else(hub, join(hf_home, "hub")));
  places.cache = settled(places, or_else(variables("CULET_CACHE"), join(caches, "culet/models")));
  places.hf_endpoint = without_slash(or_else(variables("HF_ENDPOINT"), "https://huggingface.co"));
  if (!is_true(variables("HF_HUB_DISABLE_IMPLICIT_TOKEN"))) {
    places.hf_token = variables("HF_TOKEN");
    places.hf_token_path =
        settled(places, or_else(variables("HF_TOKEN_PATH"), join(hf_home, "token")));
  }
  places.ollama_registry =
      without_slash(or_else(variables("CULET_OLLAMA_REGISTRY"), "https://registry.ollama.ai"));
  places.pypi_index = without_slash(or_else(variables("PIP_INDEX_URL"), "https://pypi.org/simple"));
  return places;
}

Places places_from_environment() {
  return places_from([](const char* name) {
    const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): we never set any
    return std::string(value ? value : "");
  });
}

std::string expand_home(const Places& places, const std::string& path) {
  if (places.home.empty() || path.empty() || path[0] != '~') return path;
  if (path.size() > 1 && path[1] != '/') return path;
  return places.home + path.substr(1);
}

}  // namespace culet::resolve
