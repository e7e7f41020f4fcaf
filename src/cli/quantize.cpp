// culet quantize: weights in another type, and what that does to the predictions of a text.
//
// The comparison reads the text in windows, each from an empty session on both models. For each
// token the row of logits of the source is kept until the row of the new model is there; few rows
// at a time, for a row is as long as the vocabulary.
#include "cli/commands.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/written.h"
#include "culet/convert.h"
#include "culet/hub.h"
#include "culet/measure.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace culet::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kWindow = 2048;  // tokens that a prediction of the comparison sees, at most
constexpr size_t kRows = 32;       // of logits that are kept at a time

tl::unexpected<Error> interrupted() { return fail(ErrorCode::kCancelled, "Ctrl-C"); }

// ---------------------------------------------------------------- comparison

struct Comparison {
  int64_t tokens = 0, same_top = 0;  // predicted tokens; those whose likeliest token is the same
  double divergence = 0, most = 0;   // sum, and the largest
  double source_nll = 0, new_nll = 0;
};

struct Text {
  std::vector<Token> start;  // what the model wants in front of a text
  std::vector<Token> tokens;
};

// Before the work, so that a text that cannot be read is noticed before minutes of it.
Result<Text> read_text(const QuantizeArguments& arguments, const std::string& path) {
  ModelOptions options = arguments.model.options;
  options.text_only = true;
  CULET_TRY(const auto model, Model::load(path, options));
  if (model->info().kind != ModelKind::kDecoder) {
    return fail(ErrorCode::kUnsupported,
                path + " is an encoder, which predicts no tokens; leave --check out");
  }
  CULET_TRY(const std::string bytes, read_text_file(arguments.check));
  Text text;
  CULET_TRY(text.start, model->vocabulary().tokenize("", {.end = false}));
  CULET_TRY(text.tokens, model->vocabulary().tokenize(bytes, {.end = false, .continued = true}));
  if (text.tokens.size() < 2) {
    return fail(ErrorCode::kInvalidArgument,
                arguments.check + " has fewer than two tokens, so there is nothing to compare");
  }
  return text;
}

class Comparer {
 public:
  Comparer(Session* source, Session* made, const Text& text, const InterruptWatch& interrupt)
      : source_(source), made_(made), text_(text), interrupt_(interrupt) {}

  // One window that begins at `first`; where the next one does.
  Result<size_t> window(size_t first, size_t length);
  const Comparison& result() const { return sums_; }

 private:
  Result<void> piece(size_t first, size_t count);
  Result<void> row(size_t position, std::span<const float> source, std::span<const float> made);

  Session* source_;
  Session* made_;
  const Text& text_;
  const InterruptWatch& interrupt_;
  std::vector<std::vector<float>> kept_;  // rows of the source
  Comparison sums_;
};

Result<void> Comparer::row(size_t position, std::span<const float> source,
                           std::span<const float> made) {
  if (position + 1 >= text_.tokens.size()) return {};
  const Token next = text_.tokens[position + 1];
  const Model& model = source_->model();
  CULET_TRY(const double source_logprob, logprob(model, source, next));
  CULET_TRY(const double made_logprob, logprob(model, made, next));
  CULET_TRY(const double kl, divergence(model, source, made));
  const auto top = [](std::span<const float> logits) {
    return std::max_element(logits.begin(), logits.end()) - logits.begin();
  };
  ++sums_.tokens;
  sums_.same_top += top(source) == top(made);
  sums_.divergence += kl;
  sums_.most = std::max(sums_.most, kl);
  sums_.source_nll -= source_logprob;
  sums_.new_nll -= made_logprob;
  return {};
}

Result<void> Comparer::piece(size_t first, size_t count) {
  if (interrupt_.interrupted()) return interrupted();
  const std::span<const Token> tokens = std::span(text_.tokens).subspan(first, count);
  kept_.clear();
  const auto keep = [this](int64_t, std::span<const float> logits) {
    kept_.emplace_back(logits.begin(), logits.end());
  };
  CULET_TRY_VOID(source_->append_each(tokens, keep));
  Result<void> compared;
  size_t at = 0;
  const auto compare = [&](int64_t, std::span<const float> logits) {
    if (compared) compared = row(first + at, kept_[at], logits);
    ++at;
  };
  CULET_TRY_VOID(made_->append_each(tokens, compare));
  return compared;
}

