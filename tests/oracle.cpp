// One pass: which rows of which value are needed, from the wanted logits backwards; then every op
// forwards over the rows of its output.
//
// A rope leaves its value as it was and notes the rotation: R(p) q . R(s) k = R(p - s) q . k, so
// attention turns the query by the distance, whatever two positions it is the difference of. A
// value with a noted rotation means nothing to any other op, which fails.
#include "oracle.h"

#include "quant/tensor_type.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numbers>
#include <numeric>
#include <stdexcept>

namespace culet::test {

using plan::kNone;
using plan::Op;
using plan::OpKind;
using plan::Plan;
using plan::ValueId;

namespace {

[[noreturn]] void refuse(const Op& op, const std::string& what) {
  throw std::runtime_error(fmt::format("the oracle does not know {} ({}, line {})", what,
                                       plan::op_name(op.kind), op.line));
}

std::vector<double> dequantized(const format::TensorInfo& tensor) {
  const quant::TypeInfo& type = quant::type_info(tensor.type);
  const auto dequantize = quant::dequantize_fn(tensor.type);
  if (dequantize == nullptr)
    throw std::runtime_error(fmt::format("type {} of tensor {}", type.name, tensor.name));
  std::vector<float> numbers(tensor.elements());
  dequantize(tensor.data, static_cast<int64_t>(numbers.size()) / type.block, numbers.data());
  return {numbers.begin(), numbers.end()};
}

std::vector<double> transposed(const std::vector<double>& m, size_t columns) {
  std::vector<double> out(m.size());
  const size_t rows = m.size() / columns;
  for (size_t r = 0; r < rows; ++r)
    for (size_t c = 0; c < columns; ++c) out[c * rows + r] = m[r * columns + c];
  return out;
}

void unite(std::vector<int64_t>* into, const std::vector<int64_t>& more) {
  std::vector<int64_t> all;
  std::set_union(into->begin(), into->end(), more.begin(), more.end(), std::back_inserter(all));
  *into = std::move(all);
}

void sort_unique(std::vector<int64_t>* rows) {
  std::sort(rows->begin(), rows->end());
  rows->erase(std::unique(rows->begin(), rows->end()), rows->end());
}

struct Rotation {
  int32_t rope = kNone;  // kNone: none
  bool adjacent = false;
  bool operator==(const Rotation&) const = default;
};

// Some rows of a value.
struct Rows64 {
  std::vector<int64_t> index;  // ascending
  size_t width = 0;
  std::vector<double> data;
  Rotation rotation;

  double* row(size_t i) { return data.data() + i * width; }
  const double* row(size_t i) const { return data.data() + i * width; }
  const double* at(int64_t r) const {
    const auto found = std::lower_bound(index.begin(), index.end(), r);
    if (found == index.end() || *found != r)
      throw std::runtime_error("the oracle lost a row that it needs");
    return row(static_cast<size_t>(found - index.begin()));
  }
};

// What rows see in one cache, row numbers from the session's first.
struct Sight {
  int64_t sinks = 0;
  int64_t window = std::numeric_limits<int64_t>::max();

