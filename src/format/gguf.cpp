// Takes mapped bytes, gives an index into them: metadata entries and tensor records that point into
// the file. One pass with a bounded cursor; nothing is read before it is known to be there, nothing
// is reserved for a count that the file only claims, and strings are never copied.
//
// A file is refused, never repaired: a wrong length somewhere means that everything after it may be
// wrong too. Names are looked up by binary search in sorted index lists, because a hash table with
// a known seed can be made quadratic by chosen names; duplicates fall out of the same sort.
// What the entries mean (architecture, vocabulary, shapes) is the model loader's business.
#include "format/gguf.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/utf8.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace culet::format {
namespace {

constexpr int64_t kMostParts = 99999;  // five digits of a name
constexpr uint64_t kMaxKeyBytes = 65535;
constexpr uint64_t kMaxTensorNameBytes = 64;
constexpr uint64_t kMinEntryBytes = 8 + 1 + 4 + 1;           // key, type, value
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;  // name, dims, type, offset

// By MetaType; strings and arrays have no fixed size.
constexpr uint64_t kScalarBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
constexpr std::string_view kMetaTypeNames[] = {"uint8",  "int8",    "uint16", "int16",  "uint32",
                                               "int32",  "float32", "bool",   "string", "array",
                                               "uint64", "int64",   "float64"};
constexpr uint32_t kMetaTypes = std::size(kScalarBytes);
static_assert(std::size(kMetaTypeNames) == kMetaTypes);

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool align_up(uint64_t value, uint64_t alignment, uint64_t* out) {
  if (!base::checked_add(value, alignment - 1, out)) return false;
  *out &= ~(alignment - 1);
  return true;
}

// Indices of the items in the order of their names.
template <class Items, class Name>
std::vector<size_t> order_by_name(const Items& items, Name name) {
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return name(items[a]) < name(items[b]); });
  return order;
}

template <class Items, class Name>
const typename Items::value_type* find_by_name(const Items& items, const std::vector<size_t>& order,
                                               std::string_view wanted, Name name) {
  const auto at =
      std::lower_bound(order.begin(), order.end(), wanted,
                       [&](size_t i, std::string_view key) { return name(items[i]) < key; });
  return at != order.end() && name(items[*at]) == wanted ? &items[*at] : nullptr;
}

// How the name of part `number` (from 1) ends.
std::string part_end(int64_t number, int64_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", number, count);
}

std::string_view key_of(const MetaEntry& entry) { return entry.key; }
std::string_view name_of(const TensorInfo& tensor) { return tensor.name; }

}  // namespace

std::string_view meta_type_name(MetaType type) { return kMetaTypeNames[static_cast<size_t>(type)]; }

// ---------------------------------------------------------------- values

std::optional<int64_t> MetaValue::as_int() const {
  switch (type_) {
    case MetaType::kUint8:
      return base::load_le<uint8_t>(data_);
    case MetaType::kInt8:
      return base::load_le<int8_t>(data_);
    case MetaType::kUint16:
      return base::load_le<uint16_t>(data_);
    case MetaType::kInt16:
      return base::load_le<int16_t>(data_);
    case MetaType::kUint32:
      return base::load_le<uint32_t>(data_);
    case MetaType::kInt32:
      return base::load_le<int32_t>(data_);
    case MetaType::kInt64:
      return base::load_le<int64_t>(data_);
    case MetaType::kUint64: {
      const auto value = base::load_le<uint64_t>(data_);
      if (value > uint64_t(std::numeric_limits<int64_t>::max())) return std::nullopt;
      return int64_t(value);
    }
    default:
      return std::nullopt;
  }
}

std::optional<double> MetaValue::as_number() const {
  if (type_ == MetaType::kFloat32) return base::load_le<float>(data_);
  if (type_ == MetaType::kFloat64) return base::load_le<double>(data_);
  if (type_ == MetaType::kUint64) return double(base::load_le<uint64_t>(data_));
  if (const auto value = as_int()) return double(*value);
  return std::nullopt;
}

std::optional<bool> MetaValue::as_bool() const {
  if (type_ != MetaType::kBool) return std::nullopt;
  return *data_ != std::byte{0};
}

