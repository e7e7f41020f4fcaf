// culet explain and culet show: what a model is, without running it.
#include "cli/commands.h"
#include "cli/events.h"
#include "cli/interrupt.h"
#include "culet/hub.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace culet::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kDefaultContext = 4096;

std::string mebibytes(uint64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

Json to_json(const SamplerOptions& sampling) {
  return {{"temperature", shortest(sampling.temperature)},
          {"top_k", sampling.top_k},
          {"top_p", shortest(sampling.top_p)},
          {"min_p", shortest(sampling.min_p)},
          {"repeat_penalty", shortest(sampling.repeat_penalty)},
          {"repeat_last_n", sampling.repeat_last_n}};
}

// "full", "window(512)", "sinks(4) + window(4092)", "state"
std::string kept(CacheKind kind, int64_t sinks, int64_t window) {
  if (kind == CacheKind::kState) return "state";
  if (window == 0) return "full";
  if (kind == CacheKind::kWindow) return fmt::format("window({})", window);
  return fmt::format("sinks({}) + window({})", sinks, window);
}

// "window(512), 4 heads of 256"
std::string describe(const LayerCacheInfo& cache) {
  if (cache.kind == CacheKind::kState)
    return fmt::format("state, {} tokens of {}", cache.tokens, cache.width);
  std::string text = fmt::format("{}, {} heads of {}", kept(cache.kind, 0, cache.window),
                                 cache.kv_heads, cache.key_size);
  if (cache.value_size != cache.key_size)
    text += fmt::format(" (keys) and {} (values)", cache.value_size);
  return text;
}

std::string name_of(const LayerCacheInfo& cache) {
  return fmt::format("layer {} {}", cache.layer, cache.name);
}

// The files of a split model, which only --sha256 asks for.
Json to_json(const std::vector<FileDigest>& parts) {
  Json list = Json::array();
  for (const FileDigest& part : parts) {
    list.push_back({{"path", part.path}, {"bytes", part.bytes}, {"sha256", part.sha256}});
  }
  return list;
}

// A session's memory, one kind of layer after the other.
Json to_json(const ContextMemory& memory) {
  Json layers = Json::array();
  for (const LayerMemory& layer : memory.layers) {
    layers.push_back({{"kind", kept(layer.kind, layer.sinks, layer.window)},
                      {"layers", layer.layers},
                      {"payload_bytes", layer.payload},
                      {"allocated_bytes", layer.allocated}});
  }
  return {{"layers", layers},
          {"payload_bytes", memory.payload},
          {"allocated_bytes", memory.allocated},
          {"peak_bytes", memory.peak}};
}

Json to_json(const Model& model, const ModelRef& ref, const std::vector<FileDigest>& files,
             const SessionOptions& session, const ContextMemory& memory) {
  const ModelInfo& info = model.info();
  Json types = Json::object(), type_bytes = Json::object();
  for (const TensorTypeInfo& type : info.tensor_types) {
    types[type.type] = type.tensors;
    type_bytes[type.type] = type.bytes;
  }
  Json caches = Json::array(), sets = Json::object();
  for (const LayerCacheInfo& cache : info.caches)
    caches.push_back({{"name", name_of(cache)}, {"what", describe(cache)}});
  for (const auto& [name, usable] : instruction_sets()) sets[name] = usable;
  Json file{{"path", info.path},
            {"bytes", info.file_bytes},
            {"origin", ref.origin},
            {"revision", ref.revision.empty() ? Json() : Json(ref.revision)},
            {"sha256", ref.sha256.empty() ? Json() : Json(ref.sha256)}};
  if (files.size() > 1) file["parts"] = to_json(files);
  return {{"file", file},
          {"name", info.name},
          {"architecture", info.architecture},
          {"kind", kind_name(info.kind)},
          {"architecture_file", {{"origin", info.arch_origin}, {"sha256", info.arch_sha256}}},
          {"parameters", info.parameters},
          {"tensors", info.tensors},
          {"tensor_types", types},
          {"tensor_bytes", type_bytes},
          {"layers", info.layers},
          {"hidden_size", info.hidden_size},
          {"embedding_dimension", info.embedding_dimension},
          {"vocabulary", info.vocabulary_size},
          {"context_length", info.context_length},
          {"rope_factors", info.rope_factors.empty() ? Json() : Json(info.rope_factors)},
          {"chat_template", info.has_chat_template},
          {"sampling", to_json(info.sampling)},
          {"caches", caches},
          {"instruction_set", info.isa},
          {"instruction_sets", sets},
          {"threads", info.threads},
          {"precise", info.precise},
          {"repacked", info.repacked},
          {"packed_bytes", info.packed_bytes},
          {"converted_bytes", info.converted_bytes},
          {"mapped_bytes", info.mapped_bytes},
          {"workspace_bytes", info.workspace_bytes},
          {"context", session.context},
          {"context_bytes", memory.peak},
          {"memory", to_json(memory)},
          {"warnings", info.warnings}};
}

// "layer 0 kv" and "layer 1 kv" with the same memory become one line.
std::string cache_lines(const ModelInfo& info) {
  std::vector<std::pair<std::string, std::vector<std::string>>> groups;
  for (const LayerCacheInfo& cache : info.caches) {
    const std::string what = describe(cache);
    auto at = groups.begin();
    while (at != groups.end() && at->first != what) ++at;
    if (at == groups.end()) at = groups.insert(at, {what, {}});
    at->second.push_back(name_of(cache));
  }
  std::string text;
  for (const auto& [what, names] : groups) {
    const std::string which =
        names.size() == 1 ? names.front() : fmt::format("{} layers", names.size());
    text += fmt::format("{:<18}{} ({})\n", text.empty() ? "caches" : "", what, which);
  }
  return text;
}

// "120 x Q4_1 (85.0 MiB), 61 x F32 (0.1 MiB)"
std::string quant_mix(const ModelInfo& info) {
  std::string text;
  for (const TensorTypeInfo& type : info.tensor_types) {
    text += fmt::format("{}{} x {} ({})", text.empty() ? "" : ", ", type.tensors, type.type,
                        mebibytes(type.bytes));
  }
  return text;
}

// The memory to run with, part by part; the mapped part is the file's own pages.
std::string memory_lines(const Model& model, const SessionOptions& session,
                         const ContextMemory& memory) {
  const ModelInfo& info = model.info();
  const uint64_t cache = memory.peak;
  const uint64_t own = info.packed_bytes + info.converted_bytes + info.workspace_bytes + cache;
  std::string text = fmt::format(
      "{:<18}{}\n", "weights",
      info.repacked ? fmt::format("a repacked copy of {}, and {} of the file's pages",
                                  mebibytes(info.packed_bytes), mebibytes(info.mapped_bytes))
                    : fmt::format("{} of the file's pages, shared between processes (--no-repack)",
                                  mebibytes(info.mapped_bytes)));
  if (info.kind == ModelKind::kEncoder) {
    return text + fmt::format(
                      "{:<18}{} of its own, {} of it workspace; sequences that are longer than an "
                      "ordinary forward pass need more\n",
                      "memory", mebibytes(own), mebibytes(info.workspace_bytes));
  }
  text += fmt::format("{:<18}{} of its own for {} of {} tokens: {} of cache, {} of workspace\n",
                      "memory", mebibytes(own), session.stream ? "a stream" : "a context",
                      session.context, mebibytes(cache), mebibytes(info.workspace_bytes));
  for (const LayerMemory& layer : memory.layers) {
    text +=
        fmt::format("{:<18}{} x {}: {} of keys and values, {} allocated between forward passes\n",
                    "", layer.layers, kept(layer.kind, layer.sinks, layer.window),
                    mebibytes(layer.payload), mebibytes(layer.allocated));
  }
  return text;
}

std::string usable_sets() {
  std::string text;
  for (const auto& [name, usable] : instruction_sets()) {
    if (usable) text += (text.empty() ? "" : ", ") + name;
  }
  return text;
}

std::string human(const Model& model, const ModelRef& ref, const std::vector<FileDigest>& files,
                  const SessionOptions& session, const ContextMemory& memory) {
  const ModelInfo& info = model.info();
  std::string text;
  const auto line = [&](std::string_view name, const std::string& value) {
    text += fmt::format("{:<18}{}\n", name, value);
  };
  line("file", fmt::format("{} ({})", info.path, mebibytes(info.file_bytes)));
  line("origin", ref.revision.empty() ? ref.origin
                                      : fmt::format("{}, revision {}", ref.origin, ref.revision));
  if (files.size() > 1) {
    for (const FileDigest& part : files) line("sha256", part.sha256 + "  " + part.path);
  } else {
    line("sha256", ref.sha256.empty() ? "not computed (--sha256)" : ref.sha256);
  }
  if (!info.name.empty()) line("name", info.name);
  line("architecture", fmt::format("{} ({})", info.architecture, kind_name(info.kind)));
  line("architecture file", fmt::format("{}, sha256 {}", info.arch_origin, info.arch_sha256));
  line("parameters", fmt::format("{:.1f} million", static_cast<double>(info.parameters) / 1e6));
  line("tensors", fmt::format("{}: {}", info.tensors, quant_mix(info)));
  line("shape", fmt::format("{} layers, hidden size {}, vocabulary {}", info.layers,
                            info.hidden_size, info.vocabulary_size));
  line("context", fmt::format("{} tokens", info.context_length));
  if (info.rope_context != 0) line("rotation", rotation(info));
  if (info.kind == ModelKind::kEncoder) {
    line("vectors", info.embedding_dimension > 0
                        ? fmt::format("{} numbers per text (culet embed)", info.embedding_dimension)
                        : "none: the file names no pooling");
  }
  line("chat template", info.has_chat_template ? "yes" : "no");
  line("sampling",
       fmt::format("temperature {}, top-k {}, top-p {}, min-p {}, repeat penalty {} of {}",
                   info.sampling.temperature, info.sampling.top_k, info.sampling.top_p,
                   info.sampling.min_p, info.sampling.repeat_penalty, info.sampling.repeat_last_n));
  text += cache_lines(info);
  line("instruction set", fmt::format("{} (usable here: {})", info.isa, usable_sets()));
  line("threads", fmt::format("{}", info.threads));
  line("arithmetic", info.precise ? "32-bit activations (--precise)" : "8-bit activations");
  text += memory_lines(model, session, memory);
  for (const std::string& note : ref.notes) line("note", note);
  for (const std::string& warning : info.warnings) line("warning", warning);
  return text;
}

Result<std::vector<FileDigest>> digests_with_progress(const ModelRef& ref) {
  const InterruptWatch interrupt;
  StatusLine status(true);
  return model_digests(ref, [&](const Progress& p) {
    status.show(
        fmt::format("Computing the sha256: {} of {}", mebibytes(p.done), mebibytes(p.total)));
    return !interrupt.interrupted();
  });
}

}  // namespace

