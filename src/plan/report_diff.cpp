// What `arch diff` prints. Takes two architecture files, gives the lines in which they differ.
//
// Both sides become lists of lines: statements as written but with includes and replacements done,
// or, on a model, the operations they expand to. Lists are compared by their longest common
// subsequence; on a model layer by layer, and neighboring layers that differ in the same way are
// printed once.
#include "plan/arch_parse.h"
#include "plan/graph.h"
#include "plan/hyperparameters.h"
#include "plan/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace culet::plan {
namespace {

using Lines = std::vector<std::string>;

constexpr size_t kMostCells = size_t{16}
                              << 20;  // of the table; above it all lines count as changed

// Length of the longest common subsequence of the tails a[i..], b[j..], row by row.
std::vector<uint32_t> common_tails(const Lines& a, const Lines& b) {
  const size_t width = b.size() + 1;
  std::vector<uint32_t> table((a.size() + 1) * width, 0);
  for (size_t i = a.size(); i-- > 0;) {
    for (size_t j = b.size(); j-- > 0;) {
      table[i * width + j] = a[i] == b[j]
                                 ? table[(i + 1) * width + j + 1] + 1
                                 : std::max(table[(i + 1) * width + j], table[i * width + j + 1]);
    }
  }
  return table;
}

// Only the lines that differ; "" when none does.
std::string difference(const Lines& a, const Lines& b) {
  std::string out;
  const auto removed = [&](const std::string& line) { out += "- " + line + "\n"; };
  const auto added = [&](const std::string& line) { out += "+ " + line + "\n"; };
  if (a == b) return out;
  if ((a.size() + 1) * (b.size() + 1) > kMostCells) {
    std::for_each(a.begin(), a.end(), removed);
    std::for_each(b.begin(), b.end(), added);
    return out;
  }
  const std::vector<uint32_t> common = common_tails(a, b);
  const size_t width = b.size() + 1;
  size_t i = 0, j = 0;
  while (i < a.size() || j < b.size()) {
    if (i < a.size() && j < b.size() && a[i] == b[j]) {
      ++i, ++j;
    } else if (i < a.size() &&
               (j == b.size() || common[(i + 1) * width + j] >= common[i * width + j + 1])) {
      removed(a[i++]);
    } else {
      added(b[j++]);
    }
  }
  return out;
}

std::string heading(const ArchText& a, const ArchText& b) {
  return fmt::format("--- {} ({})\n+++ {} ({})\n", a.name, a.origin, b.name, b.origin);
}

// ---------------------------------------------------------------- statements

class StatementList {
 public:
  explicit StatementList(const ArchFile& arch) : arch_(arch), source_(arch) {}

  Lines run() {
    std::string names;
    for (const std::string& name : arch_.architectures)
      names += (names.empty() ? "arch " : ", ") + name;
    lines_.push_back(names);
    lines_.push_back("kind " + arch_.kind);
    for (const Let& item : arch_.lets) add("", item.location);
    for (const ExternDecl& item : arch_.externs) add("", item.location);
    for (const Require& item : arch_.requirements) add("", item.location);
    for (const IgnoreItem& item : arch_.ignores) add("", item.location);
    for (const CacheDecl& item : arch_.caches) add("", item.location);
    for (const StateDecl& item : arch_.states) add("", item.location);
    for (const Block& block : arch_.blocks)
      for (const Section& section : block.sections)
        statements(block.name + (section.name.empty() ? "" : "." + section.name) + ": ",
                   section.statements);
    return std::move(lines_);
  }

 private:
  void statements(const std::string& prefix, const std::vector<Statement>& all) {
    for (const Statement& s : all) {
      add(prefix, s.location);
      statements(prefix + "  ", s.body);
      if (s.otherwise.empty()) continue;
      lines_.push_back(prefix + "else");
      statements(prefix + "  ", s.otherwise);
    }
  }
  void add(const std::string& prefix, SourceLocation location) {  // several items of a line: once
    std::string line = prefix + source_.at(location);
    if (lines_.back() != line) lines_.push_back(std::move(line));
  }

  const ArchFile& arch_;
  SourceLines source_;
  Lines lines_;
};

// ---------------------------------------------------------------- operations

struct Expanded {
  Lines outside;
  std::vector<Lines> layers;
};

Result<Expanded> expand(const ArchLibrary& library, const ArchText& text,
                        const format::GgufFile& model) {
  CULET_TRY(const ArchFile arch, parse_arch(library, text));
  Hyperparameters hparams(arch, model, trained_context(model), nullptr);
  CULET_TRY(const GraphResult graph, build_graph(hparams, {}));
  Expanded out;
  out.layers.resize(static_cast<size_t>(graph.plan.n_layers));
  for (const CacheSpec& cache : graph.plan.caches)
    out.layers[static_cast<size_t>(cache.layer)].push_back(cache_line(cache));
  for (const StateSpec& state : graph.plan.states)
    out.layers[static_cast<size_t>(state.layer)].push_back(state_line(state));
  for (const Op& op : graph.plan.ops)
    (op.layer < 0 ? out.outside : out.layers[static_cast<size_t>(op.layer)])
        .push_back(op_line(graph.plan, op, model, true));
  for (const Output& output : graph.plan.outputs)
    out.outside.push_back(fmt::format("output {} = {}", output.name,
                                      graph.plan.values[static_cast<size_t>(output.value)].name));
  return out;
}

std::string layer_differences(const Expanded& a, const Expanded& b) {
  const Lines none;
  const size_t layers = std::max(a.layers.size(), b.layers.size());
  const auto of = [&none](const Expanded& side, size_t i) -> const Lines& {
    return i < side.layers.size() ? side.layers[i] : none;
  };
  std::string out, pending;
  size_t first = 0;
  const auto print = [&](size_t end) {
    if (pending.empty()) return;
    out += end - first == 1 ? fmt::format("layer {}\n", first)
                            : fmt::format("layers {}-{}\n", first, end - 1);
    out += pending;
  };
  for (size_t i = 0; i < layers; ++i) {
    std::string now = difference(of(a, i), of(b, i));
    if (now == pending) continue;
    print(i);
    pending = std::move(now);
    first = i;
  }
  print(layers);
  return out;
}

}  // namespace

Result<std::string> diff_arch(const ArchLibrary& library, const ArchText& a, const ArchText& b) {
  CULET_TRY(const ArchFile left, parse_arch(library, a));
  CULET_TRY(const ArchFile right, parse_arch(library, b));
  const std::string text = difference(StatementList(left).run(), StatementList(right).run());
  return text.empty() ? text : heading(a, b) + text;
}

Result<std::string> diff_plans(const ArchLibrary& library, const ArchText& a, const ArchText& b,
                               const format::GgufFile& model) {
  CULET_TRY(const Expanded left, expand(library, a, model));
  CULET_TRY(const Expanded right, expand(library, b, model));
  std::string text = difference(left.outside, right.outside);
  if (!text.empty()) text = "model\n" + text;
  text += layer_differences(left, right);
  return text.empty() ? text : heading(a, b) + text;
}

}  // namespace culet::plan
