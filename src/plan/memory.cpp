// Takes the declarations of caches and states, gives what one layer keeps; and says what an endless
// stream cannot have.
//
// A stream's positions have no end, so nothing that a rope reads may follow from `session.context`:
// neither a number of it nor the choice of which rope there is. The evaluator counts the uses of
// that hyperparameter; who asked for it is the builder's to compare.
#include "plan/memory.h"

#include "expr/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace culet::plan {

tl::unexpected<Error> layer_error(const Hyperparameters& hparams, int layer, SourceLocation p,
                                  std::string_view message, ErrorCode code) {
  if (layer < 0) return hparams.error(p, message, code);
  return hparams.error(p, fmt::format("layer {}: {}", layer, message), code);
}

Result<CacheSpec> cache_spec(Hyperparameters& hparams, const CacheDecl& d, int layer) {
  CacheSpec spec;
  spec.name = d.name;
  spec.layer = layer;
  if (!d.key_heads)
    return layer_error(hparams, layer, d.location, "the cache needs 'keys HEADS x WIDTH'");
  CULET_TRY(int64_t heads, hparams.integer(*d.key_heads, layer, 1, 65536));
  CULET_TRY(int64_t key_dim, hparams.integer(*d.key_dim, layer, 1, 65536));
  int64_t value_heads = heads, value_dim = key_dim;
  if (d.value_heads) {
    CULET_TRY(value_heads, hparams.integer(*d.value_heads, layer, 1, 65536));
    CULET_TRY(value_dim, hparams.integer(*d.value_dim, layer, 1, 65536));
  }
  if (value_heads != heads)
    return layer_error(hparams, layer, d.location,
                       "keys and values have different numbers of heads");
  spec.kv_heads = static_cast<int32_t>(heads);
  spec.head_dim = static_cast<int32_t>(key_dim);
  spec.value_dim = static_cast<int32_t>(value_dim);
  if (!d.policy) return spec;
  CULET_TRY(Hyperparameter policy, hparams.eval(*d.policy, layer));
  const expr::Word* word = policy.word();
  if (word && word->text == "full")
    spec.policy = CachePolicy::kFull;
  else if (word && word->text == "global")
    spec.policy = CachePolicy::kGlobal;
  else if (word && word->text == "window" && word->argument >= 1 && word->argument < 1e9 &&
           word->argument == std::floor(word->argument)) {
    spec.policy = CachePolicy::kWindow;
    spec.window = static_cast<int64_t>(word->argument);
  } else {
    return layer_error(
        hparams, layer, d.policy->location,
        fmt::format("the policy is {}; full, global or window(n) with n >= 1 is needed",
                    policy.show()));
  }
  return spec;
}

Result<StateSpec> state_spec(Hyperparameters& hparams, const StateDecl& d, int layer) {
  StateSpec spec{d.name, layer};
  CULET_TRY(int64_t rows, hparams.integer(*d.rows, layer, 1, 65536));
  CULET_TRY(int64_t width, hparams.integer(*d.width, layer, 1, 1 << 28));
  spec.rows = static_cast<int32_t>(rows), spec.width = static_cast<int32_t>(width);
  return spec;
}

bool has_rope(const Expr& e) {
  const auto kid_has = [](const ExprPtr& kid) { return has_rope(*kid); };
  return (e.kind == Expr::Kind::kCall && e.text == "rope") ||
         std::any_of(e.kids.begin(), e.kids.end(), kid_has);
}

bool has_rope(const std::vector<Statement>& all) {
  return std::any_of(all.begin(), all.end(), [](const Statement& s) {
    const auto operand_has = [](const ExprPtr& e) { return has_rope(*e); };
    return (s.value && has_rope(*s.value)) ||
           std::any_of(s.operands.begin(), s.operands.end(), operand_has) || has_rope(s.body) ||
           has_rope(s.otherwise);
  });
}

std::string why_no_stream(const Hyperparameters& hparams) {
  const SourceLocation location = hparams.context_location();
  return fmt::format("the rotary factors depend on the length of the context ({}:{}: {})",
                     hparams.arch().files[static_cast<size_t>(location.file)].name, location.line,
                     expr::source_text(hparams.arch().files, location));
}

}  // namespace culet::plan