std::optional<std::string_view> MetaValue::as_string() const {
  if (type_ != MetaType::kString) return std::nullopt;
  return text_of({data_, length_});
}

MetaValue MetaValue::at(uint64_t i) const {
  CULET_CHECK(i < count_);
  MetaValue value;
  value.type_ = element_;
  if (element_ == MetaType::kString) {
    value.data_ = data_ + string_offsets_[i];
    value.length_ = base::load_le<uint64_t>(value.data_ - sizeof(uint64_t));
  } else {
    value.data_ = data_ + i * kScalarBytes[uint32_t(element_)];
  }
  return value;
}

std::span<const std::byte> MetaValue::bytes() const {
  if (type_ == MetaType::kString) return {data_, length_};
  if (type_ != MetaType::kArray) return {data_, kScalarBytes[uint32_t(type_)]};
  if (element_ != MetaType::kString) return {data_, count_ * kScalarBytes[uint32_t(element_)]};
  if (count_ == 0) return {data_, 0};
  const MetaValue last = at(count_ - 1);
  return {data_, size_t(last.data_ - data_) + last.length_};
}

// ---------------------------------------------------------------- reading

class GgufReader {
 public:
  GgufReader(std::span<const std::byte> bytes, std::string name, bool header_only)
      : bytes_(bytes), cursor_(bytes), header_only_(header_only) {
    file_.name_ = std::move(name);
    file_.file_bytes_ = bytes.size();
  }

  Result<GgufFile> read() {
    CULET_TRY_VOID(read_header());
    CULET_TRY_VOID(read_metadata());
    CULET_TRY_VOID(read_alignment());
    CULET_TRY_VOID(read_tensors());
    CULET_TRY_VOID(place_tensors());
    CULET_TRY_VOID(check_overlaps());
    return std::move(file_);
  }

 private:
  template <class... Args>
  tl::unexpected<Error> corrupt(fmt::format_string<Args...> format, Args&&... args) const {
    return fail(ErrorCode::kCorrupt,
                file_.name_ + ": " + fmt::format(format, std::forward<Args>(args)...));
  }
  tl::unexpected<Error> truncated(std::string_view what) const {
    return corrupt("truncated inside {} at byte {}; fetch the file again", what,
                   cursor_.position());
  }

  Result<void> read_header();
  Result<void> read_metadata();
  Result<void> read_value(std::string_view key, MetaValue* value);
  Result<void> read_array(std::string_view key, MetaValue* value);
  Result<void> read_array_of_strings(std::string_view key, MetaValue* value);
  Result<void> read_alignment();
  Result<void> read_tensors();
  Result<void> read_tensor(TensorInfo* tensor);
  Result<void> read_shape(TensorInfo* tensor);
  Result<void> place_tensors();
  Result<void> check_overlaps();
  Result<std::string_view> read_text(std::string_view what);
  Result<std::string_view> read_name(std::string_view what, uint64_t most);

  std::span<const std::byte> bytes_;
  base::Cursor cursor_;
  bool header_only_;
  uint64_t tensor_count_ = 0, entry_count_ = 0;
  uint64_t alignment_ = kDefaultAlignment;
  GgufFile file_;
};

Result<void> GgufReader::read_header() {
  std::span<const std::byte> magic;
  if (!cursor_.take(4, &magic)) return truncated("the magic");
  if (text_of(magic) != "GGUF") {
    return corrupt("no GGUF magic at byte 0; this is not a GGUF file");
  }
  if (!cursor_.read(&file_.version_)) return truncated("the version");
  const uint32_t version = file_.version_;
  if (version != 0 && (version & 0xffffff) == 0) {
    return fail(ErrorCode::kUnsupported,
                file_.name_ + ": big-endian GGUF is not supported; use a little-endian file");
  }
  if (version != 2 && version != 3) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: GGUF version {} is not supported; convert the file to version 3",
                            file_.name_, version));
  }
  if (!cursor_.read(&tensor_count_)) return truncated("the tensor count");
  if (!cursor_.read(&entry_count_)) return truncated("the metadata count");
  if (entry_count_ > cursor_.remaining() / kMinEntryBytes) {
    return corrupt("metadata count {} at byte 16 is more than the file can hold (truncated?)",
                   entry_count_);
  }
  const uint64_t left = cursor_.remaining() - entry_count_ * kMinEntryBytes;
  if (tensor_count_ > left / kMinTensorBytes) {
    return corrupt("tensor count {} at byte 8 is more than the file can hold (truncated?)",
                   tensor_count_);
  }
  return {};
}

