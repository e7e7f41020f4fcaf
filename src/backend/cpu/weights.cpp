// Takes a plan and its file; gives every tensor in the form its ops read.
//
// Packing goes tensor by tensor, in parallel over groups of 16 outputs, so that pages are touched
// by the threads that fill them and at most one tensor exists twice. The source pages of a tensor
// go as soon as it is packed; where rows of it are also gathered (a tied embedding), those rows
// come back from the page cache when they are asked for. Without repacking nothing is copied at
// all, and products read the source through source().
#include "backend/cpu/weights.h"

#include "base/check.h"
#include "kernels/packing.h"
#include "quant/tensor_type.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace culet::backend {
namespace {

using plan::OpKind;
using plan::TensorId;

constexpr size_t kTaskBytes = 256 << 10;  // packed bytes a task
constexpr size_t kTail = 64;              // readable bytes behind the last group

template <class T>
void add_once(std::vector<T>* list, T item) {
  if (std::find(list->begin(), list->end(), item) == list->end()) list->push_back(item);
}

Result<void> check_bytes(const format::TensorInfo& tensor) {
  if (tensor.data != nullptr) return {};
  return fail(ErrorCode::kCorrupt,
              fmt::format("the file holds no data for tensor '{}'; it seems to be a header alone",
                          tensor.name));
}

size_t round64(size_t n) { return (n + 63) / 64 * 64; }

// The matrices of a tensor: how many, of n outputs and k inputs.
struct Shape {
  int64_t count, n, k;
  int64_t groups() const { return (n + 15) / 16; }
};
Shape shape_of(const format::TensorInfo& t, bool halves) {
  const int64_t parts = halves ? 2 : 1;
  return {static_cast<int64_t>(t.dims[2]) * parts, static_cast<int64_t>(t.dims[1]) / parts,
          static_cast<int64_t>(t.dims[0])};
}

// 0: the type cannot be packed.
size_t bytes_of(const format::TensorInfo& t, bool halves) {
  const Shape s = shape_of(t, halves);
  const size_t group = kernels::packed_group_bytes(t.type, s.k);
  return group == 0 ? 0 : group * static_cast<size_t>(s.groups() * s.count) + kTail;
}

// Groups of all matrices in a row; a task may hold the end of one and the beginning of the next.
void pack_tensor(const format::TensorInfo& tensor, const Shape& shape, int64_t group_bytes,
                 uint8_t* dst, base::ThreadPool& pool) {
  const quant::TypeInfo& type = quant::type_info(tensor.type);
  const int64_t groups = shape.groups(), all = groups * shape.count;
  const int64_t source_bytes = shape.n * (shape.k / type.block * type.block_bytes);
  const int64_t chunk = std::max<int64_t>(1, static_cast<int64_t>(kTaskBytes) / group_bytes);
  pool.run((all + chunk - 1) / chunk, [&](int64_t task, int) {
    const int64_t end = std::min(all, (task + 1) * chunk);
    for (int64_t g = task * chunk; g < end;) {
      const int64_t matrix = g / groups, first = g % groups;
      const int64_t last = std::min(groups, first + end - g);
      kernels::pack_groups(tensor.type, tensor.data + matrix * source_bytes, shape.n, shape.k,
                           first, last, dst + matrix * groups * group_bytes);
      g += last - first;
    }
  });
}

}  // namespace

WeightRole weight_role(OpKind kind, size_t i) {
  if (kind == OpKind::embed || kind == OpKind::gather) return WeightRole::kGathered;
  static constexpr struct {
    OpKind kind;
    size_t products;  // the first weights of the op
  } kRows[] = {{OpKind::linear, 1},
               {OpKind::linear_add, 1},
               {OpKind::grouped_linear, 1},
               {OpKind::gated_linear, 2},
               {OpKind::experts, 4}};
  size_t products = 0;
  for (const auto& row : kRows) {
    if (row.kind == kind) products = row.products;
  }
  return i < products ? WeightRole::kProduct : WeightRole::kVector;
}

