// The public calls of include/culet/hub.h: the environment of this moment, then the layer.
#include "culet/hub.h"
#include "resolve/catalogue.h"
#include "resolve/list.h"
#include "resolve/name.h"
#include "resolve/own_cache.h"
#include "resolve/places.h"
#include "resolve/pull.h"

#include <fmt/format.h>

#include <cstdlib>

namespace culet {

Result<ModelRef> find_model(std::string_view name) {
  return resolve::find_model(resolve::places_from_environment(), resolve::builtin_catalogue(),
                             name);
}

Result<std::string> model_sha256(const ModelRef& model, const ProgressFn& progress) {
  return resolve::model_sha256(resolve::places_from_environment(), model, progress);
}

Result<std::vector<FileDigest>> model_digests(const ModelRef& model, const ProgressFn& progress) {
  return resolve::model_digests(resolve::places_from_environment(), model, progress);
}

ModelList list_models() {
  return resolve::list_models(resolve::places_from_environment(), resolve::builtin_catalogue());
}

ModelNames list_model_names() {
  return resolve::list_model_names(resolve::places_from_environment(),
                                   resolve::builtin_catalogue());
}

Result<RemovedModel> remove_model(std::string_view name) {
  return resolve::remove_model(resolve::places_from_environment(), resolve::builtin_catalogue(),
                               name);
}

Result<ModelRef> pull_model(std::string_view name, const ProgressFn& progress) {
  resolve::HttpSettings settings;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): culet never sets variables
  if (const char* file = std::getenv("SSL_CERT_FILE")) settings.ca_file = file;
  return resolve::pull_model(resolve::places_from_environment(), resolve::builtin_catalogue(), name,
                             progress, settings);
}

}  // namespace culet
