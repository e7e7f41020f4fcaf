// Kept states: what is reused, the same bits as without, the bytes, and what is dropped.
#include "culet/culet.h"
#include "support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace culet::test {
namespace {

std::string llama() { return golden("tiny/llama/model-q8_0.gguf"); }
std::string gemma() { return golden("tiny/gemma3/model.gguf"); }  // with windows
std::string lfm() { return golden("tiny/lfm2/model.gguf"); }      // with states

using Tokens = std::vector<Token>;

Tokens joined(std::initializer_list<Tokens> parts) {
  Tokens out;
  for (const Tokens& part : parts) out.insert(out.end(), part.begin(), part.end());
  return out;
}

std::unique_ptr<PrefixCache> cache_of(const std::shared_ptr<const Model>& model,
                                      const PrefixCacheOptions& options = {.max_bytes = 1 << 28}) {
  auto made = PrefixCache::make(model, {.context = 1024}, options);
  EXPECT_TRUE(made) << made.error().message;
  return *std::move(made);
}

PrefixCache::Match take(PrefixCache& cache, std::span<const Token> tokens) {
  auto match = cache.take(tokens);
  EXPECT_TRUE(match) << match.error().message;
  return *std::move(match);
}

// Evaluates a prompt through the cache, and keeps it; the rows are those of a fresh session.
PrefixCache::Match evaluate(PrefixCache& cache, const std::shared_ptr<const Model>& model,
                            const Tokens& prompt) {
  PrefixCache::Match match = take(cache, prompt);
  EXPECT_EQ(match.session->length(), match.reused);
  EXPECT_LT(match.reused, static_cast<int64_t>(prompt.size()));
  EXPECT_TRUE(
      std::equal(match.session->tokens().begin(), match.session->tokens().end(), prompt.begin()));
  const auto rest = std::span(prompt).subspan(static_cast<size_t>(match.reused));
  const Rows rows = append_rows(*match.session, rest);
  const auto fresh = session(model);
  const Rows all = append_rows(*fresh, prompt);
  EXPECT_EQ(
      first_difference(rows, Rows(all.end() - static_cast<ptrdiff_t>(rest.size()), all.end())), "");
  expect_ok(cache.keep(*match.session));
  return match;
}

TEST(PrefixCache, ALongerPromptIsEvaluatedFromTheOldOne) {
  for (const std::string& path : {llama(), gemma(), lfm()}) {
    const auto model = load(path);
    const auto cache = cache_of(model);
    const Tokens first = tokens_of(90, 1), more = joined({first, tokens_of(20, 2)});
    EXPECT_EQ(evaluate(*cache, model, first).reused, 0);
    EXPECT_EQ(evaluate(*cache, model, more).reused, 90) << path;
    const PrefixCache::Stats stats = cache->stats();
    EXPECT_EQ(stats.takes, 2);
    EXPECT_EQ(stats.hits, 1);
    EXPECT_EQ(stats.tokens, 90 + 110);
    EXPECT_EQ(stats.reused, 90);
    EXPECT_EQ(stats.dropped, 0);
  }
}

// The last token's logits are not kept, so it is evaluated again. A recurrent state goes back one
// pass at most, so it starts anew.
TEST(PrefixCache, TheSamePromptAgainTakesOneToken) {
  for (const std::string& path : {llama(), gemma()}) {
    const auto model = load(path);
    const auto cache = cache_of(model);
    const Tokens prompt = tokens_of(300, 1);
    evaluate(*cache, model, prompt);
    EXPECT_EQ(evaluate(*cache, model, prompt).reused, 299) << path;
    EXPECT_EQ(cache->stats().states, 1);
  }
}

// Chats that share a system prompt: windows have moved past its end when the second one comes, and
// from the third one on it is reused, if the second is kept where they part.
TEST(PrefixCache, TheBranchIsWherePromptsPart) {
  for (const std::string& path : {llama(), gemma(), lfm()}) {
    const auto model = load(path);
    const auto cache = cache_of(model);
    const Tokens system = tokens_of(200, 1);
    evaluate(*cache, model, joined({system, tokens_of(400, 2)}));
    const Tokens second = joined({system, tokens_of(300, 3)}), third = joined({system, {7, 8, 9}});
    PrefixCache::Match match = take(*cache, second);
    if (path == llama()) {
      EXPECT_EQ(match.reused, 200);
      EXPECT_EQ(match.branch, 0);
      continue;
    }
    EXPECT_EQ(match.reused, 0) << path;
    EXPECT_EQ(match.branch, 200) << path;
    expect_ok(match.session->append(system));
    expect_ok(cache->keep(*match.session));
    EXPECT_EQ(evaluate(*cache, model, second).reused, 200) << path;
    EXPECT_EQ(evaluate(*cache, model, third).reused, 200) << path;
    EXPECT_EQ(cache->stats().states, 3);  // the third can go back to the branch
  }
}

// What a longer state can go back to is not kept twice.
TEST(PrefixCache, AStateThatAnotherHoldsIsReplaced) {
  const auto model = load(llama());
  const auto cache = cache_of(model);
  const Tokens prompt = tokens_of(100, 1);
  PrefixCache::Match match = take(*cache, prompt);
  const auto early = match.session->fork();
  expect_ok(early->append(std::span(prompt).first(40)));
  expect_ok(cache->keep(*early));
  expect_ok(match.session->append(prompt));
  expect_ok(cache->keep(*match.session));
  EXPECT_EQ(cache->stats().states, 1);
  expect_ok(cache->keep(*early));
  EXPECT_EQ(cache->stats().states, 1);
  EXPECT_EQ(take(*cache, std::span(prompt).first(41)).reused, 40);
  EXPECT_EQ(cache->stats().dropped, 0);
}

TEST(PrefixCache, DropsWhatWasNotUsedForLongest) {
  const auto model = load(gemma());
  const auto cache = cache_of(model, {.max_bytes = 1 << 28, .max_states = 2});
  const Tokens a = tokens_of(50, 1), b = tokens_of(50, 2), c = tokens_of(50, 3);
  evaluate(*cache, model, a);
  evaluate(*cache, model, b);
  EXPECT_EQ(take(*cache, a).reused, 49);
  evaluate(*cache, model, c);
  EXPECT_EQ(cache->stats().states, 2);
  EXPECT_EQ(cache->stats().dropped, 1);
  EXPECT_EQ(take(*cache, b).reused, 0);
  EXPECT_EQ(take(*cache, a).reused, 49);
  EXPECT_EQ(take(*cache, c).reused, 49);
}

TEST(PrefixCache, StaysWithinItsBytes) {
  const auto model = load(llama());
  uint64_t one_prompt = 0;
  {
    const auto one = test::session(model);
    expect_ok(one->append(tokens_of(320, 1)));
    one_prompt = model->memory().used;
  }
  ASSERT_EQ(model->memory().used, 0u);
  const uint64_t limit = 3 * one_prompt + one_prompt / 2;
  const auto cache = cache_of(model, {.max_bytes = limit});
  for (unsigned seed = 1; seed <= 8; ++seed) {
    const Tokens prompt = tokens_of(320, seed);
    {
      PrefixCache::Match match = take(*cache, prompt);
      expect_ok(match.session->append(prompt));
      expect_ok(cache->keep(*match.session));
    }
    EXPECT_LE(model->memory().used, limit);
  }
  EXPECT_EQ(cache->stats().states, 3);
  EXPECT_EQ(cache->stats().dropped, 5);
  EXPECT_EQ(take(*cache, tokens_of(320, 8)).reused, 319);
  EXPECT_EQ(take(*cache, tokens_of(320, 5)).reused, 0);
  EXPECT_TRUE(cache->trim(one_prompt));
  EXPECT_EQ(cache->stats().states, 1);
  cache->clear();
  EXPECT_EQ(model->memory().used, 0u);
}

// Dropping one of two states that share blocks may free nothing; the other one then does.
TEST(PrefixCache, TrimsStatesThatShareTheirBlocks) {
  const auto model = load(lfm());
  const auto cache = cache_of(model);
  {
    PrefixCache::Match match = take(*cache, tokens_of(65, 1));
    expect_ok(match.session->append(tokens_of(64, 1)));
    expect_ok(cache->keep(*match.session));
    expect_ok(match.session->append(tokens_of(64, 2)));
    expect_ok(match.session->append(tokens_of(64, 3)));
    expect_ok(cache->keep(*match.session));
    EXPECT_EQ(cache->stats().states, 2);
    EXPECT_FALSE(cache->trim(1));  // the live session holds more
    EXPECT_EQ(cache->stats().states, 0);
  }
  EXPECT_EQ(model->memory().used, 0u);
}

TEST(PrefixCache, RefusesWhatItCannotUse) {
  const auto model = load(llama()), other = load(gemma());
  const auto cache = cache_of(model);
  const auto none = cache->take({});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kInvalidArgument);
  const auto of_other = test::session(other), eight = test::session(model, KvType::kQ8);
  for (const Session* session : {of_other.get(), eight.get()}) {
    const auto kept = cache->keep(*session);
    ASSERT_FALSE(kept);
    EXPECT_EQ(kept.error().code, ErrorCode::kInvalidArgument);
  }
  const auto no_room = PrefixCache::make(model, {}, {.max_states = 0});
  ASSERT_FALSE(no_room);
  EXPECT_NE(no_room.error().message.find("max_states"), std::string::npos);
}