  bool visible(int64_t p, int64_t s) const { return s <= p && (s < sinks || p - s < window); }
  int64_t distance(int64_t p, int64_t s) const {
    return s < sinks ? std::min(p, sinks + window - 1) - s : p - s;
  }
};

Sight sight_of(const plan::CacheSpec& spec, const std::optional<StreamOptions>& stream) {
  if (spec.policy == plan::CachePolicy::kWindow) return {0, spec.window};
  if (spec.policy == plan::CachePolicy::kGlobal && stream) return {stream->sinks, stream->window};
  return {};
}

double activation(OpKind kind, double x) {
  switch (kind) {
    case OpKind::silu:
      return x / (1 + std::exp(-x));
    case OpKind::gelu:
      return 0.5 * x *
             (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case OpKind::gelu_erf:
      return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
    case OpKind::relu:
      return std::max(x, 0.0);
    case OpKind::sigmoid:
      return 1 / (1 + std::exp(-x));
    default:
      return std::tanh(x);
  }
}

double combine(plan::Arithmetic how, double a, double b) {
  switch (how) {
    case plan::Arithmetic::kAdd:
      return a + b;
    case plan::Arithmetic::kSub:
      return a - b;
    case plan::Arithmetic::kMul:
      return a * b;
    case plan::Arithmetic::kDiv:
      return a / b;
  }
  return 0;
}

}  // namespace

class Pass {
 public:
  Pass(const Oracle& oracle, std::span<const Token> tokens,
       const std::optional<StreamOptions>& stream)
      : oracle_(oracle), plan_(oracle.compiled_.plan), tokens_(tokens) {
    for (const plan::CacheSpec& spec : plan_.caches) sights_.push_back(sight_of(spec, stream));
  }

  // Of a draft model: the last of the tokens is the step's; the target's pass has the keys it sees.
  Pass(const Oracle& oracle, std::span<const Token> tokens, Pass* target,
       std::span<const double> hidden)
      : oracle_(oracle),
        plan_(oracle.compiled_.plan),
        tokens_(tokens),
        target_(target),
        hidden_(hidden) {
    for (const plan::CacheSpec& spec : plan_.caches)
      sights_.push_back(target->sights_.at(static_cast<size_t>(spec.target)));
  }

  void run(std::span<const int64_t> rows) {
    find_needed(rows, std::vector<Set>(plan_.caches.size()));
    for (const Op& op : plan_.ops) compute(op);
  }

  // Computes the keys that a row behind the input would see.
  void run_for_row_behind() {
    std::vector<Set> keys;
    const auto behind = static_cast<int64_t>(tokens_.size());
    for (const Sight& sight : sights_) {
      keys.push_back(visible_to(sight, {behind}));
      std::erase(keys.back(), behind);
    }
    find_needed({}, std::move(keys));
    for (const Op& op : plan_.ops) compute(op);
  }

  DoubleRows output(std::string_view name, std::span<const int64_t> rows) const {
    const Rows64& all = values_[static_cast<size_t>(plan_.output(name))];
    DoubleRows out;
    for (const int64_t r : rows) out.emplace_back(all.at(r), all.at(r) + all.width);
    return out;
  }

 private:
  using Set = std::vector<int64_t>;  // ascending

  size_t last(ValueId v) const {
    const plan::Value& value = plan_.values[static_cast<size_t>(v)];
    return static_cast<size_t>(value.dims[static_cast<size_t>(value.rank - 1)]);
  }
  const std::vector<double>& weight(const Op& op, size_t i) const {
    static const std::vector<double> kAbsent;
    if (i >= op.weights.size() || op.weights[i] == kNone) return kAbsent;
    return oracle_.tensor(op.weights[i]);
  }
  Rows64& value(ValueId v) { return values_[static_cast<size_t>(v)]; }
  // An operand that is what it seems: nothing is left to rotate.
  const Rows64& plain(const Op& op, size_t i) {
    if (value(op.in[i]).rotation.rope != kNone) refuse(op, "rotated values as an operand");
    return value(op.in[i]);
  }

  // ---- which rows

  // Outputs of `rows`; keys and values, by cache, of `keys`.
  void find_needed(std::span<const int64_t> rows, std::vector<Set> keys) {
    std::vector<Set> needed(plan_.values.size());
    for (const plan::Output& output : plan_.outputs)
      needed[static_cast<size_t>(output.value)] = {rows.begin(), rows.end()};
    for (size_t k = plan_.ops.size(); k-- > 0;) need(plan_.ops[k], &needed, &keys);
    for (size_t v = 0; v < needed.size(); ++v) {
      Rows64 made{std::move(needed[v]), static_cast<size_t>(plan_.values[v].width), {}, {}};
      made.data.resize(made.index.size() * made.width);
      values_.push_back(std::move(made));
    }
  }

