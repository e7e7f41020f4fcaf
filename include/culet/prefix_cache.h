// States of sessions that are kept, so that a prompt that begins like an earlier one is evaluated
// from where the two part.
//
//   auto found = cache->take(prompt);  // its session holds the first found->reused tokens
//   std::vector<culet::Token> rest(prompt.begin() + found->reused, prompt.end());
//   scheduler->submit({.session = found->session.get(), .tokens = rest, ...});
//   cache->keep(*found->session);      // when the prompt is evaluated, and after the answer
//
// Prefixes are compared token by token. The logits are those of a session that evaluated the whole
// prompt, bit for bit. A kept state shares its blocks with the session that it came from, and with
// other kept states.
//
// Threads: one thread at a time.
#pragma once

#include "culet/session.h"

#include <cstdint>
#include <memory>
#include <span>

namespace culet {

struct PrefixCacheOptions {
  // While all sessions of the model together (MemoryAccount::used, kept states included) hold more
  // bytes than this, kept states are dropped, those first that were not used for longest.
  uint64_t max_bytes = 0;
  int64_t max_states = 256;  // at least 1
};

class PrefixCache final {
 public:
  struct Match {
    std::unique_ptr<Session> session;
    int64_t reused = 0;  // tokens that the session holds: the first ones of the prompt
    // Larger than `reused` where a kept state begins with more tokens of the prompt, but its layers
    // cannot go back to them (windows and recurrent states forget). If the session is kept when it
    // has this length, later prompts that part here are evaluated from here. Otherwise 0.
    int64_t branch = 0;
  };
  struct Stats {
    int64_t states = 0;              // kept now
    int64_t takes = 0, hits = 0;     // a hit reused a token at least
    int64_t tokens = 0, reused = 0;  // of the prompts of all takes
    int64_t dropped = 0;             // to stay within the options
  };

  // All sessions have these options. Errors: as Session::make, and kInvalidArgument (max_states).
  static Result<std::unique_ptr<PrefixCache>> make(std::shared_ptr<const Model> model,
                                                   const SessionOptions& session,
                                                   const PrefixCacheOptions& options);
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  // A session that holds as many of the first tokens as any kept state allows, but not the last
  // token, because its logits have to be computed. With nothing to reuse, the session is empty.
  // Errors: kInvalidArgument (no tokens), and those of Session::make; kept states are dropped
  // before memory is an error.
  Result<Match> take(std::span<const Token> tokens);

  // Keeps the state of a session, which goes on as before. A kept state whose tokens another one
  // begins with, and can go back to, is not needed and is replaced by it. Does nothing with an
  // empty session. Error: kInvalidArgument (a session of another model or with other options).
  Result<void> keep(const Session& session);

  // Drops states until all sessions of the model hold at most `bytes`, or no kept state is left.
  // take() and keep() call it with max_bytes; call it when live sessions have grown. False: the
  // live sessions alone hold more.
  bool trim(uint64_t bytes);
  bool trim();  // with max_bytes
  void clear();

  Stats stats() const;

 private:
  struct Impl;
  explicit PrefixCache(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace culet
