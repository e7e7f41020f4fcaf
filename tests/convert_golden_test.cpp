// culet::convert_model against the tiny reference models: each is taken apart into the folder that
// it would be published in (config.json, safetensors, tokenizer files; the names and the inverse
// changes are written here by hand), converted, and must be the same file again: the bytes of all
// tensors, the metadata, the logits.
#include "checkpoint.h"
#include "culet/convert.h"
#include "support.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <unistd.h>

namespace culet::test {
namespace {

using format::GgufFile;
using format::MetaType;
using format::MetaValue;
using format::TensorInfo;

// ---------------------------------------------------------------- a folder

// Two files and an index.
void write_sharded(const std::string& folder, const Checkpoint& weights) {
  Checkpoint parts[2];
  Json map;
  size_t at = 0;
  for (const auto& entry : weights) {
    const size_t part = at++ % 2;
    parts[part].insert(entry);
    map[entry.first] = fmt::format("model-0000{}-of-00002.safetensors", part + 1);
  }
  for (size_t part = 0; part < 2; ++part) {
    write_safetensors(fmt::format("{}/model-0000{}-of-00002.safetensors", folder, part + 1),
                      parts[part]);
  }
  write_text(folder + "/model.safetensors.index.json",
             Json{{"metadata", Json::object()}, {"weight_map", map}}.dump());
}

// ---------------------------------------------------------------- inverse changes

// Rows of each head from adjacent pairs to halves.
Weights rotated_back(Weights w, uint64_t heads) {
  const uint64_t columns = w.shape.size() > 1 ? w.shape[1] : 1, head = w.shape[0] / heads;
  const std::vector<float> before = w.values;
  for (uint64_t r = 0; r < w.shape[0]; ++r) {
    const uint64_t first = r / head * head, k = r % head;
    const uint64_t to = first + k % 2 * (head / 2) + k / 2;
    std::copy_n(before.begin() + int64_t(r * columns), columns,
                w.values.begin() + int64_t(to * columns));
  }
  return w;
}

// x with float(x + 1) == whole: what the published norm has. Near 1 there are several; any does.
Weights minus_one(Weights w) {
  for (float& v : w.values) {
    float x = v - 1;
    while (x + 1 < v) x = std::nextafter(x, INFINITY);
    while (x + 1 > v) x = std::nextafter(x, -INFINITY);
    v = x;
  }
  return w;
}

Weights slice_of(const Weights& w, uint64_t expert) {
  const uint64_t size = w.values.size() / w.shape[0];
  const auto begin = w.values.begin() + int64_t(expert * size);
  return {{w.shape.begin() + 1, w.shape.end()}, {begin, begin + int64_t(size)}};
}

// [E, a, c] and [E, b, c] to [E, a + b, c].
Weights joined(const Weights& a, const Weights& b) {
  Weights out{{a.shape[0], a.shape[1] + b.shape[1], a.shape[2]}, {}};
  for (uint64_t e = 0; e < a.shape[0]; ++e) {
    for (const Weights& w : {slice_of(a, e), slice_of(b, e)}) {
      out.values.insert(out.values.end(), w.values.begin(), w.values.end());
    }
  }
  return out;
}

// ---------------------------------------------------------------- names, by hand

using Names = std::map<std::string, std::string>;

const Names kLayer{{"attn_norm.weight", "input_layernorm.weight"},
                   {"attn_q.weight", "self_attn.q_proj.weight"},
                   {"attn_k.weight", "self_attn.k_proj.weight"},
                   {"attn_v.weight", "self_attn.v_proj.weight"},
                   {"attn_q.bias", "self_attn.q_proj.bias"},
                   {"attn_k.bias", "self_attn.k_proj.bias"},
                   {"attn_v.bias", "self_attn.v_proj.bias"},
                   {"attn_qkv.weight", "self_attn.qkv_proj.weight"},
                   {"attn_output.weight", "self_attn.o_proj.weight"},
                   {"attn_q_norm.weight", "self_attn.q_norm.weight"},
                   {"attn_k_norm.weight", "self_attn.k_norm.weight"},
                   {"ffn_norm.weight", "post_attention_layernorm.weight"},
                   {"ffn_gate.weight", "mlp.gate_proj.weight"},
                   {"ffn_up.weight", "mlp.up_proj.weight"},
                   {"ffn_down.weight", "mlp.down_proj.weight"},
                   {"ffn_gate_inp.weight", "mlp.gate.weight"}};
const Names kTop{{"token_embd.weight", "model.embed_tokens.weight"},
                 {"output_norm.weight", "model.norm.weight"},
                 {"output.weight", "lm_head.weight"}};
const Names kJoinedGate{{"ffn_up.weight", "mlp.gate_up_proj.weight"}};
const Names kSandwich{{"post_attention_norm.weight", "post_attention_layernorm.weight"},
                      {"ffn_norm.weight", "pre_feedforward_layernorm.weight"},
                      {"post_ffw_norm.weight", "post_feedforward_layernorm.weight"}};
const Names kGemma4{{"layer_output_scale.weight", "layer_scalar"},
                    {"inp_gate.weight", "per_layer_input_gate.weight"},
                    {"proj.weight", "per_layer_projection.weight"},
                    {"post_norm.weight", "post_per_layer_input_norm.weight"},
                    {"ffn_gate_inp.weight", "router.proj.weight"},
                    {"ffn_gate_inp.scale", "router.scale"},
                    {"ffn_down_exps.scale", "router.per_expert_scale"},
                    {"pre_ffw_norm_2.weight", "pre_feedforward_layernorm_2.weight"},
                    {"post_ffw_norm_1.weight", "post_feedforward_layernorm_1.weight"},
                    {"post_ffw_norm_2.weight", "post_feedforward_layernorm_2.weight"},
                    {"ffn_gate_up_exps.weight", "experts.gate_up_proj"},
                    {"ffn_down_exps.weight", "experts.down_proj"}};
const Names kGemma4Top{{"per_layer_token_embd.weight", "model.embed_tokens_per_layer.weight"},
                       {"per_layer_model_proj.weight", "model.per_layer_model_projection.weight"},
                       {"per_layer_proj_norm.weight", "model.per_layer_projection_norm.weight"}};
const Names kGlm4{{"post_attention_norm.weight", "post_self_attn_layernorm.weight"},
                  {"post_ffw_norm.weight", "post_mlp_layernorm.weight"}};
const Names kLfm2{{"attn_norm.weight", "operator_norm.weight"},
                  {"ffn_norm.weight", "ffn_norm.weight"},
                  {"attn_output.weight", "self_attn.out_proj.weight"},
                  {"attn_q_norm.weight", "self_attn.q_layernorm.weight"},
                  {"attn_k_norm.weight", "self_attn.k_layernorm.weight"},
                  {"ffn_gate.weight", "feed_forward.w1.weight"},
                  {"ffn_up.weight", "feed_forward.w3.weight"},
                  {"ffn_down.weight", "feed_forward.w2.weight"},
                  {"shortconv.conv.weight", "conv.conv.weight"},
                  {"shortconv.in_proj.weight", "conv.in_proj.weight"},
                  {"shortconv.out_proj.weight", "conv.out_proj.weight"}};
const Names kBert{{"attn_q", "attention.self.query"},
                  {"attn_k", "attention.self.key"},
                  {"attn_v", "attention.self.value"},
                  {"attn_output", "attention.output.dense"},
                  {"attn_output_norm", "attention.output.LayerNorm"},
                  {"ffn_up", "intermediate.dense"},
                  {"ffn_down", "output.dense"},
                  {"layer_output_norm", "output.LayerNorm"}};
const Names kBertTop{{"token_embd", "embeddings.word_embeddings"},
                     {"position_embd", "embeddings.position_embeddings"},
                     {"token_types", "embeddings.token_type_embeddings"},
                     {"token_embd_norm", "embeddings.LayerNorm"}};
const Names kModern{
    {"attn_norm.weight", "attn_norm.weight"}, {"attn_qkv.weight", "attn.Wqkv.weight"},
    {"attn_output.weight", "attn.Wo.weight"}, {"ffn_norm.weight", "mlp_norm.weight"},
    {"ffn_up.weight", "mlp.Wi.weight"},       {"ffn_down.weight", "mlp.Wo.weight"}};
const Names kModernTop{{"token_embd.weight", "model.embeddings.tok_embeddings.weight"},
                       {"token_embd_norm.weight", "model.embeddings.norm.weight"},
                       {"output_norm.weight", "model.final_norm.weight"}};

// ---------------------------------------------------------------- a published model

class Published {
 public:
  explicit Published(const std::string& name)
      : name_(name), file_(open(golden("tiny/" + name + "/model.gguf"))) {
    architecture_ = std::string(*file_.find("general.architecture")->as_string());
    for (const TensorInfo& tensor : file_.tensors()) {
      Weights w{{}, std::vector<float>(tensor.elements())};
      std::memcpy(w.values.data(), tensor.data, tensor.bytes);
      for (int d = tensor.n_dims; d-- > 0;) w.shape.push_back(tensor.dims[size_t(d)]);
      weights[std::string(tensor.name)] = std::move(w);
    }
    config = {{"num_hidden_layers", number("block_count")},
              {"hidden_size", number("embedding_length")},
              {"num_attention_heads", number("attention.head_count")},
              {"max_position_embeddings", number("context_length")},
              {"vocab_size", weights.at("token_embd.weight").shape[0]}};
  }

