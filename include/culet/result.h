// Result<T>: what every call that can fail because of its input returns.
//
// An Error is one sentence a user can act on: what is wrong, where, and what to do next.
// No exception crosses a culet call; a broken promise inside culet itself aborts (CULET_CHECK).
#pragma once

#include <tl/expected.hpp>

#include <cstdint>
#include <string>
#include <utility>

namespace culet {

enum class ErrorCode : uint8_t {
  kInvalidArgument,  // the caller asked for something that makes no sense
  kNotFound,         // a file, model, key or tensor is not there
  kUnsupported,      // understood, but this version cannot do it
  kCorrupt,          // bytes that break their format's rules
  kExhausted,        // out of memory, context or another budget
  kIo,               // the operating system refused
  kCancelled,        // stopped on request
  kNumeric,          // NaN or infinity where a number must be finite
};

struct Error {
  ErrorCode code;
  std::string message;
};

template <class T>
using Result = tl::expected<T, Error>;

// Messages quote names from files that nobody checked: a control character would be an order to the
// reader's terminal, so it is shown as '?'.
inline tl::unexpected<Error> fail(ErrorCode code, std::string message) {
  for (char& c : message) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f) c = '?';
  }
  return tl::unexpected<Error>(Error{code, std::move(message)});
}

}  // namespace culet

// CULET_TRY(auto x, call()): x = value of call(), or return its error from this function.
#define CULET_TRY_NAME2(a, b) a##b
#define CULET_TRY_NAME(a, b) CULET_TRY_NAME2(a, b)
#define CULET_TRY(decl, ...)                                      \
  auto CULET_TRY_NAME(culet_try_, __LINE__) = (__VA_ARGS__);      \
  if (!CULET_TRY_NAME(culet_try_, __LINE__))                      \
    return ::tl::unexpected<::culet::Error>(                      \
        std::move(CULET_TRY_NAME(culet_try_, __LINE__)).error()); \
  decl = std::move(*CULET_TRY_NAME(culet_try_, __LINE__))
// CULET_TRY_VOID(call()): the same for calls without a value.
#define CULET_TRY_VOID(...)                                                       \
  do {                                                                            \
    auto culet_try_void = (__VA_ARGS__);                                          \
    if (!culet_try_void)                                                          \
      return ::tl::unexpected<::culet::Error>(std::move(culet_try_void).error()); \
  } while (false)
