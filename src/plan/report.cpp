// What `arch check` prints. Takes an architecture file and perhaps a model, gives a text.
//
// On a model the graph is built as compile() does it, so every mistake is found here too; the
// report then reads the graph before anything is lowered or fused: an operation for each that is
// written. Layers are of one kind when their operations are the same but for the tensors' types.
#include "plan/report.h"

#include "base/sha256.h"
#include "expr/lexer.h"
#include "plan/arch_parse.h"
#include "plan/graph.h"
#include "plan/hyperparameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>

namespace culet::plan {
namespace {

using Kind = Expr::Kind;

std::string join(const std::vector<std::string>& words, std::string_view between = ", ") {
  std::string out;
  for (const std::string& w : words) out += (out.empty() ? "" : std::string(between)) + w;
  return out;
}

// "blk.12.attn_q.weight" -> "blk.*.attn_q.weight"
std::string family(std::string_view name) {
  if (!name.starts_with("blk.")) return std::string(name);
  const size_t dot = name.find('.', 4);
  return dot == std::string_view::npos ? std::string(name)
                                       : fmt::format("blk.*{}", name.substr(dot));
}

// Names with their layers counted, in the order they come.
std::string counted(const std::vector<std::string>& names) {
  std::vector<std::pair<std::string, int>> groups;
  for (const std::string& name : names) {
    const std::string f = family(name);
    const auto same =
        std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == f; });
    if (same == groups.end())
      groups.emplace_back(f, 1);
    else
      ++same->second;
  }
  std::string out;
  for (const auto& [name, count] : groups)
    out += fmt::format("{}{}{}", out.empty() ? "" : ", ", name,
                       name.find('*') == std::string::npos ? "" : fmt::format(" x {}", count));
  return out.empty() ? "none" : out;
}

// "0-4, 6-10": ascending numbers.
std::string ranges(const std::vector<int>& numbers) {
  std::string out;
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i;
    while (end + 1 < numbers.size() && numbers[end + 1] == numbers[end] + 1) ++end;
    out += fmt::format("{}{}", out.empty() ? "" : ", ", numbers[i]);
    if (end > i) out += fmt::format("-{}", numbers[end]);
    i = end + 1;
  }
  return out;
}

std::string head(const ArchText& text, const ArchFile& arch) {
  const std::string flat = flattened_text(arch);
  std::vector<std::string> files;
  for (auto f = arch.files.rbegin(); f != arch.files.rend(); ++f) files.push_back(f->name);
  return fmt::format(
      "architecture      {}\nkind              {}\nfile              {} ({})\n"
      "text              {}\nsha256            {}\n",
      join(arch.architectures), arch.kind, text.name, text.origin, join(files, " on top of "),
      base::sha256_hex(std::as_bytes(std::span(flat.data(), flat.size()))));
}

// ---------------------------------------------------------------- the text by itself

void outputs_of(const std::vector<Statement>& all, std::vector<std::string>* out) {
  for (const Statement& s : all) {
    if (s.kind == Statement::Kind::kOutput) out->push_back(s.names[0]);
    outputs_of(s.body, out);
    outputs_of(s.otherwise, out);
  }
}

void keys_in(const Expr& e, std::set<std::string>* keys) {
  if (e.kind == Kind::kName && e.text.starts_with("meta.")) keys->insert(e.text);
  for (const ExprPtr& kid : e.kids) keys_in(*kid, keys);
  for (const NamedArgument& a : e.named) keys_in(*a.value, keys);
}

template <class T>
std::vector<std::string> names_of(const std::vector<T>& items) {
  std::vector<std::string> names;
  names.reserve(items.size());
  for (const T& item : items) names.push_back(item.name);
  return names;
}

// ---------------------------------------------------------------- hyperparameters on a model

// "name = value" or why it has none; hyperparameters that nobody needs may have none.
std::string hparam_text(Hyperparameters& hparams, const Let& let, int layer) {
  const auto value = hparams.eval(*let.value, layer);
  return value ? value->show() : "has no value for this model";
}

std::string global_hparams(Hyperparameters& hparams) {
  std::string out = "\nhyperparameters\n";
  for (const Let& let : hparams.arch().lets)
    if (!hparams.per_layer(let))
      out += fmt::format("  {} = {}\n", let.name, hparam_text(hparams, let, -1));
  return out;
}

