// Takes an expression and a scope, gives a value: what a name, a member and an element mean in a
// model's configuration. Everything else is the evaluator's (expr/evaluator.h).
#include "convert/expression.h"

#include "expr/evaluator.h"
#include "expr/parser.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <utility>

namespace culet::convert {

using Json = nlohmann::ordered_json;

namespace {

using expr::Absent;
using expr::Expr;
using Kind = Expr::Kind;

constexpr int kMostSteps = 100'000;  // of one evaluation: definitions may use each other often
constexpr int kMostFrames = 1000;    // of one evaluation's nesting

class JsonPart : public expr::Thing {
 public:
  explicit JsonPart(const Json* json) : json_(json) {}
  const Json& json() const { return *json_; }
  std::string_view kind() const override { return json_->is_array() ? "an array" : "an object"; }
  std::string show() const override { return std::string(kind()); }

 private:
  const Json* json_;
};

// What lies in JSON: null is as good as absent.
Value from_json(const Json* json, const std::string& name) {
  if (json == nullptr || json->is_null()) return {Absent{name}};
  if (json->is_boolean()) return {json->get<bool>()};
  if (json->is_number()) return {json->get<double>()};
  if (json->is_string()) return {json->get<std::string>()};
  return {std::make_shared<JsonPart>(json)};
}

const Json* member_or_null(const Json* object, std::string_view name) {
  if (object == nullptr || !object->is_object()) return nullptr;
  const auto at = object->find(name);
  return at == object->end() ? nullptr : &*at;
}

Value member_of(const Value& of, std::string_view name) {
  if (of.is_none()) return of;
  const auto* const part = of.thing<JsonPart>();
  return from_json(part ? member_or_null(&part->json(), name) : nullptr, std::string(name));
}

}  // namespace

// What the evaluator asks while it reads an expression.
class Scope::Names : public expr::Host {
 public:
  Names(const Scope& scope, std::optional<int64_t> index)
      : scope_(scope), index_(index), evaluator_(*this, expr::AbsentRule::kSpreads) {}

  expr::Evaluator& evaluator() { return evaluator_; }

  Result<void> enter(const Expr& e) override {
    if (++steps_ > kMostSteps) return error(e, "this takes too many steps");
    if (depth_ >= kMostFrames) return error(e, "definitions use each other too deeply here");
    ++depth_;
    return {};
  }
  void leave() override { --depth_; }

  // a.b.c: the member c of the member b of a.
  Result<Value> name(const Expr& e) override {
    std::string_view rest = e.text;
    const std::string_view first = rest.substr(0, rest.find('.'));
    CULET_TRY(Value value, plain_name(e, std::string(first)));
    while (rest.find('.') != std::string_view::npos) {
      rest.remove_prefix(rest.find('.') + 1);
      value = member_of(value, rest.substr(0, rest.find('.')));
    }
    return value;
  }

  Result<Value> before_default(const Expr& e) override { return evaluator_.eval(e); }

  std::string functions() const override { return "has, first"; }
  Result<std::optional<Value>> call(const Expr& e) override {
    if (e.text == "has" && e.kids.size() == 1) {
      CULET_TRY(const Value of, evaluator_.eval(*e.kids[0]));
      return Value{!of.is_none()};
    }
    if (e.text != "first" || e.kids.size() != 2) return std::optional<Value>();
    return first(e);
  }

  Result<Value> other(const Expr& e) override {
    if (e.kind == Kind::kIndex) return element(e);
    if (e.kind == Kind::kMember) {
      CULET_TRY(const Value of, evaluator_.eval(*e.kids[0]));
      return member_of(of, e.text);
    }
    return error(e, "this has no meaning in a family file");
  }

  // The text behind the message is the caller's (Scope::value).
  tl::unexpected<Error> error(const Expr&, std::string_view message,
                              ErrorCode = ErrorCode::kInvalidArgument) const override {
    return fail(ErrorCode::kUnsupported, std::string(message));
  }

 private:
  Result<Value> plain_name(const Expr& e, const std::string& word) {
    if (word == "i" && index_) return Value{double(*index_)};
    if (const auto at = scope_.definitions_.find(word); at != scope_.definitions_.end()) {
      if (std::find(open_.begin(), open_.end(), word) != open_.end()) {
        return error(e, fmt::format("the definition of {} needs itself", word));
      }
      open_.push_back(at->first);
      Result<Value> result = evaluator_.eval(at->second.root());
      open_.pop_back();
      return result;
    }
    if (const auto at = scope_.objects_.find(word); at != scope_.objects_.end()) {
      return from_json(at->second, word);
    }
    for (const Json* config : scope_.configs_) {
      Value found = from_json(member_or_null(config, word), word);
      if (!found.is_none()) return found;
    }
    return Value{Absent{word}};
  }

