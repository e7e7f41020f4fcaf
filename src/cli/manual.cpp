// Takes the table of commands, gives a page for man(1).
//
// Help texts are plain lines; their layout says what they are: a line that ends with ":" and stands
// at the margin is a heading, an indented one is an example, and an indented one with a wide gap is
// a term and its meaning. Only requests that every roff knows are used.
#include "cli/manual.h"

#include <algorithm>

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

// The texts below the options. `section`: headings are sections of the page.
class Footer {
 public:
  Footer(bool section, std::string* out) : section_(section), out_(out) {}

  void add(std::string_view text) {
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      line(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    example(false);
  }

 private:
  void line(std::string_view line) {
    if (line.starts_with("  ")) {
      line.remove_prefix(2);
      const size_t gap = line.find("  ");
      return gap == std::string_view::npos ? show_example(line) : definition(line, gap);
    }
    example(false);
    if (line.empty()) {
      paragraph_ = true;
      return;
    }
    const size_t colon = line.find(':');
    const bool is_heading = colon == line.size() - 1;
    if (is_heading) return heading(line.substr(0, colon));
    if (paragraph_) *out_ += ".PP\n";
    paragraph_ = false;
    *out_ += text_line(line);
  }

  void heading(std::string_view name) {
    *out_ += section_ ? ".SH " + upper(std::string(name)) + "\n"
                      : ".PP\n" + bold(std::string(name) + ":") + "\n";
    paragraph_ = false;
    after_section_ = section_;
  }

  void definition(std::string_view line, size_t gap) {
    example(false);
    *out_ += ".TP\n" + bold(line.substr(0, gap)) + "\n";
    *out_ += text_line(line.substr(line.find_first_not_of(' ', gap)));
    paragraph_ = true;
  }

  void show_example(std::string_view line) {
    example(true);
    *out_ += text_line(line);
  }

  void example(bool on) {
    if (on == in_example_) return;
    if (on && !after_section_) *out_ += ".PP\n";
    *out_ += on ? ".nf\n.RS 4\n" : ".RE\n.fi\n";
    in_example_ = on;
    paragraph_ = !on;
    after_section_ = false;
  }

  bool section_;
  std::string* out_;
  bool in_example_ = false, paragraph_ = false, after_section_ = false;
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
  Footer(false, out).add("\n" + command.footer);
  for (const CommandEntry& inner : command.commands) add_command(inner, name, out);
}

}  // namespace

std::string manual_page(const CommandEntry& culet, std::string_view version,
                        std::string_view date) {
  std::string out =
      ".\\\" Made by culet itself; the texts are those of culet COMMAND \\-\\-help.\n";
  out += ".TH CULET 1 " + std::string(date) + " \"culet " + std::string(version) + "\"\n";
  out += ".SH NAME\nculet \\- run open language models on this machine\\(aqs processor\n";
  out += ".SH SYNOPSIS\n";
  for (const CommandEntry& command : culet.commands) {
    if (&command != &culet.commands.front()) out += ".br\n";
    add_synopsis(command, "culet " + command.name, &out);
  }
  out += ".SH DESCRIPTION\n";
  Footer(false, &out).add(culet.what);
  out += ".SH OPTIONS\n";
  add_options(culet.options, &out);
  out += ".SH COMMANDS\n";
  for (const CommandEntry& command : culet.commands) add_command(command, "culet", &out);
  Footer(true, &out).add(culet.footer);
  return out;
}

}  // namespace culet::cli
