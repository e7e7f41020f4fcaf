// Takes a call of an operation, gives its op: operands and attributes as the signature in ops.def
// says, then its shape rule.
#include "base/numbers.h"
#include "plan/attribute_fields.h"
#include "plan/graph_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace culet::plan {
namespace {

using Kind = Expr::Kind;

// The token ids of a metadata array, each below `width`; none is an empty list. The error is the
// message only.
Result<std::vector<int32_t>> token_ids(const Hyperparameter& list, int32_t width) {
  std::vector<int32_t> ids;
  if (list.is_none()) return ids;
  const auto* array = list.thing<ListValue>();
  if (!array)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a metadata array of token ids or none is needed here, this is {}",
                            list.show()));
  const format::MetaValue& all = array->list();
  ids.reserve(all.size());
  for (uint64_t i = 0; i < all.size(); ++i) {
    const std::optional<int64_t> id = all.at(i).as_int();
    if (!id || *id < 0 || *id >= width)
      return fail(ErrorCode::kCorrupt,
                  fmt::format("element {} of this list is {}; a token id from 0 to {} is needed", i,
                              id ? fmt::format("{}", *id) : "no whole number", width - 1));
    ids.push_back(static_cast<int32_t>(*id));
  }
  return ids;
}

}  // namespace

Result<std::vector<ValueId>> GraphValues::call(const Expr& e) {
  const Signature* s = find_signature(e.text);
  if (!s) return writer_.error(e.location, unknown_operation(e.text));
  if (s->kind == OpKind::pool && writer_.arch().kind != "encoder")
    return writer_.error(e.location,
                         "only an encoder, which sees whole sequences, pools their rows");
  Op op = writer_.op(s->kind, e.location);
  ShapeCall shape_call;
  CULET_TRY(bool pass_through, operands(*s, e, &op, &shape_call));
  if (pass_through) return op.in;
  CULET_TRY_VOID(attributes(*s, e, &op, &shape_call));
  return writer_.emit(std::move(op), std::move(shape_call), e.location);
}

// ---- operands

// True when the op has nothing to do (suppress(x, none)).
Result<bool> GraphValues::operands(const Signature& s, const Expr& e, Op* op, ShapeCall* call) {
  using K = OperandRule::Kind;
  size_t used = 0;
  for (const OperandRule& rule : s.operands) {
    if (rule.kind == K::kValues) {
      for (; used < e.kids.size(); ++used) {
        CULET_TRY(ValueId v, value(*e.kids[used]));
        op->in.push_back(v);
      }
      if (op->in.empty())
        return writer_.error(e.location, fmt::format("{} needs at least one value", s.name));
      continue;
    }
    if (used == e.kids.size()) {
      if (rule.kind != K::kOptionalTensor)
        return writer_.error(e.location, fmt::format("{} takes {}, this has {}", s.name,
                                                     operand_text(s), e.kids.size()));
      op->weights.push_back(kNone);
      continue;
    }
    CULET_TRY(bool nothing, operand(rule, s, *e.kids[used++], op, call));
    if (nothing) return true;
  }
  if (used < e.kids.size())
    return writer_.error(e.kids[used]->location,
                         fmt::format("{} takes {}, this is one too many", s.name, operand_text(s)));
  return false;
}

// True when the op has nothing to do.
Result<bool> GraphValues::operand(const OperandRule& rule, const Signature& s, const Expr& arg,
                                  Op* op, ShapeCall* call) {
  using K = OperandRule::Kind;
  switch (rule.kind) {
    case K::kValue: {
      CULET_TRY(ValueId v, value(arg));
      op->in.push_back(v);
      break;
    }
    case K::kTensor:
    case K::kOptionalTensor: {
      CULET_TRY(TensorId t, writer_.hparams().tensor(arg, writer_.layer(), false));
      if (t == kNone && rule.kind == K::kTensor)
        return writer_.error(arg.location, "this tensor cannot be left out");
      op->weights.push_back(t);
      break;
    }
    case K::kHyperparameter: {
      if (s.kind == OpKind::suppress) return token_list(arg, op);
      CULET_TRY(Hyperparameter f, writer_.hparams().eval(arg, writer_.layer()));
      if (!f.number())
        return writer_.error(arg.location,
                             fmt::format("a number is needed here, this is {}{}", f.show(),
                                         writer_.hparams().origin(arg, writer_.layer())));
      call->hparams.push_back(*f.number());
      break;
    }
    case K::kCacheOrPair:
      CULET_TRY_VOID(cache_or_pair(arg, op, call));
      break;
    case K::kState: {
      CULET_TRY(const int32_t state, caches_.state(arg));
      op->attr.as<ShortConvAttributes>().state = state;
      const StateSpec& spec = writer_.plan().states[static_cast<size_t>(state)];
      call->state_rows = spec.rows, call->state_width = spec.width;
      break;
    }
    case K::kCache:
    case K::kValues:
      break;
  }
  return false;
}

