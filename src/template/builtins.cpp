// The tables of filters.def, searched by name, and the binding of arguments to parameters.
#include "template/builtins.h"

#include <algorithm>
#include <tuple>

namespace culet::chat {

#define CLOSED(table, name)
#define NATIVE(table, name, function, parameters) Result<Value> function(Call& call);
#include "template/filters.def"
#undef NATIVE
#undef CLOSED

namespace {

// In the order of filters.def.
enum Table : uint8_t {
  kFilters,
  kTests,
  kFunctions,
  kStringMethods,
  kDictMethods,
  kListMethods,
  kTupleMethods,
  kLoopMethods,
};

struct Row {
  Table table;
  NativeEntry entry;
};

constexpr Row kRows[] = {
#define NATIVE(table, name, function, parameters) {table, {name, function, parameters}},
#define CLOSED(table, name) {table, {name, nullptr, ""}},
#include "template/filters.def"
#undef CLOSED
#undef NATIVE
};

constexpr bool before(const Row& row, Table table, std::string_view name) {
  return row.table != table ? row.table < table : std::string_view(row.entry.name) < name;
}

constexpr bool sorted() {
  for (size_t i = 1; i < std::size(kRows); ++i) {
    if (!before(kRows[i - 1], kRows[i].table, kRows[i].entry.name)) return false;
  }
  return true;
}
static_assert(sorted(), "filters.def is not in order");

const NativeEntry* find(Table table, std::string_view name) {
  const Row* row =
      std::lower_bound(std::begin(kRows), std::end(kRows), name,
                       [table](const Row& r, std::string_view n) { return before(r, table, n); });
  if (row == std::end(kRows) || row->table != table || row->entry.name != name) return nullptr;
  return &row->entry;
}

}  // namespace

const NativeEntry* find_filter(std::string_view name) { return find(kFilters, name); }
const NativeEntry* find_test(std::string_view name) { return find(kTests, name); }
const NativeEntry* find_function(std::string_view name) { return find(kFunctions, name); }
const NativeEntry* find_string_method(std::string_view name) { return find(kStringMethods, name); }
const NativeEntry* find_dict_method(std::string_view name) { return find(kDictMethods, name); }
const NativeEntry* find_list_method(std::string_view name) { return find(kListMethods, name); }
const NativeEntry* find_tuple_method(std::string_view name) { return find(kTupleMethods, name); }
const NativeEntry* find_loop_method(std::string_view name) { return find(kLoopMethods, name); }

namespace {

struct Parameters {
  std::vector<std::string_view> names;  // without "!"
  size_t required = 0;
  bool any_positional = false, any_named = false;
};

Parameters parse_parameters(std::string_view text) {
  Parameters out;
  while (!text.empty()) {
    const size_t space = std::min(text.find(' '), text.size());
    std::string_view word = text.substr(0, space);
    text.remove_prefix(std::min(space + 1, text.size()));
    if (word == "*") {
      out.any_positional = true;
    } else if (word == "**") {
      out.any_named = true;
    } else {
      if (word.ends_with('!')) {
        word.remove_suffix(1);
        out.required = out.names.size() + 1;
      }
      out.names.push_back(word);
    }
  }
  return out;
}

tl::unexpected<Error> bind_failure(const Call& call, const std::string& what) {
  return type_failure(std::string("'") + call.entry.name + "' " + what);
}

}  // namespace

Result<void> bind(Call& call) {
  const Parameters p = parse_parameters(call.entry.parameters);
  const auto& [positional, named] = call.arguments;
  if (positional.size() > p.names.size() && !p.any_positional) {
    return bind_failure(call, "takes at most " + std::to_string(p.names.size()) +
                                  " arguments but is given " + std::to_string(positional.size()));
  }
  for (size_t i = 0; i < std::min(positional.size(), p.names.size()); ++i) {
    call.slots[i] = &positional[i];
  }
  for (const auto& [name, value] : named) {
    const auto at = std::find(p.names.begin(), p.names.end(), name);
    if (at == p.names.end()) {
      if (p.any_named) continue;
      return bind_failure(call, "has no argument named '" + name.substr(0, 100) + "'");
    }
    const size_t i = static_cast<size_t>(at - p.names.begin());
    if (call.slots[i] != nullptr) return bind_failure(call, "is given '" + name + "' twice");
    call.slots[i] = &value;
  }
  for (size_t i = 0; i < p.required; ++i) {
    if (call.slots[i] == nullptr) {
      return bind_failure(call, "needs the argument '" + std::string(p.names[i]) + "'");
    }
  }
  return {};
}

}  // namespace culet::chat
