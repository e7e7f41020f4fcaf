// Takes sessions and new tokens, runs passes until every entry is done.
//
// A pass takes rows of as many entries as fit: each gets one row at least, the first ones more, at
// most the executor's limits. How rows are spread over passes never changes a bit.
// An entry is all or nothing. Its session's tokens and logits change only when it is done; if it
// fails, its caches go back: by cutting the new rows off, or, where rows that a shorter context
// needs may be gone by then (long appends, states over several passes), to a fork taken before.
#include "base/check.h"
#include "base/float_mode.h"
#include "engine/session_impl.h"
#include "sample/logprobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <optional>
#include <utility>

namespace culet {
namespace engine {
namespace {

struct Entry {
  const BatchItem* item = nullptr;
  SessionImpl* session = nullptr;
  Result<void>* result = nullptr;
  int64_t done = 0;  // tokens in the caches
  std::optional<cache::CacheSet> before;
  std::shared_ptr<std::vector<float>> last;
  bool active = true;
  // Of the pass under way.
  int64_t rows = 0;
  std::vector<int32_t> wanted;

  int64_t size() const { return static_cast<int64_t>(item->tokens.size()); }
  bool each() const { return static_cast<bool>(item->row); }
};

class Batch {
 public:
  Batch(const ModelImpl& model, std::vector<Entry> entries)
      : model_(model), entries_(std::move(entries)) {
    for (const Entry& e : entries_) all_ += e.active ? e.size() : 0;
  }
  void run(const Session::Progress& progress);
  void fail_all(const Error& error);

 private:
  bool plan_pass();  // false: nothing is left to do
  void prepare(Entry* e, int64_t rows, int64_t wanted);
  void run_pass(backend::Workspace* workspace);
  Result<void> read(Entry* e, std::span<const float> logits, std::span<const float> hidden);
  void undo(Entry* e, const Error& error);

