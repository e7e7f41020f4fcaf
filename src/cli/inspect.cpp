// culet explain and culet show: what a model is, without running it.
#include "cli/commands.h"
#include "cli/events.h"
#include "cli/interrupt.h"
#include "culet/arch.h"
#include "culet/hub.h"
#include "culet/model_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <utility>

namespace culet::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kDefaultContext = 4096;

// A value from a file takes one line, so that it cannot look like another one.
std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

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
          {"runs", info.cannot_run.empty()},
          {"why_not", info.cannot_run.empty() ? Json() : Json(info.cannot_run)},
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
  const auto line = [&](std::string_view name, std::string value) {
    text += fmt::format("{:<18}{}\n", name, one_line(std::move(value)));
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
  if (!info.cannot_run.empty()) line("runs", "no: " + info.cannot_run);
  for (const std::string& note : ref.notes) line("note", note);
  for (const std::string& warning : info.warnings) line("warning", warning);
  return text;
}

// ---------------------------------------------------------------- a file that cannot be run

Json to_json(const ModelFile& file, const ModelRef& ref, const std::string& why) {
  Json metadata = Json::array(), tensors = Json::array(), types = Json::object();
  for (const MetadataEntry& entry : file.metadata) {
    Json one{{"key", entry.key}, {"type", entry.type}, {"value", entry.value}};
    if (entry.type.starts_with("array")) one["size"] = entry.size;
    metadata.push_back(std::move(one));
  }
  for (const TensorEntry& tensor : file.tensors) {
    tensors.push_back({{"name", tensor.name},
                       {"type", tensor.type},
                       {"shape", tensor.shape},
                       {"bytes", tensor.bytes}});
    types[tensor.type] = types.value(tensor.type, 0) + 1;
  }
  return {{"file",
           {{"path", file.path},
            {"bytes", file.bytes},
            {"origin", ref.origin},
            {"revision", ref.revision.empty() ? Json() : Json(ref.revision)},
            {"sha256", ref.sha256.empty() ? Json() : Json(ref.sha256)}}},
          {"name", file.name},
          {"architecture", file.architecture},
          {"parameters", file.parameters},
          {"tensors", file.tensors.size()},
          {"tensor_types", types},
          {"runs", false},
          {"why_not", why},
          {"metadata", metadata},
          {"tensor_list", tensors}};
}

std::string shortened(std::string text) {
  constexpr size_t kMost = 100;
  text = one_line(std::move(text));
  if (text.size() <= kMost) return text;
  size_t end = kMost;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

std::string human(const ModelFile& file, const ModelRef& ref, const std::string& why) {
  std::string text;
  const auto line = [&](std::string_view name, std::string value) {
    text += fmt::format("{:<18}{}\n", name, one_line(std::move(value)));
  };
  line("file", fmt::format("{} ({})", file.path, mebibytes(file.bytes)));
  line("origin", ref.origin);
  if (!file.name.empty()) line("name", file.name);
  line("architecture", file.architecture.empty() ? "not named" : file.architecture);
  line("runs", "no: " + why);
  line("parameters", fmt::format("{:.1f} million", static_cast<double>(file.parameters) / 1e6));
  for (const std::string& note : ref.notes) line("note", note);
  text += fmt::format("\nmetadata ({})\n", file.metadata.size());
  for (const MetadataEntry& entry : file.metadata) {
    const std::string size = entry.size > 0 ? fmt::format(" ({})", entry.size) : "";
    text += fmt::format("  {}: {}{} = {}\n", entry.key, entry.type, size, shortened(entry.value));
  }
  text += fmt::format("\ntensors ({})\n", file.tensors.size());
  for (const TensorEntry& tensor : file.tensors) {
    text += fmt::format("  {}: {} [{}]\n", tensor.name, tensor.type, fmt::join(tensor.shape, ", "));
  }
  return text;
}

// Whether some architecture file is for this model, so that what is wrong is something else.
bool is_known(const std::string& architecture, const std::string& arch_dir) {
  const auto files = list_architectures(arch_dir);
  return !files || std::any_of(files->begin(), files->end(), [&](const ArchEntry& file) {
    return !file.problem.empty() || std::find(file.architectures.begin(), file.architectures.end(),
                                              architecture) != file.architectures.end();
  });
}

// A model that could not be loaded is shown all the same if its architecture is not known.
Result<int> show_file(const ShowArguments& arguments, const ModelRef& ref, const Error& why,
                      Output& out) {
  const auto file = read_model_file(ref.path);
  if (!file || is_known(file->architecture, arguments.model.options.arch_dir)) {
    return tl::unexpected(why);
  }
  out.write(
      arguments.json
          ? to_json(*file, ref, why.message).dump(2, ' ', false, Json::error_handler_t::replace) +
                "\n"
          : printable(human(*file, ref, why.message)));
  return kExitOk;
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
  const auto loaded = load_model(text_only);
  if (!loaded) return show_file(arguments, ref, loaded.error(), out);
  const auto& model = *loaded;
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
