// What the evaluator and the native functions share: scopes, loops, calls, and Python's operations.
#pragma once

#include "culet/result.h"
#include "template/ast.h"
#include "template/value.h"

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace culet::chat {

class Interpreter;

// The variables of one block. Scopes that a macro was defined in outlive their block.
struct Scope {
  Scope* parent;
  std::map<int, Value> variables;  // by Name::id
  bool captured = false;
};

struct Macro {
  const MacroNode* node;
  Scope* scope;  // where it was defined; owned by the interpreter
};

// The `loop` of a for statement. Items pass the loop's filter one by one, as late as possible,
// since the filter may read what the body writes.
struct LoopState {
  std::vector<Value> source;
  int source_height = 0;
  size_t next_source = 0;      // first item of `source` not yet filtered
  std::vector<Value> passed;   // items that passed, so far
  size_t index = 0;            // of the item the body is at
  const Statement* statement;  // for the filter; null once the loop is over
  Scope* outside = nullptr;    // scope of the filter
  int level = 0;               // loops around this one
  std::optional<Value> changed;

  int height() const { return source_height + 1; }
};

// Arguments of a call, evaluated.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// One call of a native. Fixed parameters are bound to slots; null: not given.
struct Call {
  Interpreter& in;
  const NativeEntry& entry;
  Value self;  // the filtered or tested value, or the object of a method
  Arguments arguments;
  std::array<const Value*, 6> slots{};

  const Value* arg(size_t i) const { return slots[i]; }
};

// Binds arguments to the parameters that the entry declares.
Result<void> bind(Call& call);

// ---- Python's operations; see operations.cpp. Errors say what went wrong, without a place. ----

Error type_error(std::string message);
inline tl::unexpected<Error> type_failure(std::string message) {
  return tl::unexpected<Error>(type_error(std::move(message)));
}

bool truth(const Value& v);
Result<bool> equal(const Factory& f, const Value& a, const Value& b);
// Negative, zero or positive; an error when Python cannot order the two. NaN orders as equal.
Result<int> order(const Factory& f, const Value& a, const Value& b);
Result<bool> compare(const Factory& f, Op op, const Value& a, const Value& b);
Result<bool> contains(const Factory& f, const Value& container, const Value& item);
Result<Value> arithmetic(const Factory& f, Op op, const Value& a, const Value& b);
Result<Value> negate(const Value& v);
// Items as Python's iter() gives them: characters, items, keys. A generator is used up.
Result<std::vector<Value>> iterate(const Factory& f, const Value& v);
Result<int64_t> length(const Factory& f, const Value& v);
Result<Value> slice(const Factory& f, const Value& v, const Value& start, const Value& stop,
                    const Value& step);
// object.name and object[key], undefined when there is none.
Result<Value> get_attribute(Interpreter& in, const Value& object, const Name& name);
Result<Value> get_item(Interpreter& in, const Value& object, const Value& key);
// The character at a place counted from either end; undefined outside.
Result<Value> character_at(const Factory& f, const String& s, int64_t index);

// Substring search in linear time whatever the texts are; npos when there is none.
size_t find_text(std::string_view text, std::string_view what, size_t from = 0);
size_t find_last_text(std::string_view text, std::string_view what);

// ---- Printing; see print.cpp. ----

std::string format_float(double d);
// Appends str(v), repr(v) or the JSON of v.
Result<void> append_str(const Factory& f, Text& out, const Value& v);
Result<void> append_repr(const Factory& f, Text& out, const Value& v);
struct JsonStyle {
  bool ascii = false, sort_keys = false;
  std::optional<Text> indent;
  Text item_separator, key_separator;
};
Result<void> append_json(const Factory& f, Text& out, const Value& v, const JsonStyle& style);
// str(v) as a value; strings come back as they are.
Result<Value> to_string(const Factory& f, const Value& v);
Result<Text> to_text(const Factory& f, const Value& v);
// Text with & < > ' " as HTML writes them.
Text escape_html(const Text& text);

// ---- Formatting; see format.cpp. ----

Result<Value> format_percent(const Factory& f, const String& format, const Value& arguments);
Result<Value> format_braces(Interpreter& in, const String& format, const Arguments& arguments);

}  // namespace culet::chat
