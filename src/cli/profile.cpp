// culet explain --profile: where the time of a prompt and of decoding goes, by line of the
// architecture text or by operation.
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "culet/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

namespace culet::cli {
namespace {

struct Row {
  std::string where, what;
  int32_t line = 0;
  double seconds = 0;
  uint64_t bytes = 0, operations = 0;
  size_t ops = 0;
};

void add(const OpTime& op, Row* row) {
  row->seconds += op.seconds;
  row->bytes += op.bytes;
  row->operations += op.operations;
  ++row->ops;
}

// One row a line of the text, in the order of the plan.
std::vector<Row> by_line(const PhaseProfile& phase) {
  std::vector<Row> rows;
  for (const OpTime& op : phase.ops) {
    auto row =
        std::find_if(rows.begin(), rows.end(), [&](const Row& r) { return r.line == op.line; });
    if (row == rows.end()) {
      row = rows.insert(row, Row{});
      row->where = fmt::format("{}", op.line);
      row->what = op.source;
      row->line = op.line;
    }
    add(op, &*row);
  }
  return rows;
}

std::vector<Row> by_operation(const PhaseProfile& phase) {
  std::vector<Row> rows;
  for (const OpTime& op : phase.ops) {
    Row& row = rows.emplace_back();
    row.where = op.layer < 0 ? fmt::format("{}", op.line) : fmt::format("{}.{}", op.layer, op.line);
    row.what = op.kernel == op.names ? op.names : fmt::format("{} ({})", op.names, op.kernel);
    add(op, &row);
  }
  return rows;
}

// Prompts are bound by arithmetic, single tokens by memory: Gop/s or GB/s.
std::string phase_text(std::string_view name, const PhaseProfile& phase, bool all, bool bandwidth) {
  std::string text =
      fmt::format("{}: {} tokens in {:.1f} ms, {:.1f} tokens/s\n{:>9}  {:>9}  {:>6}  {:>7}  {}\n",
                  name, phase.tokens, phase.seconds * 1e3,
                  static_cast<double>(phase.tokens) / phase.seconds, all ? "layer.line" : "line",
                  "ms", "share", bandwidth ? "GB/s" : "Gop/s", all ? "operation" : "statement");
  double rest = phase.seconds;
  const auto line = [&](const std::string& where, double seconds, const std::string& rate,
                        const std::string& what) {
    text += fmt::format("{:>9}  {:>9.3f}  {:>4.1f} %  {:>7}  {}\n", where, seconds * 1e3,
                        100 * seconds / phase.seconds, rate, what);
  };
  for (const Row& row : all ? by_operation(phase) : by_line(phase)) {
    const auto amount = static_cast<double>(bandwidth ? row.bytes : row.operations);
    const bool known = amount > 0 && row.seconds > 0;
    line(row.where, row.seconds, known ? fmt::format("{:.2f}", amount / row.seconds / 1e9) : "-",
         row.what);
    rest -= row.seconds;
  }
  line("", std::max(rest, 0.0), "-", "everything else: angle tables, memory, checks of the logits");
  return text;
}

}  // namespace

Result<int> profile_command(const ExplainArguments& arguments, Output& out) {
  if (arguments.prompt + arguments.generated < 1) {
    return fail(ErrorCode::kInvalidArgument, "-p 0 and -n 0 leave nothing to measure");
  }
  CULET_TRY(const auto model, load_model(arguments.model));
  const int64_t warm = std::min<int64_t>(arguments.prompt + arguments.generated, 32);
  CULET_TRY(const auto session,
            Session::make(model, {.context = arguments.prompt + arguments.generated}));
  const std::vector<Token> tokens =
      fixed_random_tokens(arguments.prompt + arguments.generated, model->info().vocabulary_size);
  const auto all = std::span(tokens);
  CULET_TRY_VOID(session->append(all.first(static_cast<size_t>(warm))));
  session->clear();
  const InterruptWatch interrupt;
  StatusLine status(true);
  const auto split = static_cast<size_t>(arguments.prompt);
  const auto done = profile(*session, all.first(split), all.subspan(split), [&](const Progress& p) {
    status.show(fmt::format("Profiling: {} of {} tokens", p.done, p.total));
    return !interrupt.interrupted();
  });
  status.clear();
  if (!done && done.error().code == ErrorCode::kCancelled) return kExitInterrupted;
  if (!done) return tl::unexpected(done.error());
  std::string text;
  if (arguments.prompt > 0) text += phase_text("prefill", done->prefill, arguments.all, false);
  if (arguments.prompt > 0 && arguments.generated > 0) text += "\n";
  if (arguments.generated > 0) text += phase_text("decode", done->decode, arguments.all, true);
  out.write(printable(text));
  return kExitOk;
}

}  // namespace culet::cli
