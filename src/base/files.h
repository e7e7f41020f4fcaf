// Small whole files: settings, templates, architecture files. Weights are mapped (mapped_file.h).
#pragma once

#include "culet/result.h"

#include <cstdint>
#include <string>

namespace culet::base {

constexpr uint64_t kReadFileLimit = uint64_t{64} << 20;

// The bytes of a file or pipe, at most max_bytes of them: a longer one is refused (kExhausted).
Result<std::string> read_file(const std::string& path, uint64_t max_bytes = kReadFileLimit);

}  // namespace culet::base
