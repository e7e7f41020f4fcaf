// How every call that takes long says how far it is, and how a caller stops it.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace culet {

// The texts are valid during the call only.
struct Progress {
  std::string_view stage;        // what is being done: "loading", "prompt", "downloading"
  uint64_t done = 0, total = 0;  // tokens or bytes, as the call says; total 0: not known
  std::string_view item{};       // the file or model it is done to; may be empty
  double bytes_per_second = 0;   // of a transfer, else 0
};

// Called on the thread that made the call, after each piece of work. Returning false stops the
// work: the call then returns kCancelled. It must not throw.
using ProgressFn = std::function<bool(const Progress&)>;

}  // namespace culet
