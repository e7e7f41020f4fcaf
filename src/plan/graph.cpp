// Takes statements, gives ops: decides every `when`, gives every name its meaning (value, fact or
// tensor, in that order), binds tensors by name and asks the shape rule of every op.
//
// Scope: the model block's values are visible in the layers; a layer may replace the ones that
// exist outside (that is how x flows), everything else it makes is gone when the layer ends.
#include "plan/graph.h"

#include "base/numbers.h"
#include "plan/arch_lex.h"
#include "plan/attributes.h"
#include "plan/manifest.h"
#include "plan/memory.h"
#include "plan/shapes.h"
#include "plan/signature.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace culet::plan {
namespace {

using Kind = Expr::Kind;
constexpr size_t kMaxOps = 1 << 17;  // the largest real models stay below a tenth of this
constexpr size_t kMaxRopes = 1024;
constexpr std::string_view kHandedOver = "hidden";  // the target's output that a drafter is given

class Builder {
 public:
  Builder(Facts& facts, const TargetPlan& target)
      : facts_(facts),
        arch_(facts.arch()),
        target_(target),
        tensors_(facts.model(), target.facts ? &target.facts->model() : nullptr) {}

  Result<GraphResult> run() {
    CULET_TRY(int64_t layers, facts_.layers());
    plan_.n_layers = static_cast<int32_t>(layers);
    plan_.architecture = arch_.architectures.front();
    plan_.kind = arch_.kind;
    used_.assign(facts_.model().tensors().size(), false);
    CULET_TRY_VOID(check_externs());
    CULET_TRY_VOID(check_requires(facts_, plan_.n_layers));
    CULET_TRY_VOID(check_unnamed_lets(facts_, plan_.n_layers, &warnings_));
    const Block* model = arch_.block("model");
    if (!model) return error({last_file(), 1, 1}, "the block 'model:' is missing");
    for (const Section& s : model->sections) CULET_TRY_VOID(statements(s.statements));
    if (!ran_layers_) return error(model->place, "the block 'model:' has no line 'layers: layer'");
    CULET_TRY_VOID(check_outputs(*model));
    for (const auto& [name, made] : scope_) CULET_TRY_VOID(check_read(name, made));
    CULET_TRY_VOID(check_manifest(facts_, used_, plan_.n_layers, &warnings_));
    return GraphResult{std::move(plan_), std::move(warnings_)};
  }

 private:
  int last_file() const { return static_cast<int>(arch_.files.size()) - 1; }
  tl::unexpected<Error> error(Place p, std::string_view message,
                              ErrorCode code = ErrorCode::kInvalidArgument) const {
    return layer_error(facts_, layer_, p, message, code);
  }

  // ---- checks before and after

  Result<void> check_externs() {
    const Place place = arch_.externs.empty() ? Place{last_file(), 1, 1} : arch_.externs[0].place;
    if (arch_.kind == "drafter" && !target_.plan)
      return error(place,
                   "this is a drafter: it guesses the next tokens of the model that it was made "
                   "for, its target, and runs only beside it; run that model instead, or load the "
                   "drafter with it (ModelOptions::target; culet show and explain: --target)",
                   ErrorCode::kUnsupported);
    if (arch_.kind != "drafter" && target_.plan)
      return error(place,
                   fmt::format("this is of kind {} and reads no other model; load it without a "
                               "target",
                               arch_.kind),
                   ErrorCode::kUnsupported);
    for (const ExternDecl& e : arch_.externs) CULET_TRY_VOID(check_extern(e));
    return {};
  }

  // Something that an extern line names is not there.
  tl::unexpected<Error> not_in_target(const ExternDecl& e, std::string_view what) const {
    return error(e.place,
                 fmt::format("the target model {} (architecture {}) has no {}, which this drafter "
                             "reads; load the drafter with the model that it was made for",
                             target_.facts->model().name(), target_.plan->architecture, what),
                 ErrorCode::kUnsupported);
  }

  Result<void> check_extern(const ExternDecl& e) {
    if (!target_.plan) return error(e.place, "only 'kind drafter' has a target model to read from");
    for (const std::string& f : e.facts)
      if (!target_.facts->let(f)) return not_in_target(e, fmt::format("fact '{}'", f));
    for (const std::string& c : e.caches)
      if (!cache_decl(target_.facts->arch(), c))
        return not_in_target(e, fmt::format("cache '{}'", c));
    for (const std::string& v : e.values) {
      const bool tensor =
          target_.facts->find_tensor(target_.facts->tensor_name(v, false, -1)) != kNone;
      if (!tensor && !is_target_value("target." + v))
        return not_in_target(e, fmt::format("tensor or output '{}'", v));
    }
    return {};
  }

