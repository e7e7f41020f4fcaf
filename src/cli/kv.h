// The types of a session's cache by the names that --kv takes and bench prints.
#pragma once

#include "culet/culet.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace culet::cli {

// The names that stand for themselves, for help and completion.
inline constexpr const char* kKvNames = "f16|f32|bf16|q8_0|f16-full";

struct KvTypes {
  KvType keys = KvType::kF16, values = KvType::kF16;
  std::optional<std::pair<KvType, KvType>> window{};  // of layers with a window, where they differ

  SessionOptions options(int64_t context = 0) const {
    return {.context = context, .keys = keys, .values = values, .window_types = window};
  }
};

// "TYPE", "KEYS,VALUES" or "f16-full".
std::optional<KvTypes> kv_types(std::string_view name);
std::string kv_name(const KvTypes& types);

}  // namespace culet::cli
