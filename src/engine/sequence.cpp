// Takes a request, moves it on between forward passes: append, draw, report, append.
//
// The text of a token goes out when the token is drawn, so nobody waits for a pass whose result is
// the token after it; Appended follows when it is in the session. Every token that was reported is
// appended, also the last: the session then holds what the caller has seen. The tokens of a stop
// text are in the session like any others; only their text is not shown.
#include "engine/sequence.h"

#include "culet/vocabulary.h"
#include "engine/session_impl.h"

#include <fmt/format.h>

#include <string>
#include <utility>

namespace culet::engine {

class Answer final {
 public:
  Answer(const Model& model, const GenerateOptions& options, Sampler sampler, TextStream text)
      : options_(options),
        vocabulary_(model.vocabulary()),
        sampler_(std::move(sampler)),
        logprobs_(model.impl().loaded().kernels),
        text_(std::move(text)) {
    if (options.mask) mask_.emplace(vocabulary_.size());
    if (options.max_tokens > 0)
      tokens_.reserve(static_cast<size_t>(std::min<int64_t>(options.max_tokens, 4096)));
  }

  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  const TextStream& text() const { return text_; }
  std::string_view flush() { return text_.flush(); }

  std::optional<FinishReason> must_end(const SessionImpl& session) const {
    if (text_.stop() >= 0) return FinishReason::kStop;
    if (options_.max_tokens >= 0 && size() >= options_.max_tokens) return FinishReason::kLength;
    if (session.length() >= session.context()) return FinishReason::kContext;
    return std::nullopt;
  }

  // Nothing: an end-of-generation token.
  Result<std::optional<Token>> draw(const SessionImpl& session) {
    if (mask_) {
      mask_->allow_all();
      CULET_TRY_VOID(options_.mask(tokens_, &*mask_));
    }
    CULET_TRY(const Token token,
              sampler_.pick(session.logits(), session.tokens(), mask_ ? &*mask_ : nullptr));
    if (vocabulary_.is_end_of_generation(token)) return std::optional<Token>();
    return std::optional<Token>(token);
  }

  // The event of a token that was drawn; valid until the next one.
  Result<TextDelta> push(Token token, const SessionImpl& session) {
    tokens_.push_back(token);
    TextDelta delta{text_.push(token), token};
    if (options_.logprobs < 0) return delta;
    CULET_TRY_VOID(logprobs_.start(session.logits()));
    delta.logprob = static_cast<float>(logprobs_.logprob(token));
    logprobs_.top(static_cast<size_t>(options_.logprobs), &best_);
    top_.clear();
    for (const sample::LogProb& candidate : best_)
      top_.push_back({candidate.id, static_cast<float>(candidate.logprob)});
    delta.top = top_;
    return delta;
  }

 private:
  const GenerateOptions& options_;
  const Vocabulary& vocabulary_;
  Sampler sampler_;
  std::optional<TokenMask> mask_;
  sample::LogProbs logprobs_;
  std::vector<sample::LogProb> best_;
  std::vector<TokenLogprob> top_;
  TextStream text_;
  std::vector<Token> tokens_;
};

namespace {

double seconds(std::chrono::steady_clock::duration d) {
  return std::chrono::duration<double>(d).count();
}

// Room for the prompt, and something to draw from.
Result<void> check_room(const SessionImpl& session, int64_t more) {
  const int64_t there = session.length();
  if (more > session.context() - there) {
    return fail(
        ErrorCode::kExhausted,
        fmt::format("the prompt needs {} tokens of context, but the session holds {}; use a "
                    "larger context or a shorter prompt",
                    there + more, session.context()));
  }
  if (more == 0 && session.logits().empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "the prompt has no tokens, so there is nothing to continue; give some text");
  }
  return {};
}

}  // namespace

Sequence::Sequence(SequenceId id, SequenceRequest request)
    : id_(id), request_(std::move(request)), submitted_(Clock::now()) {
  append_.session = &request_.session->impl();
  append_.logits = request_.logits || request_.generate.has_value();
  if (request_.on_logits) append_.on_logits = &request_.on_logits;
  if (request_.on_hidden) append_.on_hidden = &request_.on_hidden;
  append_.start(request_.tokens);
  cost_.prompt_tokens = append_.size();
}

