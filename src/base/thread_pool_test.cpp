#include "base/thread_pool.h"

#include "base/float_mode.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cfenv>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <sys/resource.h>
#include <system_error>
#include <thread>
#include <vector>

namespace culet::base {
namespace {

TEST(ThreadPool, EveryTaskOnce) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.size(), threads);
    for (int64_t tasks : {0, 1, 2, 7, 1000}) {
      std::vector<int> hits(size_t(tasks), 0);  // plain: each task owns its element
      pool.run(tasks, [&](int64_t task, int worker) {
        ASSERT_TRUE(worker >= 0 && worker < threads);
        ++hits[size_t(task)];
      });
      for (int h : hits) ASSERT_EQ(h, 1);
    }
  }
}

TEST(ThreadPool, ManyJobsSeeEachOthersWrites) {
  ThreadPool pool(4);
  std::vector<int64_t> value(5, 0);
  for (int round = 0; round < 20000; ++round) {
    pool.run(5, [&](int64_t task, int) { value[size_t(task)] += round; });
    if (round % 4999 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // all asleep
  }
  for (int64_t v : value) EXPECT_EQ(v, int64_t{20000} * 19999 / 2);
}

TEST(ThreadPool, WorkersOwnTheirScratch) {
  ThreadPool pool(3);
  std::vector<std::atomic<int>> inside(3);
  std::vector<std::thread> callers;
  std::atomic<int64_t> done{0};
  for (int c = 0; c < 3; ++c) {
    callers.emplace_back([&] {
      for (int round = 0; round < 300; ++round) {
        pool.run(1 + round % 6, [&](int64_t, int worker) {
          EXPECT_EQ(inside[size_t(worker)].fetch_add(1), 0);
          inside[size_t(worker)].fetch_sub(1);
          ++done;
        });
      }
    });
  }
  for (std::thread& t : callers) t.join();
  EXPECT_EQ(done.load(), 3 * 50 * (1 + 2 + 3 + 4 + 5 + 6));
}

TEST(ThreadPool, TasksStartInAscendingOrder) {
  ThreadPool pool(1);
  int64_t next = 0;
  pool.run(100, [&](int64_t task, int) { EXPECT_EQ(task, next++); });
  EXPECT_EQ(next, 100);
}

TEST(ThreadPool, StartsAndStops) {
  for (int i = 0; i < 50; ++i) {
    ThreadPool pool(1 + i % 5);
    if (i % 2 == 0) pool.run(3, [](int64_t, int) {});
  }
  EXPECT_GE(ThreadPool().size(), 1);
}

TEST(ThreadPool, FloatModeOnEveryThread) {
  ThreadPool pool(3);
  std::fesetround(FE_UPWARD);
  std::vector<int> mode(64, -1);
  std::vector<float> tiny(64, 0);
  pool.run(64, [&](int64_t task, int) {
    volatile float smallest = std::numeric_limits<float>::min();
    tiny[size_t(task)] = smallest * 0.5f;
    mode[size_t(task)] = std::fegetround();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  });
  volatile float one = 1, eps = 1e-10f;
  EXPECT_EQ(one + eps, 1.0f);  // the caller's mode was set as well
  std::fesetround(FE_TONEAREST);
  for (float t : tiny) EXPECT_GT(t, 0.0f);
}

TEST(ThreadPool, TwoTasksAreCheap) {
  ThreadPool pool(2);
  std::atomic<int64_t> sum{0};
  double best = 1e9;
  for (int batch = 0; batch < 50; ++batch) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 1000; ++i) pool.run(2, [&](int64_t task, int) { sum += task; });
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    best = std::min(best, took.count() / 1000);
  }
  EXPECT_EQ(sum.load(), 50000);
  RecordProperty("microseconds_per_run", std::to_string(best));
  std::printf("  two tasks: %.2f us a run (best of 50)\n", best);
  EXPECT_LT(best, 200.0);  // a gross fault only: the machine may be busy
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they need address space
void ask_for_more_threads_than_fit() {
  const rlimit limit{rlim_t{256} << 20, rlim_t{256} << 20};  // some thirty stacks
  ::setrlimit(RLIMIT_AS, &limit);
  try {
    const ThreadPool pool(1024);
  } catch (const std::system_error&) {
    std::_Exit(7);
  }
  std::_Exit(1);
}

TEST(ThreadPoolDeathTest, TooFewThreadsAreAnErrorNotACrash) {
  EXPECT_EXIT(ask_for_more_threads_than_fit(), testing::ExitedWithCode(7), "");
}
#endif

}  // namespace
}  // namespace culet::base