  // What the engine asks each kind of model for.
  Result<void> check_outputs(const Block& model) {
    static constexpr struct {
      std::string_view kind, output;
    } kNeeded[] = {
        {"decoder", "logits"}, {"encoder", "hidden"}, {"drafter", "logits"}, {"drafter", "hidden"}};
    for (const auto& needed : kNeeded) {
      if (needed.kind != arch_.kind || plan_.output(needed.output) != kNone) continue;
      return error(model.place, fmt::format("a model of kind {} needs the output '{}'; write: "
                                            "output {} = ...",
                                            arch_.kind, needed.output, needed.output));
    }
    return arch_.kind == "drafter" ? check_next_row(model) : Result<void>();
  }

  // A drafter's hidden row is what its next step takes in place of the target's.
  Result<void> check_next_row(const Block& model) {
    const ValueId theirs = target_.plan->output(kHandedOver);
    const int32_t wanted =
        theirs == kNone ? 0 : target_.plan->values[static_cast<size_t>(theirs)].width;
    const int32_t width = at(plan_.output("hidden")).width;
    if (width == wanted) return {};
    return error(model.place,
                 fmt::format("the output 'hidden' has {} numbers, but a step of this drafter takes "
                             "{}, as the target's has; make it that wide",
                             width, wanted),
                 ErrorCode::kUnsupported);
  }

  // ---- statements

  Result<void> statements(const std::vector<Statement>& all) {
    for (const Statement& s : all) CULET_TRY_VOID(statement(s));
    return {};
  }

  Result<void> statement(const Statement& s) {
    CULET_TRY_VOID(facts_.spend(s.place));
    if (plan_.ops.size() >= kMaxOps)
      return error(s.place, "the model expands to too many operations");
    switch (s.kind) {
      case Statement::Kind::kWhen: {
        const int64_t before = facts_.context_uses();
        CULET_TRY(bool yes, facts_.flag(*s.value, layer_));
        if (facts_.context_uses() != before && (has_rope(s.body) || has_rope(s.otherwise)))
          plan_.no_stream = why_no_stream(facts_);
        return statements(yes ? s.body : s.otherwise);
      }
      case Statement::Kind::kAssign:
        return assign(s);
      case Statement::Kind::kAppend:
        return append(s);
      case Statement::Kind::kLayers:
        return layers(s);
      case Statement::Kind::kOutput: {
        if (layer_ >= 0) return error(s.place, "outputs belong into the model block");
        CULET_TRY(ValueId v, value(*s.value));
        if (plan_.output(s.names[0]) != kNone)
          return error(s.place, fmt::format("output '{}' stands twice", s.names[0]));
        if (auto fits = check_output(s.names[0], arch_.kind, at(v)); !fits)
          return error(s.place, fits.error().message);
        plan_.outputs.push_back({s.names[0], v});
        return {};
      }
    }
    return {};
  }

  Result<void> assign(const Statement& s) {
    for (const std::string& n : s.names)
      if (facts_.let(n))
        return error(s.place, fmt::format("'{}' is a fact; give the value another name", n));
    CULET_TRY(std::vector<ValueId> v, values(*s.value));
    if (v.size() != s.names.size())
      return error(s.place, fmt::format("{} names for {} values", s.names.size(), v.size()));
    for (size_t k = 0; k < v.size(); ++k) {
      if (const auto old = scope_.find(s.names[k]); old != scope_.end())
        CULET_TRY_VOID(check_read(old->first, old->second));
      set(s.names[k], {v[k], s.place});
      std::string& shown = at(v[k]).name;
      if (shown.empty()) shown = s.names[k];
    }
    return {};
  }

  // What a name stands for since the statement at `place`.
  struct Made {
    ValueId value;
    Place place;
    bool read = false;
  };

  void set(const std::string& name, Made made) {
    const bool fresh = scope_.insert_or_assign(name, made).second;
    if (fresh && layer_ >= 0) made_here_.push_back(name);
  }

  // Called where a name ends or gets another value: a result that nothing reads is a slip, and the
  // answers would be wrong without a word.
  Result<void> check_read(const std::string& name, const Made& made) const {
    if (made.read) return {};
    return error(made.place, fmt::format("nothing reads the value '{}' that is made here; use it "
                                         "below, or remove it",
                                         name));
  }

  Result<void> layers(const Statement& s) {
    if (layer_ >= 0 || ran_layers_)
      return error(s.place, "'layers: layer' stands once, in the model block");
    const Block* block = arch_.block(s.names[0]);
    if (!block) return error(s.place, fmt::format("the block '{}:' is missing", s.names[0]));
    ran_layers_ = true;
    for (layer_ = 0; layer_ < plan_.n_layers; ++layer_) {
      made_here_.clear();
      for (const Section& section : block->sections) CULET_TRY_VOID(statements(section.statements));
      for (const std::string& name : made_here_) {
        const auto ends = scope_.find(name);
        CULET_TRY_VOID(check_read(name, ends->second));
        scope_.erase(ends);
      }
    }
    layer_ = -1;
    return {};
  }

