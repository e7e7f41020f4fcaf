// Names of cache types: a type for keys and values, two types with a comma between them, or a
// preset that treats layers with a window apart. The shortest name of a choice is its name.
#include "cli/kv.h"

#include <iterator>

namespace culet::cli {
namespace {

constexpr KvType kTypes[] = {KvType::kF32, KvType::kF16, KvType::kBf16, KvType::kQ8};

constexpr std::string_view kFullLayersF16 = "f16-full";

std::optional<KvType> type_of(std::string_view name) {
  for (const KvType type : kTypes)
    if (kv_type_name(type) == name) return type;
  return std::nullopt;
}

}  // namespace

std::optional<KvTypes> kv_types(std::string_view name) {
  if (name == kFullLayersF16) return KvTypes{.window = std::pair(KvType::kF32, KvType::kF32)};
  const size_t comma = name.find(',');
  const auto keys = type_of(name.substr(0, comma));
  const auto values = comma == std::string_view::npos ? keys : type_of(name.substr(comma + 1));
  if (!keys || !values) return std::nullopt;
  return KvTypes{.keys = *keys, .values = *values};
}

std::string kv_name(const KvTypes& types) {
  if (types.window) return std::string(kFullLayersF16);
  const std::string keys(kv_type_name(types.keys));
  return types.keys == types.values ? keys : keys + "," + std::string(kv_type_name(types.values));
}

}  // namespace culet::cli