Result<std::string_view> GgufReader::read_text(std::string_view what) {
  const uint64_t at = cursor_.position();
  uint64_t length = 0;
  std::span<const std::byte> text;
  if (!cursor_.read(&length)) return truncated(what);
  if (!cursor_.take(length, &text)) {
    return corrupt("truncated {}: string length {} at byte {} is more than the {} bytes left", what,
                   length, at, cursor_.remaining());
  }
  return text_of(text);
}

Result<std::string_view> GgufReader::read_name(std::string_view what, uint64_t most) {
  const uint64_t at = cursor_.position();
  CULET_TRY(const std::string_view name, read_text(what));
  if (name.empty()) return corrupt("empty {} at byte {}", what, at);
  if (name.size() > most) {
    return corrupt("{} of {} bytes at byte {} ('{}'); at most {} are allowed", what, name.size(),
                   at, base::utf8_shown(name), most);
  }
  if (!base::utf8_valid(name)) {
    return corrupt("{} at byte {} ('{}') is not UTF-8", what, at, base::utf8_shown(name));
  }
  return name;
}

Result<void> GgufReader::read_metadata() {
  for (uint64_t i = 0; i < entry_count_; ++i) {
    MetaEntry entry;
    CULET_TRY(entry.key, read_name("metadata key", kMaxKeyBytes));
    CULET_TRY_VOID(read_value(entry.key, &entry.value));
    file_.metadata_.push_back(entry);
  }
  file_.key_order_ = order_by_name(file_.metadata_, key_of);
  for (size_t i = 1; i < file_.key_order_.size(); ++i) {
    const std::string_view key = file_.metadata_[file_.key_order_[i]].key;
    if (key == file_.metadata_[file_.key_order_[i - 1]].key) {
      return corrupt("duplicate key '{}' in the metadata", base::utf8_shown(key));
    }
  }
  return {};
}

Result<void> GgufReader::read_value(std::string_view key, MetaValue* value) {
  const uint64_t at = cursor_.position();
  uint32_t type = 0;
  if (!cursor_.read(&type)) return truncated("the metadata");
  if (type >= kMetaTypes) {
    return corrupt("unknown value type {} of '{}' at byte {}", type, base::utf8_shown(key), at);
  }
  value->type_ = MetaType(type);
  if (value->type_ == MetaType::kArray) return read_array(key, value);
  if (value->type_ == MetaType::kString) {
    CULET_TRY(const std::string_view text, read_text("metadata value"));
    value->data_ = reinterpret_cast<const std::byte*>(text.data());
    value->length_ = text.size();
    return {};
  }
  value->data_ = cursor_.data();
  if (!cursor_.skip(kScalarBytes[type])) return truncated("the metadata");
  if (value->type_ == MetaType::kBool && *value->data_ > std::byte{1}) {
    return corrupt("'{}' at byte {} is neither true nor false", base::utf8_shown(key), at);
  }
  return {};
}

Result<void> GgufReader::read_array(std::string_view key, MetaValue* value) {
  const uint64_t at = cursor_.position();
  uint32_t type = 0;
  if (!cursor_.read(&type) || !cursor_.read(&value->count_)) return truncated("the metadata");
  if (type >= kMetaTypes) {
    return corrupt("unknown value type {} in the array '{}' at byte {}", type,
                   base::utf8_shown(key), at);
  }
  value->element_ = MetaType(type);
  if (value->element_ == MetaType::kArray) {
    return corrupt("nested array in '{}' at byte {}; arrays hold numbers, bools or strings",
                   base::utf8_shown(key), at);
  }
  const bool strings = value->element_ == MetaType::kString;
  const uint64_t element_bytes = strings ? sizeof(uint64_t) : kScalarBytes[type];
  if (value->count_ > cursor_.remaining() / element_bytes) {
    return corrupt(
        "truncated array '{}': array length {} at byte {} does not fit the {} bytes left",
        base::utf8_shown(key), value->count_, at + 4, cursor_.remaining());
  }
  value->data_ = cursor_.data();
  if (strings) return read_array_of_strings(key, value);
  if (!cursor_.skip(value->count_ * element_bytes)) return truncated("an array");
  if (value->element_ == MetaType::kBool &&
      std::any_of(value->data_, cursor_.data(), [](std::byte b) { return b > std::byte{1}; })) {
    return corrupt("the array '{}' at byte {} has elements that are neither true nor false",
                   base::utf8_shown(key), at);
  }
  return {};
}

