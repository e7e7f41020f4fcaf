#include "base/os_error.h"

#include <fmt/format.h>

#include <cerrno>
#include <system_error>

namespace culet::base {

Error os_error(const char* verb, const std::string& path, int error_number) {
  ErrorCode code = ErrorCode::kIo;
  const char* advice = "";
  if (error_number == ENOENT || error_number == ENOTDIR) {
    code = ErrorCode::kNotFound;
    advice = "; check the path";
  } else if (error_number == ENOMEM) {
    code = ErrorCode::kExhausted;
  } else if (error_number == EACCES || error_number == EPERM) {
    advice = "; check its permissions";
  } else if (error_number == EISDIR) {
    advice = "; name a file in it";
  }
  return {code, fmt::format("cannot {} '{}': {}{}", verb, path,
                            std::generic_category().message(error_number), advice)};
}

}  // namespace culet::base
