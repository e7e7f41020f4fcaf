// Evaluates hyperparameter expressions against one model's metadata and tensor directory.
//
// Everything here runs once, at load, with a budget: expressions are as deep as the parser lets
// them be, lets are evaluated once a layer, and a circle of lets is an error. Numbers are float64;
// what must be a whole number is checked where it is used.
#include "plan/hyperparameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace culet::plan {
namespace {

using Kind = Expr::Kind;
constexpr int kMaxLayers = 4096;
constexpr int kMaxReferences = 200;
// Load-time work of the largest real models stays below a tenth of this.
constexpr size_t kMaxSteps = 2'000'000;
constexpr size_t kMaxGuess = 64;  // longer names get no "did you mean"

constexpr std::string_view kWords[] = {
    "adjacent", "halves", "causal",   "full", "global", "softmax",  "sigmoid", "silu", "gelu",
    "relu",     "token",  "position", "type", "self",   "gelu_erf", "mean",    "first"};

bool starts_with(std::string_view s, std::string_view p) { return s.substr(0, p.size()) == p; }
bool ends_with(std::string_view s, std::string_view p) {
  return s.size() >= p.size() && s.substr(s.size() - p.size()) == p;
}

// Words with a number.
constexpr std::string_view kWordFunctions[] = {"window", "band"};

Hyperparameter from_meta(const format::MetaValue& v) {
  if (v.is_array()) return {std::make_shared<ListValue>(&v)};
  if (const auto b = v.as_bool()) return {*b};
  if (const auto n = v.as_number()) return {*n};
  if (const auto s = v.as_string()) return {std::string(*s)};
  return {expr::Absent{}};
}

}  // namespace

std::string nearest(std::string_view name, const std::vector<std::string>& known) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, name.size() / 3) + 1;
  if (name.size() > kMaxGuess) return best;
  for (const std::string& k : known) {
    if (k.size() > kMaxGuess) continue;
    std::vector<size_t> row(k.size() + 1);
    for (size_t j = 0; j <= k.size(); ++j) row[j] = j;
    for (size_t a = 0; a < name.size(); ++a) {
      size_t diagonal = row[0];
      row[0] = a + 1;
      for (size_t b = 0; b < k.size(); ++b) {
        const size_t change = diagonal + (name[a] == k[b] ? 0 : 1);
        diagonal = row[b + 1];
        row[b + 1] = std::min({change, row[b] + 1, diagonal + 1});
      }
    }
    if (row[k.size()] < best_distance) best_distance = row[k.size()], best = k;
  }
  return best;
}

std::string ListValue::show() const { return fmt::format("list of {}", list_->size()); }

// What the evaluator asks while it reads an expression of one layer.
class Hyperparameters::Names : public expr::Host {
 public:
  Names(Hyperparameters& hparams, int layer) : hparams_(hparams), layer_(layer) {}

  Result<void> enter(const Expr& e) override {
    if (hparams_.depth_ > kMaxReferences)
      return error(e, "hyperparameters refer to each other too deeply here");
    CULET_TRY_VOID(hparams_.spend(e.location));
    ++hparams_.depth_;
    return {};
  }
  void leave() override { --hparams_.depth_; }
  Result<Hyperparameter> name(const Expr& e) override { return hparams_.name(e, layer_); }
  Result<Hyperparameter> before_default(const Expr& e) override {
    return hparams_.before_default(e, layer_);
  }
  Result<std::optional<Hyperparameter>> call(const Expr& e) override {
    return hparams_.call(e, layer_);
  }
  std::string functions() const override { return "has, window, band"; }
  std::string origin(const Expr& e) override { return hparams_.origin(e, layer_); }
  Result<Hyperparameter> other(const Expr& e) override {
    switch (e.kind) {
      case Kind::kIndex:
        return hparams_.index(e, layer_);
      case Kind::kLast:
        return hparams_.last(e, layer_);
      case Kind::kAlternative:
      case Kind::kOptional: {
        CULET_TRY(TensorId id, hparams_.tensor(e, layer_, true));
        if (id == kNone) return Hyperparameter{expr::Absent{}};
        return Hyperparameter{std::make_shared<TensorValue>(std::string(), id)};
      }
      case Kind::kMember:
        return error(e, "only names have members here: write meta.KEY or target.NAME");
      default:
        return error(e, "a hyperparameter is needed here; 'as' and tuples belong to values");
    }
  }
  tl::unexpected<Error> error(const Expr& e, std::string_view message,
                              ErrorCode code = ErrorCode::kInvalidArgument) const override {
    return hparams_.error(e.location, message, code);
  }