Result<void> GgufReader::read_array_of_strings(std::string_view key, MetaValue* value) {
  std::vector<uint64_t> offsets;
  offsets.reserve(value->count_);  // at most one for each 8 bytes of the file
  const uint64_t start = cursor_.position();
  const std::string what = fmt::format("array '{}'", base::utf8_shown(key));
  for (uint64_t i = 0; i < value->count_; ++i) {
    CULET_TRY(const std::string_view text, read_text(what));
    offsets.push_back(cursor_.position() - text.size() - start);
  }
  file_.string_offsets_.push_back(std::move(offsets));
  value->string_offsets_ = file_.string_offsets_.back().data();
  return {};
}

Result<void> GgufReader::read_alignment() {
  const MetaValue* value = file_.find("general.alignment");
  if (value == nullptr) return {};
  const std::optional<int64_t> alignment = value->as_int();
  if (!alignment || *alignment < 8 || *alignment > (int64_t{1} << 31) ||
      (*alignment & (*alignment - 1)) != 0) {
    return corrupt("general.alignment is {}; an alignment is a power of two, 8 or more",
                   alignment ? std::to_string(*alignment) : "not an integer");
  }
  alignment_ = uint64_t(*alignment);
  return {};
}

Result<void> GgufReader::read_tensors() {
  for (uint64_t i = 0; i < tensor_count_; ++i) {
    TensorInfo tensor{};
    CULET_TRY(tensor.name, read_name("tensor name", kMaxTensorNameBytes));
    CULET_TRY_VOID(read_tensor(&tensor));
    file_.tensors_.push_back(tensor);
  }
  file_.tensor_order_ = order_by_name(file_.tensors_, name_of);
  for (size_t i = 1; i < file_.tensor_order_.size(); ++i) {
    const std::string_view name = file_.tensors_[file_.tensor_order_[i]].name;
    if (name == file_.tensors_[file_.tensor_order_[i - 1]].name) {
      return corrupt("duplicate tensor '{}' in the tensor directory", base::utf8_shown(name));
    }
  }
  return {};
}

Result<void> GgufReader::read_tensor(TensorInfo* tensor) {
  CULET_TRY_VOID(read_shape(tensor));
  const std::string name = base::utf8_shown(tensor->name);
  uint32_t id = 0;
  if (!cursor_.read(&id) || !cursor_.read(&tensor->offset)) {
    return truncated("the tensor directory");
  }
  const quant::TypeInfo* type = quant::type_info(id);
  if (type == nullptr) return corrupt("'{}' has the unknown tensor type {}", name, id);
  tensor->type = type->type;
  const auto block = uint64_t(type->block);
  if (tensor->dims[0] % block != 0) {
    return corrupt("'{}' has rows of {} values, which is no multiple of the {} block of {}", name,
                   tensor->dims[0], type->name, block);
  }
  const uint64_t blocks = tensor->elements() / block;
  if (!base::checked_mul(blocks, uint64_t(type->block_bytes), &tensor->bytes)) {
    return corrupt("the byte size of '{}' overflows 64 bits", name);
  }
  if (tensor->offset % alignment_ != 0) {
    return corrupt("the offset {} of '{}' is not a multiple of the alignment {}", tensor->offset,
                   name, alignment_);
  }
  return {};
}

