// Caches and states of the plan: which one a layer writes, which one it reads.
#pragma once

#include "culet/result.h"
#include "plan/graph_target.h"
#include "plan/graph_writer.h"

#include <map>
#include <string>
#include <utility>

namespace culet::plan {

class GraphCaches {
 public:
  GraphCaches(GraphWriter& writer, TargetModel& target) : writer_(writer), target_(target) {}

  // The cache that this layer appends to, made here: once in a layer.
  Result<int32_t> append_to(const std::string& name, SourceLocation p);
  // The cache that attend(q, NAME) reads in this layer: its own, or the donor's.
  Result<int32_t> read_by(const CacheDecl& d, SourceLocation p);
  // The state that short_conv(x, w, NAME) has in this layer, made here: once in a layer.
  Result<int32_t> state(const Expr& name);

 private:
  GraphWriter& writer_;
  TargetModel& target_;
  std::map<std::pair<std::string, int>, int32_t> written_;  // (name, layer): Plan::caches
};

}  // namespace culet::plan