Result<int> explain_command(const ExplainArguments& arguments, Output& out) {
  CULET_TRY(const auto model, load_model(arguments.model));
  std::string text = model->explain();
  if (!text.ends_with('\n')) text += '\n';
  out.write(printable(text));
  return kExitOk;
}

Result<int> show_command(const ShowArguments& arguments, Output& out) {
  CULET_TRY(ModelRef ref, find_model(arguments.model.path));
  ModelArguments text_only = arguments.model;  // nothing runs, so nothing is prepared
  text_only.options.text_only = true;
  CULET_TRY(const auto model, load_model(text_only));
  const int64_t trained = model->info().context_length;
  const int64_t most = trained ? trained : INT64_MAX;
  if (arguments.memory.context > most) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--ctx {} is more than the {} tokens the model was trained for",
                            arguments.memory.context, most));
  }
  SessionOptions session = arguments.memory.options();
  CULET_TRY(const ContextMemory memory, context_memory(*model, session));
  if (session.stream && session.stream->window > 0)
    session.context = session.stream->sinks + session.stream->window;
  else if (session.context == 0)
    session.context = std::min(most, kDefaultContext);
  std::vector<FileDigest> files;
  if (arguments.sha256) {
    CULET_TRY(files, digests_with_progress(ref));
    ref.sha256 = files.front().sha256;
  }
  if (arguments.json) {
    out.write(to_json(*model, ref, files, session, memory)
                  .dump(2, ' ', false, Json::error_handler_t::replace) +
              "\n");
  } else {
    out.write(printable(human(*model, ref, files, session, memory)));
  }
  return kExitOk;
}

}  // namespace culet::cli
