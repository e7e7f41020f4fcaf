// The compiler's driver: finds the architecture file, runs the stages in order.
#include "plan/compile.h"

#include "base/sha256.h"
#include "plan/arch_parse.h"
#include "plan/graph.h"
#include "plan/hyperparameters.h"
#include "plan/passes.h"
#include "plan/report.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

namespace culet::plan {
namespace {

Result<std::string> architecture_of(const format::GgufFile& model) {
  const format::MetaValue* v = model.find("general.architecture");
  const auto name = v ? v->as_string() : std::nullopt;
  if (!name || name->empty())
    return fail(ErrorCode::kCorrupt, fmt::format("{}: general.architecture is missing or no "
                                                 "string, so nothing says how to run this model",
                                                 model.name()));
  return std::string(*name);
}

// The one key of the architecture that the program reads by itself.
Result<void> check_context_key(const format::GgufFile& model, const std::string& architecture) {
  const std::string key = architecture + ".context_length";
  const format::MetaValue* value = model.find(key);
  if (!value || value->as_int().value_or(-1) >= 0) return {};
  return fail(ErrorCode::kCorrupt, fmt::format("{}: the key {} is no whole number from 0 on, so "
                                               "nothing says how long a context may be",
                                               model.name(), key));
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines{""};
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = text.find('\n', at);
    lines.push_back(text.substr(at, end == std::string::npos ? std::string::npos : end - at));
    if (end == std::string::npos) break;
    at = end + 1;
  }
  return lines;
}

std::string sha256_of(const std::string& text) {
  return base::sha256_hex(std::as_bytes(std::span(text.data(), text.size())));
}

}  // namespace

Result<Compiled> compile(const ArchLibrary& library, const format::GgufFile& model,
                         const CompileOptions& options) {
  CULET_TRY(std::string name, architecture_of(model));
  CULET_TRY(const ArchText* text, library.find(name));
  return compile_text(library, *text, model, options);
}

Result<Compiled> compile_text(const ArchLibrary& library, const ArchText& text,
                              const format::GgufFile& model, const CompileOptions& options) {
  CULET_TRY(std::string name, architecture_of(model));
  CULET_TRY(ArchFile parsed, parse_arch(library, text));
  Compiled out;
  out.arch = std::make_shared<const ArchFile>(std::move(parsed));
  const ArchFile& arch = *out.arch;
  CULET_TRY_VOID(check_context_key(model, name));
  const int64_t trained = trained_context(model);
  const int64_t context = options.context > 0 ? options.context : trained;

  std::optional<Compiled> made;  // the target, where nobody has compiled it
  std::optional<Hyperparameters> target_hparams;
  TargetPlan target;
  if (options.target) {
    const Compiled* compiled = options.target_compiled;
    if (!compiled) {
      CULET_TRY(made, compile(library, *options.target, {.context = options.context}));
      compiled = &*made;
    }
    target_hparams.emplace(*compiled->arch, *options.target,
                           options.context > 0 ? options.context : trained_context(*options.target),
                           nullptr);
    target = {&compiled->plan, &*target_hparams};
  }
  Hyperparameters hparams(arch, model, context, target.hparams);
  CULET_TRY(GraphResult graph, build_graph(hparams, target));

  out.plan = std::move(graph.plan);
  out.warnings = std::move(graph.warnings);
  out.unread_keys = std::move(graph.unread_keys);
  out.origin = text.origin;
  out.context_length = trained;
  out.plan.architecture = name;
  const std::string flat = flattened_text(arch);
  out.plan.source = lines_of(flat);
  out.plan.source_sha256 = sha256_of(flat);
  add_sink_queries(&out.plan);
  select_rows(&out.plan);
  remove_dead(&out.plan);
  if (!options.precise) insert_quantize(&out.plan, {model, options.target});
  if (options.fuse) fuse(&out.plan);
  assign(&out.plan);
  verify(out.plan);
  return out;
}

}  // namespace culet::plan
