// The manual page culet(1), in roff, made of the table of commands.
#pragma once

#include "cli/reference.h"

#include <string>
#include <string_view>

namespace culet::cli {

// `date` is printed at the foot: "2026-01-31".
std::string manual_page(const CommandEntry& culet, std::string_view version, std::string_view date);

}  // namespace culet::cli