  Result<const Json*> array(const Value& of, const Expr& e) const {
    const auto* const part = of.thing<JsonPart>();
    if (part != nullptr && part->json().is_array()) return &part->json();
    return error(e, fmt::format("{} ({}) has no elements", of.kind(), of.show()));
  }

  Result<Value> element(const Expr& e) {
    CULET_TRY(Value of, evaluator_.eval(*e.kids[0]));
    CULET_TRY(Value index, evaluator_.eval(*e.kids[1]));
    if (of.is_none()) return of;
    if (index.is_none()) return index;
    CULET_TRY(const Json* json, array(of, e));
    CULET_TRY(const double number, evaluator_.to_number(index, *e.kids[1]));
    const bool inside = number >= 0 && number < double(json->size());
    return from_json(inside ? &(*json)[size_t(number)] : nullptr,
                     fmt::format("element {} of an array of {}", number, json->size()));
  }

  // The position of the first element that is equal to a value.
  Result<std::optional<Value>> first(const Expr& e) {
    CULET_TRY(Value of, evaluator_.eval(*e.kids[0]));
    CULET_TRY(Value wanted, evaluator_.eval(*e.kids[1]));
    if (of.is_none()) return of;
    if (wanted.is_none()) return wanted;
    CULET_TRY(const Json* json, array(of, e));
    for (size_t i = 0; i < json->size(); ++i) {
      if (expr::equal(from_json(&(*json)[i], ""), wanted)) return Value{double(i)};
    }
    return Value{Absent{fmt::format("element {}", wanted.show())}};
  }

  const Scope& scope_;
  std::optional<int64_t> index_;
  expr::Evaluator evaluator_;
  std::vector<std::string_view> open_;  // definitions being evaluated
  int steps_ = 0, depth_ = 0;
};

Result<Expression> Expression::parse(std::string_view text) {
  return parse({{"expression", std::string(text), 0}}, 0, 0, text);
}

Result<Expression> Expression::parse(const std::vector<expr::SourceFile>& files, int file,
                                     size_t begin, std::string_view text) {
  CULET_TRY(expr::ExprPtr root, expr::parse_expression(files, file, begin, begin + text.size()));
  Expression expression;
  expression.root_ = std::move(root);
  expression.text_ = text;
  return expression;
}

Result<Value> Scope::value(const Expression& expression, std::optional<int64_t> index) const {
  Names names(*this, index);
  Result<Value> result = names.evaluator().eval(expression.root());
  if (result) return result;
  return fail(result.error().code,
              fmt::format("{} (in: {})", result.error().message, expression.text()));
}

Result<double> Scope::number(const Expression& expression, std::optional<int64_t> index) const {
  CULET_TRY(const Value found, value(expression, index));
  if (const double* number = found.number()) return *number;
  if (const Absent* absent = found.absent()) {
    return fail(ErrorCode::kNotFound, fmt::format("the configuration has no {} (for: {})",
                                                  absent->name, expression.text()));
  }
  return fail(ErrorCode::kUnsupported,
              fmt::format("a number is needed here, but this is {} ({}) (in: {})", found.kind(),
                          found.show(), expression.text()));
}

Result<int64_t> Scope::integer(const Expression& expression, std::optional<int64_t> index) const {
  constexpr double kMost = 9007199254740992;  // 2^53
  CULET_TRY(const double found, number(expression, index));
  if (found == std::floor(found) && std::fabs(found) <= kMost) return int64_t(found);
  return fail(ErrorCode::kUnsupported,
              fmt::format("{} is not a whole number (in: {})", found, expression.text()));
}

Result<bool> Scope::holds(const Expression& expression, std::optional<int64_t> index) const {
  CULET_TRY(const Value found, value(expression, index));
  if (found.is_none()) return false;
  if (const bool* is = found.flag()) return *is;
  return fail(ErrorCode::kUnsupported,
              fmt::format("a condition (yes or no) is needed here, but this is {} ({}) (in: {})",
                          found.kind(), found.show(), expression.text()));
}

}  // namespace culet::convert