// The hyperparameters that differ from layer to layer, in these layers.
std::string layer_hparams(Hyperparameters& hparams, const std::vector<int>& layers) {
  constexpr size_t kMostValues = 8;
  std::string out;
  for (const Let& let : hparams.arch().lets) {
    if (!hparams.per_layer(let)) continue;
    std::vector<std::string> values;
    for (const int layer : layers) {
      const std::string value = hparam_text(hparams, let, layer);
      if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
      if (values.size() > kMostValues) break;
    }
    if (values.size() > kMostValues) values.back() = "...";
    out += fmt::format("    {} = {}\n", let.name, join(values, " | "));
  }
  return out;
}

// ---------------------------------------------------------------- statements on a model

std::string type_name(const format::GgufFile& model, TensorId id) {
  return std::string(quant::type_info(model.tensors()[static_cast<size_t>(id)].type).name);
}

// Types of the op's weights; where the same op of other layers has others, all of them.
std::string types_text(const Plan& plan, const format::GgufFile& model,
                       const std::vector<size_t>& ops) {
  std::string out;
  for (size_t w = 0; w < plan.ops[ops.front()].weights.size(); ++w) {
    std::vector<std::string> types;
    for (const size_t k : ops) {
      if (plan.ops[k].weights[w] == kNone) continue;
      const std::string type = type_name(model, plan.ops[k].weights[w]);
      if (std::find(types.begin(), types.end(), type) == types.end()) types.push_back(type);
    }
    if (!types.empty()) out += " " + join(types, "|");
  }
  return out.empty() ? out : " :" + out;
}

struct LayerKind {
  std::string signature;
  std::vector<int> layers;
  std::vector<std::vector<size_t>> ops;  // [op of a layer][layer of `layers`]: index in the plan
};

std::vector<size_t> ops_of(const Plan& plan, int layer) {
  std::vector<size_t> out;
  for (size_t k = 0; k < plan.ops.size(); ++k)
    if (plan.ops[k].layer == layer) out.push_back(k);
  return out;
}

std::vector<LayerKind> layer_kinds(const Plan& plan, const format::GgufFile& model) {
  std::vector<std::vector<size_t>> by_layer(static_cast<size_t>(plan.n_layers));
  for (size_t k = 0; k < plan.ops.size(); ++k)
    if (plan.ops[k].layer >= 0) by_layer[static_cast<size_t>(plan.ops[k].layer)].push_back(k);
  std::vector<LayerKind> kinds;
  for (size_t i = 0; i < by_layer.size(); ++i) {
    std::string signature;
    for (const size_t k : by_layer[i])
      signature +=
          fmt::format("{} {}\n", plan.ops[k].line, op_line(plan, plan.ops[k], model, false));
    for (const CacheSpec& cache : plan.caches)
      if (cache.layer == static_cast<int>(i)) signature += cache_line(cache) + "\n";
    for (const StateSpec& state : plan.states)
      if (state.layer == static_cast<int>(i)) signature += state_line(state) + "\n";
    auto kind = std::find_if(kinds.begin(), kinds.end(),
                             [&](const LayerKind& k) { return k.signature == signature; });
    if (kind == kinds.end())
      kind =
          kinds.insert(kind, {signature, {}, std::vector<std::vector<size_t>>(by_layer[i].size())});
    kind->layers.push_back(static_cast<int>(i));
    for (size_t n = 0; n < by_layer[i].size(); ++n) kind->ops[n].push_back(by_layer[i][n]);
  }
  return kinds;
}

std::string statements_text(const Plan& plan, const format::GgufFile& model,
                            const SourceLines& source,
                            const std::vector<std::vector<size_t>>& ops) {
  std::string out;
  int32_t line = -1;
  for (const std::vector<size_t>& same : ops) {
    const Op& op = plan.ops[same.front()];
    if (op.line != line) {
      line = op.line;
      out += fmt::format("  {}: {}\n", source.name_flat(line), source.at_flat(line));
    }
    out +=
        fmt::format("      {}{}\n", op_line(plan, op, model, false), types_text(plan, model, same));
  }
  return out;
}

// ---------------------------------------------------------------- caches, states and tensors

int64_t token_bytes(const CacheSpec& cache) {  // float16
  return int64_t{2} * cache.kv_heads * (cache.head_dim + cache.value_dim);
}

