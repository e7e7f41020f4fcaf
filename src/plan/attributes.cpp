// Takes an attribute's name and value, gives the field it sets. Which attributes an op has, and of
// which kind, is ops.def's matter; the words they take are listed here.
#include "plan/attributes.h"

#include <fmt/format.h>

#include <optional>
#include <string>

namespace culet::plan {
namespace {

using A = Attributes*;
struct Choice {
  std::string_view attribute, word;
  void (*set)(A, double);
};
constexpr Choice kChoices[] = {
    {"pairs", "adjacent", [](A a, double) { a->rope_adjacent = true; }},
    {"pairs", "halves", [](A a, double) { a->rope_adjacent = false; }},
    {"mask", "causal", [](A a, double) { a->mask = Mask::kCausal; }},
    {"mask", "full", [](A a, double) { a->mask = Mask::kFull; }},
    {"mask", "band",
     [](A a, double n) { a->mask = Mask::kBand, a->band = static_cast<int32_t>(n); }},
    {"by", "token", [](A, double) {}},
    {"by", "position", [](A a, double) { a->by_position = true; }},
    {"by", "type", [](A a, double) { a->by_type = true; }},
    {"how", "mean", [](A a, double) { a->mean = true; }},
    {"how", "first", [](A a, double) { a->mean = false; }},
    {"score", "softmax", [](A, double) {}},
    {"score", "sigmoid", [](A a, double) { a->sigmoid = true; }},
    {"act", "silu", [](A a, double) { a->activation = Activation::kSilu; }},
    {"act", "gelu", [](A a, double) { a->activation = Activation::kGelu; }},
    {"act", "gelu_erf", [](A a, double) { a->activation = Activation::kGeluErf; }},
    {"act", "relu", [](A a, double) { a->activation = Activation::kRelu; }},
};

}  // namespace

void set_number(std::string_view attribute, double n, Op* op, RopeSpec* rope) {
  if (attribute == "base")
    rope->base = n;
  else if (attribute == "attn_factor")
    rope->attn_factor = n;
  else if (attribute == "softcap")
    op->attr.softcap = static_cast<float>(n);
  else if (attribute == "scale" && op->kind == OpKind::rope)
    rope->scale = n;
  else if (attribute == "scale")
    op->attr.scale = static_cast<float>(n);
}

Result<void> set_word(std::string_view attribute, const Fact::Word& word, Attributes* attributes) {
  std::string list;
  for (const Choice& c : kChoices) {
    if (c.attribute != attribute) continue;
    list += (list.empty() ? "" : ", ") + std::string(c.word);
    if (c.word != word.text) continue;
    if (!(word.argument >= 0 && word.argument <= 1e9))
      return fail(ErrorCode::kInvalidArgument, fmt::format("{} is out of range", word.argument));
    c.set(attributes, word.argument);
    return {};
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{}= is '{}'; it is one of: {}", attribute, word.text, list));
}

Result<std::vector<int32_t>> token_ids(const Fact& list, int32_t width) {
  std::vector<int32_t> ids;
  if (list.is_none()) return ids;
  if (!list.list())
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a metadata array of token ids or none is needed here, this is {}",
                            list.show()));
  const format::MetaValue& all = *list.list()->value;
  ids.reserve(all.size());
  for (uint64_t i = 0; i < all.size(); ++i) {
    const std::optional<int64_t> id = all.at(i).as_int();
    if (!id || *id < 0 || *id >= width)
      return fail(ErrorCode::kCorrupt,
                  fmt::format("element {} of this list is {}; a token id from 0 to {} is needed", i,
                              id ? std::to_string(*id) : "no whole number", width - 1));
    ids.push_back(static_cast<int32_t>(*id));
  }
  return ids;
}

}  // namespace culet::plan
