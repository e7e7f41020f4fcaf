// What every file that is made here has in common.
#pragma once

#include "culet/convert.h"
#include "culet/result.h"
#include "format/gguf_writer.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace culet::convert {

// kInvalidArgument: `out` is one of the files that are read.
Result<void> check_not_a_source(const std::string& out, const std::vector<std::string>& sources,
                                const std::string& folder = "");

// general.file_type, and the version of the block formats.
void set_file_type(format::GgufMetadata* metadata, uint32_t file_type);

// Sizes and types of a file that has these tensors.
void describe(std::span<const format::NewTensor> tensors, WrittenModel* written);

}  // namespace culet::convert
