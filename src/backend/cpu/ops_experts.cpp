// Mixtures of experts: route picks experts for each row, experts runs their gated products.
//
// A pass of experts sorts its (row, expert) pairs by expert: slots. Every expert then multiplies
// all rows that chose it at once, gathered side by side, so that its weights are read once a pass
// and nobody else's are touched.
//
//   1. a task is a block of an expert's slots times a chunk of hidden columns: gate, activation, up
//   2. where down has integer weights, the hidden rows of all slots become int8, each by itself
//   3. a task is a chunk of output columns; it walks the experts in ascending order, multiplies
//      into a tile and adds the tile's rows to the rows that chose the expert
//
// So a row's sum is acc = fma(weight, y, acc) in ascending order of the experts, from 0, whatever
// the other rows chose; and no result of an expert is kept longer than its tile.
#include "backend/cpu/products.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

namespace culet::backend {
namespace {

using plan::Form;
using plan::OpKind;

// ---------------------------------------------------------------- route

constexpr float kLeastSum = 6.103515625e-05f;  // of weights that are made to sum to 1
constexpr int64_t kScoreCost = 64;  // an expert's score against a float of an elementwise op

// The `top` largest of n keys, then in ascending order. Of equal ones the lower index goes first. A
// NaN counts as the largest, so that it is chosen and reaches the output.
void choose(const float* keys, int64_t n, int64_t top, int32_t* order) {
  std::iota(order, order + n, 0);
  std::partial_sort(order, order + top, order + n, [keys](int32_t a, int32_t b) {
    const bool nan_a = std::isnan(keys[a]), nan_b = std::isnan(keys[b]);
    if (nan_a != nan_b) return nan_a;
    if (!nan_a && keys[a] != keys[b]) return keys[a] > keys[b];
    return a < b;
  });
  std::sort(order, order + top);
}

// (index, weight) of the chosen experts.
void weigh(const plan::RouteAttributes& attr, const float* scores, const int32_t* chosen,
           float* out) {
  float sum = 0;
  for (int32_t i = 0; i < attr.top; ++i) sum += scores[chosen[i]];
  if (sum < kLeastSum) sum = kLeastSum;
  for (int32_t i = 0; i < attr.top; ++i) {
    const float score = scores[chosen[i]];
    out[2 * i] = static_cast<float>(chosen[i]);
    out[2 * i + 1] = (attr.renormalise ? score / sum : score) * attr.scale;
  }
}

void run_route(const BoundOp& op, Step& step) {
  const auto& attr = op.attr.as<plan::RouteAttributes>();
  const int64_t n = op.in[0].width, top = attr.top;
  const float* x = step.floats(op.in[0]);
  float* out = step.floats(op.out[0]);
  for_rows(step, step.count(op.in[0]), n * kScoreCost, [&](int64_t first, int64_t end, int worker) {
    float* scores = step.worker_scratch(worker);
    float* biased = scores + n;
    auto* order = reinterpret_cast<int32_t*>(biased + n);
    for (int64_t r = first; r < end; ++r) {
      if (attr.sigmoid) {
        step.k->unary(kernels::kSigmoid, x + r * n, n, scores);
      } else {
        softmax(*step.k, x + r * n, n, scores);
      }
      const float* bias = op.vectors[0];
      if (bias != nullptr) step.k->binary(kernels::kAdd, scores, bias, n, biased);
      choose(bias != nullptr ? biased : scores, n, top, order);
      weigh(attr, scores, order, out + r * 2 * top);
    }
  });
}

Result<void> bind_route(const Binder&, const plan::Op& op, BoundOp* out) {
  const int64_t n = out->in[0].width;
  const int32_t top = op.attr.as<plan::RouteAttributes>().top;
  CULET_CHECK(top >= 1 && top <= n && out->out[0].width == 2 * top);
  out->vectors.resize(1, nullptr);
  CULET_CHECK(out->vectors[0] == nullptr || out->vector_sizes[0] == n);
  out->fn = run_route;
  return {};
}

int64_t route_scratch(const Binder& b, const plan::Op& op, int64_t) {
  return int64_t{b.slot(op.in[0]).width} * 3 * static_cast<int64_t>(sizeof(float));
}

// ---------------------------------------------------------------- experts

constexpr int64_t kBlockRows = 64;  // slots that are multiplied at once

enum { kGate, kUp, kDown };  // products of the op

int64_t round64(int64_t n) { return (n + 63) / 64 * 64; }

int64_t quant_bytes(int64_t rows, int64_t k) {
  return round64(rows * k) + round64(rows * (k / 32) * 4) + round64(rows * (k / 16) * 2);
}

kernels::QuantRows quant_rows(uint8_t* at, int64_t rows, int64_t k) {
  uint8_t* d = at + round64(rows * k);
  return {reinterpret_cast<int8_t*>(at), reinterpret_cast<float*>(d),
          reinterpret_cast<int16_t*>(d + round64(rows * (k / 32) * 4)), k};
}

// Slots [first, end) of one expert.
struct Block {
  int32_t expert, first, end;
};

// What the tasks of a pass hand over, in the shared scratch.
struct Shared {
  int32_t* starts;  // [experts + 1] first slot of each expert
  int32_t* rows;    // [slots]
  float* weights;   // [slots]
  Block* blocks;
  float* hidden;  // [slots, hidden width]
  kernels::QuantRows hidden_q;
};

// How much of it there is, and where: of `base`, which may be null to ask for the bytes alone.
int64_t lay_out(uint8_t* base, int64_t slots, int64_t experts, int64_t width, bool quantize,
                Shared* s) {
  int64_t end = 0;
  const auto take = [&](int64_t bytes) {
    end = round64(end);
    uint8_t* at = base == nullptr ? nullptr : base + end;
    end += bytes;
    return at;
  };
  const int64_t blocks = std::min(experts, slots) + slots / kBlockRows;
  s->starts = reinterpret_cast<int32_t*>(take((experts + 1) * 4));
  s->rows = reinterpret_cast<int32_t*>(take(slots * 4));
  s->weights = reinterpret_cast<float*>(take(slots * 4));
  s->blocks = reinterpret_cast<Block*>(take(blocks * static_cast<int64_t>(sizeof(Block))));
  s->hidden = reinterpret_cast<float*>(take(slots * width * 4));
  if (!quantize) return end;
  uint8_t* q = take(quant_bytes(slots, width));
  if (q != nullptr) s->hidden_q = quant_rows(q, slots, width);
  return end;
}

int64_t matrix_bytes(const Product& p) { return groups_of(p.w) * p.w.group_bytes; }

// The value that a product reads: with both kinds of weights there are two, the int8 one last.
const Slot& input_slot(const BoundOp& op, const Product& p) {
  return p.q != nullptr && op.in.size() == 3 ? op.in[2] : op.in[0];
}

bool reads(const BoundOp& op, bool quantized) {
  return (op.products[kGate].q != nullptr) == quantized ||
         (op.products[kUp].q != nullptr) == quantized;
}

class Pass {
 public:
  Pass(const BoundOp& op, Step& step)
      : op_(op),
        step_(step),
        gate_(op.products[kGate]),
        up_(op.products[kUp]),
        down_(op.products[kDown]),
        experts_(down_.count),
        top_(op.in[1].width / 2),
        rows_(step.count(op.in[0])),
        slots_(rows_ * top_) {
    lay_out(step.shared_scratch, slots_, experts_, down_.w.k,
            op.attr.as<plan::ExpertsAttributes>().quantize_hidden, &shared_);
    for (const Product& p : op.products) pack_bytes_ = std::max(pack_bytes_, p.pack_bytes);
    const int64_t k = gate_.w.k, block = std::min(rows_, kBlockRows);
    quant_bytes_ = reads(op, true) ? quant_bytes(block, k) : 0;
    float_bytes_ = reads(op, false) ? round64(block * k * 4) : 0;
  }

