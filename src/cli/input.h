// Text that a command works on: an argument, a file, or standard input.
#pragma once

#include "culet/engine.h"
#include "culet/result.h"

#include <string>
#include <vector>

namespace culet::cli {

bool input_is_terminal();
Result<std::string> read_standard_input();
Result<std::string> read_text_file(const std::string& path);  // "-": standard input
// A JSON array of integers.
Result<std::vector<Token>> parse_ids(const std::string& json);

}  // namespace culet::cli
