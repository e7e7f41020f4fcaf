// culet run: prompt -> tokens -> generate -> text or JSON lines.
//
// Two views of the same events: plain prints text as it comes and a timing line at the end; JSON
// lines prints every event. Both stop when Ctrl-C was pressed or when nobody reads the output.
#include "cli/commands.h"
#include "cli/events.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/prompt.h"

#include <fmt/format.h>

#include <algorithm>

namespace culet::cli {
namespace {

constexpr int64_t kDefaultContext = 4096;

// The context to use for a prompt behind `there` tokens of a resumed session; an error names the
// numbers and the flag before any work is done.
Result<int64_t> choose_context(const ModelInfo& info, int64_t asked, int64_t there, int64_t prompt,
                               int64_t answer) {
  const int64_t most = info.context_length ? info.context_length : INT64_MAX;
  if (asked > most) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("--ctx {} is more than the {} tokens the model was trained for", asked, most));
  }
  const int64_t context = asked ? asked : std::min(most, kDefaultContext);
  const int64_t needed = there + prompt;
  if (needed < context) return context;
  const std::string what =
      there == 0 ? fmt::format("the prompt has {} tokens", prompt)
                 : fmt::format("the session has {} tokens and the prompt {}", there, prompt);
  if (needed >= most) {
    return fail(ErrorCode::kExhausted,
                fmt::format("{}, and the model can hold {} with the answer; {}", what, most,
                            there == 0 ? "shorten the prompt" : "begin a new session"));
  }
  const int64_t useful = std::min(most, needed + std::clamp<int64_t>(answer, 1, kDefaultContext));
  return fail(ErrorCode::kExhausted,
              fmt::format("{}, but the context holds {} with the answer; use --ctx {} (the model "
                          "can hold {})",
                          what, context, useful, most));
}

// A prompt that stays for ever leaves room for a window.
Result<void> check_prompt_sinks(const ModelInfo& info, const MemoryArguments& memory,
                                int64_t prompt) {
  const int64_t most = info.context_length ? info.context_length : INT64_MAX;
  const int64_t context = memory.context ? memory.context : std::min(most, kDefaultContext);
  if (memory.window || prompt < context) return {};
  return fail(
      ErrorCode::kExhausted,
      fmt::format("--keep-prompt keeps {} tokens, but --ctx is {}, which leaves none for the "
                  "window; use a larger --ctx (the model can hold {})",
                  prompt, context, most));
}

// ---------------------------------------------------------------- views of the events

class PlainView {
 public:
  PlainView(Output& out, bool quiet) : out_(out), quiet_(quiet), status_(!quiet) {}

  bool show(const Event& event) {
    if (const auto* progress = std::get_if<PromptProgress>(&event)) {
      read_ = progress->done;
      status_.show(
          fmt::format("Reading the prompt: {} of {} tokens", progress->done, progress->total));
    } else if (const auto* delta = std::get_if<TextDelta>(&event)) {
      status_.clear();
      if (!delta->text.empty()) ends_line_ = delta->text.back() == '\n';
      return out_.write(delta->text) && out_.flush();
    } else if (const auto* finished = std::get_if<Finished>(&event)) {
      finish(*finished);
    }
    return !out_.failed();
  }

 private:
  static double rate(int64_t tokens, double seconds) {
    return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
  }

  void finish(const Finished& finished) {
    status_.clear();
    if (!ends_line_) out_.write("\n");
    out_.flush();
    if (quiet_ || out_.failed()) return;  // that the write failed says why it ended
    const Cost& cost = finished.cost;
    if (finished.reason == FinishReason::kCancelled && read_ < cost.prompt_tokens) {
      print_note(fmt::format("stopped at {} of {} prompt tokens", read_, cost.prompt_tokens));
      return;
    }
    print_note(fmt::format(
        "prompt {} tokens, {:.1f} tokens/s; answer {} tokens, {:.1f} tokens/s{}",
        cost.prompt_tokens, rate(cost.prompt_tokens, cost.prompt_seconds), cost.generated_tokens,
        rate(cost.generated_tokens, cost.generate_seconds), ending(finished.reason)));
  }

  static std::string_view ending(FinishReason reason) {
    switch (reason) {
      case FinishReason::kStop:
        return "";
      case FinishReason::kLength:
        return "; cut at the limit (-n)";
      case FinishReason::kContext:
        return "; the context is full (--ctx)";
      case FinishReason::kCancelled:
        return "; stopped";
    }
    return "";
  }

  Output& out_;
  bool quiet_;
  bool ends_line_ = true;
  int64_t read_ = 0;  // tokens of the prompt
  StatusLine status_;
};