  void run() {
    sort();
    up();
    if (op_.attr.as<plan::ExpertsAttributes>().quantize_hidden) quantize();
    down();
  }

 private:
  // A worker's scratch: what packs, gathered rows in both forms, the tile.
  uint8_t* pack_buffer(int worker) const {
    return reinterpret_cast<uint8_t*>(step_.worker_scratch(worker));
  }
  float* tile(int worker) const {
    return reinterpret_cast<float*>(pack_buffer(worker) + pack_bytes_ + quant_bytes_ +
                                    float_bytes_);
  }

  // Slots by expert, rows ascending; blocks of them; weights with the expert's own scale.
  void sort() {
    const float* routed = step_.floats(op_.in[1]);
    const float* scales = op_.vectors[4];
    const auto expert_of = [&](int64_t pair) {
      const auto e = static_cast<int32_t>(routed[2 * pair]);
      CULET_CHECK(e >= 0 && e < experts_);
      return e;
    };
    std::fill(shared_.starts, shared_.starts + experts_ + 1, 0);
    for (int64_t i = 0; i < slots_; ++i) ++shared_.starts[expert_of(i) + 1];
    std::partial_sum(shared_.starts, shared_.starts + experts_ + 1, shared_.starts);
    for (int64_t i = 0; i < slots_; ++i) {
      const int32_t e = expert_of(i), slot = shared_.starts[e]++;
      shared_.rows[slot] = static_cast<int32_t>(i / top_);
      shared_.weights[slot] = scales == nullptr ? routed[2 * i + 1] : routed[2 * i + 1] * scales[e];
    }
    // Each start has moved on to the next one's.
    int64_t chosen = 0;
    int32_t first = 0;
    for (int32_t e = 0; e < experts_; ++e) {
      chosen += shared_.starts[e] > first ? 1 : 0;
      while (first < shared_.starts[e]) {
        const int32_t end = std::min(shared_.starts[e], first + static_cast<int32_t>(kBlockRows));
        shared_.blocks[blocks_++] = {e, first, end};
        first = end;
      }
    }
    bytes_ = chosen * (matrix_bytes(gate_) + matrix_bytes(up_) + matrix_bytes(down_));
    step_.chosen_bytes += static_cast<uint64_t>(bytes_);
  }

