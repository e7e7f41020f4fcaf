// What a decoding scheduler takes from the heap, counted: nothing, once it is warm.
#include "culet/culet.h"
#include "support.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

static std::atomic<int64_t> allocations{0};

// Blocks of caches come from the aligned, silent operator; everything else from the plain one.
void* operator new(size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(bytes);
}
void* operator new(size_t bytes, std::align_val_t align, const std::nothrow_t&) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  const auto a = static_cast<size_t>(align);
  return std::aligned_alloc(a, (bytes + a - 1) / a * a);
}
void* operator new(size_t bytes, std::align_val_t align) {
  if (void* memory = ::operator new(bytes, align, std::nothrow)) return memory;
  throw std::bad_alloc();
}
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"  // g++ with sanitizers: they do match
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
#pragma GCC diagnostic pop

namespace culet::test {
namespace {

TEST(Allocation, Counts) {
  const int64_t before = allocations;
  std::vector<int> some(100);
  EXPECT_GT(some.size(), 0u);
  EXPECT_EQ(allocations, before + 1);
}

// Windows turn over, and blocks and states change places. The only thing that still grows is a
// session's list of tokens, which doubles: at 1,280 to 1,408 tokens here, and next at 2,560.
TEST(Allocation, ADecodingSchedulerTakesNothing) {
  for (const char* name :
       {"tiny/llama/model-q8_0.gguf", "tiny/gemma3/model-q8_0.gguf", "tiny/lfm2/model.gguf"}) {
    const auto model = load(golden(name), {.threads = 2});
    auto made = Scheduler::make(model, {});
    ASSERT_TRUE(made);
    Scheduler& scheduler = **made;
    std::vector<std::unique_ptr<Session>> sessions;
    for (int i = 0; i < 3; ++i) {
      auto session = Session::make(model, {.stream = StreamOptions{4, 60}});
      ASSERT_TRUE(session);
      sessions.push_back(*std::move(session));
      GenerateOptions options;
      options.max_tokens = 3000;
      options.mask = [&model](std::span<const Token>, TokenMask* mask) -> Result<void> {
        for (const Token end : model->vocabulary().end_of_generation()) mask->forbid(end);
        return {};
      };
      options.sampling.temperature = 0;
      ASSERT_TRUE(scheduler.submit({.session = sessions.back().get(),
                                    .tokens = std::vector<Token>(static_cast<size_t>(20 + i), 9),
                                    .generate = options,
                                    .on_event = [](const Event&) { return true; }}));
    }
    for (int step = 0; step < 1450; ++step) scheduler.step();
    const int64_t before = allocations;
    for (int step = 0; step < 1000; ++step) ASSERT_EQ(scheduler.step().decode_tokens, 3);
    EXPECT_EQ(allocations - before, 0) << name;
  }
}

}  // namespace
}  // namespace culet::test
