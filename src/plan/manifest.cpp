// Takes what the graph read, checks that the rest of the model file is ignored on purpose.
//
// The names of the 'ignore' lines are expanded once, so time is linear in tensors plus layers; only
// patterns are tried one by one, and they are paid for (Hyperparameters::spend).
#include "plan/manifest.h"

#include "expr/lexer.h"

#include <fmt/format.h>

#include <functional>
#include <unordered_set>

namespace culet::plan {
namespace {

bool glob_match(std::string_view pattern, std::string_view s) {  // '*' only
  size_t p = 0, i = 0, star = std::string_view::npos, mark = 0;
  while (i < s.size()) {
    if (p < pattern.size() && pattern[p] == '*')
      star = p++, mark = i;
    else if (p < pattern.size() && pattern[p] == s[i])
      ++p, ++i;
    else if (star != std::string_view::npos)
      p = star + 1, i = ++mark;
    else
      return false;
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

using ExprFn = std::function<void(const Expr&)>;

void each_expression(const std::vector<Statement>& all, const ExprFn& fn) {
  for (const Statement& s : all) {
    if (s.value) fn(*s.value);
    for (const ExprPtr& o : s.operands) fn(*o);
    each_expression(s.body, fn);
    each_expression(s.otherwise, fn);
  }
}

// Every expression of the text except those of lets.
void each_expression(const ArchFile& arch, const ExprFn& fn) {
  for (const Require& r : arch.requirements) fn(*r.condition);
  for (const IgnoreItem& item : arch.ignores)
    if (item.when) fn(*item.when);
  for (const CacheDecl& c : arch.caches)
    for (const ExprPtr* e :
         {&c.policy, &c.donor, &c.key_heads, &c.key_dim, &c.value_heads, &c.value_dim})
      if (*e) fn(**e);
  for (const StateDecl& s : arch.states)
    for (const ExprPtr* e : {&s.rows, &s.width})
      if (*e) fn(**e);
  for (const Block& b : arch.blocks)
    for (const Section& s : b.sections) each_expression(s.statements, fn);
}

// The lets that something of the text names: a statement, a declaration, or such a let.
std::unordered_set<const Let*> named_lets(const Hyperparameters& hparams) {
  std::unordered_set<const Let*> named;
  std::vector<const Let*> queue;
  const auto add = [&](std::string_view name) {
    const Let* l = hparams.let(name);
    if (l && named.insert(l).second) queue.push_back(l);
  };
  const ExprFn names_of = [&](const Expr& e) {
    if (e.kind == Expr::Kind::kName) add(e.text);
    for (const ExprPtr& kid : e.kids) names_of(*kid);
    for (const NamedArgument& a : e.named) names_of(*a.value);
  };
  add("layers");
  each_expression(hparams.arch(), names_of);
  while (!queue.empty()) {
    const Let* l = queue.back();
    queue.pop_back();
    names_of(*l->value);
  }
  return named;
}

class Manifest {
 public:
  Manifest(Hyperparameters& hparams, int32_t layers)
      : hparams_(hparams), arch_(hparams.arch()), layers_(layers) {}

  Result<void> tensors(const std::vector<bool>& used) {
    CULET_TRY_VOID(expand());
    const auto tensors = hparams_.model().tensors();
    for (size_t t = 0; t < tensors.size(); ++t) {
      if (used[t] || names_.count(std::string(tensors[t].name)) != 0) continue;
      CULET_TRY(bool skip, matches(patterns_, tensors[t].name));
      if (skip) continue;
      return fail(ErrorCode::kCorrupt,
                  fmt::format("{}: unused tensor {}: {} does not read it, so the answer would be "
                              "wrong; read it there, or name it in an 'ignore' line",
                              hparams_.model().name(), tensors[t].name, arch_.files.back().name));
    }
    return {};
  }

  // Keys under rope. and attention. change numbers, so one that nobody reads is an error; other
  // keys of the architecture that nobody reads are worth a warning.
  Result<void> keys(std::vector<std::string>* warnings) {
    note_all();
    std::vector<const IgnoreItem*> ignored;
    for (const IgnoreItem& item : arch_.ignores)
      if (item.is_meta) ignored.push_back(&item);
    const std::string prefix = hparams_.meta_key("meta.");
    for (const format::MetaEntry& entry : hparams_.model().metadata()) {
      const std::string key(entry.key);
      if (key.rfind(prefix, 0) != 0 || hparams_.meta_keys().count(key) != 0) continue;
      const std::string rest = key.substr(prefix.size());
      CULET_TRY(bool skip, matches(ignored, rest));
      if (skip) continue;
      if (rest.rfind("rope.", 0) == 0 || rest.rfind("attention.", 0) == 0)
        return fail(ErrorCode::kUnsupported,
                    fmt::format("{}: the model file sets {}, which {} does not read, so the answer "
                                "would be wrong; read it there, or write: ignore meta.{}",
                                hparams_.model().name(), key, arch_.files.back().name, rest));
      warnings->push_back(
          fmt::format("unknown key {}: {} does not read it", key, arch_.files.back().name));
    }
    return {};
  }

 private:
  // The plain names of all 'ignore' lines whose condition holds, in the model and in every layer.
  Result<void> expand() {
    for (const IgnoreItem& item : arch_.ignores) {
      if (item.is_meta) continue;
      const bool each = item.when && hparams_.depends_on_layer(*item.when);
      if (item.is_glob && each)
        return hparams_.error(item.location,
                              "a pattern is ignored in the whole model; its 'when' cannot "
                              "depend on the layer");
      bool yes = true;
      if (item.when && !each) {
        CULET_TRY(yes, hparams_.flag(*item.when, -1));
      }
      if (!yes) continue;
      if (item.is_glob) {
        patterns_.push_back(&item);
        continue;
      }
      if (!each) names_.insert(hparams_.tensor_name(item.name, false, -1));
      CULET_TRY_VOID(hparams_.spend(item.location, static_cast<size_t>(layers_)));
      for (int i = 0; i < layers_; ++i) {
        if (each) {
          CULET_TRY(yes, hparams_.flag(*item.when, i));
        }
        if (yes) names_.insert(hparams_.tensor_name(item.name, false, i));
      }
    }
    return {};
  }

  Result<bool> matches(const std::vector<const IgnoreItem*>& items, std::string_view name) {
    for (const IgnoreItem* item : items) {
      CULET_TRY_VOID(hparams_.spend(item->location));
      if (glob_match(item->name, name)) return true;
    }
    return false;
  }

  // A let that nothing names (of an included file whose lines were replaced) reads no key.
  void note_all() {
    const auto note = [this](const Expr& e) { hparams_.note_meta_keys(e); };
    for (const Let* l : named_lets(hparams_)) note(*l->value);
    each_expression(arch_, note);
  }

  Hyperparameters& hparams_;
  const ArchFile& arch_;
  const int32_t layers_;
  std::unordered_set<std::string> names_;
  std::vector<const IgnoreItem*> patterns_;
};

}  // namespace

Result<void> check_requires(Hyperparameters& hparams, int32_t layers) {
  for (const Require& r : hparams.arch().requirements) {
    const bool each = hparams.depends_on_layer(*r.condition);
    for (int i = 0; i < (each ? layers : 1); ++i) {
      CULET_TRY(bool ok, hparams.flag(*r.condition, each ? i : -1));
      if (!ok) return hparams.error(r.location, r.message, ErrorCode::kUnsupported);
    }
  }
  return {};
}

Result<void> check_unnamed_lets(Hyperparameters& hparams, int32_t layers,
                                std::vector<std::string>* warnings) {
  const std::unordered_set<const Let*> named = named_lets(hparams);
  const int own = static_cast<int>(hparams.arch().files.size()) - 1;
  for (const Let& l : hparams.arch().lets) {
    if (l.location.file != own || named.count(&l) != 0) continue;
    const bool each = hparams.per_layer(l);
    for (int i = 0; i < (each ? layers : 1); ++i) {
      const Result<Hyperparameter> value = hparams.eval(*l.value, each ? i : -1);
      if (!value && value.error().code == ErrorCode::kInvalidArgument)
        return tl::unexpected<Error>(value.error());
    }
    warnings->push_back(fmt::format("{}:{}: nothing reads the hyperparameter '{}'",
                                    hparams.arch().files.back().name, l.location.line, l.name));
  }
  return {};
}

Result<void> check_manifest(Hyperparameters& hparams, const std::vector<bool>& used, int32_t layers,
                            std::vector<std::string>* warnings) {
  Manifest manifest(hparams, layers);
  CULET_TRY_VOID(manifest.tensors(used));
  return manifest.keys(warnings);
}

}  // namespace culet::plan