  // Groups of a task, where `times` others work on the same columns.
  int64_t chunk(const Product& p, int64_t matrices, int64_t times) const {
    const int64_t near = kChunkBytes / std::max<int64_t>(1, p.w.group_bytes * matrices);
    const int64_t even = groups_of(p.w) * times / (int64_t{step_.pool->size()} * kTasksPerThread);
    const int64_t groups = std::max<int64_t>(1, std::min(near, even));
    return std::min((groups + 1) / 2 * 2, kTileGroups);
  }

  template <class F>
  void for_tasks(int64_t tasks, F&& fn) const {
    if (step_.pool->size() == 1 || bytes_ < kInlineBytes) {
      for (int64_t t = 0; t < tasks; ++t) fn(t, 0);
    } else {
      step_.pool->run(tasks, fn);
    }
  }

  // The block's rows of a value side by side, at *row0 of the result: where they lie, if they do.
  Input gather(const Slot& slot, const Block& block, int worker, int64_t* row0) const {
    const int32_t* rows = shared_.rows + block.first;
    const int64_t n = block.end - block.first, k = slot.width;
    if (rows[n - 1] - rows[0] == n - 1) {
      *row0 = rows[0];
      return input(step_, slot);
    }
    *row0 = 0;
    const Input from = input(step_, slot);
    Input to;
    uint8_t* at = pack_buffer(worker) + pack_bytes_;
    if (slot.form == Form::kF32) {
      auto* copy = reinterpret_cast<float*>(at + quant_bytes_);
      for (int64_t i = 0; i < n; ++i) {
        std::memcpy(copy + i * k, from.floats + rows[i] * k, static_cast<size_t>(k) * 4);
      }
      to.floats = copy;
      to.stride = k;
      return to;
    }
    const kernels::QuantRows& x = from.quantized;
    to.quantized = quant_rows(at, n, k);
    const kernels::QuantRows& y = to.quantized;
    const int64_t d = k / 32, sums = k / 16;
    for (int64_t i = 0; i < n; ++i) {
      std::memcpy(y.q + i * k, x.q + rows[i] * k, static_cast<size_t>(k));
      std::memcpy(y.d + i * d, x.d + rows[i] * d, static_cast<size_t>(d) * sizeof(float));
      std::memcpy(y.sums + i * sums, x.sums + rows[i] * sums,
                  static_cast<size_t>(sums) * sizeof(int16_t));
    }
    return to;
  }

