// Costs of a model, and where its time goes.
//
// Takes a loaded model (or a session of it), gives numbers. Bytes and operations are counted from
// the plan and the backend's notes, not sampled: they say what a pass must read and compute at the
// least, so that bytes over seconds can be compared with what the machine reads at all. Times come
// from the executor itself, which adds them up while the ordinary passes run.
#include "culet/measure.h"

#include "base/check.h"
#include "engine/forward.h"
#include "engine/session_impl.h"
#include "quant/tensor_type.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <sys/mman.h>
#include <tuple>
#include <unistd.h>
#include <utility>

namespace culet {
namespace engine {
namespace {

using plan::OpKind;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool is_product(OpKind kind) {
  return kind == OpKind::linear || kind == OpKind::gated_linear || kind == OpKind::linear_add ||
         kind == OpKind::grouped_linear;
}

const format::TensorInfo* tensor(const model::LoadedModel& model, plan::TensorId id) {
  return id == plan::kNone ? nullptr : &model.tensors().at(id);
}

// Of the experts that one row chooses.
uint64_t expert_operations(const model::LoadedModel& model, const plan::Op& op) {
  uint64_t sum = 0;
  for (size_t i = 0; i < 4; ++i) {  // gate, up, gate_up, down: {in, out, experts}
    const format::TensorInfo* w = tensor(model, op.weights[i]);
    if (w != nullptr) sum += 2 * w->dims[0] * w->dims[1];
  }
  const plan::Value& routed = model.compiled.plan.values[static_cast<size_t>(op.in[1])];
  return sum * static_cast<uint64_t>(routed.width / 2);
}

// Of one row: 2 k n for each matrix.
uint64_t row_operations(const model::LoadedModel& model, const plan::Op& op) {
  if (op.kind == OpKind::experts) return expert_operations(model, op);
  if (!is_product(op.kind)) return 0;
  uint64_t sum = 0;
  for (const plan::TensorId id : op.weights) {
    const format::TensorInfo* w = tensor(model, id);
    if (w != nullptr && w->n_dims >= 2) sum += 2 * w->elements();
  }
  return sum;
}

bool outputs_only(const plan::Plan& plan, const plan::Op& op) {
  return !op.in.empty() &&
         plan.values[static_cast<size_t>(op.in[0])].rows == plan::TokenSet::kOutputs;
}

// Rows that the token at `position` sees.
int64_t visible(const plan::CacheSpec& cache, const cache::CacheOptions& options,
                int64_t position) {
  const cache::CacheWindow kept = cache::cache_window_of(cache, options);
  const int64_t rows = position + 1;
  return kept.full() ? rows : std::min(rows, kept.sinks + kept.window);
}

bool reads_cache(const plan::Op& op) {
  return op.kind == OpKind::attend && plan::cache_of(op) != plan::kNone;
}

// ---------------------------------------------------------------- the read loop

constexpr size_t kLeastBuffer = size_t{256} << 20, kMostBuffer = size_t{2} << 30;
constexpr double kSweepSeconds = 0.5;
constexpr int kLeastSweeps = 3;

size_t buffer_bytes() {
  const int64_t l3 = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
  return std::clamp(l3 > 0 ? 4 * static_cast<size_t>(l3) : 0, kLeastBuffer, kMostBuffer);
}

class Mapping {
 public:
  explicit Mapping(size_t bytes)
      : bytes_(bytes),
        data_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  ~Mapping() {
    if (data_ != MAP_FAILED) ::munmap(data_, bytes_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  uint64_t* data() const { return data_ == MAP_FAILED ? nullptr : static_cast<uint64_t*>(data_); }

 private:
  size_t bytes_;
  void* data_;
};

uint64_t sum_of(const uint64_t* p, size_t words) {
  typedef uint64_t Vector __attribute__((vector_size(16), aligned(16)));
  const auto* v = reinterpret_cast<const Vector*>(p);
  Vector s0{}, s1{}, s2{}, s3{};
  for (size_t i = 0; i < words / 2; i += 4) {  // a cache line
    __builtin_prefetch(v + i + 512);
    s0 += v[i];
    s1 += v[i + 1];
    s2 += v[i + 2];
    s3 += v[i + 3];
  }
  const Vector s = s0 + s1 + s2 + s3;
  return s[0] + s[1];
}

// ---------------------------------------------------------------- the profile

// What a phase ran: rows [first, first + rows) in passes of at most ubatch_size, logits of the last
// `logits` of them.
struct Passes {
  int64_t first = 0, rows = 0, ubatch_size = 1, logits = 0;
  cache::CacheOptions caches;

  int64_t count() const { return (rows + ubatch_size - 1) / ubatch_size; }
};

// The rows of one pass share what they read.
void count_attention(const plan::Op& op, const plan::CacheSpec& cache, bool wanted, const Passes& p,
                     OpTime* time) {
  const uint64_t row_bytes = cache::shape_of(cache, p.caches).token_bytes();
  uint64_t pairs = 0;
  for (int64_t i = wanted ? p.rows - p.logits : 0; i < p.rows; ++i) {
    const auto rows = static_cast<uint64_t>(visible(cache, p.caches, p.first + i));
    pairs += rows;
    if ((i + 1) % p.ubatch_size == 0 || i + 1 == p.rows) time->bytes += row_bytes * rows;
  }
  time->operations += 2 * pairs *
                      static_cast<uint64_t>(op.attr.as<plan::AttendAttributes>().heads) *
                      static_cast<uint64_t>(cache.head_dim + cache.value_dim);
}

// Adds what op `index` read and computed. chosen_bytes: weights that its rows chose.
void count(const model::LoadedModel& model, size_t index, const Passes& p, uint64_t chosen_bytes,
           OpTime* time) {
  const plan::Plan& plan = model.compiled.plan;
  const plan::Op& op = plan.ops[index];
  const bool wanted = outputs_only(plan, op);
  const auto rows = static_cast<uint64_t>(wanted ? p.logits : p.rows);
  const uint64_t weight_bytes = model.executor->note(index).weight_bytes;
  const bool by_row = op.kind == OpKind::embed || op.kind == OpKind::gather;
  time->bytes += op.kind == OpKind::experts
                     ? chosen_bytes
                     : weight_bytes * (wanted || by_row ? rows : static_cast<uint64_t>(p.count()));
  time->operations += row_operations(model, op) * rows;
  if (!reads_cache(op)) return;
  count_attention(op, plan.caches[static_cast<size_t>(plan::cache_of(op))], wanted, p, time);
}

std::string source_of(const plan::Plan& plan, const plan::Op& op) {
  if (op.line <= 0 || static_cast<size_t>(op.line) >= plan.source.size()) return "";
  std::string text = plan.source[static_cast<size_t>(op.line)];
  text.erase(0, std::min(text.find_first_not_of(' '), text.size()));
  return text;
}

PhaseProfile phase(const model::LoadedModel& model, const Passes& p, double seconds,
                   const std::vector<backend::OpCost>& costs) {
  const plan::Plan& plan = model.compiled.plan;
  PhaseProfile result;
  result.tokens = p.rows;
  result.seconds = seconds;
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const plan::Op& op = plan.ops[i];
    if (model.executor->runs_with(i) == i) {
      OpTime time;
      time.op = i;
      time.layer = op.layer;
      time.line = op.line;
      time.names = plan::op_name(op.kind);
      time.kernel = model.executor->note(i).kernel;
      time.source = source_of(plan, op);
      time.seconds = costs[i].seconds;
      result.ops.push_back(std::move(time));
    } else {
      OpTime& time = result.ops.back();
      time.names += " + " + std::string(plan::op_name(op.kind));
      if (op.line != time.line) time.source += fmt::format(" (with line {})", op.line);
    }
    count(model, i, p, costs[i].chosen_bytes, &result.ops.back());
  }
  return result;
}

}  // namespace
}  // namespace engine

Costs costs(const Model& model) {
  const model::LoadedModel& loaded = model.impl().loaded();
  const plan::Plan& plan = loaded.compiled.plan;
  Costs costs;
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const plan::Op& op = plan.ops[i];
    if (loaded.executor) costs.token_bytes += loaded.executor->note(i).weight_bytes;
    const uint64_t operations = engine::row_operations(loaded, op);
    (engine::outputs_only(plan, op) ? costs.logits_operations : costs.row_operations) += operations;
    if (engine::is_product(op.kind)) {
      costs.logits_type = quant::type_info(engine::tensor(loaded, op.weights[0])->type).name;
    }
  }
  return costs;
}

uint64_t kv_bytes_read(const Model& model, const SessionOptions& options, int64_t position) {
  const cache::CacheOptions caches = engine::cache_options(options);
  const plan::Plan& plan = model.impl().loaded().compiled.plan;
  uint64_t bytes = 0;
  for (const plan::Op& op : plan.ops) {
    if (!engine::reads_cache(op)) continue;
    const plan::CacheSpec& cache = plan.caches[static_cast<size_t>(plan::cache_of(op))];
    bytes += cache::shape_of(cache, caches).token_bytes() *
             static_cast<uint64_t>(engine::visible(cache, caches, position));
  }
  return bytes;
}

Result<double> read_bandwidth(const Model& model) {
  base::ThreadPool* pool = model.impl().loaded().pool.get();
  if (pool == nullptr) {
    return fail(ErrorCode::kInvalidArgument,
                "the model was loaded with text_only, so it has no threads to measure with; load "
                "it without");
  }
  const size_t bytes = engine::buffer_bytes();
  const engine::Mapping buffer(bytes);
  if (buffer.data() == nullptr) {
    return fail(ErrorCode::kExhausted,
                fmt::format("measuring the read bandwidth needs {} MiB of memory, which are not "
                            "available; close other programs",
                            bytes >> 20));
  }
  const size_t words = bytes / sizeof(uint64_t);
  const auto parts = static_cast<size_t>(pool->size());
  const auto first = [&](size_t part) { return words / 8 * part / parts * 8; };  // whole lines
  std::vector<uint64_t> sums(8 * parts);                                         // a line for each
  pool->run(static_cast<int64_t>(parts), [&](int64_t part, int) {
    const auto p = static_cast<size_t>(part);
    for (size_t i = first(p); i < first(p + 1); ++i) buffer.data()[i] = i;
  });
  double best = 0;
  const double start = engine::now();
  for (int sweep = 0; sweep < engine::kLeastSweeps || engine::now() - start < engine::kSweepSeconds;
       ++sweep) {
    const double before = engine::now();
    pool->run(static_cast<int64_t>(parts), [&](int64_t part, int) {
      const auto p = static_cast<size_t>(part);
      sums[8 * p] += engine::sum_of(buffer.data() + first(p), first(p + 1) - first(p));
    });
    best = std::max(best, static_cast<double>(bytes) / (engine::now() - before));
  }
  CULET_CHECK(std::any_of(sums.begin(), sums.end(), [](uint64_t s) { return s != 0; }));
  return best;
}

Result<Profile> profile(Session& session, std::span<const Token> prompt,
                        std::span<const Token> continuation, const ProgressFn& progress) {
  const engine::ModelImpl& model = session.model().impl();
  const size_t ops = model.loaded().compiled.plan.ops.size();
  const uint64_t all = prompt.size() + continuation.size();
  const auto append = [&session](std::span<const Token> tokens, const ProgressFn& on_progress,
                                 std::vector<backend::OpCost>* costs) {
    const AppendItem item{&session, tokens};
    return engine::append_measured({&item, 1}, on_progress, *costs)[0];
  };
  engine::Passes passes;
  passes.first = session.length();
  passes.rows = static_cast<int64_t>(prompt.size());
  passes.caches = engine::cache_options(session.options());
  passes.ubatch_size = model.executor().limits().tokens;
  passes.logits = std::min<int64_t>(passes.rows, 1);
  Profile result;
  std::vector<backend::OpCost> costs(ops);
  double start = engine::now();
  const auto on_prompt = [&](const Progress& p) {
    return !progress || progress({"profile", p.done, all});
  };
  CULET_TRY_VOID(append(prompt, on_prompt, &costs));
  result.prefill = engine::phase(model.loaded(), passes, engine::now() - start, costs);

  passes.first += passes.rows;
  passes.ubatch_size = 1;
  passes.rows = passes.logits = static_cast<int64_t>(continuation.size());
  costs.assign(ops, {});
  start = engine::now();
  for (size_t i = 0; i < continuation.size(); ++i) {
    CULET_TRY_VOID(append(continuation.subspan(i, 1), {}, &costs));
    if (progress && !progress({"profile", prompt.size() + i + 1, all})) {
      return fail(ErrorCode::kCancelled, "stopped on request");
    }
  }
  result.decode = engine::phase(model.loaded(), passes, engine::now() - start, costs);
  return result;
}

}  // namespace culet
