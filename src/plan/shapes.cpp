// The shape rule of every op that a file can write, in one table.
//
// Tensor shapes are quoted in file order, {in, out} for a matrix: dims[0] is the contiguous axis.
#include "plan/shapes.h"

#include "base/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace culet::plan {
namespace {

constexpr int64_t kMaxWidth = 1 << 28;
constexpr int64_t kMaxExperts = 1 << 16;  // their indices are floats in a row
constexpr int64_t kMaxMatrices = 4096;    // of grouped_linear

bool whole(double n, double min, double max) { return n >= min && n <= max && n == std::floor(n); }

Result<void> bad(std::string message) { return fail(ErrorCode::kCorrupt, std::move(message)); }

std::string dims_text(const format::TensorInfo& t) {
  std::string s = "{";
  for (int d = 0; d < t.n_dims; ++d)
    s += fmt::format("{}{}", d ? ", " : "", t.dims[static_cast<size_t>(d)]);
  return s + "}";
}

// The weight w must be a vector of n.
Result<void> want_vector(const ShapeCall& c, size_t w, int64_t n) {
  const format::TensorInfo* t = c.weights[w];
  if (!t) return {};
  if (t->n_dims > 1 && t->elements() != t->dims[0])
    return bad(
        fmt::format("tensor {} has shape {}, a vector of {} is needed", t->name, dims_text(*t), n));
  if (static_cast<int64_t>(t->dims[0]) != n)
    return bad(
        fmt::format("tensor {} has shape {}, {{{}}} is needed here", t->name, dims_text(*t), n));
  return {};
}

Result<void> want_matrix(const ShapeCall& c, size_t w) {
  const format::TensorInfo* t = c.weights[w];
  CULET_CHECK(t != nullptr);
  if (t->dims[2] != 1 || t->dims[3] != 1)
    return bad(fmt::format("tensor {} has shape {}, a matrix is needed", t->name, dims_text(*t)));
  if (static_cast<int64_t>(t->dims[0]) > kMaxWidth || static_cast<int64_t>(t->dims[1]) > kMaxWidth)
    return bad(fmt::format("tensor {} has shape {}, which is too large", t->name, dims_text(*t)));
  return {};
}

Result<void> embed(ShapeCall* c) {
  CULET_TRY_VOID(want_matrix(*c, 0));
  c->out = {vector_shape(static_cast<int64_t>(c->weights[0]->dims[0]))};
  return {};
}

Result<void> linear(ShapeCall* c) {
  CULET_TRY_VOID(want_matrix(*c, 0));
  const format::TensorInfo& w = *c->weights[0];
  if (c->in[0].rank != 1)
    return bad(fmt::format(
        "linear takes a plain vector a row, this value is {}; write 'as [{}]' behind it",
        c->in[0].show(), c->in[0].width()));
  if (static_cast<int64_t>(w.dims[0]) != c->in[0].width())
    return bad(
        fmt::format("tensor {} has shape {}, linear of a value of width {} needs shape {{{}, n}}",
                    w.name, dims_text(w), c->in[0].width(), c->in[0].width()));
  const int64_t out = static_cast<int64_t>(w.dims[1]);
  CULET_TRY_VOID(want_vector(*c, 1, out));
  c->out = {vector_shape(out)};
  return {};
}

// Every matrix has a vector of its own, or all have the one that there is.
Result<void> grouped_linear(ShapeCall* c) {
  const format::TensorInfo& w = *c->weights[0];
  const Shape& x = c->in[0];
  const auto in = static_cast<int64_t>(std::min<uint64_t>(w.dims[0], kMaxWidth + 1));
  const auto out = static_cast<int64_t>(std::min<uint64_t>(w.dims[1], kMaxWidth + 1));
  const auto n = static_cast<int64_t>(std::min<uint64_t>(w.dims[2], kMaxMatrices + 1));
  if (n > kMaxMatrices || w.dims[3] != 1 || in > kMaxWidth || out * n > kMaxWidth)
    return bad(
        fmt::format("tensor {} has shape {}, {{in, out, n}} with at most {} matrices is "
                    "needed",
                    w.name, dims_text(w), kMaxMatrices));
  const bool one = x.rank == 1 && x.width() == in;
  const bool each = x.rank == 2 && x.dims[0] == n && x.last() == in;
  if (!one && !each)
    return bad(
        fmt::format("tensor {} has shape {}, this value is {}; grouped_linear takes [{}] or "
                    "[{}, {}]",
                    w.name, dims_text(w), x.show(), in, n, in));
  c->out = {Shape{{static_cast<int32_t>(n), static_cast<int32_t>(out), 0}, 2}};
  return {};
}

Result<void> matmul(ShapeCall* c) {
  const Shape &a = c->in[0], &b = c->in[1];
  if (a.rank != 2 || b.rank != 2 || a.dims[1] != b.dims[0])
    return bad(
        fmt::format("matmul takes [m, n] and [n, k], these are {} and {}", a.show(), b.show()));
  const Shape product{{a.dims[0], b.dims[1], 0}, 2};
  if (product.width() > kMaxWidth) return bad("the product is too wide");
  c->out = {product};
  return {};
}

Result<void> norm(ShapeCall* c) {
  for (size_t w = 0; w < c->weights.size(); ++w)
    CULET_TRY_VOID(want_vector(*c, w, c->in[0].last()));
  if (!(static_cast<float>(c->hparams[0]) > 0 && c->hparams[0] < 1))
    return bad(fmt::format("the norm's epsilon is {}, a number above 0 and below 1 is needed",
                           c->hparams[0]));
  c->op->attr.as<NormAttributes>().eps = static_cast<float>(c->hparams[0]);
  c->out = {c->in[0]};
  return {};
}

Result<void> rope(ShapeCall* c) {
  const int32_t dims = c->rope_dims;
  if (dims <= 0 || dims % 2 != 0 || dims > c->in[0].last())
    return bad(fmt::format(
        "rope rotates {} dimensions of heads that have {}; an even number from 2 to {} is needed",
        dims, c->in[0].last(), c->in[0].last()));
  c->out = {c->in[0]};
  return {};
}

Result<void> append(ShapeCall* c) {
  const Shape keys{{c->cache->kv_heads, c->cache->head_dim, 0}, 2},
      values{{c->cache->kv_heads, c->cache->value_dim, 0}, 2};
  if (!(c->in[0] == keys))
    return bad(fmt::format("the keys are {}, cache {} holds {}", c->in[0].show(), c->cache->name,
                           keys.show()));
  if (!(c->in[1] == values))
    return bad(fmt::format("the values are {}, cache {} holds {}", c->in[1].show(), c->cache->name,
                           values.show()));
  return {};
}

Result<void> attend(ShapeCall* c) {
  const Shape& q = c->in[0];
  if (q.rank != 2)
    return bad(
        fmt::format("the query is {}; write 'as [heads, head_dim]' where it is made", q.show()));
  int32_t kv_heads = 0, head_dim = 0, value_dim = 0;
  if (c->cache) {
    kv_heads = c->cache->kv_heads, head_dim = c->cache->head_dim, value_dim = c->cache->value_dim;
  } else {
    if (c->in[1].rank != 2 || c->in[2].rank != 2 || c->in[1].dims[0] != c->in[2].dims[0])
      return bad(fmt::format("keys {} and values {} do not fit together", c->in[1].show(),
                             c->in[2].show()));
    kv_heads = c->in[1].dims[0], head_dim = c->in[1].dims[1], value_dim = c->in[2].dims[1];
  }
  auto& a = c->op->attr.as<AttendAttributes>();
  if (!(a.softcap >= 0))
    return bad(fmt::format("the softcap is {}, zero or a positive number is needed", a.softcap));
  if (q.dims[1] != head_dim)
    return bad(fmt::format("query heads are {} wide, key heads {}", q.dims[1], head_dim));
  if (kv_heads <= 0 || q.dims[0] % kv_heads != 0)
    return bad(
        fmt::format("head_count {} is no multiple of head_count_kv {}", q.dims[0], kv_heads));
  if (int64_t{q.dims[0]} * value_dim > kMaxWidth) return bad("the attention's result is too wide");
  a.heads = q.dims[0], a.kv_heads = kv_heads, a.head_dim = head_dim, a.value_dim = value_dim;
  c->out = {vector_shape(int64_t{a.heads} * value_dim)};
  return {};
}

// One number for each vector of `a`.
Shape column_of(Shape a) {
  a.dims[static_cast<size_t>(a.rank - 1)] = 1;
  return a;
}

// Whether b has a's shape, or is one number, one for each vector of a, or one vector for all.
bool fits(const Shape& a, const Shape& b) {
  return a == b || b == column_of(a) || (b.rank == 1 && (b.width() == 1 || b.width() == a.last()));
}

Result<void> arithmetic(ShapeCall* c) {
  c->out = {c->in[0]};
  if (c->in.size() == 2 && !fits(c->in[0], c->in[1])) {
    const Shape& a = c->in[0];
    const std::string smaller =
        a.rank == 1 ? "[1]" : fmt::format("[1], {} or [{}]", column_of(a).show(), a.last());
    return bad(fmt::format("shapes {} and {} differ; beside {} the second value may also be {}",
                           a.show(), c->in[1].show(), a.show(), smaller));
  }
  if (c->weights.empty()) return {};
  if (c->weights[0]->elements() == 1) return {};
  return want_vector(*c, 0, c->in[0].last());
}

Result<void> same(ShapeCall* c) {
  c->out = {c->in[0]};
  return {};
}

Result<void> softcap(ShapeCall* c) {
  if (!(c->hparams[0] > 0))
    return bad(fmt::format("the cap is {}, a positive number is needed", c->hparams[0]));
  c->op->attr.as<SoftcapAttributes>().cap = c->hparams[0];
  return same(c);
}

Result<void> concat(ShapeCall* c) {
  int64_t width = 0;
  for (const Shape& s : c->in) {
    if (s.rank != 1) return bad(fmt::format("concat joins plain vectors, this is {}", s.show()));
    width += s.width();
  }
  if (width > kMaxWidth) return bad("the joined value is too wide");
  c->out = {vector_shape(width)};
  return {};
}

Result<void> split(ShapeCall* c) {
  const double n = c->hparams[0];
  if (c->in[0].rank != 1)
    return bad(fmt::format("split cuts a plain vector, this is {}", c->in[0].show()));
  if (!whole(n, 1, 64) || c->in[0].width() % static_cast<int>(n) != 0)
    return bad(
        fmt::format("a value of width {} does not split into {} equal parts", c->in[0].width(), n));
  c->out.assign(static_cast<size_t>(n), vector_shape(c->in[0].width() / static_cast<int>(n)));
  return {};
}

Result<void> slice(ShapeCall* c) {
  const double first = c->hparams[0], count = c->hparams[1],
               width = static_cast<double>(c->in[0].width());
  if (c->in[0].rank != 1)
    return bad(fmt::format("slice cuts a plain vector, this is {}", c->in[0].show()));
  if (!whole(first, 0, width) || !whole(count, 1, width - first))
    return bad(fmt::format("columns {} to {} are not inside a value of width {}", first,
                           first + count, width));
  c->op->attr = ColumnsAttributes{static_cast<int32_t>(first), static_cast<int32_t>(count)};
  c->out = {vector_shape(static_cast<int64_t>(count))};
  return {};
}

Result<void> row_mean(ShapeCall* c) {
  c->out = {column_of(c->in[0])};
  return {};
}

Result<void> route(ShapeCall* c) {
  const auto& a = c->op->attr.as<RouteAttributes>();
  if (a.top < 1 || a.top > c->in[0].width())
    return bad(fmt::format("route picks {} of {} experts", a.top, c->in[0].width()));
  if (c->in[0].width() > kMaxExperts)
    return bad(
        fmt::format("route picks from {} experts; {} are the most", c->in[0].width(), kMaxExperts));
  if (!c->weights.empty()) CULET_TRY_VOID(want_vector(*c, 0, c->in[0].width()));
  c->out = {Shape{{a.top, 2, 0}, 2}};
  return {};
}

// weights: gate, up, gate_up, down, down_scale; {in, out, experts}
Result<void> experts(ShapeCall* c) {
  const auto& w = c->weights;
  const int64_t width = c->in[0].width();
  const bool pair = w[0] && w[1] && !w[2], joined = w[2] && !w[0] && !w[1];
  if (!w[3] || !(pair || joined)) return bad("experts takes down= and gate= with up=, or gate_up=");
  if (c->routed == 0)
    return bad(fmt::format("the second operand of experts is what route() gives, this is {}",
                           c->in[1].show()));
  const int64_t hidden = static_cast<int64_t>(std::min<uint64_t>(w[3]->dims[0], kMaxWidth));
  const int64_t n = c->routed;
  if (w[3]->dims[0] > static_cast<uint64_t>(kMaxWidth) ||
      static_cast<int64_t>(w[3]->dims[1]) != width)
    return bad(fmt::format("tensor {} has shape {}, its second number must be {}", w[3]->name,
                           dims_text(*w[3]), width));
  if (static_cast<int64_t>(w[3]->dims[2]) != n || w[3]->dims[3] != 1)
    return bad(
        fmt::format("tensor {} has shape {}, its third number must be {}, the experts that "
                    "the route picks from",
                    w[3]->name, dims_text(*w[3]), n));
  for (size_t k = 0; k < 3; ++k) {
    if (!w[k]) continue;
    const int64_t out = k == 2 ? 2 * hidden : hidden;
    if (static_cast<int64_t>(w[k]->dims[0]) != width ||
        static_cast<int64_t>(w[k]->dims[1]) != out || static_cast<int64_t>(w[k]->dims[2]) != n ||
        w[k]->dims[3] != 1)
      return bad(fmt::format("tensor {} has shape {}, {{{}, {}, {}}} is needed", w[k]->name,
                             dims_text(*w[k]), width, out, n));
  }
  CULET_TRY_VOID(want_vector(*c, 4, n));
  c->out = {vector_shape(width)};
  return {};
}

Result<void> short_conv(ShapeCall* c) {
  CULET_TRY_VOID(want_matrix(*c, 0));
  const format::TensorInfo& w = *c->weights[0];
  const int64_t width = c->in[0].width();
  if (static_cast<int64_t>(w.dims[1]) != width || c->state_width != width ||
      static_cast<int64_t>(w.dims[0]) != c->state_rows + 1)
    return bad(
        fmt::format("tensor {} has shape {}, the value is {} wide and the state {} x {}; {{rows + "
                    "1, width}} is needed",
                    w.name, dims_text(w), width, c->state_rows, c->state_width));
  c->out = {c->in[0]};
  return {};
}

// Rows of tokens stay rows of tokens; pool makes one of each sequence, which stays one.
Result<void> rows_rule(ShapeCall* c) {
  static constexpr OpKind kOfTokens[] = {OpKind::pool, OpKind::rope, OpKind::attend, OpKind::append,
                                         OpKind::short_conv};
  const auto pooled = [](TokenSet rows) { return rows == TokenSet::kOutputs; };
  const bool any = std::any_of(c->in_rows.begin(), c->in_rows.end(), pooled);
  if (any && !std::all_of(c->in_rows.begin(), c->in_rows.end(), pooled))
    return bad("one operand has a row of each token, another one of each sequence, as pool makes");
  const bool tokens =
      std::find(std::begin(kOfTokens), std::end(kOfTokens), c->op->kind) != std::end(kOfTokens);
  if (any && tokens)
    return bad(
        fmt::format("{} takes a row of each token; this value has one of each sequence, as "
                    "pool makes",
                    op_name(c->op->kind)));
  c->out_rows = any || c->op->kind == OpKind::pool ? TokenSet::kOutputs : TokenSet::kAll;
  return {};
}

using Rule = Result<void> (*)(ShapeCall*);
struct Row {
  OpKind kind;
  Rule rule;
};
constexpr Row kRules[] = {
    {OpKind::embed, embed},
    {OpKind::gather, embed},
    {OpKind::linear, linear},
    {OpKind::rms_norm, norm},
    {OpKind::layer_norm, norm},
    {OpKind::rope, rope},
    {OpKind::append, append},
    {OpKind::attend, attend},
    {OpKind::arithmetic, arithmetic},
    {OpKind::silu, same},
    {OpKind::gelu, same},
    {OpKind::gelu_erf, same},
    {OpKind::relu, same},
    {OpKind::sigmoid, same},
    {OpKind::tanh, same},
    {OpKind::softmax, same},
    {OpKind::softcap, softcap},
    {OpKind::concat, concat},
    {OpKind::split, split},
    {OpKind::slice, slice},
    {OpKind::row_mean, row_mean},
    {OpKind::route, route},
    {OpKind::experts, experts},
    {OpKind::short_conv, short_conv},
    {OpKind::suppress, same},
    {OpKind::sqrt, same},
    {OpKind::matmul, matmul},
    {OpKind::grouped_linear, grouped_linear},
    {OpKind::pool, same},
};

}  // namespace

