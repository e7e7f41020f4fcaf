// Takes sessions and new tokens, runs forward passes until every append is done.
#include "engine/forward.h"

#include "base/check.h"
#include "base/float_mode.h"
#include "sample/logprobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <new>
#include <utility>

namespace culet {
namespace engine {

// ---------------------------------------------------------------- one append

void Append::start(std::span<const Token> next) {
  tokens = next;
  done = 0;
  result = {};
  last.clear();
}

void Append::finish() {
  CULET_CHECK(finished());
  session->appended(tokens, &last);
  forget_before();
}

void Append::undo() {
  cache::CacheSet& caches = session->timeline().caches;
  if (before) {
    caches = std::move(*before);
    forget_before();
  } else {
    const auto cut = caches.truncate(caches.options().start + session->length());
    CULET_CHECK(cut == cache::Truncation::kDone);
  }
  done = 0;
}

void Append::keep_before() {
  before.emplace(session->timeline().caches);
  session->set_undo(&*before);
}

void Append::forget_before() {
  session->set_undo(nullptr);
  before.reset();
}

// ---------------------------------------------------------------- one pass

void ForwardPass::begin(int32_t max_tokens) {
  const backend::Limits& limits = model_.executor().limits();
  appends_.clear();
  tokens_ = 0;
  tokens_left_ = max_tokens > 0 ? std::min(max_tokens, limits.tokens) : limits.tokens;
  outputs_left_ = limits.outputs;
}

void ForwardPass::fill(std::span<Append* const> queue) {
  const auto single = [](const Append* append) { return append->size() == 1; };
  const bool crowded = std::count_if(queue.begin(), queue.end(), single) >=
                       std::min<int64_t>(tokens_left_, outputs_left_);
  int64_t others = 0;
  for (Append* append : queue) {
    const bool waited = std::exchange(append->waited, true);
    const bool now = single(append) || (waited && crowded);
    if (!(now && add(append, 1)) && !single(append)) ++others;
  }
  for (Append* append : queue) {
    if (single(append) || !append->waited) continue;
    add(append, std::max(kLeastPiece, tokens_left_ / others));
    --others;
  }
}

// At most `most` of the append's next tokens, as many as fit. False: none.
bool ForwardPass::add(Append* append, int64_t most) {
  const bool each = append->on_logits != nullptr;
  const bool end_wanted = append->logits || append->on_hidden != nullptr;
  int64_t chunk = std::min({append->size() - append->done, most, tokens_left_});
  if (each) chunk = std::min(chunk, outputs_left_);
  const bool end = append->done + chunk == append->size();
  if (!each && end && end_wanted && outputs_left_ == 0) --chunk;
  if (chunk <= 0) return false;
  append->waited = false;
  const bool ends_here = append->done + chunk == append->size();
  append->chunk = chunk;
  append->outputs.clear();
  if (each) {
    for (int64_t i = 0; i < chunk; ++i) append->outputs.push_back(static_cast<int32_t>(i));
  } else if (ends_here && end_wanted) {
    append->outputs.push_back(static_cast<int32_t>(chunk) - 1);
  }
  const bool far = append->size() > append->session->timeline().caches.options().rewind_reserve;
  if (append->done == 0 && (far || !ends_here)) append->keep_before();
  tokens_ += chunk;
  tokens_left_ -= chunk;
  outputs_left_ -= static_cast<int64_t>(append->outputs.size());
  appends_.push_back(append);
  return true;
}

void ForwardPass::run(std::span<backend::OpCost> op_costs) { run_together(appends_, op_costs); }

// A pass that cannot be computed, for want of memory, is computed append by append: so those fail
// alone that must.
void ForwardPass::run_together(std::span<Append* const> appends,
                               std::span<backend::OpCost> op_costs) {
  Result<void> done;
  bool computed = false;
  try {
    WorkspaceLease workspace(model_);
    done = compute(&workspace.get(), appends, op_costs);
    computed = done.has_value();
    if (computed) read(workspace.get(), appends);
  } catch (const std::bad_alloc&) {
    done = fail(ErrorCode::kExhausted,
                "there is not enough memory to evaluate these tokens; use a smaller context or "
                "close other sessions");
  }
  if (done) return;
  if (appends.size() > 1 && !computed) {
    for (size_t i = 0; i < appends.size(); ++i) run_together(appends.subspan(i, 1), op_costs);
    return;
  }
  for (Append* a : appends) {
    if (!a->result) continue;
    a->undo();
    a->result = done;
  }
}

Result<void> ForwardPass::compute(backend::Workspace* workspace, std::span<Append* const> appends,
                                  std::span<backend::OpCost> op_costs) {
  batch_.clear();
  for (const Append* a : appends) {
    cache::CacheSet& caches = a->session->timeline().caches;
    batch_.push_back(
        {&caches, caches.length(),
         a->tokens.subspan(static_cast<size_t>(a->done), static_cast<size_t>(a->chunk)),
         a->outputs});
  }
  return model_.run(*workspace, batch_, op_costs);
}

void ForwardPass::read(const backend::Workspace& workspace, std::span<Append* const> appends) {
  const backend::Executor& executor = model_.executor();
  const auto hidden_size = static_cast<size_t>(executor.output_width(kHidden));
  const auto vocabulary = static_cast<size_t>(model_.info().vocabulary_size);
  std::span<const float> logits = executor.output(workspace, kLogits), hidden;
  if (hidden_size > 0) hidden = executor.output(workspace, kHidden);
  for (Append* a : appends) {
    const size_t outputs = a->outputs.size();
    const auto done = read_one(
        a, logits.first(outputs * vocabulary),
        a->on_hidden != nullptr ? hidden.first(outputs * hidden_size) : std::span<const float>());
    logits = logits.subspan(outputs * vocabulary);
    hidden = hidden.subspan(outputs * hidden_size);
    a->done += a->chunk;
    if (done) continue;
    a->undo();
    a->result = done;
  }
}

// Checks the logits of the append's output tokens, hands them to the caller, and keeps the last;
// likewise the hidden values, of which there are as many if they are asked for.
Result<void> ForwardPass::read_one(Append* a, std::span<const float> logits,
                                   std::span<const float> hidden) {
  const size_t outputs = a->outputs.size();
  const auto vocabulary = static_cast<size_t>(model_.info().vocabulary_size);
  for (size_t i = 0; i < outputs; ++i) {
    const std::span<const float> row = logits.subspan(i * vocabulary, vocabulary);
    const std::span<const float> behind =
        hidden.subspan(i * (hidden.size() / outputs), hidden.size() / outputs);
    const int64_t index = a->session->length() + a->done + a->outputs[i];
    if ((!model_.is_finite(row) && !sample::only_suppressed(row)) ||
        (!behind.empty() && !model_.is_finite(behind))) {
      return fail(ErrorCode::kNumeric,
                  fmt::format("the logits after token {} are not finite numbers: the model file is "
                              "damaged or its values overflow; compare with --precise",
                              index));
    }
    if (a->on_logits != nullptr) (*a->on_logits)(index, row);
    if (a->on_hidden != nullptr) (*a->on_hidden)(index, behind);
    if (a->logits && a->done + a->outputs[i] == a->size() - 1 &&
        !a->last.set(*model_.loaded().memory, row)) {
      return fail(
          ErrorCode::kExhausted,
          fmt::format("the logits need {} of memory, but {}; close sessions and forks that "
                      "are not needed",
                      cache::show_bytes(row.size_bytes()), model_.loaded().memory->shortage()));
    }
  }
  return {};
}

// ---------------------------------------------------------------- whole appends

Result<void> check_append(const SessionImpl& session, std::span<const Token> tokens, bool hidden) {
  CULET_TRY_VOID(session.check(tokens));
  const ModelImpl& model = session.model_impl();
  if (!hidden || model.executor().output_width(kHidden) > 0) return {};
  return fail(ErrorCode::kUnsupported,
              fmt::format("hidden values were requested, but {} (architecture {}) has no output "
                          "'hidden'; add it to the architecture file (output hidden = ...)",
                          model.info().arch_origin, model.info().architecture));
}

namespace {

Result<void> check_batch(std::span<const AppendItem> items) {
  for (size_t i = 0; i < items.size(); ++i) {
    CULET_CHECK(items[i].session != nullptr);
    if (&items[i].session->model() != &items[0].session->model()) {
      return fail(ErrorCode::kInvalidArgument,
                  "all sessions of a batch must belong to the same model; use one batch per model");
    }
    for (size_t j = 0; j < i; ++j) {
      if (items[i].session == items[j].session) {
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("items {} and {} of the batch have the same session; join their "
                                "tokens, or use two batches",
                                j, i));
      }
    }
  }
  return {};
}

void run_all(ForwardPass* pass, std::vector<Append*> queue, const ProgressFn& progress,
             std::span<backend::OpCost> op_costs) {
  uint64_t done = 0, total = 0;
  for (const Append* a : queue) total += static_cast<uint64_t>(a->size());
  while (!queue.empty()) {
    pass->begin(0);
    pass->fill(queue);
    pass->run(op_costs);
    done += static_cast<uint64_t>(pass->tokens());
    const bool stop = progress && !progress({"prompt", done, total});
    for (Append* a : queue) {
      if (stop && a->result) {
        a->undo();
        a->result = fail(ErrorCode::kCancelled, "stopped on request");
      } else if (a->result && a->finished()) {
        a->finish();
      }
    }
    std::erase_if(queue, [](const Append* a) { return !a->result || a->finished(); });
  }
}

}  // namespace

std::vector<Result<void>> append_measured(std::span<const AppendItem> items,
                                          const ProgressFn& progress,
                                          std::span<backend::OpCost> op_costs) {
  std::vector<Result<void>> results(items.size());
  if (items.empty()) return results;
  if (const auto good = check_batch(items); !good) {
    std::fill(results.begin(), results.end(), good);
    return results;
  }
  base::set_float_mode();
  std::deque<Append> appends(items.size());  // in one place for ever
  std::vector<Append*> queue;
  for (size_t i = 0; i < items.size(); ++i) {
    const AppendItem& item = items[i];
    Append& append = appends[i];
    append.session = &item.session->impl();
    append.logits = item.logits;
    if (item.on_logits) append.on_logits = &item.on_logits;
    if (item.on_hidden) append.on_hidden = &item.on_hidden;
    append.tokens = item.tokens;
    append.result = check_append(*append.session, item.tokens, append.on_hidden != nullptr);
    if (append.result && !item.tokens.empty()) queue.push_back(&append);
  }
  ForwardPass pass(items[0].session->model().impl());
  run_all(&pass, std::move(queue), progress, op_costs);
  for (size_t i = 0; i < items.size(); ++i) results[i] = std::move(appends[i].result);
  return results;
}

}  // namespace engine

std::vector<Result<void>> append_batch(std::span<const AppendItem> items,
                                       const ProgressFn& progress) {
  return engine::append_measured(items, progress, {});
}

}  // namespace culet