  static GgufFile open(const std::string& path) {
    auto file = GgufFile::open(path);
    if (!file) throw std::runtime_error(file.error().message);
    return *std::move(file);
  }
  const GgufFile& file() const { return file_; }
  const std::string& name() const { return name_; }
  const MetaValue* meta(const std::string& key) const {
    return file_.find(architecture_ + "." + key);
  }
  double real(const std::string& key) const { return meta(key)->as_number().value(); }
  int64_t number(const std::string& key) const { return meta(key)->as_int().value(); }
  uint64_t layers() const { return uint64_t(number("block_count")); }

  // The sizes of a decoder, as its configuration says them.
  void decoder(const std::string& model, double rope_base) {
    config["architectures"] = {model};
    config["intermediate_size"] = number("feed_forward_length");
    config["num_key_value_heads"] = number("attention.head_count_kv");
    config["rms_norm_eps"] = real("attention.layer_norm_rms_epsilon");
    config["rope_theta"] = rope_base;
    config["tie_word_embeddings"] = !weights.contains("output.weight");
    if (meta("attention.key_length")) config["head_dim"] = number("attention.key_length");
  }

  // Names of tensors; `more` replaces the usual ones of a layer.
  void rename(const Names& layer, const Names& top, const std::string& prefix = "model.layers.") {
    Checkpoint renamed;
    for (auto& [name, w] : weights) {
      if (const auto at = top.find(name); at != top.end()) {
        renamed[at->second] = std::move(w);
      } else if (name.starts_with("blk.")) {
        const size_t dot = name.find('.', 4);
        const auto inner = layer.find(name.substr(dot + 1));
        if (inner == layer.end()) throw std::runtime_error("no published name for " + name);
        renamed[prefix + name.substr(4, dot - 4) + "." + inner->second] = std::move(w);
      } else {
        renamed[name] = std::move(w);
      }
    }
    weights = std::move(renamed);
  }
  // change(weights) for every tensor whose name ends so.
  template <class F>
  void each(const std::string& end, F&& change) {
    for (auto& [name, w] : weights) {
      if (name.ends_with(end)) w = change(std::move(w));
    }
  }
  void rotate_back() {
    const auto heads = uint64_t(number("attention.head_count"));
    const auto kv_heads = uint64_t(number("attention.head_count_kv"));
    for (const char* end : {"attn_q.weight", "attn_q.bias"}) {
      each(end, [&](Weights w) { return rotated_back(std::move(w), heads); });
    }
    for (const char* end : {"attn_k.weight", "attn_k.bias"}) {
      each(end, [&](Weights w) { return rotated_back(std::move(w), kv_heads); });
    }
  }
  // One tensor for each expert, under a name with {e}.
  void unstack(const std::string& from, const std::string& to) {
    for (uint64_t layer = 0; layer < layers(); ++layer) {
      const auto at = weights.find(fmt::format("blk.{}.{}", layer, from));
      for (uint64_t e = 0; e < at->second.shape[0]; ++e) {
        weights[fmt::format("model.layers.{}.{}", layer, fmt::format(fmt::runtime(to), e))] =
            slice_of(at->second, e);
      }
      weights.erase(at);
    }
  }

  // -------- tokenizers
  std::vector<std::string> strings(const std::string& key) const {
    std::vector<std::string> out;
    const MetaValue* value = file_.find("tokenizer.ggml." + key);
    for (uint64_t i = 0; value && i < value->size(); ++i) {
      out.emplace_back(*value->at(i).as_string());
    }
    return out;
  }
  int64_t kind(size_t id) const {
    return *file_.find("tokenizer.ggml.token_type")->at(id).as_int();
  }
  void special_tokens() {
    const auto tokens = strings("tokens");
    const std::pair<const char*, const char*> keys[] = {
        {"bos", "bos"},     {"eos", "eos"}, {"unknown", "unk"}, {"seperator", "sep"},
        {"padding", "pad"}, {"cls", "cls"}, {"mask", "mask"}};
    for (const auto& [key, published] : keys) {
      const MetaValue* id = file_.find(fmt::format("tokenizer.ggml.{}_token_id", key));
      if (id) settings[fmt::format("{}_token", published)] = tokens[size_t(*id->as_int())];
    }
    for (const char* key : {"add_bos_token", "add_eos_token"}) {
      const MetaValue* flag = file_.find(fmt::format("tokenizer.ggml.{}", key));
      if (flag) settings[key] = *flag->as_bool();
    }
  }
  // tokenizer.json of merges; added: kinds of tokens that its list of added tokens has.
  void bpe(const Json& pre_tokenizer, bool whole, bool byte_level) {
    special_tokens();
    const auto tokens = strings("tokens");
    Json vocab = Json::object(), added = Json::array();
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (kind(i) == 3 || kind(i) == 4 || kind(i) == 2) {
        added.push_back({{"id", i}, {"content", tokens[i]}, {"special", kind(i) != 4}});
      } else {
        vocab[tokens[i]] = i;
      }
    }
    Json merges = Json::array();
    for (const std::string& merge : strings("merges")) {
      const size_t space = merge.find(' ');
      if (byte_level) {
        merges.push_back(merge);  // the older spelling
      } else {
        merges.push_back({merge.substr(0, space), merge.substr(space + 1)});
      }
    }
    tokenizer = {{"added_tokens", added},
                 {"pre_tokenizer", pre_tokenizer},
                 {"model",
                  {{"type", "BPE"},
                   {"byte_fallback", !byte_level},
                   {"ignore_merges", whole},
                   {"vocab", vocab},
                   {"merges", merges}}}};
    if (byte_level) tokenizer["decoder"] = {{"type", "ByteLevel"}};
  }
  void byte_level(const std::string& pattern, bool whole) {
    const Json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
    const Json split = {{"type", "Split"},
                        {"pattern", {{"Regex", pattern}}},
                        {"behavior", "Isolated"},
                        {"invert", false}};
    bpe({{"type", "Sequence"}, {"pretokenizers", {split, bytes}}}, whole, true);
  }
  // tokenizer.model: pieces with scores and kinds.
  void sentencepiece() {
    special_tokens();
    const auto tokens = strings("tokens");
    const auto varint = [](uint64_t v) {
      std::string out;
      for (; v > 127; v >>= 7) out += char((v & 127) | 128);
      return out + char(v);
    };
    for (size_t i = 0; i < tokens.size(); ++i) {
      const auto score = float(*file_.find("tokenizer.ggml.scores")->at(i).as_number());
      std::string piece = "\x0a" + varint(tokens[i].size()) + tokens[i] + "\x15";
      piece.append(reinterpret_cast<const char*>(&score), 4);
      piece += "\x18" + varint(uint64_t(kind(i)));
      spm += "\x0a" + varint(piece.size()) + piece;
    }
    spm += std::string("\x12\x02\x18\x02");  // trained as BPE
    const bool prefix = *file_.find("tokenizer.ggml.add_space_prefix")->as_bool();
    spm += std::string("\x1a\x02\x18") + char(prefix);
  }

