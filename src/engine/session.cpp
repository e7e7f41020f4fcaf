// A session: the tokens of one timeline, their caches, and the logits after the last token.
//
// An append is cut into passes of at most the executor's limits; how it is cut never changes a bit.
// It is all or nothing: the token list grows only when every pass has succeeded and every row that
// somebody reads is finite. On an error, or when the caller stops it, the caches are cut back to
// where they were. A window cache may have dropped rows that the old length needs again; then the
// caches are emptied and the tokens stay, and the next append first evaluates the tokens again
// ("behind" below). That costs time, never correctness: the same tokens give the same bits.
//
// Threads: one at a time. Passes take a workspace from the model and wait for each other there.
#include "base/check.h"
#include "base/float_mode.h"
#include "cache/cache_set.h"
#include "culet/engine.h"
#include "engine/model_impl.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <numeric>
#include <utility>

namespace culet {
namespace engine {
namespace {

constexpr int64_t kDefaultContext = 4096;
constexpr std::string_view kLogits = "logits";

class SessionImpl final : public Session {
 public:
  SessionImpl(std::shared_ptr<const Model> model, std::unique_ptr<cache::CacheSet> caches,
              int64_t context, std::pair<KvType, KvType> types)
      : model_(std::move(model)),
        impl_(impl(*model_)),
        caches_(std::move(caches)),
        context_(context),
        types_(types) {}

  const Model& model() const override { return *model_; }
  int64_t context() const override { return context_; }
  std::pair<KvType, KvType> cache_types() const override { return types_; }
  std::span<const Token> tokens() const override { return tokens_; }
  std::span<const float> logits() const override { return logits_; }
  uint64_t memory_bytes() const override {
    return caches_->bytes() + logits_.capacity() * sizeof(float) +
           tokens_.capacity() * sizeof(Token);
  }

  Result<void> append(std::span<const Token> tokens, const Progress& progress) override {
    return guarded_append(tokens, RowFn(), progress);
  }
  Result<void> append_each(std::span<const Token> tokens, const RowFn& row,
                           const Progress& progress) override {
    return guarded_append(tokens, row, progress);
  }
  void clear() override;
  bool rewind(int64_t length) override;

 private:
  Result<void> guarded_append(std::span<const Token> tokens, const RowFn& row,
                              const Progress& progress);
  Result<void> check(std::span<const Token> tokens) const;
  Result<void> evaluate(std::span<const Token> all, int64_t first_new, const RowFn& row,
                        const Progress& progress);
  Result<void> read_rows(const backend::Workspace& workspace, int64_t first, const RowFn& row,
                         std::vector<float>* last) const;
  void forget_after(int64_t length);

  std::shared_ptr<const Model> model_;
  const ModelImpl& impl_;
  std::unique_ptr<cache::CacheSet> caches_;
  int64_t context_;
  std::pair<KvType, KvType> types_;
  std::vector<Token> tokens_;  // caches_->length() of them, or fewer, are in the caches
  std::vector<float> logits_;  // after the last token, or empty
};

// Everything that can be known before any work is done.
Result<void> SessionImpl::check(std::span<const Token> tokens) const {
  const auto have = static_cast<int64_t>(tokens_.size());
  const auto more = static_cast<int64_t>(tokens.size());
  if (more > context_ - have) {
    return fail(
        ErrorCode::kExhausted,
        fmt::format("the context holds {} tokens, but {} are needed ({} there, {} new); use a "
                    "session with a larger context",
                    context_, have + more, have, more));
  }
  const int64_t vocabulary = model_->info().vocabulary;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocabulary) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("token {} of the input is {}, but the vocabulary has ids 0 to {}", i,
                              tokens[i], vocabulary - 1));
    }
  }
  return {};
}

Result<void> SessionImpl::guarded_append(std::span<const Token> tokens, const RowFn& row,
                                         const Progress& progress) {
  CULET_TRY_VOID(check(tokens));
  if (tokens.empty()) return {};
  base::set_float_mode();
  const size_t before = tokens_.size();
  Result<void> result;
  try {
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    result = evaluate(tokens_, static_cast<int64_t>(before), row, progress);
  } catch (const std::bad_alloc&) {
    result = fail(ErrorCode::kExhausted,
                  "there is not enough memory to evaluate these tokens; use a smaller context");
  }
  if (!result) {
    tokens_.resize(before);
    forget_after(static_cast<int64_t>(before));
  }
  return result;
}

