// Ctrl-C, SIGTERM and SIGHUP as a question instead of an end.
#pragma once

#include <iterator>
#include <signal.h>

namespace culet::cli {

// While one lives, the first of these signals is only noted; one that comes a second later or more
// ends the program as usual. What is ignored stays so (nohup). At most one at a time.
class InterruptWatch {
 public:
  InterruptWatch();
  ~InterruptWatch();
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;
  bool interrupted() const;

 private:
  static constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
  struct sigaction before_[std::size(kSignals)]{};
};

// The first signal that the last watch noted; 0: none.
int interrupting_signal();

}  // namespace culet::cli
