// Takes a parsed architecture file and a model's hyperparameters, gives operations: decides every
// `when`, runs the statements of the model block and of each layer, and checks what must hold
// before and after. The stages, each in a file of its own:
//
//   graph.cpp          statements, in order
//   graph_values.cpp   expressions: names, arithmetic, views
//   graph_calls.cpp    operations: operands and attributes by the signatures of ops.def
//   graph_scope.cpp    which value a name stands for
//   graph_caches.cpp   caches and states
//   graph_target.cpp   what a draft model takes from its target
//   graph_writer.cpp   the plan while it is made: values, ops, shape rules
#include "plan/graph.h"

#include "plan/graph_values.h"
#include "plan/manifest.h"
#include "plan/memory.h"

#include <fmt/format.h>

#include <utility>

namespace culet::plan {
namespace {

constexpr size_t kMaxOps = 1 << 17;  // the largest real models stay below a tenth of this

class Statements {
 public:
  Statements(Hyperparameters& hparams, const TargetPlan& target)
      : hparams_(hparams),
        arch_(hparams.arch()),
        writer_(hparams, target.hparams ? &target.hparams->model() : nullptr),
        plan_(writer_.plan()),
        scope_(writer_),
        target_(writer_, target),
        caches_(writer_, target_),
        values_(writer_, scope_, target_, caches_) {}

  Result<GraphResult> run() {
    CULET_TRY(int64_t layers, hparams_.layers());
    plan_.n_layers = static_cast<int32_t>(layers);
    plan_.architecture = arch_.architectures.front();
    plan_.kind = arch_.kind;
    std::vector<std::string> warnings, unread_keys;
    CULET_TRY_VOID(target_.check_externs());
    CULET_TRY_VOID(check_requires(hparams_, plan_.n_layers));
    CULET_TRY_VOID(check_unnamed_lets(hparams_, plan_.n_layers, &warnings));
    const Block* model = arch_.block("model");
    if (!model) return writer_.error(writer_.end_of_text(), "the block 'model:' is missing");
    for (const Section& s : model->sections) CULET_TRY_VOID(statements(s.statements));
    if (!ran_layers_)
      return writer_.error(model->location, "the block 'model:' has no line 'layers: layer'");
    CULET_TRY_VOID(check_outputs(*model));
    CULET_TRY_VOID(scope_.end());
    CULET_TRY_VOID(check_manifest(hparams_, writer_.used(), plan_.n_layers, &unread_keys));
    return GraphResult{std::move(plan_), std::move(warnings), std::move(unread_keys)};
  }

 private:
  // What the engine asks each kind of model for.
  Result<void> check_outputs(const Block& model) {
    static constexpr struct {
      std::string_view kind, output;
    } kNeeded[] = {
        {"decoder", "logits"}, {"encoder", "hidden"}, {"draft", "logits"}, {"draft", "hidden"}};
    for (const auto& needed : kNeeded) {
      if (needed.kind != arch_.kind || plan_.output(needed.output) != kNone) continue;
      return writer_.error(model.location,
                           fmt::format("a model of kind {} needs the output '{}'; write: "
                                       "output {} = ...",
                                       arch_.kind, needed.output, needed.output));
    }
    return arch_.kind == "draft" ? target_.check_next_row(model) : Result<void>();
  }

  Result<void> statements(const std::vector<Statement>& all) {
    for (const Statement& s : all) CULET_TRY_VOID(statement(s));
    return {};
  }

  Result<void> statement(const Statement& s) {
    CULET_TRY_VOID(hparams_.spend(s.location));
    if (plan_.ops.size() >= kMaxOps)
      return writer_.error(s.location, "the model expands to too many operations");
    switch (s.kind) {
      case Statement::Kind::kWhen:
        return when(s);
      case Statement::Kind::kAssign:
        return assign(s);
      case Statement::Kind::kAppend:
        return append(s);
      case Statement::Kind::kLayers:
        return layers(s);
      case Statement::Kind::kOutput:
        return output(s);
    }
    return {};
  }

  Result<void> when(const Statement& s) {
    const int64_t uses = hparams_.context_uses();
    CULET_TRY(bool yes, hparams_.flag(*s.value, writer_.layer()));
    if (has_rope(s.body) || has_rope(s.otherwise)) writer_.note_context(uses);
    return statements(yes ? s.body : s.otherwise);
  }

  Result<void> assign(const Statement& s) {
    for (const std::string& n : s.names)
      if (hparams_.let(n))
        return writer_.error(
            s.location, fmt::format("'{}' is a hyperparameter; give the value another name", n));
    CULET_TRY(std::vector<ValueId> v, values_.values(*s.value));
    if (v.size() != s.names.size())
      return writer_.error(s.location,
                           fmt::format("{} names for {} values", s.names.size(), v.size()));
    for (size_t k = 0; k < v.size(); ++k)
      CULET_TRY_VOID(scope_.assign(s.names[k], v[k], s.location));
    return {};
  }

  Result<void> append(const Statement& s) {
    Op op = writer_.op(OpKind::append, s.location);
    for (const ExprPtr& e : s.operands) {
      CULET_TRY(ValueId v, values_.value(*e));
      op.in.push_back(v);
    }
    CULET_TRY(const int32_t cache, caches_.append_to(s.names[0], s.location));
    op.attr.as<AppendAttributes>().cache = cache;
    ShapeCall call;
    call.cache = plan_.caches[static_cast<size_t>(cache)];
    CULET_TRY_VOID(writer_.emit(std::move(op), std::move(call), s.location));
    return {};
  }

  Result<void> layers(const Statement& s) {
    if (writer_.layer() >= 0 || ran_layers_)
      return writer_.error(s.location, "'layers: layer' stands once, in the model block");
    const Block* block = arch_.block(s.names[0]);
    if (!block)
      return writer_.error(s.location, fmt::format("the block '{}:' is missing", s.names[0]));
    ran_layers_ = true;
    for (int layer = 0; layer < plan_.n_layers; ++layer) {
      writer_.set_layer(layer);
      scope_.begin_layer();
      for (const Section& section : block->sections) CULET_TRY_VOID(statements(section.statements));
      CULET_TRY_VOID(scope_.end_layer());
    }
    writer_.set_layer(-1);
    return {};
  }

  Result<void> output(const Statement& s) {
    if (writer_.layer() >= 0)
      return writer_.error(s.location, "outputs belong into the model block");
    CULET_TRY(ValueId v, values_.value(*s.value));
    if (plan_.output(s.names[0]) != kNone)
      return writer_.error(s.location, fmt::format("output '{}' stands twice", s.names[0]));
    if (auto fits = check_output(s.names[0], arch_.kind, writer_.at(v)); !fits)
      return writer_.error(s.location, fits.error().message);
    plan_.outputs.push_back({s.names[0], v});
    return {};
  }

  Hyperparameters& hparams_;
  const ArchFile& arch_;
  GraphWriter writer_;
  Plan& plan_;
  ValueScope scope_;
  TargetModel target_;
  GraphCaches caches_;
  GraphValues values_;
  bool ran_layers_ = false;
};

}  // namespace

Result<GraphResult> build_graph(Hyperparameters& hparams, const TargetPlan& target) {
  return Statements(hparams, target).run();
}

}  // namespace culet::plan
