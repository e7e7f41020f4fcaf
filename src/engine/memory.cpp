// What a session's options mean for one model, what it will take (from the plan alone), and what it
// holds.
#include "engine/session_impl.h"

#include <fmt/format.h>

#include <algorithm>

namespace culet {
namespace engine {
namespace {

using model::kDefaultContext;

// Of a model whose RoPE factors follow the context.
Result<void> check_made_for(const ModelImpl& model, int64_t context) {
  const model::LoadedModel& loaded = model.loaded();
  if (loaded.compiled.plan.no_stream.empty() || context <= loaded.context) return {};
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("a context of {} tokens is more than the {} that {} was loaded for: {}; load it "
                  "with a larger context (--ctx)",
                  context, loaded.context, model.info().path, loaded.compiled.plan.no_stream));
}

Result<int64_t> context_of(const ModelImpl& model, int64_t asked) {
  const ModelInfo& info = model.info();
  const int64_t trained = info.context_length;
  if (asked < 0) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "a context of {} tokens is impossible; use a positive number, or 0 for the default",
            asked));
  }
  if (asked == 0) {
    const int64_t usual = trained ? std::min(trained, kDefaultContext) : kDefaultContext;
    const bool follows = !model.loaded().compiled.plan.no_stream.empty();
    return follows ? std::min(usual, model.loaded().context) : usual;
  }
  if (trained && asked > trained) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("a context of {} tokens is more than the {} that {} was trained for; ask "
                    "for at most that",
                    asked, trained, info.path));
  }
  CULET_TRY_VOID(check_made_for(model, asked));
  return asked;
}

// The sinks and the window together are the context that the model meets.
Result<void> resolve_stream(const ModelImpl& model, const SessionOptions& given,
                            SessionOptions* options) {
  const std::string& why = model.loaded().compiled.plan.no_stream;
  if (!why.empty()) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{} cannot follow an endless stream: {}; use a fixed context",
                            model.info().path, why));
  }
  StreamOptions& stream = *options->stream;
  if (stream.sinks < 0 || stream.window < 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a stream cannot have {} sinks and a window of {} tokens; use 0 or "
                            "more sinks and a window of 1 or more",
                            stream.sinks, stream.window));
  }
  if (stream.window > 0) {
    const int64_t trained = model.info().context_length;
    if (trained && (stream.window > trained || stream.sinks > trained - stream.window)) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} sinks and a window of {} tokens are more than the {} tokens "
                              "that {} was trained for; use a smaller window",
                              stream.sinks, stream.window, trained, model.info().path));
    }
    if (given.context > 0 && given.context != stream.sinks + stream.window) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("a context of {} tokens is not {} sinks and a window of {}; give the "
                              "context or the window",
                              given.context, stream.sinks, stream.window));
    }
    options->context = stream.sinks + stream.window;
    return {};
  }
  stream.window = options->context - stream.sinks;
  if (stream.window < 1) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a context of {} tokens leaves no room for a window beside {} sinks; "
                            "use a larger context or fewer sinks",
                            options->context, stream.sinks));
  }
  return {};
}

// Where the stream is under way, far enough for every window to be full.
constexpr int64_t kUnderWay = int64_t{1} << 40;

}  // namespace

Result<SessionOptions> resolve_options(const ModelImpl& model, const SessionOptions& given) {
  SessionOptions options = given;
  CULET_TRY(options.context, context_of(model, given.context));
  if (options.stream) CULET_TRY_VOID(resolve_stream(model, given, &options));
  if (options.window_types && *options.window_types == std::pair(options.keys, options.values))
    options.window_types.reset();
  return options;
}

cache::CacheOptions cache_options(const SessionOptions& options) {
  cache::CacheOptions out;
  out.k_type = kv_type(options.keys);
  out.v_type = kv_type(options.values);
  if (options.window_types) {
    out.window_types =
        std::pair(kv_type(options.window_types->first), kv_type(options.window_types->second));
  }
  out.max_positions = options.context;
  if (options.stream) out.stream = cache::Stream{options.stream->sinks, options.stream->window};
  out.start = options.start_position;
  return out;
}

