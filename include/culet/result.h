// Result<T>: a value of type T, or an Error. Every call that can fail returns one:
//
//   auto model = culet::Model::load(path, {});
//   if (!model) { std::cerr << model.error().message; return 1; }
//   (*model)->info();
//
// The message of an Error is one sentence for the user: what is wrong, where, and what to do next.
// culet does not throw. A mistake inside culet itself, or a null pointer from the caller, aborts.
#pragma once

#include <tl/expected.hpp>

#include <cstdint>
#include <string>
#include <utility>

namespace culet {

enum class ErrorCode : uint8_t {
  kInvalidArgument,  // an argument or option is wrong
  kNotFound,         // a file, model, key or tensor does not exist
  kUnsupported,      // understood, but this version cannot do it
  kCorrupt,          // bytes that break the rules of their format
  kExhausted,        // memory, context or another limit is used up
  kIo,               // the operating system reported an error
  kCancelled,        // stopped on request
  kNumeric,          // NaN or infinity where a number must be finite
};

struct Error {
  ErrorCode code;
  std::string message;
};

template <class T>
using Result = tl::expected<T, Error>;

// Makes an Error. Messages quote names from untrusted files. Control characters could command the
// reader's terminal, so they are shown as '?'.
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