// True when the list has no ids.
Result<bool> GraphValues::token_list(const Expr& e, Op* op) {
  CULET_TRY(Hyperparameter list, writer_.hparams().eval(e, writer_.layer()));
  if (const auto* array = list.thing<ListValue>())
    CULET_TRY_VOID(writer_.hparams().spend(e.location, array->list().size()));
  auto ids = token_ids(list, writer_.at(op->in[0]).width);
  if (!ids) return writer_.error(e.location, ids.error().message, ids.error().code);
  if (ids->empty()) return true;
  auto& lists = writer_.plan().token_lists;
  op->attr.as<SuppressAttributes>().tokens = static_cast<int32_t>(lists.size());
  lists.push_back(std::move(*ids));
  return false;
}

Result<void> GraphValues::cache_or_pair(const Expr& e, Op* op, ShapeCall* call) {
  const ArchFile& arch = writer_.arch();
  if (e.kind == Kind::kTuple) {
    if (e.kids.size() != 2)
      return writer_.error(e.location, "attention without a cache takes (k, v)");
    if (arch.kind != "encoder")
      return writer_.error(
          e.location,
          fmt::format("a {} attends over a cache, so that earlier steps are "
                      "seen; {} and name it here",
                      arch.kind,
                      arch.kind == "draft" ? "take the target's" : "append k, v to one"));
    for (const ExprPtr& kid : e.kids) {
      CULET_TRY(ValueId v, value(*kid));
      op->in.push_back(v);
    }
    return {};
  }
  const CacheDecl* d = e.kind == Kind::kName ? arch.cache(e.text) : nullptr;
  if (!d) return writer_.error(e.location, "a cache's name or (k, v) is needed here");
  if (writer_.layer() < 0)
    return writer_.error(e.location, "attention over a cache belongs into the layer block");
  CULET_TRY(const int32_t cache, caches_.read_by(*d, e.location));
  op->attr.as<AttendAttributes>().cache = cache;
  call->cache = writer_.plan().caches[static_cast<size_t>(cache)];
  return {};
}

// ---- attributes

Result<void> GraphValues::attributes(const Signature& s, const Expr& e, Op* op, ShapeCall* call) {
  for (const NamedArgument& a : e.named) {
    if (std::any_of(s.attributes.begin(), s.attributes.end(),
                    [&](const AttributeRule& r) { return r.name == a.name; }))
      continue;
    std::string list;
    for (const AttributeRule& r : s.attributes) list += (list.empty() ? "" : ", ") + r.name;
    return writer_.error(a.location, fmt::format("{} has no '{}=' (it has: {})", s.name, a.name,
                                                 list.empty() ? "none" : list));
  }
  RopeSpec rope;
  const int64_t uses = writer_.hparams().context_uses();
  for (const AttributeRule& rule : s.attributes) {
    const Expr* given = nullptr;
    for (const NamedArgument& a : e.named)
      if (a.name == rule.name) given = a.value.get();
    if (!given && !rule.has_default)
      return writer_.error(e.location, fmt::format("{} needs '{}='", s.name, rule.name));
    CULET_TRY_VOID(attribute(rule, given, op, &rope));
  }
  if (s.kind != OpKind::rope) return {};
  writer_.note_context(uses);
  return finish_rope(e, rope, op, call);
}