std::string caches_text(const Plan& plan) {
  if (plan.caches.empty()) return "\ncaches\n  none\n";
  std::vector<std::pair<std::string, std::vector<const CacheSpec*>>> groups;
  int64_t all = 0;
  for (const CacheSpec& cache : plan.caches) {
    const std::string text = cache_line(cache);
    auto same =
        std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == text; });
    if (same == groups.end()) same = groups.insert(same, {text, {}});
    same->second.push_back(&cache);
    all += token_bytes(cache);
  }
  std::string out = "\ncaches\n";
  for (const auto& [text, caches] : groups)
    out += fmt::format("  {} in {} layers, {} bytes a token each\n", text, caches.size(),
                       token_bytes(*caches.front()));
  return out + fmt::format("  together {} bytes a token while every window has room (f16)\n", all);
}

std::string states_text(const Plan& plan) {
  if (plan.states.empty()) return "";
  std::vector<std::pair<std::string, int>> groups;
  int64_t all = 0;
  for (const StateSpec& state : plan.states) {
    const std::string text = state_line(state);
    auto same =
        std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == text; });
    if (same == groups.end()) same = groups.insert(same, {text, 0});
    ++same->second;
    all += int64_t{4} * state.rows * state.width;
  }
  std::string out = "\nstates\n";
  for (const auto& [text, layers] : groups) out += fmt::format("  {} in {} layers\n", text, layers);
  return out + fmt::format("  together {} bytes a session (f32)\n", all);
}

std::string stream_text(const Plan& plan) {
  return plan.no_stream.empty() ? "" : fmt::format("\nno endless stream\n  {}\n", plan.no_stream);
}

// Tensors that the statements would take if they were there.
class Absent {
 public:
  explicit Absent(Hyperparameters& hparams) : hparams_(hparams) {}

  void statements(const std::vector<Statement>& all, int layer) {
    for (const Statement& s : all) {
      if (s.kind == Statement::Kind::kWhen) {
        const auto yes = hparams_.flag(*s.value, layer);
        if (yes) statements(*yes ? s.body : s.otherwise, layer);
        continue;
      }
      if (s.kind == Statement::Kind::kLayers) {
        each_layer(s.names[0]);
        continue;
      }
      if (s.value) expression(*s.value, layer);
      for (const ExprPtr& operand : s.operands) expression(*operand, layer);
    }
  }
  std::vector<std::string> names;

 private:
  void each_layer(const std::string& name) {
    const Block* block = hparams_.arch().block(name);
    const auto layers = hparams_.layers();
    if (!block || !layers) return;
    for (int i = 0; i < *layers; ++i)
      for (const Section& section : block->sections) statements(section.statements, i);
  }

  void expression(const Expr& e, int layer) {
    if (e.kind == Kind::kOptional || e.kind == Kind::kAlternative)
      for (const ExprPtr& kid : e.kids) tensor(*kid, layer);
    for (const ExprPtr& kid : e.kids) expression(*kid, layer);
    for (const NamedArgument& a : e.named) expression(*a.value, layer);
  }

  void tensor(const Expr& e, int layer) {
    if (e.kind != Kind::kName && e.kind != Kind::kString) return;
    const bool quoted = e.kind == Kind::kString;
    if (!quoted && (hparams_.let(e.text) || e.text == "none" || e.text.starts_with("target.")))
      return;
    std::string name = hparams_.tensor_name(e.text, quoted, layer);
    if (hparams_.find_tensor(name) == kNone && seen_.insert(name).second)
      names.push_back(std::move(name));
  }

  Hyperparameters& hparams_;
  std::set<std::string> seen_;
};

std::string tensors_text(Hyperparameters& hparams, const Plan& plan) {
  const auto tensors = hparams.model().tensors();
  std::vector<bool> used(tensors.size(), false);
  const auto use = [&](TensorId id) {
    if (id >= 0 && static_cast<size_t>(id) < used.size()) used[static_cast<size_t>(id)] = true;
  };
  for (const Op& op : plan.ops)
    for (const TensorId id : op.weights) use(id);
  for (const RopeSpec& rope : plan.ropes) use(rope.factors);
  std::vector<std::string> yes, no;
  for (size_t t = 0; t < tensors.size(); ++t) (used[t] ? yes : no).emplace_back(tensors[t].name);
  Absent absent(hparams);
  if (const Block* model = hparams.arch().block("model"))
    for (const Section& section : model->sections) absent.statements(section.statements, -1);
  return fmt::format(
      "\ntensors\n  used ({}): {}\n  ignored ({}): {}\n  optional, not in the file "
      "({}): {}\n",
      yes.size(), counted(yes), no.size(), counted(no), absent.names.size(), counted(absent.names));
}

