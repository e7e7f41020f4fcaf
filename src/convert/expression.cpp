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

const Json* member_or_absent(const Json* object, std::string_view name) {
  if (object == nullptr || !object->is_object()) return nullptr;
  const auto at = object->find(name);
  return at == object->end() ? nullptr : &*at;
}

bool is_plain(const Json& json) { return !json.is_object() && !json.is_array(); }

// The member that is called by a number, perhaps with zeros in front: "5" or "05".
const Json* numbered_member(const Json& object, double number) {
  if (!object.is_object()) return nullptr;
  for (const auto& [name, value] : object.items()) {
    if (name.empty() || name.size() > 9) continue;
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (std::stoi(name) == number) return &value;
  }
  return nullptr;
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

  std::string functions() const override {
    return "has, first, count, only, same, numbered, has_tensor, same_tensors";
  }
  Result<std::optional<Value>> call(const Expr& e) override {
    struct Function {
      std::string_view name;
      size_t operands;
      Result<std::optional<Value>> (Names::*call)(const std::vector<Value>&, const Expr&);
    };
    static constexpr Function kFunctions[] = {{"has", 1, &Names::has},
                                              {"first", 2, &Names::first},
                                              {"count", 1, &Names::count},
                                              {"only", 1, &Names::only},
                                              {"same", 2, &Names::same},
                                              {"numbered", 2, &Names::numbered},
                                              {"has_tensor", 1, &Names::has_tensor},
                                              {"same_tensors", 2, &Names::same_tensors}};
    for (const Function& function : kFunctions) {
      if (function.name != e.text || function.operands != e.kids.size()) continue;
      std::vector<Value> operands;
      for (const auto& kid : e.kids) {
        CULET_TRY(operands.emplace_back(), evaluator_.eval(*kid));
      }
      return (this->*function.call)(operands, e);
    }
    return std::optional<Value>();
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
      return found(at->second, word);
    }
    return of_configuration(e, word);
  }

  // A member of the configuration under any of its names. Others that say the same are read too.
  Result<Value> of_configuration(const Expr& e, const std::string& word) {
    std::vector<std::string_view> names{word};
    if (const auto at = scope_.aliases_.find(word); at != scope_.aliases_.end()) {
      names.insert(names.end(), at->second.begin(), at->second.end());
    }
    const Json* first = nullptr;
    for (const Json* config : scope_.configs_) {
      for (const std::string_view name : names) {
        const Json* json = member_or_absent(config, name);
        if (json == nullptr) continue;
        if (first == nullptr) {
          first = json;
        } else if (*json == *first) {
          mark_all(*json);
        }
      }
    }
    if (first != nullptr) return found(first, word);
    return of_defaults(e, word);
  }

  Result<Value> of_defaults(const Expr& e, const std::string& word) {
    const auto at = scope_.defaults_.find(word);
    if (at == scope_.defaults_.end()) return Value{Absent{word}};
    if (std::find(open_.begin(), open_.end(), word) != open_.end()) {
      return error(e, fmt::format("the default of {} needs itself", word));
    }
    open_.push_back(at->first);
    Result<Value> result = chosen(at->second, word);
    open_.pop_back();
    return result;
  }
  Result<Value> chosen(const std::vector<Default>& rows, const std::string& word) {
    for (const Default& row : rows) {
      if (row.when) {
        CULET_TRY(const Value holds, evaluator_.eval(row.when->root()));
        const bool* flag = holds.flag();
        if (flag == nullptr || !*flag) continue;
      }
      return evaluator_.eval(row.value.root());
    }
    return Value{Absent{word}};
  }

  // What lies in JSON, now read.
  Value found(const Json* json, const std::string& name) {
    if (json != nullptr && is_plain(*json)) scope_.read_->insert(json);
    return from_json(json, name);
  }
  void mark_all(const Json& json) {
    scope_.read_->insert(&json);
    if (is_plain(json)) return;
    for (const Json& part : json) mark_all(part);
  }

  Value member_of(const Value& of, std::string_view name) {
    if (of.is_none()) return of;
    const auto* const part = of.thing<JsonPart>();
    return found(part ? member_or_absent(&part->json(), name) : nullptr, std::string(name));
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
    return found(inside ? &(*json)[size_t(number)] : nullptr,
                 fmt::format("element {} of an array of {}", number, json->size()));
  }

  // -------- functions: their operands, evaluated
  using Operands = std::vector<Value>;

  Result<std::optional<Value>> has(const Operands& of, const Expr&) {
    return Value{!of[0].is_none()};
  }

  // The position of the first element that is equal to a value.
  Result<std::optional<Value>> first(const Operands& of, const Expr& e) {
    for (const Value& operand : of) {
      if (operand.is_none()) return operand;
    }
    CULET_TRY(const Json* json, array(of[0], e));
    mark_all(*json);
    for (size_t i = 0; i < json->size(); ++i) {
      if (expr::equal(from_json(&(*json)[i], ""), of[1])) return Value{double(i)};
    }
    return Value{Absent{fmt::format("element {}", of[1].show())}};
  }

  Result<std::optional<Value>> count(const Operands& of, const Expr& e) {
    if (of[0].is_none()) return of[0];
    CULET_TRY(const Json* json, array(of[0], e));
    return Value{double(json->size())};
  }

  // The element of a list that has one; else the value itself.
  Result<std::optional<Value>> only(const Operands& of, const Expr&) {
    const auto* const part = of[0].thing<JsonPart>();
    const bool one = part != nullptr && part->json().is_array() && part->json().size() == 1;
    return one ? found(&part->json()[0], "the only element") : of[0];
  }

  // Whether two parts of the configuration are there and say the same.
  Result<std::optional<Value>> same(const Operands& of, const Expr&) {
    const auto *const a = of[0].thing<JsonPart>(), *const b = of[1].thing<JsonPart>();
    if (a == nullptr || b == nullptr) return Value{expr::equal(of[0], of[1])};
    return Value{a->json() == b->json()};
  }

  Result<std::optional<Value>> numbered(const Operands& of, const Expr& e) {
    if (of[0].is_none()) return of[0];
    CULET_TRY(const double number, evaluator_.to_number(of[1], *e.kids[1]));
    const auto* const part = of[0].thing<JsonPart>();
    return found(part ? numbered_member(part->json(), number) : nullptr,
                 fmt::format("member {}", number));
  }

  Result<std::optional<Value>> has_tensor(const Operands& of, const Expr& e) {
    CULET_TRY(const std::string name, tensor_name(of[0], e));
    return Value{scope_.tensors_.has && scope_.tensors_.has(name)};
  }
  Result<std::optional<Value>> same_tensors(const Operands& of, const Expr& e) {
    CULET_TRY(const std::string a, tensor_name(of[0], e));
    CULET_TRY(const std::string b, tensor_name(of[1], e));
    return Value{scope_.tensors_.same && scope_.tensors_.same(a, b)};
  }
  // A name in which {i} is the layer.
  Result<std::string> tensor_name(const Value& of, const Expr& e) const {
    const std::string* text = of.text();
    if (text == nullptr) return error(e, "a name of a tensor, in quotes, is needed here");
    std::string name = *text;
    if (const size_t at = name.find("{i}"); at != std::string::npos && index_) {
      name.replace(at, 3, std::to_string(*index_));
    }
    return name;
  }

  const Scope& scope_;
  std::optional<int64_t> index_;
  expr::Evaluator evaluator_;
  std::vector<std::string_view> open_;  // definitions being evaluated
  int steps_ = 0, depth_ = 0;
};

void Scope::alias(const std::string& a, const std::string& b) {
  aliases_[a].push_back(b);
  aliases_[b].push_back(a);
}

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
