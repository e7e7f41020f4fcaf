// Takes the tree of an expression, gives its value: constants, arithmetic, comparisons, conditions
// and functions of numbers, the same in every language that uses expressions. What names mean is
// the host's to say.
#pragma once

#include "culet/result.h"
#include "expr/ast.h"
#include "expr/value.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace culet::expr {

class Host {
 public:
  virtual ~Host() = default;

  // Called before and after every node: counts steps and depth. Error: too many.
  virtual Result<void> enter(const Expr& e) = 0;
  virtual void leave() = 0;

  // A name that is no constant.
  virtual Result<Value> name(const Expr& e) = 0;
  // The left side of `default`: absent where the right side is to be taken.
  virtual Result<Value> before_default(const Expr& e) = 0;
  // A call of one of the host's own functions; nothing: it is none of them.
  virtual Result<std::optional<Value>> call(const Expr& e) = 0;
  virtual std::string functions() const = 0;  // their names, for messages: "has, window"
  // Every other kind of node: an index, a member, last(), tensors, views, tuples.
  virtual Result<Value> other(const Expr& e) = 0;

  // Where the value of a node comes from, as the end of a message: ", from the key KEY"; "": from
  // this text.
  virtual std::string origin(const Expr& /*e*/) { return ""; }

  virtual tl::unexpected<Error> error(const Expr& e, std::string_view message,
                                      ErrorCode code = ErrorCode::kInvalidArgument) const = 0;
};

// What becomes of a value that is absent, as an operand.
enum class AbsentRule : uint8_t {
  kIsAValue,  // it is `none`: equal to itself, and no number
  kSpreads,   // the result is absent too; as a condition it does not hold
};

class Evaluator {
 public:
  Evaluator(Host& host, AbsentRule rule) : host_(host), rule_(rule) {}

  Result<Value> eval(const Expr& e);
  Result<double> number(const Expr& e);  // error: it is none
  Result<bool> flag(const Expr& e);

  Result<double> to_number(const Value& value, const Expr& e) const;
  Result<bool> to_flag(const Value& value, const Expr& e) const;
  Result<Value> finite(double n, const Expr& e) const;

 private:
  Result<Value> node(const Expr& e);
  Result<Value> unary(const Expr& e);
  Result<Value> binary(const Expr& e);
  Result<Value> compare(const Expr& e, const Value& a, const Value& b) const;
  Result<Value> compute(const Expr& e, const Value& a, const Value& b) const;
  Result<Value> call(const Expr& e);
  bool spreads(const Value& v) const { return rule_ == AbsentRule::kSpreads && v.is_none(); }

  Host& host_;
  AbsentRule rule_;
};

bool is_function(std::string_view name);               // of numbers: sqrt, floor, min, ...
std::optional<Value> constant(std::string_view name);  // none, yes, no, true, false, pi

}  // namespace culet::expr