Result<void> GgufReader::read_shape(TensorInfo* tensor) {
  const std::string name = base::utf8_shown(tensor->name);
  uint32_t n_dims = 0;
  if (!cursor_.read(&n_dims)) return truncated("the tensor directory");
  if (n_dims < 1 || n_dims > tensor->dims.size()) {
    return corrupt("'{}' has {} dimensions; 1 to {} are allowed", name, n_dims,
                   tensor->dims.size());
  }
  tensor->n_dims = int(n_dims);
  tensor->dims.fill(1);
  int64_t elements = 1;  // signed: every later count of elements is an int64_t
  for (uint32_t i = 0; i < n_dims; ++i) {
    uint64_t& dim = tensor->dims[i];
    if (!cursor_.read(&dim)) return truncated("the tensor directory");
    if (dim == 0) return corrupt("dimension {} of '{}' is zero", i, name);
    if (dim > uint64_t(std::numeric_limits<int64_t>::max()) ||
        !base::checked_mul(elements, int64_t(dim), &elements)) {
      return corrupt("the dimensions of '{}' overflow: more than 2^63 elements", name);
    }
  }
  return {};
}

// Turns offsets into pointers, now that the start of the data section is known.
Result<void> GgufReader::place_tensors() {
  uint64_t data_start = 0;
  if (!align_up(cursor_.position(), alignment_, &data_start)) return truncated("the padding");
  uint64_t used = cursor_.position();  // end of the last byte that belongs to something
  for (TensorInfo& tensor : file_.tensors_) {
    uint64_t begin = 0, end = 0;
    const bool fits = base::checked_add(data_start, tensor.offset, &begin) &&
                      base::checked_add(begin, tensor.bytes, &end);
    if (!fits || (!header_only_ && end > bytes_.size())) {
      return corrupt(
          "'{}' ({} bytes at offset {}) reaches past end of the file, which has {} bytes; "
          "fetch the file again",
          base::utf8_shown(tensor.name), tensor.bytes, tensor.offset, bytes_.size());
    }
    if (!header_only_) tensor.data = bytes_.data() + begin;
    used = std::max(used, end);
  }
  uint64_t padded = 0;
  if (!header_only_ && align_up(used, alignment_, &padded) && bytes_.size() > padded) {
    file_.warnings_.push_back(
        fmt::format("{} trailing bytes after the last tensor are ignored", bytes_.size() - padded));
  }
  return {};
}