  void need(const Op& op, std::vector<Set>* needed, std::vector<Set>* keys) const {
    Set rows;
    if (op.kind == OpKind::append) rows = (*keys)[static_cast<size_t>(plan::cache_of(op))];
    for (const ValueId out : op.out) unite(&rows, (*needed)[static_cast<size_t>(out)]);
    if (op.kind == OpKind::attend) {
      if (plan::cache_of(op) == kNone) refuse(op, "attention without a cache");
      const auto c = static_cast<size_t>(plan::cache_of(op));
      if (target_ == nullptr) unite(&(*keys)[c], visible_to(sights_[c], rows));
      unite(&(*needed)[static_cast<size_t>(op.in[0])], rows);
      return;
    }
    if (op.kind == OpKind::short_conv)
      rows = with_rows_before(
          rows,
          plan_.states.at(static_cast<size_t>(op.attr.as<plan::ShortConvAttributes>().state)).rows);
    for (const ValueId in : op.in) unite(&(*needed)[static_cast<size_t>(in)], rows);
  }

  // The window backwards until a key is not seen, then the sinks.
  static Set visible_to(const Sight& sight, const Set& rows) {
    Set keys;
    for (const int64_t p : rows) {
      int64_t s = p;
      for (; s >= 0 && sight.visible(p, s); --s) keys.push_back(s);
      for (int64_t sink = 0; sink < s && sight.visible(p, sink); ++sink) keys.push_back(sink);
    }
    sort_unique(&keys);
    return keys;
  }

  static Set with_rows_before(const Set& rows, int64_t count) {
    Set all;
    for (const int64_t p : rows)
      for (int64_t s = std::max<int64_t>(0, p - count); s <= p; ++s) all.push_back(s);
    sort_unique(&all);
    return all;
  }

  // ---- ops

  void compute(const Op& op) {
    switch (op.kind) {
      case OpKind::embed:
      case OpKind::gather:
        return embed(op);
      case OpKind::input:
        return input(op);
      case OpKind::linear:
        return linear(op);
      case OpKind::grouped_linear:
        return grouped_linear(op);
      case OpKind::matmul:
        return matmul(op);
      case OpKind::rms_norm:
        return rms_norm(op);
      case OpKind::rope:
        return rope(op);
      case OpKind::append:
        return append(op);
      case OpKind::attend:
        return attend(op);
      case OpKind::arithmetic:
        return arithmetic(op);
      case OpKind::silu:
      case OpKind::gelu:
      case OpKind::gelu_erf:
      case OpKind::relu:
      case OpKind::sigmoid:
      case OpKind::tanh:
        return map(op, [&op](double x) { return activation(op.kind, x); });
      case OpKind::sqrt:
        return map(op, [](double x) { return std::sqrt(x); });
      case OpKind::row_mean:
        return row_mean(op);
      case OpKind::concat:
        return concat(op);
      case OpKind::softcap:
        return map(op, [c = op.attr.as<plan::SoftcapAttributes>().cap](double x) {
          return c * std::tanh(x / c);
        });
      case OpKind::split:
        return split(op);
      case OpKind::slice:
      case OpKind::view_layer:
        return columns(op, op.out[0],
                       static_cast<size_t>(op.attr.as<plan::ColumnsAttributes>().first));
      case OpKind::select_rows:
        columns(op, op.out[0], 0);
        value(op.out[0]).rotation = value(op.in[0]).rotation;
        return;
      case OpKind::short_conv:
        return short_conv(op);
      default:
        refuse(op, "this operation");
    }
  }

  void embed(const Op& op) {
    if (op.attr.as<plan::EmbedAttributes>().by != plan::EmbedAttributes::By::kToken)
      refuse(op, "rows picked by position or type");
    Rows64& out = value(op.out[0]);
    const std::vector<double>& table = weight(op, 0);
    for (size_t i = 0; i < out.index.size(); ++i) {
      const auto token = static_cast<size_t>(tokens_[static_cast<size_t>(out.index[i])]);
      std::copy_n(table.begin() + static_cast<std::ptrdiff_t>(token * out.width), out.width,
                  out.row(i));
    }
  }

