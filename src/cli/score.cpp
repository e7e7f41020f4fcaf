// culet score: teacher-forced scoring, one JSON line a token.
//
// Row i of the logits predicts token i + 1, so the line of a token is printed when the row before
// it is known: in the same append, or in the session's logits. The row of the last token becomes
// "next" of the closing line. Without --stream the text is one append; with it, the text is read
// and appended a piece at a time, each as long as whole lines that are there.
#include "cli/commands.h"
#include "cli/events.h"
#include "cli/input.h"
#include "cli/interrupt.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <optional>

namespace culet::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kAppend = 256;  // tokens that are appended together, at most

class Scorer {
 public:
  Scorer(Session& session, int top, Output& out)
      : session_(session), model_(session.model()), top_(top), out_(out) {}

  Result<void> append(std::span<const Token> ids);
  Result<void> finish();
  int64_t tokens() const { return tokens_; }

 private:
  Json top_of(const Distribution& distribution) const;
  Result<void> predicted(int64_t position, Token id, std::span<const float> logits);
  void print(const Json& value) {
    out_.write(value.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  }
  Json token_line(int64_t position, Token id) const {
    return {{"pos", position}, {"id", id}, {"text", model_.vocabulary().piece(id)}};
  }

  Session& session_;
  const Model& model_;
  int top_;
  Output& out_;
  double sum_ = 0;
  int64_t tokens_ = 0, predicted_ = 0;
};

Json Scorer::top_of(const Distribution& distribution) const {
  Json list = Json::array();
  for (const TokenLogprob& candidate : distribution.top) {
    list.push_back({{"id", candidate.id},
                    {"text", model_.vocabulary().piece(candidate.id)},
                    {"logprob", shortest(candidate.logprob)}});
  }
  return list;
}

Result<void> Scorer::predicted(int64_t position, Token id, std::span<const float> logits) {
  CULET_TRY(const Distribution distribution, distribution(model_, logits, top_));
  CULET_TRY(const double logprob, culet::logprob(model_, logits, id));
  sum_ -= logprob;
  ++predicted_;
  Json line = token_line(position, id);
  line.update(
      {{"nll", -logprob}, {"entropy", distribution.entropy}, {"top", top_of(distribution)}});
  print(line);
  return {};
}

Result<void> Scorer::append(std::span<const Token> ids) {
  if (ids.empty()) return {};
  const int64_t first = session_.length();
  const std::vector<float> before(session_.logits().begin(), session_.logits().end());
  const auto begin = [&]() -> Result<void> {  // only once the ids are known to be good
    if (!before.empty()) return predicted(first, ids[0], before);
    Json line = token_line(first, ids[0]);  // nothing predicted it
    line.update({{"nll", nullptr}, {"entropy", nullptr}, {"top", nullptr}});
    print(line);
    return {};
  };
  Result<void> result;
  const auto row = [&](int64_t position, std::span<const float> logits) {
    if (result && position == first) result = begin();
    const auto next = static_cast<size_t>(position - first) + 1;
    if (result && next < ids.size()) result = predicted(position + 1, ids[next], logits);
  };
  const auto go_on = [&](const Progress&) { return result.has_value() && out_.flush(); };
  Result<void> appended = session_.append_each(ids, row, go_on);
  if (!result) return result;
  if (out_.failed()) return tl::unexpected(out_.error());
  if (appended) tokens_ += static_cast<int64_t>(ids.size());
  return appended;
}

Result<void> Scorer::finish() {
  Json next;
  if (!session_.logits().empty()) {
    CULET_TRY(const Distribution distribution, distribution(model_, session_.logits(), top_));
    next = {{"entropy", distribution.entropy}, {"top", top_of(distribution)}};
  }
  const double mean =
      sum_ / static_cast<double>(predicted_);  // NaN, which JSON writes as null, for none
  Json line{
      {"tokens", tokens_}, {"mean_nll", mean}, {"perplexity", std::exp(mean)}, {"next", next}};
  if (session_.options().stream) line["evicted"] = session_.evicted();
  print(line);
  return {};
}

// All ids are looked at before the first one is scored.
Result<std::vector<Token>> read_ids(const std::string& file, int64_t vocabulary) {
  CULET_TRY(const std::string text, read_text_file(file));
  CULET_TRY(std::vector<Token> ids, parse_ids(text, "the input of --ids"));
  CULET_TRY_VOID(check_ids(ids, vocabulary));
  return ids;
}

// Appends tokens a few at a time; false: Ctrl-C.
Result<bool> append_some(Scorer* scorer, std::span<const Token> ids,
                         const InterruptWatch& interrupt, StatusLine* status) {
  for (size_t at = 0; at < ids.size(); at += kAppend) {
    if (interrupt.interrupted()) return false;
    CULET_TRY_VOID(scorer->append(ids.subspan(at, std::min(kAppend, ids.size() - at))));
    status->show(fmt::format("Scoring: {} tokens", scorer->tokens()));
  }
  return true;
}

// ---------------------------------------------------------------- a text that has an end

Result<std::vector<Token>> read_tokens(const ScoreArguments& arguments, const Model& model) {
  const std::string file = arguments.file.value_or("-");
  if (arguments.ids) return read_ids(file, model.info().vocabulary_size);
  CULET_TRY(const std::string text, read_text_file(file));
  TokenizeOptions options{.begin = arguments.add_special, .end = arguments.add_special};
  options.continued = !arguments.memory.resume.empty();
  if (options.continued) options.end = false;
  return model.vocabulary().tokenize(text, options);
}

// There is something to score, and the context holds it.
Result<int64_t> context_for(const ScoreArguments& arguments, const ModelInfo& info, size_t tokens) {
  if (tokens == 0) {
    return fail(ErrorCode::kInvalidArgument,
                "the input has no tokens, so there is nothing to score");
  }
  if (arguments.memory.context) return arguments.memory.context;
  if (!arguments.memory.resume.empty()) return info.context_length;  // 0: the default
  if (info.context_length && tokens > static_cast<size_t>(info.context_length)) {
    return fail(
        ErrorCode::kExhausted,
        fmt::format("the input has {} tokens, but the model can hold {}; score a shorter part, or "
                    "without an end with --stream",
                    tokens, info.context_length));
  }
  return static_cast<int64_t>(tokens);
}

Result<int> score_text(const ScoreArguments& arguments, std::shared_ptr<const Model> model,
                       Output& out) {
  CULET_TRY(const std::vector<Token> ids, read_tokens(arguments, *model));
  MemoryArguments memory = arguments.memory;
  CULET_TRY(memory.context, context_for(arguments, model->info(), ids.size()));
  // The context is the text's, and the rotation follows it.
  if (model->info().rope_context != 0 && arguments.memory.context == 0 && memory.context != 0 &&
      memory.context != model->info().rope_context) {
    ModelArguments again = arguments.model;
    again.options.context = memory.context;
    model.reset();
    CULET_TRY(model, load_model(again));
  }
  CULET_TRY(const auto session, Session::make(model, memory.options()));
  print_rotation(model->info());
  CULET_TRY_VOID(resume(*session, memory, {arguments.file.value_or("-")}, false));
  Scorer scorer(*session, arguments.top, out);
  if (static_cast<int64_t>(ids.size()) > session->context() - session->length()) {
    CULET_TRY_VOID(scorer.append(ids));  // refused before the first line
  }
  const InterruptWatch interrupt;
  StatusLine status(true);
  CULET_TRY(const bool all, append_some(&scorer, ids, interrupt, &status));
  status.clear();
  CULET_TRY_VOID(scorer.finish());
  CULET_TRY_VOID(save(*session, memory, false));
  return all ? kExitOk : kExitInterrupted;
}

// ---------------------------------------------------------------- a text that may have none

// Appends a text as it comes, until it ends or Ctrl-C is pressed.
Result<void> append_text(const ScoreArguments& arguments, const Model& model, TextPieces* text,
                         Scorer* scorer, const InterruptWatch& interrupt, StatusLine* status) {
  bool first = arguments.memory.resume.empty(), go_on = true;
  while (go_on) {
    CULET_TRY(const std::optional<std::string> piece, text->next(interrupt));
    if (!piece) break;
    CULET_TRY(const std::vector<Token> ids,
              model.vocabulary().tokenize(
                  *piece, {.begin = arguments.add_special, .end = false, .continued = !first}));
    first = false;
    CULET_TRY(go_on, append_some(scorer, ids, interrupt, status));
  }
  return {};
}

Result<int> score_stream(const ScoreArguments& arguments, const std::shared_ptr<const Model>& model,
                         Output& out) {
  const std::string file = arguments.file.value_or("-");
  std::vector<Token> ids;
  std::optional<TextPieces> text;
  if (arguments.ids) {
    CULET_TRY(ids, read_ids(file, model->info().vocabulary_size));
  } else {
    CULET_TRY(TextPieces pieces, TextPieces::open(file));
    text.emplace(std::move(pieces));
  }
  CULET_TRY(const auto session, Session::make(model, arguments.memory.options()));
  CULET_TRY_VOID(resume(*session, arguments.memory, {file}, false));
  Scorer scorer(*session, arguments.top, out);
  const InterruptWatch interrupt;
  StatusLine status(true);
  if (text) {
    CULET_TRY_VOID(append_text(arguments, *model, &*text, &scorer, interrupt, &status));
  } else {
    CULET_TRY([[maybe_unused]] const bool all, append_some(&scorer, ids, interrupt, &status));
  }
  status.clear();
  if (scorer.tokens() == 0 && !interrupt.interrupted()) {
    return fail(ErrorCode::kInvalidArgument,
                "the input has no tokens, so there is nothing to score");
  }
  CULET_TRY_VOID(scorer.finish());
  CULET_TRY_VOID(save(*session, arguments.memory, false));
  return interrupt.interrupted() ? kExitInterrupted : kExitOk;
}

}  // namespace

Result<int> score_command(const ScoreArguments& arguments, Output& out) {
  const bool piped = arguments.file.value_or("-") == "-";
  return with_one_text(piped ? "" : "FILE", [&]() -> Result<int> {
    CULET_TRY(auto model, load_model(arguments.model));
    return arguments.memory.stream ? score_stream(arguments, model, out)
                                   : score_text(arguments, std::move(model), out);
  });
}

}  // namespace culet::cli