std::string architecture_note(const format::GgufFile& model, const ArchFile& arch) {
  const format::MetaValue* value = model.find("general.architecture");
  const std::string name(value ? value->as_string().value_or("") : "");
  if (std::find(arch.architectures.begin(), arch.architectures.end(), name) !=
      arch.architectures.end())
    return "";
  return fmt::format(
      "note              the model says '{}', which this file's arch line does not "
      "name, so it would not be picked\n",
      name);
}

}  // namespace

// ---------------------------------------------------------------- shared

int64_t trained_context(const format::GgufFile& model) {
  const format::MetaValue* name = model.find("general.architecture");
  if (!name || !name->as_string()) return 0;
  const auto* key = model.find(fmt::format("{}.context_length", *name->as_string()));
  return key ? key->as_int().value_or(0) : 0;
}

std::string cache_line(const CacheSpec& cache) {
  std::string policy = cache.policy == CachePolicy::kFull ? "full" : "global";
  if (cache.policy == CachePolicy::kWindow) policy = fmt::format("window({})", cache.window);
  return fmt::format("cache {}: {}, {} heads, keys of {}, values of {}", cache.name, policy,
                     cache.kv_heads, cache.head_dim, cache.value_dim);
}

std::string state_line(const StateSpec& state) {
  return fmt::format("state {}: {} rows of {}", state.name, state.rows, state.width);
}

std::string op_line(const Plan& plan, const Op& op, const format::GgufFile& model, bool types) {
  const auto value = [&](ValueId id) {
    const Value& v = plan.values[static_cast<size_t>(id)];
    std::string dims;
    for (int32_t d = 0; d < v.rank; ++d)
      dims += fmt::format("{}{}", d ? "," : "", v.dims[static_cast<size_t>(d)]);
    return fmt::format("{}[{}]", v.name.empty() ? "_" : v.name, dims);
  };
  std::vector<std::string> in, out;
  for (const ValueId v : op.in) in.push_back(value(v));
  for (const ValueId v : op.out) out.push_back(value(v));
  std::string line =
      fmt::format("{}{}{}({})", join(out), out.empty() ? "" : " = ", op_name(op.kind), join(in));
  const std::string own = fmt::format("blk.{}.", op.layer);
  for (const TensorId t : op.weights) {
    if (t == kNone || static_cast<size_t>(t) >= model.tensors().size()) continue;
    const format::TensorInfo& w = model.tensors()[static_cast<size_t>(t)];
    std::string name(w.name), dims;
    if (op.layer >= 0 && name.starts_with(own)) name = "blk.{i}." + name.substr(own.size());
    for (int d = 0; d < w.n_dims; ++d)
      dims += fmt::format("{}{}", d ? "," : "", w.dims[static_cast<size_t>(d)]);
    line += fmt::format(" {}{{{}}}{}", name, dims,
                        types ? fmt::format(" {}", quant::type_info(w.type).name) : "");
  }
  std::string attributes = attributes_text(plan, op);
  const auto drop_layer = [&](std::string_view kind, const std::string& name, int32_t layer) {
    const std::string with_layer = fmt::format("{}={}/{}", kind, name, layer);
    const size_t at = attributes.find(with_layer);
    if (layer == op.layer && at != std::string::npos)
      attributes.replace(at, with_layer.size(), fmt::format("{}={}", kind, name));
  };
  if (const int32_t c = cache_of(op); c != kNone) {
    const CacheSpec& cache = plan.caches[static_cast<size_t>(c)];
    drop_layer("cache", cache.name, cache.layer);
  }
  if (const auto* a = op.attr.get_if<ShortConvAttributes>()) {
    const StateSpec& state = plan.states[static_cast<size_t>(a->state)];
    drop_layer("state", state.name, state.layer);
  }
  return line + attributes;
}

