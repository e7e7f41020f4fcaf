// Takes an attribute's name and value, sets the field. Which attributes an op has, and of which
// kind, is the matter of ops.def; here every one of them has its row.
#include "plan/attribute_fields.h"

#include "base/check.h"

#include <fmt/format.h>

#include <string>

namespace culet::plan {
namespace {

using Fields = const AttributeTarget&;

// set<&AttendAttributes::scale>: the field of the op's struct, or of the rope's table.
template <class Owner, class T>
void store(Fields t, T Owner::* field, T value) {
  if constexpr (std::is_same_v<Owner, RopeSpec>)
    t.rope->*field = value;
  else
    t.attributes->as<Owner>().*field = value;
}
template <auto kField>
struct Field;
template <class Owner, class T, T Owner::* kField>
struct Field<kField> {
  static void set(Fields t, double n) { store(t, kField, static_cast<T>(n)); }
  template <T kValue>
  static void choose(Fields t, double) {
    store(t, kField, kValue);
  }
};
void set_band(Fields t, double n) {
  auto& attend = t.attributes->as<AttendAttributes>();
  attend.mask = Mask::kBand, attend.band = static_cast<int32_t>(n);
}

using Set = void (*)(Fields, double);
struct NumberField {
  OpKind op;
  std::string_view attribute;
  Set set;
};
constexpr NumberField kNumberFields[] = {
    {OpKind::rope, "dims", Field<&RopeSpec::dims>::set},
    {OpKind::rope, "base", Field<&RopeSpec::base>::set},
    {OpKind::rope, "scale", Field<&RopeSpec::scale>::set},
    {OpKind::rope, "attn_factor", Field<&RopeSpec::attn_factor>::set},
    {OpKind::rope, "mix_from", Field<&RopeSpec::mix_from>::set},
    {OpKind::rope, "mix_to", Field<&RopeSpec::mix_to>::set},
    {OpKind::attend, "scale", Field<&AttendAttributes::scale>::set},
    {OpKind::attend, "softcap", Field<&AttendAttributes::softcap>::set},
    {OpKind::route, "top", Field<&RouteAttributes::top>::set},
    {OpKind::route, "scale", Field<&RouteAttributes::scale>::set},
    {OpKind::route, "renormalise", Field<&RouteAttributes::renormalise>::set},
};

struct WordField {
  OpKind op;
  std::string_view attribute, word;
  Set set;
};
using By = EmbedAttributes::By;
constexpr WordField kWordFields[] = {
    {OpKind::rope, "pairs", "adjacent", Field<&RopeAttributes::adjacent>::choose<true>},
    {OpKind::rope, "pairs", "halves", Field<&RopeAttributes::adjacent>::choose<false>},
    {OpKind::attend, "mask", "causal", Field<&AttendAttributes::mask>::choose<Mask::kCausal>},
    {OpKind::attend, "mask", "full", Field<&AttendAttributes::mask>::choose<Mask::kFull>},
    {OpKind::attend, "mask", "band", set_band},
    {OpKind::embed, "by", "token", Field<&EmbedAttributes::by>::choose<By::kToken>},
    {OpKind::embed, "by", "position", Field<&EmbedAttributes::by>::choose<By::kPosition>},
    {OpKind::embed, "by", "type", Field<&EmbedAttributes::by>::choose<By::kType>},
    {OpKind::pool, "how", "mean", Field<&PoolAttributes::mean>::choose<true>},
    {OpKind::pool, "how", "first", Field<&PoolAttributes::mean>::choose<false>},
    {OpKind::route, "score", "softmax", Field<&RouteAttributes::sigmoid>::choose<false>},
    {OpKind::route, "score", "sigmoid", Field<&RouteAttributes::sigmoid>::choose<true>},
    {OpKind::experts, "act", "silu",
     Field<&ExpertsAttributes::activation>::choose<Activation::kSilu>},
    {OpKind::experts, "act", "gelu",
     Field<&ExpertsAttributes::activation>::choose<Activation::kGelu>},
    {OpKind::experts, "act", "gelu_erf",
     Field<&ExpertsAttributes::activation>::choose<Activation::kGeluErf>},
    {OpKind::experts, "act", "relu",
     Field<&ExpertsAttributes::activation>::choose<Activation::kRelu>},
};

}  // namespace

void set_number(const AttributeTarget& target, std::string_view attribute, double n) {
  for (const NumberField& row : kNumberFields)
    if (row.op == target.op && row.attribute == attribute) return row.set(target, n);
  CULET_CHECK(false && "an attribute of ops.def without a field");
}

Result<void> set_word(const AttributeTarget& target, std::string_view attribute,
                      const expr::Word& word) {
  std::string list;
  for (const WordField& row : kWordFields) {
    if (row.op != target.op || row.attribute != attribute) continue;
    list += (list.empty() ? "" : ", ") + std::string(row.word);
    if (row.word != word.text) continue;
    if (!(word.argument >= 0 && word.argument <= 1e9))
      return fail(ErrorCode::kInvalidArgument, fmt::format("{} is out of range", word.argument));
    row.set(target, word.argument);
    return {};
  }
  CULET_CHECK(!list.empty() && "an attribute of ops.def without words");
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{}= is '{}'; it is one of: {}", attribute, word.text, list));
}

}  // namespace culet::plan