Sequence::~Sequence() = default;

Result<std::unique_ptr<Sequence>> Sequence::make(SequenceId id, SequenceRequest request) {
  std::unique_ptr<Sequence> sequence(new Sequence(id, std::move(request)));
  const SequenceRequest& asked = sequence->request_;
  const SessionImpl& session = asked.session->impl();
  if (asked.generate) {
    const Model& model = *session.model();
    CULET_TRY_VOID(check_room(session, sequence->append_.size()));
    CULET_TRY(Sampler sampler, Sampler::make(model.vocabulary(), asked.generate->sampling));
    CULET_TRY(TextStream text,
              TextStream::make(model.vocabulary(), {.stops = asked.generate->stop}));
    sequence->answer_ =
        std::make_unique<Answer>(model, *asked.generate, std::move(sampler), std::move(text));
  }
  CULET_TRY_VOID(check_append(session, asked.tokens, asked.on_hidden != nullptr));
  return sequence;
}

void Sequence::start() {
  started_ = true;
  began_ = Clock::now();
  if (!emit(Started{cost_.prompt_tokens})) return stop();
  if (append_.size() == 0) appended();
}

void Sequence::passed(double share) {
  ++cost_.forward_passes;
  cost_.compute_seconds += share;
  if (!append_.result) return end_with(append_.result.error());
  if (!in_answer_) {
    if (!emit(PromptProgress{append_.done, append_.size()}) || cancelled()) return stop();
  }
  if (append_.finished()) {
    append_.finish();
    appended();
  }
}

void Sequence::appended() {
  if (in_answer_)
    ++cost_.generated_tokens;
  else
    prompted_ = Clock::now();
  if (append_.size() > 0 && !emit(Appended{append_.session->length()})) return stop();
  append_.start({});
  if (cancelled()) return stop();
  if (!answer_) return end(FinishReason::kStop);
  in_answer_ = true;
  append_.on_logits = append_.on_hidden = nullptr;
  next_token();
}

void Sequence::next_token() {
  if (const auto reason = answer_->must_end(*append_.session)) return end(*reason);
  const auto token = answer_->draw(*append_.session);
  if (!token) return end_with(token.error());
  if (!*token) return end(FinishReason::kStop);
  token_ = **token;
  const auto delta = answer_->push(token_, *append_.session);
  if (!delta) return end_with(delta.error());
  // What the caller has seen is appended, also when it wants no more.
  if (!emit(*delta)) cancel();
  append_.start({&token_, 1});
}

void Sequence::abandon() {
  if (append_.done > 0 || append_.size() > 0) append_.undo();
  append_.start({});
}

void Sequence::stop() {
  if (ended()) return;
  abandon();
  end(FinishReason::kCancelled);
}

// Shows what was held back; the bytes of an unfinished character may still complete a stop text.
void Sequence::end(FinishReason reason) {
  std::string stop;
  if (answer_) {
    const std::string_view rest = answer_->flush();
    if (!rest.empty()) emit(TextDelta{rest, -1});
    if (reason != FinishReason::kCancelled && answer_->text().stop() >= 0) {
      reason = FinishReason::kStop;
      stop = request_.generate->stop[static_cast<size_t>(answer_->text().stop())];
    }
  }
  close_cost();
  last_.emplace(Finished{reason, cost_, std::move(stop)});
}

void Sequence::end_with(const Error& error) {
  append_.start({});
  close_cost();
  last_.emplace(Failed{error, cost_});
}

void Sequence::close_cost() {
  const auto now = Clock::now();
  if (!started_) began_ = now;
  const bool answered = in_answer_;
  cost_.queued_seconds = seconds(began_ - submitted_);
  cost_.prompt_seconds = seconds((answered ? prompted_ : now) - began_);
  cost_.generate_seconds = answered ? seconds(now - prompted_) : 0;
}

void Sequence::leave() { emit(*last_); }

}  // namespace culet::engine
