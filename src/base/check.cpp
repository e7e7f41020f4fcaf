#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace culet::base {

void check_failed(const char* expression, const char* file, int line) {
  std::fprintf(stderr,
               "culet: broken promise: %s (%s:%d). This is a bug in culet; please report it.\n",
               expression, file, line);
  std::abort();
}

}  // namespace culet::base
