// Takes what the graph read, checks that the rest of the model file is ignored on purpose.
//
// The names of the 'ignore' lines are expanded once, so time is linear in tensors, keys and layers;
// only patterns are tried one by one, and they are paid for (Hyperparameters::spend).
#include "plan/manifest.h"

#include "base/utf8.h"
#include "expr/lexer.h"

#include <fmt/format.h>

#include <functional>
#include <unordered_map>
#include <unordered_set>

namespace culet::plan {
namespace {

constexpr size_t kShown = 60;      // bytes of a key or of its value in a message
constexpr size_t kMostOthers = 4;  // further keys that a message names

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

  // Every key of the architecture has been read, or an 'ignore' line says that it may go unread.
  Result<void> keys(std::vector<std::string>* unread) {
    std::unordered_map<std::string_view, std::vector<const IgnoreItem*>> names;
    std::vector<const IgnoreItem*> patterns;
    for (const IgnoreItem& item : arch_.ignores)
      if (item.is_meta) (item.is_glob ? patterns : names[item.name]).push_back(&item);
    const std::string prefix = hparams_.meta_key("meta.");
    std::vector<Unused> unused;
    for (const format::MetaEntry& entry : hparams_.model().metadata()) {
      const std::string key(entry.key);
      if (key.rfind(prefix, 0) != 0 || hparams_.keys_read().count(key) != 0) continue;
      const std::string name = key.substr(prefix.size());
      std::string accepted;
      CULET_TRY(bool skip, ignores(patterns, name, entry.value, &accepted));
      if (const auto found = names.find(name); found != names.end() && !skip) {
        CULET_TRY(skip, ignores(found->second, name, entry.value, &accepted));
      }
      if (skip)
        unread->push_back(key);
      else
        unused.push_back({key, name, shown(entry.value), accepted});
    }
    return unused.empty() ? Result<void>() : unused_keys(unused);
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

  // Whether one of the lines ignores a key of this value. accepted: the values that they name.
  Result<bool> ignores(const std::vector<const IgnoreItem*>& items, std::string_view name,
                       const format::MetaValue& value, std::string* accepted) {
    for (const IgnoreItem* item : items) {
      CULET_TRY_VOID(hparams_.spend(item->location));
      if (item->is_glob && !glob_match(item->name, name)) continue;
      if (item->when) {
        CULET_TRY(const Hyperparameter holds, hparams_.peek(*item->when, -1));
        if (!holds.flag())
          return hparams_.error(
              item->location,
              fmt::format("'when' needs a condition (yes or no), but this is {}", holds.kind()));
        if (!*holds.flag()) continue;
      }
      if (!item->equals) return true;
      CULET_TRY(const Hyperparameter wanted, hparams_.peek(*item->equals, -1));
      CULET_TRY_VOID(hparams_.spend(item->location, value.is_array() ? value.size() : 1));
      if (has_value(value, wanted)) return true;
      *accepted += (accepted->empty() ? "" : " or ") + wanted.show();
    }
    return false;
  }

  // A list has it when each of its elements has.
  static bool has_value(const format::MetaValue& value, const Hyperparameter& wanted) {
    if (value.is_array()) {
      for (uint64_t n = 0; n < value.size(); ++n)
        if (!has_value(value.at(n), wanted)) return false;
      return true;
    }
    if (const double* n = wanted.number()) return value.as_number() == *n;
    if (const bool* b = wanted.flag()) return value.as_bool() == *b;
    const std::string* s = wanted.text();
    return s && value.as_string() == *s;
  }

  struct Unused {
    std::string key, name, value, accepted;
  };
  // The first in full, and which others there are.
  tl::unexpected<Error> unused_keys(const std::vector<Unused>& unused) const {
    const Unused& first = unused[0];
    std::string others;
    for (size_t n = 1; n < unused.size() && n <= kMostOthers; ++n)
      others += fmt::format("{}{} = {}", n == 1 ? "; likewise " : ", ",
                            base::utf8_shown(unused[n].key, kShown), unused[n].value);
    if (unused.size() > kMostOthers + 1)
      others += fmt::format(" and {} more", unused.size() - kMostOthers - 1);
    return fail(
        ErrorCode::kUnsupported,
        fmt::format(
            "{}: the model file sets {} = {}, which {} does not read{}, so the answer "
            "would be wrong; read the key in an architecture file of your own "
            "(--arch-dir), or write there: ignore meta.{}{}",
            hparams_.model().name(), base::utf8_shown(first.key, kShown), first.value,
            arch_.files.back().name,
            first.accepted.empty() ? "" : fmt::format(" (only {} may stay unread)", first.accepted),
            base::utf8_shown(first.name, kShown), others));
  }

  static std::string shown(const format::MetaValue& value) {
    if (value.is_array()) return fmt::format("a list of {}", value.size());
    if (const auto b = value.as_bool()) return *b ? "true" : "false";
    if (const auto s = value.as_string())
      return fmt::format("\"{}\"", base::utf8_shown(*s, kShown));
    const auto n = value.as_number();
    return n ? fmt::format("{:.9g}", *n) : "?";
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
      const Result<Hyperparameter> value = hparams.peek(*l.value, each ? i : -1);
      if (!value && value.error().code == ErrorCode::kInvalidArgument)
        return tl::unexpected<Error>(value.error());
    }
    warnings->push_back(fmt::format("{}:{}: nothing reads the hyperparameter '{}'",
                                    hparams.arch().files.back().name, l.location.line, l.name));
  }
  return {};
}

Result<void> check_manifest(Hyperparameters& hparams, const std::vector<bool>& used, int32_t layers,
                            std::vector<std::string>* unread_keys) {
  Manifest manifest(hparams, layers);
  CULET_TRY_VOID(manifest.tensors(used));
  return manifest.keys(unread_keys);
}

}  // namespace culet::plan
