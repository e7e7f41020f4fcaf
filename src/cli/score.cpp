// culet score: teacher-forced scoring, one JSON line a token.
//
// Row i of the logits predicts token i + 1, so the line of a token is printed when the row before
// it is known; the row of the last token becomes "next" of the closing line.
#include "cli/commands.h"
#include "cli/input.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <optional>

namespace culet::cli {
namespace {

using Json = nlohmann::ordered_json;

// The shortest decimal of a float is a shorter one than that of the same value as a double.
double shortest(float x) { return std::stod(fmt::format("{}", x)); }

Json finite(double x) { return std::isfinite(x) ? Json(x) : Json(); }

class Scorer {
 public:
  Scorer(const Model& model, std::span<const Token> ids, int top, Output& out)
      : model_(model), ids_(ids), top_(top), out_(out) {}

  Result<void> row(int64_t position, std::span<const float> logits);
  void last();

 private:
  Json top_of(const Distribution& distribution) const;
  void first();
  void print(const Json& value) {
    out_.write(value.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  }
  Json token_line(size_t position) const {
    const Token id = ids_[position];
    return {{"pos", position}, {"id", id}, {"text", model_.piece(id, true)}};
  }

  const Model& model_;
  std::span<const Token> ids_;
  int top_;
  Output& out_;
  double sum_ = 0;
  Json next_;
};

Json Scorer::top_of(const Distribution& distribution) const {
  Json list = Json::array();
  for (const Candidate& candidate : distribution.top) {
    list.push_back({{"id", candidate.id},
                    {"text", model_.piece(candidate.id, true)},
                    {"logprob", shortest(candidate.logprob)}});
  }
  return list;
}

// Nothing predicted the first token.
void Scorer::first() {
  Json line = token_line(0);
  line.update({{"nll", nullptr}, {"entropy", nullptr}, {"top", nullptr}});
  print(line);
}

Result<void> Scorer::row(int64_t position, std::span<const float> logits) {
  CULET_TRY(const Distribution distribution, distribution(model_, logits, top_));
  if (position == 0) first();
  const auto next = static_cast<size_t>(position) + 1;
  if (next == ids_.size()) {
    next_ = {{"entropy", distribution.entropy}, {"top", top_of(distribution)}};
    return {};
  }
  CULET_TRY(const double logprob, culet::logprob(model_, logits, ids_[next]));
  sum_ -= logprob;
  Json line = token_line(next);
  line.update(
      {{"nll", -logprob}, {"entropy", distribution.entropy}, {"top", top_of(distribution)}});
  print(line);
  return {};
}

void Scorer::last() {
  const auto predicted = static_cast<double>(ids_.size() - 1);
  const double mean = sum_ / predicted;  // NaN, hence null, when nothing was predicted
  print({{"tokens", ids_.size()},
         {"mean_nll", finite(mean)},
         {"perplexity", finite(std::exp(mean))},
         {"next", next_}});
}

Result<std::vector<Token>> read_tokens(const ScoreArguments& arguments, const Model& model,
                                       const std::string& text) {
  if (arguments.ids) return parse_ids(text);
  return model.tokenize(text, arguments.add_special, false);
}

Result<void> check_length(const ModelInfo& info, size_t tokens) {
  if (tokens == 0) {
    return fail(ErrorCode::kInvalidArgument,
                "the input has no tokens, so there is nothing to score");
  }
  if (info.context_length && tokens > static_cast<size_t>(info.context_length)) {
    return fail(
        ErrorCode::kExhausted,
        fmt::format("the input has {} tokens, but the model can hold {}; score a shorter part",
                    tokens, info.context_length));
  }
  return {};
}

Result<void> score(Session& session, std::span<const Token> ids, Scorer& scorer, Output& out) {
  StatusLine status(true);
  Result<void> result;
  const auto row = [&](int64_t position, std::span<const float> logits) {
    if (result) result = scorer.row(position, logits);
  };
  const auto progress = [&](int64_t done, int64_t all) {
    status.show(fmt::format("Scoring: {} of {} tokens", done, all));
    return result.has_value() && out.flush();
  };
  const Result<void> appended = session.append_each(ids, row, progress);
  if (!result) return result;
  return out.failed() ? tl::unexpected(out.error()) : appended;
}

}  // namespace

Result<int> score_command(const ScoreArguments& arguments, Output& out) {
  CULET_TRY(const std::string text, read_text_file(arguments.file.value_or("-")));
  CULET_TRY(const auto model, load_model(arguments.model));
  CULET_TRY(const std::vector<Token> ids, read_tokens(arguments, *model, text));
  CULET_TRY_VOID(check_length(model->info(), ids.size()));
  CULET_TRY(const auto session,
            Session::make(model, arguments.kv.options(static_cast<int64_t>(ids.size()))));
  Scorer scorer(*model, ids, arguments.top, out);
  CULET_TRY_VOID(score(*session, ids, scorer, out));
  scorer.last();
  return kExitOk;
}

}  // namespace culet::cli