  Result<void> append(const Statement& s) {
    if (layer_ < 0) return error(s.place, "append belongs into the layer block");
    if (arch_.kind != "decoder")
      return error(s.place, fmt::format("a model of kind {} keeps no cache; only a decoder appends",
                                        arch_.kind));
    const CacheDecl* decl = cache_decl(arch_, s.names[0]);
    if (!decl) return error(s.place, fmt::format("there is no cache '{}'", s.names[0]));
    if (caches_.count({decl->name, layer_}))
      return error(s.place, fmt::format("cache '{}' is appended twice in this layer", decl->name));
    CULET_TRY(CacheSpec spec, cache_spec(facts_, *decl, layer_));
    ShapeCall call;
    Op op;
    op.kind = OpKind::append;
    for (const ExprPtr& e : s.operands) {
      CULET_TRY(ValueId v, value(*e));
      op.in.push_back(v);
    }
    op.attr.cache = static_cast<int32_t>(plan_.caches.size());
    plan_.caches.push_back(spec);
    caches_[{decl->name, layer_}] = op.attr.cache;
    call.cache = &spec;
    CULET_TRY_VOID(emit(std::move(op), std::move(call), s.place));
    return {};
  }

  // ---- caches

  static const CacheDecl* cache_decl(const ArchFile& arch, std::string_view name) {
    for (const CacheDecl& c : arch.caches)
      if (c.name == name) return &c;
    return nullptr;
  }

  // The cache that attend(q, NAME) reads in this layer: its own, or the donor's.
  Result<int32_t> cache_to_read(const CacheDecl& d, Place p) {
    int donor = layer_;
    if (d.donor) {
      CULET_TRY(Fact f, facts_.eval(*d.donor, layer_));
      if (const double* n = f.number(); n && *n >= 0 && *n < 65536 && *n == std::floor(*n))
        donor = static_cast<int>(*n);
      else if (!f.word() || f.word()->text != "self")
        return error(d.donor->place,
                     fmt::format("the donor is {}; a layer's index or self is needed", f.show()));
      if (f.number() && d.donor->kind == Kind::kLast && d.donor->on_target)
        return target_cache(d, donor);
    }
    const auto found = caches_.find({d.name, donor});
    if (found == caches_.end())
      return error(
          p, donor == layer_
                 ? fmt::format("cache '{}' is read before anything is appended to it", d.name)
                 : fmt::format(
                       "cache '{}' would come from layer {}, which appends nothing to it before",
                       d.name, donor));
    return found->second;
  }

  Result<int32_t> target_cache(const CacheDecl& d, int layer) {
    for (const Op& op : target_.plan->ops) {
      if (op.kind != OpKind::attend || op.layer != layer || op.attr.cache == kNone) continue;
      CacheSpec spec = target_.plan->caches[static_cast<size_t>(op.attr.cache)];
      if (spec.name != d.name) continue;
      if (spec.policy == CachePolicy::kWindow && spec.window < 2)
        return error(d.place,
                     fmt::format("layer {} of the target keeps one row, and a drafter's own row is "
                                 "not in it, so there is nothing to read",
                                 layer),
                     ErrorCode::kUnsupported);
      spec.target = op.attr.cache;
      spec.name = "target." + spec.name;
      for (size_t k = 0; k < plan_.caches.size(); ++k)
        if (plan_.caches[k].target == spec.target) return static_cast<int32_t>(k);
      plan_.caches.push_back(spec);
      return static_cast<int32_t>(plan_.caches.size()) - 1;
    }
    return error(d.place, fmt::format("layer {} of the target reads no cache '{}'", layer, d.name));
  }

  // ---- values

  Value& at(ValueId v) { return plan_.values[static_cast<size_t>(v)]; }
  Shape shape(ValueId v) {
    const Value& x = at(v);
    return Shape{x.dims, x.rank};
  }

  ValueId new_value(const Shape& s, RowSet rows = RowSet::kAll) {
    Value v;
    v.rows = rows;
    v.dims = s.dims, v.rank = s.rank, v.width = static_cast<int32_t>(s.width());
    plan_.values.push_back(v);
    return static_cast<ValueId>(plan_.values.size()) - 1;
  }

  int32_t flat_line(Place p) const {
    return arch_.files[static_cast<size_t>(p.file)].first_line + p.line;
  }

  void use(TensorId t) {
    if (t != kNone && !Tensors::of_target(t)) used_[static_cast<size_t>(t)] = true;
  }
  const format::TensorInfo* info(TensorId t) const {
    return t == kNone ? nullptr : &tensors_.at(t);
  }

