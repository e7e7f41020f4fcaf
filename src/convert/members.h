// Every member of a folder's configuration files is read, known to be harmless, named in a note, or
// an error: nothing that could change what a model computes is left out in silence.
#pragma once

#include "convert/expression.h"
#include "convert/family.h"
#include "culet/result.h"

#include <nlohmann/json_fwd.hpp>

#include <span>
#include <string>
#include <vector>

namespace culet::convert {

struct ConfigFile {
  std::string file;    // for messages: "1_Pooling/config.json"
  std::string prefix;  // of its members' names in family files: "pooling."; "" for config.json
  const nlohmann::ordered_json* json;
};

// The first file is config.json. Call it when everything of the family has been evaluated in the
// scope. `ignored` has names of members to pass over, as messages have them; each one becomes a
// note. Errors: kUnsupported (a member that nothing knows, or whose value is not the usual one),
// kInvalidArgument (an ignored name that no member has).
Result<void> check_members(const Family& family, const Scope& scope,
                           std::span<const ConfigFile> files, std::span<const std::string> ignored,
                           std::vector<std::string>* notes);

}  // namespace culet::convert
