#include "cli/prompt.h"

#include "cli/console.h"
#include "cli/input.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <utility>

namespace culet::cli {
namespace {

using Json = nlohmann::ordered_json;

// ---------------------------------------------------------------- input

bool is_standard_input(const std::optional<std::string>& prompt) {
  return !prompt || *prompt == "-";
}

// What the command line has instead of a text on standard input; "": nothing, it may hold one.
std::string_view given_instead_of_input(const RunArguments& arguments) {
  if (arguments.messages == "-" || arguments.tools == "-" || arguments.chat_template == "-") {
    return "";
  }
  if (!arguments.messages.empty()) return "--messages";
  // Nothing says what stands between two raw texts.
  return arguments.raw && !is_standard_input(arguments.prompt) ? "PROMPT" : "";
}

// Whether standard input is a part of the prompt beside PROMPT.
bool joins_input(const RunArguments& arguments) {
  return arguments.messages.empty() && arguments.tools != "-" && arguments.chat_template != "-" &&
         !arguments.raw && !is_standard_input(arguments.prompt);
}

Result<std::string> read_json_file(const std::string& path) {
  CULET_TRY(std::string text, read_text_file(path));
  if (text.find_first_not_of(" \t\r\n") != std::string::npos) return text;
  return fail(ErrorCode::kInvalidArgument, fmt::format("{} is empty; it must hold a JSON array",
                                                       path == "-" ? "standard input" : path));
}

Result<void> join_input(const RunArguments& arguments, PromptInput* input) {
  CULET_TRY(std::string piped, read_input_beside(&input->silent));
  if (input->silent) {
    print_note(fmt::format(
        "warning: nothing came on standard input for {} seconds, so PROMPT is answered without it; "
        "close it (< /dev/null) to save the time, or write the whole prompt there to wait for it",
        kSilence));
  }
  if (piped.ends_with('\n')) piped.pop_back();
  if (piped.empty()) return {};
  if (!arguments.quiet) {
    print_note(fmt::format("note: {} bytes of standard input are put before PROMPT", piped.size()));
  }
  input->text = piped + "\n\n" + input->text;
  return {};
}

// ---------------------------------------------------------------- models without a template

// Words in the names of models that were trained for conversations.
constexpr std::string_view kTunedWords[] = {
    "instruct", "instruction", "instructions", "chat", "it", "sft", "dpo", "rlhf", "assistant"};

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

// The word of `name` that says so, as in "gemma-3-270m-it"; "": none.
std::string tuned_word(std::string_view name) {
  for (size_t at = 0, end = 0; at < name.size(); at = end) {
    end = at + 1;
    if (!is_letter(name[at])) continue;
    while (end < name.size() && is_letter(name[end])) ++end;
    std::string word = lower(name.substr(at, end - at));
    if (std::find(std::begin(kTunedWords), std::end(kTunedWords), word) == std::end(kTunedWords)) {
      continue;
    }
    // "it" is a word of titles, too: it counts only behind a mark.
    const bool marked = at > 0 && std::string_view("-_.").find(name[at - 1]) != std::string::npos;
    if (word != "it" || marked) return word;
  }
  return "";
}

// Says once that there is no chat; louder where the name says that there should be one.
void say_continued(const ModelInfo& info, bool quiet) {
  const std::string file = std::filesystem::path(info.path).filename().string();
  for (const std::string& name : {info.name, file}) {
    const std::string word = tuned_word(name);
    if (word.empty()) continue;
    print_note(fmt::format(
        "warning: {} has no chat template, but its name (\"{}\": {}) says that it was trained for "
        "conversations; the prompt is continued as plain text, so answers will be poor: give the "
        "template of its makers with --chat-template FILE, or --raw if this is meant",
        info.path, name, word));
    return;
  }
  if (quiet) return;
  print_note(fmt::format(
      "note: {} has no chat template, so the prompt is continued as text (--raw says that this is "
      "meant)",
      info.path));
}

// What only a chat template can use.
Result<void> check_no_chat_options(const RunArguments& arguments, const ModelInfo& info) {
  const struct {
    bool given;
    const char* option;
    const char* advice;
  } kOptions[] = {
      {!arguments.template_variables.empty(), "--chat-template-kwargs", "drop it"},
      {arguments.system.has_value(), "--system", "put the text into the prompt"},
      {!arguments.messages.empty(), "--messages", "write the prompt as text"},
      {!arguments.tools.empty(), "--tools", "put them into the prompt"},
  };
  for (const auto& option : kOptions) {
    if (!option.given) continue;
    return fail(ErrorCode::kUnsupported,
                fmt::format("{} has no chat template, so {} cannot be used; {}, or give a template "
                            "with --chat-template",
                            info.path, option.option, option.advice));
  }
  return {};
}

Result<ChatPrompt> raw_prompt(const Model& model, const RunArguments& arguments,
                              const std::string& text) {
  ChatPrompt prompt;
  CULET_TRY(prompt.tokens,
            model.vocabulary().tokenize(text, {.end = false,
                                               .parse_special = arguments.parse_special,
                                               .continued = !arguments.memory.resume.empty()}));
  if (!text.empty()) prompt.pieces.push_back({text, arguments.parse_special});
  return prompt;
}

// ---------------------------------------------------------------- conversations

// What was left out and is no error.
void warn_unused(const Model& model, const ChatPrompt& prompt) {
  for (const UnusedPart& unused : prompt.unused) {
    if (unused.part == ChatPart::kId) continue;
    if (unused.part != ChatPart::kVariable) {
      print_note("warning: the chat template leaves out " + unused.path);
      continue;
    }
    const std::string known = chat_template_info(model).thinking_variable;
    print_note(fmt::format(
        "warning: the chat template does not read the variable {} of --chat-template-kwargs, so it "
        "changes nothing{}",
        unused.path.substr(unused.path.find('.') + 1),
        known.empty() ? "" : fmt::format(" (thinking is switched by {})", known)));
  }
}

Result<std::string> messages_json(const std::vector<Message>& messages) {
  Json list = Json::array();
  for (const Message& message : messages) {
    if (printable(message.content) != message.content) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("the text of the {} message is not UTF-8, which a conversation with "
                              "tools must be",
                              message.role));
    }
    list.push_back({{"role", message.role}, {"content", message.content}});
  }
  return list.dump();
}