  // Completes the call from the op, asks the shape rule, makes the results.
  Result<std::vector<ValueId>> emit(Op op, ShapeCall call, Place p) {
    op.layer = layer_;
    op.line = flat_line(p);
    for (ValueId v : op.in) call.in.push_back(shape(v)), call.in_rows.push_back(at(v).rows);
    for (TensorId t : op.weights) {
      use(t);
      call.weights.push_back(info(t));
    }
    if (const auto r = routes_.find(op.in.empty() ? kNone : op.in.back()); r != routes_.end())
      call.routed = r->second;
    call.op = &op;
    if (auto ok = apply_shape_rule(&call); !ok)
      return error(p, ok.error().message, ok.error().code);
    std::vector<ValueId> out;
    out.reserve(call.out.size());
    for (const Shape& s : call.out) out.push_back(new_value(s, call.out_rows));
    if (op.kind == OpKind::route) routes_[out[0]] = at(op.in[0]).width;
    op.out = out;
    plan_.ops.push_back(std::move(op));
    return out;
  }

  bool is_value(const Expr& e) {
    switch (e.kind) {
      case Kind::kName:
        return scope_.count(e.text) != 0 || is_target_value(e.text);
      case Kind::kCall:  // of a value: an operation, or misspells one; sqrt takes either
        return (find_signature(e.text) != nullptr && !Facts::is_function(e.text)) ||
               std::any_of(e.kids.begin(), e.kids.end(),
                           [&](const ExprPtr& k) { return is_value(*k); });
      case Kind::kIf:
        return is_value(*e.kids[1]) || is_value(*e.kids[2]);
      case Kind::kTuple:
      case Kind::kAs:
        return true;
      case Kind::kIndex:
        return is_value(*e.kids[0]);
      case Kind::kUnary:
      case Kind::kBinary:
        return std::any_of(e.kids.begin(), e.kids.end(),
                           [&](const ExprPtr& k) { return is_value(*k); });
      default:
        return false;
    }
  }

  bool is_target_value(std::string_view n) const {
    return target_.plan && n.rfind("target.", 0) == 0 && n.substr(7) == kHandedOver &&
           target_.plan->output(kHandedOver) != kNone;
  }

  Result<ValueId> value(const Expr& e) {
    CULET_TRY(std::vector<ValueId> v, values(e));
    if (v.size() != 1)
      return error(e.place, fmt::format("one value is needed here, this makes {}", v.size()));
    return v[0];
  }

  Result<std::vector<ValueId>> values(const Expr& e) {
    CULET_TRY_VOID(facts_.spend(e.place));
    switch (e.kind) {
      case Kind::kName:
        return name(e);
      case Kind::kCall:
        return call(e);
      case Kind::kBinary:
        return arithmetic(e);
      case Kind::kAs:
        return view(e);
      case Kind::kIndex:
        return layer_slice(e);
      case Kind::kIf: {
        const int64_t before = facts_.context_uses();
        CULET_TRY(bool yes, facts_.flag(*e.kids[0], layer_));
        if (facts_.context_uses() != before && (has_rope(*e.kids[1]) || has_rope(*e.kids[2])))
          plan_.no_stream = why_no_stream(facts_);
        return values(*e.kids[yes ? 1 : 2]);
      }
      case Kind::kUnary:
        if (e.text == "-") {
          Op op;
          op.kind = OpKind::arithmetic;
          op.attr.arithmetic = Arithmetic::kMul;
          op.attr.scalar = -1;
          CULET_TRY(ValueId v, value(*e.kids[0]));
          op.in = {v};
          return emit(std::move(op), {}, e.place);
        }
        break;
      default:
        break;
    }
    return error(e.place, "a value is needed here, this is a fact");
  }

  Result<std::vector<ValueId>> name(const Expr& e) {
    if (const auto made = scope_.find(e.text); made != scope_.end()) {
      made->second.read = true;
      return std::vector<ValueId>{made->second.value};
    }
    if (is_target_value(e.text)) {
      const ValueId theirs = target_.plan->output(kHandedOver);
      const Value& t = target_.plan->values[static_cast<size_t>(theirs)];
      Op op;
      op.kind = OpKind::input;
      op.layer = layer_, op.line = flat_line(e.place);
      op.out = {new_value(Shape{t.dims, t.rank})};
      at(op.out[0]).name = e.text;
      std::vector<ValueId> out = op.out;
      plan_.ops.push_back(std::move(op));
      set(e.text, {out[0], e.place, true});
      return out;
    }
    std::vector<std::string> known;
    known.reserve(scope_.size());
    for (const auto& [n, v] : scope_) known.push_back(n);
    if (facts_.let(e.text))
      return error(e.place, fmt::format("'{}' is a fact, a value is needed here", e.text));
    const std::string near = nearest(e.text, known);
    std::string list;
    for (const std::string& k : known) list += (list.empty() ? "" : ", ") + k;
    return error(e.place, near.empty()
                              ? fmt::format("there is no value '{}' here (values: {})", e.text,
                                            list.empty() ? "none" : list)
                              : fmt::format("there is no value '{}' here; did you mean '{}'?",
                                            e.text, near));
  }