  void write(const std::string& folder, bool sharded) const {
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder + "/1_Pooling");
    if (const MetaValue* pooling = meta("pooling_type")) {
      const char* const names[] = {"", "pooling_mode_mean_tokens", "pooling_mode_cls_token"};
      write_text(folder + "/modules.json",
                 R"([{"type": "sentence_transformers.models.Transformer", "path": ""},)"
                 R"( {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}])");
      write_text(folder + "/1_Pooling/config.json", Json{{names[*pooling->as_int()], true}}.dump());
    }
    write_text(folder + "/config.json", config.dump());
    if (!settings.is_null()) write_text(folder + "/tokenizer_config.json", settings.dump());
    if (!tokenizer.is_null()) write_text(folder + "/tokenizer.json", tokenizer.dump());
    if (!spm.empty()) write_text(folder + "/tokenizer.model", spm);
    if (sharded) return write_sharded(folder, weights);
    write_safetensors(folder + "/model.safetensors", weights);
  }

  Json config, settings, tokenizer;
  std::string spm;
  Checkpoint weights;  // by the names of the file, until rename()

 private:
  std::string name_, architecture_;
  GgufFile file_;
};

// ---------------------------------------------------------------- patterns that models publish

constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const Json kWords = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
const Json kDigitsAndWords = {
    {"type", "Sequence"},
    {"pretokenizers", {{{"type", "Digits"}, {"individual_digits", true}}, kWords}}};

Names with(Names names, const Names& more) {
  for (const auto& [key, value] : more) names[key] = value;
  return names;
}

// ---------------------------------------------------------------- families

Published llama(const std::string& name) {
  Published p(name);
  p.decoder("LlamaForCausalLM", p.real("rope.freq_base"));
  if (name == "llama3-rope") {
    p.config["rope_scaling"] = {{"rope_type", "llama3"},
                                {"factor", 8.0},
                                {"low_freq_factor", 1.0},
                                {"high_freq_factor", 4.0},
                                {"original_max_position_embeddings", 64}};
    p.weights.erase("rope_freqs.weight");
  }
  p.rotate_back();
  p.rename(kLayer, kTop);
  p.byte_level(kLlama3, true);
  return p;
}

Published mixtral() {
  Published p("mixtral");
  p.decoder("MixtralForCausalLM", 10000);
  p.config["num_local_experts"] = p.number("expert_count");
  p.config["num_experts_per_tok"] = p.number("expert_used_count");
  p.config["sliding_window"] = nullptr;
  p.rotate_back();
  p.unstack("ffn_gate_exps.weight", "block_sparse_moe.experts.{}.w1.weight");
  p.unstack("ffn_up_exps.weight", "block_sparse_moe.experts.{}.w3.weight");
  p.unstack("ffn_down_exps.weight", "block_sparse_moe.experts.{}.w2.weight");
  p.rename(with(kLayer, {{"ffn_gate_inp.weight", "block_sparse_moe.gate.weight"}}), kTop);
  p.sentencepiece();
  return p;
}

Published qwen(const std::string& name, const std::string& model) {
  Published p(name);
  p.decoder(model, 1e6);
  p.config["use_sliding_window"] = false;
  p.config["sliding_window"] = 32768;
  p.rename(kLayer, kTop);
  p.byte_level(kQwen2, false);
  return p;
}

// joined: gate and up of all experts in one tensor, as newer folders have them.
Published qwen3moe(bool joined_experts) {
  Published p("qwen3moe");
  p.decoder("Qwen3MoeForCausalLM", 1e6);
  p.config["num_experts"] = p.number("expert_count");
  p.config["num_experts_per_tok"] = p.number("expert_used_count");
  p.config["moe_intermediate_size"] = p.number("expert_feed_forward_length");
  p.config["norm_topk_prob"] = true;
  p.config["decoder_sparse_step"] = 1;
  p.config["mlp_only_layers"] = Json::array();
  for (uint64_t layer = 0; joined_experts && layer < p.layers(); ++layer) {
    const auto take = [&](const char* what) {
      auto node = p.weights.extract(fmt::format("blk.{}.ffn_{}_exps.weight", layer, what));
      return std::move(node.mapped());
    };
    const Weights gate = take("gate"), up = take("up");
    const std::string to = fmt::format("model.layers.{}.mlp.experts.", layer);
    p.weights[to + "gate_up_proj"] = joined(gate, up);
    p.weights[to + "down_proj"] = take("down");
  }
  if (!joined_experts) {
    for (const char* part : {"gate", "up", "down"}) {
      p.unstack(fmt::format("ffn_{}_exps.weight", part),
                fmt::format("mlp.experts.{{}}.{}_proj.weight", part));
    }
  }
  p.rename(kLayer, kTop);
  p.byte_level(kQwen2, false);
  return p;
}

Published gemma(const std::string& name, const std::string& model) {
  Published p(name);
  p.decoder(model, 10000);
  p.config.erase("tie_word_embeddings");  // the class has it as its default
  p.each("norm.weight", minus_one);
  if (name == "gemma2") {
    p.config["query_pre_attn_scalar"] = p.number("attention.key_length");
    p.config["sliding_window"] = p.number("attention.sliding_window");
    p.config["attn_logit_softcapping"] = p.real("attn_logit_softcapping");
    p.config["final_logit_softcapping"] = p.real("final_logit_softcapping");
  }
  p.rename(name == "gemma2" ? with(kLayer, kSandwich) : kLayer, kTop);
  p.sentencepiece();
  return p;
}

// The text part, inside the configuration and the names of the model with images.
Published gemma3(const std::string& name, bool inside) {
  Published p(name);
  p.decoder(inside ? "Gemma3ForConditionalGeneration" : "Gemma3ForCausalLM", 1e6);
  p.config.erase("tie_word_embeddings");
  p.config["query_pre_attn_scalar"] = p.number("attention.key_length");
  p.config["sliding_window"] = p.number("attention.sliding_window");
  if (name == "gemma3-linear") {
    p.config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};
    p.config["rope_local_base_freq"] = 5000;
    p.config["sliding_window_pattern"] = 3;
  }
  p.each("norm.weight", minus_one);
  p.rename(with(kLayer, kSandwich), kTop);
  if (inside) {
    Checkpoint renamed;
    for (auto& [key, w] : p.weights) renamed["language_model." + key] = std::move(w);
    renamed["vision_tower.vision_model.post_layernorm.weight"] = {{2}, {1, 2}};
    renamed["multi_modal_projector.mm_input_projection_weight"] = {{2}, {1, 2}};
    p.weights = std::move(renamed);
    Json text = p.config;
    text.erase("architectures");
    p.config = {{"architectures", p.config["architectures"]}, {"text_config", text}};
  }
  p.sentencepiece();
  return p;
}

Published gemma4(const std::string& name) {
  Published p(name);
  Json text = p.config, types = Json::array();
  const MetaValue* pattern = p.meta("attention.sliding_window_pattern");
  const MetaValue* ff = p.meta("feed_forward_length");
  const MetaValue* kv = p.meta("attention.head_count_kv");
  size_t global = 0;
  for (uint64_t i = 0; i < p.layers(); ++i) {
    const bool local = *pattern->at(i).as_bool();
    types.push_back(local ? "sliding_attention" : "full_attention");
    if (!local) global = i;
  }
  text["layer_types"] = types;
  text["intermediate_size"] = ff->is_array() ? *ff->at(0).as_int() : *ff->as_int();
  text["use_double_wide_mlp"] = ff->is_array();
  text["num_key_value_heads"] = kv->is_array() ? *kv->at(0).as_int() : *kv->as_int();
  text["attention_k_eq_v"] = kv->is_array();
  text["num_global_key_value_heads"] = kv->is_array() ? Json(*kv->at(global).as_int()) : Json();
  text["head_dim"] = p.number("attention.key_length_swa");
  text["global_head_dim"] = p.number("attention.key_length");
  text["rms_norm_eps"] = p.real("attention.layer_norm_rms_epsilon");
  text["sliding_window"] = p.number("attention.sliding_window");
  text["num_kv_shared_layers"] = p.number("attention.shared_kv_layers");
  text["vocab_size_per_layer_input"] = p.config["vocab_size"];
  text["hidden_size_per_layer_input"] = p.number("embedding_length_per_layer_input");
  text["final_logit_softcapping"] = p.real("final_logit_softcapping");
  text["rope_parameters"] = {
      {"full_attention",
       {{"rope_type", "proportional"}, {"partial_rotary_factor", 0.25}, {"rope_theta", 1e6}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e4}}}};
  const bool experts = p.meta("expert_count") != nullptr;
  text["enable_moe_block"] = experts;
  text["num_experts"] = experts ? Json(p.number("expert_count")) : Json();
  text["top_k_experts"] = experts ? Json(p.number("expert_used_count")) : Json();
  text["moe_intermediate_size"] = experts ? Json(p.number("expert_feed_forward_length")) : Json();
  p.config = {{"architectures", {"Gemma4ForConditionalGeneration"}}, {"text_config", text}};
  p.weights.erase("rope_freqs.weight");
  p.rename(with(with(kLayer, kSandwich), kGemma4), with(kTop, kGemma4Top));
  Checkpoint renamed;
  for (auto& [key, w] : p.weights) {
    renamed["model.language_model." + key.substr(key.find('.') + 1)] = std::move(w);
  }
  p.weights = std::move(renamed);
  p.weights["model.vision_tower.patch.weight"] = {{1}, {0}};
  p.bpe({{"type", "Split"}, {"pattern", {{"String", " "}}}, {"behavior", "MergedWithPrevious"}},
        false, false);
  for (Json& token : p.tokenizer["added_tokens"]) token["special"] = true;
  return p;
}

