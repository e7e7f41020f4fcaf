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

void add_once(std::vector<TensorId>* list, TensorId id) {
  if (id != plan::kNone && std::find(list->begin(), list->end(), id) == list->end())
    list->push_back(id);
}

Result<void> check_bytes(const format::TensorInfo& tensor) {
  if (tensor.data != nullptr) return {};
  return fail(ErrorCode::kCorrupt,
              fmt::format("the file holds no data for tensor '{}'; it seems to be a header alone",
                          tensor.name));
}

size_t round64(size_t n) { return (n + 63) / 64 * 64; }

size_t bytes_of(const format::TensorInfo& t) {
  return kernels::packed_bytes(t.type, static_cast<int64_t>(t.dims[1]),
                               static_cast<int64_t>(t.dims[0]));
}

void pack_tensor(const format::TensorInfo& tensor, const kernels::PackedMatrix& matrix,
                 uint8_t* dst, base::ThreadPool& pool) {
  const int64_t groups = (matrix.n + 15) / 16;
  const int64_t chunk = std::max<int64_t>(1, static_cast<int64_t>(kTaskBytes) / matrix.group_bytes);
  pool.run((groups + chunk - 1) / chunk, [&](int64_t task, int) {
    kernels::pack_groups(tensor.type, tensor.data, matrix.n, matrix.k, task * chunk,
                         std::min(groups, (task + 1) * chunk), dst);
  });
}

}  // namespace

WeightRole weight_role(OpKind kind, size_t i) {
  if (kind == OpKind::embed || kind == OpKind::gather) return WeightRole::kGathered;
  const size_t products = kind == OpKind::gated_linear                           ? 2
                          : kind == OpKind::linear || kind == OpKind::linear_add ? 1
                                                                                 : 0;
  return i < products ? WeightRole::kProduct : WeightRole::kVector;
}

namespace {

struct Roles {
  std::vector<TensorId> of[3];
  const std::vector<TensorId>& operator[](WeightRole role) const {
    return of[static_cast<int>(role)];
  }
};

Roles roles_of(const plan::Plan& plan) {
  Roles roles;
  for (const plan::Op& op : plan.ops) {
    for (size_t i = 0; i < op.weights.size(); ++i) {
      add_once(&roles.of[static_cast<int>(weight_role(op.kind, i))], op.weights[i]);
    }
  }
  for (const plan::RopeSpec& rope : plan.ropes)
    add_once(&roles.of[static_cast<int>(WeightRole::kVector)], rope.factors);
  return roles;
}

kernels::PackedMatrix matrix_of(const format::TensorInfo& tensor, const uint8_t* data) {
  const auto k = static_cast<int64_t>(tensor.dims[0]);
  return {static_cast<uint32_t>(tensor.type), static_cast<int64_t>(tensor.dims[1]), k,
          static_cast<int64_t>(kernels::packed_group_bytes(tensor.type, k)), data};
}

Result<void> check_product(const format::TensorInfo& tensor) {
  CULET_TRY_VOID(check_bytes(tensor));
  if (bytes_of(tensor) > 0) return {};
  return fail(ErrorCode::kUnsupported,
              fmt::format("tensor '{}' has type {}, which this version cannot multiply by; use a "
                          "file with another quantization",
                          tensor.name, quant::type_info(tensor.type).name));
}

}  // namespace

Weights::Sizes Weights::sizes(const plan::Plan& plan, const format::GgufFile& file, bool repack) {
  const Roles roles = roles_of(plan);
  const auto tensor = [&](TensorId id) -> const format::TensorInfo& {
    return file.tensors()[static_cast<size_t>(id)];
  };
  Sizes sizes;
  for (TensorId id : roles[WeightRole::kGathered]) sizes.mapped += tensor(id).bytes;
  for (TensorId id : roles[WeightRole::kVector])
    sizes.converted += tensor(id).elements() * sizeof(float);
  const std::vector<TensorId>& gathered = roles[WeightRole::kGathered];
  for (TensorId id : roles[WeightRole::kProduct]) {
    if (repack) {
      sizes.packed += round64(bytes_of(tensor(id)));
    } else if (std::find(gathered.begin(), gathered.end(), id) == gathered.end()) {
      sizes.mapped += tensor(id).bytes;
    }
  }
  return sizes;
}

