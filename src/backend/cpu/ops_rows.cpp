// Ops that work row by row: embed and gather, input, norms, rope, arithmetic, activations, softmax,
// matmul, quantize, and the copies (concat, split, slice, view_layer, select_rows).
//
// One row of a small model is a few microseconds of work, so it stays on the calling thread; many
// rows, or one row as wide as a vocabulary, are spread over the pool. Elementwise ops may have
// their input's place as their output; nothing else may.
#include "backend/cpu/bound_op.h"
#include "kernels/scalar_math.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace culet::backend {
namespace {

using plan::Form;
using plan::OpKind;

// Calls fn(first, end) over n elements that do not depend on each other.
template <class F>
void for_elements(const Step& step, int64_t n, F&& fn) {
  const int64_t chunks = (n + kInlineFloats - 1) / kInlineFloats;
  for_rows(step, chunks, kInlineFloats, [&](int64_t first, int64_t end, int) {
    fn(first * kInlineFloats, std::min(n, end * kInlineFloats));
  });
}

constexpr int64_t kExpCost = 16;  // exp and its share of a sum against a float of an elementwise op

int64_t vectors(const Step& step, const Slot& slot) {
  return step.count(slot) * slot.width / slot.last;
}

// ---------------------------------------------------------------- embed, gather

// Rows by type are all the first: a sequence is one sequence.
int64_t row_index(plan::EmbedAttributes::By by, const Step& step, int64_t r) {
  using By = plan::EmbedAttributes::By;
  if (by == By::kType) return 0;
  return by == By::kPosition ? step.positions[static_cast<int>(plan::TokenSet::kAll)][r]
                             : step.tokens[r];
}

void run_embed(const BoundOp& op, Step& step) {
  const int64_t width = op.out[0].width;
  const quant::TypeInfo& type = quant::type_info(op.rows_of->type);
  const int64_t blocks = width / type.block;
  const plan::EmbedAttributes::By by = op.attr.as<plan::EmbedAttributes>().by;
  const std::byte* table = op.rows_of->data;
  float* out = step.floats(op.out[0]);
  for_rows(step, step.count(op.out[0]), width, [&](int64_t first, int64_t end, int) {
    for (int64_t r = first; r < end; ++r) {
      op.dequantize(table + row_index(by, step, r) * blocks * type.block_bytes, blocks,
                    out + r * width);
    }
  });
}

Result<void> bind_embed(const Binder& b, const plan::Op& op, BoundOp* out) {
  out->rows_of = &b.tensor(op.weights[0]);
  out->dequantize = quant::dequantize_fn(out->rows_of->type);
  if (out->dequantize == nullptr) {
    return unsupported(b.plan, op,
                       "rows of tensor '" + std::string(out->rows_of->name) + "' of type " +
                           std::string(quant::type_info(out->rows_of->type).name));
  }
  CULET_CHECK(out->out[0].rows == plan::TokenSet::kAll);
  CULET_CHECK(static_cast<int64_t>(out->rows_of->dims[0]) == out->out[0].width);
  out->fn = run_embed;
  return {};
}

// ---------------------------------------------------------------- input

void run_input(const BoundOp& op, Step& step) {
  float* out = step.floats(op.out[0]);
  for (const SequenceChunk& sequence : step.batch) {
    CULET_CHECK(sequence.hidden.size() ==
                sequence.tokens.size() * static_cast<size_t>(op.out[0].width));
    out = std::copy(sequence.hidden.begin(), sequence.hidden.end(), out);
  }
}

Result<void> bind_input(const Binder&, const plan::Op&, BoundOp* out) {
  CULET_CHECK(out->out[0].rows == plan::TokenSet::kAll && out->out[0].form == Form::kF32);
  out->fn = run_input;
  return {};
}

// ---------------------------------------------------------------- norms

void run_rms_norm(const BoundOp& op, Step& step) {
  const int64_t n = op.in[0].last;
  const float* x = step.floats(op.in[0]);
  float* y = step.floats(op.out[0]);
  for_rows(step, vectors(step, op.in[0]), n, [&](int64_t first, int64_t end, int) {
    for (int64_t r = first; r < end; ++r) {
      step.k->rms_norm(x + r * n, op.vectors[0], op.attr.as<plan::NormAttributes>().eps, n,
                       y + r * n);
    }
  });
}

void run_layer_norm(const BoundOp& op, Step& step) {
  const int64_t n = op.in[0].last;
  const float* x = step.floats(op.in[0]);
  float* y = step.floats(op.out[0]);
  for_rows(step, vectors(step, op.in[0]), n, [&](int64_t first, int64_t end, int) {
    for (int64_t r = first; r < end; ++r) {
      step.k->layer_norm(x + r * n, op.vectors[0], op.vectors[1],
                         op.attr.as<plan::NormAttributes>().eps, n, y + r * n);
    }
  });
}

void run_rms_norm_quantize(const BoundOp& op, Step& step) {
  const Slot& in = op.in[0];
  const float* x = step.floats(in);
  kernels::QuantRows y = step.quantized(op.out[0]);
  for_rows(step, step.count(in), in.width, [&](int64_t first, int64_t end, int worker) {
    float* row = step.worker_scratch(worker);
    for (int64_t r = first; r < end; ++r) {
      for (int64_t v = 0; v < in.width; v += in.last) {
        step.k->rms_norm(x + r * in.width + v, op.vectors[0],
                         op.attr.as<plan::NormAttributes>().eps, in.last, row + v);
      }
      step.k->quantize(row, 1, in.width, r, &y);
    }
  });
}

// Norm weights beyond those given count as left out.
Result<void> bind_norm(const Binder&, const plan::Op& op, BoundOp* out) {
  out->vectors.resize(2, nullptr);
  for (size_t i = 0; i < op.weights.size(); ++i) {
    CULET_CHECK(op.weights[i] == plan::kNone || out->vector_sizes[i] == out->in[0].last);
  }
  out->fn = op.kind == OpKind::rms_norm     ? run_rms_norm
            : op.kind == OpKind::layer_norm ? run_layer_norm
                                            : run_rms_norm_quantize;
  return {};
}

int64_t row_scratch(const Binder& b, const plan::Op& op, int64_t) {
  return b.slot(op.in[0]).width * static_cast<int64_t>(sizeof(float));
}

// ---------------------------------------------------------------- quantize

void run_quantize(const BoundOp& op, Step& step) {
  const int64_t width = op.in[0].width;
  const float* x = step.floats(op.in[0]);
  kernels::QuantRows y = step.quantized(op.out[0]);
  for_rows(step, step.count(op.in[0]), width, [&](int64_t first, int64_t end, int) {
    step.k->quantize(x + first * width, end - first, width, first, &y);
  });
}

Result<void> bind_quantize(const Binder&, const plan::Op&, BoundOp* out) {
  CULET_CHECK(out->in[0].form == Form::kF32 && out->out[0].form == Form::kQuantized);
  CULET_CHECK(out->in[0].width == out->out[0].width && out->in[0].width % 32 == 0);
  out->fn = run_quantize;
  return {};
}

// ---------------------------------------------------------------- rope

// Rows [row0, row0 + count) of the value.
void rotate_rows(const BoundOp& op, const Step& step, const float* table, int64_t row0,
                 int64_t count) {
  const Slot& in = op.in[0];
  const auto& attr = op.attr.as<plan::RopeAttributes>();
  const int32_t dims = step.rope_dims[attr.rope];
  const int32_t* source = step.source[static_cast<int>(in.rows)];
  const float* x = step.floats(in);
  float* y = step.floats(op.out[0]);
  for_rows(step, count, in.width, [&](int64_t first, int64_t end, int) {
    for (int64_t r = row0 + first; r < row0 + end; ++r) {
      const float* cos_sin = table + static_cast<int64_t>(source[r]) * dims;
      for (int64_t h = r * in.width; h < (r + 1) * in.width; h += in.last) {
        step.k->rope(x + h, cos_sin, dims, in.last, attr.adjacent, y + h);
      }
    }
  });
}

void run_rope(const BoundOp& op, Step& step) {
  rotate_rows(op, step, step.rope_tables[op.attr.as<plan::RopeAttributes>().rope], 0,
              step.count(op.in[0]));
}

// Only for rows of sessions that stream; nobody reads the others.
void run_sink_rope(const BoundOp& op, Step& step) {
  const SequenceRows* sequences = step.sequences[static_cast<int>(op.in[0].rows)];
  for (size_t s = 0; s < step.batch.size(); ++s) {
    if (!streams(step.batch[s])) continue;
    rotate_rows(op, step, step.sink_tables[op.attr.as<plan::RopeAttributes>().rope],
                sequences[s].first, sequences[s].count);
  }
}

Result<void> bind_rope(const Binder& b, const plan::Op& op, BoundOp* out) {
  const auto& attr = op.attr.as<plan::RopeAttributes>();
  CULET_CHECK(attr.rope >= 0 && static_cast<size_t>(attr.rope) < b.plan.ropes.size());
  const int32_t dims = b.plan.ropes[static_cast<size_t>(attr.rope)].dims;
  CULET_CHECK(dims > 0 && dims % 2 == 0 && dims <= out->in[0].last);
  out->fn = attr.sinks ? run_sink_rope : run_rope;
  return {};
}

// ---------------------------------------------------------------- elementwise

void run_unary(const BoundOp& op, Step& step) {
  const float* x = step.floats(op.in[0]);
  float* y = step.floats(op.out[0]);
  const auto function = static_cast<kernels::Unary>(
      static_cast<int>(op.attr.as<plan::ActivationAttributes>().activation) - 1);
  for_elements(step, step.count(op.in[0]) * op.in[0].width, [&](int64_t first, int64_t end) {
    step.k->unary(function, x + first, end - first, y + first);
  });
}

static_assert(static_cast<int>(plan::Activation::kSilu) - 1 == kernels::kSilu &&
              static_cast<int>(plan::Activation::kGelu) - 1 == kernels::kGelu &&
              static_cast<int>(plan::Activation::kGeluErf) - 1 == kernels::kGeluErf &&
              static_cast<int>(plan::Activation::kRelu) - 1 == kernels::kRelu &&
              static_cast<int>(plan::Activation::kSigmoid) - 1 == kernels::kSigmoid &&
              static_cast<int>(plan::Activation::kTanh) - 1 == kernels::kTanh);

constexpr struct {
  OpKind kind;
  plan::Activation function;
} kFunctions[] = {
    {OpKind::silu, plan::Activation::kSilu},        {OpKind::gelu, plan::Activation::kGelu},
    {OpKind::gelu_erf, plan::Activation::kGeluErf}, {OpKind::relu, plan::Activation::kRelu},
    {OpKind::sigmoid, plan::Activation::kSigmoid},  {OpKind::tanh, plan::Activation::kTanh},
};

Result<void> bind_unary(const Binder&, const plan::Op& op, BoundOp* out) {
  for (const auto& row : kFunctions) {
    if (row.kind == op.kind) out->attr = plan::ActivationAttributes{row.function};
  }
  out->fn = run_unary;
  return {};
}

void run_softcap(const BoundOp& op, Step& step) {
  const float* x = step.floats(op.in[0]);
  float* y = step.floats(op.out[0]);
  const auto cap = static_cast<float>(op.attr.as<plan::SoftcapAttributes>().cap);
  for_elements(step, step.count(op.in[0]) * op.in[0].width, [&](int64_t first, int64_t end) {
    step.k->softcap(x + first, cap, end - first, y + first);
  });
}

Result<void> bind_softcap(const Binder&, const plan::Op&, BoundOp* out) {
  out->fn = run_softcap;
  return {};
}

// Correctly rounded, as on every processor.
void run_sqrt(const BoundOp& op, Step& step) {
  const float* x = step.floats(op.in[0]);
  float* y = step.floats(op.out[0]);
  for_elements(step, step.count(op.in[0]) * op.in[0].width, [&](int64_t first, int64_t end) {
    for (int64_t i = first; i < end; ++i) y[i] = std::sqrt(x[i]);
  });
}

Result<void> bind_sqrt(const Binder&, const plan::Op&, BoundOp* out) {
  out->fn = run_sqrt;
  return {};
}

// ---------------------------------------------------------------- softmax

void run_softmax(const BoundOp& op, Step& step) {
  const int64_t n = op.in[0].last;
  const float* x = step.floats(op.in[0]);
  float* y = step.floats(op.out[0]);
  for_rows(step, vectors(step, op.in[0]), n * kExpCost, [&](int64_t first, int64_t end, int) {
    for (int64_t r = first; r < end; ++r) softmax(*step.k, x + r * n, n, y + r * n);
  });
}

Result<void> bind_softmax(const Binder&, const plan::Op&, BoundOp* out) {
  out->fn = run_softmax;
  return {};
}

// ---------------------------------------------------------------- matmul

// y[i] = sum over j ascending of a[i][j] * b[j], each a fused multiply-add from 0: [m, n] times
// [n, k] in every row.
void run_matmul(const BoundOp& op, Step& step) {
  const int64_t n = op.in[0].last, m = op.in[0].width / n, k = op.in[1].last;
  const float* a = step.floats(op.in[0]);
  const float* b = step.floats(op.in[1]);
  float* y = step.floats(op.out[0]);
  for_rows(step, step.count(op.in[0]) * m, n * k, [&](int64_t first, int64_t end, int) {
    for (int64_t v = first; v < end; ++v) {
      const float* factors = a + v * n;
      const float* rows = b + v / m * n * k;
      std::fill_n(y + v * k, k, 0.0f);
      for (int64_t j = 0; j < n; ++j) step.k->add_scaled(factors[j], rows + j * k, k, y + v * k);
    }
  });
}

Result<void> bind_matmul(const Binder&, const plan::Op&, BoundOp* out) {
  const Slot &a = out->in[0], &b = out->in[1], &y = out->out[0];
  CULET_CHECK(a.rows == b.rows && b.width == int64_t{a.last} * b.last);
  CULET_CHECK(y.width == int64_t{a.width / a.last} * b.last);
  CULET_CHECK(y.offset != a.offset && y.offset != b.offset);  // read again for every vector of y
  out->fn = run_matmul;
  return {};
}

// ---------------------------------------------------------------- suppress

void run_suppress(const BoundOp& op, Step& step) {
  const int64_t width = op.in[0].width;
  const float* x = step.floats(op.in[0]);
  float* y = step.floats(op.out[0]);
  for_rows(step, step.count(op.in[0]), width, [&](int64_t first, int64_t end, int) {
    for (int64_t r = first; r < end; ++r) {
      float* row = y + r * width;
      if (y != x) std::memcpy(row, x + r * width, static_cast<size_t>(width) * sizeof(float));
      for (const int32_t token : op.tokens) row[token] = -std::numeric_limits<float>::infinity();
    }
  });
}

Result<void> bind_suppress(const Binder& b, const plan::Op& op, BoundOp* out) {
  const auto list = static_cast<size_t>(op.attr.as<plan::SuppressAttributes>().tokens);
  CULET_CHECK(list < b.plan.token_lists.size());
  out->tokens = b.plan.token_lists[list];
  for (const int32_t token : out->tokens) CULET_CHECK(token >= 0 && token < out->in[0].width);
  CULET_CHECK(out->out[0].width == out->in[0].width);
  out->fn = run_suppress;
  return {};
}

// ---------------------------------------------------------------- arithmetic

kernels::Binary binary_of(const BoundOp& op) {
  return static_cast<kernels::Binary>(op.attr.as<plan::ArithmeticAttributes>().arithmetic);
}

static_assert(static_cast<int>(plan::Arithmetic::kAdd) == kernels::kAdd &&
              static_cast<int>(plan::Arithmetic::kSub) == kernels::kSub &&
              static_cast<int>(plan::Arithmetic::kMul) == kernels::kMul &&
              static_cast<int>(plan::Arithmetic::kDiv) == kernels::kDiv);

void run_values(const BoundOp& op, Step& step) {
  const float* a = step.floats(op.in[0]);
  const float* b = step.floats(op.in[1]);
  float* y = step.floats(op.out[0]);
  for_elements(step, step.count(op.in[0]) * op.in[0].width, [&](int64_t first, int64_t end) {
    step.k->binary(binary_of(op), a + first, b + first, end - first, y + first);
  });
}

// The second value has one number for each vector of the first (a mean over the last axis, say).
void run_value_column(const BoundOp& op, Step& step) {
  const int64_t n = op.in[0].width / op.in[1].width;
  const float* a = step.floats(op.in[0]);
  const float* b = step.floats(op.in[1]);
  float* y = step.floats(op.out[0]);
  for_rows(step, step.count(op.in[0]) * op.in[1].width, n, [&](int64_t first, int64_t end, int) {
    for (int64_t r = first; r < end; ++r) {
      step.k->binary_scalar(binary_of(op), a + r * n, b[r], n, y + r * n);
    }
  });
}

// The second value is one vector for all vectors of the first.
void run_value_vector(const BoundOp& op, Step& step) {
  const int64_t n = op.in[0].last, each = op.in[0].width / n;
  const float* a = step.floats(op.in[0]);
  const float* b = step.floats(op.in[1]);
  float* y = step.floats(op.out[0]);
  for_rows(step, step.count(op.in[0]) * each, n, [&](int64_t first, int64_t end, int) {
    for (int64_t v = first; v < end; ++v) {
      step.k->binary(binary_of(op), a + v * n, b + v / each * n, n, y + v * n);
    }
  });
}

// A tensor as long as a row, or as the last axis.
void run_tensor(const BoundOp& op, Step& step) {
  const int64_t n = op.vector_sizes[0];
  const kernels::Binary function = binary_of(op);
  const bool swapped = op.attr.as<plan::ArithmeticAttributes>().scalar_first;
  const float* w = op.vectors[0];
  const float* x = step.floats(op.in[0]);
  float* y = step.floats(op.out[0]);
  for_rows(step, step.count(op.in[0]) * op.in[0].width / n, n,
           [&](int64_t first, int64_t end, int) {
             for (int64_t r = first; r < end; ++r) {
               const float* row = x + r * n;
               step.k->binary(function, swapped ? w : row, swapped ? row : w, n, y + r * n);
             }
           });
}

void run_scalar(const BoundOp& op, Step& step) {
  const float* x = step.floats(op.in[0]);
  float* y = step.floats(op.out[0]);
  const auto scalar = static_cast<float>(op.attr.as<plan::ArithmeticAttributes>().scalar);
  for_elements(step, step.count(op.in[0]) * op.in[0].width, [&](int64_t first, int64_t end) {
    step.k->binary_scalar(binary_of(op), x + first, scalar, end - first, y + first);
  });
}

void run_scalar_first(const BoundOp& op, Step& step) {
  const float* x = step.floats(op.in[0]);
  float* y = step.floats(op.out[0]);
  for_elements(step, step.count(op.in[0]) * op.in[0].width, [&](int64_t first, int64_t end) {
    for (int64_t i = first; i < end; i += kConstantRun) {
      step.k->binary(binary_of(op), op.constant.data(), x + i, std::min(kConstantRun, end - i),
                     y + i);
    }
  });
}

Result<void> bind_values(const Binder& b, const plan::Op& op, BoundOp* out) {
  const Slot &first = out->in[0], &second = out->in[1];
  CULET_CHECK(first.rows == second.rows);
  const bool column =
      second.last == 1 && (second.width == 1 || int64_t{second.width} * first.last == first.width);
  if (first.width == second.width) {
    out->fn = run_values;
  } else if (column) {
    out->fn = run_value_column;
  } else if (second.width == first.last) {
    out->fn = run_value_vector;
  } else {
    return unsupported(b.plan, op,
                       "two values of " + std::to_string(first.width) + " and " +
                           std::to_string(second.width) + " numbers a row");
  }
  return {};
}

Result<void> bind_arithmetic(const Binder& b, const plan::Op& op, BoundOp* out) {
  CULET_CHECK(out->out[0].width == out->in[0].width);
  if (out->in.size() == 2) return bind_values(b, op, out);
  const bool tensor = !out->vectors.empty() && out->vectors[0] != nullptr;
  if (tensor && out->vector_sizes[0] != 1) {
    const int64_t n = out->vector_sizes[0];
    if (n != out->in[0].width && n != out->in[0].last) {
      return unsupported(b.plan, op,
                         "a tensor of " + std::to_string(n) + " numbers and a value of " +
                             std::to_string(out->in[0].width));
    }
    out->fn = run_tensor;
    return {};
  }
  auto& attr = out->attr.as<plan::ArithmeticAttributes>();
  if (tensor) attr.scalar = static_cast<double>(out->vectors[0][0]);
  const bool ordered =
      attr.arithmetic == plan::Arithmetic::kSub || attr.arithmetic == plan::Arithmetic::kDiv;
  if (attr.scalar_first && ordered) {
    out->constant.assign(kConstantRun, static_cast<float>(attr.scalar));
    out->fn = run_scalar_first;
  } else {
    out->fn = run_scalar;
  }
  return {};
}

// ---------------------------------------------------------------- copies

// Columns of one matrix into columns of another: [vectors, n] out of rows of in_n and out_n floats.
void copy_columns(const Step& step, int64_t count, int64_t n, const float* in, int64_t in_n,
                  float* out, int64_t out_n) {
  for_rows(step, count, n, [&](int64_t first, int64_t end, int) {
    for (int64_t r = first; r < end; ++r) {
      std::memcpy(out + r * out_n, in + r * in_n, static_cast<size_t>(n) * sizeof(float));
    }
  });
}

void run_concat(const BoundOp& op, Step& step) {
  int64_t all = 0, at = 0;
  for (const Slot& in : op.in) all += in.last;
  for (const Slot& in : op.in) {
    copy_columns(step, vectors(step, in), in.last, step.floats(in), in.last,
                 step.floats(op.out[0]) + at, all);
    at += in.last;
  }
}

void run_split(const BoundOp& op, Step& step) {
  const Slot& in = op.in[0];
  const int64_t part = in.last / static_cast<int64_t>(op.out.size());
  int64_t at = 0;
  for (const Slot& out : op.out) {
    copy_columns(step, vectors(step, in), part, step.floats(in) + at, in.last, step.floats(out),
                 part);
    at += part;
  }
}

// slice, view_layer: numbers [first, first + count) of the flat row.
void run_view(const BoundOp& op, Step& step) {
  const Slot& in = op.in[0];
  const int64_t width = op.out[0].width;
  copy_columns(step, step.count(in), width,
               step.floats(in) + op.attr.as<plan::ColumnsAttributes>().first, in.width,
               step.floats(op.out[0]), width);
}

void run_row_mean(const BoundOp& op, Step& step) {
  const int64_t n = op.in[0].last;
  const float* x = step.floats(op.in[0]);
  float* y = step.floats(op.out[0]);
  for_rows(step, vectors(step, op.in[0]), n, [&](int64_t first, int64_t end, int) {
    for (int64_t r = first; r < end; ++r) {
      float lanes[16] = {};
      for (int64_t i = 0; i < n; ++i) lanes[i % 16] += x[r * n + i];
      y[r] = kernels::fold16(lanes) / static_cast<float>(n);
    }
  });
}

void run_select_floats(const BoundOp& op, Step& step) {
  const int64_t width = op.in[0].width;
  const float* x = step.floats(op.in[0]);
  float* y = step.floats(op.out[0]);
  const int32_t* source = step.source[static_cast<int>(plan::TokenSet::kOutputs)];
  for (int64_t r = 0; r < step.count(op.out[0]); ++r) {
    std::memcpy(y + r * width, x + source[r] * width, static_cast<size_t>(width) * sizeof(float));
  }
}

void run_select_quantized(const BoundOp& op, Step& step) {
  const int64_t k = op.in[0].width;
  const kernels::QuantRows x = step.quantized(op.in[0]), y = step.quantized(op.out[0]);
  const int32_t* source = step.source[static_cast<int>(plan::TokenSet::kOutputs)];
  for (int64_t r = 0; r < step.count(op.out[0]); ++r) {
    const int64_t s = source[r];
    std::memcpy(y.q + r * k, x.q + s * k, static_cast<size_t>(k));
    std::memcpy(y.d + r * (k / 32), x.d + s * (k / 32),
                static_cast<size_t>(k / 32) * sizeof(float));
    std::memcpy(y.sums + r * (k / 16), x.sums + s * (k / 16),
                static_cast<size_t>(k / 16) * sizeof(int16_t));
  }
}

Result<void> bind_copy(const Binder& b, const plan::Op& op, BoundOp* out) {
  const Slot& in = out->in[0];
  switch (op.kind) {
    case OpKind::concat: {
      for (const Slot& s : out->in)
        CULET_CHECK(s.width / s.last == in.width / in.last && s.rows == in.rows);
      out->fn = run_concat;
      break;
    }
    case OpKind::split:
      CULET_CHECK(in.last % static_cast<int64_t>(out->out.size()) == 0);
      out->fn = run_split;
      break;
    case OpKind::slice:
    case OpKind::view_layer: {
      const auto& columns = op.attr.as<plan::ColumnsAttributes>();
      CULET_CHECK(columns.count == out->out[0].width);
      CULET_CHECK(columns.first >= 0 && columns.first + columns.count <= in.width);
      out->fn = run_view;
      break;
    }
    case OpKind::row_mean:
      out->fn = run_row_mean;
      break;
    case OpKind::select_rows:
      CULET_CHECK(in.rows == plan::TokenSet::kAll && out->out[0].rows == plan::TokenSet::kOutputs);
      CULET_CHECK(in.form == out->out[0].form && in.width == out->out[0].width);
      out->fn = in.form == Form::kF32 ? run_select_floats : run_select_quantized;
      break;
    default:
      return unsupported(b.plan, op, "this copy");
  }
  return {};
}

constexpr OpEntry kRowOps[] = {
    {OpKind::gather, bind_embed, nullptr},      {OpKind::suppress, bind_suppress, nullptr},
    {OpKind::embed, bind_embed, nullptr},       {OpKind::rms_norm, bind_norm, nullptr},
    {OpKind::layer_norm, bind_norm, nullptr},   {OpKind::rms_norm_quantize, bind_norm, row_scratch},
    {OpKind::quantize, bind_quantize, nullptr}, {OpKind::rope, bind_rope, nullptr},
    {OpKind::silu, bind_unary, nullptr},        {OpKind::gelu, bind_unary, nullptr},
    {OpKind::gelu_erf, bind_unary, nullptr},    {OpKind::relu, bind_unary, nullptr},
    {OpKind::sigmoid, bind_unary, nullptr},     {OpKind::tanh, bind_unary, nullptr},
    {OpKind::softcap, bind_softcap, nullptr},   {OpKind::arithmetic, bind_arithmetic, nullptr},
    {OpKind::concat, bind_copy, nullptr},       {OpKind::split, bind_copy, nullptr},
    {OpKind::slice, bind_copy, nullptr},        {OpKind::view_layer, bind_copy, nullptr},
    {OpKind::row_mean, bind_copy, nullptr},     {OpKind::select_rows, bind_copy, nullptr},
    {OpKind::sqrt, bind_sqrt, nullptr},         {OpKind::softmax, bind_softmax, nullptr},
    {OpKind::matmul, bind_matmul, nullptr},     {OpKind::input, bind_input, nullptr},
};

}  // namespace

void softmax(const kernels::Kernels& k, const float* x, int64_t n, float* y) {
  float max, lanes[16] = {};
  int64_t index;
  int finite;
  k.max_index(x, n, &max, &index, &finite);
  for (int64_t i = 0; i < n; ++i) {
    y[i] = kernels::exp1(x[i] - max);
    lanes[i % 16] += y[i];
  }
  k.binary_scalar(kernels::kDiv, y, kernels::fold16(lanes), n, y);
}

std::span<const OpEntry> row_ops() { return kRowOps; }

}  // namespace culet::backend