SourceLines::SourceLines(const ArchFile& arch) : arch_(arch), lines_(arch.files.size()) {
  for (size_t f = 0; f < arch.files.size(); ++f) {
    const auto lines = lex(arch.files, static_cast<int>(f));
    if (!lines) continue;  // it has been parsed
    std::vector<std::string> physical{""};
    for (const char c : arch.files[f].text) {
      if (c == '\n')
        physical.emplace_back();
      else
        physical.back() += c;
    }
    for (const expr::LexLine& line : *lines) {
      std::vector<std::string> parts;
      for (int n = line.line; n <= line.tokens.back().line; ++n) {
        std::string part = physical[static_cast<size_t>(n) - 1];
        bool quoted = false;
        for (size_t i = 0; i < part.size(); ++i) {
          if (part[i] == '"') quoted = !quoted;
          if (part[i] == '#' && !quoted) part.resize(i);
        }
        part.erase(0, std::min(part.find_first_not_of(" \r"), part.size()));
        part.erase(part.find_last_not_of(" \r") + 1);
        if (!part.empty()) parts.push_back(std::move(part));
      }
      lines_[f][line.line] = join(parts, " ");
    }
  }
}

std::string SourceLines::at(SourceLocation location) const {
  const auto& lines = lines_[static_cast<size_t>(location.file)];
  const auto after = lines.upper_bound(location.line);
  return after == lines.begin() ? "" : std::prev(after)->second;
}

SourceLocation SourceLines::location_of(int32_t line) const {
  size_t f = arch_.files.size() - 1;
  while (f > 0 && arch_.files[f].first_line >= line) --f;
  return {static_cast<int>(f), line - arch_.files[f].first_line, 1};
}

std::string SourceLines::at_flat(int32_t line) const { return at(location_of(line)); }

std::string SourceLines::name_flat(int32_t line) const {
  const SourceLocation location = location_of(line);
  return fmt::format("{}:{}", arch_.files[static_cast<size_t>(location.file)].name, location.line);
}

// ---------------------------------------------------------------- the two reports

Result<std::string> describe_arch(const ArchLibrary& library, const ArchText& text) {
  CULET_TRY(const ArchFile arch, parse_arch(library, text));
  std::set<std::string> keys;
  for (const Let& let : arch.lets) keys_in(*let.value, &keys);
  std::vector<std::string> outputs, blocks;
  for (const Block& block : arch.blocks) {
    std::vector<std::string> sections;
    for (const Section& section : block.sections) {
      outputs_of(section.statements, &outputs);
      if (!section.name.empty()) sections.push_back(section.name);
    }
    blocks.push_back(block.name + (sections.empty() ? "" : " (" + join(sections) + ")"));
  }
  std::string out = head(text, arch);
  const auto line = [&](std::string_view name, const std::string& value) {
    out += fmt::format("{:<18}{}\n", name, value.empty() ? "none" : value);
  };
  line("hyperparameters", join(names_of(arch.lets)));
  line("keys", join({keys.begin(), keys.end()}));
  line("caches", join(names_of(arch.caches)));
  if (!arch.states.empty()) line("states", join(names_of(arch.states)));
  line("blocks", join(blocks));
  line("outputs", join(outputs));
  return out;
}

Result<std::string> check_arch(const ArchLibrary& library, const ArchText& text,
                               const format::GgufFile& model) {
  CULET_TRY(const ArchFile arch, parse_arch(library, text));
  Hyperparameters hparams(arch, model, trained_context(model), nullptr);
  CULET_TRY(const GraphResult graph, build_graph(hparams, {}));
  const SourceLines source(arch);
  std::string out = head(text, arch) + fmt::format("model             {}\n", model.name()) +
                    architecture_note(model, arch);
  for (const std::string& warning : graph.warnings)
    out += fmt::format("warning           {}\n", warning);
  out += global_hparams(hparams);
  std::vector<std::vector<size_t>> outside;
  for (const size_t k : ops_of(graph.plan, kNone)) outside.push_back({k});
  out += "\nmodel\n" + statements_text(graph.plan, model, source, outside);
  for (const LayerKind& kind : layer_kinds(graph.plan, model)) {
    out += fmt::format("\nlayers {} ({} of {})\n", ranges(kind.layers), kind.layers.size(),
                       graph.plan.n_layers);
    out += layer_hparams(hparams, kind.layers);
    out += statements_text(graph.plan, model, source, kind.ops);
  }
  return out + caches_text(graph.plan) + states_text(graph.plan) + stream_text(graph.plan) +
         tensors_text(hparams, graph.plan) +
         fmt::format("\nkeys\n  not read, as an 'ignore' line says ({}): {}\n",
                     graph.unread_keys.size(), counted(graph.unread_keys));
}

}  // namespace culet::plan
