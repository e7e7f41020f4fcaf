// Takes the configuration files and the scope in which the family was evaluated. It walks through
// every member, nested ones too. A member that no expression read is looked up in the family's
// `harmless` and `note` rows; what is left is the error.
#include "convert/members.h"

#include "base/json.h"
#include "base/utf8.h"
#include "convert/json_parts.h"
#include "convert/types.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace culet::convert {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostNamed = 8;  // members that one message lists

std::string shown(const Json& json) {
  constexpr size_t kMost = 60;
  std::string text = base::dump_json(json);
  if (text.size() > kMost) text = text.substr(0, kMost) + "...";
  return base::utf8_shown(text);
}

class Walk {
 public:
  // `config`: config.json.
  Walk(const Family& family, const Scope& scope, const Json* config,
       std::span<const std::string> ignored, std::vector<std::string>* notes)
      : family_(family),
        scope_(scope),
        config_(config),
        ignored_(ignored),
        used_(ignored.size()),
        notes_(*notes) {}

  // `name`: as family files have it; `path`: as the file has it.
  Result<void> visit(const std::string& file, const std::string& name, const std::string& path,
                     const Json& json);
  Result<void> finish() const;

 private:
  Result<bool> known(const std::string& file, const std::string& name, const std::string& path,
                     const Json& json);
  Result<void> check_text_part(const std::string& path, const Json& json) const;
  bool is_read_in_part(const Json& list) const;
  bool is_ignored(const std::string& file, const std::string& name, const std::string& path,
                  const Json& json);
  Result<void> parts(const std::string& file, const std::string& name, const std::string& path,
                     const Json& json);

  const Family& family_;
  Scope scope_;  // a copy, in which `it` is the member at hand
  const Json* config_;
  std::span<const std::string> ignored_;
  std::vector<bool> used_;
  std::vector<std::string>& notes_;
  std::vector<std::string> unknown_;  // "NAME = VALUE", in all files
  std::string first_file_, first_name_;
};

bool Walk::is_ignored(const std::string& file, const std::string& name, const std::string& path,
                      const Json& json) {
  for (size_t i = 0; i < ignored_.size(); ++i) {
    if (ignored_[i] != name && ignored_[i] != path) continue;
    used_[i] = true;
    notes_.push_back(fmt::format("ignored as you asked: {} = {} ({})", base::utf8_shown(path),
                                 shown(json), file));
    return true;
  }
  return false;
}

// Whether a row of the family says what to do with the member.
Result<bool> Walk::known(const std::string& file, const std::string& name, const std::string& path,
                         const Json& json) {
  const MemberRow* unmet = nullptr;
  scope_.name("it", &json);
  for (const MemberRow& row : family_.members) {
    if (!matches(name, row.name)) continue;
    if (row.when) {
      // A value of another kind, which cannot be compared, is not the usual one.
      const Result<Value> holds = scope_.value(*row.when);
      if (const bool* flag = holds ? holds->flag() : nullptr; flag == nullptr || !*flag) {
        if (!row.is_note) unmet = &row;
        continue;
      }
    }
    if (row.is_note) {
      notes_.push_back(fmt::format("{} says {} = {}: {}", file, base::utf8_shown(path), shown(json),
                                   row.reason));
    }
    return true;
  }
  // An object, or a list that was looked into, is judged by its parts.
  if (unmet == nullptr || json.is_object() || is_read_in_part(json)) return false;
  return fail(ErrorCode::kUnsupported,
              fmt::format("{} says {} = {}, which is not supported: {} ({})", file,
                          base::utf8_shown(path), shown(json), unmet->reason, unmet->location));
}

bool Walk::is_read_in_part(const Json& json) const {
  return json.is_array() && std::any_of(json.begin(), json.end(), [&](const Json& part) {
           return part.is_structured() || scope_.was_read(&part);
         });
}

Result<void> Walk::parts(const std::string& file, const std::string& name, const std::string& path,
                         const Json& json) {
  const auto below = [](const std::string& of, const std::string& key) {
    return of.empty() || of.ends_with('.') ? of + key : of + "." + key;
  };
  if (json.is_object()) {
    for (const auto& [key, value] : json.items()) {
      CULET_TRY_VOID(visit(file, below(name, key), below(path, key), value));
    }
    return {};
  }
  for (size_t i = 0; i < json.size(); ++i) {
    CULET_TRY_VOID(visit(file, name, fmt::format("{}[{}]", path, i), json[i]));
  }
  return {};
}

// The text part of a configuration counts; what stands beside it must not contradict it.
Result<void> Walk::check_text_part(const std::string& path, const Json& json) const {
  const Json* text = member(config_, "text_config");
  const Json* inside = member(text, path);
  if (inside == nullptr || inside == &json || *inside == json) return {};
  return fail(
      ErrorCode::kUnsupported,
      fmt::format("config.json says {} = {}, but {} in its text_config; say the same in both "
                  "places, or only in text_config",
                  base::utf8_shown(path), shown(json), shown(*inside)));
}

Result<void> Walk::visit(const std::string& file, const std::string& name, const std::string& path,
                         const Json& json) {
  if (json.is_null() || scope_.was_read(&json)) return {};
  const bool whole = path.empty();
  if (!whole && is_ignored(file, name, path, json)) return {};
  if (!whole) {
    CULET_TRY(const bool is_known, known(file, name, path, json));
    if (is_known) return {};
  }
  // What a configuration has inside: the text part has the same names.
  if (path == "text_config" && json.is_object()) return parts(file, "", path + ".", json);
  if (json.is_object() || whole || is_read_in_part(json)) return parts(file, name, path, json);
  if (json.is_array() && json.empty()) return {};
  CULET_TRY_VOID(check_text_part(path, json));
  if (unknown_.empty()) {
    first_file_ = file;
    first_name_ = path;
  }
  unknown_.push_back(fmt::format("{} = {}{}", base::utf8_shown(path), shown(json),
                                 unknown_.empty() || file == first_file_ ? "" : " (" + file + ")"));
  return {};
}

Result<void> Walk::finish() const {
  for (size_t i = 0; i < ignored_.size(); ++i) {
    if (used_[i]) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the configuration has no '{}' that would have to be ignored",
                            base::utf8_shown(ignored_[i])));
  }
  if (unknown_.empty()) return {};
  std::string list = unknown_[0];
  for (size_t i = 1; i < std::min(unknown_.size(), kMostNamed); ++i) list += ", " + unknown_[i];
  if (unknown_.size() > kMostNamed) {
    list += fmt::format(" and {} more", unknown_.size() - kMostNamed);
  }
  return fail(
      ErrorCode::kUnsupported,
      fmt::format("{} says {}, which the family {} does not know, so the file could compute "
                  "something else; if it changes nothing, add --ignore-config {}",
                  first_file_, list, family_.name, base::utf8_shown(first_name_)));
}

}  // namespace

Result<void> check_members(const Family& family, const Scope& scope,
                           std::span<const ConfigFile> files, std::span<const std::string> ignored,
                           std::vector<std::string>* notes) {
  Walk walk(family, scope, files.empty() ? nullptr : files[0].json, ignored, notes);
  for (const ConfigFile& entry : files) {
    if (entry.json == nullptr || entry.json->is_null()) continue;
    CULET_TRY_VOID(walk.visit(entry.file, entry.prefix, "", *entry.json));
  }
  return walk.finish();
}

}  // namespace culet::convert
