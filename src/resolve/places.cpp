// The rules of the programs that own the stores: docs/models.md lists them with their sources.
#include "resolve/places.h"

#include "resolve/disk.h"

#include <algorithm>
#include <iterator>

namespace culet::resolve {
namespace {

std::string join(const std::string& folder, const char* rest) {
  return folder.empty() ? "" : folder + "/" + rest;
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

Places places_from(const base::Variables& variables) {
  Places places;
  places.home = variables("HOME");
  const std::string caches = base::caches_folder(variables);
  const auto settled = [&places](const std::string& path) {
    return base::settled(places.home, path);
  };
  const std::string hf_home = or_else(variables("HF_HOME"), join(caches, "huggingface"));
  const std::string hub = or_else(variables("HF_HUB_CACHE"), variables("HUGGINGFACE_HUB_CACHE"));
  places.ollama = settled(or_else(variables("OLLAMA_MODELS"), join(places.home, ".ollama/models")));
  places.hugging_face = settled(or_else(hub, join(hf_home, "hub")));
  places.cache = base::culet_cache(variables);
  places.hf_endpoint = without_slash(or_else(variables("HF_ENDPOINT"), "https://huggingface.co"));
  if (!is_true(variables("HF_HUB_DISABLE_IMPLICIT_TOKEN"))) {
    places.hf_token = variables("HF_TOKEN");
    places.hf_token_path = settled(or_else(variables("HF_TOKEN_PATH"), join(hf_home, "token")));
  }
  places.ollama_registry =
      without_slash(or_else(variables("CULET_OLLAMA_REGISTRY"), "https://registry.ollama.ai"));
  places.pypi_index = without_slash(or_else(variables("PIP_INDEX_URL"), "https://pypi.org/simple"));
  return places;
}

Places places_from_environment() { return places_from(base::environment()); }

}  // namespace culet::resolve
