// Takes a tile of rows and groups, gives its products, from packed weights or from the file's rows.
#include "backend/cpu/products.h"

#include "kernels/packing.h"

#include <algorithm>

namespace culet::backend {
namespace {

using kernels::PackedMatrix;
using plan::Form;

constexpr int64_t kPackedGroups = 2;  // packed at once where weights stay mapped

void multiply_groups(const Product& p, const PackedMatrix& w, const Input& in, const Tile& t,
                     int64_t group0, int64_t group1, float* out, int64_t stride) {
  if (p.q != nullptr) {
    p.q(&w, &in.quantized, t.row0, t.row1, group0, group1, out, stride);
  } else {
    p.f(&w, in.floats, in.stride, t.row0, t.row1, group0, group1, out, stride);
  }
}

// Scratch that packs groups of a tensor; 64 readable bytes follow them.
int64_t pack_bytes(const format::TensorInfo& tensor) {
  const auto group = static_cast<int64_t>(
      kernels::packed_group_bytes(tensor.type, static_cast<int64_t>(tensor.dims[0])));
  return kPackedGroups * ((group + 63) / 64 * 64) + 64;
}

}  // namespace

Input input(const Step& step, const Slot& slot) {
  Input in;
  if (slot.form == Form::kQuantized) {
    in.quantized = step.quantized(slot);
  } else {
    in.floats = step.floats(slot);
    in.stride = slot.width;
  }
  return in;
}

void multiply_tile(const Product& p, const Input& in, const Tile& t, uint8_t* pack_buffer,
                   float* out, int64_t stride) {
  if (p.source == nullptr) {
    multiply_groups(p, p.w, in, t, t.group0, t.group1, out, stride);
    return;
  }
  for (int64_t g = t.group0; g < t.group1; g += kPackedGroups) {
    const int64_t count = std::min(kPackedGroups, t.group1 - g);
    const int64_t n = std::min(count * 16, p.w.n - g * 16);
    kernels::pack_groups(static_cast<quant::TensorType>(p.w.type), p.source + g * 16 * p.row_bytes,
                         n, p.w.k, 0, count, pack_buffer);
    const PackedMatrix w{p.w.type, n, p.w.k, p.w.group_bytes, pack_buffer};
    multiply_groups(p, w, in, t, 0, count, out + (g - t.group0) * 16, stride);
  }
}

Result<Product> bind_product(const Binder& b, const plan::Op& op, const Slot& in, size_t weight,
                             size_t bias) {
  const bool halves = reads_halves(op.kind, weight);
  const PackedMatrix* w = b.weights.matrix(op.weights[weight], halves);
  CULET_CHECK(w != nullptr && w->k == in.width);
  const format::TensorInfo& tensor = b.tensor(op.weights[weight]);
  Product p;
  p.w = *w;
  p.count = static_cast<int64_t>(tensor.dims[2]) * (halves ? 2 : 1);
  p.source = b.weights.source(op.weights[weight]);
  if (p.source != nullptr) {
    const quant::TypeInfo& type = quant::type_info(tensor.type);
    p.row_bytes = p.w.k / type.block * type.block_bytes;
    p.pack_bytes = pack_bytes(tensor);
  }
  if (bias < op.weights.size()) p.bias = b.weights.vector(op.weights[bias]);
  CULET_CHECK(p.bias == nullptr || b.weights.vector_size(op.weights[bias]) == p.w.n);
  if (in.form == Form::kQuantized) {
    p.q = b.kernels.matmul_q[p.w.type];
  } else {
    p.f = b.kernels.matmul_f[p.w.type];
  }
  if (p.q == nullptr && p.f == nullptr) {
    return unsupported(b.plan, op,
                       std::string("products of ") +
                           (in.form == Form::kQuantized ? "int8" : "float") +
                           " rows with tensor '" + std::string(tensor.name) + "' of type " +
                           std::string(quant::type_info(tensor.type).name));
  }
  return p;
}

Product matrix_of(const Product& all, int64_t index) {
  CULET_CHECK(index >= 0 && index < all.count);
  Product p = all;
  if (p.source != nullptr) {
    p.source += index * p.w.n * p.row_bytes;
  } else {
    p.w.data += index * groups_of(p.w) * p.w.group_bytes;
  }
  return p;
}

int64_t pack_scratch(const Binder& b, const plan::Op& op, int64_t) {
  int64_t most = 0;
  for (size_t i = 0; !b.repack && i < op.weights.size(); ++i) {
    if (weight_role(op.kind, i) == WeightRole::kProduct && op.weights[i] != plan::kNone) {
      most = std::max(most, pack_bytes(b.tensor(op.weights[i])));
    }
  }
  return most;
}

}  // namespace culet::backend
