// Takes mapped bytes, gives tensors that point into them. The header is JSON of bounded length and
// depth. The format's rule is that tensors cover the data whole, without gaps; that, and that each
// has as many bytes as its shape says, is checked.
#include "format/safetensors.h"

#include "base/bytes.h"
#include "base/json.h"
#include "base/utf8.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>

namespace culet::format {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMostHeaderBytes = 100'000'000;  // the limit of the format's own reader
constexpr int kHeaderDepth = 4;
constexpr size_t kMostDims = 8;
constexpr std::string_view kMetadata = "__metadata__";

struct Dtype {
  std::string_view name;
  uint64_t bits;
};
constexpr Dtype kDtypes[] = {
    {"F64", 64}, {"F32", 32},    {"F16", 16}, {"BF16", 16},   {"I64", 64},
    {"I32", 32}, {"I16", 16},    {"I8", 8},   {"U64", 64},    {"U32", 32},
    {"U16", 16}, {"U8", 8},      {"BOOL", 8}, {"F8_E4M3", 8}, {"F8_E5M2", 8},
    {"C64", 64}, {"F8_E8M0", 8}, {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6},
};

const Dtype* find_dtype(std::string_view name) {
  const auto at = std::find_if(std::begin(kDtypes), std::end(kDtypes),
                               [name](const Dtype& d) { return d.name == name; });
  return at == std::end(kDtypes) ? nullptr : at;
}

class Reader {
 public:
  Reader(std::span<const std::byte> bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  Result<std::vector<SafeTensor>> read() {
    CULET_TRY(const Json header, read_header());
    std::vector<SafeTensor> tensors;
    for (const auto& [name, entry] : header.items()) {
      if (name == kMetadata) continue;
      CULET_TRY(tensors.emplace_back(), read_tensor(name, entry));
    }
    CULET_TRY_VOID(check_cover(tensors));
    std::sort(tensors.begin(), tensors.end(),
              [](const SafeTensor& a, const SafeTensor& b) { return a.name < b.name; });
    return tensors;
  }

 private:
  template <class... Args>
  tl::unexpected<Error> corrupt(fmt::format_string<Args...> format, Args&&... args) const {
    return fail(ErrorCode::kCorrupt,
                name_ + ": " + fmt::format(format, std::forward<Args>(args)...));
  }

  Result<Json> read_header();
  Result<SafeTensor> read_tensor(const std::string& name, const Json& entry) const;
  Result<std::vector<uint64_t>> numbers(const std::string& name, const Json& entry,
                                        const char* member) const;
  Result<void> check_cover(const std::vector<SafeTensor>& tensors) const;

  std::span<const std::byte> bytes_, data_;
  const std::string& name_;
};

Result<Json> Reader::read_header() {
  base::Cursor cursor(bytes_);
  uint64_t length = 0;
  std::span<const std::byte> text;
  if (!cursor.read(&length) || length > kMostHeaderBytes || !cursor.take(length, &text)) {
    return corrupt(
        "this is no safetensors file, or it is cut: its first 8 bytes say that the "
        "header has {} bytes, the file has {}; fetch it again",
        length, bytes_.size());
  }
  data_ = bytes_.subspan(cursor.position());
  auto header = base::parse_json({reinterpret_cast<const char*>(text.data()), text.size()},
                                 kHeaderDepth, kMostHeaderBytes);
  if (!header) return corrupt("its header is no JSON: {}", header.error().message);
  if (!header->is_object()) return corrupt("its header is no JSON object");
  return header;
}

Result<std::vector<uint64_t>> Reader::numbers(const std::string& name, const Json& entry,
                                              const char* member) const {
  const auto at = entry.find(member);
  if (at == entry.end() || !at->is_array())
    return corrupt("'{}' has no {}", base::utf8_shown(name), member);
  std::vector<uint64_t> out;
  for (const Json& number : *at) {
    if (!number.is_number_unsigned()) {
      return corrupt("the {} of '{}' has something that is no number", member,
                     base::utf8_shown(name));
    }
    out.push_back(number.get<uint64_t>());
  }
  return out;
}

Result<SafeTensor> Reader::read_tensor(const std::string& name, const Json& entry) const {
  if (!entry.is_object()) return corrupt("'{}' is no tensor", base::utf8_shown(name));
  const auto type = entry.find("dtype");
  if (type == entry.end() || !type->is_string())
    return corrupt("'{}' has no dtype", base::utf8_shown(name));
  const auto& type_name = type->get_ref<const std::string&>();
  const Dtype* dtype = find_dtype(type_name);
  if (dtype == nullptr) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: '{}' has the unknown dtype '{}'", name_, base::utf8_shown(name),
                            base::utf8_shown(type_name)));
  }
  CULET_TRY(std::vector<uint64_t> shape, numbers(name, entry, "shape"));
  CULET_TRY(const std::vector<uint64_t> offsets, numbers(name, entry, "data_offsets"));
  if (shape.size() > kMostDims) {
    return corrupt("'{}' has {} dimensions; at most {} are read", base::utf8_shown(name),
                   shape.size(), kMostDims);
  }
  uint64_t bits = dtype->bits;
  for (const uint64_t dim : shape) {
    if (!base::checked_mul(bits, dim, &bits)) {
      return corrupt("the size of '{}' overflows 64 bits", base::utf8_shown(name));
    }
  }
  if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > data_.size()) {
    return corrupt(
        "the data of '{}' does not lie inside the file, which has {} bytes behind its "
        "header; fetch it again",
        base::utf8_shown(name), data_.size());
  }
  const uint64_t bytes = offsets[1] - offsets[0];
  if (bits % 8 != 0 || bits / 8 != bytes) {
    return corrupt("'{}' has {} bytes, but its shape and dtype make {}", base::utf8_shown(name),
                   bytes, bits / 8);
  }
  return SafeTensor{name, dtype->name, std::move(shape), data_.data() + offsets[0], bytes};
}

