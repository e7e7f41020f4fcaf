// Errors of the operating system in our words.
#pragma once

#include "culet/result.h"

#include <string>

namespace culet::base {

// "cannot <verb> <path>: <reason>": kNotFound where nothing is there, kExhausted for memory, else
// kIo.
Error os_error(const char* verb, const std::string& path, int error_number);

}  // namespace culet::base
