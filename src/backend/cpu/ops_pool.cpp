// pool: one row of each sequence, out of the rows of its tokens.
//
// Takes a sequence's rows, which are all of its sequence, gives the row that the pass wants of it;
// nothing of a sequence of which none is wanted. A mean sums every column in 16 virtual lanes, row
// r in lane r % 16, like every other sum over an axis. A task is a block of columns of one
// sequence.
#include "backend/cpu/bound_op.h"

#include <algorithm>
#include <cstring>

namespace culet::backend {
namespace {

constexpr int64_t kColumns = 64;  // of a task: lanes of them stay near
constexpr int kAll = static_cast<int>(plan::TokenSet::kAll);
constexpr int kOutputs = static_cast<int>(plan::TokenSet::kOutputs);

// y[c] = mean of x[r][c] over `rows` rows of `width` floats, `columns` of them at most kColumns.
void mean_of_rows(const float* x, int64_t rows, int64_t width, int64_t columns, float* y) {
  float lanes[16][kColumns] = {};
  for (int64_t r = 0; r < rows; ++r) {
    float* lane = lanes[r % 16];
    for (int64_t c = 0; c < columns; ++c) lane[c] += x[r * width + c];
  }
  for (int half = 8; half > 0; half /= 2) {
    for (int j = 0; j < half; ++j) {
      for (int64_t c = 0; c < columns; ++c) lanes[j][c] += lanes[j + half][c];
    }
  }
  for (int64_t c = 0; c < columns; ++c) y[c] = lanes[0][c] / static_cast<float>(rows);
}

void pool_columns(const BoundOp& op, const Step& step, size_t sequence, int64_t block) {
  const SequenceRows rows = step.sequences[kAll][sequence],
                     wanted = step.sequences[kOutputs][sequence];
  if (wanted.count == 0) return;
  CULET_CHECK(wanted.count == 1 && rows.count > 0);
  const int64_t width = op.in[0].width, first = block * kColumns;
  const int64_t columns = std::min(kColumns, width - first);
  const float* x = step.floats(op.in[0]) + rows.first * width + first;
  float* y = step.floats(op.out[0]) + wanted.first * width + first;
  if (op.attr.as<plan::PoolAttributes>().mean) {
    mean_of_rows(x, rows.count, width, columns, y);
  } else {
    std::memcpy(y, x, static_cast<size_t>(columns) * sizeof(float));
  }
}

void run_pool(const BoundOp& op, Step& step) {
  const int64_t blocks = (op.in[0].width + kColumns - 1) / kColumns;
  const auto sequences = static_cast<int64_t>(step.batch.size());
  if (sequences == 0 || step.count(op.out[0]) == 0) return;
  const int64_t rows =
      op.attr.as<plan::PoolAttributes>().mean ? step.count(op.in[0]) / sequences : 1;  // on average
  for_rows(step, sequences * blocks, rows * kColumns, [&](int64_t first, int64_t end, int) {
    for (int64_t task = first; task < end; ++task)
      pool_columns(op, step, static_cast<size_t>(task / blocks), task % blocks);
  });
}

Result<void> bind_pool(const Binder&, const plan::Op&, BoundOp* out) {
  const Slot &in = out->in[0], &one = out->out[0];
  CULET_CHECK(in.rows == plan::TokenSet::kAll && one.rows == plan::TokenSet::kOutputs);
  CULET_CHECK(in.width == one.width);
  out->fn = run_pool;
  return {};
}

constexpr OpEntry kPoolOps[] = {{plan::OpKind::pool, bind_pool, nullptr}};

}  // namespace

std::span<const OpEntry> pool_ops() { return kPoolOps; }

}  // namespace culet::backend
