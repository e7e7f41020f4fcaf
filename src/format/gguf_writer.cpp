#include "format/gguf_writer.h"

#include "base/bytes.h"
#include "base/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <type_traits>
#include <utility>

namespace culet::format {
namespace {

constexpr uint32_t kVersion = 3;
constexpr uint64_t kMostAlignment = uint64_t{1} << 31;
constexpr std::string_view kAlignmentKey = "general.alignment";

template <size_t kBytes>
using Unsigned = std::conditional_t<
    kBytes == 1, uint8_t,
    std::conditional_t<kBytes == 2, uint16_t, std::conditional_t<kBytes == 4, uint32_t, uint64_t>>>;

// Little-endian.
template <class T>
void append(std::string* out, T value) {
  const uint64_t bits = std::bit_cast<Unsigned<sizeof(T)>>(value);
  for (size_t i = 0; i < sizeof(T); ++i) out->push_back(char(bits >> 8 * i));
}

void append_string(std::string* out, std::string_view text) {
  append(out, uint64_t(text.size()));
  out->append(text);
}

template <class T>
std::string encoded(MetaType type, T value) {
  std::string out;
  append(&out, uint32_t(type));
  append(&out, value);
  return out;
}

std::string encoded_array(MetaType element, uint64_t count) {
  std::string out;
  append(&out, uint32_t(MetaType::kArray));
  append(&out, uint32_t(element));
  append(&out, count);
  return out;
}

template <class T>
std::string encoded_numbers(MetaType element, std::span<const T> values) {
  std::string out = encoded_array(element, values.size());
  for (const T value : values) append(&out, value);
  return out;
}

uint64_t aligned(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

}  // namespace

// ---------------------------------------------------------------- metadata

void GgufMetadata::put(std::string_view key, std::string encoded) {
  const auto at = std::find_if(entries_.begin(), entries_.end(),
                               [key](const Entry& entry) { return entry.key == key; });
  if (at != entries_.end()) {
    at->encoded = std::move(encoded);
  } else {
    entries_.push_back({std::string(key), std::move(encoded)});
  }
}

void GgufMetadata::remove(std::string_view key) {
  std::erase_if(entries_, [key](const Entry& entry) { return entry.key == key; });
}

void GgufMetadata::set_uint32(std::string_view key, uint32_t value) {
  put(key, encoded(MetaType::kUint32, value));
}

void GgufMetadata::set_int32(std::string_view key, int32_t value) {
  put(key, encoded(MetaType::kInt32, value));
}

void GgufMetadata::set_float32(std::string_view key, float value) {
  put(key, encoded(MetaType::kFloat32, value));
}

void GgufMetadata::set_bool(std::string_view key, bool value) {
  put(key, encoded(MetaType::kBool, uint8_t(value)));
}

void GgufMetadata::set_string(std::string_view key, std::string_view value) {
  std::string out;
  append(&out, uint32_t(MetaType::kString));
  append_string(&out, value);
  put(key, std::move(out));
}

void GgufMetadata::set_int32s(std::string_view key, std::span<const int32_t> values) {
  put(key, encoded_numbers(MetaType::kInt32, values));
}

void GgufMetadata::set_float32s(std::string_view key, std::span<const float> values) {
  put(key, encoded_numbers(MetaType::kFloat32, values));
}

void GgufMetadata::set_bytes(std::string_view key, std::span<const uint8_t> values) {
  put(key, encoded_numbers(MetaType::kUint8, values));
}

void GgufMetadata::set_bools(std::string_view key, const std::vector<bool>& values) {
  std::string out = encoded_array(MetaType::kBool, values.size());
  for (const bool value : values) append(&out, uint8_t(value));
  put(key, std::move(out));
}

void GgufMetadata::set_strings(std::string_view key, std::span<const std::string> values) {
  std::string out = encoded_array(MetaType::kString, values.size());
  for (const std::string& value : values) append_string(&out, value);
  put(key, std::move(out));
}

void GgufMetadata::set(std::string_view key, const MetaValue& value) {
  const std::span<const std::byte> bytes = value.bytes();
  std::string out;
  if (value.is_array()) {
    out = encoded_array(value.element_type(), value.size());
  } else {
    append(&out, uint32_t(value.type()));
    if (value.type() == MetaType::kString) append(&out, uint64_t(bytes.size()));
  }
  out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  put(key, std::move(out));
}

// ---------------------------------------------------------------- the file

namespace {

struct Layout {
  std::vector<uint64_t> sizes, offsets;
  uint64_t data_bytes = 0;  // with the padding behind each
};

Result<Layout> lay_out(std::span<const NewTensor> tensors, uint64_t alignment) {
  Layout out;
  for (const NewTensor& tensor : tensors) {
    const quant::TypeInfo& type = quant::type_info(tensor.type);
    uint64_t bytes = uint64_t(type.block_bytes);
    bool fits = true;
    for (size_t i = 0; i < tensor.dims.size(); ++i) {
      const uint64_t count = i == 0 ? tensor.dims[0] / uint64_t(type.block) : tensor.dims[i];
      fits = fits && base::checked_mul(bytes, count, &bytes);
    }
    uint64_t end = 0;
    fits = fits && base::checked_add(out.data_bytes, bytes, &end) &&
           base::checked_add(end, alignment, &end);
    if (!fits) {
      return fail(ErrorCode::kCorrupt,
                  fmt::format("the byte size of '{}' overflows 64 bits", tensor.name));
    }
    out.sizes.push_back(bytes);
    out.offsets.push_back(out.data_bytes);
    out.data_bytes = aligned(out.data_bytes + bytes, alignment);
  }
  return out;
}

std::string directory(std::span<const NewTensor> tensors, const Layout& layout) {
  std::string out;
  for (size_t i = 0; i < tensors.size(); ++i) {
    append_string(&out, tensors[i].name);
    append(&out, uint32_t(tensors[i].dims.size()));
    for (const uint64_t dim : tensors[i].dims) append(&out, dim);
    append(&out, uint32_t(tensors[i].type));
    append(&out, layout.offsets[i]);
  }
  return out;
}

Result<void> check_space(const std::string& path, uint64_t needed) {
  const std::string folder = base::folder_of(path);
  const auto free = base::free_bytes(folder);
  if (!free || *free >= needed) return {};  // what is wrong with the folder, create() tells
  return fail(ErrorCode::kExhausted,
              fmt::format("'{}' needs {} of disk space in {}, you have {}; make room, or name "
                          "another folder",
                          path, base::in_words(needed), folder, base::in_words(*free)));
}

// The alignment that an entry says; what is none, the reader will refuse.
uint64_t alignment_of(std::string_view encoded) {
  const std::string_view number = encoded.substr(sizeof(uint32_t));
  uint64_t value = 0;
  for (size_t i = 0; i < number.size() && i < sizeof value; ++i) {
    value |= uint64_t(uint8_t(number[i])) << 8 * i;
  }
  return value == 0 || value > kMostAlignment ? kDefaultAlignment : value;
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

Result<GgufWriter> GgufWriter::create(const std::string& path, const GgufMetadata& metadata,
                                      std::span<const NewTensor> tensors) {
  std::string header = "GGUF";
  append(&header, kVersion);
  append(&header, uint64_t(tensors.size()));
  append(&header, uint64_t(metadata.entries_.size()));
  uint64_t alignment = kDefaultAlignment;
  for (const GgufMetadata::Entry& entry : metadata.entries_) {
    append_string(&header, entry.key);
    header += entry.encoded;
    if (entry.key == kAlignmentKey) alignment = alignment_of(entry.encoded);
  }
  CULET_TRY(const Layout layout, lay_out(tensors, alignment));
  header += directory(tensors, layout);
  CULET_TRY([[maybe_unused]] const GgufFile checked, GgufFile::parse(bytes_of(header), path, true));
  header.resize(aligned(header.size(), alignment), '\0');
  const uint64_t file_bytes = header.size() + layout.data_bytes;
  CULET_TRY_VOID(check_space(path, file_bytes));
  CULET_TRY(base::NewFile file, base::NewFile::create(path));
  CULET_TRY_VOID(file.write(bytes_of(header)));
  return GgufWriter(std::move(file), layout.sizes, alignment, file_bytes);
}

GgufWriter::GgufWriter(base::NewFile file, std::vector<uint64_t> sizes, uint64_t alignment,
                       uint64_t file_bytes)
    : file_(std::move(file)),
      sizes_(std::move(sizes)),
      alignment_(alignment),
      file_bytes_(file_bytes) {}

Result<void> GgufWriter::write(std::span<const std::byte> piece) {
  CULET_CHECK(tensor_ < sizes_.size() && piece.size() <= sizes_[tensor_] - written_);
  CULET_TRY_VOID(file_.write(piece));
  written_ += piece.size();
  if (written_ < sizes_[tensor_]) return {};
  ++tensor_;
  written_ = 0;
  return pad();
}

Result<void> GgufWriter::pad() {
  const std::string zeros(aligned(file_.bytes(), alignment_) - file_.bytes(), '\0');
  return file_.write(bytes_of(zeros));
}

Result<void> GgufWriter::finish() {
  CULET_CHECK(tensor_ == sizes_.size() && file_.bytes() == file_bytes_);
  return file_.commit();
}

}  // namespace culet::format
