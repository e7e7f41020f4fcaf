// Takes a family's rows and a checkpoint, gives the tensors of the file. Every tensor of the
// checkpoint has to be read by a row, or named in a drop: what is left over, or not there, is an
// error. Every change of a tensor moves whole rows, so a tensor is a list of pointers to them.
#include "convert/mapping.h"

#include "base/bytes.h"
#include "convert/types.h"
#include "quant/fp16.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

namespace culet::convert {
namespace {

using format::SafeTensor;

constexpr int64_t kMostExperts = 100'000;

// ---------------------------------------------------------------- values

struct Float {
  std::string_view dtype;
  size_t bytes;
  float (*read)(const std::byte* from);
};
constexpr Float kFloats[] = {
    {"F32", 4, [](const std::byte* p) { return base::load_le<float>(p); }},
    {"F16", 2, [](const std::byte* p) { return quant::half_to_float(base::load_le<uint16_t>(p)); }},
    {"BF16", 2,
     [](const std::byte* p) { return quant::bfloat16_to_float(base::load_le<uint16_t>(p)); }},
};

const Float* find_float(std::string_view dtype) {
  for (const Float& entry : kFloats) {
    if (entry.dtype == dtype) return &entry;
  }
  return nullptr;
}

// ---------------------------------------------------------------- names

std::string with(std::string name, std::string_view mark, int64_t number) {
  if (const size_t at = name.find(mark); at != std::string::npos) {
    name.replace(at, mark.size(), std::to_string(number));
  }
  return name;
}

bool has_mark(const std::string& name, std::string_view mark) {
  return name.find(mark) != std::string::npos;
}

// ---------------------------------------------------------------- changes

uint64_t rows_of_matrix(const MappedTensor& t) {
  return t.shape.size() > 1 ? t.shape[t.shape.size() - 2] : t.shape[0];
}

void set_rows_of_matrix(MappedTensor* t, uint64_t rows) {
  t->shape[t->shape.size() > 1 ? t->shape.size() - 2 : 0] = rows;
}

Result<void> rotate(MappedTensor* t, int64_t heads) {
  const uint64_t rows = rows_of_matrix(*t);
  if (heads < 1 || rows % (2 * uint64_t(heads)) != 0) {
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("'{}' has {} rows, which cannot be divided into {} heads of an even size",
                    t->name, rows, heads));
  }
  const uint64_t head = rows / uint64_t(heads), half = head / 2;
  const std::vector<const std::byte*> before = t->rows;
  for (uint64_t r = 0; r < t->rows.size(); ++r) {
    const uint64_t in_head = r % head;
    t->rows[r] = before[r - in_head + in_head % 2 * half + in_head / 2];
  }
  return {};
}

Result<void> part(MappedTensor* t, int64_t number, int64_t of) {
  const uint64_t rows = rows_of_matrix(*t);
  if (of < 1 || number < 0 || number >= of || rows % uint64_t(of) != 0) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("the {} rows of '{}' cannot be divided into {} equal parts", rows,
                            t->name, of));
  }
  const uint64_t size = rows / uint64_t(of), first = size * uint64_t(number);
  std::vector<const std::byte*> kept;
  for (uint64_t r = 0; r < t->rows.size(); ++r) {
    if (r % rows >= first && r % rows < first + size) kept.push_back(t->rows[r]);
  }
  t->rows = std::move(kept);
  set_rows_of_matrix(t, size);
  return {};
}

Result<void> skip(MappedTensor* t, int64_t count) {
  const uint64_t rows = rows_of_matrix(*t);
  if (count < 0 || uint64_t(count) >= rows || rows != t->rows.size()) {
    return fail(ErrorCode::kUnsupported, fmt::format("'{}' has {} rows, of which {} cannot be left "
                                                     "out",
                                                     t->name, rows, count));
  }
  t->rows.erase(t->rows.begin(), t->rows.begin() + count);
  set_rows_of_matrix(t, rows - uint64_t(count));
  return {};
}

Result<void> squeeze(MappedTensor* t) {
  if (t->shape.back() != t->columns) {
    return fail(ErrorCode::kUnsupported, fmt::format("'{}' has a last dimension of one", t->name));
  }
  std::erase(t->shape, uint64_t{1});
  if (t->shape.empty()) t->shape = {1};
  return {};
}

Result<void> change(const Transform& transform, const Scope& scope, int64_t layer,
                    MappedTensor* t) {
  std::vector<int64_t> operands;
  for (const Expression& operand : transform.operands) {
    CULET_TRY(operands.emplace_back(), scope.integer(operand, layer));
  }
  switch (transform.kind) {
    case Transform::Kind::kRotate:
      return rotate(t, operands[0]);
    case Transform::Kind::kPart:
      return part(t, operands[0], operands[1]);
    case Transform::Kind::kSkip:
      return skip(t, operands[0]);
    case Transform::Kind::kSqueeze:
      return squeeze(t);
    case Transform::Kind::kPlusOne:
      t->plus_one = true;
  }
  return {};
}

// ---------------------------------------------------------------- rows

