// Products of activations with packed weights: linear, gated_linear, linear_add.
//
// A task is a chunk of groups (16 outputs each) times a block of rows: its weights are read once
// and stay in the near caches while the rows stream past. Chunks are small enough that the last
// ones even out the threads. What a task computes is its own columns of its own rows, so neither
// the cut nor the threads can change a bit.
//
// The fused ops put the products of a chunk into a worker's tile and run the elementwise kernels of
// the unfused ops over it, in the same order and with the same roundings. Neighboring linear ops of
// one input (q, k, v) are one list of products and one parallel region.
//
// Weights that were not repacked are packed two groups at a time into the beginning of the worker's
// scratch, and multiplied at once: the same blocks in the same order, hence the same bits.
#include "backend/cpu/bound_op.h"
#include "kernels/packing.h"

#include <algorithm>

namespace culet::backend {
namespace {

using kernels::PackedMatrix;
using plan::Form;

constexpr int64_t kInlineBytes = 24 << 10;  // weight bytes times passes over them
constexpr int64_t kTileRows = 256;          // rows of a task at most
constexpr int64_t kChunkBytes = 64 << 10;   // packed weights of a task, so that they stay near
constexpr int64_t kTasksPerThread = 6;
constexpr int64_t kTileGroups = 16;   // groups of a task at most: sizes the scratch tile
constexpr int64_t kPackedGroups = 2;  // packed at once where weights stay mapped

int64_t groups_of(const PackedMatrix& w) { return (w.n + 15) / 16; }

// How products over `rows` rows are cut. Chunks have an even number of groups: kernels take two at
// a time.
struct Cut {
  int64_t groups;  // of a chunk
  int64_t row_block;
  int64_t row_blocks;
  bool inline_run;  // too little work to wake anybody
};

Cut cut(const Step& step, std::span<const Product> tiled, int64_t bytes_factor, int64_t rows) {
  int64_t bytes = 0, groups = 0, group_bytes = 1;
  for (const Product& p : tiled) {
    bytes += p.w->group_bytes * groups_of(*p.w) * bytes_factor;
    groups += groups_of(*p.w);
    group_bytes = std::max(group_bytes, p.w->group_bytes * bytes_factor);
  }
  const int64_t threads = step.pool->size();
  const int64_t near = std::max<int64_t>(1, kChunkBytes / group_bytes);
  const int64_t even = std::max<int64_t>(1, groups / (threads * kTasksPerThread));
  Cut c{};
  c.groups = std::min({(std::min(near, even) + 1) / 2 * 2, kTileGroups});
  c.row_block = std::min(rows, kTileRows);
  if (threads > 1 && rows >= 32 && groups / c.groups < 3 * threads) {
    c.row_block =
        std::min(c.row_block, std::max<int64_t>(16, (rows / (2 * threads) + 15) / 16 * 16));
  }
  c.row_blocks = (rows + c.row_block - 1) / c.row_block;
  c.inline_run = threads == 1 || bytes * ((rows + 3) / 4) < kInlineBytes;
  return c;
}

// One task: columns of groups [group0, group1) of product `p`, rows [row0, row1).
struct Tile {
  size_t p;
  int64_t row0, row1, group0, group1;
};

// Calls fn(tile, worker) for every tile of the products. Row blocks of one chunk follow each other,
// so that they find its weights near. `factor`: matrices of that size a tile multiplies by.
template <class F>
void for_tiles(const Step& step, std::span<const Product> products, int64_t factor, int64_t rows,
               F&& fn) {
  const Cut c = cut(step, products, factor, rows);
  const auto chunks_of = [&](const Product& p) {
    return (groups_of(*p.w) + c.groups - 1) / c.groups;
  };
  int64_t chunks = 0;
  for (const Product& p : products) chunks += chunks_of(p);
  const auto task = [&](int64_t t, int worker) {
    int64_t chunk = t / c.row_blocks;
    size_t p = 0;
    for (; chunk >= chunks_of(products[p]); ++p) chunk -= chunks_of(products[p]);
    Tile tile{};
    tile.p = p;
    tile.row0 = t % c.row_blocks * c.row_block;
    tile.row1 = std::min(rows, tile.row0 + c.row_block);
    tile.group0 = chunk * c.groups;
    tile.group1 = std::min(groups_of(*products[p].w), tile.group0 + c.groups);
    fn(tile, worker);
  };
  const int64_t tasks = chunks * c.row_blocks;
  if (c.inline_run) {
    for (int64_t t = 0; t < tasks; ++t) task(t, 0);
  } else {
    step.pool->run(tasks, task);
  }
}

// The input in the form that the products take.
struct Input {
  kernels::QuantRows quantized{};
  const float* floats = nullptr;
  int64_t stride = 0;
};

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

void add_bias(const Step& step, const float* bias, int64_t column, int64_t columns, int64_t rows,
              float* x, int64_t stride) {
  if (bias == nullptr) return;
  for (int64_t r = 0; r < rows; ++r) {
    float* row = x + r * stride;
    step.k->binary(kernels::kAdd, row, bias + column, columns, row);
  }
}

void multiply_groups(const Product& p, const PackedMatrix& w, const Input& in, const Tile& t,
                     int64_t group0, int64_t group1, float* out, int64_t stride) {
  if (p.q != nullptr) {
    p.q(&w, &in.quantized, t.row0, t.row1, group0, group1, out, stride);
  } else {
    p.f(&w, in.floats, in.stride, t.row0, t.row1, group0, group1, out, stride);
  }
}

// The groups of a tile from the source, as matrices of two groups.
void multiply_mapped(const Product& p, const Input& in, const Tile& t, uint8_t* buffer, float* out,
                     int64_t stride) {
  for (int64_t g = t.group0; g < t.group1; g += kPackedGroups) {
    const int64_t count = std::min(kPackedGroups, t.group1 - g);
    const int64_t n = std::min(count * 16, p.w->n - g * 16);
    kernels::pack_groups(static_cast<quant::TensorType>(p.w->type), p.source + g * 16 * p.row_bytes,
                         n, p.w->k, 0, count, buffer);
    const PackedMatrix w{p.w->type, n, p.w->k, p.w->group_bytes, buffer};
    multiply_groups(p, w, in, t, 0, count, out + (g - t.group0) * 16, stride);
  }
}

// x * W^T + bias of a tile; out points at the tile's first row and column. Returns its columns.
int64_t multiply(const Step& step, const Product& p, const Input& in, const Tile& t, int worker,
                 float* out, int64_t stride) {
  if (p.source != nullptr) {
    multiply_mapped(p, in, t, reinterpret_cast<uint8_t*>(step.worker_scratch(worker)), out, stride);
  } else {
    multiply_groups(p, *p.w, in, t, t.group0, t.group1, out, stride);
  }
  const int64_t column = t.group0 * 16;
  const int64_t columns = std::min(p.w->n, t.group1 * 16) - column;
  add_bias(step, p.bias, column, columns, t.row1 - t.row0, out, stride);
  return columns;
}

// A worker's tile: behind what packs.
float* tile_of(const BoundOp& op, const Step& step, int worker) {
  int64_t behind = 0;
  for (const Product& p : op.products) behind = std::max(behind, p.pack_bytes);
  return step.worker_scratch(worker) + behind / static_cast<int64_t>(sizeof(float));
}

void run_linear(const BoundOp& op, Step& step) {
  const int64_t rows = step.count(op.in[0]);
  if (rows == 0) return;
  const Input in = input(step, op.in[0]);
  for_tiles(step, op.products, 1, rows, [&](const Tile& t, int worker) {
    const Product& p = op.products[t.p];
    multiply(step, p, in, t, worker, step.floats(p.out) + t.row0 * p.w->n + t.group0 * 16, p.w->n);
  });
}

void run_gated(const BoundOp& op, Step& step) {
  const int64_t rows = step.count(op.in[0]);
  if (rows == 0) return;
  const Input in = input(step, op.in[0]);
  const int64_t width = op.out[0].width;
  const auto activation = static_cast<int>(op.attr.activation) - 1;  // kNone comes first
  float* out = step.floats(op.out[0]);
  for_tiles(step, std::span(op.products).first(1), 2, rows, [&](const Tile& t, int worker) {
    float* gate = out + t.row0 * width + t.group0 * 16;
    float* up = tile_of(op, step, worker);
    const int64_t stride = (t.group1 - t.group0) * 16;
    const int64_t columns = multiply(step, op.products[0], in, t, worker, gate, width);
    multiply(step, op.products[1], in, t, worker, up, stride);
    for (int64_t r = 0; r < t.row1 - t.row0; ++r) {
      float* row = gate + r * width;
      if (activation >= 0)
        step.k->unary(static_cast<kernels::Unary>(activation), row, columns, row);
      step.k->binary(kernels::kMul, row, up + r * stride, columns, row);
    }
  });
}

void run_linear_add(const BoundOp& op, Step& step) {
  const int64_t rows = step.count(op.in[1]);
  if (rows == 0) return;
  const Input in = input(step, op.in[1]);
  const int64_t width = op.out[0].width;
  const float* residual = step.floats(op.in[0]);
  float* out = step.floats(op.out[0]);
  for_tiles(step, op.products, 1, rows, [&](const Tile& t, int worker) {
    float* tile = tile_of(op, step, worker);
    const int64_t stride = (t.group1 - t.group0) * 16;
    const int64_t columns = multiply(step, op.products[0], in, t, worker, tile, stride);
    for (int64_t r = 0; r < t.row1 - t.row0; ++r) {
      const int64_t at = (t.row0 + r) * width + t.group0 * 16;
      step.k->binary(kernels::kAdd, residual + at, tile + r * stride, columns, out + at);
    }
  });
}

// ---------------------------------------------------------------- binding

// Scratch that packs groups of a tensor; 64 readable bytes follow them.
int64_t pack_bytes(const format::TensorInfo& tensor) {
  const auto group = static_cast<int64_t>(
      kernels::packed_group_bytes(tensor.type, static_cast<int64_t>(tensor.dims[0])));
  return kPackedGroups * ((group + 63) / 64 * 64) + 64;
}

Result<Product> product(const Binder& b, const plan::Op& op, const Slot& in, size_t weight,
                        size_t bias) {
  Product p;
  p.w = b.weights.matrix(op.weights[weight]);
  p.source = b.weights.source(op.weights[weight]);
  if (p.source != nullptr) {
    const format::TensorInfo& tensor = b.tensor(op.weights[weight]);
    const quant::TypeInfo& type = quant::type_info(tensor.type);
    p.row_bytes = p.w->k / type.block * type.block_bytes;
    p.pack_bytes = pack_bytes(tensor);
  }
  if (bias < op.weights.size()) p.bias = b.weights.vector(op.weights[bias]);
  CULET_CHECK(p.w != nullptr && p.w->k == in.width);
  CULET_CHECK(p.bias == nullptr || b.weights.vector_size(op.weights[bias]) == p.w->n);
  if (in.form == Form::kQuantized) {
    p.q = b.kernels.matmul_q[p.w->type];
  } else {
    p.f = b.kernels.matmul_f[p.w->type];
  }
  if (p.q == nullptr && p.f == nullptr) {
    const format::TensorInfo& tensor = b.tensor(op.weights[weight]);
    return unsupported(b.plan, op,
                       std::string("products of ") +
                           (in.form == Form::kQuantized ? "int8" : "float") +
                           " rows with tensor '" + std::string(tensor.name) + "' of type " +
                           std::string(quant::type_info(tensor.type).name));
  }
  return p;
}

Result<void> bind_linear(const Binder& b, const plan::Op& op, BoundOp* out) {
  CULET_TRY(Product p, product(b, op, out->in[0], 0, 1));
  p.out = out->out[0];
  CULET_CHECK(p.w->n == p.out.width);
  out->products = {p};
  out->fn = run_linear;
  return {};
}

Result<void> bind_gated(const Binder& b, const plan::Op& op, BoundOp* out) {
  CULET_TRY(const Product gate, product(b, op, out->in[0], 0, 2));
  CULET_TRY(const Product up, product(b, op, out->in[0], 1, 3));
  CULET_CHECK(gate.w->n == out->out[0].width && up.w->n == gate.w->n);
  out->products = {gate, up};
  out->fn = run_gated;
  return {};
}

Result<void> bind_linear_add(const Binder& b, const plan::Op& op, BoundOp* out) {
  CULET_TRY(const Product p, product(b, op, out->in[1], 0, 1));
  CULET_CHECK(p.w->n == out->out[0].width && out->in[0].width == p.w->n);
  CULET_CHECK(out->in[0].rows == out->in[1].rows);
  out->products = {p};
  out->fn = run_linear_add;
  return {};
}

int64_t linear_scratch(const Binder& b, const plan::Op& op, int64_t) {
  int64_t most = 0;
  for (size_t i = 0; !b.repack && i < op.weights.size(); ++i) {
    if (weight_role(op.kind, i) == WeightRole::kProduct && op.weights[i] != plan::kNone) {
      most = std::max(most, pack_bytes(b.tensor(op.weights[i])));
    }
  }
  return most;
}

int64_t tile_scratch(const Binder& b, const plan::Op& op, int64_t rows) {
  return linear_scratch(b, op, rows) +
         std::min(rows, kTileRows) * kTileGroups * 16 * static_cast<int64_t>(sizeof(float));
}

constexpr OpEntry kOps[] = {
    {plan::OpKind::linear, bind_linear, linear_scratch},
    {plan::OpKind::gated_linear, bind_gated, tile_scratch},
    {plan::OpKind::linear_add, bind_linear_add, tile_scratch},
};

bool same_slot(const Slot& a, const Slot& b) {
  return a.offset == b.offset && a.rows == b.rows && a.form == b.form && a.width == b.width;
}

}  // namespace

std::span<const OpEntry> linear_ops() { return kOps; }

bool can_join(const BoundOp& run, const BoundOp& next) {
  return run.fn == run_linear && next.fn == run_linear && same_slot(run.in[0], next.in[0]);
}

}  // namespace culet::backend
