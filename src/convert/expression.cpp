// Takes the text of an expression, gives a tree; takes a tree and a scope, gives a value.
//
// Grammar, loosest first; each level is one function of ExpressionParser:
//   expr       = "if" expr "then" expr "else" expr | or ["default" expr]
//   or         = and {"or" and}
//   and        = comparison {"and" comparison}
//   comparison = "not" comparison | sum [("==" | "!=" | "<" | ">" | "<=" | ">=") sum]
//   sum        = product {("+" | "-") product}
//   product    = unary {("*" | "/" | "mod") unary}
//   unary      = "-" unary | primary {"." NAME | "[" expr "]"}
//   primary    = NUMBER | 'text' | NAME ["(" expr {"," expr} ")"] | "(" expr ")"
#include "convert/expression.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

namespace culet::convert {

using Json = nlohmann::ordered_json;

struct Expression::Node {
  enum class Kind : uint8_t { kNumber, kText, kName, kMember, kIndex, kCall, kUnary, kBinary, kIf };
  Kind kind;
  double number = 0;
  std::string word;  // text, name, member, function or operator
  std::vector<std::unique_ptr<Node>> parts{};
};

namespace {

using Node = Expression::Node;
using Kind = Node::Kind;
using NodePtr = std::unique_ptr<Node>;

constexpr int kMostDepth = 100;
constexpr size_t kMostCharacters = 1000;  // chains are trees, too: a.b.c, x + y + z
constexpr int kMostSteps = 100'000;       // of one evaluation: definitions may use each other often
constexpr int kMostFrames = 1000;         // of one evaluation's nesting
constexpr double kPi = 3.14159265358979323846;

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// ---------------------------------------------------------------- text to tree

class ExpressionParser {
 public:
  explicit ExpressionParser(std::string_view text) : text_(text) {}

  Result<NodePtr> parse() {
    if (text_.size() > kMostCharacters) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("an expression has at most {} characters, this one has {}; give "
                              "parts of it names (let)",
                              kMostCharacters, text_.size()));
    }
    CULET_TRY(NodePtr node, expression());
    skip_spaces();
    if (at_ < text_.size()) return expected("the end");
    return node;
  }

 private:
  tl::unexpected<Error> expected(std::string_view what) const {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("column {}: {} is expected", at_ + 1, what));
  }
  void skip_spaces() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  std::string_view peek_word() {
    skip_spaces();
    size_t end = at_;
    while (end < text_.size() && (is_letter(text_[end]) || is_digit(text_[end]))) ++end;
    return text_.substr(at_, end - at_);
  }
  bool take_word(std::string_view word) {
    if (peek_word() != word) return false;
    at_ += word.size();
    return true;
  }
  bool take(std::string_view symbol) {
    skip_spaces();
    if (!text_.substr(at_).starts_with(symbol)) return false;
    at_ += symbol.size();
    return true;
  }
  static NodePtr make(Kind kind, std::string_view word, NodePtr a = {}, NodePtr b = {},
                      NodePtr c = {}) {
    auto node = std::make_unique<Node>();
    node->kind = kind;
    node->word = word;
    for (NodePtr* part : {&a, &b, &c}) {
      if (*part) node->parts.push_back(std::move(*part));
    }
    return node;
  }

  Result<NodePtr> expression();
  Result<NodePtr> choice();
  Result<NodePtr> either();
  Result<NodePtr> both();
  Result<NodePtr> comparison();
  Result<NodePtr> sum();
  Result<NodePtr> product();
  Result<NodePtr> unary();
  Result<NodePtr> postfix();
  Result<NodePtr> primary();
  Result<NodePtr> call(std::string_view name);

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};

Result<NodePtr> ExpressionParser::expression() {
  if (++depth_ > kMostDepth) return expected("less nesting");
  Result<NodePtr> node = take_word("if") ? choice() : either();
  if (node && take_word("default")) {
    CULET_TRY(NodePtr other, expression());
    node = make(Kind::kBinary, "default", *std::move(node), std::move(other));
  }
  --depth_;
  return node;
}

