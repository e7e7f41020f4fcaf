// One job at a time, three shared words.
//
//   open    tasks not yet claimed, counting down; a claim is fetch_sub that finds > 0. It is the
//   only
//           word a task costs. Overclaims make it negative, which means "nothing to do"; the next
//           job stores it anew. A late worker that claims from a newer job than it was woken for
//           has simply joined that job: the claim itself publishes the job's fields to it (acquire
//           of the store in run(), through the release sequence of the other claims).
//   pending tasks not yet finished. A worker subtracts its whole share once, when its next claim
//   fails.
//           Zero lets run() return; until then the job's fields do not change.
//   epoch   counts jobs; idle workers watch it, first spinning, then asleep on it.
//
// run() wakes no more sleepers than there are tasks for, and never waits for one to wake: whoever
// is awake does the tasks. If there are more threads than processors, nobody spins.
#include "base/thread_pool.h"

#include "base/check.h"
#include "base/float_mode.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <mutex>
#include <pthread.h>
#include <sched.h>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace culet::base {
namespace {

constexpr auto kSpin = std::chrono::microseconds(60);
constexpr int kMaxThreads = 1024;

void pause_cpu() {
#if defined(__x86_64__) || defined(__i386__)
  _mm_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb" ::: "memory");
#endif
}

// True as soon as ready() is; false when the time is over.
template <class Ready>
bool spin_until(std::chrono::nanoseconds limit, Ready ready) {
  if (ready()) return true;
  if (limit.count() == 0) return false;
  const auto end = std::chrono::steady_clock::now() + limit;
  do {
    for (int i = 0; i < 32; ++i) {
      pause_cpu();
      if (ready()) return true;
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

struct Processors {
  int logical = 1;
  int cores = 1;
};

// What the affinity mask allows. Processors whose siblings the system does not tell count as cores.
Processors usable_processors() {
  constexpr int kMostProcessors = 1 << 16;
  for (int limit = 1024; limit <= kMostProcessors; limit *= 4) {
    cpu_set_t* mask = CPU_ALLOC(limit);
    const size_t bytes = CPU_ALLOC_SIZE(limit);
    const bool known = ::sched_getaffinity(0, bytes, mask) == 0;
    std::set<std::string> cores;
    Processors found{0, 0};
    for (int cpu = 0; known && cpu < limit; ++cpu) {
      if (!CPU_ISSET_S(size_t(cpu), bytes, mask)) continue;
      ++found.logical;
      std::string siblings;
      std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                         "/topology/thread_siblings_list");
      if (!std::getline(file, siblings)) siblings = std::to_string(cpu);
      cores.insert(siblings);
    }
    CPU_FREE(mask);
    found.cores = int(cores.size());
    if (known && found.logical > 0) return found;
  }
  const int n = std::max(1, int(std::thread::hardware_concurrency()));
  return {n, n};
}

}  // namespace

struct ThreadPool::Impl {
  // The job: written by run() before `open`, read only by owners of a claim.
  void (*call)(void*, int64_t, int) = nullptr;
  void* fn = nullptr;
  int64_t tasks = 0;

  alignas(128) std::atomic<int64_t> open{0};
  alignas(128) std::atomic<int64_t> pending{0};
  alignas(128) std::atomic<uint32_t> epoch{0};
  std::atomic<int> sleepers{0};
  std::atomic<bool> stop{false};
  // 1 while run() sleeps until the job is done; whoever finishes it writes 0 and wakes.
  alignas(128) std::atomic<int> caller_waits{0};

  std::mutex one_run;
  std::chrono::nanoseconds spin{0};
  std::vector<std::thread> threads;

  // Claims and runs tasks until none is left; true if that finished the job.
  bool work(int worker) noexcept {
    int64_t finished = 0;
    while (open.load(std::memory_order_relaxed) > 0) {
      const int64_t left = open.fetch_sub(1, std::memory_order_acquire);
      if (left <= 0) break;
      call(fn, tasks - left, worker);
      ++finished;
    }
    return finished > 0 && pending.fetch_sub(finished, std::memory_order_seq_cst) == finished;
  }

  void worker_loop(int worker) noexcept {
    set_float_mode();
    uint32_t seen = 0;
    while (!stop.load(std::memory_order_acquire)) {
      if (work(worker) && caller_waits.load(std::memory_order_seq_cst) != 0) {
        caller_waits.store(0, std::memory_order_seq_cst);
        caller_waits.notify_one();
      }
      wait_for_job(&seen);
    }
  }

  void wait_for_job(uint32_t* seen) {
    const auto changed = [&] { return epoch.load(std::memory_order_acquire) != *seen; };
    if (!spin_until(spin, changed)) {
      sleepers.fetch_add(1, std::memory_order_seq_cst);
      epoch.wait(*seen, std::memory_order_seq_cst);
      sleepers.fetch_sub(1, std::memory_order_relaxed);
    }
    *seen = epoch.load(std::memory_order_acquire);
  }

  void wait_until_done() {
    const auto done = [&] { return pending.load(std::memory_order_acquire) == 0; };
    while (!spin_until(spin, done)) {
      caller_waits.store(1, std::memory_order_seq_cst);
      if (pending.load(std::memory_order_seq_cst) != 0) caller_waits.wait(1);
      caller_waits.store(0, std::memory_order_relaxed);
    }
  }

  // Also ends a pool of which the system gave only some threads.
  ~Impl() {
    stop.store(true, std::memory_order_release);
    epoch.fetch_add(1, std::memory_order_seq_cst);
    epoch.notify_all();
    for (std::thread& thread : threads) thread.join();
  }
};

ThreadPool::ThreadPool(int threads) : impl_(std::make_unique<Impl>()) {
  const Processors processors = usable_processors();
  if (threads <= 0) threads = processors.cores;
  threads = std::min(threads, kMaxThreads);
  if (threads <= processors.logical) impl_->spin = kSpin;
  impl_->threads.reserve(size_t(threads) - 1);
  for (int worker = 1; worker < threads; ++worker) {
    impl_->threads.emplace_back([impl = impl_.get(), worker] { impl->worker_loop(worker); });
  }
}

ThreadPool::~ThreadPool() = default;

int ThreadPool::size() const { return int(impl_->threads.size()) + 1; }

void ThreadPool::run_erased(int64_t tasks, void (*call)(void*, int64_t, int), void* fn) {
  if (tasks <= 0) return;
  Impl& pool = *impl_;
  const std::lock_guard<std::mutex> only(pool.one_run);
  set_float_mode();
  if (tasks == 1 || pool.threads.empty()) {
    for (int64_t task = 0; task < tasks; ++task) call(fn, task, 0);
    return;
  }
  pool.call = call;
  pool.fn = fn;
  pool.tasks = tasks;
  pool.pending.store(tasks, std::memory_order_relaxed);
  pool.open.store(tasks, std::memory_order_release);
  pool.epoch.fetch_add(1, std::memory_order_seq_cst);
  const int64_t wake = std::min<int64_t>(tasks - 1, pool.sleepers.load(std::memory_order_seq_cst));
  if (wake >= int64_t(pool.threads.size())) {
    pool.epoch.notify_all();
  } else {
    for (int64_t i = 0; i < wake; ++i) pool.epoch.notify_one();
  }
  if (!pool.work(0)) pool.wait_until_done();
}

}  // namespace culet::base
