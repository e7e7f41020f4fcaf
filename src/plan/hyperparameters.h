// Hyperparameters: numbers, flags, words and tensor references known when a model is loaded.
//
// An evaluator belongs to one architecture file and one model. A `let` that depends on the layer
// has one value a layer, any other has one; both are computed on first use and kept.
#pragma once

#include "culet/result.h"
#include "expr/evaluator.h"
#include "format/gguf.h"
#include "plan/arch_ast.h"
#include "plan/plan.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace culet::plan {

using Hyperparameter = expr::Value;

class TensorValue : public expr::Thing {
 public:
  TensorValue(std::string name, TensorId id) : name_(std::move(name)), id_(id) {}
  const std::string& name() const { return name_; }
  TensorId id() const { return id_; }  // kNone: not in the file
  std::string_view kind() const override { return "a tensor"; }
  std::string show() const override { return name_; }

 private:
  std::string name_;
  TensorId id_;
};

class ListValue : public expr::Thing {  // a metadata array
 public:
  explicit ListValue(const format::MetaValue* list) : list_(list) {}
  const format::MetaValue& list() const { return *list_; }
  std::string_view kind() const override { return "a list"; }
  std::string show() const override;

 private:
  const format::MetaValue* list_;
};

class Hyperparameters {
 public:
  // arch, model and target outlive the evaluator. context: `session.context`.
  Hyperparameters(const ArchFile& arch, const format::GgufFile& model, int64_t context,
                  Hyperparameters* target);

  // layer: index, or -1 outside the layers.
  Result<Hyperparameter> eval(const Expr& e, int layer);
  Result<double> number(const Expr& e, int layer);
  Result<int64_t> integer(const Expr& e, int layer, int64_t min, int64_t max);
  Result<bool> flag(const Expr& e, int layer);
  // A tensor operand: a name, NAME?, A | B, none, or a hyperparameter that is one. kNone when it
  // may be absent and is.
  Result<TensorId> tensor(const Expr& e, int layer, bool optional);

  const Let* let(std::string_view name) const;
  bool is_word(std::string_view name) const;
  static bool is_function(std::string_view name);  // sqrt, floor, min, ...
  bool per_layer(const Let& l) const { return per_layer_.count(&l) != 0; }
  Result<int64_t> layers();  // the hyperparameter `layers`
  const ArchFile& arch() const { return arch_; }
  const format::GgufFile& model() const { return model_; }
  Hyperparameters* target() { return target_; }
  // The metadata keys of the model file that an evaluation has read so far. has(meta.KEY) does not
  // read a key.
  const std::set<std::string>& keys_read() const { return keys_read_; }
  // eval() for a check: what it reads does not count as read.
  Result<Hyperparameter> peek(const Expr& e, int layer);
  // ", from the key KEY of the model file" where the value of `e` is that of a key; else "".
  std::string origin(const Expr& e, int layer);
  tl::unexpected<Error> error(SourceLocation p, std::string_view message,
                              ErrorCode code = ErrorCode::kInvalidArgument) const;
  // The name in the file: blk.{i}.NAME.weight inside a layer, NAME.weight outside, root.NAME,
  // "literal".
  std::string tensor_name(std::string_view name, bool quoted, int layer) const;
  std::string meta_key(std::string_view name) const;  // meta.KEY -> the key in the file
  TensorId find_tensor(std::string_view file_name) const;
  // The tensors of a layer (-1: outside the layers) as the text would name them.
  std::vector<std::string> names_like_tensors(int layer) const;
  bool depends_on_layer(const Expr& e);
  // Grows whenever a result depended on `session.context`, directly or through a hyperparameter
  // known by then; the location where the last such dependency begins.
  int64_t context_uses() const { return context_uses_; }
  SourceLocation context_location() const { return context_location_; }
  // Every step of work at load is paid for; a file that asks for too much is refused.
  Result<void> spend(SourceLocation p, size_t steps = 1);

 private:
  struct Variable {
    std::string_view name;
    int value;
  };
  struct Known {
    Hyperparameter value;
    bool from_context = false;
    SourceLocation context_location{};
  };
  class Names;  // what a name means in one layer
  Result<Hyperparameter> name(const Expr& e, int layer);
  Result<Hyperparameter> let_value(const Let& l, int layer, SourceLocation from);
  Result<Hyperparameter> meta(const Expr& e, std::string_view key, const Expr* index, int layer,
                              bool* absent);
  Result<Hyperparameter> before_default(const Expr& e, int layer);
  Result<Hyperparameter> index(const Expr& e, int layer);
  Result<std::optional<Hyperparameter>> call(const Expr& e, int layer);
  Result<Hyperparameter> last(const Expr& e, int layer);
  Result<Hyperparameter> tensor_value(const Expr& e, int layer);
  tl::unexpected<Error> unknown(const Expr& e) const;
  std::string no_key(SourceLocation location, std::string_view name) const;
  const Known* known(const std::pair<const Let*, int>& key) const;
  const Expr* key_behind(const Expr& e, int layer, int depth);
  void find_per_layer();
  void collect_lets(const Expr& e, std::unordered_set<const Let*>* out) const;
  bool is_variable(std::string_view name) const;

  const ArchFile& arch_;
  const format::GgufFile& model_;
  std::string prefix_;  // general.architecture of the model, with a dot
  int64_t context_;
  Hyperparameters* target_;
  std::map<std::pair<const Let*, int>, Known> known_, peeked_;
  std::unordered_map<std::string_view, const Let*> lets_;
  std::unordered_set<const Let*> per_layer_;
  std::set<std::pair<const Let*, int>> open_;  // being evaluated: finds circles
  std::vector<Variable> variables_;            // of last(...)
  std::set<std::string> keys_read_;
  bool peeking_ = false;
  int depth_ = 0;
  size_t steps_ = 0;
  int64_t context_uses_ = 0;
  SourceLocation context_location_{};
};

// Nearest of `known` to `name`, or "" when none is near.
std::string nearest(std::string_view name, const std::vector<std::string>& known);

}  // namespace culet::plan