  void input(const Op& op) {
    Rows64& out = value(op.out[0]);
    if (hidden_.size() != out.width) refuse(op, "a row of this width");
    for (size_t i = 0; i < out.index.size(); ++i)
      std::copy(hidden_.begin(), hidden_.end(), out.row(i));
  }

  void linear(const Op& op) {
    const Rows64& in = plain(op, 0);
    Rows64& out = value(op.out[0]);
    const std::vector<double>& w = oracle_.matrices_.at(static_cast<size_t>(op.weights[0]));
    const std::vector<double>& bias = weight(op, 1);
    for (size_t i = 0; i < out.index.size(); ++i) {
      const double* x = in.at(out.index[i]);
      double* y = out.row(i);
      if (!bias.empty()) std::copy(bias.begin(), bias.end(), y);
      for (size_t k = 0; k < in.width; ++k) {
        const double* column = w.data() + k * out.width;
        for (size_t o = 0; o < out.width; ++o) y[o] += x[k] * column[o];
      }
    }
  }

  // y[g] = W[g] x[g], or W[g] x where all matrices read one vector.
  void grouped_linear(const Op& op) {
    const Rows64& in = plain(op, 0);
    Rows64& out = value(op.out[0]);
    const std::vector<double>& w = weight(op, 0);
    const size_t k = last(op.in[0]), n = last(op.out[0]);
    for (size_t i = 0; i < out.index.size(); ++i) {
      const double* x = in.at(out.index[i]);
      for (size_t o = 0; o < out.width; ++o) {
        const double* vector = in.width == k ? x : x + o / n * k;
        for (size_t j = 0; j < k; ++j) out.row(i)[o] += w[o * k + j] * vector[j];
      }
    }
  }

  void matmul(const Op& op) {
    const Rows64 &a = plain(op, 0), &b = plain(op, 1);
    Rows64& out = value(op.out[0]);
    const size_t n = last(op.in[0]), k = last(op.in[1]);
    for (size_t i = 0; i < out.index.size(); ++i) {
      const double *x = a.at(out.index[i]), *y = b.at(out.index[i]);
      for (size_t o = 0; o < out.width; ++o)
        for (size_t j = 0; j < n; ++j) out.row(i)[o] += x[o / k * n + j] * y[j * k + o % k];
    }
  }

  void row_mean(const Op& op) {
    const Rows64& in = plain(op, 0);
    Rows64& out = value(op.out[0]);
    const size_t n = last(op.in[0]);
    for (size_t i = 0; i < out.index.size(); ++i) {
      const double* x = in.at(out.index[i]);
      for (size_t j = 0; j < in.width; ++j) out.row(i)[j / n] += x[j] / static_cast<double>(n);
    }
  }

  void rms_norm(const Op& op) {
    const Rows64& in = plain(op, 0);
    Rows64& out = value(op.out[0]);
    const std::vector<double>& w = weight(op, 0);
    const size_t n = last(op.in[0]);
    for (size_t i = 0; i < out.index.size(); ++i) {
      for (size_t first = 0; first < in.width; first += n) {
        const double* x = in.at(out.index[i]) + first;
        double* y = out.row(i) + first;
        double sum = 0;
        for (size_t j = 0; j < n; ++j) sum += x[j] * x[j];
        const double by =
            1 / std::sqrt(sum / static_cast<double>(n) + op.attr.as<plan::NormAttributes>().eps);
        for (size_t j = 0; j < n; ++j) y[j] = x[j] * by * (w.empty() ? 1 : w[j]);
      }
    }
  }

  void rope(const Op& op) {
    const auto& attr = op.attr.as<plan::RopeAttributes>();
    if (attr.sinks && !value(op.out[0]).index.empty())
      refuse(op, "who reads the engine's second query");
    columns(op, op.out[0], 0);
    value(op.out[0]).rotation = {attr.rope, attr.adjacent};
  }

