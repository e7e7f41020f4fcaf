// What every call of this layer that starts threads and takes memory has around it.
#pragma once

#include "culet/result.h"

#include <fmt/format.h>

#include <new>
#include <system_error>

namespace culet::convert {

// fn(), a Result, with its exceptions as errors.
template <class F>
auto with_threads(int threads, F&& fn) -> decltype(fn()) {
  if (threads < 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} threads make no sense; give 0 for one a core, or more", threads));
  }
  try {
    return fn();
  } catch (const std::system_error& e) {
    return fail(ErrorCode::kExhausted,
                fmt::format("the system does not give the threads: {}; ask for fewer", e.what()));
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kExhausted, "out of memory; close other programs");
  }
}

}  // namespace culet::convert
