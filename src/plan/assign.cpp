// Gives every value a place: two arenas (all tokens, output tokens), best fit over live ranges.
//
// Offsets and sizes are bytes a row; a backend multiplies them by the rows of the pass. Operands
// stay live until their op has finished, so an op may never find its result over its own input.
#include "base/check.h"
#include "plan/passes.h"

#include <iterator>
#include <map>
#include <set>
#include <utility>

namespace culet::plan {
namespace {

int64_t round64(int64_t n) { return (n + 63) / 64 * 64; }

int64_t row_bytes(const Value& v) {
  if (v.form == Form::kF32) return round64(int64_t{v.width} * 4);
  return quant_layout(v.width).row_bytes();
}

struct Range {
  size_t first, last;
};

// Free space of one arena: the smallest hole that fits, else room at the end.
class FreeList {
 public:
  int64_t take(int64_t bytes) {
    const auto fit = by_size_.lower_bound({bytes, 0});
    if (fit != by_size_.end()) {
      const auto [size, at] = *fit;
      remove(at, size);
      if (size > bytes) add(at + bytes, size - bytes);
      return at;
    }
    int64_t at = end_;
    if (!by_place_.empty()) {
      const auto [last, size] = *by_place_.rbegin();
      if (last + size == end_) {
        at = last;
        remove(last, size);
      }
    }
    end_ = at + bytes;
    return at;
  }

  void give(int64_t at, int64_t bytes) {
    const auto next = by_place_.lower_bound(at);
    if (next != by_place_.end() && at + bytes == next->first) {
      const int64_t more = next->second;
      remove(next->first, more);
      bytes += more;
    }
    const auto after = by_place_.lower_bound(at);
    if (after != by_place_.begin()) {
      const auto [before, size] = *std::prev(after);
      if (before + size == at) {
        remove(before, size);
        at = before, bytes += size;
      }
    }
    add(at, bytes);
  }
  int64_t end() const { return end_; }

 private:
  void add(int64_t at, int64_t bytes) {
    by_place_.emplace(at, bytes);
    by_size_.emplace(bytes, at);
  }
  void remove(int64_t at, int64_t bytes) {
    by_place_.erase(at);
    by_size_.erase({bytes, at});
  }

  std::map<int64_t, int64_t> by_place_;            // at -> bytes; never adjacent
  std::set<std::pair<int64_t, int64_t>> by_size_;  // (bytes, at)
  int64_t end_ = 0;
};

void set_ranges(Plan* plan) {
  plan->layers.assign(static_cast<size_t>(plan->n_layers), {0, 0});
  plan->prologue = 0;
  bool inside = false;
  int32_t last = kNone;
  for (size_t k = 0; k < plan->ops.size(); ++k) {
    const int32_t layer = plan->ops[k].layer;
    if (layer == kNone) {
      if (!inside) plan->prologue = static_cast<int32_t>(k) + 1;
      continue;
    }
    CULET_CHECK(layer == last || layer > last);  // layers are contiguous and ascending
    LayerRange& r = plan->layers[static_cast<size_t>(layer)];
    if (layer != last) r.first = static_cast<int32_t>(k);
    ++r.count;
    last = layer;
    inside = true;
  }
  int32_t next = plan->prologue;  // a layer without ops is an empty range where it would stand
  for (LayerRange& r : plan->layers) {
    if (r.count == 0) r.first = next;
    next = r.first + r.count;
  }
}

}  // namespace

QuantLayout quant_layout(int64_t width) {
  return {round64(width), round64(width / 32 * 4), round64(width / 16 * 2)};
}

void assign(Plan* plan) {
  set_ranges(plan);
  const size_t forever = plan->ops.size();
  std::vector<Range> live(plan->values.size(), {forever, 0});
  for (size_t k = 0; k < plan->ops.size(); ++k) {
    for (ValueId v : plan->ops[k].out) live[static_cast<size_t>(v)] = {k, k};
    for (ValueId v : plan->ops[k].in) live[static_cast<size_t>(v)].last = k;
  }
  for (const Output& o : plan->outputs) live[static_cast<size_t>(o.value)].last = forever;
  FreeList arenas[2];
  std::vector<std::vector<ValueId>> ends(plan->ops.size() + 1);
  for (size_t v = 0; v < live.size(); ++v)
    if (live[v].first != forever) ends[live[v].last].push_back(static_cast<ValueId>(v));
  for (size_t k = 0; k < plan->ops.size(); ++k) {
    for (ValueId id : plan->ops[k].out) {
      Value& v = plan->values[static_cast<size_t>(id)];
      v.row_bytes = row_bytes(v);
      v.offset = arenas[v.rows == TokenSet::kOutputs ? 1 : 0].take(v.row_bytes);
    }
    for (ValueId id : ends[k]) {
      const Value& v = plan->values[static_cast<size_t>(id)];
      arenas[v.rows == TokenSet::kOutputs ? 1 : 0].give(v.offset, v.row_bytes);
    }
  }
  plan->arena_token_bytes = arenas[0].end();
  plan->arena_output_bytes = arenas[1].end();
}

void verify(const Plan& plan) {
  std::vector<bool> made(plan.values.size(), false);
  for (const Op& op : plan.ops) {
    for (ValueId v : op.in) CULET_CHECK(made[static_cast<size_t>(v)]);
    for (ValueId v : op.out) {
      CULET_CHECK(!made[static_cast<size_t>(v)]);
      made[static_cast<size_t>(v)] = true;
      const Value& x = plan.values[static_cast<size_t>(v)];
      CULET_CHECK(x.width > 0 && x.offset >= 0 && x.row_bytes > 0);
      if (op.kind == OpKind::select_rows || op.kind == OpKind::pool) continue;
      for (ValueId i : op.in) CULET_CHECK(plan.values[static_cast<size_t>(i)].rows == x.rows);
    }
    CULET_CHECK(op.attr.same_kind(attributes_of(op.kind)));
    const auto known = [](int32_t index, const auto& all) {
      return index >= 0 && static_cast<size_t>(index) < all.size();
    };
    if (const int32_t cache = cache_of(op); cache != kNone) CULET_CHECK(known(cache, plan.caches));
    if (const auto* a = op.attr.get_if<ShortConvAttributes>())
      CULET_CHECK(known(a->state, plan.states));
    if (const auto* a = op.attr.get_if<SuppressAttributes>())
      CULET_CHECK(known(a->tokens, plan.token_lists));
    if (const auto* a = op.attr.get_if<RopeAttributes>()) CULET_CHECK(known(a->rope, plan.ropes));
  }
  for (const Output& o : plan.outputs) CULET_CHECK(made[static_cast<size_t>(o.value)]);
}

}  // namespace culet::plan
