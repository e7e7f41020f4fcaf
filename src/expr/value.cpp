#include "expr/value.h"

#include <fmt/format.h>

namespace culet::expr {

std::string_view Value::kind() const {
  static constexpr std::string_view kKinds[] = {"none", "a number", "a flag", "a string", "a word"};
  if (const auto* thing = std::get_if<std::shared_ptr<const Thing>>(&value))
    return (*thing)->kind();
  return kKinds[value.index()];
}

std::string Value::show() const {
  struct Show {
    std::string operator()(const Absent&) const { return "none"; }
    std::string operator()(double n) const { return fmt::format("{}", n); }
    std::string operator()(bool b) const { return b ? "yes" : "no"; }
    std::string operator()(const std::string& s) const { return '"' + s + '"'; }
    std::string operator()(const Word& w) const {
      return w.argument != 0 ? fmt::format("{}({})", w.text, w.argument) : w.text;
    }
    std::string operator()(const std::shared_ptr<const Thing>& t) const { return t->show(); }
  };
  return std::visit(Show{}, value);
}

bool equal(const Value& a, const Value& b) {
  if (a.value.index() != b.value.index()) return false;
  if (a.is_none()) return true;
  if (a.number()) return *a.number() == *b.number();
  if (a.flag()) return *a.flag() == *b.flag();
  if (a.text()) return *a.text() == *b.text();
  if (a.word()) return a.word()->text == b.word()->text && a.word()->argument == b.word()->argument;
  return false;
}

}  // namespace culet::expr