Published lfm2() {
  Published p("lfm2");
  Json types = Json::array();
  int64_t kv_heads = 0;
  for (uint64_t i = 0; i < p.layers(); ++i) {
    const int64_t heads = *p.meta("attention.head_count_kv")->at(i).as_int();
    types.push_back(heads == 0 ? "conv" : "full_attention");
    kv_heads = std::max(kv_heads, heads);
  }
  p.config["architectures"] = {"Lfm2ForCausalLM"};
  p.config["layer_types"] = types;
  p.config["num_key_value_heads"] = kv_heads;
  // 160 = 32 * ceil(floor(2 / 3 * 229) / 32)
  p.config["block_ff_dim"] = 229;
  p.config["block_auto_adjust_ff_dim"] = true;
  p.config["block_ffn_dim_multiplier"] = 1.0;
  p.config["block_multiple_of"] = 32;
  p.config["norm_eps"] = p.real("attention.layer_norm_rms_epsilon");
  p.config["rope_theta"] = 1e6;
  p.config["conv_L_cache"] = p.number("shortconv.l_cache");
  p.config["conv_bias"] = false;
  p.config["tie_embedding"] = true;
  p.each("shortconv.conv.weight", [](Weights w) {
    w.shape = {w.shape[0], 1, w.shape[1]};
    return w;
  });
  p.rename(with(kLayer, kLfm2),
           with(kTop, {{"token_embd_norm.weight", "model.embedding_norm.weight"}}));
  p.byte_level(kLlama3, true);
  return p;
}

Published phi3(const std::string& name) {
  Published p(name);
  p.decoder("Phi3ForCausalLM", 10000);
  const int64_t window = p.number("attention.sliding_window");
  p.config["sliding_window"] = window > 0 ? Json(window) : Json();
  p.config["original_max_position_embeddings"] = p.number("rope.scaling.original_context_length");
  if (name == "phi3-longrope") {
    p.config["partial_rotary_factor"] = 0.75;
    p.config["rope_scaling"] = {{"type", "longrope"},
                                {"long_factor", p.weights.at("rope_factors_long.weight").values},
                                {"short_factor", p.weights.at("rope_factors_short.weight").values}};
    p.weights.erase("rope_factors_long.weight");
    p.weights.erase("rope_factors_short.weight");
  }
  p.rename(with(kLayer, kJoinedGate), kTop);
  p.sentencepiece();
  return p;
}

Published glm4() {
  Published p("glm4");
  p.decoder("Glm4ForCausalLM", 10000);
  p.config["partial_rotary_factor"] = 0.5;
  p.config["attention_bias"] = true;
  p.rename(with(with(kLayer, kJoinedGate), kGlm4), kTop);
  p.byte_level(kLlama3, false);
  return p;
}

Published olmo(const std::string& name, const std::string& model) {
  Published p(name);
  p.decoder(model, 500000);
  if (name == "olmo3") {
    Json types = Json::array();
    for (uint64_t i = 0; i < p.layers(); ++i) {
      const bool local = *p.meta("attention.sliding_window_pattern")->at(i).as_bool();
      types.push_back(local ? "sliding_attention" : "full_attention");
    }
    p.config["layer_types"] = types;
    p.config["sliding_window"] = p.number("attention.sliding_window");
    p.config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 4.0}};
  }
  p.rename(with(kLayer, kSandwich), kTop);
  p.byte_level(kLlama3, false);
  return p;
}

Published granite() {
  Published p("granite");
  p.decoder("GraniteForCausalLM", 10000);
  p.config["embedding_multiplier"] = 6.0;
  p.config["residual_multiplier"] = 0.6;
  p.config["attention_multiplier"] = 0.15;
  p.config["logits_scaling"] = 0.9;
  p.rotate_back();
  p.rename(kLayer, kTop);
  p.bpe(kDigitsAndWords, false, true);
  return p;
}

Published smollm3() {
  Published p("smollm3");
  p.decoder("SmolLM3ForCausalLM", 5e6);
  p.config["no_rope_layer_interval"] = 4;
  p.config["no_rope_layers"] = {1, 1, 1, 0, 1};
  p.rotate_back();
  p.rename(kLayer, kTop);
  p.byte_level(kLlama3, false);
  return p;
}

Published bert() {
  Published p("bert");
  p.config["architectures"] = {"BertModel"};
  p.config["intermediate_size"] = p.number("feed_forward_length");
  p.config["layer_norm_eps"] = p.real("attention.layer_norm_epsilon");
  p.config["hidden_act"] = "gelu";
  p.config["type_vocab_size"] = 2;
  Names layer, top;
  for (const char* end : {".weight", ".bias"}) {
    for (const auto& [name, published] : kBert) layer[name + end] = published + end;
    for (const auto& [name, published] : kBertTop) top[name + end] = published + end;
  }
  p.rename(layer, top, "encoder.layer.");
  p.weights["pooler.dense.weight"] = {{1, 1}, {0}};
  p.special_tokens();
  const auto tokens = p.strings("tokens");
  Json vocab = Json::object(), added = Json::array();
  for (size_t i = 0; i < tokens.size(); ++i) {
    std::string token = tokens[i];
    if (p.kind(i) == 3 || p.kind(i) == 2) {
      added.push_back({{"id", i}, {"content", token}, {"special", true}});
    } else {
      token = token.starts_with("\xe2\x96\x81") ? token.substr(3) : "##" + token;
    }
    vocab[token] = i;
  }
  p.tokenizer = {
      {"added_tokens", added},
      {"normalizer", {{"type", "BertNormalizer"}, {"lowercase", true}}},
      {"model", {{"type", "WordPiece"}, {"continuing_subword_prefix", "##"}, {"vocab", vocab}}}};
  return p;
}

Published modern_bert() {
  Published p("modernbert");
  p.config["architectures"] = {"ModernBertForMaskedLM"};
  p.config["intermediate_size"] = p.number("feed_forward_length");
  p.config["norm_eps"] = p.real("attention.layer_norm_epsilon");
  p.config["local_attention"] = p.number("attention.sliding_window");
  p.config["global_attn_every_n_layers"] = p.number("attention.sliding_window_pattern");
  p.config["global_rope_theta"] = p.real("rope.freq_base");
  p.config["local_rope_theta"] = p.real("rope.freq_base_swa");
  p.config["hidden_activation"] = "gelu";
  p.rename(kModern, kModernTop);
  p.weights["head.dense.weight"] = {{1, 1}, {0}};
  p.weights["decoder.bias"] = {{1}, {0}};
  p.bpe(kWords, false, true);
  return p;
}

Published gemma_embedding() {
  Published p("gemma-embedding");
  p.decoder("Gemma3TextModel", 1e6);
  p.config["use_bidirectional_attention"] = true;
  p.config["query_pre_attn_scalar"] = p.number("attention.key_length");
  p.config["sliding_window"] = p.number("attention.sliding_window");
  p.each("norm.weight", minus_one);
  p.rename(with(kLayer, kSandwich),
           {{"token_embd.weight", "embed_tokens.weight"}, {"output_norm.weight", "norm.weight"}},
           "layers.");
  p.sentencepiece();
  return p;
}