bool reads_halves(OpKind kind, size_t i) { return kind == OpKind::experts && i == 2; }

struct Weights::Roles {
  std::vector<Matrices> products;
  std::vector<TensorId> gathered, vectors;
};

Weights::Roles Weights::roles_of(const plan::Plan& plan) {
  Roles roles;
  for (const plan::Op& op : plan.ops) {
    for (size_t i = 0; i < op.weights.size(); ++i) {
      const TensorId id = op.weights[i];
      if (id == plan::kNone) continue;
      switch (weight_role(op.kind, i)) {
        case WeightRole::kProduct:
          add_once(&roles.products, Matrices{id, reads_halves(op.kind, i)});
          break;
        case WeightRole::kGathered:
          add_once(&roles.gathered, id);
          break;
        case WeightRole::kVector:
          add_once(&roles.vectors, id);
          break;
      }
    }
  }
  for (const plan::RopeSpec& rope : plan.ropes) {
    if (rope.factors != plan::kNone) add_once(&roles.vectors, rope.factors);
  }
  return roles;
}

namespace {

kernels::PackedMatrix matrix_of(const format::TensorInfo& tensor, const Shape& shape,
                                const uint8_t* data) {
  return {static_cast<uint32_t>(tensor.type), shape.n, shape.k,
          static_cast<int64_t>(kernels::packed_group_bytes(tensor.type, shape.k)), data};
}

Result<void> check_readable(const format::TensorInfo& tensor) {
  if (quant::dequantize_fn(tensor.type) != nullptr) return {};
  return fail(
      ErrorCode::kUnsupported,
      fmt::format("tensor '{}' has type {}, which this version cannot read; use a file with "
                  "another quantization",
                  tensor.name, quant::type_info(tensor.type).name));
}

Result<void> check_product(const format::TensorInfo& tensor) {
  if (kernels::packed_group_bytes(tensor.type, static_cast<int64_t>(tensor.dims[0])) > 0) return {};
  return fail(ErrorCode::kUnsupported,
              fmt::format("tensor '{}' has type {}, which this version cannot multiply by; use a "
                          "file with another quantization",
                          tensor.name, quant::type_info(tensor.type).name));
}

}  // namespace

Result<void> Weights::check(const plan::Plan& plan, const plan::Tensors& tensors) {
  const Roles roles = roles_of(plan);
  for (const Matrices& m : roles.products) CULET_TRY_VOID(check_product(tensors.at(m.id)));
  for (const TensorId id : roles.gathered) CULET_TRY_VOID(check_readable(tensors.at(id)));
  for (const TensorId id : roles.vectors) CULET_TRY_VOID(check_readable(tensors.at(id)));
  return {};
}

Weights::Sizes Weights::sizes(const plan::Plan& plan, const plan::Tensors& tensors, bool repack) {
  const Roles roles = roles_of(plan);
  Sizes sizes;
  const auto count_mapped = [&](TensorId id) {
    if (!plan::Tensors::of_target(id)) sizes.mapped += tensors.at(id).bytes;
  };
  for (TensorId id : roles.gathered) count_mapped(id);
  for (TensorId id : roles.vectors) sizes.converted += tensors.at(id).elements() * sizeof(float);
  for (const Matrices& m : roles.products) {
    if (repack) {
      sizes.packed += round64(bytes_of(tensors.at(m.id), m.halves));
    } else if (std::find(roles.gathered.begin(), roles.gathered.end(), m.id) ==
               roles.gathered.end()) {
      count_mapped(m.id);
    }
  }
  return sizes;
}

