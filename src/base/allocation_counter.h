// For tests: counts what a program takes from the heap. A test program that links
// culet_allocation_counter has operators new that count.
#pragma once

#include <cstdint>

namespace culet::base {

// How many blocks the whole program has asked for so far, on all threads.
int64_t allocation_count();

}  // namespace culet::base