 private:
  Hyperparameters& hparams_;
  const int layer_;
};

Hyperparameters::Hyperparameters(const ArchFile& arch, const format::GgufFile& model,
                                 int64_t context, Hyperparameters* target)
    : arch_(arch), model_(model), context_(context), target_(target) {
  const format::MetaValue* a = model.find("general.architecture");
  if (a && a->as_string()) prefix_ = std::string(*a->as_string()) + '.';
  for (const Let& l : arch.lets) lets_.emplace(l.name, &l);
  find_per_layer();
}

tl::unexpected<Error> Hyperparameters::error(SourceLocation p, std::string_view message,
                                             ErrorCode code) const {
  return tl::unexpected<Error>(expr::error_at(arch_.files, p, code, message));
}

const Let* Hyperparameters::let(std::string_view name) const {
  const auto found = lets_.find(name);
  return found == lets_.end() ? nullptr : found->second;
}

Result<void> Hyperparameters::spend(SourceLocation p, size_t steps) {
  steps_ += steps;
  if (steps_ <= kMaxSteps) return {};
  return error(p,
               "this model and this architecture file need too many steps to load; the file is "
               "not meant to compute",
               ErrorCode::kExhausted);
}

bool Hyperparameters::is_word(std::string_view name) const {
  return std::find(std::begin(kWords), std::end(kWords), name) != std::end(kWords);
}

bool Hyperparameters::is_function(std::string_view name) {
  return expr::is_function(name) || std::find(std::begin(kWordFunctions), std::end(kWordFunctions),
                                              name) != std::end(kWordFunctions);
}

// ---- which lets have one value a layer

// A let depends on the layer when its own text does, or when it reads one that does.
void Hyperparameters::find_per_layer() {
  std::unordered_map<const Let*, std::vector<const Let*>> readers;
  std::vector<const Let*> queue;
  for (const Let& l : arch_.lets) {
    std::unordered_set<const Let*> read;
    collect_lets(*l.value, &read);
    for (const Let* r : read) readers[r].push_back(&l);
    if (depends_on_layer(*l.value)) queue.push_back(&l);
  }
  while (!queue.empty()) {
    const Let* l = queue.back();
    queue.pop_back();
    if (!per_layer_.insert(l).second) continue;
    for (const Let* reader : readers[l]) queue.push_back(reader);
  }
}

// local[j] reads one element, which does not make its reader depend on the layer.
void Hyperparameters::collect_lets(const Expr& e, std::unordered_set<const Let*>* out) const {
  if (e.kind == Kind::kName)
    if (const Let* l = let(e.text)) out->insert(l);
  for (size_t k = e.kind == Kind::kIndex ? 1 : 0; k < e.kids.size(); ++k)
    collect_lets(*e.kids[k], out);
  for (const NamedArgument& a : e.named) collect_lets(*a.value, out);
}

bool Hyperparameters::is_variable(std::string_view name) const {
  return std::any_of(variables_.begin(), variables_.end(),
                     [&](const Variable& v) { return v.name == name; });
}

bool Hyperparameters::depends_on_layer(const Expr& e) {
  switch (e.kind) {
    case Kind::kName: {
      if (e.text == "i") return true;
      if (is_variable(e.text)) return false;
      if (const Let* l = let(e.text)) return per_layer(*l);
      static constexpr std::string_view kPrefixes[] = {"meta.", "root.", "target.", "session."};
      for (std::string_view p : kPrefixes)
        if (starts_with(e.text, p)) return false;
      return !is_word(e.text) && !expr::constant(e.text);  // a tensor of the layer
    }
    case Kind::kString:
      return e.text.find("{i}") != std::string::npos;
    case Kind::kIndex:  // local[j] depends on j alone
      return depends_on_layer(*e.kids[1]);
    case Kind::kLast: {
      variables_.push_back({e.text, 0});
      const bool yes = depends_on_layer(*e.kids[0]) || depends_on_layer(*e.kids[1]);
      variables_.pop_back();
      return yes;
    }
    default:
      for (const ExprPtr& kid : e.kids)
        if (depends_on_layer(*kid)) return true;
      for (const NamedArgument& a : e.named)
        if (depends_on_layer(*a.value)) return true;
      return false;
  }
}

