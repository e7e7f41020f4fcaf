// The architecture files of arch/, embedded at build time (cmake/embed_texts.cmake writes the
// .cpp).
#pragma once

#include <span>
#include <string_view>

namespace culet::plan {

struct BuiltinArch {
  std::string_view name;  // file name without .arch
  std::string_view text;
};

std::span<const BuiltinArch> builtin_archs();

}  // namespace culet::plan
