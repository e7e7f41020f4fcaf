// Takes a vocabulary, marks the tokens whose text is a well-known end of a turn, a text or a file.
//
// Files often name only one such token (eos), while a chat ends with another. A text counts only
// where the file gives the token a kind that says "not plain text": control always, user-defined
// where models are known to ship the marker that way. So two tokens that the reference engine takes
// for ends by their text alone are not ends here: `</s>` in Gemma 3 (user-defined; an HTML tag) and
// in Qwen2.5-Coder (normal; code of web pages). Stopping there would cut answers.
#include "text/end_of_generation.h"

namespace culet::text {
namespace {

struct EndRow {
  std::string_view text;
  bool user_defined_too;
};

constexpr EndRow kEndRows[] = {
    // The end of a turn.
    {"<|im_end|>", true},          // ChatML
    {"<end_of_turn>", true},       // Gemma 2, 3
    {"<turn|>", true},             // Gemma 4
    {"<|eot_id|>", true},          // Llama 3
    {"<|eom_id|>", true},          // Llama 3: a tool is to be called
    {"<|eot|>", true},             // Llama 4
    {"<|eom|>", true},             // Llama 4
    {"<|end|>", true},             // Phi 3
    {"<|return|>", true},          // gpt-oss
    {"<|call|>", true},            // gpt-oss: a tool is to be called
    {"<end_of_utterance>", true},  // SmolVLM
    {"<|end_of_turn|>", true},
    {"<EOT>", true},
    {"_<EOT>", true},
    // The end of the text.
    {"<|endoftext|>", true},
    {"<|end_of_text|>", true},
    {"<eos>", false},
    {"</s>", false},
    // Code models: padding, or the next file of a repository begins.
    {"<|fim_pad|>", false},
    {"<fim_pad>", false},
    {"<fim-pad>", false},
    {"<|repo_name|>", false},
    {"<|fim_repo|>", false},
    {"<reponame>", false},
    {"<|file_sep|>", false},
};

}  // namespace

std::vector<bool> ends_generation(const TokenTable& table) {
  std::vector<bool> ends(static_cast<size_t>(table.size()), false);
  for (const EndRow& row : kEndRows) {
    const Token t = table.find(row.text);
    if (t == kNoToken) continue;
    const TokenKind kind = table.kind(t);
    ends[static_cast<size_t>(t)] =
        kind == TokenKind::kControl || (kind == TokenKind::kUserDefined && row.user_defined_too);
  }
  return ends;
}

}  // namespace culet::text
