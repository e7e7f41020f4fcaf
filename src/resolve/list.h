// Every model of every place.
#pragma once

#include "culet/hub.h"
#include "resolve/catalogue.h"
#include "resolve/places.h"

#include <string>
#include <vector>

namespace culet::resolve {

// Opens no model file.
std::vector<std::string> model_names(const Places& places, const Catalogue& catalogue,
                                     std::vector<std::string>* problems);

ModelNames list_model_names(const Places& places, const Catalogue& catalogue);

// Reads the header of every model file.
ModelList list_models(const Places& places, const Catalogue& catalogue);

}  // namespace culet::resolve
