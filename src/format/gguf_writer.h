// GGUF writer (version 3): metadata and directory at once, then the tensors' data as they come.
//
// What it writes, GgufFile::parse() takes: the header is read back by the reader's own rules before
// the first byte goes to the disk, so names, shapes and alignments that break them are refused here
// as they would be there. The file has its name only when it is whole (base/new_file.h).
#pragma once

#include "base/new_file.h"
#include "culet/result.h"
#include "format/gguf.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace culet::format {

// Metadata in the order in which keys are first set. A key that is set again keeps its place.
class GgufMetadata {
 public:
  void set_uint32(std::string_view key, uint32_t value);
  void set_int32(std::string_view key, int32_t value);
  void set_float32(std::string_view key, float value);
  void set_bool(std::string_view key, bool value);
  void set_string(std::string_view key, std::string_view value);
  void set_int32s(std::string_view key, std::span<const int32_t> values);
  void set_float32s(std::string_view key, std::span<const float> values);
  void set_bools(std::string_view key, const std::vector<bool>& values);
  void set_bytes(std::string_view key, std::span<const uint8_t> values);  // an array of uint8
  void set_strings(std::string_view key, std::span<const std::string> values);
  void set(std::string_view key, const MetaValue& value);  // a value of another file, bit for bit
  void remove(std::string_view key);

 private:
  friend class GgufWriter;
  struct Entry {
    std::string key, encoded;  // encoded: value type and value as in the file
  };
  void put(std::string_view key, std::string encoded);

  std::vector<Entry> entries_;
};

struct NewTensor {
  std::string name;
  quant::TensorType type;
  std::vector<uint64_t> dims;  // 1 to 4; dims[0] is the contiguous one, a multiple of the block
};

// Belongs to one thread.
class GgufWriter {
 public:
  // Begins the file. Errors: kCorrupt for what the reader would refuse, kExhausted where the folder
  // has no room for the whole, those of the system.
  static Result<GgufWriter> create(const std::string& path, const GgufMetadata& metadata,
                                   std::span<const NewTensor> tensors);

  uint64_t file_bytes() const { return file_bytes_; }  // of the finished file
  // The next bytes of the data: tensors in order, each in as many pieces as it takes. Padding comes
  // by itself. A piece never reaches into the next tensor.
  Result<void> write(std::span<const std::byte> piece);
  // Everything was written: the file gets its name.
  Result<void> finish();

 private:
  GgufWriter(base::NewFile file, std::vector<uint64_t> sizes, uint64_t alignment,
             uint64_t file_bytes);
  Result<void> pad();

  base::NewFile file_;
  std::vector<uint64_t> sizes_;  // bytes of each tensor
  uint64_t alignment_, file_bytes_;
  size_t tensor_ = 0;     // the one being written
  uint64_t written_ = 0;  // of it
};

}  // namespace culet::format