int64_t Shape::width() const {
  int64_t n = 1;  // stops growing far above any width that is allowed
  for (int32_t d = 0; d < rank && n <= kMaxWidth; ++d) n *= dims[static_cast<size_t>(d)];
  return n;
}

std::string Shape::show() const {
  std::string s = "[";
  for (int32_t d = 0; d < rank; ++d)
    s += fmt::format("{}{}", d ? ", " : "", dims[static_cast<size_t>(d)]);
  return s + "]";
}

bool Shape::operator==(const Shape& o) const {
  if (rank != o.rank) return false;
  for (int32_t d = 0; d < rank; ++d)
    if (dims[static_cast<size_t>(d)] != o.dims[static_cast<size_t>(d)]) return false;
  return true;
}

Shape vector_shape(int64_t width) { return Shape{{static_cast<int32_t>(width), 0, 0}, 1}; }

Result<void> apply_shape_rule(ShapeCall* call) {
  CULET_TRY_VOID(rows_rule(call));
  for (const Row& row : kRules)
    if (row.kind == call->op->kind) return row.rule(call);
  CULET_CHECK(false && "an op without a shape rule");
}

Result<void> check_output(std::string_view name, std::string_view kind, const Value& value) {
  if (kind != "encoder") return {};
  const bool pooled = value.rows == TokenSet::kOutputs;
  if (name == "hidden" && pooled)
    return bad("'hidden' has a row of each token; what pool makes is the output 'pooled'");
  if (name == "pooled" && (!pooled || value.rank != 1))
    return bad("'pooled' is one plain vector of each sequence; make it with pool()");
  return {};
}

}  // namespace culet::plan