Result<Weights> Weights::load(const plan::Plan& plan, const format::GgufFile& file,
                              base::ThreadPool& pool, bool repack, const Progress& progress) {
  const Roles roles = roles_of(plan);
  Weights weights;
  for (TensorId id : roles[WeightRole::kGathered]) {
    CULET_TRY_VOID(check_bytes(file.tensors()[static_cast<size_t>(id)]));
  }
  for (const plan::Op& op : plan.ops) {
    if (op.kind != OpKind::gather) continue;
    const format::TensorInfo& table = file.tensors()[static_cast<size_t>(op.weights[0])];
    file.read_sparsely({table.data, table.bytes});
  }
  for (TensorId id : roles[WeightRole::kVector]) CULET_TRY_VOID(weights.convert(id, file));
  if (!repack) {
    CULET_TRY_VOID(weights.leave_mapped(roles[WeightRole::kProduct], file));
    return weights;
  }
  CULET_TRY_VOID(weights.pack(roles[WeightRole::kProduct], file, pool, progress));
  return weights;
}

Result<void> Weights::leave_mapped(const std::vector<TensorId>& ids, const format::GgufFile& file) {
  for (TensorId id : ids) {
    const format::TensorInfo& tensor = file.tensors()[static_cast<size_t>(id)];
    CULET_TRY_VOID(check_product(tensor));
    matrices_.emplace(id, matrix_of(tensor, nullptr));
    sources_.emplace(id, tensor.data);
  }
  return {};
}

Result<void> Weights::pack(const std::vector<TensorId>& ids, const format::GgufFile& file,
                           base::ThreadPool& pool, const Progress& progress) {
  size_t all = 0;
  for (TensorId id : ids) {
    const format::TensorInfo& tensor = file.tensors()[static_cast<size_t>(id)];
    CULET_TRY_VOID(check_product(tensor));
    all += round64(bytes_of(tensor));
  }
  if (!packed_.allocate(all + kTail, Region::kFilled)) {
    return fail(ErrorCode::kExhausted, fmt::format("no memory for {} MiB of weights", all >> 20));
  }
  size_t done = 0;
  for (TensorId id : ids) {
    const format::TensorInfo& tensor = file.tensors()[static_cast<size_t>(id)];
    const kernels::PackedMatrix matrix = matrix_of(tensor, packed_.data() + done);
    pack_tensor(tensor, matrix, packed_.data() + done, pool);
    file.release({tensor.data, tensor.bytes});
    matrices_.emplace(id, matrix);
    done += round64(bytes_of(tensor));
    if (progress) progress(done, all);
  }
  return {};
}

Result<void> Weights::convert(TensorId id, const format::GgufFile& file) {
  const format::TensorInfo& tensor = file.tensors()[static_cast<size_t>(id)];
  CULET_TRY_VOID(check_bytes(tensor));
  const quant::TypeInfo& info = quant::type_info(tensor.type);
  const quant::DequantizeFn dequantize = quant::dequantize_fn(tensor.type);
  if (dequantize == nullptr) {
    return fail(
        ErrorCode::kUnsupported,
        fmt::format(
            "tensor '{}' has type {}, which this version cannot read; use a file with another "
            "quantization",
            tensor.name, info.name));
  }
  std::vector<float> values(tensor.elements());
  dequantize(tensor.data, static_cast<int64_t>(tensor.elements()) / info.block, values.data());
  vectors_.emplace(id, std::move(values));
  return {};
}

const kernels::PackedMatrix* Weights::matrix(TensorId id) const {
  if (id == plan::kNone) return nullptr;
  const auto it = matrices_.find(id);
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
