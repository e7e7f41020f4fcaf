// Takes sequences of tokens, gives the hidden rows that an encoder makes of them, or the vector
// that it pools them to.
//
// A sequence is whole in one pass, because every row sees all of it. Passes are filled with whole
// sequences in order, up to the rows of an ordinary pass; a sequence that is longer has a pass of
// its own, after a look at the memory which that takes. How sequences share passes never changes a
// bit.
#include "base/check.h"
#include "base/float_mode.h"
#include "culet/embed.h"
#include "engine/model_impl.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <new>

namespace culet {
namespace engine {
namespace {

// What a call reads of the plan: an output with a row of each token, or one of each sequence.
struct What {
  std::string_view output;
  bool pooled;
};
constexpr What kRows{kHidden, false}, kVectors{kPooled, true};
constexpr int32_t kOne[] = {0};  // any token asks for the row of its sequence

using Sequences = std::span<const std::vector<Token>>;
using Rows = std::vector<std::vector<float>>;

Result<void> check_model(const ModelImpl& model, const What& what) {
  if (model.info().kind != ModelKind::kEncoder) {
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("{} is a model of kind {} (architecture {}), but only encoders make vectors of "
                    "texts; use an encoder",
                    model.info().path, kind_name(model.info().kind), model.info().architecture));
  }
  if (what.pooled && model.info().embedding_dimension == 0) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{} makes no vector of a text: the file names no pooling, so its "
                            "architecture {} has no output '{}'; call culet::encode for the hidden "
                            "values of the tokens, or use another model",
                            model.info().path, model.info().architecture, what.output));
  }
  if (!model.loaded().executor) {
    return fail(ErrorCode::kInvalidArgument,
                "the model was loaded with text_only, so it cannot run; load it without");
  }
  return {};
}

Result<void> check_sequence(const ModelImpl& model, const What& what, size_t index,
                            std::span<const Token> tokens) {
  if (what.pooled && tokens.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("sequence {} is empty, so it has no vector; leave it out", index));
  }
  const int64_t most = model.info().sequence_length;
  if (static_cast<int64_t>(tokens.size()) > most) {
    return fail(ErrorCode::kExhausted, fmt::format("sequence {} has {} tokens, but {} takes at "
                                                   "most {} in one sequence; use a shorter text",
                                                   index, tokens.size(), model.info().path, most));
  }
  const int64_t vocabulary = model.info().vocabulary_size;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocabulary) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("token {} of sequence {} is {}, but the vocabulary has ids 0 to {}",
                              i, index, tokens[i], vocabulary - 1));
    }
  }
  return {};
}

// Bytes of a workspace for passes of `longest` tokens, when they are there. A pass of ubatch_size
// was checked when the model was loaded.
Result<uint64_t> check_room(const ModelImpl& model, int64_t longest) {
  const model::LoadedModel& loaded = model.loaded();
  if (longest <= loaded.ubatch_size) return loaded.info.workspace_bytes;
  backend::PrepareOptions options;
  options.limits.tokens = static_cast<int32_t>(longest);
  options.repack = model.info().repacked;
  const backend::Executor::Memory memory = backend::Executor::memory(
      loaded.compiled.plan, loaded.tensors(), loaded.kernels, model.info().threads, options);
  // What the system has left is beside the weights, a limit is for all.
  const uint64_t weights =
      loaded.memory_limit == 0 ? 0 : loaded.info.packed_bytes + loaded.info.converted_bytes;
  CULET_TRY_VOID(model::check_memory(loaded.memory_limit, weights + memory.workspace,
                                     fmt::format("encoding a sequence of {} tokens", longest),
                                     "shorten it"));
  return memory.workspace;
}

class Encoding {
 public:
  Encoding(const ModelImpl& model, const What& what, Sequences sequences)
      : model_(model), what_(what), sequences_(sequences), rows_(sequences.size()) {
    for (const auto& tokens : sequences) all_ += tokens.size();
  }

