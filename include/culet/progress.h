// Progress of calls that take long, and how to stop them.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace culet {

// The texts are valid during the call only.
struct Progress {
  std::string_view stage;        // what is being done: "loading", "prompt", "downloading"
  uint64_t done = 0, total = 0;  // in the unit that the call names; total 0: unknown
  std::string_view item{};       // the file or model; may be empty
  double bytes_per_second = 0;   // of a download, else 0
};

// Called on the thread that made the call, after each piece of work. Returning false stops the
// work: the call then returns kCancelled. It must not throw.
using ProgressFn = std::function<bool(const Progress&)>;

}  // namespace culet