  void append(const Op& op) {
    const auto c = static_cast<size_t>(plan::cache_of(op));
    keys_.resize(plan_.caches.size());
    values_of_keys_.resize(plan_.caches.size());
    plain(op, 1);
    keys_[c] = op.in[0], values_of_keys_[c] = op.in[1];
  }

  // ---- attention

  // Cosine and sine of a distance, [dims / 2] each.
  const double* angles(int32_t rope, int64_t distance) {
    const plan::RopeSpec& spec = plan_.ropes[static_cast<size_t>(rope)];
    const auto half = static_cast<size_t>(spec.dims / 2);
    tables_.resize(plan_.ropes.size());
    std::vector<double>& table = tables_[static_cast<size_t>(rope)];
    for (size_t d = table.size() / (2 * half); d <= static_cast<size_t>(distance); ++d) {
      std::vector<double> sines;
      for (size_t i = 0; i < half; ++i) {
        double theta = std::pow(spec.base, -2.0 * static_cast<double>(i) / spec.dims) * spec.scale;
        if (spec.factors != kNone) theta /= oracle_.tensor(spec.factors)[i];
        table.push_back(std::cos(static_cast<double>(d) * theta));
        sines.push_back(std::sin(static_cast<double>(d) * theta));
      }
      table.insert(table.end(), sines.begin(), sines.end());
    }
    return table.data() + static_cast<size_t>(distance) * 2 * half;
  }

  // The product of a key and the query turned by their distance.
  double score(const Rotation& rotation, int64_t distance, const double* q, const double* k,
               size_t width) {
    if (rotation.rope == kNone) {
      double dot = 0;
      for (size_t j = 0; j < width; ++j) dot += q[j] * k[j];
      return dot;
    }
    const plan::RopeSpec& spec = plan_.ropes[static_cast<size_t>(rotation.rope)];
    const auto dims = static_cast<size_t>(spec.dims);
    const double* turn = angles(rotation.rope, distance);
    double dot = 0, rest = 0;
    for (size_t i = 0; i < dims / 2; ++i) {
      const size_t a = rotation.adjacent ? 2 * i : i, b = rotation.adjacent ? a + 1 : i + dims / 2;
      const double c = turn[i], s = turn[dims / 2 + i];
      dot += (q[a] * c - q[b] * s) * k[a] + (q[a] * s + q[b] * c) * k[b];
    }
    for (size_t j = dims; j < width; ++j) rest += q[j] * k[j];
    return dot * spec.attn_factor * spec.attn_factor + rest;
  }

  // Whether a rotation of this plan is one of another's.
  bool same(const Rotation& own, const Pass& other, const Rotation& theirs) const {
    if (own.rope == kNone || theirs.rope == kNone) return own.rope == theirs.rope;
    plan::RopeSpec a = plan_.ropes[static_cast<size_t>(own.rope)];
    plan::RopeSpec b = other.plan_.ropes[static_cast<size_t>(theirs.rope)];
    static const std::vector<double> kAbsent;
    const auto& factors = a.factors == kNone ? kAbsent : oracle_.tensor(a.factors);
    const auto& others = b.factors == kNone ? kAbsent : other.oracle_.tensor(b.factors);
    a.factors = b.factors = kNone;
    return a == b && factors == others && own.adjacent == theirs.adjacent;
  }