// ---------------------------------------------------------------- comparison

std::string text_of(const MetaValue& value) {
  if (value.is_array()) {
    std::string out = "[";
    for (uint64_t i = 0; i < value.size(); ++i) out += text_of(value.at(i)) + ", ";
    return out + "]";
  }
  if (const auto text = value.as_string()) return std::string(*text);
  if (const auto flag = value.as_bool()) return *flag ? "yes" : "no";
  return fmt::format("{}", float(value.as_number().value_or(NAN)));
}

// Keys whose values are another matter: names; kinds of reserved tokens; and what a file may leave
// out because it is the default, or say besides.
bool compared(std::string_view key) {
  return key != "general.name" && key != "tokenizer.ggml.token_type";
}

void expect_same_file(const Published& p, const std::string& path) {
  const GgufFile got = Published::open(path);
  EXPECT_TRUE(got.warnings().empty());
  for (const format::MetaEntry& entry : p.file().metadata()) {
    const MetaValue* value = got.find(entry.key);
    if (!compared(entry.key)) continue;
    ASSERT_NE(value, nullptr) << p.name() << " lacks " << entry.key;
    EXPECT_EQ(text_of(*value), text_of(entry.value)) << p.name() << " " << entry.key;
  }
  EXPECT_EQ(got.tensors().size(), p.file().tensors().size()) << p.name();
  for (const TensorInfo& want : p.file().tensors()) {
    const TensorInfo* tensor = got.tensor(want.name);
    ASSERT_NE(tensor, nullptr) << p.name() << " lacks " << want.name;
    EXPECT_EQ(tensor->type, want.type) << want.name;
    EXPECT_EQ(tensor->n_dims, want.n_dims) << want.name;
    ASSERT_EQ(tensor->dims, want.dims) << p.name() << " " << want.name;
    EXPECT_EQ(std::memcmp(tensor->data, want.data, want.bytes), 0) << p.name() << " " << want.name;
  }
}

void expect_same_rows(const Published& p, const std::string& path) {
  const std::string original = golden("tiny/" + p.name() + "/model.gguf");
  const auto expected = read_json(golden("tiny/" + p.name() + "/expected.json"));
  const auto tokens = expected["tokens"].get<std::vector<Token>>();
  const auto model = load(path, {.precise = true});
  if (model->info().kind == ModelKind::kEncoder) {
    const std::vector<std::vector<Token>> sequences{tokens};
    const auto want = encode(*load(original, {.precise = true}), sequences);
    const auto got = encode(*model, sequences);
    ASSERT_TRUE(want && got);
    EXPECT_TRUE(*want == *got) << p.name();
    return;
  }
  EXPECT_EQ(first_difference(rows_of(original, {.precise = true}, KvType::kF16, tokens),
                             rows_of(path, {.precise = true}, KvType::kF16, tokens)),
            "")
      << p.name();
}

class Convert : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/culet-convert-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  // The folder of a model, and the file that becomes of it.
  std::string published(const Published& p, bool sharded = false) const {
    p.write(folder + "/" + p.name(), sharded);
    return folder + "/" + p.name();
  }
  void expect_the_reference(const Published& p, bool sharded = false) const {
    SCOPED_TRACE(p.name());
    const std::string out = folder + "/" + p.name() + ".gguf";
    const auto written = convert_model(published(p, sharded), out, {.type = "F32"});
    ASSERT_TRUE(written) << written.error().message;
    EXPECT_TRUE(written->notes.empty());
    EXPECT_EQ(written->bytes, std::filesystem::file_size(out));
    expect_same_file(p, out);
    expect_same_rows(p, out);
  }
  // What converting a folder says that is not as it should be.
  std::string refusal(const Published& p) const {
    const auto written = convert_model(published(p), folder + "/out.gguf", {.type = "F32"});
    EXPECT_FALSE(written);
    EXPECT_FALSE(std::filesystem::exists(folder + "/out.gguf"));
    return written ? "" : written.error().message;
  }

  std::string folder;
};

// Requirement files.conversion "conversion": a published folder becomes the file that the reference
// has: tensors byte for byte, metadata, logits, for every family; what a family does not know, or
// lacks, is refused by name; safetensors and tokenizers are untrusted bytes, also fuzzed
// (`fuzz/safetensors_fuzz.cpp`, `fuzz/published_fuzz.cpp`)
TEST_F(Convert, Llama) {
  expect_the_reference(llama("llama"));
  expect_the_reference(llama("llama3-rope"), true);
  expect_the_reference(mixtral());
}

// Verifies files.conversion.
TEST_F(Convert, Qwen) {
  expect_the_reference(qwen("qwen2", "Qwen2ForCausalLM"));
  expect_the_reference(qwen("qwen3", "Qwen3ForCausalLM"));
  expect_the_reference(qwen3moe(false));
  expect_the_reference(qwen3moe(true));
}

// Verifies files.conversion.
TEST_F(Convert, Gemma) {
  expect_the_reference(gemma("gemma", "GemmaForCausalLM"));
  expect_the_reference(gemma("gemma2", "Gemma2ForCausalLM"));
  expect_the_reference(gemma3("gemma3", true));
  expect_the_reference(gemma3("gemma3-linear", false));
}

// Verifies files.conversion.
TEST_F(Convert, Gemma4) {
  expect_the_reference(gemma4("gemma4-e"), true);
  expect_the_reference(gemma4("gemma4-dense"));
  expect_the_reference(gemma4("gemma4-moe"));
}

// Verifies files.conversion.
TEST_F(Convert, OtherDecoders) {
  expect_the_reference(lfm2());
  expect_the_reference(phi3("phi3"));
  expect_the_reference(phi3("phi3-window"));
  expect_the_reference(phi3("phi3-longrope"));
  expect_the_reference(glm4());
  expect_the_reference(olmo("olmo2", "Olmo2ForCausalLM"));
  expect_the_reference(olmo("olmo3", "Olmo3ForCausalLM"));
  expect_the_reference(granite());
  expect_the_reference(smollm3());
}

// Verifies files.conversion.
TEST_F(Convert, Encoders) {
  expect_the_reference(bert());
  expect_the_reference(modern_bert());
  expect_the_reference(gemma_embedding());
}

TEST_F(Convert, QuantizesOnTheWay) {
  const std::string out = folder + "/a.gguf", again = folder + "/b.gguf";
  const Published p = llama("llama");
  const auto written =
      convert_model(published(p), out, {.type = "Q8_0", .keep = {{"head", "F16"}}});
  ASSERT_TRUE(written) << written.error().message;
  const auto same = quantize_model(golden("tiny/llama/model.gguf"), again,
                                   {.type = "Q8_0", .keep = {{"head", "F16"}}});
  ASSERT_TRUE(same) << same.error().message;
  const GgufFile a = Published::open(out), b = Published::open(again);
  EXPECT_EQ(a.find("general.file_type")->as_int(), 7);
  for (const TensorInfo& tensor : b.tensors()) {
    const TensorInfo* other = a.tensor(tensor.name);
    ASSERT_NE(other, nullptr);
    EXPECT_EQ(other->type, tensor.type) << tensor.name;
    EXPECT_EQ(std::memcmp(other->data, tensor.data, tensor.bytes), 0) << tensor.name;
  }
}

TEST_F(Convert, TemplatesAndEndsOfTexts) {
  Published p = qwen("qwen2", "Qwen2ForCausalLM");
  const auto tokens = p.strings("tokens");
  p.config["eos_token_id"] = {0, 5};
  p.settings["chat_template"] = "old";
  const std::string in = published(p), out = folder + "/a.gguf";
  write_text(in + "/chat_template.jinja", "{{ messages[0].content }}");
  write_text(in + "/generation_config.json", Json{{"eos_token_id", {7, 8}}}.dump());
  const auto written = convert_model(in, out, {.type = "F32"});
  ASSERT_TRUE(written) << written.error().message;
  const GgufFile file = Published::open(out);
  EXPECT_EQ(file.find("tokenizer.chat_template")->as_string(), "{{ messages[0].content }}");
  EXPECT_EQ(file.find("tokenizer.ggml.eot_token_id")->as_int(), 7);
  EXPECT_EQ(file.find("tokenizer.ggml.eom_token_id")->as_int(), 8);
}