Result<void> GgufReader::check_overlaps() {
  std::vector<const TensorInfo*> order;
  order.reserve(file_.tensors_.size());
  for (const TensorInfo& tensor : file_.tensors_) order.push_back(&tensor);
  std::sort(order.begin(), order.end(),
            [](const TensorInfo* a, const TensorInfo* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < order.size(); ++i) {
    if (order[i]->offset - order[i - 1]->offset < order[i - 1]->bytes) {
      return corrupt("the data of '{}' and '{}' overlap", base::utf8_shown(order[i - 1]->name),
                     base::utf8_shown(order[i]->name));
    }
  }
  return {};
}

// ---------------------------------------------------------------- parts of a split model

Result<GgufFile> GgufFile::open_part(const std::string& path) {
  CULET_TRY(base::MappedFile mapping, base::MappedFile::open(path));
  CULET_TRY(GgufFile file, parse(mapping.bytes(), path));
  file.mapping_ = std::move(mapping);
  return file;
}

tl::unexpected<Error> GgufFile::bad(ErrorCode code, const std::string& what) const {
  return fail(code, fmt::format("{}: {}", name_, what));
}

Result<void> GgufFile::add_parts() {
  const MetaValue* value = find("split.count");
  if (value == nullptr) return {};
  const int64_t count = value->as_int().value_or(0);
  if (count == 1 || (value->as_int() && count == 0)) return {};  // a model in one piece
  if (count < 1 || count > kMostParts) {
    return bad(ErrorCode::kCorrupt, fmt::format("split.count must be from 1 to {}; get another "
                                                "copy of the model",
                                                kMostParts));
  }
  const MetaValue* no = find("split.no");
  const int64_t part = no ? no->as_int().value_or(-1) : -1;
  if (part < 0 || part >= count) {
    return bad(ErrorCode::kCorrupt, fmt::format("split.no must be from 0 to {}; get another copy "
                                                "of the model",
                                                count - 1));
  }
  const std::string end = part_end(part + 1, count);
  const std::string stem = name_.ends_with(end) ? name_.substr(0, name_.size() - end.size()) : "";
  if (part != 0) {
    const std::string first = part_end(1, count);
    return bad(
        ErrorCode::kInvalidArgument,
        fmt::format("this is part {} of {} of a split model; open the first part, {}", part + 1,
                    count, stem.empty() ? "whose name ends in " + first : stem + first));
  }
  if (stem.empty()) {
    return bad(ErrorCode::kInvalidArgument,
               fmt::format("this is the first of {} parts, but its name does not end in {}, so the "
                           "others cannot be found; rename the files",
                           count, end));
  }
  for (int64_t i = 2; i <= count; ++i) {
    const std::string path = stem + part_end(i, count);
    Result<GgufFile> other = open_part(path);
    if (!other && other.error().code == ErrorCode::kNotFound) {
      return bad(ErrorCode::kNotFound, fmt::format("part {} of {} is missing: put {} beside the "
                                                   "first part",
                                                   i, count, path));
    }
    if (!other) return tl::unexpected(other.error());
    CULET_TRY_VOID(add_part(*std::move(other), uint64_t(i - 1), uint64_t(count)));
  }
  tensor_order_ = order_by_name(tensors_, name_of);
  for (size_t i = 1; i < tensor_order_.size(); ++i) {
    if (tensors_[tensor_order_[i]].name == tensors_[tensor_order_[i - 1]].name) {
      return bad(ErrorCode::kCorrupt,
                 fmt::format("two parts have a tensor '{}'; get another copy "
                             "of the model",
                             base::utf8_shown(tensors_[tensor_order_[i]].name)));
    }
  }
  const MetaValue* all = find("split.tensors.count");
  const int64_t tensors = all ? all->as_int().value_or(-1) : int64_t(tensors_.size());
  if (tensors != int64_t(tensors_.size())) {
    return bad(ErrorCode::kCorrupt, fmt::format("the parts have {} tensors together, but "
                                                "split.tensors.count is {}; get another copy of "
                                                "the model",
                                                tensors_.size(), tensors));
  }
  return {};
}

// `number` from 0. Other parts may be of another conversion of the same model: only their place in
// the whole can be checked here.
Result<void> GgufFile::add_part(GgufFile part, uint64_t number, uint64_t count) {
  const auto is = [&part](std::string_view key, uint64_t wanted) {
    const MetaValue* value = part.find(key);
    const auto said = value ? value->as_int() : std::nullopt;
    return said && *said >= 0 && uint64_t(*said) == wanted;
  };
  if (!is("split.no", number) || !is("split.count", count)) {
    return part.bad(
        ErrorCode::kCorrupt,
        fmt::format("its split.no and split.count do not say part {} of {}, as its name "
                    "does; get another copy of the model",
                    number + 1, count));
  }
  file_bytes_ += part.file_bytes_;
  tensors_.insert(tensors_.end(), part.tensors_.begin(), part.tensors_.end());
  warnings_.insert(warnings_.end(), part.warnings_.begin(), part.warnings_.end());
  parts_.push_back(std::move(part));
  return {};
}

void GgufFile::release(std::span<const std::byte> part) const {
  mapping_.release(part);  // each of them ignores what is not its own
  for (const GgufFile& other : parts_) other.mapping_.release(part);
}

void GgufFile::read_sparsely(std::span<const std::byte> part) const {
  mapping_.read_sparsely(part);
  for (const GgufFile& other : parts_) other.mapping_.read_sparsely(part);
}

// ---------------------------------------------------------------- the file

Result<GgufFile> GgufFile::open(const std::string& path) {
  CULET_TRY(GgufFile file, open_part(path));
  CULET_TRY_VOID(file.add_parts());
  return file;
}

Result<GgufFile> GgufFile::parse(std::span<const std::byte> bytes, std::string name,
                                 bool header_only) {
  return GgufReader(bytes, std::move(name), header_only).read();
}

std::vector<std::string> GgufFile::paths() const {
  std::vector<std::string> paths{name_};
  for (const GgufFile& part : parts_) paths.push_back(part.name_);
  return paths;
}

const MetaValue* GgufFile::find(std::string_view key) const {
  const MetaEntry* entry = find_by_name(metadata_, key_order_, key, key_of);
  return entry == nullptr ? nullptr : &entry->value;
}

const TensorInfo* GgufFile::tensor(std::string_view name) const {
  return find_by_name(tensors_, tensor_order_, name, name_of);
}

}  // namespace culet::format
