// Takes a checked plan and its weights, gives the list of bound ops. Each op's family knows how to
// bind it (the tables linear_ops, row_ops, ...); this file fills in what all have in
// common, joins neighboring linear ops of one input, and writes the notes that explain prints.
#include "backend/cpu/bind.h"

#include <fmt/format.h>

namespace culet::backend {
namespace {

const OpEntry* find_entry(plan::OpKind kind) {
  for (std::span<const OpEntry> family :
       {linear_ops(), row_ops(), attention_ops(), memory_ops(), expert_ops(), pool_ops()}) {
    for (const OpEntry& entry : family) {
      if (entry.kind == kind) return &entry;
    }
  }
  return nullptr;
}

// No result may lie over an operand, unless it is the same place, element for element.
void check_places(const BoundOp& op) {
  for (const Slot& out : op.out) {
    for (const Slot& in : op.in) {
      if (in.rows != out.rows) continue;
      const bool apart =
          in.offset + in.row_bytes <= out.offset || out.offset + out.row_bytes <= in.offset;
      CULET_CHECK(apart ||
                  (in.offset == out.offset && in.width == out.width && in.form == out.form));
    }
  }
}

Result<BoundOp> bind_op(const Binder& b, int32_t index) {
  const plan::Op& op = b.plan.ops[static_cast<size_t>(index)];
  BoundOp bound;
  bound.op = index;
  bound.attr = op.attr;
  for (plan::ValueId v : op.in) bound.in.push_back(b.slot(v));
  for (plan::ValueId v : op.out) bound.out.push_back(b.slot(v));
  for (size_t i = 0; i < op.weights.size(); ++i) {
    const bool vector = weight_role(op.kind, i) == WeightRole::kVector;
    bound.vectors.push_back(vector ? b.weights.vector(op.weights[i]) : nullptr);
    bound.vector_sizes.push_back(vector ? b.weights.vector_size(op.weights[i]) : 0);
  }
  check_places(bound);
  CULET_TRY_VOID(find_entry(op.kind)->bind(b, op, &bound));
  CULET_CHECK(bound.fn != nullptr);
  return bound;
}

Executor::OpNote note_of(const Binder& b, const BoundOp& bound) {
  const plan::Op& op = b.plan.ops[static_cast<size_t>(bound.op)];
  Executor::OpNote note{std::string(plan::op_name(op.kind)), 0};
  for (const Product& p : bound.products) {
    const auto type = static_cast<quant::TensorType>(p.w.type);
    note.kernel = fmt::format("{} {}{}", p.q != nullptr ? "matmul_q" : "matmul_f",
                              quant::type_info(type).name, p.source != nullptr ? " mapped" : "");
    note.weight_bytes += static_cast<uint64_t>((p.w.n + 15) / 16 * p.w.group_bytes);
    if (p.bias != nullptr) note.weight_bytes += static_cast<uint64_t>(p.w.n) * sizeof(float);
  }
  if (op.kind == plan::OpKind::experts) {  // of one row: as many as it chooses
    note.weight_bytes *= static_cast<uint64_t>(bound.in[1].width / 2);
  }
  for (int64_t n : bound.products.empty() ? bound.vector_sizes : std::vector<int64_t>{}) {
    note.weight_bytes += static_cast<uint64_t>(n) * sizeof(float);
  }
  if (bound.rows_of != nullptr) {
    const quant::TypeInfo& type = quant::type_info(bound.rows_of->type);
    note.kernel = fmt::format("{} {}", note.kernel, type.name);
    note.weight_bytes = bound.rows_of->dims[0] / static_cast<uint64_t>(type.block) *
                        static_cast<uint64_t>(type.block_bytes);
  }
  return note;
}

// Ops [first, first + count) of the plan; returns where they are in the program.
Result<plan::LayerRange> bind_range(const Binder& b, int32_t first, int32_t count,
                                    Program* program) {
  const auto start = static_cast<int32_t>(program->ops.size());
  for (int32_t i = first; i < first + count; ++i) {
    CULET_TRY(BoundOp op, bind_op(b, i));
    program->notes.push_back(note_of(b, op));
    if (op.rows_of != nullptr) {
      using By = plan::EmbedAttributes::By;
      const By by = op.attr.as<plan::EmbedAttributes>().by;
      const auto rows = static_cast<int64_t>(op.rows_of->dims[1]);
      if (by == By::kToken) program->vocabulary = std::min(program->vocabulary, rows);
      if (by == By::kPosition) program->positions = std::min(program->positions, rows);
    }
    const bool any = static_cast<int32_t>(program->ops.size()) > start;
    if (any && can_join(program->ops.back(), op)) {
      program->ops.back().products.push_back(op.products[0]);
    } else {
      program->ops.push_back(std::move(op));
    }
  }
  return plan::LayerRange{start, static_cast<int32_t>(program->ops.size()) - start};
}

void bind_ropes(const Binder& b, Program* program) {
  for (const plan::RopeSpec& rope : b.plan.ropes) {
    CULET_CHECK(rope.factors == plan::kNone ||
                b.weights.vector_size(rope.factors) >= rope.dims / 2);
    std::vector<double> theta(static_cast<size_t>(rope.dims / 2));
    kernels::rope_frequencies(rope.base, rope.dims, {rope.scale, rope.mix_from, rope.mix_to},
                              b.weights.vector(rope.factors), theta.data());
    program->thetas.push_back(std::move(theta));
    program->rope_dims.push_back(rope.dims);
  }
  program->sinks.assign(b.plan.ropes.size(), false);
  for (const plan::Op& op : b.plan.ops) {
    const auto* rope = op.attr.get_if<plan::RopeAttributes>();
    if (rope != nullptr && rope->sinks) program->sinks[static_cast<size_t>(rope->rope)] = true;
  }
}

}  // namespace

tl::unexpected<Error> unsupported(const plan::Plan& plan, const plan::Op& op,
                                  const std::string& why) {
  std::string text;
  if (op.line > 0 && static_cast<size_t>(op.line) < plan.source.size()) {
    text = plan.source[static_cast<size_t>(op.line)];
    text.erase(0, std::min(text.find_first_not_of(' '), text.size()));
    text = fmt::format(": '{}'", text);
  }
  return fail(ErrorCode::kUnsupported,
              fmt::format("this version has no CPU kernel for operation "
                          "'{}'{}{} of architecture {} (line {}{}); use "
                          "another model or a newer version",
                          plan::op_name(op.kind), why.empty() ? "" : " with ", why,
                          plan.architecture, op.line, text));
}

kernels::QuantRows Step::quantized(const Slot& s) const {
  const plan::QuantLayout layout = plan::quant_layout(s.width);
  uint8_t* start = base(s);
  const int64_t n = count(s);
  return {reinterpret_cast<int8_t*>(start), reinterpret_cast<float*>(start + n * layout.q),
          reinterpret_cast<int16_t*>(start + n * (layout.q + layout.d)), s.width};
}

Slot Binder::slot(plan::ValueId id) const {
  const plan::Value& v = plan.values[static_cast<size_t>(id)];
  CULET_CHECK(v.offset >= 0 && v.offset % 64 == 0 && v.row_bytes % 64 == 0 && v.width > 0);
  CULET_CHECK(v.row_bytes >= (v.form == plan::Form::kF32
                                  ? 4 * int64_t{v.width}
                                  : plan::quant_layout(v.width).row_bytes()));
  const int32_t last = v.rank > 0 ? v.dims[static_cast<size_t>(v.rank) - 1] : v.width;
  CULET_CHECK(last > 0 && v.width % last == 0);
  return {v.offset, v.row_bytes, v.width, last, v.rows, v.form};
}

Result<void> check_supported(const plan::Plan& plan) {
  for (const plan::Op& op : plan.ops) {
    if (find_entry(op.kind) == nullptr) return unsupported(plan, op, "");
  }
  return {};
}

Result<Program> bind(const Binder& binder) {
  const plan::Plan& plan = binder.plan;
  Program program;
  CULET_TRY(const plan::LayerRange prologue, bind_range(binder, 0, plan.prologue, &program));
  program.prologue = prologue.count;
  int32_t next = plan.prologue;
  for (const plan::LayerRange& layer : plan.layers) {
    if (layer.count == 0) continue;
    CULET_CHECK(layer.first == next);
    CULET_TRY(const plan::LayerRange range, bind_range(binder, layer.first, layer.count, &program));
    program.layers.push_back(range);
    next += layer.count;
  }
  CULET_TRY_VOID(bind_range(binder, next, static_cast<int32_t>(plan.ops.size()) - next, &program));
  bind_ropes(binder, &program);
  return program;
}

int64_t scratch_bytes(const Binder& binder, int64_t rows) {
  int64_t most = 64;
  for (const plan::Op& op : binder.plan.ops) {
    const OpEntry* entry = find_entry(op.kind);
    if (entry != nullptr && entry->scratch != nullptr)
      most = std::max(most, entry->scratch(binder, op, rows));
  }
  return (most + 4095) / 4096 * 4096;  // workers do not share a page
}

int64_t shared_bytes(const Binder& binder, int64_t rows, int threads) {
  int64_t most = 64;
  for (const plan::Op& op : binder.plan.ops) {
    most =
        std::max({most, attend_shared_bytes(op, threads), experts_shared_bytes(binder, op, rows)});
  }
  return most;
}

int64_t own_key_bytes(const plan::Plan& plan) {
  int64_t most = 0;
  for (const plan::Op& op : plan.ops) most = std::max(most, own_block_bytes(op));
  return most;
}

}  // namespace culet::backend
