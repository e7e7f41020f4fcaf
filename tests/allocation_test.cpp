// What a decoding scheduler takes from the heap, counted: nothing, once it is warm.
#include "base/allocation_counter.h"
#include "culet/culet.h"
#include "support.h"

#include <gtest/gtest.h>

#include <vector>

namespace culet::test {
namespace {

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
    const int64_t before = base::allocation_count();
    for (int step = 0; step < 1000; ++step) ASSERT_EQ(scheduler.step().decode_tokens, 3);
    EXPECT_EQ(base::allocation_count() - before, 0) << name;
  }
}

}  // namespace
}  // namespace culet::test