Result<NodePtr> ExpressionParser::choice() {
  CULET_TRY(NodePtr condition, expression());
  if (!take_word("then")) return expected("then");
  CULET_TRY(NodePtr yes, expression());
  if (!take_word("else")) return expected("else");
  CULET_TRY(NodePtr no, expression());
  return make(Kind::kIf, "if", std::move(condition), std::move(yes), std::move(no));
}

Result<NodePtr> ExpressionParser::either() {
  CULET_TRY(NodePtr left, both());
  while (take_word("or")) {
    CULET_TRY(NodePtr right, both());
    left = make(Kind::kBinary, "or", std::move(left), std::move(right));
  }
  return left;
}

Result<NodePtr> ExpressionParser::both() {
  CULET_TRY(NodePtr left, comparison());
  while (take_word("and")) {
    CULET_TRY(NodePtr right, comparison());
    left = make(Kind::kBinary, "and", std::move(left), std::move(right));
  }
  return left;
}

Result<NodePtr> ExpressionParser::comparison() {
  if (take_word("not")) {
    if (++depth_ > kMostDepth) return expected("less nesting");
    CULET_TRY(NodePtr operand, comparison());
    --depth_;
    return make(Kind::kUnary, "not", std::move(operand));
  }
  CULET_TRY(NodePtr left, sum());
  for (const std::string_view symbol : {"==", "!=", "<=", ">=", "<", ">"}) {
    if (!take(symbol)) continue;
    CULET_TRY(NodePtr right, sum());
    return make(Kind::kBinary, symbol, std::move(left), std::move(right));
  }
  return left;
}

Result<NodePtr> ExpressionParser::sum() {
  CULET_TRY(NodePtr left, product());
  while (true) {
    const std::string_view symbol = take("+") ? "+" : take("-") ? "-" : "";
    if (symbol.empty()) return left;
    CULET_TRY(NodePtr right, product());
    left = make(Kind::kBinary, symbol, std::move(left), std::move(right));
  }
}

Result<NodePtr> ExpressionParser::product() {
  CULET_TRY(NodePtr left, unary());
  while (true) {
    const std::string_view symbol = take("*")          ? "*"
                                    : take("/")        ? "/"
                                    : take_word("mod") ? "mod"
                                                       : "";
    if (symbol.empty()) return left;
    CULET_TRY(NodePtr right, unary());
    left = make(Kind::kBinary, symbol, std::move(left), std::move(right));
  }
}

Result<NodePtr> ExpressionParser::unary() {
  if (!take("-")) return postfix();
  if (++depth_ > kMostDepth) return expected("less nesting");
  CULET_TRY(NodePtr operand, unary());
  --depth_;
  return make(Kind::kUnary, "-", std::move(operand));
}

Result<NodePtr> ExpressionParser::postfix() {
  CULET_TRY(NodePtr node, primary());
  while (true) {
    if (take(".")) {
      const std::string_view name = peek_word();
      if (name.empty()) return expected("a name");
      at_ += name.size();
      node = make(Kind::kMember, name, std::move(node));
    } else if (take("[")) {
      CULET_TRY(NodePtr index, expression());
      if (!take("]")) return expected("]");
      node = make(Kind::kIndex, "", std::move(node), std::move(index));
    } else {
      return node;
    }
  }
}

Result<NodePtr> ExpressionParser::primary() {
  if (take("(")) {
    CULET_TRY(NodePtr node, expression());
    if (!take(")")) return expected(")");
    return node;
  }
  if (take("'")) {
    const size_t end = text_.find('\'', at_);
    if (end == std::string_view::npos) return expected("the end of the text, '");
    NodePtr node = make(Kind::kText, text_.substr(at_, end - at_));
    at_ = end + 1;
    return node;
  }
  skip_spaces();
  if (at_ < text_.size() && is_digit(text_[at_])) {
    NodePtr node = make(Kind::kNumber, "");
    const auto [end, error] =
        std::from_chars(text_.data() + at_, text_.data() + text_.size(), node->number);
    if (error != std::errc()) return expected("a number");
    at_ = size_t(end - text_.data());
    return node;
  }
  const std::string_view name = peek_word();
  if (name.empty()) return expected("a value");
  at_ += name.size();
  return take("(") ? call(name) : Result<NodePtr>(make(Kind::kName, name));
}