  void up() {
    const int64_t groups = groups_of(gate_.w), chunk_groups = chunk(gate_, 2, blocks_);
    const int64_t chunks = (groups + chunk_groups - 1) / chunk_groups;
    for_tasks(blocks_ * chunks, [&](int64_t task, int worker) {
      const int64_t group0 = task % chunks * chunk_groups;
      up_task(shared_.blocks[task / chunks], group0, std::min(groups, group0 + chunk_groups),
              worker);
    });
  }

  void up_task(const Block& block, int64_t group0, int64_t group1, int worker) const {
    const int64_t width = gate_.w.n, rows = block.end - block.first;
    const int64_t columns = std::min(width, group1 * 16) - group0 * 16;
    const int64_t stride = (group1 - group0) * 16;
    // One tensor with both has a gate and an up matrix for each expert in turn.
    const int64_t each = gate_.count / experts_;
    int64_t row0 = 0;
    Input in = gather(input_slot(op_, gate_), block, worker, &row0);
    const auto product = [&](const Product& p, float* out, int64_t out_stride) {
      const Tile t{0, row0, row0 + rows, group0, group1};
      multiply_tile(p, in, t, pack_buffer(worker), out, out_stride);
    };
    float* gate = shared_.hidden + block.first * width + group0 * 16;
    float* up = tile(worker);
    product(matrix_of(gate_, block.expert * each), gate, width);
    if ((gate_.q == nullptr) != (up_.q == nullptr)) {
      in = gather(input_slot(op_, up_), block, worker, &row0);
    }
    product(matrix_of(up_, block.expert * each + each - 1), up, stride);
    const auto activation = static_cast<kernels::Unary>(
        static_cast<int>(op_.attr.as<plan::ExpertsAttributes>().activation) - 1);
    for (int64_t r = 0; r < rows; ++r) {
      float* row = gate + r * width;
      step_.k->unary(activation, row, columns, row);
      step_.k->binary(kernels::kMul, row, up + r * stride, columns, row);
    }
  }

  void quantize() {
    const int64_t width = down_.w.k;
    for_rows(step_, slots_, width, [&](int64_t first, int64_t end, int) {
      step_.k->quantize(shared_.hidden + first * width, end - first, width, first,
                        &shared_.hidden_q);
    });
  }

  void down() {
    const int64_t groups = groups_of(down_.w), chunk_groups = chunk(down_, 1, 1);
    for_tasks((groups + chunk_groups - 1) / chunk_groups, [&](int64_t task, int worker) {
      const int64_t group0 = task * chunk_groups;
      down_task(group0, std::min(groups, group0 + chunk_groups), worker);
    });
  }

  void down_task(int64_t group0, int64_t group1, int worker) const {
    const int64_t width = down_.w.n, stride = (group1 - group0) * 16;
    const int64_t columns = std::min(width, group1 * 16) - group0 * 16;
    const Input in{shared_.hidden_q, shared_.hidden, down_.w.k};
    float* out = step_.floats(op_.out[0]) + group0 * 16;
    float* y = tile(worker);
    for (int64_t r = 0; r < rows_; ++r) std::fill_n(out + r * width, columns, 0.0f);
    for (int64_t b = 0; b < blocks_; ++b) {
      const Block& block = shared_.blocks[b];
      multiply_tile(matrix_of(down_, block.expert), in, {0, block.first, block.end, group0, group1},
                    pack_buffer(worker), y, stride);
      for (int32_t slot = block.first; slot < block.end; ++slot) {
        step_.k->add_scaled(shared_.weights[slot], y + (slot - block.first) * stride, columns,
                            out + shared_.rows[slot] * width);
      }
    }
  }