  // The result of the last op, when neither the op nor a name depends on the shape it has now.
  bool may_reshape(ValueId v) const {
    if (!plan_.values[static_cast<size_t>(v)].name.empty() || plan_.ops.empty()) return false;
    const Op& last = plan_.ops.back();
    static constexpr OpKind kShapeless[] = {
        OpKind::linear, OpKind::split,  OpKind::slice,      OpKind::embed,  OpKind::gather,
        OpKind::concat, OpKind::attend, OpKind::arithmetic, OpKind::matmul, OpKind::grouped_linear};
    return std::find(last.out.begin(), last.out.end(), v) != last.out.end() &&
           std::find(std::begin(kShapeless), std::end(kShapeless), last.kind) !=
               std::end(kShapeless) &&
           (last.kind != OpKind::arithmetic || last.weights.empty());
  }

  // x as [a, b]: a fresh result of linear and the like just gets the shape; any other value is
  // copied under a new shape.
  Result<std::vector<ValueId>> view(const Expr& e) {
    CULET_TRY(std::vector<ValueId> all, values(*e.kids[0]));
    Shape s;
    s.rank = static_cast<int32_t>(e.kids.size()) - 1;
    if (s.rank < 1 || s.rank > 3) return error(e.place, "a shape has one to three numbers");
    for (size_t d = 1; d < e.kids.size(); ++d) {
      CULET_TRY(int64_t n, facts_.integer(*e.kids[d], layer_, 1, 1 << 28));
      s.dims[d - 1] = static_cast<int32_t>(n);
    }
    const bool in_place =
        std::all_of(all.begin(), all.end(), [&](ValueId v) { return may_reshape(v); });
    for (ValueId& v : all) {
      if (s.width() != at(v).width)
        return error(e.place,
                     fmt::format("a value of shape {} cannot be seen as {}: {} numbers against {}",
                                 shape(v).show(), s.show(), at(v).width, s.width()));
      if (shape(v) == s) continue;
      if (!in_place) {
        Op op;
        op.kind = OpKind::slice;
        op.layer = layer_, op.line = flat_line(e.place);
        op.in = {v};
        op.attr.count = at(v).width;
        op.out = {new_value(s, at(v).rows)};
        v = op.out[0];
        plan_.ops.push_back(std::move(op));
      }
      at(v).dims = s.dims, at(v).rank = s.rank;
    }
    return all;
  }

  // per_layer[i]
  Result<std::vector<ValueId>> layer_slice(const Expr& e) {
    CULET_TRY(ValueId v, value(*e.kids[0]));
    const Shape s = shape(v);
    if (s.rank < 2)
      return error(e.place,
                   fmt::format("a value of shape {} has no slices; only [layers, n] can be indexed",
                               s.show()));
    CULET_TRY(int64_t index, facts_.integer(*e.kids[1], layer_, 0, s.dims[0] - 1));
    Shape rest{{s.dims[1], s.dims[2], 0}, s.rank - 1};
    Op op;
    op.kind = OpKind::view_layer;
    op.layer = layer_, op.line = flat_line(e.place);
    op.in = {v};
    op.attr.first = static_cast<int32_t>(index * rest.width());
    op.attr.count = static_cast<int32_t>(rest.width());
    op.out = {new_value(rest, at(v).rows)};
    std::vector<ValueId> out = op.out;
    plan_.ops.push_back(std::move(op));
    return out;
  }

