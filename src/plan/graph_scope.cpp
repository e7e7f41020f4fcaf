#include "plan/graph_scope.h"

#include <fmt/format.h>

namespace culet::plan {

ValueId ValueScope::read(const std::string& name) {
  const auto made = names_.find(name);
  if (made == names_.end()) return kNone;
  made->second.read = true;
  return made->second.value;
}

std::vector<std::string> ValueScope::names() const {
  std::vector<std::string> all;
  all.reserve(names_.size());
  for (const auto& [name, made] : names_) all.push_back(name);
  return all;
}

Result<void> ValueScope::assign(const std::string& name, ValueId value, SourceLocation p) {
  if (const auto old = names_.find(name); old != names_.end())
    CULET_TRY_VOID(check_read(old->first, old->second));
  set(name, {value, p});
  std::string& shown = writer_.at(value).name;
  if (shown.empty()) shown = name;
  return {};
}

void ValueScope::define(const std::string& name, ValueId value, SourceLocation p) {
  set(name, {value, p, true});
}

void ValueScope::set(const std::string& name, Made made) {
  const bool fresh = names_.insert_or_assign(name, made).second;
  if (fresh && writer_.layer() >= 0) made_here_.push_back(name);
}

// A result that nothing reads is a slip, and the answers would be wrong without a word.
Result<void> ValueScope::check_read(const std::string& name, const Made& made) const {
  if (made.read) return {};
  return writer_.error(made.location,
                       fmt::format("nothing reads the value '{}' that is made here; use it "
                                   "below, or remove it",
                                   name));
}

Result<void> ValueScope::end_layer() {
  for (const std::string& name : made_here_) {
    const auto ends = names_.find(name);
    CULET_TRY_VOID(check_read(name, ends->second));
    names_.erase(ends);
  }
  return {};
}

Result<void> ValueScope::end() const {
  for (const auto& [name, made] : names_) CULET_TRY_VOID(check_read(name, made));
  return {};
}

}  // namespace culet::plan