// ---- typed access

Result<Hyperparameter> Hyperparameters::eval(const Expr& e, int layer) {
  Names names(*this, layer);
  return expr::Evaluator(names, expr::AbsentRule::kIsAValue).eval(e);
}

Result<double> Hyperparameters::number(const Expr& e, int layer) {
  Names names(*this, layer);
  return expr::Evaluator(names, expr::AbsentRule::kIsAValue).number(e);
}

Result<int64_t> Hyperparameters::integer(const Expr& e, int layer, int64_t min, int64_t max) {
  CULET_TRY(double n, number(e, layer));
  if (!(std::floor(n) == n) || n < static_cast<double>(min) || n > static_cast<double>(max))
    return error(e.location, fmt::format("this is {}{}; a whole number from {} to {} is needed", n,
                                         origin(e, layer), min, max));
  return static_cast<int64_t>(n);
}

Result<bool> Hyperparameters::flag(const Expr& e, int layer) {
  Names names(*this, layer);
  return expr::Evaluator(names, expr::AbsentRule::kIsAValue).flag(e);
}

Result<int64_t> Hyperparameters::layers() {
  const Let* l = let("layers");
  if (!l)
    return error({static_cast<int>(arch_.files.size()) - 1, 1, 1},
                 "the hyperparameter 'layers' is missing; write: let layers = meta.block_count");
  CULET_TRY(Hyperparameter f, let_value(*l, -1, l->location));
  const double n = f.number() ? *f.number() : 0;
  if (!(n >= 1 && n <= kMaxLayers && n == std::floor(n)))
    return error(l->location,
                 fmt::format("the hyperparameter 'layers' is {}{}; a whole number from 1 to {} is "
                             "needed",
                             f.show(), origin(*l->value, -1), kMaxLayers),
                 ErrorCode::kCorrupt);
  return static_cast<int64_t>(n);
}

// ---- expressions

Result<Hyperparameter> Hyperparameters::name(const Expr& e, int layer) {
  const std::string& n = e.text;
  for (auto v = variables_.rbegin(); v != variables_.rend(); ++v)
    if (v->name == n) return Hyperparameter{static_cast<double>(v->value)};
  if (n == "i") {
    if (layer < 0)
      return error(e.location, "'i' is the layer's index and has no value outside the layers");
    return Hyperparameter{static_cast<double>(layer)};
  }
  if (n == "session.context") {
    ++context_uses_, context_location_ = e.location;
    return Hyperparameter{static_cast<double>(context_)};
  }
  if (const Let* l = let(n)) return let_value(*l, layer, e.location);
  if (starts_with(n, "meta.")) {
    bool absent = false;
    CULET_TRY(Hyperparameter f, meta(e, n, nullptr, layer, &absent));
    if (absent) return error(e.location, no_key(e.location, n), ErrorCode::kCorrupt);
    return f;
  }
  if (starts_with(n, "target.")) {
    if (!target_)
      return error(e.location, "this architecture reads its target model; attach it to one",
                   ErrorCode::kUnsupported);
    if (const Let* l = target_->let(n.substr(7))) return target_->let_value(*l, layer, l->location);
    return error(e.location,
                 fmt::format("the target's architecture has no hyperparameter '{}'", n.substr(7)));
  }
  if (is_word(n)) return Hyperparameter{expr::Word{n, 0}};
  return tensor_value(e, layer);
}

// What to say of a key that the file lacks, named in the text at `location`.
std::string Hyperparameters::no_key(SourceLocation location, std::string_view name) const {
  const std::string key = meta_key(name);
  const size_t stem = key.size() - std::min(key.size(), name.size() - 5);
  std::vector<std::string> known;
  for (const format::MetaEntry& entry : model_.metadata())
    if (starts_with(entry.key, key.substr(0, stem)))
      known.emplace_back(std::string_view(entry.key).substr(stem));
  const std::string near = nearest(name.substr(5), known);
  const std::string begin =
      fmt::format("the model file has no key {}; ", key) +
      (near.empty() ? "" : fmt::format("did you mean meta.{}? Otherwise ", near));
  if (location.file + 1 < static_cast<int>(arch_.files.size()))
    return begin +
           fmt::format("give {} a hyperparameter of its own that replaces the one which reads it",
                       arch_.files.back().name);
  return begin + "write 'default ...' behind it if it may be missing";
}

