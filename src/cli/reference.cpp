// Takes the parser's objects, gives plain data; the only file besides the declarations that knows
// the parser.
#include "cli/reference.h"

#include "cli/command_app.h"

#include <CLI/CLI.hpp>

namespace culet::cli {
namespace {

OptionEntry read_option(const CLI::Option& option) {
  OptionEntry entry;
  for (const std::string& name : option.get_snames()) entry.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) entry.names.push_back("--" + name);
  const bool argument = option.get_positional();
  if (argument) entry.names = {option.get_name(true)};
  if (option.get_items_expected_max() > 0) entry.value = option.get_type_name();
  if (argument && entry.value.find('|') == std::string::npos) entry.value.clear();
  entry.default_value = option.get_default_str();
  entry.what = option.get_description();
  entry.required = option.get_required();
  const bool takes_all = option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
  entry.repeats = argument ? option.get_items_expected_max() > 1 : takes_all;
  return entry;
}

}  // namespace

CommandEntry read_command(const CLI::App& app) {
  CommandEntry entry{app.get_name(), app.get_description(), {}, {}, {}, {}};
  if (const auto* command = dynamic_cast<const CommandApp*>(&app)) {
    entry.help = command->help_parts();
  }
  for (const CLI::Option* option : app.get_options([](const CLI::Option*) { return true; })) {
    if (option->get_group().empty()) continue;
    (option->get_positional() ? entry.arguments : entry.options).push_back(read_option(*option));
  }
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!command->get_group().empty()) entry.commands.push_back(read_command(*command));
  }
  return entry;
}

}  // namespace culet::cli