  void attend(const Op& op) {
    const auto& attr = op.attr.as<plan::AttendAttributes>();
    const auto c = static_cast<size_t>(plan::cache_of(op));
    Pass& owner = target_ != nullptr ? *target_ : *this;
    const auto own =
        static_cast<size_t>(target_ != nullptr ? plan_.caches[c].target : static_cast<int32_t>(c));
    if (attr.mask != plan::Mask::kCausal) refuse(op, "this attention");
    const Rows64 &q = value(op.in[0]), &k = owner.value(owner.keys_.at(own)),
                 &v = owner.value(owner.values_of_keys_.at(own));
    if (!same(q.rotation, owner, k.rotation))
      refuse(op, "queries and keys that are rotated differently");
    Rows64& out = value(op.out[0]);
    const size_t heads = static_cast<size_t>(attr.heads),
                 shared = heads / static_cast<size_t>(attr.kv_heads),
                 dim = static_cast<size_t>(attr.head_dim),
                 value_dim = static_cast<size_t>(attr.value_dim);
    std::vector<double> scores;
    std::vector<int64_t> seen;
    for (size_t i = 0; i < out.index.size(); ++i) {
      const int64_t p = out.index[i];
      seen.clear();
      for (const int64_t s : k.index)
        if (sights_[c].visible(p, s)) seen.push_back(s);
      for (size_t h = 0; h < heads; ++h) {
        scores.clear();
        for (const int64_t s : seen) {
          double x = score(q.rotation, sights_[c].distance(p, s), q.at(p) + h * dim,
                           k.at(s) + h / shared * dim, dim) *
                     attr.scale;
          if (attr.softcap > 0) x = attr.softcap * std::tanh(x / attr.softcap);
          scores.push_back(x);
        }
        const double max = *std::max_element(scores.begin(), scores.end());
        double sum = 0;
        for (double& x : scores) sum += x = std::exp(x - max);
        double* y = out.row(i) + h * value_dim;
        for (size_t s = 0; s < seen.size(); ++s) {
          const double* row = v.at(seen[s]) + h / shared * value_dim;
          for (size_t j = 0; j < value_dim; ++j) y[j] += scores[s] / sum * row[j];
        }
      }
    }
  }

  // ---- element by element

  template <class F>
  void map(const Op& op, F&& function) {
    const Rows64& in = plain(op, 0);
    Rows64& out = value(op.out[0]);
    for (size_t i = 0; i < out.index.size(); ++i) {
      const double* x = in.at(out.index[i]);
      std::transform(x, x + in.width, out.row(i), function);
    }
  }

  void arithmetic(const Op& op) {
    const auto& attr = op.attr.as<plan::ArithmeticAttributes>();
    const auto how = attr.arithmetic;
    if (op.in.size() == 1 && op.weights.empty()) {
      return map(op, [&](double x) {
        return attr.scalar_first ? combine(how, attr.scalar, x) : combine(how, x, attr.scalar);
      });
    }
    const Rows64& a = plain(op, 0);
    Rows64& out = value(op.out[0]);
    const Rows64* b = op.in.size() == 2 ? &plain(op, 1) : nullptr;
    // One number of b for so many of a, then b from its beginning again.
    const size_t n = b != nullptr ? b->width : weight(op, 0).size();
    const size_t each = b != nullptr && last(op.in[1]) == 1 ? a.width / n : 1;
    for (size_t i = 0; i < out.index.size(); ++i) {
      const double* x = a.at(out.index[i]);
      const double* y = b != nullptr ? b->at(out.index[i]) : weight(op, 0).data();
      for (size_t j = 0; j < a.width; ++j) out.row(i)[j] = combine(how, x[j], y[j / each % n]);
    }
  }

  // ---- copies

  // Numbers [first, first + width) of the operand's row.
  void columns(const Op& op, ValueId to, size_t first) {
    const Rows64& in = value(op.in[0]);
    if (op.kind != OpKind::select_rows) plain(op, 0);
    Rows64& out = value(to);
    for (size_t i = 0; i < out.index.size(); ++i)
      std::copy_n(in.at(out.index[i]) + first, out.width, out.row(i));
  }

  void concat(const Op& op) {
    Rows64& out = value(op.out[0]);
    size_t first = 0;
    for (size_t part = 0; part < op.in.size(); ++part) {
      const Rows64& in = plain(op, part);
      for (size_t i = 0; i < out.index.size(); ++i)
        std::copy_n(in.at(out.index[i]), in.width, out.row(i) + first);
      first += in.width;
    }
  }

