// How much memory this process may still take.
#pragma once

#include <cstdint>
#include <string>

namespace culet::base {

// The smaller of what the machine has available and of what is left in the control groups
// (versions 1 and 2) of this process; pages of files count as available. UINT64_MAX: not known.
// `root` stands in front of /proc and /sys (tests).
uint64_t available_memory(const std::string& root = "");

}  // namespace culet::base