// given: nullptr takes the default.
Result<void> GraphValues::attribute(const AttributeRule& rule, const Expr* given, Op* op,
                                    RopeSpec* rope) {
  using K = AttributeRule::Kind;
  Hyperparameters& hparams = writer_.hparams();
  const int layer = writer_.layer();
  const AttributeTarget target{op->kind, &op->attr, rope};
  switch (rule.kind) {
    case K::kTensor: {
      TensorId t = kNone;
      if (given) {
        CULET_TRY(t, hparams.tensor(*given, layer, false));
      }
      if (op->kind == OpKind::rope)
        rope->factors = t, writer_.use(t);
      else
        op->weights.push_back(t);
      return {};
    }
    case K::kInteger: {
      CULET_TRY(int64_t n, hparams.integer(*given, layer, 0, 1 << 28));
      set_number(target, rule.name, static_cast<double>(n));
      return {};
    }
    case K::kNumber: {
      double n = base::parse_double(rule.default_text).value_or(0);
      if (given) {
        CULET_TRY(n, hparams.number(*given, layer));
      }
      if (!(n > -1e30 && n < 1e30))
        return writer_.error(given->location,
                             fmt::format("{}= is {}, a finite number is needed", rule.name, n));
      set_number(target, rule.name, n);
      return {};
    }
    case K::kFlag: {
      bool b = rule.default_text == "yes";
      if (given) {
        CULET_TRY(b, hparams.flag(*given, layer));
      }
      set_number(target, rule.name, b ? 1 : 0);
      return {};
    }
    case K::kWord:
    case K::kMask:
      return word_attribute(rule, given, op, rope);
  }
  return {};
}

Result<void> GraphValues::word_attribute(const AttributeRule& rule, const Expr* given, Op* op,
                                         RopeSpec* rope) {
  Hyperparameters& hparams = writer_.hparams();
  expr::Word word{rule.default_text, 0};
  const bool plain = given && given->kind == Kind::kName && !hparams.let(given->text) &&
                     given->text.find('.') == std::string::npos;
  if (plain) {
    word = {given->text, 0};  // whatever it is: set_word() knows what it may be
  } else if (given) {
    CULET_TRY(Hyperparameter f, hparams.eval(*given, writer_.layer()));
    if (!f.word())
      return writer_.error(given->location,
                           fmt::format("{}= is a word such as '{}', this is {}", rule.name,
                                       rule.has_default ? rule.default_text : "halves", f.show()));
    word = *f.word();
  }
  if (auto ok = set_word({op->kind, &op->attr, rope}, rule.name, word); !ok)
    return writer_.error(given->location, ok.error().message);
  return {};
}

Result<void> GraphValues::finish_rope(const Expr& e, const RopeSpec& rope, Op* op,
                                      ShapeCall* call) {
  if (!(rope.scale > 0) || !(rope.attn_factor > 0))
    return writer_.error(e.location,
                         fmt::format("rope's scale is {} and its attn_factor {}; both must be "
                                     "positive",
                                     rope.scale, rope.attn_factor));
  const bool mixes = rope.mix_from != 0 || rope.mix_to != 0;
  if (mixes && !(rope.mix_from >= 0 && rope.mix_to > rope.mix_from))
    return writer_.error(e.location,
                         fmt::format("rope's mix_from is {} and its mix_to {}; 0 <= mix_from < "
                                     "mix_to is needed",
                                     rope.mix_from, rope.mix_to));
  if (!(rope.base > 0))
    return writer_.error(e.location,
                         fmt::format("rope's base is {}, a positive number is needed", rope.base));
  if (const format::TensorInfo* t = writer_.info(rope.factors);
      t && t->elements() != static_cast<uint64_t>(rope.dims / 2))
    return writer_.error(e.location,
                         fmt::format("tensor {} has {} factors, {} are needed for {} dimensions",
                                     t->name, t->elements(), rope.dims / 2, rope.dims));
  CULET_TRY(op->attr.as<RopeAttributes>().rope, writer_.rope(rope, e.location));
  call->rope_dims = rope.dims;
  return {};
}

}  // namespace culet::plan