Result<size_t> Comparer::window(size_t first, size_t length) {
  for (Session* session : {source_, made_}) {
    session->clear();
    if (!text_.start.empty()) CULET_TRY_VOID(session->append(text_.start));
  }
  const size_t end = std::min(first + length, text_.tokens.size());
  for (; first < end; first += kRows) CULET_TRY_VOID(piece(first, std::min(kRows, end - first)));
  return end;
}

Result<Comparison> compare(const QuantizeArguments& arguments, const std::string& path,
                           const Text& text, const InterruptWatch& interrupt) {
  ModelArguments source = arguments.model, made = arguments.model;
  source.path = path;
  made.path = arguments.out;
  CULET_TRY(const auto source_model, load_model(source, arguments.quiet));
  CULET_TRY(const auto made_model, load_model(made, arguments.quiet));
  const int64_t trained = source_model->info().context_length;
  const SessionOptions options{.context = trained > 0 ? std::min(trained, kWindow) : kWindow};
  CULET_TRY(const auto source_session, Session::make(source_model, options));
  CULET_TRY(const auto made_session, Session::make(made_model, options));
  const int64_t length = options.context - static_cast<int64_t>(text.start.size());
  if (length < 1)
    return fail(ErrorCode::kUnsupported,
                path + " has a context of one token, so it predicts nothing");
  Comparer comparer(source_session.get(), made_session.get(), text, interrupt);
  StatusLine status(!arguments.quiet);
  for (size_t at = 0; at < text.tokens.size();) {
    CULET_TRY(at, comparer.window(at, static_cast<size_t>(length)));
    status.show(fmt::format("Comparing: {} of {} tokens", at, text.tokens.size()));
  }
  return comparer.result();
}

// ---------------------------------------------------------------- output

Json comparison_json(const Comparison& sums) {
  const auto n = static_cast<double>(sums.tokens);
  return {{"tokens", sums.tokens},
          {"mean_divergence", sums.divergence / n},
          {"max_divergence", sums.most},
          {"same_top", static_cast<double>(sums.same_top) / n},
          {"source_nll", sums.source_nll / n},
          {"new_nll", sums.new_nll / n}};
}

std::string comparison_text(const Comparison& sums) {
  const auto n = static_cast<double>(sums.tokens);
  return fmt::format(
      "compared on {} tokens, in nats:\n"
      "  divergence of the new model from the source  mean {:.5f}, largest {:.4f}\n"
      "  likeliest token the same                     {:.2f} %\n"
      "  surprisal of a token                         source {:.4f}, new {:.4f}\n",
      sums.tokens, sums.divergence / n, sums.most, 100 * static_cast<double>(sums.same_top) / n,
      sums.source_nll / n, sums.new_nll / n);
}

// ---------------------------------------------------------------- the command

Result<WrittenModel> write(const QuantizeArguments& arguments, const std::string& path,
                           const InterruptWatch& interrupt) {
  StatusLine status(!arguments.quiet);
  QuantizeOptions options{.type = arguments.type, .keep = arguments.keep};
  options.threads = arguments.model.options.threads;
  options.progress = [&](const Progress& p) {
    status.show(fmt::format("Quantizing: {} %", p.total ? 100 * p.done / p.total : 100));
    return !interrupt.interrupted();
  };
  return quantize_model(path, arguments.out, options);
}

Result<int> quantize(const QuantizeArguments& arguments, const InterruptWatch& interrupt,
                     Output& out) {
  CULET_TRY(const ModelRef found, find_model(arguments.model.path));
  Text text;
  if (!arguments.check.empty()) {
    CULET_TRY(text, read_text(arguments, found.path));
    if (is_input(arguments.check, arguments.out)) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} is the text of --check itself; give the new model another name",
                              arguments.out));
    }
  }
  CULET_TRY(const WrittenModel written, write(arguments, found.path, interrupt));
  for (const std::string& note : written.notes) print_note(note);
  Json json = written_json(written);
  if (!arguments.json) out.write(printable(written_text(written)));
  if (!arguments.check.empty()) {
    out.flush();
    CULET_TRY(const Comparison sums, compare(arguments, found.path, text, interrupt));
    json["check"] = comparison_json(sums);
    if (!arguments.json) out.write(comparison_text(sums));
  }
  if (arguments.json) {
    out.write(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  }
  return kExitOk;
}

}  // namespace

Result<int> quantize_command(const QuantizeArguments& arguments, Output& out) {
  const InterruptWatch interrupt;
  Result<int> status = quantize(arguments, interrupt, out);
  if (status || status.error().code != ErrorCode::kCancelled) return status;
  print_note("stopped");
  return kExitInterrupted;
}

}  // namespace culet::cli
