// Expressions of family files (docs/formats/expressions.md): values of a model's configuration, put
// together with numbers, names and conditions.
//
// A name that the configuration does not have is absent, and so is what is computed from it, until
// `default` gives something instead. So one line serves old and new spellings of a configuration.
#pragma once

#include "culet/result.h"
#include "expr/ast.h"
#include "expr/value.h"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace culet::convert {

// Numbers are doubles: a configuration has none that needs more.
using Value = expr::Value;

// A parsed expression; immutable, shared by every use of its line.
class Expression {
 public:
  // Errors: FILE:LINE:COLUMN, and what was expected there. The file of a text alone is
  // "expression".
  static Result<Expression> parse(std::string_view text);
  // Bytes [begin, begin + text.size()) of a file, which are `text`.
  static Result<Expression> parse(const std::vector<expr::SourceFile>& files, int file,
                                  size_t begin, std::string_view text);

  const expr::Expr& root() const { return *root_; }
  const std::string& text() const { return text_; }

 private:
  std::shared_ptr<const expr::Expr> root_;
  std::string text_;
};

// What the functions about tensors ask of a checkpoint. Names are those after `rename`.
struct TensorQuestions {
  std::function<bool(std::string_view name)> has;
  std::function<bool(std::string_view a, std::string_view b)> same;  // both there, the same values
};

// What names mean: definitions of the family file first, then the configuration's members, then the
// values that absent members have by default. A member that is null is absent, but not by default:
// null is a value that the configuration gives.
//
// A scope remembers which members were read by what was evaluated so far (was_read). Copies share
// that memory. One thread at a time.
class Scope {
 public:
  // The configuration must outlive the scope. An object in it may be looked in first (text_config).
  explicit Scope(const nlohmann::ordered_json* config) : configs_{config} {}
  void look_first_in(const nlohmann::ordered_json* object) {
    configs_.insert(configs_.begin(), object);
  }
  // Another object under a name of its own; null: absent.
  void name(const std::string& name, const nlohmann::ordered_json* object) {
    objects_[name] = object;
  }
  // Replaces an earlier definition of the name.
  void define(const std::string& name, Expression expression) {
    definitions_.insert_or_assign(name, std::move(expression));
  }
  // The value of a member that the configuration does not have. Of several, the first counts whose
  // condition holds.
  void set_default(const std::string& name, Expression value, std::optional<Expression> when) {
    defaults_[name].push_back({std::move(value), std::move(when)});
  }
  // Two names of one member: either finds what is called so or so.
  void alias(const std::string& a, const std::string& b);
  void ask_about_tensors(TensorQuestions questions) { tensors_ = std::move(questions); }

  // The value, with `i` = index where one is given. Errors: operands of a wrong kind, a definition
  // that needs itself.
  Result<Value> value(const Expression& expression, std::optional<int64_t> index = {}) const;
  // The same of what must be there: a whole number, a number, yes or no (absent: no).
  Result<int64_t> integer(const Expression& expression, std::optional<int64_t> index = {}) const;
  Result<double> number(const Expression& expression, std::optional<int64_t> index = {}) const;
  Result<bool> holds(const Expression& expression, std::optional<int64_t> index = {}) const;

  // Whether an evaluation read this part of a configuration: a number, flag, text or null that an
  // expression came to, or a list that it took as a whole.
  bool was_read(const nlohmann::ordered_json* part) const { return read_->contains(part); }

 private:
  class Names;
  struct Default {
    Expression value;
    std::optional<Expression> when;
  };
  std::vector<const nlohmann::ordered_json*> configs_;
  std::map<std::string, Expression, std::less<>> definitions_;
  std::map<std::string, const nlohmann::ordered_json*, std::less<>> objects_;
  std::map<std::string, std::vector<Default>, std::less<>> defaults_;
  std::map<std::string, std::vector<std::string>, std::less<>> aliases_;
  TensorQuestions tensors_;
  std::shared_ptr<std::set<const nlohmann::ordered_json*>> read_ =
      std::make_shared<std::set<const nlohmann::ordered_json*>>();
};

}  // namespace culet::convert