Result<Hyperparameter> Hyperparameters::let_value(const Let& l, int layer, SourceLocation from) {
  const bool each = per_layer(l);
  if (each && layer < 0)
    return error(
        from,
        fmt::format("'{}' differs from layer to layer; use it inside a layer, or index it as {}[0]",
                    l.name, l.name));
  const std::pair<const Let*, int> key{&l, each ? layer : -1};
  if (const Known* made = known(key)) {
    if (made->from_context) ++context_uses_, context_location_ = made->context_location;
    return made->value;
  }
  const int64_t before = context_uses_;
  if (!open_.insert(key).second)
    return error(l.location, fmt::format("'{}' is defined by itself", l.name));
  auto r = eval(*l.value, key.second);
  open_.erase(key);
  if (r) (peeking_ ? peeked_ : known_)[key] = {*r, context_uses_ != before, context_location_};
  return r;
}

const Hyperparameters::Known* Hyperparameters::known(const std::pair<const Let*, int>& key) const {
  if (const auto found = known_.find(key); found != known_.end()) return &found->second;
  const auto found = peeking_ ? peeked_.find(key) : peeked_.end();
  return found == peeked_.end() ? nullptr : &found->second;
}

Result<Hyperparameter> Hyperparameters::peek(const Expr& e, int layer) {
  const bool before = std::exchange(peeking_, true);
  auto value = eval(e, layer);
  peeking_ = before;
  return value;
}

// The node of a metadata key whose value is that of `e`; null: `e` is something else.
const Expr* Hyperparameters::key_behind(const Expr& e, int layer, int depth) {
  if (depth > kMaxReferences) return nullptr;
  switch (e.kind) {
    case Kind::kName:
      if (starts_with(e.text, "meta.")) return &e;
      if (const Let* l = let(e.text))
        return key_behind(*l->value, per_layer(*l) ? layer : -1, depth + 1);
      return nullptr;
    case Kind::kIndex:
      return e.kids[0]->kind == Kind::kName && starts_with(e.kids[0]->text, "meta.")
                 ? e.kids[0].get()
                 : nullptr;
    case Kind::kDefault: {
      const Expr* key = key_behind(*e.kids[0], layer, depth + 1);
      return key && model_.find(meta_key(key->text)) ? key
                                                     : key_behind(*e.kids[1], layer, depth + 1);
    }
    case Kind::kIf: {
      const auto yes = peek(*e.kids[0], layer);
      if (!yes || !yes->flag()) return nullptr;
      return key_behind(*e.kids[*yes->flag() ? 1 : 2], layer, depth + 1);
    }
    default:
      return nullptr;
  }
}

std::string Hyperparameters::origin(const Expr& e, int layer) {
  const Expr* key = key_behind(e, layer, 0);
  return key ? fmt::format(", from the key {} of the model file", meta_key(key->text)) : "";
}

std::string Hyperparameters::meta_key(std::string_view n) const {
  const std::string_view key = n.substr(5);
  if (starts_with(key, "general.") || starts_with(key, "tokenizer.")) return std::string(key);
  return prefix_ + std::string(key);
}

Result<Hyperparameter> Hyperparameters::meta(const Expr& e, std::string_view n, const Expr* index,
                                             int layer, bool* absent) {
  const std::string key = meta_key(n);
  const format::MetaValue* v = model_.find(key);
  *absent = v == nullptr;
  if (!v) return Hyperparameter{expr::Absent{}};
  if (!peeking_) keys_read_.insert(key);
  if (!index || !v->is_array()) return from_meta(*v);
  CULET_TRY(int64_t at, integer(*index, layer, 0, INT32_MAX));
  if (static_cast<uint64_t>(at) >= v->size())
    return error(e.location,
                 fmt::format("{} has {} elements, element {} is asked for", key, v->size(), at),
                 ErrorCode::kCorrupt);
  return from_meta(v->at(static_cast<uint64_t>(at)));
}

