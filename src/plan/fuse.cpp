// Fusion: one table of patterns. A pattern looks at the op that ends a run, checks that the values
// inside the run are read by nobody else, and rewrites the run into one op.
//
// A fused op performs exactly the roundings of the run it replaces, so `CULET_FUSE=off` gives the
// same bits (docs/decisions/0003). Every guard below has a near-miss test in plan_test.cpp.
#include "plan/passes.h"

#include <algorithm>

namespace culet::plan {
namespace {

class Fuser {
 public:
  explicit Fuser(Plan* plan)
      : plan_(plan), producer_(plan->values.size(), kNone), uses_(plan->values.size(), 0) {
    for (size_t k = 0; k < plan->ops.size(); ++k) {
      for (ValueId v : plan->ops[k].out)
        producer_[static_cast<size_t>(v)] = static_cast<int32_t>(k);
      for (ValueId v : plan->ops[k].in) ++uses_[static_cast<size_t>(v)];
    }
    for (const Output& o : plan->outputs) uses_[static_cast<size_t>(o.value)] += 2;  // must stay
    dead_.assign(plan->ops.size(), false);
  }

  int run() {
    using Pattern = bool (Fuser::*)(size_t);
    static constexpr struct {
      OpKind last;
      Pattern apply;
    } kPatterns[] = {
        {OpKind::arithmetic, &Fuser::gated_linear},     // act(linear(x, G)) * linear(x, U)
        {OpKind::arithmetic, &Fuser::linear_add},       // x + linear(y, W)
        {OpKind::quantize, &Fuser::rms_norm_quantize},  // quantize(rms_norm(x, w))
    };
    int count = 0;
    for (const auto& p : kPatterns)
      for (size_t k = 0; k < plan_->ops.size(); ++k)
        if (!dead_[k] && plan_->ops[k].kind == p.last && (this->*p.apply)(k)) ++count;
    std::vector<Op> kept;
    for (size_t k = 0; k < plan_->ops.size(); ++k)
      if (!dead_[k]) kept.push_back(std::move(plan_->ops[k]));
    plan_->ops = std::move(kept);
    return count;
  }

 private:
  // The op that makes v, if it is of this kind, in this layer, and v has no other reader.
  int32_t sole(ValueId v, OpKind kind, const Op& reader) const {
    const int32_t p = producer_[static_cast<size_t>(v)];
    if (p == kNone || dead_[static_cast<size_t>(p)] || uses_[static_cast<size_t>(v)] != 1)
      return kNone;
    const Op& op = plan_->ops[static_cast<size_t>(p)];
    return op.kind == kind && op.layer == reader.layer ? p : kNone;
  }
  Op& op(int32_t k) { return plan_->ops[static_cast<size_t>(k)]; }
  // Of one shape: not one number or vector for many.
  bool two_values(const Op& o, Arithmetic a) const {
    const auto width = [&](ValueId v) { return plan_->values[static_cast<size_t>(v)].width; };
    return o.attr.as<ArithmeticAttributes>().arithmetic == a && o.in.size() == 2 &&
           width(o.in[0]) == width(o.in[1]);
  }
  bool same_rows(ValueId a, ValueId b) const {
    return plan_->values[static_cast<size_t>(a)].rows == plan_->values[static_cast<size_t>(b)].rows;
  }

  static Activation activation(OpKind k) {
    switch (k) {
      case OpKind::silu:
        return Activation::kSilu;
      case OpKind::gelu:
        return Activation::kGelu;
      case OpKind::gelu_erf:
        return Activation::kGeluErf;
      case OpKind::relu:
        return Activation::kRelu;
      case OpKind::sigmoid:
        return Activation::kSigmoid;
      case OpKind::tanh:
        return Activation::kTanh;
      default:
        return Activation::kNone;
    }
  }

  bool gated_linear(size_t k) {
    Op& product = plan_->ops[k];
    if (!two_values(product, Arithmetic::kMul)) return false;
    const int32_t act = producer_[static_cast<size_t>(product.in[0])];
    if (act == kNone || dead_[static_cast<size_t>(act)] ||
        uses_[static_cast<size_t>(product.in[0])] != 1)
      return false;
    const Activation a = activation(op(act).kind);
    if (a == Activation::kNone || op(act).layer != product.layer) return false;
    const int32_t gate = sole(op(act).in[0], OpKind::linear, product);
    const int32_t up = sole(product.in[1], OpKind::linear, product);
    if (gate == kNone || up == kNone || op(gate).in[0] != op(up).in[0]) return false;
    Op fused = make_op(OpKind::gated_linear, product.layer, product.line);
    fused.in = {op(gate).in[0]};
    fused.out = product.out;
    fused.weights = {op(gate).weights[0], op(up).weights[0], op(gate).weights[1],
                     op(up).weights[1]};
    fused.attr = ActivationAttributes{a};
    --uses_[static_cast<size_t>(fused.in[0])];
    kill({act, gate, up});
    product = std::move(fused);
    return true;
  }

  bool linear_add(size_t k) {
    Op& sum = plan_->ops[k];
    if (!two_values(sum, Arithmetic::kAdd)) return false;
    for (int side : {1, 0}) {  // a + b is the same number as b + a
      const int32_t product = sole(sum.in[static_cast<size_t>(side)], OpKind::linear, sum);
      if (product == kNone || !same_rows(sum.in[static_cast<size_t>(1 - side)], sum.out[0]))
        continue;
      Op fused = make_op(OpKind::linear_add, sum.layer, sum.line);
      fused.in = {sum.in[static_cast<size_t>(1 - side)], op(product).in[0]};
      fused.out = sum.out;
      fused.weights = op(product).weights;
      kill({product});
      sum = std::move(fused);
      return true;
    }
    return false;
  }

  bool rms_norm_quantize(size_t k) {
    Op& quantize = plan_->ops[k];
    const int32_t norm = sole(quantize.in[0], OpKind::rms_norm, quantize);
    if (norm == kNone || plan_->values[static_cast<size_t>(quantize.in[0])].rank != 1) return false;
    Op fused = op(norm);
    fused.kind = OpKind::rms_norm_quantize;
    fused.out = quantize.out;
    kill({norm});
    quantize = std::move(fused);
    return true;
  }

  void kill(std::initializer_list<int32_t> ops) {
    for (int32_t k : ops) dead_[static_cast<size_t>(k)] = true;
  }

  Plan* plan_;
  std::vector<int32_t> producer_;
  std::vector<int32_t> uses_;
  std::vector<bool> dead_;
};

}  // namespace

int fuse(Plan* plan) { return Fuser(plan).run(); }

}  // namespace culet::plan
