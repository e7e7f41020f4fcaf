// Fusion: every pattern on the text it is made for, and a near miss for every guard.
#include "plan/plan_test_support.h"

namespace culet::plan::test {
namespace {

// Llama in Q8_0, one line of its feed-forward section replaced, everything unread ignored.
constexpr const char* kGate =
    "  x = x + linear(silu(linear(h, ffn_gate, ffn_gate.bias?)) * linear(h, ffn_up, "
    "ffn_up.bias?), ffn_down, ffn_down.bias?)\n";

std::string with_ffn(const std::string& lines) {
  std::string text = builtin().by_file_name("llama")->text;
  text = replace_line(text, kGate, lines);
  return replace_line(text, "ignore meta.context_length",
                      "ignore \"blk.*\", \"output*\"\nignore meta.context_length");
}

struct Pair {
  Plan fused, unfused;
};
Pair plans(const std::string& text, const std::string& header = "llama-q8_0",
           bool precise = false) {
  const ModelPtr model = fixture(header);
  Pair out;
  for (const bool fuse : {true, false}) {
    auto c = compile_text_of(text, model->file, {.precise = precise, .fuse = fuse});
    EXPECT_TRUE(c) << c.error().message;
    if (!c) return out;
    check_plan(c->plan);
    (fuse ? out.fused : out.unfused) = c->plan;
  }
  // Nothing else changes: the same outputs, caches, ropes, and every fused op stands for its run.
  EXPECT_EQ(out.fused.outputs.size(), out.unfused.outputs.size());
  EXPECT_EQ(out.fused.caches.size(), out.unfused.caches.size());
  EXPECT_EQ(out.unfused.ops.size(), out.fused.ops.size() +
                                        3 * ops_of(out.fused, OpKind::gated_linear).size() +
                                        ops_of(out.fused, OpKind::linear_add).size() +
                                        ops_of(out.fused, OpKind::rms_norm_quantize).size());
  return out;
}
Plan fused_ffn(const std::string& lines, bool precise = false) {
  return plans(with_ffn(lines), "llama-q8_0", precise).fused;
}

TEST(Fuse, LlamaFusesEverythingItCan) {
  for (const bool precise : {false, true}) {
    const Pair p = plans(builtin().by_file_name("llama")->text, "llama-q8_0", precise);
    const int n = p.fused.n_layers;
    EXPECT_EQ(count(p.fused, OpKind::gated_linear), n);
    EXPECT_EQ(count(p.fused, OpKind::linear_add), 2 * n);
    // Both norms of a layer; the last one feeds the output `hidden` too and stays.
    EXPECT_EQ(count(p.fused, OpKind::rms_norm_quantize), precise ? 0 : 2 * n);
    EXPECT_EQ(count(p.fused, OpKind::rms_norm), precise ? 2 * n + 1 : 1);
    EXPECT_EQ(count(p.fused, OpKind::silu), 0);
    for (const OpKind k : {OpKind::gated_linear, OpKind::linear_add, OpKind::rms_norm_quantize})
      EXPECT_EQ(count(p.unfused, k), 0);
  }
}

TEST(Fuse, GatedLinearKeepsItsParts) {
  const ModelPtr model = fixture("llama-q8_0");
  const auto name = [&](TensorId t) {
    return std::string(model->file.tensors()[static_cast<size_t>(t)].name);
  };
  for (const auto& [op, activation] : {std::pair{"silu", Activation::kSilu},
                                       {"gelu", Activation::kGelu},
                                       {"gelu_erf", Activation::kGeluErf},
                                       {"relu", Activation::kRelu},
                                       {"sigmoid", Activation::kSigmoid},
                                       {"tanh", Activation::kTanh}}) {
    const Plan p = fused_ffn("  f = " + std::string(op) +
                             "(linear(h, ffn_gate)) * linear(h, ffn_up)\n"
                             "  x = x + linear(f, ffn_down)\n");
    const auto ops = ops_of(p, OpKind::gated_linear, 0);
    ASSERT_EQ(ops.size(), 1u) << op;
    EXPECT_EQ(ops[0]->attr.as<ActivationAttributes>().activation, activation);
    ASSERT_EQ(ops[0]->weights.size(), 4u);
    EXPECT_EQ(name(ops[0]->weights[0]), "blk.0.ffn_gate.weight");
    EXPECT_EQ(name(ops[0]->weights[1]), "blk.0.ffn_up.weight");
    EXPECT_EQ(ops[0]->weights[2], kNone);
    EXPECT_EQ(ops[0]->in.size(), 1u);
  }
}

TEST(Fuse, GatedLinearNearMisses) {
  const char* misses[] = {
      // another operation between them
      "f = silu(linear(h, ffn_gate)) + linear(h, ffn_up)",
      // no activation, or one that is not in the table
      "f = linear(h, ffn_gate) * linear(h, ffn_up)",
      "f = softmax(linear(h, ffn_gate)) * linear(h, ffn_up)",
      // gate and up of different rows
      "f = silu(linear(h, ffn_gate)) * linear(x, ffn_up)",
      // gate, activation or up read twice
      "g = linear(h, ffn_gate)\n  f = silu(g) * linear(h, ffn_up) + g",
      "g = silu(linear(h, ffn_gate))\n  f = g * linear(h, ffn_up) + g",
      "u = linear(h, ffn_up)\n  f = silu(linear(h, ffn_gate)) * u + u",
      // one factor for both sides
      "u = silu(linear(h, ffn_up))\n  f = u * u",
      // not a product of values
      "f = silu(linear(h, ffn_gate)) * 2",
      // one vector for all vectors of the gate
      "f = (silu(linear(h, ffn_gate) as [5, 32]) * linear(h, attn_k)) as [160]",
      // something between linear and activation
      "f = silu(linear(h, ffn_gate) * 2) * linear(h, ffn_up)",
  };
  for (const char* miss : misses) {
    const Plan p = fused_ffn("  " + std::string(miss) + "\n  x = x + linear(f, ffn_down)\n");
    EXPECT_EQ(count(p, OpKind::gated_linear), 0) << miss;
  }
}

TEST(Fuse, LinearAddTakesEitherSideAndOneOfTwo) {
  for (const char* sum : {"x = x + linear(f, ffn_down)", "x = linear(f, ffn_down) + x"}) {
    const Plan p = fused_ffn("  f = linear(h, ffn_up)\n  " + std::string(sum) + "\n");
    const auto ops = ops_of(p, OpKind::linear_add, 0);
    ASSERT_EQ(ops.size(), 2u) << sum;  // attention's too
    EXPECT_EQ(value(p, ops[1]->in[0]).form, Form::kF32);
    EXPECT_EQ(value(p, ops[1]->in[1]).form, Form::kQuantized);
  }
  const Plan p =
      fused_ffn("  f = linear(h, ffn_up)\n  x = linear(f, ffn_down) + linear(f, ffn_down)\n");
  EXPECT_EQ(ops_of(p, OpKind::linear_add, 0).size(), 2u);
  EXPECT_EQ(ops_of(p, OpKind::linear, 0).size(), 5u);  // q, k, v, up and the other down
}

TEST(Fuse, LinearAddNearMisses) {
  const char* misses[] = {
      "x = x - linear(f, ffn_down)",
      "x = x * linear(f, ffn_down)",
      "x = 1 + linear(f, ffn_down)",
      "d = linear(f, ffn_down)\n  x = d + d",
      "d = linear(f, ffn_down)\n  x = x + d\n  x = x * d",
      "x = x + silu(linear(f, ffn_down))",
      "x = x + linear(f, ffn_down) * 2",
      // a vector for all vectors of a value, a number for all of a row
      "y = (concat(x, x) as [2, 64]) + linear(f, ffn_down)\n  x = x + y[0] * y[1]",
      "x = x * (linear(f, ffn_down) + row_mean(x))",
  };
  for (const char* miss : misses) {
    const Plan p = fused_ffn("  f = linear(h, ffn_up)\n  " + std::string(miss) + "\n");
    EXPECT_EQ(ops_of(p, OpKind::linear_add, 0).size(), 1u) << miss;  // attention's only
  }
}

TEST(Fuse, AnOutputIsNeverSwallowed) {
  std::string text = builtin().by_file_name("llama")->text;
  text = replace_line(text, "  output logits = linear(x, output | token_embd)\n",
                      "  l = linear(x, output | token_embd)\n  output raw = l\n"
                      "  output logits = l + l\n");
  const Plan p = plans(text).fused;
  EXPECT_EQ(ops_of(p, OpKind::linear, kNone).size(), 1u);
  EXPECT_NE(p.output("raw"), kNone);
  text = builtin().by_file_name("llama")->text;
  text = replace_line(text, "  output hidden = x\n", "");
  EXPECT_EQ(ops_of(plans(text).fused, OpKind::rms_norm_quantize, kNone).size(), 1u);
}

TEST(Fuse, RunsDoNotCrossALayer) {
  // The product is made in one layer and added in the next, or behind the last one.
  std::string text = with_ffn("  x = x + y\n  y = linear(linear(h, ffn_up), ffn_down)\n");
  text = replace_line(text, "  layers: layer\n", "  y = x\n  layers: layer\n  x = x + y\n");
  const Plan p = plans(text).fused;
  EXPECT_EQ(count(p, OpKind::linear_add), p.n_layers);  // attention's only
}

TEST(Fuse, NormsThatStay) {
  const Plan heads = plans(builtin().by_file_name("qwen3")->text, "qwen3").fused;
  EXPECT_EQ(count(heads, OpKind::rms_norm), 4 * heads.n_layers + 1);  // float weights: no quantize
  struct Miss {
    const char* lines;
    int fused;
  };
  const Miss misses[] = {
      // the norm's row is read as floats too
      {"x = x + linear(linear(h, ffn_up), ffn_down) + h", 1},
      // a norm over parts of the row
      {"n = linear(rms_norm(x as [2, 32], none, eps) as [64], ffn_up)\n  x = x + linear(n, "
       "ffn_down) + h * 0",
       1},
      // a layer norm
      {"x = x + linear(linear(layer_norm(x, ffn_norm, none, eps), ffn_up), ffn_down) + h * 0", 1},
      // not quantized: an activation stands between
      {"x = x + linear(linear(silu(h), ffn_up), ffn_down)", 1},
      {"x = x + linear(linear(h, ffn_up), ffn_down)", 2},
  };
  for (const Miss& m : misses) {
    const Plan p = fused_ffn("  " + std::string(m.lines) + "\n");
    EXPECT_EQ(ops_of(p, OpKind::rms_norm_quantize, 0).size(), static_cast<size_t>(m.fused))
        << m.lines;
  }
}

TEST(Assign, TheArenaIsReused) {
  const Plan p = plans(builtin().by_file_name("llama")->text).fused;
  int64_t all = 0;
  for (const Op& op : p.ops)
    for (ValueId v : op.out) all += value(p, v).row_bytes;
  EXPECT_LT(p.arena_token_bytes + p.arena_output_bytes, all / 2);
}

}  // namespace
}  // namespace culet::plan::test
