#include "expr/evaluator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

namespace culet::expr {
namespace {

using Kind = Expr::Kind;

struct Function {
  std::string_view name;
  size_t operands;
  double (*apply)(double, double);
};
constexpr Function kFunctions[] = {
    {"sqrt", 1, [](double x, double) { return std::sqrt(x); }},
    {"floor", 1, [](double x, double) { return std::floor(x); }},
    {"ceil", 1, [](double x, double) { return std::ceil(x); }},
    {"ln", 1, [](double x, double) { return std::log(x); }},
    {"pow", 2, [](double x, double y) { return std::pow(x, y); }},
    {"min", 2, [](double x, double y) { return std::min(x, y); }},
    {"max", 2, [](double x, double y) { return std::max(x, y); }},
};

const Function* find_function(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kFunctions), std::end(kFunctions),
                                         [&](const Function& f) { return f.name == name; });
  return found == std::end(kFunctions) ? nullptr : found;
}

bool is_thing(const Value& v) { return v.thing<Thing>() != nullptr; }

}  // namespace

bool is_function(std::string_view name) { return find_function(name) != nullptr; }

std::optional<Value> constant(std::string_view name) {
  if (name == "none") return Value{Absent{"none"}};
  if (name == "yes" || name == "true") return Value{true};
  if (name == "no" || name == "false") return Value{false};
  if (name == "pi") return Value{3.14159265358979323846};
  return std::nullopt;
}

Result<Value> Evaluator::eval(const Expr& e) {
  CULET_TRY_VOID(host_.enter(e));
  Result<Value> result = node(e);
  host_.leave();
  return result;
}

Result<Value> Evaluator::node(const Expr& e) {
  switch (e.kind) {
    case Kind::kNumber:
      return Value{e.number};
    case Kind::kString:
      return Value{e.text};
    case Kind::kName: {
      const std::optional<Value> fixed = constant(e.text);
      return fixed ? Result<Value>(*fixed) : host_.name(e);
    }
    case Kind::kUnary:
      return unary(e);
    case Kind::kBinary:
      return binary(e);
    case Kind::kIf: {
      CULET_TRY(bool yes, flag(*e.kids[0]));
      return eval(*e.kids[yes ? 1 : 2]);
    }
    case Kind::kDefault: {
      CULET_TRY(Value found, host_.before_default(*e.kids[0]));
      return found.is_none() ? eval(*e.kids[1]) : Result<Value>(std::move(found));
    }
    case Kind::kCall:
      return call(e);
    default:
      return host_.other(e);
  }
}

// ---- kinds that are needed

Result<double> Evaluator::to_number(const Value& value, const Expr& e) const {
  const double* n = value.number();
  if (n && std::isnan(*n))
    return host_.error(e,
                       "a number is needed here, but this is not a number (nan)" + host_.origin(e),
                       ErrorCode::kCorrupt);
  if (n) return *n;
  return host_.error(e, fmt::format("a number is needed here, but this is {} ({}){}", value.kind(),
                                    value.show(), host_.origin(e)));
}

Result<bool> Evaluator::to_flag(const Value& value, const Expr& e) const {
  if (spreads(value)) return false;
  if (const bool* b = value.flag()) return *b;
  return host_.error(e, fmt::format("a condition (yes or no) is needed here, but this is {} ({}){}",
                                    value.kind(), value.show(), host_.origin(e)));
}

Result<double> Evaluator::number(const Expr& e) {
  CULET_TRY(const Value value, eval(e));
  return to_number(value, e);
}

Result<bool> Evaluator::flag(const Expr& e) {
  CULET_TRY(const Value value, eval(e));
  return to_flag(value, e);
}

Result<Value> Evaluator::finite(double n, const Expr& e) const {
  if (std::isfinite(n)) return Value{n};
  return host_.error(e, "the result of this is no finite number");
}

// ---- operators

Result<Value> Evaluator::unary(const Expr& e) {
  const Expr& operand = *e.kids[0];
  if (e.text == "not") {
    CULET_TRY(bool b, flag(operand));
    return Value{!b};
  }
  CULET_TRY(Value value, eval(operand));
  if (spreads(value)) return value;
  CULET_TRY(double n, to_number(value, operand));
  return Value{-n};
}

Result<Value> Evaluator::binary(const Expr& e) {
  const std::string& op = e.text;
  if (op == "and" || op == "or") {
    CULET_TRY(bool left, flag(*e.kids[0]));
    if (left == (op == "or")) return Value{left};
    CULET_TRY(bool right, flag(*e.kids[1]));
    return Value{right};
  }
  CULET_TRY(Value a, eval(*e.kids[0]));
  CULET_TRY(Value b, eval(*e.kids[1]));
  if (spreads(a)) return a;
  if (spreads(b)) return b;
  return op.find_first_of("=<>") != std::string::npos ? compare(e, a, b) : compute(e, a, b);
}

Result<Value> Evaluator::compare(const Expr& e, const Value& a, const Value& b) const {
  const std::string& op = e.text;
  if (op == "==" || op == "!=") {
    if (is_thing(a) || is_thing(b))
      return host_.error(
          e, fmt::format("{}{} cannot be compared; has(NAME) says whether something is there",
                         is_thing(a) ? a.kind() : b.kind(),
                         host_.origin(*e.kids[is_thing(a) ? 0 : 1])));
    if (a.value.index() != b.value.index() && !a.is_none() && !b.is_none())
      return host_.error(
          e, fmt::format("{}{} is compared with {}{}", a.kind(), host_.origin(*e.kids[0]), b.kind(),
                         host_.origin(*e.kids[1])));
    return Value{equal(a, b) == (op == "==")};
  }
  CULET_TRY(double x, to_number(a, *e.kids[0]));
  CULET_TRY(double y, to_number(b, *e.kids[1]));
  if (op == "<") return Value{x < y};
  if (op == ">") return Value{x > y};
  return Value{op == "<=" ? x <= y : x >= y};
}

Result<Value> Evaluator::compute(const Expr& e, const Value& a, const Value& b) const {
  const std::string& op = e.text;
  CULET_TRY(double x, to_number(a, *e.kids[0]));
  CULET_TRY(double y, to_number(b, *e.kids[1]));
  if (op == "+") return finite(x + y, e);
  if (op == "-") return finite(x - y, e);
  if (op == "*") return finite(x * y, e);
  if (y == 0) return host_.error(e, fmt::format("division of {} by zero", x));
  return finite(op == "mod" ? x - y * std::floor(x / y) : x / y, e);
}

// ---- functions

Result<Value> Evaluator::call(const Expr& e) {
  CULET_TRY(std::optional<Value> own, host_.call(e));
  if (own) return *std::move(own);
  const Function* function = find_function(e.text);
  if (!function) {
    std::string known = host_.functions();
    for (const Function& f : kFunctions) known += fmt::format(", {}", f.name);
    return host_.error(e, fmt::format("there is no function '{}' (functions: {})", e.text, known));
  }
  if (e.kids.size() != function->operands || !e.named.empty())
    return host_.error(e, fmt::format("{} takes {} argument(s)", e.text, function->operands));
  double operands[2] = {};
  for (size_t k = 0; k < e.kids.size(); ++k) {
    CULET_TRY(Value value, eval(*e.kids[k]));
    if (spreads(value)) return value;
    CULET_TRY(operands[k], to_number(value, *e.kids[k]));
  }
  return finite(function->apply(operands[0], operands[1]), e);
}

}  // namespace culet::expr
