// Takes the graph of an architecture, makes explicit what every backend needs to know: the second
// query that sink keys of a stream see, where rows are dropped, and where activations become
// int8.
#include "plan/passes.h"

#include <algorithm>
#include <iterator>

namespace culet::plan {
namespace {

bool writes_memory(OpKind k) { return k == OpKind::append || k == OpKind::short_conv; }

bool integer_weights(quant::TensorType t) {
  return t != quant::TensorType::F32 && t != quant::TensorType::F16 && t != quant::TensorType::BF16;
}

ValueId clone(Plan* plan, ValueId v) {
  plan->values.push_back(plan->values[static_cast<size_t>(v)]);
  return static_cast<ValueId>(plan->values.size()) - 1;
}

// Makes the second query of one attend: the same ops, with the ropes at the sink position.
class SinkQuery {
 public:
  SinkQuery(Plan* plan, size_t attend) : plan_(plan), attend_(attend) {
    const int32_t layer = plan->ops[attend].layer;
    while (first_ > 0 && plan->ops[first_ - 1].layer == layer) --first_;
  }

  // The value that stands for v at the sink position; v itself where no rope is behind it.
  ValueId of(ValueId v) {
    for (size_t k = attend_; k-- > first_;) {
      const Op& op = plan_->ops[k];
      if (std::find(op.out.begin(), op.out.end(), v) == op.out.end()) continue;
      if (op.kind == OpKind::attend || writes_memory(op.kind)) return v;
      Op twin = op;
      for (ValueId& in : twin.in) in = of(in);
      if (op.kind == OpKind::rope)
        twin.attr.as<RopeAttributes>().sinks = true;
      else if (twin.in == op.in)
        return v;
      ValueId result = kNone;
      for (ValueId& out : twin.out) {
        const bool wanted = out == v;
        out = clone(plan_, out);
        if (wanted) result = out;
      }
      twins_.emplace_back(k, std::move(twin));
      return result;
    }
    return v;
  }

  // (index of the original, twin), those that others need first.
  std::vector<std::pair<size_t, Op>> take() { return std::move(twins_); }