// Random conversations that branch, go on, are edited and repeated, with little room: every row is
// that of a fresh session.
TEST(PrefixCache, RandomConversationsHaveTheRowsOfFreshSessions) {
  for (const std::string& path : {llama(), gemma(), lfm()}) {
    const auto model = load(path);
    const auto cache = cache_of(model, {.max_bytes = 3'000'000, .max_states = 6});
    std::mt19937 random(7);
    std::vector<Tokens> chats(4);
    const int rounds = small_tests() ? 12 : 60;
    for (int round = 0; round < rounds; ++round) {
      Tokens& chat = chats[random() % chats.size()];
      if (chat.size() > 350 || random() % 5 == 0) chat.resize(random() % (chat.size() + 1));
      if (random() % 6 == 0) chat = chats[random() % chats.size()];
      const Tokens more = tokens_of(1 + random() % 80, random() % 3);
      chat.insert(chat.end(), more.begin(), more.end());
      evaluate(*cache, model, chat);
    }
    EXPECT_GT(cache->stats().hits, rounds / 4) << path;
    EXPECT_LE(cache->stats().states, 6);
  }
}

// A stream that has forgotten its first tokens is known by their digest.
TEST(PrefixCache, StreamsAreKeptToo) {
  const auto model = load(llama());
  auto made = PrefixCache::make(model, {.stream = StreamOptions{.sinks = 4, .window = 60}},
                                {.max_bytes = 1 << 28});
  ASSERT_TRUE(made) << made.error().message;
  PrefixCache& cache = **made;
  const Tokens prompt = tokens_of(9000, 1), more = joined({prompt, tokens_of(50, 2)});
  PrefixCache::Match match = take(cache, prompt);
  expect_ok(match.session->append(prompt));
  ASSERT_LT(match.session->tokens().size(), prompt.size());
  expect_ok(cache.keep(*match.session));
  EXPECT_EQ(take(cache, more).reused, 9000);
  EXPECT_EQ(take(cache, tokens_of(9050, 3)).reused, 0);
}

}  // namespace
}  // namespace culet::test
