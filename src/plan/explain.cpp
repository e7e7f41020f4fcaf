// The plan as text: one op a line beside the line of the architecture file it comes from.
#include "plan/compile.h"
#include "plan/report.h"

#include <fmt/format.h>

namespace culet::plan {
namespace {

std::string value_text(const Plan& plan, ValueId id) {
  const Value& v = plan.values[static_cast<size_t>(id)];
  std::string dims;
  for (int32_t d = 0; d < v.rank; ++d)
    dims += fmt::format("{}{}", d ? "," : "", v.dims[static_cast<size_t>(d)]);
  return fmt::format("{}%{}[{}{}{}]@{}", v.name, id, v.rows == TokenSet::kOutputs ? "wanted:" : "",
                     dims, v.form == Form::kQuantized ? " int8" : "", v.offset);
}

std::string weights_text(const Op& op, const Tensors& tensors) {
  std::string out;
  for (TensorId t : op.weights) {
    if (t == kNone) continue;
    const format::TensorInfo& w = tensors.at(t);
    std::string dims;
    for (int d = 0; d < w.n_dims; ++d)
      dims += fmt::format("{}{}", d ? "," : "", w.dims[static_cast<size_t>(d)]);
    out += fmt::format(" {}{}{{{}}} {}", Tensors::of_target(t) ? "target." : "", w.name, dims,
                       quant::type_info(w.type).name);
  }
  return out;
}

std::string source_line(const Plan& plan, int32_t line) {
  if (line <= 0 || static_cast<size_t>(line) >= plan.source.size()) return "";
  std::string text = plan.source[static_cast<size_t>(line)];
  text.erase(0, text.find_first_not_of(' '));
  return text;
}

// What stands behind an op's operands.
struct AttributesText {
  const Plan& plan;
  const Op& op;

  std::string cache(int32_t index) const {
    const CacheSpec& c = plan.caches[static_cast<size_t>(index)];
    std::string out = fmt::format(" cache={}/{}", c.name, c.layer);
    if (c.policy == CachePolicy::kWindow) out += fmt::format(" window={}", c.window);
    return out;
  }
  static std::string activation(Activation a) {
    static constexpr const char* kNames[] = {"none", "silu",    "gelu", "gelu_erf",
                                             "relu", "sigmoid", "tanh"};
    return fmt::format(" act={}", kNames[static_cast<size_t>(a)]);
  }

  std::string operator()(const NoAttributes&) const { return ""; }
  std::string operator()(const EmbedAttributes&) const { return ""; }
  std::string operator()(const NormAttributes& a) const { return fmt::format(" eps={}", a.eps); }
  std::string operator()(const RopeAttributes& a) const {
    const RopeSpec& r = plan.ropes[static_cast<size_t>(a.rope)];
    std::string out = fmt::format(" {} dims={} base={} scale={}",
                                  a.adjacent ? "adjacent" : "halves", r.dims, r.base, r.scale);
    if (r.attn_factor != 1) out += fmt::format(" attn_factor={}", r.attn_factor);
    if (r.mix_to > 0) out += fmt::format(" mix={}..{}", r.mix_from, r.mix_to);
    if (r.factors != kNone) out += " factors";
    if (a.sinks) out += " sinks";
    return out;
  }
  std::string operator()(const AppendAttributes& a) const { return cache(a.cache); }
  std::string operator()(const AttendAttributes& a) const {
    std::string out = a.cache != kNone ? cache(a.cache) : "";
    out += fmt::format(" heads={}/{} scale={}", a.heads, a.kv_heads, a.scale);
    if (a.softcap != 0) out += fmt::format(" softcap={}", a.softcap);
    if (a.mask == Mask::kFull) out += " mask=full";
    if (a.mask == Mask::kBand) out += fmt::format(" mask=band({})", a.band);
    return out;
  }
  std::string operator()(const ArithmeticAttributes& a) const {
    static constexpr char kSigns[] = {'+', '-', '*', '/'};
    std::string out = fmt::format(" {}", kSigns[static_cast<size_t>(a.arithmetic)]);
    if (op.in.size() == 1 && op.weights.empty()) out += fmt::format(" {}", a.scalar);
    return out;
  }
  std::string operator()(const ActivationAttributes& a) const { return activation(a.activation); }
  std::string operator()(const SoftcapAttributes& a) const { return fmt::format(" cap={}", a.cap); }
  std::string operator()(const ColumnsAttributes& a) const {
    return fmt::format(" columns {}..{}", a.first, a.first + a.count);
  }
  std::string operator()(const RouteAttributes& a) const {
    std::string out = fmt::format(" top={} score={}", a.top, a.sigmoid ? "sigmoid" : "softmax");
    if (a.renormalise) out += " renormalise";
    if (a.scale != 1) out += fmt::format(" scale={}", a.scale);
    return out;
  }
  std::string operator()(const ExpertsAttributes& a) const { return activation(a.activation); }
  std::string operator()(const PoolAttributes& a) const { return a.mean ? " mean" : " first"; }
  std::string operator()(const ShortConvAttributes& a) const {
    const StateSpec& s = plan.states[static_cast<size_t>(a.state)];
    return fmt::format(" state={}/{} rows={}", s.name, s.layer, s.rows);
  }
  std::string operator()(const SuppressAttributes& a) const {
    return fmt::format(" tokens={}", plan.token_lists[static_cast<size_t>(a.tokens)].size());
  }
};

}  // namespace

std::string attributes_text(const Plan& plan, const Op& op) {
  return op.attr.visit(AttributesText{plan, op});
}

std::string explain(const Plan& plan, const Tensors& tensors,
                    const std::function<std::string(size_t)>& note) {
  std::string out = fmt::format(
      "architecture {} ({}), {} layers, {} operations, arena {} bytes per token + {} per output "
      "token, "
      "text sha256 {}\n",
      plan.architecture, plan.kind, plan.n_layers, plan.ops.size(), plan.arena_token_bytes,
      plan.arena_output_bytes, plan.source_sha256);
  int32_t layer = -2, line = -1;
  for (size_t k = 0; k < plan.ops.size(); ++k) {
    const Op& op = plan.ops[k];
    if (op.layer != layer) {
      layer = op.layer, line = -1;
      out += layer == kNone ? std::string("model\n") : fmt::format("layer {}\n", layer);
    }
    if (op.line != line) {
      line = op.line;
      out += fmt::format("  {:>4}: {}\n", line, source_line(plan, line));
    }
    std::string ins, outs;
    for (ValueId v : op.in) ins += (ins.empty() ? "" : ", ") + value_text(plan, v);
    for (ValueId v : op.out) outs += (outs.empty() ? "" : ", ") + value_text(plan, v);
    out += fmt::format("        {}{}{}({}){}{}", outs, outs.empty() ? "" : " = ", op_name(op.kind),
                       ins, weights_text(op, tensors), attributes_text(plan, op));
    if (note) {
      const std::string n = note(k);
      if (!n.empty()) out += "  | " + n;
    }
    out += '\n';
  }
  for (const Output& o : plan.outputs)
    out += fmt::format("output {} = {}\n", o.name, value_text(plan, o.value));
  return out;
}

}  // namespace culet::plan
