// What a session will take, from the cache specifications of the plan alone.
#include "cache/layer_cache.h"
#include "culet/engine.h"
#include "engine/model_impl.h"

#include <algorithm>

namespace culet {
namespace {

constexpr int64_t kDefaultContext = 4096;
constexpr uint64_t kBlockHeader = 64;

// Rows of a layer that exist at once: a window keeps itself, a pass, and what a rewind may need.
int64_t rows_held(const plan::CacheSpec& spec, int64_t context, int64_t pass_rows) {
  if (spec.policy != plan::CachePolicy::kWindow) return context;
  return std::min(context, spec.window + pass_rows + 2 * kernels::kKvBlockRows);
}

}  // namespace

uint64_t context_bytes(const Model& model, const SessionOptions& options) {
  const model::LoadedModel& loaded = engine::impl(model).loaded();
  const int64_t trained = model.info().context_length;
  const int64_t smaller = trained ? std::min(trained, kDefaultContext) : kDefaultContext;
  const int64_t context = options.context > 0 ? options.context : smaller;
  const int64_t pass_rows =
      loaded.executor ? loaded.executor->limits().rows : backend::Limits{}.rows;
  uint64_t bytes = 0;
  for (const plan::CacheSpec& spec : loaded.compiled.plan.caches) {
    const cache::KvShape shape{engine::kv_type(options.keys), engine::kv_type(options.values),
                               spec.kv_heads, spec.head_dim, spec.value_dim};
    const auto blocks = static_cast<uint64_t>(
        (rows_held(spec, context, pass_rows) + kernels::kKvBlockRows - 1) / kernels::kKvBlockRows);
    bytes += blocks * (shape.k_block_bytes() + shape.v_block_bytes() + kBlockHeader);
  }
  return bytes;
}

}  // namespace culet