class Mapper {
 public:
  Mapper(const Family& family, const Scope& scope, const Checkpoint& checkpoint)
      : family_(family), scope_(scope), checkpoint_(checkpoint) {}

  Result<std::vector<MappedTensor>> map(int64_t layers);

 private:
  Result<void> map_group(size_t first, int64_t layer);
  Result<bool> map_row(const TensorRow& row, int64_t layer);
  Result<bool> applies(const std::optional<Expression>& when, int64_t layer) const;
  std::vector<const SafeTensor*> sources_of(const TensorRow& row, int64_t layer);
  Result<MappedTensor> joined(const std::string& name,
                              const std::vector<const SafeTensor*>& sources, bool stack) const;
  Result<void> add_values(const ValuesRow& row);
  Result<void> check_left_over(int64_t layers);

  const Family& family_;
  const Scope& scope_;
  const Checkpoint& checkpoint_;
  std::vector<MappedTensor> out_;
  std::set<const SafeTensor*> read_;
};

Result<bool> Mapper::applies(const std::optional<Expression>& when, int64_t layer) const {
  return when ? scope_.holds(*when, layer) : Result<bool>(true);
}

std::vector<const SafeTensor*> Mapper::sources_of(const TensorRow& row, int64_t layer) {
  std::vector<const SafeTensor*> sources;
  const std::string name = with(row.from, "{i}", layer);
  const bool stack = has_mark(name, "{e}");
  for (int64_t expert = 0; expert < (stack ? kMostExperts : 1); ++expert) {
    const SafeTensor* tensor = checkpoint_.find(stack ? with(name, "{e}", expert) : name);
    if (tensor == nullptr) break;
    sources.push_back(tensor);
  }
  return sources;
}

Result<MappedTensor> Mapper::joined(const std::string& name,
                                    const std::vector<const SafeTensor*>& sources,
                                    bool stack) const {
  const SafeTensor& first = *sources[0];
  const Float* type = find_float(first.dtype);
  if (type == nullptr) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("'{}' has the dtype {}; weights of F32, F16 and BF16 are read",
                            first.name, first.dtype));
  }
  MappedTensor out{.name = name, .shape = first.shape, .dtype = first.dtype, .sources = sources};
  if (out.shape.empty()) out.shape = {1};
  out.columns = out.shape.size() > 1 ? out.shape.back() : 1;
  if (first.bytes == 0) {
    return fail(ErrorCode::kUnsupported, fmt::format("'{}' has no values", first.name));
  }
  for (const SafeTensor* source : sources) {
    if (source->shape != first.shape || source->dtype != first.dtype) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("'{}' and '{}' differ in shape or dtype, so they cannot be stacked",
                              first.name, source->name));
    }
    const uint64_t row_bytes = out.columns * type->bytes;
    for (uint64_t at = 0; at < source->bytes; at += row_bytes) {
      out.rows.push_back(source->data + at);
    }
  }
  if (stack) out.shape.insert(out.shape.begin(), sources.size());
  return out;
}

// Whether the row's sources are there.
Result<bool> Mapper::map_row(const TensorRow& row, int64_t layer) {
  const std::vector<const SafeTensor*> sources = sources_of(row, layer);
  if (sources.empty()) return false;
  CULET_TRY(MappedTensor tensor,
            joined(with(row.to, "{i}", layer), sources, has_mark(row.from, "{e}")));
  for (const Transform& transform : row.transforms) {
    CULET_TRY_VOID(change(transform, scope_, layer, &tensor));
  }
  read_.insert(sources.begin(), sources.end());
  out_.push_back(std::move(tensor));
  return true;
}

// All rows with the name of row `first`: the first of them whose sources are there.
Result<void> Mapper::map_group(size_t first, int64_t layer) {
  const std::string& to = family_.tensors[first].to;
  const TensorRow* needed = nullptr;
  for (size_t r = first; r < family_.tensors.size(); ++r) {
    const TensorRow& row = family_.tensors[r];
    if (row.to != to) continue;
    CULET_TRY(const bool is_for, applies(row.when, layer));
    if (!is_for) continue;
    CULET_TRY(const bool there, map_row(row, layer));
    if (there) return {};
    if (needed == nullptr && !row.optional) needed = &row;
  }
  if (needed == nullptr) return {};
  const std::string name = with(with(needed->from, "{i}", layer), "{e}", 0);
  return fail(ErrorCode::kNotFound,
              fmt::format("the tensor '{}' is missing, which {} is made from ({})", name,
                          with(to, "{i}", layer), needed->location));
}

Result<void> Mapper::add_values(const ValuesRow& row) {
  CULET_TRY(const bool is_for, row.when ? scope_.holds(*row.when) : Result<bool>(true));
  if (!is_for) return {};
  CULET_TRY(const int64_t count, scope_.integer(row.count));
  constexpr int64_t kMost = 1 << 20;
  if (count < 1 || count > kMost) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: {} values for {}", row.location, count, row.to));
  }
  MappedTensor tensor{.name = row.to, .shape = {uint64_t(count)}, .dtype = "F32"};
  for (int64_t i = 0; i < count; ++i) {
    CULET_TRY(const double value, scope_.number(row.value, i));
    tensor.values.push_back(float(value));
  }
  out_.push_back(std::move(tensor));
  return {};
}