// A sentence encoder with two dense layers behind its pooling: folders of their own.
class DenseLayers : public Convert {
 protected:
  Weights matrix(uint64_t rows, uint64_t columns) {
    Weights w{{rows, columns}, std::vector<float>(rows * columns)};
    for (float& v : w.values) v = normal_(random_);
    return w;
  }
  // Layer n (from 0) in its folder; `names` of the modules behind the pooling.
  static void write_layer(const std::string& in, int n, const Weights& w,
                          const std::string& activation = "Identity") {
    const std::string path = fmt::format("{}/{}_Dense", in, n + 2);
    std::filesystem::create_directories(path);
    write_safetensors(path + "/model.safetensors", {{"linear.weight", w}});
    write_text(path + "/config.json",
               Json{{"in_features", w.shape[1]},
                    {"out_features", w.shape[0]},
                    {"bias", false},
                    {"activation_function", "torch.nn.modules.linear." + activation}}
                   .dump());
  }
  static void write_modules(const std::string& in, const std::vector<std::string>& paths) {
    Json modules = Json::array();
    for (const std::string& path : paths) {
      const std::string kind =
          path.find('_') == std::string::npos ? "Transformer" : path.substr(path.find('_') + 1);
      modules.push_back({{"type", "sentence_transformers.models." + kind}, {"path", path}});
    }
    write_text(in + "/modules.json", modules.dump());
  }
  std::string refusal_of(const std::string& in) const {
    const auto written = convert_model(in, folder + "/out.gguf", {});
    EXPECT_FALSE(written);
    return written ? "" : written.error().message;
  }

 private:
  std::mt19937 random_{5};
  std::normal_distribution<float> normal_{0, 0.2f};
};

TEST_F(DenseLayers, AreProductsBehindThePooling) {
  const Published p = gemma_embedding();
  const auto width = uint64_t(p.number("embedding_length"));
  const std::string in = published(p), out = folder + "/a.gguf", plain = folder + "/plain.gguf";
  ASSERT_TRUE(convert_model(in, plain, {.type = "F32"}));
  const Weights first = matrix(3 * width, width), second = matrix(width - 5, 3 * width);
  write_layer(in, 0, first);
  write_layer(in, 1, second);
  write_modules(in, {"", "1_Pooling", "2_Dense", "3_Dense", "4_Normalize"});
  const auto written = convert_model(in, out, {.type = "F32"});
  ASSERT_TRUE(written) << written.error().message;
  const GgufFile file = Published::open(out);
  EXPECT_EQ(file.find("gemma-embedding.dense_3_feat_out")->as_int(), int64_t(width) - 5);
  const auto model = load(out, {.precise = true}), without = load(plain, {.precise = true});
  EXPECT_TRUE(model->info().warnings.empty());
  ASSERT_EQ(model->info().embedding_dimension, int64_t(width) - 5);
  const std::vector<std::vector<Token>> texts{{2, 9, 77, 1}};
  const auto got = embed(*model, texts), pooled = embed(*without, texts);
  ASSERT_TRUE(got && pooled);
  // The pooled vector was made 1 long; so is the projected one, whatever factor went in.
  const auto times = [](const Weights& w, const std::vector<double>& x) {
    std::vector<double> y(w.shape[0]);
    for (size_t i = 0; i < w.values.size(); ++i)
      y[i / x.size()] += static_cast<double>(w.values[i]) * x[i % x.size()];
    return y;
  };
  const std::vector<double> want =
      times(second, times(first, {(*pooled)[0].begin(), (*pooled)[0].end()}));
  double squares = 0;
  for (const double v : want) squares += v * v;
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(static_cast<double>((*got)[0][i]), want[i] / std::sqrt(squares), 1e-6) << i;
}

TEST_F(DenseLayers, OthersAreRefusedByName) {
  const Published p = gemma_embedding();
  const auto width = uint64_t(p.number("embedding_length"));
  const std::string in = published(p);
  write_layer(in, 0, matrix(width, width));
  write_layer(in, 1, matrix(width, width), "Tanh");
  write_modules(in, {"", "1_Pooling", "2_Dense", "3_Dense"});
  EXPECT_NE(refusal_of(in).find("with an activation"), std::string::npos) << refusal_of(in);
  write_modules(in, {"", "1_Pooling", "2_Dense"});
  EXPECT_NE(refusal_of(in).find("none or two"), std::string::npos);
  write_modules(in, {"", "2_Dense", "1_Pooling"});
  const auto refused = [&](const std::string& what) {
    EXPECT_NE(refusal_of(in).find(what), std::string::npos) << refusal_of(in);
  };
  refused("the model also applies 'sentence_transformers.models.Dense' (in '2_Dense')");
  write_modules(in, {"", "1_Pooling", "../2_Dense"});
  refused("is not a folder in this one");
  write_modules(in, {"", "1_Pooling", "2_Dense", "1_Pooling"});
  refused("the model also applies 'sentence_transformers.models.Pooling' (in '1_Pooling')");
  write_modules(in, {"1_Pooling", "2_Dense"});
  refused("is not a list of modules");
  write_text(in + "/modules.json", "{}");
  refused("is not a list of modules");
  write_layer(in, 1, matrix(width, width));
  write_safetensors(in + "/3_Dense/model.safetensors",
                    {{"linear.weight", matrix(width, width)}, {"linear.bias", matrix(width, 1)}});
  write_modules(in, {"", "1_Pooling", "2_Dense", "3_Dense"});
  EXPECT_NE(refusal_of(in).find("'3_Dense.linear.bias' is not known"), std::string::npos);
  write_safetensors(in + "/3_Dense/model.safetensors", {});
  EXPECT_NE(refusal_of(in).find("'3_Dense.linear.weight' is missing"), std::string::npos);
  write_layer(in, 1, matrix(width, width));
  write_text(in + "/sentence_bert_config.json", R"({"do_lower_case": true})");
  EXPECT_NE(refusal_of(in).find("lower case"), std::string::npos);
  const std::string other = published(bert());
  write_layer(other, 0, matrix(width, width));
  write_modules(other, {"", "1_Pooling", "2_Dense"});
  EXPECT_NE(refusal_of(other).find("dense layers behind the pooling"), std::string::npos);
}

// EmbeddingGemma's list of added tokens has one that belongs to the images of its family.
TEST_F(Convert, AddedTokensWithoutARowAreLeftOutAndNamed) {
  Published p = llama("llama");
  for (const char* token : {"<image>", "<video>"}) {
    p.tokenizer["added_tokens"].push_back(
        {{"id", 512 + p.tokenizer["added_tokens"].size()}, {"content", token}, {"special", true}});
    const std::string out = folder + "/a.gguf";
    const auto written = convert_model(published(p), out, {.type = "F32"});
    ASSERT_TRUE(written) << written.error().message;
    ASSERT_EQ(written->notes.size(), 1u);
    EXPECT_EQ(written->notes[0].find("left out: '<image>'"), 0u) << written->notes[0];
    EXPECT_EQ(Published::open(out).find("tokenizer.ggml.tokens")->size(), 512u);
  }
}

TEST_F(DenseLayers, PoolingsThatAreNotKnownAreRefused) {
  const std::string in = published(bert());
  write_modules(in, {"", "1_Pooling"});
  for (const auto& [settings, what] : std::map<std::string, std::string>{
           {R"({"pooling_mode_cls_token": true, "pooling_mode_lasttoken": true})", "at once"},
           {R"({"pooling_mode_max_tokens": true})", "of the kinds of pooling only"},
           {R"({"pooling_mode": "weightedmean"})", "none of the kinds"},
           {R"({"pooling_mode": ["cls", "mean"]})", "none of the kinds"},
           {R"({"pooling_mode_mean_tokens": true, "word_embedding_dimension": 77})", "77"}}) {
    write_text(in + "/1_Pooling/config.json", settings);
    EXPECT_NE(refusal_of(in).find(what), std::string::npos) << settings << ": " << refusal_of(in);
  }
  Published p = bert();
  p.config["is_decoder"] = true;
  EXPECT_NE(refusal_of(published(p)).find("decoders are not known"), std::string::npos);
  p = gemma_embedding();
  p.config.erase("use_bidirectional_attention");
  EXPECT_NE(refusal_of(published(p)).find("use_bidirectional_attention"), std::string::npos);
  const std::string decoder = published(qwen("qwen3", "Qwen3ForCausalLM"));
  write_text(decoder + "/1_Pooling/config.json", R"({"pooling_mode_lasttoken": true})");
  write_modules(decoder, {"", "1_Pooling", "2_Normalize"});
  EXPECT_NE(refusal_of(decoder).find("an encoder of sentences"), std::string::npos);
}