  // value (+ - * /) value | tensor | tensor? | number
  Result<std::vector<ValueId>> arithmetic(const Expr& e) {
    static constexpr std::string_view kOps[] = {"+", "-", "*", "/"};
    const auto which = std::find(std::begin(kOps), std::end(kOps), e.text);
    if (which == std::end(kOps))
      return error(e.place, fmt::format("'{}' does not apply to values", e.text));
    Op op;
    op.kind = OpKind::arithmetic;
    op.attr.arithmetic = static_cast<Arithmetic>(which - std::begin(kOps));
    const Expr &left = *e.kids[0], &right = *e.kids[1];
    const bool left_value = is_value(left), right_value = is_value(right);
    if (!left_value && !right_value)
      return error(e.place, "a value is needed here, this is a fact");
    if (left_value && right_value) {
      CULET_TRY(ValueId a, value(left));
      CULET_TRY(ValueId b, value(right));
      op.in = {a, b};
      return emit(std::move(op), {}, e.place);
    }
    CULET_TRY(ValueId v, value(left_value ? left : right));
    op.in = {v};
    const Expr& other = left_value ? right : left;
    if (is_tensor(other)) {
      const bool commutes = e.text == "+" || e.text == "*";
      if (!left_value && !commutes)
        return error(e.place, "a tensor stands on the right of - and /");
      CULET_TRY_VOID(known(other));
      CULET_TRY(TensorId t, facts_.tensor(other, layer_, false));
      if (t == kNone) return op.in;  // NAME? that is absent: nothing to do
      op.weights = {t};
      return emit(std::move(op), {}, e.place);
    }
    CULET_TRY(op.attr.scalar, facts_.number(other, layer_));
    if (!(std::fabs(op.attr.scalar) < 1e30))
      return error(other.place,
                   fmt::format("this is {}, a number that fits a float is needed", op.attr.scalar));
    if (left_value && e.text == "/" && op.attr.scalar == 0)
      return error(other.place, "division of a value by zero");
    op.attr.scalar_first = !left_value;
    return emit(std::move(op), {}, e.place);
  }

  // A plain name in a sum or product may have been meant as either.
  Result<void> known(const Expr& e) {
    if (e.kind != Kind::kName || facts_.let(e.text) || e.text == "none") return {};
    const std::string tensor = facts_.tensor_name(e.text, false, layer_);
    if (e.text.rfind("target.", 0) == 0 || facts_.find_tensor(tensor) != kNone) return {};
    std::vector<std::string> names = facts_.names_like_tensors(layer_);
    for (const auto& [name, made] : scope_) names.push_back(name);
    for (const Let& l : arch_.lets) names.push_back(l.name);
    const std::string near = nearest(e.text, names);
    return error(
        e.place,
        fmt::format("'{}' is neither a value or fact here nor a tensor of the model file "
                    "({}); {}",
                    e.text, tensor,
                    near.empty()
                        ? fmt::format("write '{}?' for a tensor that may be absent", e.text)
                        : fmt::format("did you mean '{}'?", near)),
        ErrorCode::kCorrupt);
  }

  bool is_tensor(const Expr& e) {
    if (e.kind == Kind::kOptional || e.kind == Kind::kAlternative || e.kind == Kind::kString)
      return true;
    if (e.kind != Kind::kName) return false;
    if (const Let* l = facts_.let(e.text)) {
      const auto f = facts_.eval(*l->value, facts_.per_layer(*l) ? layer_ : -1);
      return f && (f->tensor() || f->is_none());
    }
    return e.text.rfind("meta.", 0) != 0 && e.text != "i" && e.text != "session.context" &&
           !facts_.is_word(e.text) &&
           !(e.text.rfind("target.", 0) == 0 && facts_.target() &&
             facts_.target()->let(std::string_view(e.text).substr(7)));
  }

  // ---- calls

  Result<std::vector<ValueId>> call(const Expr& e) {
    const Signature* s = find_signature(e.text);
    if (!s) return error(e.place, unknown_operation(e.text));
    if (s->kind == OpKind::pool && arch_.kind != "encoder")
      return error(e.place, "only an encoder, which sees whole sequences, pools their rows");
    Op op;
    op.kind = s->kind;
    ShapeCall shape_call;
    CacheSpec cache;
    CULET_TRY(bool pass_through, operands(*s, e, &op, &shape_call, &cache));
    if (pass_through) return op.in;
    CULET_TRY_VOID(attributes(*s, e, &op));
    return emit(std::move(op), std::move(shape_call), e.place);
  }

