// How caches write themselves and read themselves back: bytes in order, to or from anything.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

namespace culet::cache {

using Sink = std::function<bool(std::span<const std::byte>)>;  // false: it could not be written
using Source = std::function<bool(std::span<std::byte>)>;      // false: there is not that much

}  // namespace culet::cache
