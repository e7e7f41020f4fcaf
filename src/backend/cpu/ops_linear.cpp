// Products of activations with packed weights: linear, gated_linear, linear_add, grouped_linear.
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
// Weights that were not repacked are packed at the beginning of the worker's scratch (products.h).
#include "backend/cpu/products.h"

#include <algorithm>

namespace culet::backend {
namespace {

constexpr int64_t kTileRows = 256;  // rows of a task at most

// How products over `rows` rows are cut. Chunks have an even number of groups: kernels take two at
// a time.
struct TileCut {
  int64_t groups;  // of a chunk
  int64_t row_block;
  int64_t row_blocks;
  bool inline_run;  // too little work to wake anybody
};

TileCut cut(const Step& step, std::span<const Product> tiled, int64_t bytes_factor, int64_t rows) {
  int64_t bytes = 0, groups = 0, group_bytes = 1;
  for (const Product& p : tiled) {
    bytes += p.w.group_bytes * groups_of(p.w) * bytes_factor;
    groups += groups_of(p.w);
    group_bytes = std::max(group_bytes, p.w.group_bytes * bytes_factor);
  }
  const int64_t threads = step.pool->size();
  const int64_t near = std::max<int64_t>(1, kChunkBytes / group_bytes);
  const int64_t even = std::max<int64_t>(1, groups / (threads * kTasksPerThread));
  TileCut c{};
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

// Calls fn(tile, worker) for every tile of the products. Row blocks of one chunk follow each other,
// so that they find its weights near. `factor`: matrices of that size a tile multiplies by.
template <class F>
void for_tiles(const Step& step, std::span<const Product> products, int64_t factor, int64_t rows,
               F&& fn) {
  const TileCut c = cut(step, products, factor, rows);
  const auto chunks_of = [&](const Product& p) {
    return (groups_of(p.w) + c.groups - 1) / c.groups;
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
    tile.group1 = std::min(groups_of(products[p].w), tile.group0 + c.groups);
    fn(tile, worker);
  };
  const int64_t tasks = chunks * c.row_blocks;
  if (c.inline_run) {
    for (int64_t t = 0; t < tasks; ++t) task(t, 0);
  } else {
    step.pool->run(tasks, task);
  }
}

void add_bias(const Step& step, const float* bias, int64_t column, int64_t columns, int64_t rows,
              float* x, int64_t stride) {
  if (bias == nullptr) return;
  for (int64_t r = 0; r < rows; ++r) {
    float* row = x + r * stride;
    step.k->binary(kernels::kAdd, row, bias + column, columns, row);
  }
}

// x * W^T + bias of a tile; out points at the tile's first row and column. Returns its columns.
int64_t multiply(const Step& step, const Product& p, const Input& in, const Tile& t, int worker,
                 float* out, int64_t stride) {
  multiply_tile(p, in, t, reinterpret_cast<uint8_t*>(step.worker_scratch(worker)), out, stride);
  const int64_t column = t.group0 * 16;
  const int64_t columns = std::min(p.w.n, t.group1 * 16) - column;
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
    multiply(step, p, in, t, worker, step.floats(p.out) + t.row0 * p.w.n + t.group0 * 16, p.w.n);
  });
}

void run_gated(const BoundOp& op, Step& step) {
  const int64_t rows = step.count(op.in[0]);
  if (rows == 0) return;
  const Input in = input(step, op.in[0]);
  const int64_t width = op.out[0].width;
  const auto activation = static_cast<int>(op.attr.as<plan::ActivationAttributes>().activation) -
                          1;  // kNone comes first
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

// Each matrix is a product of its own columns of the input, or all are of the same ones.
void run_grouped(const BoundOp& op, Step& step) {
  const Slot& in = op.in[0];
  const int64_t rows = step.count(in);
  if (rows == 0) return;
  const kernels::PackedMatrix& w = op.products[0].w;
  const int64_t stride = op.out[0].width, next = in.width == w.k ? 0 : w.k;
  const float* x = step.floats(in);
  float* out = step.floats(op.out[0]);
  for_tiles(step, op.products, 1, rows, [&](const Tile& t, int worker) {
    const auto matrix = static_cast<int64_t>(t.p);
    Input columns;
    columns.floats = x + matrix * next;
    columns.stride = in.width;
    multiply(step, op.products[t.p], columns, t, worker,
             out + t.row0 * stride + matrix * w.n + t.group0 * 16, stride);
  });
}

// ---------------------------------------------------------------- binding

Result<void> bind_linear(const Binder& b, const plan::Op& op, BoundOp* out) {
  CULET_TRY(Product p, bind_product(b, op, out->in[0], 0, 1));
  p.out = out->out[0];
  CULET_CHECK(p.w.n == p.out.width);
  out->products = {p};
  out->fn = run_linear;
  return {};
}

Result<void> bind_gated(const Binder& b, const plan::Op& op, BoundOp* out) {
  CULET_TRY(const Product gate, bind_product(b, op, out->in[0], 0, 2));
  CULET_TRY(const Product up, bind_product(b, op, out->in[0], 1, 3));
  CULET_CHECK(gate.w.n == out->out[0].width && up.w.n == gate.w.n);
  out->products = {gate, up};
  out->fn = run_gated;
  return {};
}

Result<void> bind_linear_add(const Binder& b, const plan::Op& op, BoundOp* out) {
  CULET_TRY(const Product p, bind_product(b, op, out->in[1], 0, 1));
  CULET_CHECK(p.w.n == out->out[0].width && out->in[0].width == p.w.n);
  CULET_CHECK(out->in[0].rows == out->in[1].rows);
  out->products = {p};
  out->fn = run_linear_add;
  return {};
}

Result<void> bind_grouped(const Binder& b, const plan::Op& op, BoundOp* out) {
  Slot one = out->in[0];
  one.width = static_cast<int32_t>(b.tensor(op.weights[0]).dims[0]);
  CULET_TRY(const Product all, bind_product(b, op, one, 0, op.weights.size()));
  CULET_CHECK(all.f != nullptr && out->out[0].width == all.count * all.w.n);
  CULET_CHECK(out->in[0].width == all.w.k || out->in[0].width == all.count * all.w.k);
  for (int64_t i = 0; i < all.count; ++i) out->products.push_back(matrix_of(all, i));
  out->fn = run_grouped;
  return {};
}

int64_t tile_scratch(const Binder& b, const plan::Op& op, int64_t rows) {
  return pack_scratch(b, op, rows) +
         std::min(rows, kTileRows) * kTileGroups * 16 * static_cast<int64_t>(sizeof(float));
}

constexpr OpEntry kLinearOps[] = {
    {plan::OpKind::linear, bind_linear, pack_scratch},
    {plan::OpKind::gated_linear, bind_gated, tile_scratch},
    {plan::OpKind::linear_add, bind_linear_add, tile_scratch},
    {plan::OpKind::grouped_linear, bind_grouped, pack_scratch},
};

bool same_slot(const Slot& a, const Slot& b) {
  return a.offset == b.offset && a.rows == b.rows && a.form == b.form && a.width == b.width;
}

}  // namespace

std::span<const OpEntry> linear_ops() { return kLinearOps; }

bool can_join(const BoundOp& run, const BoundOp& next) {
  return run.fn == run_linear && next.fn == run_linear && same_slot(run.in[0], next.in[0]);
}

}  // namespace culet::backend
