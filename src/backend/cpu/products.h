// Products of activation rows with packed or mapped weights: what linear and experts share.
//
// A tile is some rows times some groups of 16 outputs; a worker computes it alone. Weights that
// were not repacked are packed two groups at a time into a buffer of the worker's scratch, and
// multiplied at once: the same blocks in the same order, hence the same bits.
#pragma once

#include "backend/cpu/bound_op.h"

#include <cstdint>

namespace culet::backend {

constexpr int64_t kInlineBytes = 24 << 10;  // weight bytes times passes over them
constexpr int64_t kChunkBytes = 64 << 10;   // packed weights of a task, so that they stay near
constexpr int64_t kTasksPerThread = 6;
constexpr int64_t kTileGroups = 16;  // groups of a task at most: sizes the scratch tile

inline int64_t groups_of(const kernels::PackedMatrix& w) { return (w.n + 15) / 16; }

// Rows in the form that a product takes: one of the two.
struct Input {
  kernels::QuantRows quantized{};
  const float* floats = nullptr;
  int64_t stride = 0;
};

Input input(const Step& step, const Slot& slot);

// Columns of groups [group0, group1) of product `p`, rows [row0, row1).
struct Tile {
  size_t p;
  int64_t row0, row1, group0, group1;
};

// x * W^T of a tile, without the bias; out points at the tile's first row and column. pack_buffer
// has p.pack_bytes.
void multiply_tile(const Product& p, const Input& in, const Tile& t, uint8_t* pack_buffer,
                   float* out, int64_t stride);

// The op's weights `weight` and `bias` (past the last: none) as a product of rows like `in`.
// kUnsupported: no kernel for this type and form.
Result<Product> bind_product(const Binder& b, const plan::Op& op, const Slot& in, size_t weight,
                             size_t bias);
// Matrix `index` of a product that has several.
Product matrix_of(const Product& all, int64_t index);
// Of a worker's scratch: the largest pack buffer that the op's products need.
int64_t pack_scratch(const Binder& b, const plan::Op& op, int64_t rows);

}  // namespace culet::backend