Result<Weights> Weights::load(const plan::Plan& plan, const plan::Tensors& tensors,
                              base::ThreadPool& pool, bool repack, const Progress& progress) {
  CULET_TRY_VOID(check(plan, tensors));
  const Roles roles = roles_of(plan);
  Weights weights;
  for (TensorId id : roles.gathered) {
    const format::TensorInfo& table = tensors.at(id);
    CULET_TRY_VOID(check_bytes(table));
    const auto is_this = [id](const Matrices& m) { return m.id == id; };
    if (!repack && std::any_of(roles.products.begin(), roles.products.end(), is_this)) continue;
    if (!plan::Tensors::of_target(id)) weights.looked_up_.emplace_back(table.data, table.bytes);
  }
  for (const plan::Op& op : plan.ops) {
    if (op.kind != OpKind::gather) continue;
    const format::TensorInfo& table = tensors.at(op.weights[0]);
    tensors.file_of(op.weights[0]).read_sparsely({table.data, table.bytes});
  }
  for (TensorId id : roles.vectors) CULET_TRY_VOID(weights.convert(id, tensors));
  if (!repack) {
    CULET_TRY_VOID(weights.leave_mapped(roles.products, tensors));
    return weights;
  }
  CULET_TRY_VOID(weights.pack(roles.products, tensors, pool, progress));
  return weights;
}

Result<void> Weights::leave_mapped(const std::vector<Matrices>& all, const plan::Tensors& tensors) {
  for (const Matrices& m : all) {
    const format::TensorInfo& tensor = tensors.at(m.id);
    CULET_TRY_VOID(check_bytes(tensor));
    matrices_.emplace(m, matrix_of(tensor, shape_of(tensor, m.halves), nullptr));
    sources_.emplace(m.id, tensor.data);
  }
  return {};
}

Result<void> Weights::pack(const std::vector<Matrices>& products, const plan::Tensors& tensors,
                           base::ThreadPool& pool, const Progress& progress) {
  size_t all = 0;
  for (const Matrices& m : products) {
    const format::TensorInfo& tensor = tensors.at(m.id);
    CULET_TRY_VOID(check_bytes(tensor));
    all += round64(bytes_of(tensor, m.halves));
  }
  if (!packed_.allocate(all + kTail, Region::kFilled)) {
    return fail(ErrorCode::kExhausted, fmt::format("no memory for {} MiB of weights", all >> 20));
  }
  size_t done = 0;
  for (const Matrices& m : products) {
    const format::TensorInfo& tensor = tensors.at(m.id);
    const Shape shape = shape_of(tensor, m.halves);
    const kernels::PackedMatrix matrix = matrix_of(tensor, shape, packed_.data() + done);
    pack_tensor(tensor, shape, matrix.group_bytes, packed_.data() + done, pool);
    tensors.file_of(m.id).release({tensor.data, tensor.bytes});
    matrices_.emplace(m, matrix);
    done += round64(bytes_of(tensor, m.halves));
    if (progress && !progress(done, all))
      return fail(ErrorCode::kCancelled, "loading was stopped on request");
  }
  return {};
}

Result<void> Weights::convert(TensorId id, const plan::Tensors& tensors) {
  const format::TensorInfo& tensor = tensors.at(id);
  CULET_TRY_VOID(check_bytes(tensor));
  const quant::TypeInfo& info = quant::type_info(tensor.type);
  const quant::DequantizeFn dequantize = quant::dequantize_fn(tensor.type);
  std::vector<float> values(tensor.elements());
  dequantize(tensor.data, static_cast<int64_t>(tensor.elements()) / info.block, values.data());
  vectors_.emplace(id, std::move(values));
  return {};
}

void Weights::give_back(const format::GgufFile& file) const {
  for (const auto& table : looked_up_) file.release(table);
}

const kernels::PackedMatrix* Weights::matrix(TensorId id, bool halves) const {
  if (id == plan::kNone) return nullptr;
  const auto it = matrices_.find({id, halves});
  CULET_CHECK(it != matrices_.end());
  return &it->second;
}

const std::byte* Weights::source(TensorId id) const {
  const auto it = sources_.find(id);
  return it == sources_.end() ? nullptr : it->second;
}

const float* Weights::vector(TensorId id) const {
  if (id == plan::kNone) return nullptr;
  const auto it = vectors_.find(id);
  CULET_CHECK(it != vectors_.end());
  return it->second.data();
}

int64_t Weights::vector_size(TensorId id) const {
  return id == plan::kNone ? 0 : static_cast<int64_t>(vectors_.at(id).size());
}

}  // namespace culet::backend
