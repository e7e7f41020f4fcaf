// Ops whose memory is a state: the last rows that a recurrent operation has seen.
//
// A pass reads the state as the last pass left it and writes the next one beside it; commit makes
// that the current one. So a row's result depends on the rows before it alone, wherever the passes
// are cut: a tap that reaches past the first row of the pass finds in the state what it would have
// found in the pass.
#include "backend/cpu/bound_op.h"

#include <cmath>
#include <cstring>

namespace culet::backend {
namespace {

using plan::OpKind;

// The rows of one sequence behind the rows that its state has kept.
struct History {
  const float* kept;  // [n_kept, width], oldest first
  const float* rows;  // [., width]
  int64_t n_kept, width;

  // Row t of the sequence; t >= -n_kept.
  const float* at(int64_t t) const {
    return t >= 0 ? rows + t * width : kept + (t + n_kept) * width;
  }
};

// y[c] = sum over taps j ascending of w[c][j] * x[row - (taps - 1) + j][c], each a fused
// multiply-add from 0. fma() is one rounding on every machine.
void convolve(const History& x, const float* w, int64_t taps, int64_t row, float* y) {
  for (int64_t c = 0; c < x.width; ++c) {
    float sum = 0;
    for (int64_t j = 0; j < taps; ++j) {
      sum = std::fma(w[c * taps + j], x.at(row - (taps - 1) + j)[c], sum);
    }
    y[c] = sum;
  }
}

void run_short_conv(const BoundOp& op, Step& step) {
  constexpr int64_t kFmaCost = 4;  // a fused multiply-add against a float of an elementwise op
  const int64_t width = op.in[0].width, taps = op.vector_sizes[0] / width;
  const float* x = step.floats(op.in[0]);
  float* y = step.floats(op.out[0]);
  const SequenceRows* sequences = step.sequences[static_cast<int>(op.in[0].rows)];
  for (size_t s = 0; s < step.batch.size(); ++s) {
    cache::StateCache& state =
        step.batch[s].caches->state(op.attr.as<plan::ShortConvAttributes>().state);
    const auto [first_row, rows] = sequences[s];
    const History history{state.current(), x + first_row * width, taps - 1, width};
    float* out = y + first_row * width;
    for_rows(step, rows, width * taps * kFmaCost, [&](int64_t first, int64_t end, int) {
      for (int64_t r = first; r < end; ++r)
        convolve(history, op.vectors[0], taps, r, out + r * width);
    });
    for (int64_t i = 0; i < history.n_kept; ++i) {
      std::memcpy(state.next() + i * width, history.at(rows - history.n_kept + i),
                  static_cast<size_t>(width) * sizeof(float));
    }
  }
}

Result<void> bind_short_conv(const Binder& b, const plan::Op& op, BoundOp* out) {
  const auto index = static_cast<size_t>(op.attr.as<plan::ShortConvAttributes>().state);
  CULET_CHECK(index < b.plan.states.size());
  const plan::StateSpec& state = b.plan.states[index];
  const Slot& in = out->in[0];
  CULET_CHECK(state.width == in.width && out->out[0].width == in.width);
  CULET_CHECK(out->vector_sizes[0] == int64_t{state.rows + 1} * in.width);
  CULET_CHECK(in.rows == plan::TokenSet::kAll && out->out[0].rows == plan::TokenSet::kAll);
  CULET_CHECK(in.offset != out->out[0].offset);  // later rows read the input again
  out->fn = run_short_conv;
  return {};
}

constexpr OpEntry kMemoryOps[] = {{OpKind::short_conv, bind_short_conv, nullptr}};

}  // namespace

std::span<const OpEntry> memory_ops() { return kMemoryOps; }

}  // namespace culet::backend
