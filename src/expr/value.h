// What an expression is worth.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <variant>

namespace culet::expr {

// Nothing: the word `none`, or a name that is not there.
struct Absent {
  std::string name;  // what was looked for
};

// A word that stands for itself, perhaps with a number: adjacent, window(512).
struct Word {
  std::string text;
  double argument = 0;
};

// Something that only the language's user knows: a tensor, a list, an object.
class Thing {
 public:
  virtual ~Thing() = default;
  virtual std::string_view kind() const = 0;  // "a tensor"
  virtual std::string show() const = 0;       // for messages and reports
};

struct Value {
  std::variant<Absent, double, bool, std::string, Word, std::shared_ptr<const Thing>> value;

  bool is_none() const { return std::holds_alternative<Absent>(value); }
  const Absent* absent() const { return std::get_if<Absent>(&value); }
  const double* number() const { return std::get_if<double>(&value); }
  const bool* flag() const { return std::get_if<bool>(&value); }
  const std::string* text() const { return std::get_if<std::string>(&value); }
  const Word* word() const { return std::get_if<Word>(&value); }
  template <class T>
  const T* thing() const {  // nullptr: it is no T
    const auto* thing = std::get_if<std::shared_ptr<const Thing>>(&value);
    return thing ? dynamic_cast<const T*>(thing->get()) : nullptr;
  }

  std::string_view kind() const;  // "a number", "none", "a tensor"
  std::string show() const;       // for messages and reports: 1.5, yes, "text", window(512), none
};

// The values are of one kind and the same. Things are never equal.
bool equal(const Value& a, const Value& b);

}  // namespace culet::expr
