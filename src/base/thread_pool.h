// A fork-join pool: run() hands tasks 0..n-1 to the workers and returns when all are done.
//
// Workers wait with a bounded spin, then sleep on a futex, so an idle pool costs nothing and a
// decode step does not pay for a wake-up between two operations. Tasks are claimed in ascending
// order; which worker runs which task is not fixed, so a task must own its outputs wholly: results
// never depend on the number of threads. One run() at a time: a second caller waits.
// The floating-point control word (nearest-even, no flush to zero) is set on every thread.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace culet::base {

class ThreadPool {
 public:
  // threads >= 1 counts the calling thread; 0 = number of physical cores this process may use.
  // Throws std::system_error when the system gives fewer threads; those it gave have ended then.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;

  // fn(int64_t task, int worker), worker in [0, size()). Must not throw and not call run().
  template <class F>
  void run(int64_t tasks, F&& fn) {
    using Fn = std::remove_reference_t<F>;
    run_erased(
        tasks, [](void* f, int64_t task, int worker) { (*static_cast<Fn*>(f))(task, worker); },
        const_cast<void*>(static_cast<const void*>(&fn)));
  }

 private:
  void run_erased(int64_t tasks, void (*call)(void*, int64_t, int), void* fn);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace culet::base
