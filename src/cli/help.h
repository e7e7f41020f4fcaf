// What the help of a command says below its options, as data: `--help` and the manual page are both
// made of it.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace culet::cli {

// Running text; lines are cut as `--help` shows them.
struct HelpText {
  std::string text;
};
// Lines that stand as they are: examples, or (without a heading) a list inside the text.
struct HelpLines {
  std::string heading;
  std::vector<std::string> lines;
};
// Words and what they mean.
struct HelpTerms {
  std::string heading;
  std::vector<std::pair<std::string, std::string>> terms;
};

struct Help {
  std::vector<std::variant<HelpText, HelpLines, HelpTerms>> parts;
};

HelpLines examples(std::vector<std::string> lines);

// As --help prints it.
std::string to_text(const Help& help);

}  // namespace culet::cli