  // workspace_bytes: that the longest pass needs.
  Result<Rows> run(uint64_t workspace_bytes, const ProgressFn& progress) {
    WorkspaceLease workspace(model_, workspace_bytes);
    while (next_ < sequences_.size()) {
      CULET_TRY_VOID(run_pass(&workspace.get()));
      if (progress && !progress({"encoding", done_, all_})) {
        return fail(ErrorCode::kCancelled, "stopped on request");
      }
    }
    return std::move(rows_);
  }

 private:
  // The next sequences that fit a pass, one at least.
  Result<void> run_pass(backend::Workspace* workspace) {
    const size_t first = next_;
    const auto most = static_cast<size_t>(model_.executor().limits().outputs);
    const std::span<const int32_t> wanted = what_.pooled ? kOne : std::span<const int32_t>();
    int64_t rows = 0;
    batch_.clear();
    for (; next_ < sequences_.size(); ++next_) {
      const auto size = static_cast<int64_t>(sequences_[next_].size());
      if (rows > 0 && rows + size > model_.loaded().ubatch_size) break;
      if (what_.pooled && batch_.size() == most) break;
      rows += size;
      batch_.push_back({nullptr, 0, sequences_[next_], wanted});
    }
    if (rows == 0) return {};
    CULET_TRY_VOID(model_.run(*workspace, batch_));
    done_ += static_cast<uint64_t>(rows);
    return read(first, model_.executor().output(*workspace, what_.output));
  }

  Result<void> read(size_t first, std::span<const float> all) {
    const auto width = static_cast<size_t>(model_.executor().output_width(what_.output));
    for (size_t s = first; s < next_; ++s) {
      const size_t rows = what_.pooled ? 1 : sequences_[s].size();
      const std::span<const float> own = all.first(rows * width);
      all = all.subspan(own.size());
      for (size_t r = 0; r < rows; ++r) {
        if (model_.is_finite(own.subspan(r * width, width))) continue;
        const std::string which = what_.pooled ? "vector" : fmt::format("row of token {}", r);
        return fail(ErrorCode::kNumeric,
                    fmt::format("the {} of sequence {} is not finite: the model file is damaged or "
                                "its values overflow; compare with --precise",
                                which, s));
      }
      rows_[s].assign(own.begin(), own.end());
    }
    CULET_CHECK(all.empty());
    return {};
  }

  const ModelImpl& model_;
  What what_;
  Sequences sequences_;
  Rows rows_;
  std::vector<backend::SequenceChunk> batch_;
  size_t next_ = 0;
  uint64_t done_ = 0, all_ = 0;
};

Result<Rows> encode(const Model& model, const What& what, Sequences sequences,
                    const ProgressFn& progress) {
  const ModelImpl& own = model.impl();
  CULET_TRY_VOID(check_model(own, what));
  size_t longest = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    CULET_TRY_VOID(check_sequence(own, what, i, sequences[i]));
    longest = std::max(longest, sequences[i].size());
  }
  CULET_TRY(const uint64_t workspace_bytes, check_room(own, static_cast<int64_t>(longest)));
  base::set_float_mode();
  try {
    return Encoding(own, what, sequences).run(workspace_bytes, progress);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kExhausted,
                "there is not enough memory to encode these sequences; use fewer or shorter ones");
  }
}

// In float64 and in order, so that the machine does not matter.
void normalize(std::vector<float>* vector) {
  double sum = 0;
  for (const float x : *vector) sum += static_cast<double>(x) * static_cast<double>(x);
  if (sum == 0) return;
  const double length = std::sqrt(sum);
  for (float& x : *vector) x = static_cast<float>(static_cast<double>(x) / length);
}

}  // namespace
}  // namespace engine

Result<std::vector<std::vector<float>>> encode(const Model& model,
                                               std::span<const std::vector<Token>> sequences,
                                               const ProgressFn& progress) {
  return engine::encode(model, engine::kRows, sequences, progress);
}

Result<std::vector<std::vector<float>>> embed(const Model& model,
                                              std::span<const std::vector<Token>> sequences,
                                              const EmbedOptions& options,
                                              const ProgressFn& progress) {
  CULET_TRY(std::vector<std::vector<float>> vectors,
            engine::encode(model, engine::kVectors, sequences, progress));
  if (options.normalize) {
    for (std::vector<float>& vector : vectors) engine::normalize(&vector);
  }
  return vectors;
}

}  // namespace culet
