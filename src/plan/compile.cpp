// The compiler's driver: finds the architecture file, runs the stages in order.
#include "plan/compile.h"

#include "base/sha256.h"
#include "plan/arch_parse.h"
#include "plan/facts.h"
#include "plan/graph.h"
#include "plan/passes.h"
#include "plan/report.h"

#include <fmt/format.h>

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

// A drafter's target, compiled far enough to read its facts, outputs and caches.
struct Target {
  ArchFile arch;
  std::unique_ptr<Facts> facts;
  Plan plan;
};

Result<std::unique_ptr<Target>> load_target(const ArchLibrary& library,
                                            const CompileOptions& options) {
  const format::GgufFile& model = *options.target;
  auto t = std::make_unique<Target>();
  CULET_TRY(std::string name, architecture_of(model));
  CULET_TRY(const ArchText* text, library.find(name));
  CULET_TRY(t->arch, parse_arch(library, *text));
  if (options.target_plan &&
      sha256_of(flattened_text(t->arch)) != options.target_plan->source_sha256)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the target model {} was loaded with another text of {} than the one "
                            "there is now ({}); load both models with the same folder of "
                            "architecture files",
                            model.name(), t->arch.files.back().name, text->origin));
  const int64_t context = options.context > 0 ? options.context : trained_context(model);
  t->facts = std::make_unique<Facts>(t->arch, model, context, nullptr);
  CULET_TRY(GraphResult graph, build_graph(*t->facts, {}));
  t->plan = std::move(graph.plan);
  return t;
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
  CULET_TRY(ArchFile arch, parse_arch(library, text));
  std::unique_ptr<Target> target;
  if (options.target) {
    CULET_TRY(target, load_target(library, options));
  }
  const int64_t trained = trained_context(model);
  const int64_t context = options.context > 0 ? options.context : trained;
  Facts facts(arch, model, context, target ? target->facts.get() : nullptr);
  CULET_TRY(
      GraphResult graph,
      build_graph(facts, target ? TargetPlan{&target->plan, target->facts.get()} : TargetPlan{}));

  Compiled out;
  out.plan = std::move(graph.plan);
  out.warnings = std::move(graph.warnings);
  out.origin = text.origin;
  out.context_length = trained;
  out.plan.architecture = name;
  const std::string flat = flattened_text(arch);
  out.plan.source = lines_of(flat);
  out.plan.source_sha256 = sha256_of(flat);
  pin_queries(&out.plan);
  select_rows(&out.plan);
  remove_dead(&out.plan);
  if (!options.precise) insert_quantize(&out.plan, {model, options.target});
  if (options.fuse) fuse(&out.plan);
  assign(&out.plan);
  verify(out.plan);
  return out;
}

}  // namespace culet::plan