  const ModelImpl& model_;
  std::vector<Entry> entries_;
  std::vector<Entry*> pass_;
  std::vector<backend::Segment> segments_;
  int64_t all_ = 0, done_ = 0;
};

// Rows [done, done + rows) of the entry, as many as may be wanted.
void Batch::prepare(Entry* e, int64_t rows, int64_t wanted) {
  e->rows = std::min({e->size() - e->done, rows, e->each() ? wanted : rows});
  const bool end = e->done + e->rows == e->size();
  e->wanted.clear();
  if (e->each()) {
    for (int64_t r = 0; r < e->rows; ++r) e->wanted.push_back(static_cast<int32_t>(r));
  } else if (end && (e->item->logits || e->item->hidden)) {
    e->wanted.push_back(static_cast<int32_t>(e->rows) - 1);
  }
  cache::CacheSet& caches = e->session->timeline().caches;
  const bool long_way = e->size() > caches.options().rewind_reserve;
  if (e->done == 0 && (long_way || !end)) e->before.emplace(caches);
}

bool Batch::plan_pass() {
  const backend::Limits& limits = model_.executor().limits();
  int64_t waiting =
      std::count_if(entries_.begin(), entries_.end(), [](const Entry& e) { return e.active; });
  int64_t rows = limits.rows, wanted = limits.wanted;
  pass_.clear();
  for (Entry& e : entries_) {
    if (!e.active || rows == 0 || wanted == 0) continue;
    --waiting;
    prepare(&e, std::max<int64_t>(1, rows - waiting), std::max<int64_t>(1, wanted - waiting));
    rows -= e.rows;
    wanted -= static_cast<int64_t>(e.wanted.size());
    pass_.push_back(&e);
  }
  return !pass_.empty();
}

void Batch::undo(Entry* e, const Error& error) {
  cache::CacheSet& caches = e->session->timeline().caches;
  if (e->before) {
    caches = std::move(*e->before);
  } else {
    const auto cut = caches.truncate(caches.options().start + e->session->length());
    CULET_CHECK(cut == cache::Truncation::kDone);
  }
  e->active = false;
  *e->result = tl::unexpected(error);
}

void Batch::fail_all(const Error& error) {
  for (Entry& e : entries_)
    if (e.active) undo(&e, error);
}

// Checks the logits of the entry's wanted rows, hands them to the caller, and keeps the last;
// likewise the hidden rows, of which there are as many if they are asked for.
Result<void> Batch::read(Entry* e, std::span<const float> logits, std::span<const float> hidden) {
  const size_t rows = e->wanted.size();
  const auto width = static_cast<size_t>(model_.info().vocabulary);
  for (size_t i = 0; i < rows; ++i) {
    const std::span<const float> row = logits.subspan(i * width, width);
    const std::span<const float> behind =
        hidden.subspan(i * (hidden.size() / rows), hidden.size() / rows);
    const int64_t index = e->session->length() + e->done + e->wanted[i];
    if ((!model_.is_finite(row) && !sample::only_suppressed(row)) ||
        (!behind.empty() && !model_.is_finite(behind))) {
      return fail(ErrorCode::kNumeric,
                  fmt::format("the logits after token {} are not finite numbers: the model file is "
                              "damaged or its values overflow; compare with --precise",
                              index));
    }
    if (e->each()) e->item->row(index, row);
    if (e->item->hidden) e->item->hidden(index, behind);
    if (e->item->logits && e->done + e->wanted[i] == e->size() - 1)
      e->last = std::make_shared<std::vector<float>>(row.begin(), row.end());
  }
  return {};
}

void Batch::run_pass(backend::Workspace* workspace) {
  segments_.clear();
  for (const Entry* e : pass_) {
    cache::CacheSet& caches = e->session->timeline().caches;
    segments_.push_back(
        {&caches, caches.length(),
         e->item->tokens.subspan(static_cast<size_t>(e->done), static_cast<size_t>(e->rows)),
         e->wanted});
  }
  if (const auto ran = model_.run(*workspace, segments_); !ran) {
    for (Entry* e : pass_) undo(e, ran.error());
    return;
  }
  const backend::Executor& executor = model_.executor();
  const auto width = static_cast<size_t>(executor.output_width(kHidden));
  const auto vocabulary = static_cast<size_t>(model_.info().vocabulary);
  std::span<const float> logits = executor.output(*workspace, kLogits), hidden;
  if (width > 0) hidden = executor.output(*workspace, kHidden);
  for (Entry* e : pass_) {
    const size_t rows = e->wanted.size();
    const auto read_rows =
        read(e, logits.first(rows * vocabulary),
             e->item->hidden ? hidden.first(rows * width) : std::span<const float>());
    logits = logits.subspan(rows * vocabulary);
    hidden = hidden.subspan(rows * width);
    done_ += e->rows;
    e->done += e->rows;
    if (!read_rows) undo(e, read_rows.error());
  }
}

void Batch::run(const Session::Progress& progress) {
  WorkspaceLease workspace(model_);
  while (plan_pass()) {
    run_pass(&workspace.get());
    if (progress && !progress(done_, all_)) {
      fail_all({ErrorCode::kCancelled, "stopped on request"});
      return;
    }
    for (Entry* e : pass_) {
      if (!e->active || e->done < e->size()) continue;
      e->session->appended(e->item->tokens, std::move(e->last));
      e->active = false;
    }
  }
}

Result<void> check_item(const SessionImpl& session, const BatchItem& item) {
  CULET_TRY_VOID(session.check(item.tokens));
  const ModelImpl& model = session.model_impl();
  if (!item.hidden || model.executor().output_width(kHidden) > 0) return {};
  return fail(ErrorCode::kUnsupported,
              fmt::format("hidden rows are asked for, but {} (architecture {}) has no output "
                          "'hidden'; name it there (output hidden = ...)",
                          model.info().arch_origin, model.info().architecture));
}

Result<void> check_batch(std::span<const BatchItem> items) {
  for (size_t i = 0; i < items.size(); ++i) {
    CULET_CHECK(items[i].session != nullptr);
    if (&items[i].session->model() != &items[0].session->model()) {
      return fail(ErrorCode::kInvalidArgument,
                  "the sessions of a batch must be of one model; make one batch a model");
    }
    for (size_t j = 0; j < i; ++j) {
      if (items[i].session == items[j].session) {
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("entries {} and {} of the batch are the same session; join their "
                                "tokens or make two batches",
                                j, i));
      }
    }
  }
  return {};
}

}  // namespace
}  // namespace engine

std::vector<Result<void>> append_batch(std::span<const BatchItem> items,
                                       const Session::Progress& progress) {
  std::vector<Result<void>> results(items.size());
  if (items.empty()) return results;
  if (const auto good = engine::check_batch(items); !good) {
    std::fill(results.begin(), results.end(), good);
    return results;
  }
  std::vector<engine::Entry> entries(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    auto* session = static_cast<engine::SessionImpl*>(items[i].session);  // there are no others
    results[i] = engine::check_item(*session, items[i]);
    entries[i].item = &items[i];
    entries[i].session = session;
    entries[i].result = &results[i];
    entries[i].active = results[i].has_value() && !items[i].tokens.empty();
  }
  base::set_float_mode();
  engine::Batch batch(engine::impl(items[0].session->model()), std::move(entries));
  try {
    batch.run(progress);
  } catch (const std::bad_alloc&) {
    batch.fail_all({ErrorCode::kExhausted,
                    "there is not enough memory to evaluate these tokens; use a smaller context"});
  }
  return results;
}

}  // namespace culet