 private:
  Plan* plan_;
  std::vector<std::pair<size_t, Op>> twins_;
  size_t attend_, first_ = attend_;
};

}  // namespace

void add_sink_queries(Plan* plan) {
  std::vector<std::pair<size_t, Op>> twins;
  for (size_t k = 0; k < plan->ops.size(); ++k) {
    const auto* attend = plan->ops[k].attr.get_if<AttendAttributes>();
    if (!attend || attend->cache == kNone) continue;
    const CacheSpec& cache = plan->caches[static_cast<size_t>(attend->cache)];
    if (cache.policy != CachePolicy::kGlobal) continue;
    SinkQuery sinks(plan, k);
    const ValueId query = plan->ops[k].in[0];
    const ValueId second = sinks.of(query);
    if (second == query) continue;
    plan->ops[k].in.push_back(second);
    std::vector<std::pair<size_t, Op>> made = sinks.take();
    std::move(made.begin(), made.end(), std::back_inserter(twins));
  }
  std::stable_sort(twins.begin(), twins.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  // Each twin stands before its original, whose input may then be overwritten.
  std::vector<Op> ops;
  size_t next = 0;
  for (size_t k = 0; k < plan->ops.size(); ++k) {
    for (; next < twins.size() && twins[next].first == k; ++next)
      ops.push_back(std::move(twins[next].second));
    ops.push_back(std::move(plan->ops[k]));
  }
  plan->ops = std::move(ops);
}

void select_rows(Plan* plan) {
  if (plan->kind != "decoder") return;  // an encoder's rows all count, a draft model has but one
  size_t border = 0;                    // ops from here on run for output tokens only
  for (size_t k = 0; k < plan->ops.size(); ++k)
    if (writes_memory(plan->ops[k].kind)) border = k + 1;
  std::vector<bool> all_rows(plan->values.size(), false);
  for (size_t k = 0; k < border; ++k)
    for (ValueId v : plan->ops[k].out) all_rows[static_cast<size_t>(v)] = true;
  std::vector<ValueId> selected(plan->values.size(), kNone);  // of each value that crosses
  const auto select = [&](ValueId v, const Op& behind) {
    Op op = make_op(OpKind::select_rows, behind.layer, behind.line);
    op.in = {v};
    op.out = {clone(plan, v)};
    plan->values[static_cast<size_t>(op.out[0])].rows = TokenSet::kOutputs;
    selected[static_cast<size_t>(v)] = op.out[0];
    return op;
  };
  std::vector<Op> selects, rest;
  const auto cross = [&](ValueId* v) {
    if (!all_rows[static_cast<size_t>(*v)]) return;
    if (selected[static_cast<size_t>(*v)] == kNone)
      selects.push_back(select(*v, plan->ops[border - 1]));
    *v = selected[static_cast<size_t>(*v)];
  };
  for (size_t k = border; k < plan->ops.size(); ++k) {
    Op op = std::move(plan->ops[k]);
    for (ValueId& v : op.in) cross(&v);
    const bool source = op.in.empty();  // embed and the like make every row, wherever they stand
    for (ValueId v : op.out) {
      all_rows[static_cast<size_t>(v)] = source;
      if (!source) plan->values[static_cast<size_t>(v)].rows = TokenSet::kOutputs;
    }
    rest.push_back(std::move(op));
    if (!source) continue;
    const Op made = rest.back();
    for (ValueId v : made.out) rest.push_back(select(v, made));
  }
  for (Output& o : plan->outputs) cross(&o.value);
  plan->ops.resize(border);
  for (std::vector<Op>* part : {&selects, &rest})
    std::move(part->begin(), part->end(), std::back_inserter(plan->ops));
}

void insert_quantize(Plan* plan, const Tensors& tensors) {
  const auto integer = [&](TensorId t) {
    return t != kNone && integer_weights(tensors.at(t).type);
  };
  const auto floating = [&](TensorId t) {
    return t != kNone && !integer_weights(tensors.at(t).type);
  };
  std::vector<Op> out;
  std::vector<ValueId> quantized(plan->values.size(), kNone);  // of each float value, once made
  const auto quantized_input = [&](const Op& op) {
    ValueId& q = quantized[static_cast<size_t>(op.in[0])];
    if (q != kNone) return q;
    Op quantize = make_op(OpKind::quantize, op.layer, op.line);
    quantize.in = {op.in[0]};
    q = clone(plan, op.in[0]);
    plan->values[static_cast<size_t>(q)].form = Form::kQuantized;
    quantize.out = {q};
    out.push_back(std::move(quantize));
    return q;
  };
  for (Op& op : plan->ops) {
    if (op.kind == OpKind::linear && integer(op.weights[0])) op.in[0] = quantized_input(op);
    if (op.kind == OpKind::experts) {
      const auto first = op.weights.begin(), down = first + 3;  // gate, up, gate_up, down
      op.attr.as<ExpertsAttributes>().quantize_hidden = integer(*down);
      if (std::any_of(first, down, integer)) {
        const ValueId q = quantized_input(op);
        if (std::any_of(first, down, floating)) {
          op.in.push_back(q);
        } else {
          op.in[0] = q;
        }
      }
    }
    out.push_back(std::move(op));
  }
  plan->ops = std::move(out);
}

void remove_dead(Plan* plan) {
  std::vector<bool> live(plan->values.size(), false);
  for (const Output& o : plan->outputs) live[static_cast<size_t>(o.value)] = true;
  std::vector<Op> kept;
  for (size_t k = plan->ops.size(); k-- > 0;) {
    Op& op = plan->ops[k];
    const bool wanted = writes_memory(op.kind) ||
                        std::any_of(op.out.begin(), op.out.end(),
                                    [&](ValueId v) { return live[static_cast<size_t>(v)]; });
    if (!wanted) continue;
    for (ValueId v : op.in) live[static_cast<size_t>(v)] = true;
    kept.push_back(std::move(op));
  }
  std::reverse(kept.begin(), kept.end());
  plan->ops = std::move(kept);
}

}  // namespace culet::plan
