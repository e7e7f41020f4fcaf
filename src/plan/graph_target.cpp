#include "plan/graph_target.h"

#include <fmt/format.h>

namespace culet::plan {
namespace {

constexpr std::string_view kPrefix = "target.";
constexpr std::string_view kHandedOver =
    "hidden";  // the target's output that a draft model is given

}  // namespace

Result<void> TargetModel::check_externs() const {
  const ArchFile& arch = writer_.arch();
  const SourceLocation location =
      arch.externs.empty() ? writer_.end_of_text() : arch.externs[0].location;
  if (arch.kind == "draft" && !target_.plan)
    return writer_.error(
        location,
        "this is a draft model: it guesses the next tokens of the model that it was made "
        "for, its target, and runs only beside it; run that model instead, or load the "
        "draft model with it (ModelOptions::target; culet show and explain: --target)",
        ErrorCode::kUnsupported);
  if (arch.kind != "draft" && target_.plan)
    return writer_.error(
        location,
        fmt::format("this is of kind {} and reads no other model; load it without a target",
                    arch.kind),
        ErrorCode::kUnsupported);
  for (const ExternDecl& e : arch.externs) CULET_TRY_VOID(check_extern(e));
  return {};
}

// Something that an extern line names is not there.
tl::unexpected<Error> TargetModel::missing(const ExternDecl& e, std::string_view what) const {
  return writer_.error(
      e.location,
      fmt::format("the target model {} (architecture {}) has no {}, which this draft model "
                  "reads; load the draft model with the model that it was trained for",
                  target_.hparams->model().name(), target_.plan->architecture, what),
      ErrorCode::kUnsupported);
}

Result<void> TargetModel::check_extern(const ExternDecl& e) const {
  if (!target_.plan)
    return writer_.error(e.location, "only 'kind draft' has a target model to read from");
  for (const std::string& f : e.hparams)
    if (!target_.hparams->let(f)) return missing(e, fmt::format("hyperparameter '{}'", f));
  for (const std::string& c : e.caches)
    if (!target_.hparams->arch().cache(c)) return missing(e, fmt::format("cache '{}'", c));
  for (const std::string& v : e.values) {
    const bool tensor =
        target_.hparams->find_tensor(target_.hparams->tensor_name(v, false, -1)) != kNone;
    if (!tensor && !is_value(std::string(kPrefix) + v))
      return missing(e, fmt::format("tensor or output '{}'", v));
  }
  return {};
}

Result<void> TargetModel::check_next_row(const Block& model) const {
  const ValueId theirs = target_.plan->output(kHandedOver);
  const int32_t wanted =
      theirs == kNone ? 0 : target_.plan->values[static_cast<size_t>(theirs)].width;
  const int32_t width = writer_.at(writer_.plan().output("hidden")).width;
  if (width == wanted) return {};
  return writer_.error(
      model.location,
      fmt::format("the output 'hidden' has {} numbers, but a step of this draft model takes "
                  "{}, as the target's has; make it that wide",
                  width, wanted),
      ErrorCode::kUnsupported);
}

bool TargetModel::is_value(std::string_view name) const {
  return target_.plan && name.starts_with(kPrefix) && name.substr(kPrefix.size()) == kHandedOver &&
         target_.plan->output(kHandedOver) != kNone;
}

ValueId TargetModel::input(std::string_view name, SourceLocation p) {
  const ValueId theirs = target_.plan->output(kHandedOver);
  const Value& t = target_.plan->values[static_cast<size_t>(theirs)];
  const ValueId out =
      writer_.add(writer_.op(OpKind::input, p), Shape{t.dims, t.rank}, TokenSet::kAll);
  writer_.at(out).name = name;
  return out;
}

Result<int32_t> TargetModel::cache(const CacheDecl& d, int layer) {
  std::vector<CacheSpec>& ours = writer_.plan().caches;
  for (const Op& op : target_.plan->ops) {
    const auto* attend = op.attr.get_if<AttendAttributes>();
    if (!attend || op.layer != layer || attend->cache == kNone) continue;
    CacheSpec spec = target_.plan->caches[static_cast<size_t>(attend->cache)];
    if (spec.name != d.name) continue;
    if (spec.policy == CachePolicy::kWindow && spec.window < 2)
      return writer_.error(
          d.location,
          fmt::format("layer {} of the target keeps one row, and a draft model's own row is "
                      "not in it, so there is nothing to read",
                      layer),
          ErrorCode::kUnsupported);
    spec.target = attend->cache;
    spec.name = std::string(kPrefix) + spec.name;
    for (size_t k = 0; k < ours.size(); ++k)
      if (ours[k].target == spec.target) return static_cast<int32_t>(k);
    ours.push_back(spec);
    return static_cast<int32_t>(ours.size()) - 1;
  }
  return writer_.error(d.location,
                       fmt::format("layer {} of the target reads no cache '{}'", layer, d.name));
}

}  // namespace culet::plan