  const BoundOp& op_;
  Step& step_;
  const Product &gate_, &up_, &down_;
  int64_t experts_, top_, rows_, slots_, blocks_ = 0;
  int64_t pack_bytes_ = 0, quant_bytes_ = 0, float_bytes_ = 0;
  int64_t bytes_ = 0;  // of the chosen experts' weights
  Shared shared_{};
};

void run_experts(const BoundOp& op, Step& step) {
  if (step.count(op.in[0]) > 0) Pass(op, step).run();
}

// Weights of the op: gate, up, gate_up, down, down_scale.
Result<void> bind_experts(const Binder& b, const plan::Op& op, BoundOp* out) {
  const bool joined = op.weights[2] != plan::kNone;
  const auto input_of = [&](size_t weight) {
    const bool integer = b.kernels.matmul_q[static_cast<size_t>(b.tensor(op.weights[weight]).type)];
    return integer && out->in.size() == 3 ? out->in[2] : out->in[0];
  };
  const size_t gate = joined ? 2 : 0, up = joined ? 2 : 1, none = op.weights.size();
  Slot hidden = out->in[0];
  hidden.width = static_cast<int32_t>(b.tensor(op.weights[3]).dims[0]);
  hidden.form =
      op.attr.as<plan::ExpertsAttributes>().quantize_hidden ? Form::kQuantized : Form::kF32;
  CULET_TRY(const Product gates, bind_product(b, op, input_of(gate), gate, none));
  CULET_TRY(const Product ups, bind_product(b, op, input_of(up), up, none));
  CULET_TRY(const Product downs, bind_product(b, op, hidden, 3, none));
  CULET_CHECK(gates.w.n == downs.w.k && ups.w.n == downs.w.k && downs.w.n == out->out[0].width);
  CULET_CHECK(gates.count == ups.count && gates.count == downs.count * (joined ? 2 : 1));
  CULET_CHECK(out->in[1].width % 2 == 0 && out->in[1].rows == out->in[0].rows);
  CULET_CHECK(out->vectors[4] == nullptr || out->vector_sizes[4] == downs.count);
  CULET_CHECK(op.attr.as<plan::ExpertsAttributes>().activation != plan::Activation::kNone);
  out->products = {gates, ups, downs};
  out->fn = run_experts;
  return {};
}

int64_t experts_scratch(const Binder& b, const plan::Op& op, int64_t rows) {
  const int64_t k = b.slot(op.in[0]).width, block = std::min(rows, kBlockRows);
  int64_t bytes = pack_scratch(b, op, rows) + block * kTileGroups * 16 * 4;
  bool forms[2] = {};
  for (plan::ValueId v : op.in) {
    if (v != op.in[1]) forms[b.slot(v).form == Form::kQuantized] = true;
  }
  if (forms[0]) bytes += round64(block * k * 4);
  if (forms[1]) bytes += quant_bytes(block, k);
  return bytes;
}

constexpr OpEntry kExpertOps[] = {
    {OpKind::route, bind_route, route_scratch},
    {OpKind::experts, bind_experts, experts_scratch},
};

}  // namespace

std::span<const OpEntry> expert_ops() { return kExpertOps; }

int64_t experts_shared_bytes(const Binder& b, const plan::Op& op, int64_t rows) {
  if (op.kind != OpKind::experts) return 0;
  const format::TensorInfo& down = b.tensor(op.weights[3]);
  Shared s{};
  return lay_out(nullptr, rows * (b.slot(op.in[1]).width / 2), static_cast<int64_t>(down.dims[2]),
                 static_cast<int64_t>(down.dims[0]),
                 op.attr.as<plan::ExpertsAttributes>().quantize_hidden, &s);
}

}  // namespace culet::backend