class JsonView {
 public:
  JsonView(Output& out, const Model& model) : out_(out), model_(&model) {}
  bool show(const Event& event) {
    const std::string line = event_line(event, *model_);
    return line.empty() || (out_.write(line) && out_.flush());
  }

 private:
  Output& out_;
  const Model* model_;
};

template <class View>
Result<int> answer(Session& session, std::span<const Token> prompt, const RunArguments& arguments,
                   Output& out, View view) {
  const InterruptWatch interrupt;
  const auto on_event = [&](const Event& event) {
    return view.show(event) && !interrupt.interrupted();
  };
  GenerateOptions options = arguments.generate;
  options.sampling = arguments.sampling.over(session.model().info().sampling);
  CULET_TRY(const Finished finished, generate(session, prompt, options, on_event));
  if (out.failed()) return tl::unexpected(out.error());
  return finished.reason == FinishReason::kCancelled ? kExitInterrupted : kExitOk;
}

// The template that the arguments name, in place of the file's own.
Result<ModelArguments> model_with_template(const RunArguments& arguments) {
  ModelArguments model = arguments.model;
  model.options.text_only = arguments.show_prompt;
  if (arguments.chat_template.empty()) return model;
  CULET_TRY(model.options.chat_template, read_text_file(arguments.chat_template));
  if (!model.options.chat_template.empty()) return model;
  return fail(ErrorCode::kInvalidArgument,
              arguments.chat_template + " is empty, so it is not a chat template");
}

Result<MemoryArguments> memory_for(const RunArguments& arguments, const ModelInfo& info,
                                   int64_t prompt) {
  MemoryArguments memory = arguments.memory;
  if (!memory.stream) {
    int64_t there = 0;
    if (!memory.resume.empty()) {
      CULET_TRY(there, snapshot_length(memory.resume));
    }
    CULET_TRY(memory.context,
              choose_context(info, memory.context, there, prompt, arguments.generate.max_tokens));
  } else if (memory.keep_prompt) {
    CULET_TRY_VOID(check_prompt_sinks(info, memory, prompt));
  }
  return memory;
}

// A session that has not read the whole prompt is no conversation that can go on: it must not take
// the place of one that can.
Result<void> save_if_read(const Session& session, const MemoryArguments& memory, int64_t read,
                          bool quiet) {
  if (session.length() >= read) return save(session, memory, quiet);
  if (!memory.save.empty()) {
    print_note(fmt::format("note: {} is not written, because the prompt was not read to its end",
                           memory.save));
  }
  return {};
}

Result<int> run(const RunArguments& arguments, Output& out) {
  if (!arguments.prompt && arguments.messages.empty() && input_is_terminal()) {
    print_error("no prompt was given; write it after MODEL, or pipe it in (see culet run --help)");
    return kExitUsage;
  }
  CULET_TRY(const PromptInput input, read_prompt_input(arguments));
  CULET_TRY(const ModelArguments asked, model_with_template(arguments));
  CULET_TRY(const auto model, load_model(asked, arguments.quiet));
  CULET_TRY(const ChatPrompt prompt, make_prompt(*model, arguments, input));
  if (arguments.show_prompt) {
    out.write(show_prompt(*model, prompt, arguments.json));
    CULET_TRY_VOID(check_late_input(arguments, input));
    return kExitOk;
  }
  const auto prompted = static_cast<int64_t>(prompt.tokens.size());
  CULET_TRY(const MemoryArguments memory, memory_for(arguments, model->info(), prompted));
  CULET_TRY(const auto session, Session::make(model, memory.options(prompted)));
  if (!arguments.quiet) print_rotation(model->info());
  CULET_TRY_VOID(resume(*session, memory,
                        {"-", arguments.chat_template, arguments.messages, arguments.tools},
                        arguments.quiet));
  const int64_t read = session->length() + prompted;
  CULET_TRY(const int status,
            arguments.jsonl
                ? answer(*session, prompt.tokens, arguments, out, JsonView(out, *model))
                : answer(*session, prompt.tokens, arguments, out, PlainView(out, arguments.quiet)));
  CULET_TRY_VOID(save_if_read(*session, memory, read, arguments.quiet));
  CULET_TRY_VOID(check_late_input(arguments, input));
  return status;
}

}  // namespace

Result<int> run_command(const RunArguments& arguments, Output& out) {
  auto status = run(arguments, out);
  if (!status && arguments.jsonl && !out.failed()) {
    out.write(error_line(status.error()));
    out.flush();
  }
  return status;
}

}  // namespace culet::cli
