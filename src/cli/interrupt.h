// Ctrl-C as a question instead of an end.
#pragma once

#include <signal.h>

namespace culet::cli {

// While one lives, the first SIGINT is only noted; a second ends the program as usual.
// At most one at a time.
class InterruptWatch {
 public:
  InterruptWatch();
  ~InterruptWatch();
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;
  bool interrupted() const;

 private:
  struct sigaction before_{};
};

}  // namespace culet::cli