Result<ChatPrompt> render_prompt(const Model& model, const RunArguments& arguments,
                                 const PromptInput& input) {
  const bool goes_on = !arguments.memory.resume.empty();
  std::vector<Message> messages;
  if (arguments.system) messages.push_back({"system", *arguments.system});
  messages.push_back({"user", input.text});
  if (input.messages.empty() && input.tools.empty()) {
    return render_chat(model, messages,
                       {.after_answer = goes_on, .variables = arguments.template_variables});
  }
  ChatRequest request{.messages = input.messages,
                      .tools = input.tools,
                      .variables = arguments.template_variables,
                      .after_answer = goes_on};
  if (request.messages.empty()) {
    CULET_TRY(request.messages, messages_json(messages));
  }
  return render_chat(model, request);
}

// ---------------------------------------------------------------- showing a prompt

std::string_view name_of(TokenKind kind) {
  constexpr std::array<std::string_view, 7> kNames{
      "", "normal", "unknown", "control", "user-defined", "unused", "byte"};
  return kNames.at(static_cast<size_t>(kind));
}

std::string quoted(std::string_view text) {
  return Json(std::string(text)).dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json prompt_json(const Model& model, const ChatPrompt& prompt) {
  Json tokens = Json::array(), pieces = Json::array(), unused = Json::array();
  for (const Token id : prompt.tokens) {
    tokens.push_back({{"id", id},
                      {"text", model.vocabulary().piece(id)},
                      {"kind", name_of(model.vocabulary().kind(id))}});
  }
  for (const PromptPiece& piece : prompt.pieces) {
    pieces.push_back({{"text", piece.text}, {"from_template", piece.from_template}});
  }
  for (const UnusedPart& part : prompt.unused) unused.push_back(part.path);
  return {{"text", prompt.text()}, {"tokens", tokens}, {"pieces", pieces}, {"unused", unused}};
}

}  // namespace

Result<PromptInput> read_prompt_input(const RunArguments& arguments) {
  PromptInput input;
  const std::string_view given = given_instead_of_input(arguments);
  if (!given.empty()) CULET_TRY_VOID(refuse_input_beside(given));
  if (!arguments.tools.empty()) {
    CULET_TRY(input.tools, read_json_file(arguments.tools));
  }
  if (!arguments.messages.empty()) {
    CULET_TRY(input.messages, read_json_file(arguments.messages));
    return input;
  }
  if (!is_standard_input(arguments.prompt)) {
    input.text = *arguments.prompt;
    if (joins_input(arguments)) CULET_TRY_VOID(join_input(arguments, &input));
    return input;
  }
  CULET_TRY(input.text, read_standard_input());
  if (input.text.ends_with('\n')) input.text.pop_back();
  return input;
}

Result<void> check_late_input(const RunArguments& arguments, const PromptInput& input) {
  const std::string_view given = given_instead_of_input(arguments);
  if (!given.empty()) return refuse_input_beside(given);
  if (!input.silent || !input_waits()) return {};
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("a text came on standard input after {} seconds, too late for the answer; "
                  "write the whole prompt to standard input, which is waited for",
                  kSilence));
}

Result<ChatPrompt> make_prompt(const Model& model, const RunArguments& arguments,
                               const PromptInput& input) {
  const ModelInfo& info = model.info();
  if (arguments.raw || !info.has_chat_template) {
    CULET_TRY_VOID(check_no_chat_options(arguments, info));
    if (!arguments.raw) say_continued(info, arguments.quiet);
    return raw_prompt(model, arguments, input.text);
  }
  if (arguments.messages.empty() && input.text.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "the prompt is empty, so there is nothing to answer; write it after MODEL or pipe "
                "it in, or start without a text with --raw");
  }
  if (const ChatTemplateInfo chat = chat_template_info(model); !chat.error.empty()) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{} has a chat template that cannot be used: {}; give another one with "
                            "--chat-template FILE, or continue the prompt as text with --raw",
                            info.path, chat.error));
  }
  CULET_TRY(ChatPrompt prompt, render_prompt(model, arguments, input));
  CULET_TRY_VOID(check_used(prompt));
  warn_unused(model, prompt);
  return prompt;
}

std::string show_prompt(const Model& model, const ChatPrompt& prompt, bool json) {
  if (json) {
    return prompt_json(model, prompt).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  std::string text = prompt.text();
  if (!text.ends_with('\n')) text += '\n';
  text +=
      fmt::format("\n{} tokens\n{:>7}  {:<12}  {}\n", prompt.tokens.size(), "id", "kind", "token");
  for (const Token id : prompt.tokens) {
    text += fmt::format("{:>7}  {:<12}  {}\n", id, name_of(model.vocabulary().kind(id)),
                        quoted(model.vocabulary().piece(id)));
  }
  return printable(text);
}

}  // namespace culet::cli
