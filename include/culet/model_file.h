// What is in a GGUF file, whether it can be run or not: for listing, not for computing.
//
// Threads: any number may call these functions.
#pragma once

#include "culet/result.h"

#include <cstdint>
#include <string>
#include <vector>

namespace culet {

struct MetadataEntry {
  std::string key, type;  // type: "uint32", "string", "array of string"
  // A number, true or false, or the string itself. Of an array the first elements, and "..." if
  // there are more.
  std::string value;
  uint64_t size = 0;  // elements of an array; of others 0
};

struct TensorEntry {
  std::string name, type;         // "Q4_K"
  std::vector<uint64_t> shape{};  // as in the file: the first number is the contiguous one
  uint64_t bytes = 0;
};

struct ModelFile {
  std::string path, architecture, name;  // "": the file does not say
  uint64_t bytes = 0;                    // of all parts of a split model
  uint64_t parameters = 0;               // numbers in all tensors
  std::vector<MetadataEntry> metadata;   // in the order of the file
  std::vector<TensorEntry> tensors;      // likewise
};

// Reads the header of the file at `path` (the first part of a split model). Errors: kNotFound, kIo,
// kCorrupt (no GGUF file, or a damaged one), kInvalidArgument (a later part).
Result<ModelFile> read_model_file(const std::string& path);

}  // namespace culet
