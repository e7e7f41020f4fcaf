// Takes an expression that stands where a value is needed, gives the ids of its values and appends
// the operations that make them. A name means a value if there is one, then a hyperparameter, then
// a tensor.
#include "plan/graph_values.h"

#include "plan/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace culet::plan {
namespace {

using Kind = Expr::Kind;

std::string joined(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& n : names) list += (list.empty() ? "" : ", ") + n;
  return list.empty() ? "none" : list;
}

}  // namespace

Result<ValueId> GraphValues::value(const Expr& e) {
  CULET_TRY(std::vector<ValueId> v, values(e));
  if (v.size() != 1)
    return writer_.error(e.location,
                         fmt::format("one value is needed here, this makes {}", v.size()));
  return v[0];
}

Result<std::vector<ValueId>> GraphValues::values(const Expr& e) {
  CULET_TRY_VOID(writer_.hparams().spend(e.location));
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
    case Kind::kIf:
      return choice(e);
    case Kind::kUnary:
      if (e.text == "-") return negated(e);
      break;
    default:
      break;
  }
  return writer_.error(e.location, "a value is needed here, this is a hyperparameter");
}

bool GraphValues::is_value(const Expr& e) const {
  const auto kid_is = [&](const ExprPtr& k) { return is_value(*k); };
  switch (e.kind) {
    case Kind::kName:
      return scope_.has(e.text) || target_.is_value(e.text);
    case Kind::kCall:  // of a value: an operation, or misspells one; sqrt takes either
      return (find_signature(e.text) != nullptr && !Hyperparameters::is_function(e.text)) ||
             std::any_of(e.kids.begin(), e.kids.end(), kid_is);
    case Kind::kIf:
      return is_value(*e.kids[1]) || is_value(*e.kids[2]);
    case Kind::kTuple:
    case Kind::kAs:
      return true;
    case Kind::kIndex:
      return is_value(*e.kids[0]);
    case Kind::kUnary:
    case Kind::kBinary:
      return std::any_of(e.kids.begin(), e.kids.end(), kid_is);
    default:
      return false;
  }
}

Result<std::vector<ValueId>> GraphValues::name(const Expr& e) {
  if (const ValueId made = scope_.read(e.text); made != kNone) return std::vector<ValueId>{made};
  if (target_.is_value(e.text)) {
    const ValueId out = target_.input(e.text, e.location);
    scope_.define(e.text, out, e.location);
    return std::vector<ValueId>{out};
  }
  if (writer_.hparams().let(e.text))
    return writer_.error(e.location,
                         fmt::format("'{}' is a hyperparameter, a value is needed here", e.text));
  const std::vector<std::string> known = scope_.names();
  const std::string near = nearest(e.text, known);
  return writer_.error(
      e.location,
      near.empty() ? fmt::format("there is no value '{}' here (values: {})", e.text, joined(known))
                   : fmt::format("there is no value '{}' here; did you mean '{}'?", e.text, near));
}

Result<std::vector<ValueId>> GraphValues::choice(const Expr& e) {
  const int64_t uses = writer_.hparams().context_uses();
  CULET_TRY(bool yes, writer_.hparams().flag(*e.kids[0], writer_.layer()));
  if (has_rope(*e.kids[1]) || has_rope(*e.kids[2])) writer_.note_context(uses);
  return values(*e.kids[yes ? 1 : 2]);
}

Result<std::vector<ValueId>> GraphValues::negated(const Expr& e) {
  CULET_TRY(ValueId v, value(*e.kids[0]));
  Op op = writer_.op(OpKind::arithmetic, e.location);
  op.in = {v};
  op.attr = ArithmeticAttributes{Arithmetic::kMul, -1};
  return writer_.emit(std::move(op), {}, e.location);
}

// The result of the last op, when neither the op nor a name depends on the shape it has now.
bool GraphValues::may_reshape(ValueId v) const {
  if (!writer_.at(v).name.empty() || writer_.plan().ops.empty()) return false;
  const Op& last = writer_.plan().ops.back();
  static constexpr OpKind kShapeless[] = {
      OpKind::linear, OpKind::split,  OpKind::slice,      OpKind::embed,  OpKind::gather,
      OpKind::concat, OpKind::attend, OpKind::arithmetic, OpKind::matmul, OpKind::grouped_linear};
  return std::find(last.out.begin(), last.out.end(), v) != last.out.end() &&
         std::find(std::begin(kShapeless), std::end(kShapeless), last.kind) !=
             std::end(kShapeless) &&
         (last.kind != OpKind::arithmetic || last.weights.empty());
}

// x as [a, b]: a fresh result of linear and the like just gets the shape; any other value is copied
// under a new shape.
Result<std::vector<ValueId>> GraphValues::view(const Expr& e) {
  CULET_TRY(std::vector<ValueId> all, values(*e.kids[0]));
  Shape s;
  s.rank = static_cast<int32_t>(e.kids.size()) - 1;
  if (s.rank < 1 || s.rank > 3)
    return writer_.error(e.location, "a shape has one to three numbers");
  for (size_t d = 1; d < e.kids.size(); ++d) {
    CULET_TRY(int64_t n, writer_.hparams().integer(*e.kids[d], writer_.layer(), 1, 1 << 28));
    s.dims[d - 1] = static_cast<int32_t>(n);
  }
  const bool in_place =
      std::all_of(all.begin(), all.end(), [&](ValueId v) { return may_reshape(v); });
  for (ValueId& v : all) {
    const int32_t width = writer_.at(v).width;
    if (s.width() != width)
      return writer_.error(
          e.location, fmt::format("a value of shape {} cannot be seen as {}: {} numbers against {}",
                                  writer_.shape(v).show(), s.show(), width, s.width()));
    if (writer_.shape(v) == s) continue;
    if (!in_place) {
      Op op = writer_.op(OpKind::slice, e.location);
      op.in = {v};
      op.attr = ColumnsAttributes{0, width};
      v = writer_.add(std::move(op), s, writer_.at(v).rows);
    }
    writer_.at(v).dims = s.dims, writer_.at(v).rank = s.rank;
  }
  return all;
}