// options: resolved.
Result<ContextMemory> context_memory(const ModelImpl& model, const SessionOptions& options) {
  const model::LoadedModel& loaded = model.loaded();
  const cache::CacheOptions caches = cache_options(options);
  const int64_t tokens = options.stream ? kUnderWay : options.context;
  const int64_t ubatch_size =
      loaded.executor ? loaded.executor->limits().tokens : backend::Limits{}.tokens;
  ContextMemory memory;
  const auto add = [&memory](const LayerMemory& layer, const cache::LayerBytes& bytes) {
    auto at = std::find_if(memory.layers.begin(), memory.layers.end(), [&](const LayerMemory& l) {
      return l.kind == layer.kind && l.sinks == layer.sinks && l.window == layer.window;
    });
    if (at == memory.layers.end()) at = memory.layers.insert(at, layer);
    ++at->layers;
    at->payload += bytes.payload, at->allocated += bytes.allocated;
    memory.payload += bytes.payload, memory.allocated += bytes.allocated;
    memory.peak += bytes.in_a_pass;
  };
  for (const plan::CacheSpec& spec : loaded.compiled.plan.caches) {
    if (spec.target != plan::kNone) continue;  // of a draft model: its target's session holds it
    const cache::CacheWindow kept = cache::cache_window_of(spec, caches);
    LayerMemory layer;
    if (spec.policy == plan::CachePolicy::kWindow) layer.kind = CacheKind::kWindow;
    if (!kept.full()) layer.sinks = kept.sinks, layer.window = kept.window;
    add(layer, cache::layer_bytes(spec, caches, tokens, ubatch_size));
  }
  for (const plan::StateSpec& spec : loaded.compiled.plan.states) {
    const uint64_t bytes =
        static_cast<uint64_t>(spec.rows) * static_cast<uint64_t>(spec.width) * sizeof(float);
    add({CacheKind::kState}, {bytes, cache::state_bytes(spec), cache::state_bytes(spec)});
  }
  return memory;
}

Result<void> check_room(const ModelImpl& model, const SessionOptions& options) {
  const model::LoadedModel& loaded = model.loaded();
  CULET_TRY(const ContextMemory memory, context_memory(model, options));
  const uint64_t own =
      memory.peak + static_cast<uint64_t>(loaded.info.vocabulary_size) * sizeof(float);
  const std::string context = fmt::format("a context of {} tokens", options.context);
  const char* const advice = "use a smaller one (--ctx)";
  if (loaded.memory_limit == 0) {
    if (model::check_memory(0, own, context, advice)) return {};
    loaded.memory->trim();
    return model::check_memory(0, own, context, advice);
  }
  return model::check_memory(
      loaded.memory_limit,
      own + loaded.info.packed_bytes + loaded.info.converted_bytes + loaded.info.workspace_bytes,
      context + " together with the weights and the workspace of the model", advice);
}

Result<std::unique_ptr<cache::CacheSet>> make_caches(const ModelImpl& model,
                                                     const SessionOptions& options) {
  const model::LoadedModel& loaded = model.loaded();
  return cache::CacheSet::make(loaded.compiled.plan, cache_options(options), loaded.memory);
}

bool same_memory(const SessionOptions& a, const SessionOptions& b) {
  const auto stream = [](const SessionOptions& o) {
    return o.stream ? std::pair(o.stream->sinks, o.stream->window)
                    : std::pair<int64_t, int64_t>(-1, -1);
  };
  return a.keys == b.keys && a.values == b.values && a.window_types == b.window_types &&
         stream(a) == stream(b) && a.start_position == b.start_position;
}

}  // namespace engine

Result<ContextMemory> context_memory(const Model& model, const SessionOptions& given) {
  CULET_TRY(const SessionOptions options, engine::resolve_options(model.impl(), given));
  return engine::context_memory(model.impl(), options);
}

// ---------------------------------------------------------------- what a session holds

SessionMemory Session::memory() const {
  const engine::Timeline& timeline = impl_->timeline();
  const cache::HeldBytes caches = timeline.caches.held_bytes();
  SessionMemory memory{caches.own + timeline.history.kept().size_bytes(), caches.shared};
  if (const cache::BlockRef& logits = timeline.logits.block(); logits)
    (logits.shared() ? memory.shared : memory.own) += logits.bytes();
  return memory;
}

uint64_t Session::checkpoint_bytes() const {
  const engine::Timeline& timeline = impl_->timeline();
  const uint64_t logits = timeline.logits ? timeline.logits.block().bytes() : 0;
  return timeline.caches.checkpoint_bytes() + logits + timeline.history.kept().size_bytes();
}

std::string_view kv_type_name(KvType type) {
  constexpr std::string_view kNames[] = {"f32", "f16", "bf16", "q8_0"};
  return kNames[static_cast<size_t>(type)];
}

}  // namespace culet
