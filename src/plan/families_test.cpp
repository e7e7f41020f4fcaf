// Every family compiles against the header of a real (tiny) model file: what the language carries,
// and the hyperparameters of the result that a wrong compiler would get wrong.
#include "plan/plan_test_support.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <tuple>

namespace culet::plan::test {
namespace {

struct Family {
  const char* header;
  const char* arch;
};
constexpr Family kFamilies[] = {
    {"llama", "llama"},
    {"llama-q8_0", "llama"},
    {"llama-quant-q8_0", "llama"},
    {"llama3-rope", "llama"},
    {"qwen2", "qwen2"},
    {"qwen2-q8_0", "qwen2"},
    {"qwen3", "qwen3"},
    {"gemma3", "gemma3"},
    {"gemma3-q8_0", "gemma3"},
    {"gemma3-linear", "gemma3"},
    {"gemma4-e", "gemma4"},
    {"gemma4-e-q8_0", "gemma4"},
    {"gemma4-dense", "gemma4"},
    {"gemma4-moe", "gemma4"},
    {"gemma3n", "gemma3n"},
    {"gemma4-assistant", "gemma4-assistant"},
    {"lfm2", "lfm2"},
    {"modernbert", "modern-bert"},
    {"phi3", "phi3"},
    {"phi3-longrope", "phi3"},
    {"phi3-window", "phi3"},
    {"glm4", "glm4"},
    {"gemma", "gemma"},
    {"gemma2", "gemma2"},
    {"olmo2", "olmo2"},
    {"olmo3", "olmo2"},
    {"granite", "granite"},
    {"smollm3", "smollm3"},
    {"qwen3moe", "qwen3moe"},
    {"mixtral", "llama"},
    {"bert", "bert"},
    {"gemma-embedding", "gemma-embedding"},
};

Compiled compiled(const std::string& header, const std::string& arch, CompileOptions options = {}) {
  const ModelPtr model = fixture(header);
  const ModelPtr target = arch == "gemma4-assistant" ? fixture("gemma4-e") : nullptr;
  if (target) options.target = &target->file;
  auto c = compile_text(builtin(), arch_file(arch), model->file, options);
  EXPECT_TRUE(c) << c.error().message;
  return c ? *c : Compiled{};
}
Plan plan_of(const std::string& header, const std::string& arch, CompileOptions options = {}) {
  return compiled(header, arch, options).plan;
}

TEST(Families, EveryOneCompilesFusedUnfusedAndPrecise) {
  for (const Family& f : kFamilies) {
    SCOPED_TRACE(f.header);
    for (const bool fuse : {true, false})
      for (const bool precise : {true, false}) {
        const Compiled c = compiled(f.header, f.arch, {.precise = precise, .fuse = fuse});
        ASSERT_FALSE(c.plan.ops.empty());
        EXPECT_EQ(testing::PrintToString(c.warnings), "{}");
        check_plan(c.plan);
        EXPECT_TRUE(!precise || count(c.plan, OpKind::quantize) == 0);
        EXPECT_TRUE(fuse || count(c.plan, OpKind::gated_linear) == 0);
      }
  }
}

// Requirement language.rotation "style of rotation": an operand of `rope`: adjacent pairs for
// `llama`, halves for Qwen and Gemma; the first logits are the reference's
TEST(Families, LlamaIsWhatItsFileSays) {
  const ModelPtr model = fixture("llama");
  const Plan plan = plan_of("llama", "llama", {.fuse = false});
  const auto layers = static_cast<int32_t>(*model->file.find("llama.block_count")->as_int());
  const auto heads =
      static_cast<int32_t>(*model->file.find("llama.attention.head_count")->as_int());
  const auto kv =
      static_cast<int32_t>(*model->file.find("llama.attention.head_count_kv")->as_int());
  const auto width = static_cast<int32_t>(*model->file.find("llama.embedding_length")->as_int());
  EXPECT_EQ(plan.architecture, "llama");
  EXPECT_EQ(plan.kind, "decoder");
  EXPECT_EQ(plan.n_layers, layers);
  ASSERT_EQ(plan.layers.size(), static_cast<size_t>(layers));
  ASSERT_EQ(plan.caches.size(), static_cast<size_t>(layers));
  EXPECT_EQ(plan.ropes.size(), 1u);                  // one table for every q and k of every layer
  EXPECT_EQ(count(plan, OpKind::rope), 3 * layers);  // q, k, and q again at the sink position
  for (int32_t l = 0; l < layers; ++l) {
    const CacheSpec& c = plan.caches[static_cast<size_t>(l)];
    EXPECT_EQ(c.layer, l);
    EXPECT_EQ(c.policy, CachePolicy::kGlobal);
    EXPECT_EQ(c.kv_heads, kv);
    const auto attends = ops_of(plan, OpKind::attend, l);
    ASSERT_EQ(attends.size(), 1u);
    const auto& a = attends[0]->attr.as<AttendAttributes>();
    const auto ropes = ops_of(plan, OpKind::rope, l);
    EXPECT_EQ(std::count_if(ropes.begin(), ropes.end(),
                            [](const Op* op) { return op->attr.as<RopeAttributes>().sinks; }),
              1);
    EXPECT_EQ(a.cache, l);
    EXPECT_EQ(a.heads, heads);
    EXPECT_EQ(a.kv_heads, kv);
    EXPECT_FLOAT_EQ(a.scale, 1 / std::sqrt(static_cast<float>(a.head_dim)));
    EXPECT_EQ(a.mask, Mask::kCausal);
    EXPECT_TRUE(ops_of(plan, OpKind::rope, l)[0]->attr.as<RopeAttributes>().adjacent);
  }
  const auto vocabulary = static_cast<int32_t>(model->file.tensor("token_embd.weight")->dims[1]);
  EXPECT_EQ(value(plan, plan.output("logits")).width, vocabulary);
  EXPECT_EQ(value(plan, plan.output("hidden")).width, width);
  EXPECT_EQ(value(plan, plan.output("logits")).rows, TokenSet::kOutputs);
}

TEST(Families, Llama3RopeReadsTheFactors) {
  const ModelPtr model = fixture("llama3-rope");
  const Plan plan = plan_of("llama3-rope", "llama");
  ASSERT_EQ(plan.ropes.size(), 1u);
  ASSERT_NE(plan.ropes[0].factors, kNone);
  EXPECT_EQ(model->file.tensors()[static_cast<size_t>(plan.ropes[0].factors)].name,
            "rope_freqs.weight");
}

// Verifies language.rotation.
TEST(Families, QwenRotatesHalvesAndReadsBiases) {
  const Plan qwen2 = plan_of("qwen2", "qwen2", {.fuse = false});
  EXPECT_FALSE(ops_of(qwen2, OpKind::rope)[0]->attr.as<RopeAttributes>().adjacent);
  int with_bias = 0;
  for (const Op* op : ops_of(qwen2, OpKind::linear)) with_bias += op->weights[1] != kNone;
  EXPECT_EQ(with_bias, 3 * qwen2.n_layers);
  const Plan qwen3 = plan_of("qwen3", "qwen3", {.fuse = false});
  EXPECT_EQ(count(qwen3, OpKind::rms_norm), 4 * qwen3.n_layers + 1);
  for (const Op* op : ops_of(qwen3, OpKind::rope)) EXPECT_EQ(value(qwen3, op->in[0]).rank, 2);
}

// Verifies answers.tokens-without-outputs.
TEST(Families, SelectRowsStandsRightBehindTheLastAppend) {
  for (const char* name : {"llama", "gemma3", "gemma4", "lfm2"}) {
    SCOPED_TRACE(name);
    const std::string header = name == std::string("gemma4") ? "gemma4-e" : name;
    const Plan plan = plan_of(header, name, {.precise = true, .fuse = false});
    size_t last = 0;
    for (size_t k = 0; k < plan.ops.size(); ++k)
      if (plan.ops[k].kind == OpKind::append || plan.ops[k].kind == OpKind::short_conv) last = k;
    ASSERT_EQ(plan.ops[last + 1].kind, OpKind::select_rows);
    bool behind = false;
    for (size_t k = last + 1; k < plan.ops.size(); ++k) {
      if (plan.ops[k].kind != OpKind::select_rows) behind = true;
      EXPECT_FALSE(behind && plan.ops[k].kind == OpKind::select_rows);
      for (ValueId v : plan.ops[k].out) EXPECT_EQ(value(plan, v).rows, TokenSet::kOutputs);
    }
    for (size_t k = 0; k <= last; ++k)
      for (ValueId v : plan.ops[k].out) EXPECT_EQ(value(plan, v).rows, TokenSet::kAll);
  }
}

TEST(Families, QuantizedRowsAreSharedByTheProductsThatReadThem) {
  for (const char* name : {"llama-q8_0", "qwen2-q8_0"}) {
    const std::string arch = std::string(name).substr(0, std::string(name).find('-'));
    const Plan plan = plan_of(name, arch, {.fuse = false});
    for (int32_t l = 0; l < plan.n_layers; ++l) {
      // q, k, v share one; attention's result, gate and up, the feed-forward's product: one each.
      EXPECT_EQ(ops_of(plan, OpKind::quantize, l).size(), 4u);
      const auto linears = ops_of(plan, OpKind::linear, l);
      ASSERT_EQ(linears.size(), 7u);
      if (l + 1 < plan.n_layers) {
        EXPECT_EQ(linears[0]->in[0], linears[1]->in[0]);
        EXPECT_EQ(linears[0]->in[0], linears[2]->in[0]);
      }
      EXPECT_EQ(linears[4]->in[0], linears[5]->in[0]);
      for (const Op* op : linears) EXPECT_EQ(value(plan, op->in[0]).form, Form::kQuantized);
    }
  }
}

// Verifies language.windows-layer-by-layer.
TEST(Families, Gemma3MixesWindowsAndGlobalLayers) {
  const ModelPtr model = fixture("gemma3");
  const auto window = *model->file.find("gemma3.attention.sliding_window")->as_int();
  const auto* pattern = model->file.find("gemma3.attention.sliding_window_pattern");
  const int64_t period = pattern ? *pattern->as_int() : 6;
  const Plan plan = plan_of("gemma3", "gemma3");
  ASSERT_EQ(plan.caches.size(), static_cast<size_t>(plan.n_layers));
  EXPECT_EQ(plan.ropes.size(), 2u);  // local and global base
  std::set<int32_t> seen;
  for (const Op* op : ops_of(plan, OpKind::rope)) {
    const bool local = (op->layer + 1) % period != 0;
    const RopeSpec& rope = plan.ropes[static_cast<size_t>(op->attr.as<RopeAttributes>().rope)];
    EXPECT_EQ(rope.base, local ? 10000 : 1000000);
    const CacheSpec& cache = plan.caches[static_cast<size_t>(op->layer)];
    EXPECT_EQ(cache.policy, local ? CachePolicy::kWindow : CachePolicy::kGlobal);
    EXPECT_EQ(cache.window, local ? window : 0);
    seen.insert(local);
  }
  EXPECT_EQ(seen.size(), 2u);
}

// The depth of the 270M model: every sixth layer is global.
// Requirement language.windows-layer-by-layer "windows layer by layer": Gemma 3 of 18 layers: 5, 11
// and 17 are global; a query sees less than `window` positions back; the logits past the window are
// the reference's
TEST(Families, Gemma3Of18LayersHasThreeGlobalOnes) {
  constexpr uint32_t kLayers = 18;
  Header h("gemma3");
  h.number("gemma3.block_count", kLayers).number("gemma3.embedding_length", 32);
  h.number("gemma3.attention.head_count", 1).number("gemma3.attention.key_length", 32);
  h.number("gemma3.attention.sliding_window", 512);
  h.real("gemma3.attention.layer_norm_rms_epsilon", 1e-6f);
  h.tensor("token_embd.weight", {32, 64}).tensor("output_norm.weight", {32});
  for (uint32_t l = 0; l < kLayers; ++l) {
    const std::string layer = "blk." + std::to_string(l) + ".";
    for (const char* norm : {"attn_norm", "attn_q_norm", "attn_k_norm", "post_attention_norm",
                             "ffn_norm", "post_ffw_norm"})
      h.tensor(layer + norm + ".weight", {32});
    for (const char* matrix :
         {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"})
      h.tensor(layer + matrix + ".weight", {32, 32});
  }
  const ModelPtr model = h.model();
  auto c = compile(builtin(), model->file, {});
  ASSERT_TRUE(c) << c.error().message;
  ASSERT_EQ(c->plan.caches.size(), kLayers);
  std::set<int32_t> global;
  for (const CacheSpec& cache : c->plan.caches) {
    if (cache.policy == CachePolicy::kGlobal) {
      global.insert(cache.layer);
    } else {
      EXPECT_EQ(cache.window, 512);
    }
  }
  EXPECT_EQ(global, (std::set<int32_t>{5, 11, 17}));
}

TEST(Families, Gemma3LinearStretchesOnlyGlobalLayers) {
  const ModelPtr model = fixture("gemma3-linear");
  const double factor = *model->file.find("gemma3.rope.scaling.factor")->as_number();
  const Plan plan = plan_of("gemma3-linear", "gemma3");
  for (const Op* op : ops_of(plan, OpKind::rope)) {
    const bool local = plan.caches[static_cast<size_t>(op->layer)].policy == CachePolicy::kWindow;
    EXPECT_EQ(plan.ropes[static_cast<size_t>(op->attr.as<RopeAttributes>().rope)].scale,
              local ? 1 : 1 / factor);
  }
}

TEST(Families, Gemma4SharesTheDonorsCaches) {
  const Plan plan = plan_of("gemma4-e", "gemma4");
  // Pattern: window, window, global, three times; the last three of nine layers own no cache.
  ASSERT_EQ(plan.n_layers, 9);
  ASSERT_EQ(plan.caches.size(), 6u);
  const int32_t reads[] = {0, 1, 2, 3, 4, 5, 4, 4, 5};
  for (int32_t l = 0; l < 9; ++l) {
    const auto attends = ops_of(plan, OpKind::attend, l);
    ASSERT_EQ(attends.size(), 1u);
    const auto& a = attends[0]->attr.as<AttendAttributes>();
    const bool global = l % 3 == 2;
    EXPECT_EQ(a.cache, reads[l]) << "layer " << l;
    EXPECT_EQ(a.head_dim, global ? 32 : 16);
    EXPECT_EQ(a.kv_heads, 2);
    EXPECT_EQ(a.scale, 1);
    EXPECT_EQ(ops_of(plan, OpKind::append, l).size(), l < 6 ? 1u : 0u);
    const auto ropes = ops_of(plan, OpKind::rope, l);
    const size_t sinks = global ? 1 : 0;  // the query that a stream's sink keys see
    EXPECT_EQ(ropes.size(), (l < 6 ? 2u : 1u) + sinks);
    const RopeSpec& rope =
        plan.ropes[static_cast<size_t>(ropes[0]->attr.as<RopeAttributes>().rope)];
    EXPECT_EQ(rope.base, global ? 1000000 : 10000);
    EXPECT_EQ(rope.factors != kNone, global);
    EXPECT_EQ(ops_of(plan, OpKind::view_layer, l).size(), 1u);
  }
  for (size_t c = 0; c < 6; ++c) {
    EXPECT_EQ(plan.caches[c].policy, c % 3 == 2 ? CachePolicy::kGlobal : CachePolicy::kWindow);
    EXPECT_EQ(plan.caches[c].window, c % 3 == 2 ? 0 : 8);
  }
  EXPECT_EQ(count(plan, OpKind::gather), 1);
  EXPECT_EQ(count(plan, OpKind::softcap), 1);
  EXPECT_EQ(count(plan, OpKind::suppress), 0);  // the file lists no tokens to suppress
  EXPECT_EQ(value(plan, plan.output("logits")).width, 512);
}

TEST(Families, Gemma4DenseAndExperts) {
  const Plan dense = plan_of("gemma4-dense", "gemma4");
  const int32_t kv_heads[] = {2, 2, 1, 2, 2, 1};
  ASSERT_EQ(dense.caches.size(), 6u);
  for (size_t l = 0; l < 6; ++l) EXPECT_EQ(dense.caches[l].kv_heads, kv_heads[l]);
  EXPECT_EQ(count(dense, OpKind::experts), 0);
  const Plan moe = plan_of("gemma4-moe", "gemma4");
  EXPECT_EQ(count(moe, OpKind::experts), 4);
  const Op& route = *ops_of(moe, OpKind::route)[0];
  EXPECT_EQ(route.attr.as<RouteAttributes>().top, 2);
  EXPECT_TRUE(route.attr.as<RouteAttributes>().renormalise);
  EXPECT_EQ(value(moe, route.out[0]).dims, (std::array<int32_t, 3>{2, 2, 0}));
  EXPECT_EQ(ops_of(moe, OpKind::experts)[0]->attr.as<ExpertsAttributes>().activation,
            Activation::kGelu);
}

TEST(Families, Gemma3nMixesStreamsAndThinsOutTheGatesOfItsFirstLayers) {
  const Plan plan = plan_of("gemma3n", "gemma3n", {.fuse = false});
  ASSERT_EQ(plan.n_layers, 10);
  ASSERT_EQ(plan.caches.size(), 5u);
  const int32_t reads[] = {0, 1, 2, 3, 4, 3, 3, 3, 3, 4};
  for (int32_t l = 0; l < 10; ++l) {
    EXPECT_EQ(ops_of(plan, OpKind::attend, l)[0]->attr.as<AttendAttributes>().cache, reads[l])
        << "layer " << l;
    EXPECT_EQ(ops_of(plan, OpKind::append, l).size(), l < 5 ? 1u : 0u);
    const bool global = l % 5 == 4;
    const RopeSpec& rope = plan.ropes[static_cast<size_t>(
        ops_of(plan, OpKind::rope, l)[0]->attr.as<RopeAttributes>().rope)];
    EXPECT_EQ(rope.base, global ? 1000000 : 10000);
    const auto mixes = ops_of(plan, OpKind::matmul, l);  // predicted, then corrected
    ASSERT_EQ(mixes.size(), 2u);
    EXPECT_EQ(value(plan, mixes[0]->in[0]).dims, (std::array<int32_t, 3>{4, 4, 0}));
    EXPECT_EQ(value(plan, mixes[1]->in[0]).dims, (std::array<int32_t, 3>{4, 1, 0}));
    for (const Op* mix : mixes)
      EXPECT_EQ(value(plan, mix->out[0]).dims, (std::array<int32_t, 3>{4, 48, 0}));
    EXPECT_EQ(ops_of(plan, OpKind::sqrt, l).size(), l < 3 ? 1u : 0u);
    EXPECT_EQ(ops_of(plan, OpKind::relu, l).size(), l < 3 ? 1u : 0u);
  }
  const auto projections = ops_of(plan, OpKind::grouped_linear);
  ASSERT_EQ(projections.size(), 2u);
  EXPECT_EQ(value(plan, projections[0]->in[0]).rank, 1);  // all from the first stream
  EXPECT_EQ(value(plan, projections[1]->in[0]).rank, 2);  // each from its own
  // Sparse gates are no gate of the fused product.
  EXPECT_EQ(count(plan_of("gemma3n", "gemma3n"), OpKind::gated_linear), 7);
}

TEST(Families, TheDraftModelReadsItsTarget) {
  const Plan plan = plan_of("gemma4-assistant", "gemma4-assistant");
  EXPECT_EQ(plan.kind, "draft");
  EXPECT_EQ(count(plan, OpKind::append), 0);
  ASSERT_EQ(count(plan, OpKind::input), 1);
  EXPECT_EQ(value(plan, ops_of(plan, OpKind::input)[0]->out[0]).width, 64);
  ASSERT_EQ(count(plan, OpKind::embed), 1);
  EXPECT_GE(ops_of(plan, OpKind::embed)[0]->weights[0], kTargetTensor);
  // Two caches of the target serve four layers: its last window layer's donor, its last global
  // one's.
  ASSERT_EQ(plan.caches.size(), 2u);
  std::set<int32_t> targets;
  for (const CacheSpec& c : plan.caches) targets.insert(c.target);
  EXPECT_EQ(targets, (std::set<int32_t>{4, 5}));
  for (int32_t l = 0; l < 4; ++l) {
    const auto& a = ops_of(plan, OpKind::attend, l)[0]->attr.as<AttendAttributes>();
    EXPECT_EQ(plan.caches[static_cast<size_t>(a.cache)].target, l == 3 ? 5 : 4);
    EXPECT_EQ(a.head_dim, l == 3 ? 32 : 16);
  }
  EXPECT_EQ(value(plan, plan.output("hidden")).width, 64);
  EXPECT_EQ(value(plan, plan.output("logits")).width, 512);
}

TEST(Families, TheDraftModelNeedsItsTargetAndTheRightOne) {
  const ModelPtr model = fixture("gemma4-assistant");
  const ArchText arch = arch_file("gemma4-assistant");
  auto alone = compile_text(builtin(), arch, model->file, {});
  ASSERT_FALSE(alone);
  EXPECT_NE(alone.error().message.find("runs only beside it"), std::string::npos)
      << alone.error().message;
  const ModelPtr wrong = fixture("llama");
  auto other = compile_text(builtin(), arch, model->file, {.target = &wrong->file});
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().message.find("no hyperparameter 'local'"), std::string::npos)
      << other.error().message;
}

// A field of a file: its length, then its name.
std::string field(const std::string& name) {
  const uint64_t length = name.size();
  std::string out(sizeof length, '\0');
  std::memcpy(out.data(), &length, sizeof length);
  return out + name;
}

TEST(Families, AnEarlierVintageOfTheDraftModelIsTheSame) {
  const ModelPtr target = fixture("gemma4-e");
  const auto lines = [&](const ModelPtr& model) {
    auto c = compile(builtin(), model->file, {.target = &target->file});
    EXPECT_TRUE(c) << c.error().message;
    if (!c) return std::string();
    EXPECT_EQ(testing::PrintToString(c->warnings), "{}");
    for (Op& op : c->plan.ops) op.weights.clear();  // their names differ
    const std::string text = explain(c->plan, {model->file, &target->file}, {});
    return text.substr(text.find('\n'));
  };
  const std::string now = lines(fixture("gemma4-assistant"));
  for (const std::string name : {"gemma4_assistant", "gemma4_mtp"}) {
    for (const std::string end : {"", ".weight"}) {
      std::string bytes = read_text(data("golden/headers/gemma4-assistant.gguf"));
      const auto replace = [&](const std::string& from, const std::string& to) {
        size_t count = 0;
        for (size_t at = 0; (at = bytes.find(field(from), at)) != std::string::npos; ++count)
          bytes.replace(at, field(from).size(), field(to));
        EXPECT_EQ(count, 1u) << from;
      };
      const ModelPtr model = fixture("gemma4-assistant");
      for (const format::MetaEntry& entry : model->file.metadata()) {
        const std::string key(entry.key), prefix = "gemma4-assistant.";
        if (key.rfind(prefix, 0) != 0) continue;
        const std::string rest = key.substr(prefix.size());
        replace(key, name + "." + (rest == "embedding_length_out" ? "n_embd_backbone" : rest));
      }
      replace("gemma4-assistant", name);
      replace("nextn.pre_projection.weight", "mtp.pre_projection" + end);
      replace("nextn.post_projection.weight", "mtp.post_projection" + end);
      EXPECT_EQ(lines(parse_model(bytes, "earlier.gguf")), now) << name << end;
    }
  }
}

TEST(Families, Lfm2MixesConvolutionsAndAttention) {
  const Plan plan = plan_of("lfm2", "lfm2");
  ASSERT_EQ(plan.caches.size(), 2u);  // layers 2 and 4
  EXPECT_EQ(plan.caches[0].layer, 2);
  EXPECT_EQ(plan.caches[1].layer, 4);
  EXPECT_EQ(count(plan, OpKind::short_conv), 3);
  ASSERT_EQ(plan.states.size(), 3u);
  for (int32_t s = 0; s < 3; ++s) {
    const StateSpec& state = plan.states[static_cast<size_t>(s)];
    EXPECT_EQ(state.name, "history");
    EXPECT_EQ(state.layer, (std::array<int32_t, 3>{0, 1, 3})[static_cast<size_t>(s)]);
    EXPECT_EQ(state.rows, 2);
    EXPECT_EQ(state.width, 64);
    const auto convs = ops_of(plan, OpKind::short_conv, state.layer);
    ASSERT_EQ(convs.size(), 1u);
    EXPECT_EQ(convs[0]->attr.as<ShortConvAttributes>().state, s);
  }
  EXPECT_EQ(ops_of(plan, OpKind::attend, 4)[0]->attr.as<AttendAttributes>().cache, 1);
}

TEST(Families, EncodersHaveNoCacheAndKeepEveryRow) {
  for (const auto& [header, arch] : {std::pair{"modernbert", "modern-bert"},
                                     {"bert", "bert"},
                                     {"gemma-embedding", "gemma-embedding"}}) {
    const Plan plan = plan_of(header, arch);
    EXPECT_EQ(plan.kind, "encoder");
    EXPECT_TRUE(plan.caches.empty());
    EXPECT_EQ(count(plan, OpKind::select_rows), 0);
    EXPECT_EQ(value(plan, plan.output("hidden")).rows, TokenSet::kAll);
    EXPECT_EQ(value(plan, plan.output("hidden")).width, 64);
    EXPECT_EQ(plan.output("logits"), kNone);
  }
  const Plan modern = plan_of("modernbert", "modern-bert");
  for (const Op* op : ops_of(modern, OpKind::attend)) {
    const bool local = op->layer % 3 != 0;
    EXPECT_EQ(op->attr.as<AttendAttributes>().mask, local ? Mask::kBand : Mask::kFull);
    EXPECT_EQ(op->attr.as<AttendAttributes>().band, local ? 4 : 0);
  }
  EXPECT_EQ(ops_of(modern, OpKind::layer_norm, 0).size(),
            1u);  // no norm before the first attention
  const Plan bert = plan_of("bert", "bert");
  const auto embeds = ops_of(bert, OpKind::embed);
  ASSERT_EQ(embeds.size(), 3u);
  EXPECT_EQ(embeds[1]->attr.as<EmbedAttributes>().by, EmbedAttributes::By::kPosition);
  EXPECT_EQ(embeds[2]->attr.as<EmbedAttributes>().by, EmbedAttributes::By::kType);
}

TEST(Families, EncodersPoolAsTheirFilesSay) {
  for (const auto& [header, arch, mean] : {std::tuple{"modernbert", "modern-bert", true},
                                           {"bert", "bert", false},
                                           {"gemma-embedding", "gemma-embedding", true}}) {
    const Plan plan = plan_of(header, arch);
    const auto pools = ops_of(plan, OpKind::pool);
    ASSERT_EQ(pools.size(), 1u) << header;
    EXPECT_EQ(pools[0]->attr.as<PoolAttributes>().mean, mean);
    EXPECT_EQ(pools[0]->in[0], plan.output("hidden"));
    EXPECT_EQ(value(plan, plan.output("pooled")).rows, TokenSet::kOutputs);
    EXPECT_EQ(count(plan, OpKind::sqrt), arch == std::string("gemma-embedding") ? 1 : 0);
  }
}

// EmbeddingGemma with the two dense layers that its converter can add.
TEST(Families, GemmaEmbeddingProjectsWhereTheFileHasDenseLayers) {
  const auto header = [](bool second) {
    Header h("gemma-embedding");
    h.number("gemma-embedding.block_count", 1).number("gemma-embedding.embedding_length", 32);
    h.number("gemma-embedding.attention.head_count", 1);
    h.number("gemma-embedding.attention.sliding_window", 8);
    h.number("gemma-embedding.pooling_type", 1).number("gemma-embedding.dense_2_feat_out", 96);
    h.real("gemma-embedding.attention.layer_norm_rms_epsilon", 1e-6f);
    h.tensor("token_embd.weight", {32, 64}).tensor("output_norm.weight", {32});
    for (const char* norm : {"attn_norm", "attn_q_norm", "attn_k_norm", "post_attention_norm",
                             "ffn_norm", "post_ffw_norm"})
      h.tensor(std::string("blk.0.") + norm + ".weight", {32});
    for (const char* matrix :
         {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"})
      h.tensor(std::string("blk.0.") + matrix + ".weight", {32, 32});
    h.tensor("dense_2.weight", {32, 96});
    if (second) h.tensor("dense_3.weight", {96, 32});
    return h.model();
  };
  const ModelPtr whole = header(true), half = header(false);
  const auto c = compile(builtin(), whole->file, {.fuse = false});
  ASSERT_TRUE(c) << c.error().message;
  check_plan(c->plan);
  EXPECT_EQ(testing::PrintToString(c->warnings), "{}");
  const auto products = ops_of(c->plan, OpKind::linear, kNone);
  ASSERT_EQ(products.size(), 2u);
  for (const Op* op : products) EXPECT_EQ(value(c->plan, op->out[0]).rows, TokenSet::kOutputs);
  EXPECT_EQ(value(c->plan, c->plan.output("pooled")).width, 32);
  const auto missing = compile(builtin(), half->file, {});
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("dense_3.weight is missing"), std::string::npos);
}

TEST(Families, Phi3CutsOneMatrixAndPicksFactorsByContext) {
  const Plan plan = plan_of("phi3", "phi3", {.fuse = false});
  const auto slices = ops_of(plan, OpKind::slice, 0);
  ASSERT_EQ(slices.size(), 3u);
  EXPECT_EQ(slices[1]->attr.as<ColumnsAttributes>().first, 64);
  EXPECT_EQ(slices[1]->attr.as<ColumnsAttributes>().count, 32);
  EXPECT_EQ(plan.ropes[0].factors, kNone);
  const ModelPtr model = fixture("phi3-longrope");
  const auto factors = [&](int64_t context) {
    const Plan p = plan_of("phi3-longrope", "phi3", {.context = context});
    EXPECT_NEAR(p.ropes[0].attn_factor, 1.118034, 1e-6);
    return std::string(model->file.tensors()[static_cast<size_t>(p.ropes[0].factors)].name);
  };
  EXPECT_EQ(factors(256), "rope_factors_short.weight");
  EXPECT_EQ(factors(257), "rope_factors_long.weight");
  EXPECT_EQ(factors(0), "rope_factors_long.weight");  // the model's own context, 1024
}

TEST(Families, OnlyRopesThatFollowTheContextForbidStreams) {
  for (const Family& f : kFamilies) {
    if (f.header == std::string("phi3-longrope")) continue;
    EXPECT_EQ(plan_of(f.header, f.arch).no_stream, "") << f.header;
  }
  for (const int64_t context : {256, 257}) {
    EXPECT_EQ(
        plan_of("phi3-longrope", "phi3", {.context = context}).no_stream,
        "the rotary factors depend on the length of the context (llama.arch:39: let long     = "
        "lists and session.context > trained)");
  }
}

// (policy, window) of every layer's cache.
std::vector<std::pair<CachePolicy, int32_t>> policies(const Plan& plan) {
  std::vector<std::pair<CachePolicy, int32_t>> out;
  for (const CacheSpec& c : plan.caches) out.emplace_back(c.policy, c.window);
  return out;
}
constexpr std::pair<CachePolicy, int32_t> kAll{CachePolicy::kGlobal, 0},
    kEight{CachePolicy::kWindow, 8};

TEST(Families, WindowsStandWhereTheFamilySays) {
  using Policies = std::vector<std::pair<CachePolicy, int32_t>>;
  EXPECT_EQ(policies(plan_of("gemma2", "gemma2")), (Policies{kEight, kAll, kEight, kAll}));
  EXPECT_EQ(policies(plan_of("olmo3", "olmo2")), (Policies{kEight, kAll, kEight, kEight}));
  EXPECT_EQ(policies(plan_of("olmo2", "olmo2")), Policies(4, kAll));
  EXPECT_EQ(policies(plan_of("phi3-window", "phi3")), Policies(3, kEight));
  EXPECT_EQ(policies(plan_of("phi3", "phi3")), Policies(3, kAll));
}

TEST(Families, Gemma2CapsScoresAndLogits) {
  const Plan plan = plan_of("gemma2", "gemma2", {.fuse = false});
  for (const Op* op : ops_of(plan, OpKind::attend))
    EXPECT_EQ(op->attr.as<AttendAttributes>().softcap, 3);
  EXPECT_EQ(count(plan, OpKind::softcap), 1);
  EXPECT_EQ(count(plan, OpKind::rms_norm), 4 * plan.n_layers + 1);
}

TEST(Families, Olmo3ScalesPositionsOfGlobalLayersOnly) {
  const Plan plan = plan_of("olmo3", "olmo2");
  for (const Op* op : ops_of(plan, OpKind::rope)) {
    EXPECT_EQ(plan.ropes[static_cast<size_t>(op->attr.as<RopeAttributes>().rope)].scale,
              op->layer == 1 ? 0.25 : 1);
  }
}

TEST(Families, SmolLm3DoesNotRotateEveryFourthLayer) {
  const Plan plan = plan_of("smollm3", "smollm3");
  for (int32_t l = 0; l < plan.n_layers; ++l) {
    EXPECT_EQ(ops_of(plan, OpKind::rope, l).empty(), l == 3) << "layer " << l;
  }
}

// The published 7B v0.3 and Nemo, whose heads are not the width cut by their number.
TEST(Families, LlamaServesMistral) {
  struct Shape {
    uint32_t width, heads, kv_heads, head_dim, feed_forward;
    bool says_head_dim;
  };
  for (const Shape& s : {Shape{4096, 32, 8, 128, 14336, false}, {5120, 32, 8, 128, 14336, true}}) {
    Header h("llama");
    h.number("llama.block_count", 2).number("llama.embedding_length", s.width);
    h.number("llama.context_length", 32768).number("llama.vocab_size", 32768);
    h.number("llama.feed_forward_length", s.feed_forward);
    h.number("llama.attention.head_count", s.heads);
    h.number("llama.attention.head_count_kv", s.kv_heads);
    h.number("llama.rope.dimension_count", s.head_dim).real("llama.rope.freq_base", 1e6f);
    h.real("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    if (s.says_head_dim) {
      h.number("llama.attention.key_length", s.head_dim);
      h.number("llama.attention.value_length", s.head_dim);
    }
    h.tensor("token_embd.weight", {s.width, 32768}).tensor("output_norm.weight", {s.width});
    h.tensor("output.weight", {s.width, 32768});
    const uint64_t all = uint64_t{s.heads} * s.head_dim, few = uint64_t{s.kv_heads} * s.head_dim;
    for (const std::string layer : {"blk.0.", "blk.1."}) {
      h.tensor(layer + "attn_norm.weight", {s.width}).tensor(layer + "ffn_norm.weight", {s.width});
      h.tensor(layer + "attn_q.weight", {s.width, all})
          .tensor(layer + "attn_k.weight", {s.width, few});
      h.tensor(layer + "attn_v.weight", {s.width, few});
      h.tensor(layer + "attn_output.weight", {all, s.width});
      h.tensor(layer + "ffn_gate.weight", {s.width, s.feed_forward});
      h.tensor(layer + "ffn_up.weight", {s.width, s.feed_forward});
      h.tensor(layer + "ffn_down.weight", {s.feed_forward, s.width});
    }
    const ModelPtr model = h.model();
    auto c = compile(builtin(), model->file, {});
    ASSERT_TRUE(c) << c.error().message;
    EXPECT_EQ(testing::PrintToString(c->warnings), "{}");
    EXPECT_EQ(ops_of(c->plan, OpKind::attend, 0)[0]->attr.as<AttendAttributes>().head_dim, 128);
    EXPECT_TRUE(ops_of(c->plan, OpKind::rope, 0)[0]->attr.as<RopeAttributes>().adjacent);
  }
}

// A model of two layers, heads of 128, as files of llama.cpp have it; `more` adds keys and tensors.
Header small(const std::string& arch) {
  Header h(arch);
  h.number(arch + ".block_count", 2).number(arch + ".embedding_length", 256);
  h.number(arch + ".context_length", 131072).number(arch + ".feed_forward_length", 64);
  h.number(arch + ".attention.head_count", 2).real(arch + ".rope.freq_base", 1e6f);
  h.real(arch + ".attention.layer_norm_rms_epsilon", 1e-5f);
  h.tensor("token_embd.weight", {256, 32}).tensor("output_norm.weight", {256});
  for (const std::string layer : {"blk.0.", "blk.1."}) {
    for (const char* matrix :
         {"attn_q.weight", "attn_k.weight", "attn_v.weight", "attn_output.weight"})
      h.tensor(layer + matrix, {256, 256});
    h.tensor(layer + "ffn_gate.weight", {256, 64}).tensor(layer + "ffn_up.weight", {256, 64});
    h.tensor(layer + "ffn_down.weight", {64, 256});
    if (arch == "olmo2") {
      h.tensor(layer + "attn_q_norm.weight", {256}).tensor(layer + "attn_k_norm.weight", {256});
      h.tensor(layer + "post_attention_norm.weight", {256});
      h.tensor(layer + "post_ffw_norm.weight", {256});
    } else {
      h.tensor(layer + "attn_norm.weight", {256}).tensor(layer + "ffn_norm.weight", {256});
    }
  }
  return h;
}
Header yarn(const std::string& arch) {
  Header h = small(arch);
  h.text(arch + ".rope.scaling.type", "yarn").real(arch + ".rope.scaling.factor", 4);
  h.number(arch + ".rope.scaling.original_context_length", 32768);
  return h;
}
Plan plan_of(Header h, const CompileOptions& options = {}) {
  auto c = compile(builtin(), h.model()->file, options);
  if (!c) throw std::runtime_error(c.error().message);
  return std::move(c->plan);
}
std::string refusal_of(Header h) {
  auto c = compile(builtin(), h.model()->file, {});
  return c ? "" : c.error().message;
}

// Right numbers: the formulas of "YaRN: Efficient Context Window Extension" (arXiv 2309.00071) with
// 32 and 1 turns: 128 ln(32768 / 64 pi) / (2 ln 10^6) = 23.6, 128 ln(32768 / 2 pi) / (2 ln 10^6)
// = 39.6, 1 + ln(4) / 10.
TEST(Families, YarnMixesAndBoosts) {
  const RopeSpec rope = plan_of(yarn("llama")).ropes.at(0);
  EXPECT_EQ(rope.scale, 0.25);
  EXPECT_EQ(rope.mix_from, 23);
  EXPECT_EQ(rope.mix_to, 40);
  EXPECT_NEAR(rope.attn_factor, 1.1386294, 1e-6);
  EXPECT_EQ(plan_of(yarn("qwen2")).ropes, std::vector{rope});

  Header h = yarn("llama");
  h.real("llama.rope.scaling.yarn_beta_fast", 16).real("llama.rope.scaling.yarn_beta_slow", 2);
  h.real("llama.rope.scaling.attn_factor", 0.5f).flag("llama.rope.scaling.yarn_truncate", false);
  const RopeSpec other = plan_of(h).ropes.at(0);
  EXPECT_NEAR(other.mix_from, 26.807, 1e-2);
  EXPECT_NEAR(other.mix_to, 36.440, 1e-2);
  EXPECT_NEAR(other.attn_factor, 1.1386294 / 2, 1e-6);

  h = yarn("llama");
  h.real("llama.rope.scaling.yarn_log_multiplier", 2);
  EXPECT_NEAR(plan_of(h).ropes.at(0).attn_factor, 1.1386294 / 1.2772589, 1e-6);
  h = yarn("llama");
  h.real("llama.rope.scaling.yarn_ext_factor", 0);
  EXPECT_NE(refusal_of(h).find("yarn_ext_factor"), std::string::npos) << refusal_of(h);
}

TEST(Families, AFactorWithoutATypeIsLinear) {
  Header h = small("llama");
  h.real("llama.rope.scaling.factor", 8);
  EXPECT_EQ(plan_of(h).ropes.at(0).scale, 0.125);
  EXPECT_EQ(plan_of(h).ropes.at(0).mix_to, 0);
  h = small("llama");
  h.real("llama.rope.scaling.factor", 8).text("llama.rope.scaling.type", "none");
  EXPECT_EQ(plan_of(h).ropes.at(0).scale, 1);
  h = small("llama");
  h.text("llama.rope.scaling.type", "longrope");
  EXPECT_NE(refusal_of(h).find("longrope with its factors"), std::string::npos) << refusal_of(h);
}

// OLMo 3 as llama.cpp writes it: YaRN in the layers without a window only.
TEST(Families, Olmo3ScalesGlobalLayersOnly) {
  Header h = yarn("olmo2");
  h.number("olmo2.attention.sliding_window", 8);
  h.flags("olmo2.attention.sliding_window_pattern", {true, false});
  const Plan plan = plan_of(h);
  ASSERT_EQ(plan.ropes.size(), 2U);
  EXPECT_EQ(plan.ropes[0], (RopeSpec{.base = 1e6, .dims = 128}));
  EXPECT_EQ(plan.ropes[1].mix_to, 40);
  EXPECT_EQ(plan.ropes[1].scale, 0.25);
}

TEST(Families, LlamaHasTheWindowsThatTheFileSays) {
  Header h = small("llama");
  h.number("llama.attention.sliding_window", 8);
  for (const CacheSpec& cache : plan_of(h).caches) EXPECT_EQ(cache.window, 8);
  h.flags("llama.attention.sliding_window_pattern", {false, true});
  EXPECT_EQ(plan_of(h).caches.at(0).policy, CachePolicy::kGlobal);
  EXPECT_EQ(plan_of(h).caches.at(1).policy, CachePolicy::kWindow);
  h = small("llama");
  h.number("llama.attention.sliding_window", 0);
  EXPECT_EQ(plan_of(h).caches.at(0).policy, CachePolicy::kGlobal);
}

// Granite 4 without state layers: key heads of every layer in an array, keys of the state unused.
TEST(Families, GraniteHybridRunsWithoutStates) {
  const auto granite = [](uint32_t heads_of_last) {
    Header h = small("granitehybrid");
    h.numbers("granitehybrid.attention.head_count_kv", {2, heads_of_last});
    h.real("granitehybrid.logit_scale", 2).number("granitehybrid.ssm.conv_kernel", 4);
    h.number("granitehybrid.ssm.state_size", 128);
    return h;
  };
  Header h = granite(2);
  EXPECT_EQ(count(plan_of(h), OpKind::attend), 2);
  EXPECT_EQ(count(plan_of(h), OpKind::rope), 4 + 2);  // a query more for sinks
  h.flag("granitehybrid.rope.scaling.finetuned", false);
  EXPECT_EQ(count(plan_of(h), OpKind::rope), 0);
  EXPECT_NE(refusal_of(granite(0)).find("layers with a state (Mamba) are not supported"),
            std::string::npos)
      << refusal_of(granite(0));
}

TEST(Families, Qwen3MoeRoutes) {
  const Plan plan = plan_of("qwen3moe", "qwen3moe");
  EXPECT_EQ(count(plan, OpKind::route), 3);
  EXPECT_EQ(ops_of(plan, OpKind::route)[0]->attr.as<RouteAttributes>().top, 2);
  EXPECT_EQ(count(plan, OpKind::gated_linear), 0);
}

TEST(Families, MixtralIsLlamaWithExperts) {
  const Plan plan = plan_of("mixtral", "llama");
  EXPECT_EQ(count(plan, OpKind::experts), 3);
  EXPECT_EQ(count(plan, OpKind::gated_linear), 0);
  EXPECT_EQ(ops_of(plan, OpKind::route)[0]->attr.as<RouteAttributes>().top, 2);
  EXPECT_FALSE(
      ops_of(plan, OpKind::experts)[0]->attr.as<ExpertsAttributes>().quantize_hidden);  // float32
                                                                                        // weights
  EXPECT_EQ(count(plan_of("llama", "llama"), OpKind::experts), 0);
}

TEST(Families, ExpertsAreThoseThatTheRoutePicksFrom) {
  const ModelPtr model = fixture("qwen3moe");
  const std::string text = builtin().by_file_name("qwen3moe")->text;
  const auto message = [&](const std::string& from, const std::string& to) {
    const auto made = compile_text_of(replace_line(text, from, to), model->file);
    return made ? std::string("no error") : made.error().message;
  };
  EXPECT_NE(message("route(linear(h, ffn_gate_inp) as [meta.expert_count], ", "route(h, ")
                .find("ffn_down_exps.weight has shape {48, 64, 8}, its third number must be 64"),
            std::string::npos);
  EXPECT_NE(message("experts(h, w, ", "experts(h, w * 2, ").find("what route() gives"),
            std::string::npos);
  EXPECT_NE(message("gate=ffn_gate_exps, ", "gate=ffn_down_exps, ").find("{64, 48, 8} is needed"),
            std::string::npos);
}

// Changing a line changes the plan.

std::string shape_of(const Plan& plan, const format::GgufFile& model) {
  std::string out = explain(plan, model, {});
  // Without the first line, which holds the hash of the text.
  return out.substr(out.find('\n'));
}

// Verifies language.definition-is-what-runs.
TEST(Families, ChangingALineChangesThePlan) {
  const ModelPtr model = fixture("qwen3");
  const std::string text = builtin().by_file_name("qwen3")->text;
  const auto explained = [&](const std::string& t) {
    auto c = compile_text_of(t, model->file);
    EXPECT_TRUE(c) << c.error().message;
    return c ? shape_of(c->plan, model->file) : "";
  };
  const std::string before = explained(text);
  EXPECT_EQ(before, explained(text));
  struct Change {
    const char *from, *to;
  };
  const Change changes[] = {
      {"let pairs = halves", "let pairs = adjacent"},
      {"let pairs = halves", "let pairs = halves\nlet base = meta.rope.freq_base / 2"},
      {"let pairs = halves", "let pairs = halves\nlet rot = meta.rope.dimension_count / 2"},
      {"scale=scale", "scale=1"},
      {"q = rms_norm(linear(h, attn_q) as [heads, head_dim], attn_q_norm, eps)",
       "q = linear(h, attn_q) as [heads, head_dim]"},
  };
  std::set<std::string> all{before};
  for (const Change& c : changes) {
    std::string changed = replace_line(text, c.from, c.to);
    if (changed.find("attn_q_norm") == std::string::npos)
      changed = replace_line(changed, "include llama\n", "include llama\nignore attn_q_norm\n");
    EXPECT_TRUE(all.insert(explained(changed)).second) << "no change: " << c.to;
  }
}

// Verifies language.definition-is-what-runs.
TEST(Families, ADroppedNormIsNoticed) {
  const ModelPtr model = fixture("qwen3");
  auto c = compile_text_of(
      replace_line(builtin().by_file_name("qwen3")->text, ", attn_q_norm, eps)", ", none, eps)"),
      model->file);
  ASSERT_FALSE(c);
  EXPECT_NE(c.error().message.find("unused tensor blk.0.attn_q_norm.weight"), std::string::npos)
      << c.error().message;
}

}  // namespace
}  // namespace culet::plan::test