// Runs passes until the caches hold all tokens; rows from first_new on are new to the caller.
Result<void> SessionImpl::evaluate(std::span<const Token> all, int64_t first_new, const RowFn& row,
                                   const Progress& progress) {
  const backend::Limits& limits = impl_.executor().limits();
  const int64_t behind = caches_->length();
  const auto end = static_cast<int64_t>(all.size());
  WorkspaceLease workspace(impl_);
  std::vector<float> last;
  std::vector<int32_t> wanted;
  for (int64_t first = behind; first < end;) {
    const bool each = row && first >= first_new;
    int64_t rows =
        std::min<int64_t>(each ? std::min(limits.rows, limits.wanted) : limits.rows, end - first);
    if (row && first < first_new) rows = std::min(rows, first_new - first);
    wanted.resize(each ? static_cast<size_t>(rows) : first + rows == end ? 1 : 0);
    std::iota(wanted.begin(), wanted.end(), static_cast<int32_t>(each ? 0 : rows - 1));
    const backend::Segment segment{
        caches_.get(), first, all.subspan(static_cast<size_t>(first), static_cast<size_t>(rows)),
        wanted};
    CULET_TRY_VOID(impl_.run(workspace.get(), {&segment, 1}));
    if (!wanted.empty()) {
      CULET_TRY_VOID(read_rows(workspace.get(), first + wanted.front(), row, &last));
    }
    first += rows;
    if (progress && !progress(first - behind, end - behind)) {
      return fail(ErrorCode::kCancelled, "stopped on request");
    }
  }
  logits_.swap(last);
  return {};
}

// Checks the logits of the last pass, hands them to the caller, and keeps the last row.
Result<void> SessionImpl::read_rows(const backend::Workspace& workspace, int64_t first,
                                    const RowFn& row, std::vector<float>* last) const {
  const std::span<const float> output = impl_.executor().output(workspace, kLogits);
  const auto width = static_cast<size_t>(model_->info().vocabulary);
  CULET_CHECK(!output.empty() && output.size() % width == 0);
  for (size_t at = 0; at < output.size(); at += width) {
    const std::span<const float> logits = output.subspan(at, width);
    const int64_t position = first + static_cast<int64_t>(at / width);
    float max = 0;
    int64_t index = 0;
    int finite = 0;
    impl_.loaded().kernels.max_index(logits.data(), static_cast<int64_t>(width), &max, &index,
                                     &finite);
    if (!finite) {
      return fail(ErrorCode::kNumeric,
                  fmt::format("the logits after token {} are not finite numbers: the model file is "
                              "damaged or its values overflow; compare with --precise",
                              position));
    }
    if (row) row(position, logits);
  }
  const std::span<const float> tail = output.last(width);
  last->assign(tail.begin(), tail.end());
  return {};
}

// Cuts the caches back; where a window has lost rows they start again from nothing (see the top).
void SessionImpl::forget_after(int64_t length) {
  if (caches_->length() <= length) return;
  if (caches_->truncate(length) == cache::Truncation::kRebuildNeeded) caches_->clear();
}

void SessionImpl::clear() {
  caches_->clear();
  tokens_.clear();
  logits_.clear();
}

bool SessionImpl::rewind(int64_t length) {
  const auto have = static_cast<int64_t>(tokens_.size());
  if (length < 0 || length >= have) return length == have;
  if (caches_->length() > length &&
      caches_->truncate(length) == cache::Truncation::kRebuildNeeded) {
    return false;
  }
  tokens_.resize(static_cast<size_t>(length));
  logits_.clear();
  return true;
}

Result<int64_t> session_context(const ModelInfo& info, int64_t asked) {
  const int64_t trained = info.context_length;
  if (asked < 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a context of {} tokens makes no sense", asked));
  }
  if (asked == 0) return trained ? std::min(trained, kDefaultContext) : kDefaultContext;
  if (trained && asked > trained) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("a context of {} tokens is more than the {} that {} was trained for; ask "
                    "for at most that",
                    asked, trained, info.path));
  }
  return asked;
}

}  // namespace
}  // namespace engine

Result<std::unique_ptr<Session>> Session::make(std::shared_ptr<const Model> model,
                                               const SessionOptions& options) {
  CULET_CHECK(model != nullptr);
  const engine::ModelImpl& impl = engine::impl(*model);
  if (!impl.loaded().executor) {
    return fail(ErrorCode::kInvalidArgument,
                "the model was loaded with text_only, so it cannot run; load it without");
  }
  CULET_TRY(const int64_t context, engine::session_context(model->info(), options.context));
  CULET_TRY_VOID(model::check_memory(
      impl.loaded().memory_limit, context_bytes(*model, {context, options.keys, options.values}),
      fmt::format("a context of {} tokens", context), "use a smaller one (--ctx)"));
  const cache::CacheOptions cache_options{.k_type = engine::kv_type(options.keys),
                                          .v_type = engine::kv_type(options.values),
                                          .max_positions = context};
  CULET_TRY(auto caches, cache::CacheSet::make(impl.loaded().compiled.plan.caches, cache_options));
  return std::make_unique<engine::SessionImpl>(std::move(model), std::move(caches), context,
                                               std::pair(options.keys, options.values));
}

}  // namespace culet