Result<NodePtr> ExpressionParser::call(std::string_view name) {
  NodePtr node = make(Kind::kCall, name);
  do {
    CULET_TRY(node->parts.emplace_back(), expression());
  } while (take(","));
  if (!take(")")) return expected(")");
  return node;
}

// ---------------------------------------------------------------- values

bool is_missing(const Value& value) { return std::holds_alternative<Missing>(value); }

// What lies in JSON: null is as good as absent.
Value from_json(const Json* json, const std::string& name) {
  if (json == nullptr || json->is_null()) return Missing{name};
  if (json->is_boolean()) return json->get<bool>();
  if (json->is_number()) return json->get<double>();
  if (json->is_string()) return json->get<std::string>();
  return json;
}

const Json* member_or_null(const Json* object, std::string_view name) {
  if (object == nullptr || !object->is_object()) return nullptr;
  const auto at = object->find(name);
  return at == object->end() ? nullptr : &*at;
}

struct Function {
  std::string_view name;
  size_t operands;
  double (*fn)(double, double);
};
constexpr Function kFunctions[] = {
    {"floor", 1, [](double x, double) { return std::floor(x); }},
    {"ceil", 1, [](double x, double) { return std::ceil(x); }},
    {"sqrt", 1, [](double x, double) { return std::sqrt(x); }},
    {"ln", 1, [](double x, double) { return std::log(x); }},
    {"pow", 2, [](double x, double y) { return std::pow(x, y); }},
    {"max", 2, [](double x, double y) { return std::max(x, y); }},
    {"min", 2, [](double x, double y) { return std::min(x, y); }},
};

}  // namespace

// ---------------------------------------------------------------- tree to value

class Evaluator {
 public:
  Evaluator(const Scope& scope, std::optional<int64_t> index) : scope_(scope), index_(index) {}

  Result<Value> value(const Node& node) {
    if (++steps_ > kMostSteps) return wrong("this takes too many steps");
    if (depth_ >= kMostFrames) return wrong("definitions use each other too deeply here");
    ++depth_;
    Result<Value> result = value_of(node);
    --depth_;
    return result;
  }

 private:
  Result<Value> value_of(const Node& node) {
    switch (node.kind) {
      case Kind::kNumber:
        return node.number;
      case Kind::kText:
        return node.word;
      case Kind::kName:
        return name(node.word);
      case Kind::kMember:
        return member_of(node);
      case Kind::kIndex:
        return element_of(node);
      case Kind::kCall:
        return call(node);
      case Kind::kUnary:
        return unary(node);
      case Kind::kBinary:
        return binary(node);
      case Kind::kIf:
        return choice(node);
    }
    return Missing{};
  }
  template <class... Args>
  static tl::unexpected<Error> wrong(fmt::format_string<Args...> format, Args&&... args) {
    return fail(ErrorCode::kUnsupported, fmt::format(format, std::forward<Args>(args)...));
  }

  Result<Value> name(const std::string& word);
  Result<Value> member_of(const Node& node);
  Result<Value> element_of(const Node& node);
  Result<Value> call(const Node& node);
  Result<Value> first(const Node& node);
  Result<Value> unary(const Node& node);
  Result<Value> binary(const Node& node);
  Result<Value> choice(const Node& node);
  static Result<Value> compare(const std::string& symbol, const Value& a, const Value& b);
  static Result<Value> compute(const std::string& symbol, const Value& a, const Value& b);
  static Result<bool> truth(const Value& value);

  const Scope& scope_;
  std::optional<int64_t> index_;
  std::vector<std::string_view> open_;  // definitions being evaluated
  int steps_ = 0, depth_ = 0;
};

Result<Value> Evaluator::name(const std::string& word) {
  if (word == "yes" || word == "no") return word == "yes";
  if (word == "pi") return kPi;
  if (word == "none") return Missing{"none"};
  if (word == "i" && index_) return double(*index_);
  if (const auto at = scope_.definitions_.find(word); at != scope_.definitions_.end()) {
    if (std::find(open_.begin(), open_.end(), word) != open_.end()) {
      return wrong("the definition of {} needs itself", word);
    }
    open_.push_back(at->first);
    Result<Value> result = value(at->second.root());
    open_.pop_back();
    return result;
  }
  if (const auto at = scope_.objects_.find(word); at != scope_.objects_.end()) {
    return from_json(at->second, word);
  }
  for (const Json* config : scope_.configs_) {
    Value found = from_json(member_or_null(config, word), word);
    if (!is_missing(found)) return found;
  }
  return Missing{word};
}

