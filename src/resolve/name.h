// MODEL, as a user writes it, to a file: the order of the places and what is said when none has it.
#pragma once

#include "culet/hub.h"
#include "culet/result.h"
#include "resolve/catalogue.h"
#include "resolve/places.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace culet::resolve {

// Starts with /, ./, ../ or ~, is . or .., has a backslash or a drive letter, or ends in .gguf.
bool looks_like_path(std::string_view name);

// `hf:` and `ollama:` in front of a name.
enum class Only { kAnyPlace, kOllama, kHuggingFace };
Only split_prefix(std::string_view* name);

// The name without spaces around it; kInvalidArgument when there is none, or far too much of it.
Result<std::string> checked_name(std::string_view name);

// See culet::find_model.
Result<ModelRef> find_model(const Places& places, const Catalogue& catalogue,
                            std::string_view name);

// Only in culet's cache folder; nothing: not there.
Result<std::optional<ModelRef>> find_own_model(const Places& places, const Catalogue& catalogue,
                                               std::string_view name);

// See culet::remove_model.
Result<RemovedModel> remove_model(const Places& places, const Catalogue& catalogue,
                                  std::string_view name);

// The digest of the model's file: known, or computed and remembered.
Result<std::string> model_sha256(const Places& places, const ModelRef& model,
                                 const ProgressFn& progress);
// See culet::model_digests.
Result<std::vector<FileDigest>> model_digests(const Places& places, const ModelRef& model,
                                              const ProgressFn& progress);

// What is closest to the name, when it is close at all; else "".
std::string closest(std::string_view name, const std::vector<std::string>& names);

}  // namespace culet::resolve