Result<Hyperparameter> Hyperparameters::before_default(const Expr& e, int layer) {
  const bool indexed = e.kind == Kind::kIndex && e.kids[0]->kind == Kind::kName;
  const Expr& key = indexed ? *e.kids[0] : e;
  if (key.kind != Kind::kName || !starts_with(key.text, "meta."))
    return error(e.location, "'default' follows a metadata key: meta.KEY default ...");
  bool absent = false;
  return meta(e, key.text, indexed ? e.kids[1].get() : nullptr, layer, &absent);
}

Result<Hyperparameter> Hyperparameters::index(const Expr& e, int layer) {
  const Expr& of = *e.kids[0];
  if (of.kind == Kind::kName && starts_with(of.text, "meta.")) {
    bool absent = false;
    CULET_TRY(Hyperparameter f, meta(e, of.text, e.kids[1].get(), layer, &absent));
    if (absent)
      return error(
          e.location,
          fmt::format(
              "the model file has no key {}; write 'default ...' behind it if it may be missing",
              meta_key(of.text)),
          ErrorCode::kCorrupt);
    return f;
  }
  if (of.kind == Kind::kName) {
    Hyperparameters* owner = this;
    std::string_view n = of.text;
    if (starts_with(n, "target.") && target_) owner = target_, n = n.substr(7);
    if (const Let* l = owner->let(n)) {
      CULET_TRY(int64_t layers, owner->layers());
      CULET_TRY(int64_t at, integer(*e.kids[1], layer, 0, layers - 1));
      return owner->let_value(*l, static_cast<int>(at), l->location);
    }
  }
  return error(e.location, "only a hyperparameter or a metadata array is indexed here");
}

Result<std::optional<Hyperparameter>> Hyperparameters::call(const Expr& e, int layer) {
  if (e.text == "has") {
    if (e.kids.size() != 1 || !e.named.empty())
      return error(e.location, "has(NAME) takes one tensor name or one metadata key");
    if (const Expr& kid = *e.kids[0]; kid.kind == Kind::kName && starts_with(kid.text, "meta."))
      return Hyperparameter{model_.find(meta_key(kid.text)) != nullptr};
    CULET_TRY(TensorId id, tensor(*e.kids[0], layer, true));
    return Hyperparameter{id != kNone};
  }
  if (std::find(std::begin(kWordFunctions), std::end(kWordFunctions), e.text) ==
      std::end(kWordFunctions))
    return std::optional<Hyperparameter>();
  if (e.kids.size() != 1 || !e.named.empty())
    return error(e.location, fmt::format("{} takes 1 argument(s)", e.text));
  CULET_TRY(double n, number(*e.kids[0], layer));
  return Hyperparameter{expr::Word{e.text, n}};
}

Result<Hyperparameter> Hyperparameters::last(const Expr& e, int layer) {
  if (e.on_target && !target_)
    return error(e.location, "this architecture reads its target model; attach it to one",
                 ErrorCode::kUnsupported);
  CULET_TRY(int64_t bound, integer(*e.kids[0], layer, 0, kMaxLayers));
  for (int j = static_cast<int>(bound) - 1; j >= 0; --j) {
    variables_.push_back({e.text, j});
    auto found = flag(*e.kids[1], layer);
    variables_.pop_back();
    if (!found) return tl::unexpected<Error>(found.error());
    if (*found) return Hyperparameter{static_cast<double>(j)};
  }
  return error(e.location, fmt::format("no layer {} < {} satisfies the condition", e.text, bound));
}

// ---- tensors

std::string Hyperparameters::tensor_name(std::string_view n, bool quoted, int layer) const {
  if (quoted) {
    std::string out(n);
    const size_t at = out.find("{i}");
    if (at != std::string::npos && layer >= 0) out.replace(at, 3, std::to_string(layer));
    return out;
  }
  bool global = layer < 0;
  if (starts_with(n, "root.")) global = true, n = n.substr(5);
  const bool literal = ends_with(n, ".weight") || ends_with(n, ".bias") || ends_with(n, ".scale");
  return fmt::format("{}{}{}", global ? "" : fmt::format("blk.{}.", layer), n,
                     literal ? "" : ".weight");
}

TensorId Hyperparameters::find_tensor(std::string_view file_name) const {
  const format::TensorInfo* t = model_.tensor(file_name);
  return t ? static_cast<TensorId>(t - model_.tensors().data()) : kNone;
}