  // True when the op has nothing to do (suppress(x, none)).
  Result<bool> operands(const Signature& s, const Expr& e, Op* op, ShapeCall* call,
                        CacheSpec* cache) {
    using K = OperandRule::Kind;
    size_t used = 0;
    for (const OperandRule& rule : s.operands) {
      const Expr* arg = used < e.kids.size() ? e.kids[used].get() : nullptr;
      if (rule.kind == K::kValues) {
        for (; used < e.kids.size(); ++used) {
          CULET_TRY(ValueId v, value(*e.kids[used]));
          op->in.push_back(v);
        }
        if (op->in.empty())
          return error(e.place, fmt::format("{} needs at least one value", s.name));
        continue;
      }
      if (!arg && rule.kind == K::kOptionalTensor) {
        op->weights.push_back(kNone);
        continue;
      }
      if (!arg)
        return error(e.place, fmt::format("{} takes {}, this has {}", s.name, operand_text(s),
                                          e.kids.size()));
      ++used;
      switch (rule.kind) {
        case K::kValue: {
          CULET_TRY(ValueId v, value(*arg));
          op->in.push_back(v);
          break;
        }
        case K::kTensor:
        case K::kOptionalTensor: {
          CULET_TRY(TensorId t, facts_.tensor(*arg, layer_, false));
          if (t == kNone && rule.kind == K::kTensor)
            return error(arg->place, "this tensor cannot be left out");
          op->weights.push_back(t);
          break;
        }
        case K::kFact: {
          CULET_TRY(Fact f, facts_.eval(*arg, layer_));
          if (s.kind == OpKind::suppress) {
            CULET_TRY(bool empty, token_list(f, arg->place, op));
            if (empty) return true;
            break;
          }
          if (!f.number())
            return error(arg->place, fmt::format("a number is needed here, this is {}", f.show()));
          call->facts.push_back(*f.number());
          break;
        }
        case K::kCacheOrPair:
          CULET_TRY_VOID(cache_or_pair(*arg, op, call, cache));
          break;
        case K::kState:
          CULET_TRY_VOID(state(*arg, op, call));
          break;
        case K::kCache:
        case K::kValues:
          break;
      }
    }
    if (used < e.kids.size())
      return error(e.kids[used]->place,
                   fmt::format("{} takes {}, this is one too many", s.name, operand_text(s)));
    return false;
  }

  // True when the list has no ids.
  Result<bool> token_list(const Fact& list, Place p, Op* op) {
    if (list.list()) CULET_TRY_VOID(facts_.spend(p, list.list()->value->size()));
    auto ids = token_ids(list, at(op->in[0]).width);
    if (!ids) return error(p, ids.error().message, ids.error().code);
    if (ids->empty()) return true;
    op->attr.tokens = static_cast<int32_t>(plan_.token_lists.size());
    plan_.token_lists.push_back(std::move(*ids));
    return false;
  }

  Result<void> cache_or_pair(const Expr& e, Op* op, ShapeCall* call, CacheSpec* cache) {
    if (e.kind == Kind::kTuple) {
      if (e.kids.size() != 2) return error(e.place, "attention without a cache takes (k, v)");
      if (arch_.kind != "encoder")
        return error(e.place, fmt::format("a {} attends over a cache, so that earlier steps are "
                                          "seen; {} and name it here",
                                          arch_.kind,
                                          arch_.kind == "drafter" ? "take the target's"
                                                                  : "append k, v to one"));
      for (const ExprPtr& kid : e.kids) {
        CULET_TRY(ValueId v, value(*kid));
        op->in.push_back(v);
      }
      return {};
    }
    const CacheDecl* d = e.kind == Kind::kName ? cache_decl(arch_, e.text) : nullptr;
    if (!d) return error(e.place, "a cache's name or (k, v) is needed here");
    if (layer_ < 0) return error(e.place, "attention over a cache belongs into the layer block");
    CULET_TRY(op->attr.cache, cache_to_read(*d, e.place));
    *cache = plan_.caches[static_cast<size_t>(op->attr.cache)];
    call->cache = cache;
    return {};
  }

  Result<void> state(const Expr& e, Op* op, ShapeCall* call) {
    for (const StateDecl& s : arch_.states) {
      if (e.kind != Kind::kName || s.name != e.text) continue;
      if (layer_ < 0)
        return error(e.place, "a state belongs to a layer; use it in the layer block");
      if (arch_.kind != "decoder")
        return error(e.place, fmt::format("a model of kind {} keeps no state; only a decoder does",
                                          arch_.kind));
      if (std::any_of(plan_.states.begin(), plan_.states.end(), [&](const StateSpec& known) {
            return known.layer == layer_ && known.name == s.name;
          }))
        return error(e.place, fmt::format("state '{}' is used twice in this layer", s.name));
      CULET_TRY(StateSpec spec, state_spec(facts_, s, layer_));
      call->state_rows = spec.rows, call->state_width = spec.width;
      op->attr.state = static_cast<int32_t>(plan_.states.size());
      plan_.states.push_back(std::move(spec));
      return {};
    }
    return error(e.place, "a state's name is needed here");
  }

  // ---- attributes

  Result<void> attributes(const Signature& s, const Expr& e, Op* op) {
    for (const NamedArgument& a : e.named) {
      if (std::any_of(s.attributes.begin(), s.attributes.end(),
                      [&](const AttributeRule& r) { return r.name == a.name; }))
        continue;
      std::string list;
      for (const AttributeRule& r : s.attributes) list += (list.empty() ? "" : ", ") + r.name;
      return error(a.place, fmt::format("{} has no '{}=' (it has: {})", s.name, a.name,
                                        list.empty() ? "none" : list));
    }
    RopeSpec rope;
    const int64_t before = facts_.context_uses();
    for (const AttributeRule& rule : s.attributes) {
      const Expr* given = nullptr;
      for (const NamedArgument& a : e.named)
        if (a.name == rule.name) given = a.value.get();
      if (!given && !rule.has_default)
        return error(e.place, fmt::format("{} needs '{}='", s.name, rule.name));
      CULET_TRY_VOID(attribute(rule, given, op, &rope));
    }
    if (s.kind != OpKind::rope) return {};
    if (facts_.context_uses() != before) plan_.no_stream = why_no_stream(facts_);
    return finish_rope(e, op, rope);
  }

