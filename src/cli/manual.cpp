// Takes the table of commands, gives a page for man(1).
// Only requests that every roff knows are used.
#include "cli/manual.h"

#include <algorithm>
#include <variant>

namespace culet::cli {
namespace {

// Text in running lines: nothing in it is markup.
std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if (c == '\'') {
      out += "\\(aq";
    } else if (c == '`') {
      out += "\\(ga";
    } else if (c == '^') {
      out += "\\(ha";
    } else if (c == '~') {
      out += "\\(ti";
    } else {
      out += c;
    }
  }
  return out;
}

// A dot at the start of a line would be a request.
std::string text_line(std::string_view text) {
  const std::string escaped = escape(text);
  return (escaped.starts_with('.') ? "\\&" : "") + escaped + "\n";
}

std::string bold(std::string_view text) { return "\\fB" + escape(text) + "\\fR"; }
std::string italic(std::string_view text) { return "\\fI" + escape(text) + "\\fR"; }

// "f16|f32" is typed as it stands, other values are placeholders. A long list may go on in the next
// line behind a bar.
std::string value_text(std::string_view value) {
  if (value.find('|') == std::string_view::npos) return italic(value);
  std::string text = bold(value);
  for (size_t bar = text.find('|'); bar != std::string::npos; bar = text.find('|', bar + 1)) {
    text.insert(bar + 1, "\\:");
  }
  return text;
}

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) {
    return static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
  });
  return text;
}

void add_synopsis(const CommandEntry& command, const std::string& name, std::string* out) {
  *out += bold(name);
  if (!command.options.empty()) *out += " [" + italic("OPTIONS") + "]";
  if (!command.commands.empty()) *out += " " + italic("COMMAND");
  for (const OptionEntry& argument : command.arguments) {
    std::string text = italic(argument.names.front());
    if (argument.repeats) text += "...";
    *out += argument.required ? " " + text : " [" + text + "]";
  }
  *out += "\n";
}

void add_options(const std::vector<OptionEntry>& options, std::string* out) {
  for (const OptionEntry& option : options) {
    *out += ".TP\n";
    for (size_t i = 0; i < option.names.size(); ++i) {
      *out += (i ? ", " : "") + bold(option.names[i]);
    }
    if (!option.value.empty()) *out += " " + value_text(option.value);
    *out += "\n" + text_line(option.what);
    if (!option.default_value.empty()) *out += "(default " + escape(option.default_value) + ")\n";
  }
}

std::string lines(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    out += text_line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

// The parts of a help. `sections`: headings are sections of the page.
class HelpPage {
 public:
  HelpPage(bool sections, std::string* out) : sections_(sections), out_(out) {}

  void operator()(const HelpText& part) { *out_ += ".PP\n" + lines(part.text); }
  void operator()(const HelpLines& part) {
    head(part.heading);
    *out_ += ".nf\n.RS 4\n";
    for (const std::string& line : part.lines) *out_ += text_line(line);
    *out_ += ".RE\n.fi\n";
  }
  void operator()(const HelpTerms& part) {
    head(part.heading);
    for (const auto& [term, meaning] : part.terms) {
      *out_ += ".TP\n" + bold(term) + "\n" + text_line(meaning);
    }
  }

 private:
  void head(const std::string& heading) {
    if (!heading.empty() && sections_) {
      *out_ += ".SH " + upper(heading) + "\n";
    } else {
      *out_ += ".PP\n";
      if (!heading.empty()) *out_ += bold(heading + ":") + "\n.PP\n";
    }
  }

  bool sections_;
  std::string* out_;
};

void add_command(const CommandEntry& command, const std::string& prefix, std::string* out) {
  const std::string name = prefix + " " + command.name;
  *out += ".SS " + escape(name) + "\n";
  add_synopsis(command, name, out);
  *out += ".PP\n" + text_line(command.what + ".");
  add_options(command.arguments, out);
  std::vector<OptionEntry> options = command.options;
  std::erase_if(options, [](const OptionEntry& option) { return option.names.back() == "--help"; });
  add_options(options, out);
  for (const auto& part : command.help.parts) std::visit(HelpPage(false, out), part);
  for (const CommandEntry& inner : command.commands) add_command(inner, name, out);
}

}  // namespace

std::string manual_page(const CommandEntry& culet, std::string_view version,
                        std::string_view date) {
  std::string out = ".\\\" Made by culet itself, of the same tables as culet COMMAND \\-\\-help.\n";
  out += ".TH CULET 1 " + std::string(date) + " \"culet " + std::string(version) + "\"\n";
  out += ".SH NAME\nculet \\- run open language models on this machine\\(aqs processor\n";
  out += ".SH SYNOPSIS\n";
  for (const CommandEntry& command : culet.commands) {
    if (&command != &culet.commands.front()) out += ".br\n";
    add_synopsis(command, "culet " + command.name, &out);
  }
  out += ".SH DESCRIPTION\n";
  out += lines(culet.what);
  out += ".SH OPTIONS\n";
  add_options(culet.options, &out);
  out += ".SH COMMANDS\n";
  for (const CommandEntry& command : culet.commands) add_command(command, "culet", &out);
  for (const auto& part : culet.help.parts) std::visit(HelpPage(true, &out), part);
  return out;
}

}  // namespace culet::cli