Result<Value> Evaluator::member_of(const Node& node) {
  CULET_TRY(Value of, value(*node.parts[0]));
  if (is_missing(of)) return of;
  const auto* const object = std::get_if<const Json*>(&of);
  return from_json(object ? member_or_null(*object, node.word) : nullptr, node.word);
}

Result<Value> Evaluator::element_of(const Node& node) {
  CULET_TRY(const Value of, value(*node.parts[0]));
  CULET_TRY(const Value index, value(*node.parts[1]));
  if (is_missing(of) || is_missing(index)) return is_missing(of) ? of : index;
  const auto* const array = std::get_if<const Json*>(&of);
  const auto* const number = std::get_if<double>(&index);
  if (array == nullptr || !(*array)->is_array() || number == nullptr) {
    return wrong("{} has no elements", to_text(of));
  }
  const bool inside = *number >= 0 && *number < double((*array)->size());
  return from_json(inside ? &(**array)[size_t(*number)] : nullptr,
                   fmt::format("element {} of an array of {}", *number, (*array)->size()));
}

Result<Value> Evaluator::call(const Node& node) {
  std::vector<double> operands;
  if (node.word == "has" && node.parts.size() == 1) {
    CULET_TRY(const Value of, value(*node.parts[0]));
    return !is_missing(of);
  }
  if (node.word == "first" && node.parts.size() == 2) return first(node);
  for (const auto& part : node.parts) {
    CULET_TRY(Value operand, value(*part));
    if (is_missing(operand)) return operand;
    const auto* const number = std::get_if<double>(&operand);
    if (number == nullptr) return wrong("{} of {} is no number", node.word, to_text(operand));
    operands.push_back(*number);
  }
  for (const Function& function : kFunctions) {
    if (function.name == node.word && function.operands == operands.size()) {
      return function.fn(operands[0], operands.back());
    }
  }
  return wrong("there is no function {} of {} operands", node.word, operands.size());
}

// The place of the first element that is equal to a value.
Result<Value> Evaluator::first(const Node& node) {
  CULET_TRY(const Value of, value(*node.parts[0]));
  CULET_TRY(const Value wanted, value(*node.parts[1]));
  if (is_missing(of) || is_missing(wanted)) return is_missing(of) ? of : wanted;
  const auto* const array = std::get_if<const Json*>(&of);
  if (array == nullptr || !(*array)->is_array()) return wrong("{} has no elements", to_text(of));
  for (size_t i = 0; i < (*array)->size(); ++i) {
    if (from_json(&(**array)[i], "") == wanted) return double(i);
  }
  return Missing{fmt::format("element {}", to_text(wanted))};
}

Result<bool> Evaluator::truth(const Value& value) {
  if (is_missing(value)) return false;
  if (const bool* is = std::get_if<bool>(&value)) return *is;
  return wrong("{} is neither yes nor no", to_text(value));
}

Result<Value> Evaluator::unary(const Node& node) {
  CULET_TRY(Value operand, value(*node.parts[0]));
  if (node.word == "not") {
    CULET_TRY(const bool is, truth(operand));
    return !is;
  }
  if (is_missing(operand)) return operand;
  if (const double* number = std::get_if<double>(&operand)) return -*number;
  return wrong("{} is no number", to_text(operand));
}

Result<Value> Evaluator::binary(const Node& node) {
  CULET_TRY(const Value a, value(*node.parts[0]));
  if (node.word == "default") return is_missing(a) ? value(*node.parts[1]) : a;
  if (node.word == "or" || node.word == "and") {
    CULET_TRY(const bool left, truth(a));
    if (left == (node.word == "or")) return left;
    CULET_TRY(const Value b, value(*node.parts[1]));
    CULET_TRY(const bool right, truth(b));
    return right;
  }
  CULET_TRY(const Value b, value(*node.parts[1]));
  if (is_missing(a) || is_missing(b)) return is_missing(a) ? a : b;
  const bool comparison = node.word.find_first_of("=<>") != std::string::npos;
  return comparison ? compare(node.word, a, b) : compute(node.word, a, b);
}

