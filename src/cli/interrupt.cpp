#include "cli/interrupt.h"

namespace culet::cli {
namespace {

// A signal handler has no other way to speak.
volatile sig_atomic_t g_signal = 0;

void note_signal(int number) { g_signal = number; }

}  // namespace

InterruptWatch::InterruptWatch() {
  g_signal = 0;
  struct sigaction action{};
  action.sa_handler = note_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
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