Result<void> Mapper::check_left_over(int64_t layers) {
  std::vector<std::string> patterns;
  for (const DropRow& row : family_.drops) {
    for (int64_t layer = 0; layer < (has_mark(row.pattern, "{i}") ? layers : 1); ++layer) {
      CULET_TRY(const bool is_for, applies(row.when, layer));
      if (is_for) patterns.push_back(with(row.pattern, "{i}", layer));
    }
  }
  for (const auto& [name, tensor] : checkpoint_.tensors()) {
    if (read_.contains(tensor)) continue;
    const std::string& wanted = name;
    if (std::any_of(patterns.begin(), patterns.end(),
                    [&](const std::string& pattern) { return matches(wanted, pattern); })) {
      continue;
    }
    return fail(ErrorCode::kUnsupported,
                fmt::format("the tensor '{}' is not known for the family {}, so the file would "
                            "lack a part of the model",
                            name, family_.name));
  }
  return {};
}

Result<std::vector<MappedTensor>> Mapper::map(int64_t layers) {
  for (const ValuesRow& row : family_.values) CULET_TRY_VOID(add_values(row));
  for (int64_t layer = -1; layer < layers; ++layer) {  // -1: what stands outside the layers
    std::set<std::string_view> done;
    for (size_t r = 0; r < family_.tensors.size(); ++r) {
      const TensorRow& row = family_.tensors[r];
      if (has_mark(row.to, "{i}") != (layer >= 0) || !done.insert(row.to).second) continue;
      CULET_TRY_VOID(map_group(r, layer));
    }
  }
  CULET_TRY_VOID(check_left_over(layers));
  return std::move(out_);
}

}  // namespace

// ---------------------------------------------------------------- one tensor

uint64_t MappedTensor::elements() const {
  return values.empty() ? rows.size() * columns : values.size();
}

std::vector<uint64_t> MappedTensor::dims() const { return {shape.rbegin(), shape.rend()}; }

ReadValues MappedTensor::reader() const {
  if (!values.empty()) {
    return [this](int64_t first, int64_t count, float* out) {
      std::copy_n(values.begin() + first, count, out);
    };
  }
  const Float* type = find_float(dtype);
  return [this, type](int64_t first, int64_t count, float* out) {
    const float shift = plus_one ? 1.f : 0.f;
    for (int64_t done = 0; done < count;) {
      const uint64_t at = uint64_t(first + done), column = at % columns;
      const auto in_row = std::min(int64_t(columns - column), count - done);
      const std::byte* from = rows[at / columns] + column * type->bytes;
      for (int64_t k = 0; k < in_row; ++k, from += type->bytes) {
        const float value = type->read(from);
        out[done + k] = plus_one ? value + shift : value;
      }
      done += in_row;
    }
  };
}

Result<std::vector<MappedTensor>> map_tensors(const Family& family, const Scope& scope,
                                              int64_t layers, const Checkpoint& checkpoint) {
  return Mapper(family, scope, checkpoint).map(layers);
}

// ---------------------------------------------------------------- shapes

namespace {

std::string text_of_shape(const std::vector<uint64_t>& shape) {
  return fmt::format("{}", fmt::join(shape, " x "));
}

Result<void> check_shape(const ShapeRow& row, const Scope& scope, std::optional<int64_t> layer,
                         const MappedTensor& tensor) {
  if (row.when) {
    CULET_TRY(const bool is_for, scope.holds(*row.when, layer));
    if (!is_for) return {};
  }
  std::vector<uint64_t> wanted;
  for (const Expression& size : row.sizes) {
    CULET_TRY(const int64_t value, scope.integer(size, layer));
    wanted.push_back(uint64_t(value));
  }
  if (wanted == tensor.shape) return {};
  std::string sizes;
  for (const Expression& size : row.sizes) sizes += (sizes.empty() ? "" : " x ") + size.text();
  return fail(ErrorCode::kCorrupt,
              fmt::format("{} is {}, but the configuration says {} ({}), so the weights are "
                          "of another model or config.json is wrong ({})",
                          tensor.sources.empty() ? tensor.name
                                                 : fmt::format("'{}'", tensor.sources[0]->name),
                          text_of_shape(tensor.shape), text_of_shape(wanted), sizes, row.location));
}

}  // namespace

Result<void> check_shapes(const Family& family, const Scope& scope, int64_t layers,
                          const std::vector<MappedTensor>& tensors) {
  std::map<std::string_view, const MappedTensor*> by_name;
  for (const MappedTensor& tensor : tensors) by_name.emplace(tensor.name, &tensor);
  for (const ShapeRow& row : family.shapes) {
    const bool each = has_mark(row.tensor, "{i}");
    for (int64_t layer = 0; layer < (each ? layers : 1); ++layer) {
      const auto at = by_name.find(with(row.tensor, "{i}", layer));
      if (at == by_name.end()) continue;
      CULET_TRY_VOID(
          check_shape(row, scope, each ? std::optional(layer) : std::nullopt, *at->second));
    }
  }
  return {};
}

}  // namespace culet::convert
