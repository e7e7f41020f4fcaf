// GGUF reader (versions 2 and 3): header, metadata index and tensor directory over mapped bytes.
// Copies nothing.
//
// Every count, length, offset and product is checked before it is used, so untrusted bytes can only
// be refused; time and memory are bounded by the length of the file. Views (string_view, spans,
// data pointers) live as long as the GgufFile. Format: docs/formats/gguf.md (our subset),
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include "base/mapped_file.h"
#include "culet/result.h"
#include "quant/tensor_type.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace culet::format {

constexpr uint64_t kDefaultAlignment = 32;  // of tensor data, when general.alignment is not there

enum class MetaType : uint32_t {  // ids of the GGUF specification
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
};
// "uint8", "string", ...
std::string_view meta_type_name(MetaType type);

// One metadata value, or one element of an array. Numbers are widened; a getter answers nullopt
// when the value is of another kind (an integer never reads as a string, a string never as a
// number).
class MetaValue {
 public:
  MetaType type() const { return type_; }
  std::optional<int64_t> as_int() const;    // any integer type that fits (bool does not)
  std::optional<double> as_number() const;  // any integer or float type
  std::optional<bool> as_bool() const;
  std::optional<std::string_view> as_string() const;

  bool is_array() const { return type_ == MetaType::kArray; }
  MetaType element_type() const { return element_; }
  uint64_t size() const { return count_; }  // elements of an array, else 0
  MetaValue at(uint64_t i) const;           // element i < size(); O(1), strings included
  // As it lies in the file: a number, the bytes of a string without their length, or the elements
  // of an array with theirs.
  std::span<const std::byte> bytes() const;

 private:
  friend class GgufReader;
  MetaType type_ = MetaType::kUint8;
  MetaType element_ = MetaType::kUint8;
  uint64_t count_ = 0;
  const std::byte* data_ = nullptr;           // scalar bytes, string bytes or first element
  const uint64_t* string_offsets_ = nullptr;  // arrays of strings: offset of each, from data_
  uint64_t length_ = 0;                       // bytes of a string
};

struct MetaEntry {
  std::string_view key;
  MetaValue value;
};

struct TensorInfo {
  std::string_view name;
  quant::TensorType type;
  int n_dims;
  std::array<uint64_t, 4> dims;  // as in the file: dims[0] is the contiguous one; unused are 1
  uint64_t offset;               // from the start of the data section
  uint64_t bytes;
  const std::byte* data;  // nullptr when only the header was given
  uint64_t elements() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
};

class GgufFile {
 public:
  // Maps and checks a file. The error names the file, the place and the rule that is broken.
  // A model split into -00001-of-0000N.gguf and so on is opened by its first part: the metadata is
  // that of the first part, the tensors are those of all. Another part is kInvalidArgument with the
  // first part's name, a part that is not there kNotFound with its name.
  static Result<GgufFile> open(const std::string& path);
  // The same over bytes that outlive the result; `name` is used in messages. With header_only the
  // tensor data may be missing (tests keep headers of big files).
  static Result<GgufFile> parse(std::span<const std::byte> bytes, std::string name,
                                bool header_only = false);

  const std::string& name() const { return name_; }
  uint32_t version() const { return version_; }
  uint64_t file_bytes() const { return file_bytes_; }  // of all parts
  size_t parts() const { return 1 + parts_.size(); }
  std::vector<std::string> paths() const;                              // of all parts, as opened
  std::span<const MetaEntry> metadata() const { return metadata_; }    // in file order
  const MetaValue* find(std::string_view key) const;                   // nullptr: absent
  std::span<const TensorInfo> tensors() const { return tensors_; }     // in file order
  const TensorInfo* tensor(std::string_view name) const;               // nullptr: absent
  std::span<const std::string> warnings() const { return warnings_; }  // odd but harmless
  // Tells the kernel that these bytes of a tensor will not be read again soon.
  void release(std::span<const std::byte> part) const;
  // Tells the kernel that few rows of this tensor will be read at a time.
  void read_sparsely(std::span<const std::byte> part) const;

 private:
  friend class GgufReader;
  static Result<GgufFile> open_part(const std::string& path);
  Result<void> add_parts();
  Result<void> add_part(GgufFile part, uint64_t number, uint64_t count);
  tl::unexpected<Error> bad(ErrorCode code, const std::string& what) const;

  std::string name_;
  uint32_t version_ = 0;
  uint64_t file_bytes_ = 0;
  base::MappedFile mapping_;
  std::vector<MetaEntry> metadata_;
  std::vector<TensorInfo> tensors_;
  std::vector<size_t> key_order_, tensor_order_;  // indices into the two above, sorted by name
  std::vector<std::vector<uint64_t>> string_offsets_;
  std::vector<std::string> warnings_;
  std::vector<GgufFile> parts_;  // the second and later ones; tensors_ has theirs, too
};

}  // namespace culet::format
