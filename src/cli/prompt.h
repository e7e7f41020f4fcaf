// What culet run answers or continues: from arguments, files and standard input to tokens.
#pragma once

#include "cli/arguments.h"
#include "culet/chat.h"

#include <string>

namespace culet::cli {

struct PromptInput {
  std::string text;      // PROMPT, standard input, or both joined
  std::string messages;  // JSON; "": the conversation is `text`
  std::string tools;     // JSON; "": none
  bool silent = false;   // standard input is open, but said nothing
};

// Reads what the arguments name. Standard input beside PROMPT comes first, then a blank line, then
// PROMPT: a text and what to do with it, in the order of other programs. Errors: kInvalidArgument
// (an empty file; a text on standard input that has no place), kIo.
Result<PromptInput> read_prompt_input(const RunArguments& arguments);

// An error if a text came on standard input too late or where none is taken.
Result<void> check_late_input(const RunArguments& arguments, const PromptInput& input);

// The prompt: the chat template's, or the text itself with --raw and for a model without one. Says
// on standard error what the template leaves out and that a text is continued; an error where the
// template leaves out something that matters.
Result<ChatPrompt> make_prompt(const Model& model, const RunArguments& arguments,
                               const PromptInput& input);

// The text and the tokens for people, or as a JSON object and a newline.
std::string show_prompt(const Model& model, const ChatPrompt& prompt, bool json);

}  // namespace culet::cli
