// A command of the command line for the parser, with its help as data.
#pragma once

#include "cli/help.h"

#include <CLI/CLI.hpp>

#include <memory>
#include <string>
#include <utility>

namespace culet::cli {

class CommandApp : public CLI::App {
 public:
  CommandApp(const std::string& name, const std::string& what, Help help, CLI::App* parent)
      : CLI::App(what, name, parent), help_(std::move(help)) {
    footer(to_text(help_));
  }

  const Help& help_parts() const { return help_; }

 private:
  Help help_;
};

inline CLI::App* add_command(CLI::App* parent, const std::string& name, const std::string& what,
                             Help help) {
  return parent->add_subcommand(std::make_shared<CommandApp>(name, what, std::move(help), parent));
}

}  // namespace culet::cli
