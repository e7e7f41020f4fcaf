// Expressions that make values: names, arithmetic, views, and (graph_calls.cpp) operations.
#pragma once

#include "culet/result.h"
#include "plan/graph_caches.h"
#include "plan/graph_scope.h"
#include "plan/graph_target.h"
#include "plan/graph_writer.h"
#include "plan/signature.h"

#include <vector>

namespace culet::plan {

class GraphValues {
 public:
  GraphValues(GraphWriter& writer, ValueScope& scope, TargetModel& target, GraphCaches& caches)
      : writer_(writer), scope_(scope), target_(target), caches_(caches) {}

  Result<ValueId> value(const Expr& e);                // exactly one
  Result<std::vector<ValueId>> values(const Expr& e);  // split makes several

 private:
  using Many = Result<std::vector<ValueId>>;
  bool is_value(const Expr& e) const;
  bool is_tensor(const Expr& e) const;
  bool may_reshape(ValueId v) const;
  Result<void> known(const Expr& e) const;

  Many name(const Expr& e);
  Many choice(const Expr& e);
  Many negated(const Expr& e);
  Many view(const Expr& e);
  Many layer_slice(const Expr& e);
  Many arithmetic(const Expr& e);

  // graph_calls.cpp
  Many call(const Expr& e);
  Result<bool> operands(const Signature& s, const Expr& e, Op* op, ShapeCall* call);
  Result<bool> operand(const OperandRule& rule, const Signature& s, const Expr& arg, Op* op,
                       ShapeCall* call);
  Result<bool> token_list(const Expr& e, Op* op);
  Result<void> cache_or_pair(const Expr& e, Op* op, ShapeCall* call);
  Result<void> attributes(const Signature& s, const Expr& e, Op* op, ShapeCall* call);
  Result<void> attribute(const AttributeRule& rule, const Expr* given, Op* op, RopeSpec* rope);
  Result<void> word_attribute(const AttributeRule& rule, const Expr* given, Op* op, RopeSpec* rope);
  Result<void> finish_rope(const Expr& e, const RopeSpec& rope, Op* op, ShapeCall* call);

  GraphWriter& writer_;
  ValueScope& scope_;
  TargetModel& target_;
  GraphCaches& caches_;
};

}  // namespace culet::plan