  void split(const Op& op) {
    size_t first = 0;
    for (const ValueId out : op.out) {
      columns(op, out, first);
      first += value(out).width;
    }
  }

  // y[p] = sum over t of w[t] * x[p - (taps - 1) + t]; nothing is before the first row.
  void short_conv(const Op& op) {
    const Rows64& in = plain(op, 0);
    Rows64& out = value(op.out[0]);
    const std::vector<double>& w = weight(op, 0);
    const auto taps = static_cast<int64_t>(w.size() / in.width);
    for (size_t i = 0; i < out.index.size(); ++i) {
      for (int64_t t = 0; t < taps; ++t) {
        const int64_t s = out.index[i] - (taps - 1) + t;
        if (s < 0) continue;
        const double* x = in.at(s);
        for (size_t j = 0; j < in.width; ++j)
          out.row(i)[j] += w[j * static_cast<size_t>(taps) + static_cast<size_t>(t)] * x[j];
      }
    }
  }

  const Oracle& oracle_;
  const Plan& plan_;
  std::span<const Token> tokens_;
  Pass* target_ = nullptr;                      // a draft model's
  std::span<const double> hidden_;              // of a draft model's step
  std::vector<Sight> sights_;                   // [cache]
  std::vector<Rows64> values_;                  // [value]
  std::vector<ValueId> keys_, values_of_keys_;  // [cache]
  std::vector<std::vector<double>> tables_;     // [rope]
};

const std::vector<double>& Oracle::tensor(plan::TensorId id) const {
  return plan::Tensors::of_target(id)
             ? target_->tensors_.at(static_cast<size_t>(id - plan::kTargetTensor))
             : tensors_.at(static_cast<size_t>(id));
}

Oracle::Oracle(const std::string& path, const std::string& arch_dir, const Oracle* target)
    : target_(target) {
  const auto get = [](auto result) {
    if (!result) throw std::runtime_error(result.error().message);
    return *std::move(result);
  };
  file_ = get(format::GgufFile::open(path));
  const plan::ArchLibrary library = get(plan::ArchLibrary::open(arch_dir));
  compiled_ = get(plan::compile(
      library, file_,
      {.precise = true, .fuse = false, .target = target != nullptr ? &target->file_ : nullptr}));
  for (const format::TensorInfo& tensor : file_.tensors()) tensors_.push_back(dequantized(tensor));
  matrices_.resize(tensors_.size());
  for (const Op& op : compiled_.plan.ops) {
    if (op.kind != OpKind::linear) continue;
    const auto t = static_cast<size_t>(op.weights[0]);
    matrices_[t] = transposed(tensors_[t], file_.tensors()[t].dims[0]);
  }
}

DoubleRows Oracle::logits(std::span<const Token> tokens, std::span<const int64_t> rows,
                          const std::optional<StreamOptions>& stream) const {
  Pass pass(*this, tokens, stream);
  pass.run(rows);
  return pass.output("logits", rows);
}

Oracle::Draft Oracle::draft(std::span<const Token> tokens, Token token,
                            std::span<const double> hidden,
                            const std::optional<StreamOptions>& stream) const {
  Pass keys(*target_, tokens, stream);
  keys.run_for_row_behind();
  std::vector<Token> all(tokens.begin(), tokens.end());
  all.push_back(token);
  const std::vector<int64_t> row = {static_cast<int64_t>(tokens.size())};
  Pass step(*this, all, &keys, hidden);
  step.run(row);
  return {step.output("logits", row)[0], step.output("hidden", row)[0]};
}

DoubleRows Oracle::logits(std::span<const Token> tokens,
                          const std::optional<StreamOptions>& stream) const {
  std::vector<int64_t> rows(tokens.size());
  std::iota(rows.begin(), rows.end(), 0);
  return logits(tokens, rows, stream);
}

}  // namespace culet::test
