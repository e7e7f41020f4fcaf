// Folders of the user, by the environment's rules.
#pragma once

#include <functional>
#include <string>

namespace culet::base {

// The value of a variable of the environment, "" when it is not set.
using Variables = std::function<std::string(const char*)>;
Variables environment();  // this process's own; culet never sets any

// "~" and "~/x" with the home folder in place of the "~"; anything else as it is.
std::string expand_home(const std::string& home, const std::string& path);

// A path without "~", not depending on the working folder, without a slash at its end; "" stays "".
std::string settled(const std::string& home, const std::string& path);

// $XDG_CACHE_HOME, else ~/.cache; "" when neither is known.
std::string caches_folder(const Variables& variables);

// Where culet keeps models and what it remembers of them (docs/models.md): $CULET_CACHE, else
// culet/models in the caches folder; "" when neither is known.
std::string culet_cache(const Variables& variables);

}  // namespace culet::base