// ---------------------------------------------------------------- refusals

// Verifies files.conversion.
TEST_F(Convert, WhatIsNotKnownIsRefusedByName) {
  Published p = llama("llama");
  p.config["architectures"] = {"LlamaForTokenClassification"};
  EXPECT_NE(refusal(p).find("'LlamaForTokenClassification' are not known; there are "),
            std::string::npos);
  p = llama("llama");
  p.config["rope_scaling"] = {{"rope_type", "axial"}, {"factor", 4.0}};
  EXPECT_NE(refusal(p).find("the rope type \"axial\" is not known for this family"),
            std::string::npos);
  for (const Json& odd : {Json("yarn"), Json(4.0), Json{{"factor", 4.0}}}) {
    p = llama("llama");
    p.config["rope_scaling"] = odd;
    EXPECT_NE(refusal(p).find("how positions are scaled (rope_scaling) has no type"),
              std::string::npos)
        << odd;
  }
  for (const char* part : {"factor", "low_freq_factor"}) {
    p = llama("llama3-rope");
    p.config["rope_scaling"].erase(part);
    EXPECT_NE(refusal(p).find("the configuration has no"), std::string::npos) << part;
  }
  for (const bool gemma : {false, true}) {
    Published other = gemma ? gemma3("gemma3", true) : qwen("qwen3", "Qwen3ForCausalLM");
    other.config["hidden_act"] = other.config["hidden_activation"] = "relu";
    EXPECT_NE(refusal(other).find("the activation \"relu\" is not known"), std::string::npos);
  }
  p = llama("llama");
  p.config["quantization_config"] = {{"quant_method", "gptq"}};
  EXPECT_NE(refusal(p).find("its weights are quantized (\"gptq\")"), std::string::npos);
  p = gemma3("gemma3", false);
  p.config["layer_types"] = {"full_attention",    "sliding_attention", "sliding_attention",
                             "sliding_attention", "sliding_attention", "sliding_attention",
                             "full_attention"};
  EXPECT_NE(refusal(p).find("layer 1 has another kind of attention"), std::string::npos);
  p = llama("llama");
  p.weights["model.layers.0.self_attn.sinks"] = {{1}, {0}};
  EXPECT_NE(refusal(p).find("'model.layers.0.self_attn.sinks' is not known for the family"),
            std::string::npos);
  p = qwen("qwen3", "Qwen3ForCausalLM");
  p.config["rms_norm_eps"] = nullptr;
  EXPECT_NE(refusal(p).find("the configuration has no rms_norm_eps"), std::string::npos);
}

// Verifies files.conversion.
TEST_F(Convert, WhatIsMissingIsNamed) {
  Published p = llama("llama");
  p.weights.erase("model.layers.2.mlp.up_proj.weight");
  EXPECT_NE(refusal(p).find("'model.layers.2.mlp.up_proj.weight' is missing"), std::string::npos);
  p = mixtral();
  p.weights.erase("model.layers.1.block_sparse_moe.experts.3.w1.weight");
  EXPECT_NE(refusal(p).find("model.layers.1.block_sparse_moe.experts.4.w1.weight"),
            std::string::npos);
  p = llama("llama");
  p.tokenizer = nullptr;
  EXPECT_NE(refusal(p).find("neither tokenizer.json nor tokenizer.model"), std::string::npos);
  const auto none = convert_model(folder + "/none", folder + "/a.gguf", {});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kNotFound);
}

