#include "cli/interrupt.h"

#include <cerrno>
#include <ctime>

namespace culet::cli {
namespace {

constexpr int kSameTenths = 10;  // a closed terminal and timeout(1) send twice at once

// A signal handler has no other way to speak.
volatile sig_atomic_t g_signal = 0, g_noted_tenths = 0;

sig_atomic_t tenths_of_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<sig_atomic_t>(now.tv_sec * 10 + now.tv_nsec / 100'000'000);
}

void note_signal(int number) {
  const int before = errno;
  const sig_atomic_t now = tenths_of_seconds();
  if (g_signal == 0) {
    g_signal = number;
    g_noted_tenths = now;
  } else if (now - g_noted_tenths >= kSameTenths) {
    ::signal(number, SIG_DFL);
    ::raise(number);  // delivered when this handler returns
  }
  errno = before;
}

}  // namespace

InterruptWatch::InterruptWatch() {
  g_signal = 0;
  struct sigaction action{};
  action.sa_handler = note_signal;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    ::sigaction(kSignals[i], nullptr, &before_[i]);
    if (before_[i].sa_handler != SIG_IGN) ::sigaction(kSignals[i], &action, nullptr);
  }
}

InterruptWatch::~InterruptWatch() {
  for (size_t i = 0; i < std::size(kSignals); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
}

bool InterruptWatch::interrupted() const { return g_signal != 0; }

int interrupting_signal() { return g_signal; }

}  // namespace culet::cli
