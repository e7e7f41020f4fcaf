// What culet quantize and culet convert print of the file that they wrote.
#pragma once

#include "culet/convert.h"

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace culet::cli {

nlohmann::ordered_json written_json(const WrittenModel& written);
std::string written_text(const WrittenModel& written);  // lines

}  // namespace culet::cli