Result<Hyperparameter> Hyperparameters::tensor_value(const Expr& e, int layer) {
  std::string n = tensor_name(e.text, false, layer);
  const TensorId id = find_tensor(n);
  if (id == kNone && !starts_with(e.text, "root.")) return unknown(e);
  return Hyperparameter{std::make_shared<TensorValue>(std::move(n), id)};
}

tl::unexpected<Error> Hyperparameters::unknown(const Expr& e) const {
  std::vector<std::string> known;
  known.reserve(arch_.lets.size() + std::size(kWords));
  for (const Let& l : arch_.lets) known.push_back(l.name);
  for (std::string_view w : kWords) known.emplace_back(w);
  const std::string near = nearest(e.text, known);
  return error(
      e.location,
      near.empty()
          ? fmt::format("'{}' is neither a hyperparameter nor a tensor of this model", e.text)
          : fmt::format(
                "'{}' is neither a hyperparameter nor a tensor of this model; did you mean '{}'?",
                e.text, near));
}

Result<TensorId> Hyperparameters::tensor(const Expr& e, int layer, bool optional) {
  CULET_TRY_VOID(spend(e.location));
  switch (e.kind) {
    case Kind::kOptional:
      return tensor(*e.kids[0], layer, true);
    case Kind::kAlternative: {
      for (const ExprPtr& kid : e.kids) {
        CULET_TRY(TensorId id, tensor(*kid, layer, true));
        if (id != kNone) return id;
      }
      if (optional) return TensorId{kNone};
      return error(e.location, "none of these tensors is in the model file", ErrorCode::kCorrupt);
    }
    case Kind::kIf: {
      CULET_TRY(bool yes, flag(*e.kids[0], layer));
      return tensor(*e.kids[yes ? 1 : 2], layer, optional);
    }
    case Kind::kName:
    case Kind::kString:
      break;
    default:
      return error(e.location, "a tensor's name is needed here");
  }
  const bool quoted = e.kind == Kind::kString;
  if (!quoted && e.text == "none") return TensorId{kNone};
  if (!quoted && starts_with(e.text, "target.")) {
    if (!target_)
      return error(e.location, "this architecture reads its target model; attach it to one",
                   ErrorCode::kUnsupported);
    const std::string n = target_->tensor_name(std::string_view(e.text).substr(7), false, -1);
    const TensorId id = target_->find_tensor(n);
    if (id != kNone) return id + kTargetTensor;
    return error(e.location, fmt::format("the target model has no tensor {}", n),
                 ErrorCode::kCorrupt);
  }
  std::string n;
  TensorId id = kNone;
  if (const Let* l = quoted ? nullptr : let(e.text)) {
    CULET_TRY(Hyperparameter f, let_value(*l, layer, e.location));
    if (f.is_none()) return TensorId{kNone};
    const auto* tensor = f.thing<TensorValue>();
    if (!tensor)
      return error(e.location,
                   fmt::format("a tensor is needed here, but '{}' is {}", e.text, f.kind()));
    n = tensor->name(), id = tensor->id();
  } else {
    n = tensor_name(e.text, quoted, layer);
    id = find_tensor(n);
  }
  if (id != kNone || optional) return id;
  const std::string near = quoted ? "" : nearest(e.text, names_like_tensors(layer));
  return error(e.location,
               near.empty() ? fmt::format("tensor {} is missing in the model file; write '{}?' if "
                                          "it may be absent",
                                          n, e.text)
                            : fmt::format("tensor {} is missing in the model file; did you mean "
                                          "'{}'? Write '{}?' if it may be absent",
                                          n, near, e.text),
               ErrorCode::kCorrupt);
}

std::vector<std::string> Hyperparameters::names_like_tensors(int layer) const {
  constexpr std::string_view kWeight = ".weight";
  const std::string prefix = layer < 0 ? "" : fmt::format("blk.{}.", layer);
  std::vector<std::string> names;
  for (const format::TensorInfo& t : model_.tensors()) {
    std::string_view name = t.name;
    if (!starts_with(name, prefix) || (layer < 0 && starts_with(name, "blk."))) continue;
    name.remove_prefix(prefix.size());
    if (ends_with(name, kWeight)) name.remove_suffix(kWeight.size());
    names.emplace_back(name);
  }
  return names;
}

}  // namespace culet::plan
