// culet run: prompt -> tokens -> generate -> text or JSON lines.
//
// Two views of the same events: plain prints text as it comes and a timing line at the end; JSON
// lines prints every event. Both stop when Ctrl-C was pressed or when nobody reads the output.
#include "cli/commands.h"
#include "cli/events.h"
#include "cli/input.h"
#include "cli/interrupt.h"

#include <fmt/format.h>

#include <algorithm>

namespace culet::cli {
namespace {

constexpr int64_t kDefaultContext = 4096;

Result<std::string> read_prompt(const RunArguments& arguments) {
  if (arguments.prompt && *arguments.prompt != "-") return *arguments.prompt;
  CULET_TRY(std::string text, read_standard_input());
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

Result<std::vector<Token>> prompt_tokens(const Model& model, const RunArguments& arguments,
                                         const std::string& prompt) {
  const bool goes_on = !arguments.memory.resume.empty();
  if (arguments.raw || !model.info().has_chat_template) {
    if (!arguments.template_variables.empty()) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{} has no chat template, so --chat-template-kwargs cannot be used; "
                              "drop it, or give a template with --chat-template",
                              model.info().path));
    }
    if (arguments.system) {
      return fail(
          ErrorCode::kUnsupported,
          fmt::format("{} has no chat template, so --system cannot be used; put the text into "
                      "the prompt",
                      model.info().path));
    }
    return goes_on ? model.vocabulary().tokenize_part(prompt, false)
                   : model.vocabulary().tokenize(prompt, true, false);
  }
  if (prompt.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "the prompt is empty, so there is nothing to answer; write it after MODEL or pipe "
                "it in, or start without a text with --raw");
  }
  std::vector<Message> messages;
  if (arguments.system) messages.push_back({"system", *arguments.system});
  messages.push_back({"user", prompt});
  ChatOptions options;
  options.after_answer = goes_on;
  options.variables = arguments.template_variables;
  CULET_TRY(ChatPrompt rendered, render_chat(model, messages, options));
  CULET_TRY_VOID(check_used(rendered));
  return std::move(rendered.tokens);
}

// The context to use beside `there` tokens of a resumed session; an error names the numbers and the
// flag before any work is done.
Result<int64_t> choose_context(const ModelInfo& info, int64_t asked, int64_t prompt,
                               int64_t answer) {
  const int64_t most = info.context_length ? info.context_length : INT64_MAX;
  if (asked > most) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("--ctx {} is more than the {} tokens the model was trained for", asked, most));
  }
  const int64_t context = asked ? asked : std::min(most, kDefaultContext);
  if (prompt < context) return context;
  if (prompt >= most) {
    return fail(ErrorCode::kExhausted,
                fmt::format("the prompt has {} tokens, and the model can hold {} with the answer; "
                            "shorten the prompt",
                            prompt, most));
  }
  const int64_t useful = std::min(most, prompt + std::clamp<int64_t>(answer, 1, kDefaultContext));
  return fail(ErrorCode::kExhausted,
              fmt::format("the prompt has {} tokens, but the context holds {} with the answer; use "
                          "--ctx {} (the model can hold {})",
                          prompt, context, useful, most));
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

Result<int> run(const RunArguments& arguments, Output& out) {
  if (!arguments.prompt && input_is_terminal()) {
    print_error("no prompt was given; write it after MODEL, or pipe it in (see culet run --help)");
    return kExitUsage;
  }
  CULET_TRY(const std::string prompt, read_prompt(arguments));
  ModelArguments asked = arguments.model;
  if (!arguments.chat_template.empty()) {
    CULET_TRY(asked.options.chat_template, read_text_file(arguments.chat_template));
    if (asked.options.chat_template.empty()) {
      return fail(ErrorCode::kInvalidArgument,
                  arguments.chat_template + " is empty, so it is not a chat template");
    }
  }
  CULET_TRY(const auto model, load_model(asked, arguments.quiet));
  CULET_TRY(const std::vector<Token> tokens, prompt_tokens(*model, arguments, prompt));
  const auto prompted = static_cast<int64_t>(tokens.size());
  MemoryArguments memory = arguments.memory;
  if (!memory.stream) {
    CULET_TRY(memory.context, choose_context(model->info(), memory.context, prompted,
                                             arguments.generate.max_tokens));
  } else if (memory.keep_prompt) {
    CULET_TRY_VOID(check_prompt_sinks(model->info(), memory, prompted));
  }
  CULET_TRY(const auto session, Session::make(model, memory.options(prompted)));
  if (!arguments.quiet) print_rotation(model->info());
  CULET_TRY_VOID(resume(*session, memory, {"-", arguments.chat_template}, arguments.quiet));
  CULET_TRY(const int status,
            arguments.jsonl
                ? answer(*session, tokens, arguments, out, JsonView(out, *model))
                : answer(*session, tokens, arguments, out, PlainView(out, arguments.quiet)));
  CULET_TRY_VOID(save(*session, memory, arguments.quiet));
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