Result<Value> Evaluator::compare(const std::string& symbol, const Value& a, const Value& b) {
  if (symbol == "==" || symbol == "!=") {
    if (a.index() != b.index() || std::holds_alternative<const Json*>(a)) {
      return wrong("{} and {} cannot be compared", to_text(a), to_text(b));
    }
    return (a == b) == (symbol == "==");
  }
  const auto* const x = std::get_if<double>(&a);
  const auto* const y = std::get_if<double>(&b);
  if (x == nullptr || y == nullptr) {
    return wrong("{} {} {}: both must be numbers", to_text(a), symbol, to_text(b));
  }
  if (symbol == "<") return *x < *y;
  if (symbol == ">") return *x > *y;
  return symbol == "<=" ? *x <= *y : *x >= *y;
}

Result<Value> Evaluator::compute(const std::string& symbol, const Value& a, const Value& b) {
  const auto* const x = std::get_if<double>(&a);
  const auto* const y = std::get_if<double>(&b);
  if (x == nullptr || y == nullptr) {
    return wrong("{} {} {}: both must be numbers", to_text(a), symbol, to_text(b));
  }
  if (symbol == "+") return *x + *y;
  if (symbol == "-") return *x - *y;
  if (symbol == "*") return *x * *y;
  if (*y == 0) return wrong("{} {} 0", to_text(a), symbol);
  return symbol == "/" ? *x / *y : *x - *y * std::floor(*x / *y);
}

Result<Value> Evaluator::choice(const Node& node) {
  CULET_TRY(const Value condition, value(*node.parts[0]));
  CULET_TRY(const bool is, truth(condition));
  return value(*node.parts[is ? 1 : 2]);
}

// ---------------------------------------------------------------- outside

std::string to_text(const Value& value) {
  struct Text {
    std::string operator()(const Missing&) const { return "nothing"; }
    std::string operator()(bool is) const { return is ? "yes" : "no"; }
    std::string operator()(double number) const { return fmt::format("{}", number); }
    std::string operator()(const std::string& text) const { return "'" + text + "'"; }
    std::string operator()(const Json* json) const {
      return json->is_array() ? "an array" : "an object";
    }
  };
  return std::visit(Text{}, value);
}

Result<Expression> Expression::parse(std::string_view text) {
  CULET_TRY(NodePtr root, ExpressionParser(text).parse());
  Expression expression;
  expression.root_ = std::move(root);
  expression.text_ = text;
  return expression;
}

Result<Value> Scope::value(const Expression& expression, std::optional<int64_t> index) const {
  Result<Value> result = Evaluator(*this, index).value(expression.root());
  if (result) return result;
  return fail(result.error().code,
              fmt::format("{} (in: {})", result.error().message, expression.text()));
}

Result<double> Scope::number(const Expression& expression, std::optional<int64_t> index) const {
  CULET_TRY(const Value found, value(expression, index));
  if (const double* number = std::get_if<double>(&found)) return *number;
  if (const Missing* missing = std::get_if<Missing>(&found)) {
    return fail(ErrorCode::kNotFound, fmt::format("the configuration has no {} (for: {})",
                                                  missing->name, expression.text()));
  }
  return fail(ErrorCode::kUnsupported,
              fmt::format("{} is no number (in: {})", to_text(found), expression.text()));
}

Result<int64_t> Scope::integer(const Expression& expression, std::optional<int64_t> index) const {
  constexpr double kMost = 9007199254740992;  // 2^53
  CULET_TRY(const double found, number(expression, index));
  if (found == std::floor(found) && std::fabs(found) <= kMost) return int64_t(found);
  return fail(ErrorCode::kUnsupported,
              fmt::format("{} is no whole number (in: {})", found, expression.text()));
}

Result<bool> Scope::holds(const Expression& expression, std::optional<int64_t> index) const {
  CULET_TRY(const Value found, value(expression, index));
  if (const bool* is = std::get_if<bool>(&found)) return *is;
  if (std::holds_alternative<Missing>(found)) return false;
  return fail(ErrorCode::kUnsupported,
              fmt::format("{} is neither yes nor no (in: {})", to_text(found), expression.text()));
}

}  // namespace culet::convert
