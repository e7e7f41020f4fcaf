// culet explain and culet show: what a model is, without running it.
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "culet/models.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace culet::cli {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const Sampling& sampling) {
  return {{"temperature", sampling.temperature},
          {"top_k", sampling.top_k},
          {"top_p", sampling.top_p},
          {"min_p", sampling.min_p},
          {"repeat_penalty", sampling.repeat_penalty},
          {"repeat_window", sampling.repeat_window}};
}

Json to_json(const ModelInfo& info, const ModelRef& ref) {
  Json types = Json::object(), caches = Json::array(), sets = Json::object();
  for (const auto& [name, count] : info.tensor_types) types[name] = count;
  for (const auto& [name, what] : info.caches) caches.push_back({{"name", name}, {"what", what}});
  for (const auto& [name, usable] : instruction_sets()) sets[name] = usable;
  return {{"file",
           {{"path", info.path},
            {"bytes", info.file_bytes},
            {"origin", ref.origin},
            {"revision", ref.revision.empty() ? Json() : Json(ref.revision)},
            {"sha256", ref.sha256}}},
          {"name", info.name},
          {"architecture", info.architecture},
          {"architecture_file", {{"origin", info.arch_origin}, {"sha256", info.arch_sha256}}},
          {"parameters", info.parameters},
          {"tensors", info.tensors},
          {"tensor_types", types},
          {"layers", info.layers},
          {"width", info.width},
          {"vocabulary", info.vocabulary},
          {"context_length", info.context_length},
          {"chat_template", info.has_chat_template},
          {"sampling", to_json(info.sampling)},
          {"caches", caches},
          {"instruction_set", info.isa},
          {"instruction_sets", sets},
          {"threads", info.threads},
          {"precise", info.precise},
          {"packed_bytes", info.packed_bytes},
          {"workspace_bytes", info.workspace_bytes},
          {"warnings", info.warnings}};
}

std::string mebibytes(uint64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

// "layer 0 kv" and "layer 1 kv" with the same memory become one line.
std::string cache_lines(const ModelInfo& info) {
  std::vector<std::pair<std::string, std::vector<std::string>>> groups;
  for (const auto& [name, what] : info.caches) {
    auto at = groups.begin();
    while (at != groups.end() && at->first != what) ++at;
    if (at == groups.end()) at = groups.insert(at, {what, {}});
    at->second.push_back(name);
  }
  std::string text;
  for (const auto& [what, names] : groups) {
    const std::string which =
        names.size() == 1 ? names.front() : fmt::format("{} layers", names.size());
    text += fmt::format("{:<18}{} ({})\n", text.empty() ? "caches" : "", what, which);
  }
  return text;
}

std::string list(const std::vector<std::pair<std::string, uint64_t>>& counts) {
  std::string text;
  for (const auto& [name, count] : counts) {
    text += fmt::format("{}{} x {}", text.empty() ? "" : ", ", count, name);
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

std::string human(const ModelInfo& info, const ModelRef& ref) {
  std::string text;
  const auto line = [&](std::string_view name, const std::string& value) {
    text += fmt::format("{:<18}{}\n", name, value);
  };
  line("file", fmt::format("{} ({})", info.path, mebibytes(info.file_bytes)));
  line("origin", ref.revision.empty() ? ref.origin
                                      : fmt::format("{}, revision {}", ref.origin, ref.revision));
  line("sha256", ref.sha256);
  if (!info.name.empty()) line("name", info.name);
  line("architecture", info.architecture);
  line("architecture file", fmt::format("{}, sha256 {}", info.arch_origin, info.arch_sha256));
  line("parameters", fmt::format("{:.1f} million", static_cast<double>(info.parameters) / 1e6));
  line("tensors", fmt::format("{}: {}", info.tensors, list(info.tensor_types)));
  line("shape",
       fmt::format("{} layers, width {}, vocabulary {}", info.layers, info.width, info.vocabulary));
  line("context", fmt::format("{} tokens", info.context_length));
  line("chat template", info.has_chat_template ? "yes" : "no");
  line("sampling",
       fmt::format("temperature {}, top-k {}, top-p {}, min-p {}, repeat penalty {} of {}",
                   info.sampling.temperature, info.sampling.top_k, info.sampling.top_p,
                   info.sampling.min_p, info.sampling.repeat_penalty, info.sampling.repeat_window));
  text += cache_lines(info);
  line("instruction set", fmt::format("{} (usable here: {})", info.isa, usable_sets()));
  line("threads", fmt::format("{}", info.threads));
  line("arithmetic", info.precise ? "32-bit activations (--precise)" : "8-bit activations");
  line("memory", fmt::format("{} of repacked weights, {} of workspace",
                             mebibytes(info.packed_bytes), mebibytes(info.workspace_bytes)));
  for (const std::string& note : ref.notes) line("note", note);
  for (const std::string& warning : info.warnings) line("warning", warning);
  return text;
}

Result<std::string> sha256_with_progress(const ModelRef& ref) {
  const InterruptWatch interrupt;
  StatusLine status(true);
  return model_sha256(ref, [&](uint64_t done, uint64_t total) {
    status.show(fmt::format("Computing the sha256: {} of {}", mebibytes(done), mebibytes(total)));
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
  CULET_TRY(ref.sha256, sha256_with_progress(ref));
  CULET_TRY(const auto model, load_model(arguments.model));
  if (arguments.json) {
    out.write(to_json(model->info(), ref).dump(2, ' ', false, Json::error_handler_t::replace) +
              "\n");
  } else {
    out.write(printable(human(model->info(), ref)));
  }
  return kExitOk;
}

}  // namespace culet::cli