// per_layer[i]
Result<std::vector<ValueId>> GraphValues::layer_slice(const Expr& e) {
  CULET_TRY(ValueId v, value(*e.kids[0]));
  const Shape s = writer_.shape(v);
  if (s.rank < 2)
    return writer_.error(
        e.location,
        fmt::format("a value of shape {} has no slices; only [layers, n] can be indexed",
                    s.show()));
  CULET_TRY(int64_t index,
            writer_.hparams().integer(*e.kids[1], writer_.layer(), 0, s.dims[0] - 1));
  const Shape rest{{s.dims[1], s.dims[2], 0}, s.rank - 1};
  Op op = writer_.op(OpKind::view_layer, e.location);
  op.in = {v};
  op.attr = ColumnsAttributes{static_cast<int32_t>(index * rest.width()),
                              static_cast<int32_t>(rest.width())};
  const TokenSet rows = writer_.at(v).rows;
  return std::vector<ValueId>{writer_.add(std::move(op), rest, rows)};
}

// value (+ - * /) value | tensor | tensor? | number
Result<std::vector<ValueId>> GraphValues::arithmetic(const Expr& e) {
  static constexpr std::string_view kOps[] = {"+", "-", "*", "/"};
  const auto* const which = std::find(std::begin(kOps), std::end(kOps), e.text);
  if (which == std::end(kOps))
    return writer_.error(e.location, fmt::format("'{}' does not apply to values", e.text));
  Op op = writer_.op(OpKind::arithmetic, e.location);
  auto& attributes = op.attr.as<ArithmeticAttributes>();
  attributes.arithmetic = static_cast<Arithmetic>(which - std::begin(kOps));
  const Expr &left = *e.kids[0], &right = *e.kids[1];
  const bool left_value = is_value(left), right_value = is_value(right);
  if (!left_value && !right_value)
    return writer_.error(e.location, "a value is needed here, this is a hyperparameter");
  if (left_value && right_value) {
    CULET_TRY(ValueId a, value(left));
    CULET_TRY(ValueId b, value(right));
    op.in = {a, b};
    return writer_.emit(std::move(op), {}, e.location);
  }
  CULET_TRY(ValueId v, value(left_value ? left : right));
  op.in = {v};
  const Expr& other = left_value ? right : left;
  if (is_tensor(other)) {
    const bool commutes = e.text == "+" || e.text == "*";
    if (!left_value && !commutes)
      return writer_.error(e.location, "a tensor stands on the right of - and /");
    CULET_TRY_VOID(known(other));
    CULET_TRY(TensorId t, writer_.hparams().tensor(other, writer_.layer(), false));
    if (t == kNone) return op.in;  // NAME? that is absent: nothing to do
    op.weights = {t};
    return writer_.emit(std::move(op), {}, e.location);
  }
  CULET_TRY(attributes.scalar, writer_.hparams().number(other, writer_.layer()));
  if (!(std::fabs(attributes.scalar) < 1e30))
    return writer_.error(
        other.location,
        fmt::format("this is {}, a number that fits a float is needed", attributes.scalar));
  if (left_value && e.text == "/" && attributes.scalar == 0)
    return writer_.error(other.location, "division of a value by zero");
  attributes.scalar_first = !left_value;
  return writer_.emit(std::move(op), {}, e.location);
}

// A plain name in a sum or product may have been meant as either.
Result<void> GraphValues::known(const Expr& e) const {
  const Hyperparameters& hparams = writer_.hparams();
  if (e.kind != Kind::kName || hparams.let(e.text) || e.text == "none") return {};
  const std::string tensor = hparams.tensor_name(e.text, false, writer_.layer());
  if (e.text.starts_with("target.") || hparams.find_tensor(tensor) != kNone) return {};
  std::vector<std::string> names = hparams.names_like_tensors(writer_.layer());
  for (const std::string& name : scope_.names()) names.push_back(name);
  for (const Let& l : writer_.arch().lets) names.push_back(l.name);
  const std::string near = nearest(e.text, names);
  return writer_.error(
      e.location,
      fmt::format("'{}' is neither a value or hyperparameter here nor a tensor of the model file "
                  "({}); {}",
                  e.text, tensor,
                  near.empty() ? fmt::format("write '{}?' for a tensor that may be absent", e.text)
                               : fmt::format("did you mean '{}'?", near)),
      ErrorCode::kCorrupt);
}

bool GraphValues::is_tensor(const Expr& e) const {
  Hyperparameters& hparams = writer_.hparams();
  if (e.kind == Kind::kOptional || e.kind == Kind::kAlternative || e.kind == Kind::kString)
    return true;
  if (e.kind != Kind::kName) return false;
  if (const Let* l = hparams.let(e.text)) {
    const auto f = hparams.eval(*l->value, hparams.per_layer(*l) ? writer_.layer() : -1);
    return f && (f->thing<TensorValue>() || f->is_none());
  }
  return !e.text.starts_with("meta.") && e.text != "i" && e.text != "session.context" &&
         !hparams.is_word(e.text) &&
         !(e.text.starts_with("target.") && hparams.target() &&
           hparams.target()->let(std::string_view(e.text).substr(7)));
}

}  // namespace culet::plan