// Verifies files.conversion.
TEST_F(Convert, TokenizersThatFilesCannotSayAreRefused) {
  Published p = llama("llama");
  p.tokenizer["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "x+";
  EXPECT_NE(refusal(p).find("has these steps: x+, whole words first"), std::string::npos);
  p = llama("llama");
  p.tokenizer["model"]["type"] = "Unigram";
  EXPECT_NE(refusal(p).find("type 'Unigram' is not read"), std::string::npos);
  p = llama("llama");
  p.tokenizer["model"]["vocab"]["more"] = 512;
  EXPECT_NE(refusal(p).find("the id 512, but the embedding has 512 rows"), std::string::npos);
}

// ---------------------------------------------------------------- members of configurations

Published mistral() {
  Published p = llama("llama");
  p.config["architectures"] = {"MistralForCausalLM"};
  p.config["sliding_window"] = nullptr;
  return p;
}

Published modern_bert_model() {
  Published p = modern_bert();
  p.config["architectures"] = {"ModernBertModel"};
  return p;
}

Published plain_gemma4() {
  Published p = gemma4("gemma4-dense");
  Json text = p.config["text_config"];
  text["architectures"] = {"Gemma4ForCausalLM"};
  p.config = std::move(text);
  return p;
}

std::vector<Published> one_of_each_class() {
  std::vector<Published> all;
  all.push_back(llama("llama"));
  all.push_back(mistral());
  all.push_back(mixtral());
  all.push_back(qwen("qwen2", "Qwen2ForCausalLM"));
  all.push_back(qwen("qwen3", "Qwen3ForCausalLM"));
  all.push_back(qwen3moe(true));
  all.push_back(gemma("gemma", "GemmaForCausalLM"));
  all.push_back(gemma("gemma2", "Gemma2ForCausalLM"));
  all.push_back(gemma3("gemma3", false));
  all.push_back(plain_gemma4());
  all.push_back(lfm2());
  all.push_back(phi3("phi3"));
  all.push_back(glm4());
  all.push_back(olmo("olmo2", "Olmo2ForCausalLM"));
  all.push_back(olmo("olmo3", "Olmo3ForCausalLM"));
  all.push_back(granite());
  all.push_back(smollm3());
  all.push_back(bert());
  all.push_back(modern_bert_model());
  return all;
}

class Members : public Convert {
 protected:
  void SetUp() override {
    Convert::SetUp();
    for (const char* name : {"members", "older", "harmless"}) {
      data_[name] = Json::parse(read_text(golden(fmt::format("published-members/{}.json", name))));
    }
  }
  static std::string read_text(const std::string& path) {
    std::string text(std::filesystem::file_size(path), '\0');
    std::ifstream(path, std::ios::binary).read(text.data(), std::streamsize(text.size()));
    return text;
  }
  // The bytes of the file, or "" and the error.
  std::string file_of(const Published& p, std::string* error, size_t* notes = nullptr) const {
    return converted(published(p), error, notes);
  }
  std::string converted(const std::string& in, std::string* error, size_t* notes) const {
    const std::string out = folder + "/out.gguf";
    const auto written = convert_model(in, out, {.type = "F32", .threads = 1});
    if (!written) {
      *error = written.error().message;
      return "";
    }
    if (notes != nullptr) *notes = written->notes.size();
    return read_text(out);
  }
  // A member with another value: what it could say if it mattered.
  static Json other_than(const Json& value) {
    if (value.is_boolean()) return !value.get<bool>();
    if (value.is_number_integer()) return 2 * value.get<int64_t>() + 1;
    if (value.is_number()) return value.get<double>() * 1.25 + 0.125;
    if (value.is_string()) return "other";
    if (value.is_null()) return 7;
    return value;
  }
  bool is_harmless(const std::string& model, const std::string& name) const {
    for (const std::string& of : {std::string("*"), model}) {
      const auto list = data_.at("harmless").find(of);
      if (list == data_.at("harmless").end()) continue;
      if (std::find(list->begin(), list->end(), Json(name)) != list->end()) return true;
    }
    return false;
  }
  // All members that the class has or had, at their defaults, besides those of the small model.
  void add_members(const std::string& model, Json* config) const {
    std::vector<const Json*> sources{&data_.at("older").at("*"), &data_.at("members").at(model)};
    if (data_.at("older").contains(model)) sources.push_back(&data_.at("older").at(model));
    for (const Json* source : sources) {
      for (const auto& [name, value] : source->items()) {
        if (!config->contains(name)) (*config)[name] = value;
      }
    }
  }

 private:
  std::map<std::string, Json> data_;
};

// Verifies files.conversion.
TEST_F(Members, OfEveryClassAreKnown) {
  for (Published& p : one_of_each_class()) {
    const auto model = p.config["architectures"][0].get<std::string>();
    SCOPED_TRACE(model);
    std::string error;
    // Ids of tokens are the small model's, so they must be there in both.
    for (const char* name : {"bos", "eos", "pad", "cls", "sep"}) {
      p.config[fmt::format("{}_token_id", name)] = 1;
    }
    const std::string plain = file_of(p, &error);
    ASSERT_NE(plain, "") << error;
    add_members(model, &p.config);
    size_t notes = 0;
    const std::string whole = file_of(p, &error, &notes);
    ASSERT_NE(whole, "") << error;
    EXPECT_TRUE(plain == whole);
    EXPECT_EQ(notes, 0u);
  }
}

// Verifies files.conversion.
TEST_F(Members, WithAnotherValueAreUsedNamedOrRefused) {
  for (Published& p : one_of_each_class()) {
    const auto model = p.config["architectures"][0].get<std::string>();
    SCOPED_TRACE(model);
    for (const char* name : {"bos", "eos", "pad", "cls", "sep"}) {
      p.config[fmt::format("{}_token_id", name)] = 1;
    }
    add_members(model, &p.config);
    std::string error;
    const std::string before = file_of(p, &error), in = folder + "/" + p.name();
    ASSERT_NE(before, "") << error;
    const Json config = p.config;
    for (const auto& [name, value] : config.items()) {
      if (value.is_structured() || is_harmless(model, name)) continue;
      Json changed = config;
      changed[name] = other_than(value);
      write_text(in + "/config.json", changed.dump());
      size_t notes = 0;
      const std::string after = converted(in, &error, &notes);
      EXPECT_TRUE(after.empty() || after != before || notes > 0)
          << name << " = " << changed[name] << " changes nothing";
    }
  }
}

// Verifies files.conversion.
TEST_F(Members, ThatAreNullAreNotAbsent) {
  Published p = plain_gemma4();
  p.config["final_logit_softcapping"] = nullptr;
  std::string error;
  ASSERT_NE(file_of(p, &error), "") << error;
  EXPECT_EQ(
      Published::open(folder + "/out.gguf").find("gemma4.final_logit_softcapping")->as_number(),
      0.0);
  const auto model = load(folder + "/out.gguf", {.precise = true});  // and it runs
  EXPECT_EQ(model->info().architecture, "gemma4");
  p = gemma("gemma2", "Gemma2ForCausalLM");
  p.config["final_logit_softcapping"] = p.config["attn_logit_softcapping"] = nullptr;
  ASSERT_NE(file_of(p, &error), "") << error;
  for (const char* key : {"final_logit_softcapping", "attn_logit_softcapping"}) {
    const GgufFile file = Published::open(folder + "/out.gguf");
    EXPECT_EQ(file.find(fmt::format("gemma2.{}", key))->as_number(), 0.0) << key;
  }
  EXPECT_EQ(load(folder + "/out.gguf", {.precise = true})->info().architecture, "gemma2");
  p.config.erase("final_logit_softcapping");
  ASSERT_NE(file_of(p, &error), "") << error;
  EXPECT_EQ(
      Published::open(folder + "/out.gguf").find("gemma2.final_logit_softcapping")->as_number(),
      30.0);
  p = mistral();
  p.config["max_position_embeddings"] = 8192;
  p.config.erase("sliding_window");  // the class has windows of 4096 tokens by default
  const std::string windowed = file_of(p, &error);
  p.config["sliding_window"] = nullptr;
  const std::string without = file_of(p, &error);
  ASSERT_NE(without, "") << error;
  EXPECT_FALSE(windowed == without);
}

// Verifies files.conversion.
TEST_F(Members, DefaultsAreThoseOfTheClass) {
  struct Case {
    Published model;
    std::string member, key;
    double value;
  };
  std::vector<Case> cases;
  cases.push_back({mixtral(), "rope_theta", "llama.rope.freq_base", 1e6});
  cases.push_back({mixtral(), "rms_norm_eps", "llama.attention.layer_norm_rms_epsilon", 1e-5});
  cases.push_back({llama("llama"), "rope_theta", "llama.rope.freq_base", 1e4});
  cases.push_back({llama("llama"), "rms_norm_eps", "llama.attention.layer_norm_rms_epsilon", 1e-6});
  cases.push_back({smollm3(), "rope_theta", "smollm3.rope.freq_base", 2e6});
  cases.push_back({olmo("olmo3", "Olmo3ForCausalLM"), "rope_theta", "olmo2.rope.freq_base", 5e5});
  cases.push_back({olmo("olmo2", "Olmo2ForCausalLM"), "rope_theta", "olmo2.rope.freq_base", 1e4});
  cases.push_back({lfm2(), "rope_theta", "lfm2.rope.freq_base", 1e6});
  cases.push_back({lfm2(), "norm_eps", "lfm2.attention.layer_norm_rms_epsilon", 1e-5});
  cases.push_back({glm4(), "rms_norm_eps", "glm4.attention.layer_norm_rms_epsilon", 1.5625e-7});
  cases.push_back({gemma("gemma2", "Gemma2ForCausalLM"), "sliding_window",
                   "gemma2.attention.sliding_window", 4096});
  cases.push_back({granite(), "residual_multiplier", "granite.residual_scale", 1});
  cases.push_back({qwen3moe(true), "max_position_embeddings", "qwen3moe.context_length", 32768});
  for (Case& c : cases) {
    c.model.config.erase(c.member);
    std::string error;
    ASSERT_NE(file_of(c.model, &error), "") << c.key << ": " << error;
    const GgufFile file = Published::open(folder + "/out.gguf");
    ASSERT_NE(file.find(c.key), nullptr) << c.key;
    EXPECT_EQ(float(*file.find(c.key)->as_number()), float(c.value)) << c.key;
  }
}

// Verifies files.conversion.
TEST_F(Members, ActivationsHaveExactMeanings) {
  const std::map<std::string, std::vector<std::string>> good{
      {"hidden_act", {"silu", "swish"}},
      {"hidden_activation", {"gelu_pytorch_tanh", "gelu_new", "gelu_fast"}}};
  for (const auto& [member, names] : good) {
    Published p = member == "hidden_act" ? llama("llama") : gemma3("gemma3", false);
    for (const char* name : {"silu", "swish", "gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh",
                             "quick_gelu", "relu"}) {
      p.config[member] = name;
      std::string error;
      const bool converts = !file_of(p, &error).empty();
      const bool known = std::find(names.begin(), names.end(), name) != names.end();
      EXPECT_EQ(converts, known) << member << " " << name << " " << error;
    }
  }
}

TEST_F(Convert, SourcesAreNotOverwritten) {
  const std::string in = published(llama("llama"));
  const auto written = convert_model(in, in + "/model.safetensors", {});
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, ErrorCode::kInvalidArgument);
  // By whatever name: files of the folder may be links, as a download cache has them.
  for (const char* name : {"config.json", "tokenizer.json"}) {
    const std::string file = in + "/" + name, blob = folder + "/blob.gguf";
    std::filesystem::rename(file, blob);
    std::filesystem::create_symlink(blob, file);
    for (const std::string& out : {file, blob}) {
      const auto other = convert_model(in, out, {});
      ASSERT_FALSE(other) << out;
      EXPECT_EQ(other.error().code, ErrorCode::kInvalidArgument);
    }
    std::filesystem::remove(file);
    std::filesystem::rename(blob, file);
  }
  const std::string family = folder + "/my.family";
  write_text(family, "family llama\ninclude llama\n");
  EXPECT_FALSE(convert_model(in, family, {.family = family}));
  const auto stopped =
      convert_model(in, folder + "/a.gguf", {.progress = [](const Progress&) { return false; }});
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
  EXPECT_FALSE(std::filesystem::exists(folder + "/a.gguf"));
}

}  // namespace
}  // namespace culet::test
