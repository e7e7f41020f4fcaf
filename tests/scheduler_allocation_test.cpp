// That sequences which generate allocate nothing for a token once they are under way. The program's
// own operator new counts.
#include "culet/culet.h"
#include "support.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

static std::atomic<int64_t> allocations{0};

static void* counted(size_t bytes, size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return alignment > alignof(std::max_align_t)
             ? std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment)
             : std::malloc(bytes);
}

void* operator new(size_t bytes) {
  if (void* memory = counted(bytes, 0)) return memory;
  throw std::bad_alloc();
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return counted(bytes, 0); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  if (void* memory = counted(bytes, static_cast<size_t>(alignment))) return memory;
  throw std::bad_alloc();
}
void* operator new(size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return counted(bytes, static_cast<size_t>(alignment));
}
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"  // g++ with sanitizers: they do match
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
#pragma GCC diagnostic pop

namespace culet::test {
namespace {

TEST(Allocations, AreCounted) {
  const int64_t before = allocations;
  std::vector<int> some(100);
  EXPECT_GT(some.size(), 0u);
  EXPECT_GT(allocations, before);
}

// Three sequences, one with a mask, one with a window, one with a state, answer once; a second
// answer of the same length then finds all memory there.
class Decoding : public testing::TestWithParam<const char*> {};

TEST_P(Decoding, AllocatesNothingAfterWarmUp) {
  const auto model = load(golden(std::string("tiny/") + GetParam() + "/model.gguf"));
  const auto scheduler = *Scheduler::make(model, {});
  std::vector<std::unique_ptr<Session>> sessions;
  const std::vector<Token> prompt{5, 6, 7, 8, 9};
  constexpr int64_t kAnswer = 150;  // several cache blocks
  std::vector<int64_t> lengths;
  for (int round = 0; round < 2; ++round) {
    sessions.resize(3);
    for (int i = 0; i < 3; ++i) {
      auto& session = sessions[static_cast<size_t>(i)];
      if (round == 0) session = test::session(model);
      session->clear();
      GenerateOptions options;
      options.max_tokens = kAnswer;
      options.sampling.seed = static_cast<uint64_t>(i);
      options.sampling.repeat_penalty = 1.1f;
      options.mask = [](std::span<const Token>, TokenMask* mask) -> Result<void> {
        mask->forbid(1), mask->forbid(2), mask->forbid(0);  // no end
        return {};
      };
      ASSERT_TRUE(scheduler->submit({.session = session.get(), .tokens = prompt,
                                     .generate = options}));
    }
    // The first passes read prompts and make what a sequence needs.
    for (int step = 0; step < 10; ++step) scheduler->step();
    const int64_t before = allocations;
    int64_t steps = 0;
    while (scheduler->step().sequences > 2) ++steps;
    if (round == 1) {
      // Text of a few tokens is longer than a short string: only those may allocate.
      EXPECT_EQ(allocations - before, 0) << "in " << steps << " steps of 3 tokens";
    }
    while (scheduler->step().sequences > 0) {
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Decoding, testing::Values("llama", "gemma3", "lfm2"), test_name);

}  // namespace
}  // namespace culet::test
