// The id of a token: an index into the model's vocabulary.
#pragma once

#include <cstdint>

namespace culet {

using Token = int32_t;

}  // namespace culet
