// The command line as data: every command, option and help text, as arguments*.cpp declares them to
// the parser. Completion and the manual page are made of it, so that nothing is said twice.
#pragma once

#include "cli/help.h"

#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): the library's
class App;
}  // namespace CLI

namespace culet::cli {

struct OptionEntry {
  std::vector<std::string> names;  // "-n", "--max-tokens"; of an argument its one name, "MODEL"
  // What follows an option: "TEXT", "DIR", "f16|f32"; "" = nothing, a switch. Of an argument the
  // words to choose from, or "".
  std::string value;
  std::string default_value;  // "" = none, or said in `what`
  std::string what;
  bool required = false;
  bool repeats = false;  // an option may be given again; an argument takes all words
};

struct CommandEntry {
  std::string name, what;
  Help help;
  std::vector<OptionEntry> options, arguments;
  std::vector<CommandEntry> commands;
};

// Hidden options and commands (those without a group) are left out.
CommandEntry read_command(const CLI::App& app);
CommandEntry command_reference();  // of culet itself; arguments.cpp

}  // namespace culet::cli
