#include "cli/help.h"

#include <string_view>

namespace culet::cli {
namespace {

constexpr size_t kTermWidth = 22;  // a term's column

// Builds the text part by part: a heading stands behind an empty line, and so does a text that
// follows what has one.
class HelpPrinter {
 public:
  void operator()(const HelpText& part) {
    begin(below_heading_);
    below_heading_ = false;
    out_ += part.text;
  }
  void operator()(const HelpLines& part) {
    head(part.heading);
    for (const std::string& line : part.lines) add_line("  " + line);
  }
  void operator()(const HelpTerms& part) {
    head(part.heading);
    for (auto [term, meaning] : part.terms) {
      if (term.size() < kTermWidth) term.resize(kTermWidth, ' ');
      term.insert(0, 2, ' ').append(meaning);
      add_line(term);
    }
  }
  std::string take() { return std::move(out_); }

 private:
  void begin(bool gap) {
    if (!out_.empty()) out_ += gap ? "\n\n" : "\n";
  }
  void head(const std::string& heading) {
    if (heading.empty()) return;
    begin(true);
    out_ += heading + ":";
    below_heading_ = true;
  }
  void add_line(const std::string& line) {
    begin(false);
    out_ += line;
  }

  std::string out_;
  bool below_heading_ = false;
};

}  // namespace

HelpLines examples(std::vector<std::string> lines) { return {"Examples", std::move(lines)}; }

std::string to_text(const Help& help) {
  HelpPrinter printer;
  for (const auto& part : help.parts) std::visit(printer, part);
  return printer.take();
}

}  // namespace culet::cli
