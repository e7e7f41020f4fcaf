// Fetching models: the only code of culet that uses the network.
#pragma once

#include "culet/hub.h"
#include "culet/result.h"
#include "resolve/catalogue.h"
#include "resolve/http.h"
#include "resolve/places.h"

#include <string_view>

namespace culet::resolve {

// See culet::pull_model.
Result<ModelRef> pull_model(const Places& places, const Catalogue& catalogue, std::string_view name,
                            const ProgressFn& progress, const HttpSettings& settings);

}  // namespace culet::resolve