Result<void> Reader::check_cover(const std::vector<SafeTensor>& tensors) const {
  std::vector<const SafeTensor*> order;
  for (const SafeTensor& tensor : tensors) {
    if (tensor.bytes > 0) order.push_back(&tensor);
  }
  std::sort(order.begin(), order.end(),
            [](const SafeTensor* a, const SafeTensor* b) { return a->data < b->data; });
  uint64_t covered = 0;
  for (const SafeTensor* tensor : order) {
    const auto at = uint64_t(tensor->data - data_.data());
    if (at < covered) {
      return corrupt("the data of '{}' overlaps that of another tensor",
                     base::utf8_shown(tensor->name));
    }
    if (at > covered) {
      return corrupt("{} bytes in front of the data of '{}' belong to no tensor; fetch it again",
                     at - covered, base::utf8_shown(tensor->name));
    }
    covered += tensor->bytes;
  }
  if (covered == data_.size()) return {};
  return corrupt("{} bytes at its end belong to no tensor; fetch it again", data_.size() - covered);
}

}  // namespace

uint64_t SafeTensor::elements() const {
  uint64_t count = 1;
  for (const uint64_t dim : shape) count *= dim;
  return count;
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  CULET_TRY(base::MappedFile mapping, base::MappedFile::open(path));
  CULET_TRY(SafetensorsFile file, parse(mapping.bytes(), path));
  file.mapping_ = std::move(mapping);
  return file;
}

Result<SafetensorsFile> SafetensorsFile::parse(std::span<const std::byte> bytes, std::string name) {
  SafetensorsFile file;
  file.name_ = std::move(name);
  CULET_TRY(file.tensors_, Reader(bytes, file.name_).read());
  return file;
}

const SafeTensor* SafetensorsFile::tensor(std::string_view name) const {
  const auto at =
      std::lower_bound(tensors_.begin(), tensors_.end(), name,
                       [](const SafeTensor& t, std::string_view n) { return t.name < n; });
  return at != tensors_.end() && at->name == name ? &*at : nullptr;
}

}  // namespace culet::format
