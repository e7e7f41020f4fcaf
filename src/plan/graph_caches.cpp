#include "plan/graph_caches.h"

#include "plan/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace culet::plan {

Result<int32_t> GraphCaches::append_to(const std::string& name, SourceLocation p) {
  const ArchFile& arch = writer_.arch();
  if (writer_.layer() < 0) return writer_.error(p, "append belongs into the layer block");
  if (arch.kind != "decoder")
    return writer_.error(
        p, fmt::format("a model of kind {} keeps no cache; only a decoder appends", arch.kind));
  const CacheDecl* decl = arch.cache(name);
  if (!decl) return writer_.error(p, fmt::format("there is no cache '{}'", name));
  const auto index = static_cast<int32_t>(writer_.plan().caches.size());
  if (!written_.try_emplace({name, writer_.layer()}, index).second)
    return writer_.error(p, fmt::format("cache '{}' is appended twice in this layer", name));
  CULET_TRY(CacheSpec spec, cache_spec(writer_.hparams(), *decl, writer_.layer()));
  writer_.plan().caches.push_back(std::move(spec));
  return index;
}

Result<int32_t> GraphCaches::read_by(const CacheDecl& d, SourceLocation p) {
  const int layer = writer_.layer();
  int donor = layer;
  if (d.donor) {
    CULET_TRY(Hyperparameter f, writer_.hparams().eval(*d.donor, layer));
    if (const double* n = f.number(); n && *n >= 0 && *n < 65536 && *n == std::floor(*n))
      donor = static_cast<int>(*n);
    else if (!f.word() || f.word()->text != "self")
      return writer_.error(
          d.donor->location,
          fmt::format("the donor is {}; a layer's index or self is needed", f.show()));
    if (f.number() && d.donor->kind == Expr::Kind::kLast && d.donor->on_target)
      return target_.cache(d, donor);
  }
  const auto found = written_.find({d.name, donor});
  if (found != written_.end()) return found->second;
  return writer_.error(
      p,
      donor == layer
          ? fmt::format("cache '{}' is read before anything is appended to it", d.name)
          : fmt::format("cache '{}' would come from layer {}, which appends nothing to it before",
                        d.name, donor));
}

Result<int32_t> GraphCaches::state(const Expr& name) {
  const ArchFile& arch = writer_.arch();
  std::vector<StateSpec>& states = writer_.plan().states;
  const int layer = writer_.layer();
  for (const StateDecl& s : arch.states) {
    if (name.kind != Expr::Kind::kName || s.name != name.text) continue;
    if (layer < 0)
      return writer_.error(name.location, "a state belongs to a layer; use it in the layer block");
    if (arch.kind != "decoder")
      return writer_.error(
          name.location,
          fmt::format("a model of kind {} keeps no state; only a decoder does", arch.kind));
    if (std::any_of(states.begin(), states.end(), [&](const StateSpec& known) {
          return known.layer == layer && known.name == s.name;
        }))
      return writer_.error(name.location,
                           fmt::format("state '{}' is used twice in this layer", s.name));
    CULET_TRY(StateSpec spec, state_spec(writer_.hparams(), s, layer));
    states.push_back(std::move(spec));
    return static_cast<int32_t>(states.size()) - 1;
  }
  return writer_.error(name.location, "a state's name is needed here");
}

}  // namespace culet::plan
