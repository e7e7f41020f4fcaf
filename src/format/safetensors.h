// Safetensors reader: the header of one file over mapped bytes. Copies names and shapes, no data.
//
// A file is u64 length of the header, the header (JSON: name -> dtype, shape, data_offsets), then
// the data. Every length, offset and product is checked before it is used, so untrusted bytes can
// only be refused. Data pointers live as long as the file. Format:
// https://github.com/huggingface/safetensors#format
#pragma once

#include "base/mapped_file.h"
#include "culet/result.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace culet::format {

struct SafeTensor {
  std::string name;
  std::string_view dtype;       // "F32", "BF16", ... as the format spells it
  std::vector<uint64_t> shape;  // outermost first; may be empty (a number alone)
  const std::byte* data;        // little-endian, the last dimension contiguous
  uint64_t bytes;
  uint64_t elements() const;
};

class SafetensorsFile {
 public:
  // Maps and checks a file. kCorrupt: the message names the file and the rule that is broken;
  // kUnsupported: a dtype that the format did not have when this was written.
  static Result<SafetensorsFile> open(const std::string& path);
  // The same over bytes that outlive the result; `name` is used in messages.
  static Result<SafetensorsFile> parse(std::span<const std::byte> bytes, std::string name);

  const std::string& name() const { return name_; }
  std::span<const SafeTensor> tensors() const { return tensors_; }  // by name
  const SafeTensor* tensor(std::string_view name) const;            // nullptr: absent
  // Tells the kernel that these bytes will not be read again soon.
  void release(std::span<const std::byte> part) const { mapping_.release(part); }

 private:
  std::string name_;
  base::MappedFile mapping_;
  std::vector<SafeTensor> tensors_;
};

}  // namespace culet::format