  Result<void> attribute(const AttributeRule& rule, const Expr* given, Op* op, RopeSpec* rope) {
    using K = AttributeRule::Kind;
    switch (rule.kind) {
      case K::kTensor: {
        TensorId t = kNone;
        if (given) {
          CULET_TRY(t, facts_.tensor(*given, layer_, false));
        }
        if (op->kind == OpKind::rope)
          rope->factors = t, use(t);
        else
          op->weights.push_back(t);
        return {};
      }
      case K::kInteger: {
        CULET_TRY(int64_t n, facts_.integer(*given, layer_, 0, 1 << 28));
        if (rule.name == "dims") rope->dims = static_cast<int32_t>(n), op->attr.count = rope->dims;
        if (rule.name == "top") op->attr.top = static_cast<int32_t>(n);
        return {};
      }
      case K::kNumber: {
        double n = base::parse_double(rule.default_text).value_or(0);
        if (given) {
          CULET_TRY(n, facts_.number(*given, layer_));
        }
        if (!(n > -1e30 && n < 1e30))
          return error(given->place,
                       fmt::format("{}= is {}, a finite number is needed", rule.name, n));
        set_number(rule.name, n, op, rope);
        return {};
      }
      case K::kFlag: {
        bool b = rule.default_text == "yes";
        if (given) {
          CULET_TRY(b, facts_.flag(*given, layer_));
        }
        if (rule.name == "renormalise") op->attr.renormalise = b;
        return {};
      }
      case K::kWord:
      case K::kMask: {
        Fact::Word word{rule.default_text, 0};
        const bool plain = given && given->kind == Kind::kName && !facts_.let(given->text) &&
                           given->text.find('.') == std::string::npos;
        if (plain) {
          word = {given->text, 0};  // whatever it is: set_word() knows what it may be
        } else if (given) {
          CULET_TRY(Fact f, facts_.eval(*given, layer_));
          if (!f.word())
            return error(given->place,
                         fmt::format("{}= is a word such as '{}', this is {}", rule.name,
                                     rule.has_default ? rule.default_text : "halves", f.show()));
          word = *f.word();
        }
        if (auto ok = set_word(rule.name, word, &op->attr); !ok)
          return error(given->place, ok.error().message);
        return {};
      }
    }
    return {};
  }

  Result<void> finish_rope(const Expr& e, Op* op, const RopeSpec& rope) {
    if (!(rope.scale > 0) || !(rope.attn_factor > 0))
      return error(e.place, fmt::format("rope's scale is {} and its attn_factor {}; both must be "
                                        "positive",
                                        rope.scale, rope.attn_factor));
    if (!(rope.base > 0))
      return error(e.place,
                   fmt::format("rope's base is {}, a positive number is needed", rope.base));
    if (const format::TensorInfo* t = info(rope.factors);
        t && t->elements() != static_cast<uint64_t>(rope.dims / 2))
      return error(e.place, fmt::format("tensor {} has {} factors, {} are needed for {} dimensions",
                                        t->name, t->elements(), rope.dims / 2, rope.dims));
    const auto found = std::find(plan_.ropes.begin(), plan_.ropes.end(), rope);
    op->attr.rope = static_cast<int32_t>(found - plan_.ropes.begin());
    if (found != plan_.ropes.end()) return {};
    if (plan_.ropes.size() >= kMaxRopes)
      return error(e.place, fmt::format("more than {} different ropes in one model", kMaxRopes));
    plan_.ropes.push_back(rope);
    return {};
  }

  Facts& facts_;
  const ArchFile& arch_;
  TargetPlan target_;
  Tensors tensors_;
  Plan plan_;
  std::vector<std::string> warnings_;
  std::vector<bool> used_;
  std::map<std::string, Made> scope_;
  std::vector<std::string> made_here_;  // names that end with this layer
  std::map<std::pair<std::string, int>, int32_t> caches_;
  std::map<ValueId, int32_t> routes_;  // results of route: how many experts it picks from
  int layer_ = -1;
  bool ran_layers_ = false;
};

}  // namespace

Result<GraphResult> build_graph(Facts& facts, const TargetPlan& target) {
  return Builder(facts, target).run();
}

}  // namespace culet::plan
