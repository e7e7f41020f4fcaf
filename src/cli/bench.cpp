// culet bench: tokens per second at chosen depths, beside what the machine can do.
//
// For each depth a session is brought to that many tokens (not timed), then `prompt` tokens are
// appended at once, or `generated` tokens one by one, and the session goes back to the depth for
// the next repetition. Token ids are random but always the same. Only the last row of a prompt has
// logits; a decoded token costs its logits too, but nothing is sampled or turned into text. The
// read bandwidth is measured last, so that its buffer does not count as the model's memory.
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "culet/measure.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <span>

namespace culet::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kBusyLoad = 0.5;  // average of processes that want to run, the last minute

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// 0: not known.
double load_average() {
  std::ifstream in("/proc/loadavg");
  double load = 0;
  return in >> load ? load : 0;
}

// The most memory that was resident at one time, of this process alone.
uint64_t peak_memory_bytes() {
  std::ifstream in("/proc/self/status");
  uint64_t kilobytes = 0;
  for (std::string word; in >> word;) {
    if (word == "VmHWM:") in >> kilobytes;
  }
  return kilobytes << 10;
}

// Tokens per second of the repetitions.
struct Rates {
  std::vector<double> all;
  bool empty() const { return all.empty(); }
  double min() const { return *std::min_element(all.begin(), all.end()); }
  double max() const { return *std::max_element(all.begin(), all.end()); }
  double median() const {
    std::vector<double> sorted = all;
    std::sort(sorted.begin(), sorted.end());
    const size_t half = sorted.size() / 2;
    return sorted.size() % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
  }
};

struct DepthResult {
  int64_t depth = 0;
  Rates prefill, decode;
  uint64_t peak_memory = 0;
};

struct Machine {
  double load_seconds = 0, load_average = 0, read_bytes_per_second = 0;
};

// ---------------------------------------------------------------- measuring

class Bench {
 public:
  Bench(std::shared_ptr<const Model> model, const BenchArguments& arguments)
      : model_(std::move(model)), arguments_(arguments), status_(true) {}

  Result<DepthResult> run(int64_t depth) {
    DepthResult result;
    result.depth = depth;
    const int64_t longest = std::max(arguments_.prompt, arguments_.generated);
    tokens_ = fixed_random_tokens(depth + longest, model_->info().vocabulary_size);
    CULET_TRY(session_, Session::make(model_, arguments_.kv.options(depth + longest)));
    CULET_TRY_VOID(warm_up());
    for (int64_t r = 1; r <= arguments_.repetitions; ++r) {
      status_.show(fmt::format("Depth {}: repetition {} of {}", depth, r, arguments_.repetitions));
      CULET_TRY_VOID(timed(depth, arguments_.prompt, arguments_.prompt, &result.prefill));
      CULET_TRY_VOID(timed(depth, arguments_.generated, 1, &result.decode));
    }
    result.peak_memory = peak_memory_bytes();
    status_.clear();
    return result;
  }

 private:
  Result<void> append(int64_t first, int64_t count) {
    return session_->append(
        std::span(tokens_).subspan(static_cast<size_t>(first), static_cast<size_t>(count)),
        [this](const Progress&) { return !interrupt_.interrupted(); });
  }

  // What only the first pass pays for: pages of the workspace, waking threads.
  Result<void> warm_up() {
    const auto all = static_cast<int64_t>(tokens_.size());
    CULET_TRY_VOID(append(0, std::min<int64_t>(all, 256)));
    session_->clear();
    return append(0, 1);
  }

  Result<void> go_to(int64_t depth) {
    if (depth > 0 && session_->rewind(depth)) return {};
    session_->clear();
    return append(0, depth);
  }

  // Appends `count` tokens behind the first `depth`, `step` at a time.
  Result<void> timed(int64_t depth, int64_t count, int64_t step, Rates* rates) {
    if (count == 0) return {};
    CULET_TRY_VOID(go_to(depth));
    const double start = now();
    for (int64_t at = 0; at < count; at += step) CULET_TRY_VOID(append(depth + at, step));
    rates->all.push_back(static_cast<double>(count) / (now() - start));
    return {};
  }

  std::shared_ptr<const Model> model_;
  const BenchArguments& arguments_;
  std::vector<Token> tokens_;
  std::unique_ptr<Session> session_;
  StatusLine status_;
  InterruptWatch interrupt_;
};

// ---------------------------------------------------------------- what follows from the rates

struct Derived {
  double prefill_gops = 0, decode_gbps = 0, decode_share = 0;
};

Derived derive(const Model& model, const BenchArguments& arguments, const Machine& machine,
               const DepthResult& result) {
  Derived derived;
  const Costs cost = costs(model);
  if (!result.prefill.empty()) {
    const double a_token =
        static_cast<double>(cost.row_operations) +
        static_cast<double>(cost.logits_operations) / static_cast<double>(arguments.prompt);
    derived.prefill_gops = a_token * result.prefill.median() / 1e9;
  }
  if (!result.decode.empty()) {
    double bytes = static_cast<double>(cost.token_bytes);
    for (int64_t i = 0; i < arguments.generated; ++i) {
      bytes += static_cast<double>(kv_bytes_read(model, arguments.kv.options(), result.depth + i)) /
               static_cast<double>(arguments.generated);
    }
    const double rate = bytes * result.decode.median();
    derived.decode_gbps = rate / 1e9;
    derived.decode_share = rate / machine.read_bytes_per_second;
  }
  return derived;
}

void add_rates(const std::string& name, const Rates& rates, Json* json) {
  (*json)[name] = rates.empty() ? Json() : Json(rates.median());
  (*json)[name + "_min"] = rates.empty() ? Json() : Json(rates.min());
  (*json)[name + "_max"] = rates.empty() ? Json() : Json(rates.max());
}

Json to_json(const Model& model, const BenchArguments& arguments, const Machine& machine,
             const DepthResult& result) {
  const ModelInfo& info = model.info();
  const Derived derived = derive(model, arguments, machine, result);
  Json types = Json::object();
  for (const TensorTypeInfo& type : info.tensor_types) types[type.type] = type.tensors;
  Json json{{"model", info.name.empty() ? info.path : info.name},
            {"path", info.path},
            {"architecture", info.architecture},
            {"file_bytes", info.file_bytes},
            {"tensor_types", types},
            {"logits_type", costs(model).logits_type},
            {"instruction_set", info.isa},
            {"threads", info.threads},
            {"precise", info.precise},
            {"kv", kv_name(arguments.kv)},
            {"culet", version()},
            {"depth", result.depth},
            {"prompt_tokens", arguments.prompt},
            {"generated_tokens", arguments.generated},
            {"repetitions", arguments.repetitions}};
  add_rates("prefill_tokens_per_s", result.prefill, &json);
  json["prefill_gop_per_s"] = result.prefill.empty() ? Json() : Json(derived.prefill_gops);
  add_rates("decode_tokens_per_s", result.decode, &json);
  json["decode_gb_per_s"] = result.decode.empty() ? Json() : Json(derived.decode_gbps);
  json["decode_share_of_read_bandwidth"] =
      result.decode.empty() ? Json() : Json(derived.decode_share);
  json["read_gb_per_s"] = machine.read_bytes_per_second / 1e9;
  json["load_seconds"] = machine.load_seconds;
  json["peak_memory_bytes"] = result.peak_memory;
  json["load_average"] = machine.load_average;
  return json;
}

std::string cell(const Rates& rates) {
  if (rates.empty()) return "-";
  return fmt::format("{:.1f} ({:.1f}..{:.1f})", rates.median(), rates.min(), rates.max());
}

std::string table(const Model& model, const BenchArguments& arguments, const Machine& machine,
                  const std::vector<DepthResult>& results) {
  const ModelInfo& info = model.info();
  std::string types;
  for (const TensorTypeInfo& type : info.tensor_types) {
    types += fmt::format("{}{} x {}", types.empty() ? "" : ", ", type.tensors, type.type);
  }
  std::string text = fmt::format(
      "model    {} ({}), {:.1f} MB: {}; logits by {}\n"
      "machine  {}, {} threads, {}; a plain read loop reaches {:.1f} GB/s\n"
      "load     {:.2f} s\n"
      "tokens per second: median (lowest..highest) of {}; prefill {} tokens, decode {}, {} "
      "cache\n\n",
      info.name.empty() ? info.path : info.name, info.architecture,
      static_cast<double>(info.file_bytes) / 1e6, types, costs(model).logits_type, info.isa,
      info.threads, info.precise ? "32-bit activations" : "8-bit activations",
      machine.read_bytes_per_second / 1e9, machine.load_seconds, arguments.repetitions,
      arguments.prompt, arguments.generated, kv_name(arguments.kv));
  text += fmt::format("{:>6}  {:>26}  {:>7}  {:>24}  {:>6}  {:>7}  {:>8}\n", "depth", "prefill/s",
                      "Gop/s", "decode/s", "GB/s", "of read", "peak MB");
  for (const DepthResult& result : results) {
    const Derived d = derive(model, arguments, machine, result);
    text += fmt::format("{:>6}  {:>26}  {:>7.1f}  {:>24}  {:>6.2f}  {:>5.1f} %  {:>8.1f}\n",
                        result.depth, cell(result.prefill), d.prefill_gops, cell(result.decode),
                        d.decode_gbps, d.decode_share * 100,
                        static_cast<double>(result.peak_memory) / 1e6);
  }
  return text;
}

// Before anything is measured, so that nobody waits for an error.
Result<void> check(const ModelInfo& info, const BenchArguments& arguments) {
  const int64_t longest = std::max(arguments.prompt, arguments.generated);
  const int64_t deepest = *std::max_element(arguments.depths.begin(), arguments.depths.end());
  if (longest == 0) {
    return fail(ErrorCode::kInvalidArgument, "-p 0 and -n 0 leave nothing to measure");
  }
  if (info.context_length == 0 || deepest + longest <= info.context_length) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{} tokens at depth {} need a context of {}, but {} was trained for {}; "
                          "use a smaller -d, -p or -n (for example -d 0)",
                          longest, deepest, deepest + longest, info.path, info.context_length));
}

void warn_when_busy(double load) {
  if (load < kBusyLoad) return;
  print_note(
      fmt::format("warning: this machine is busy (load average {:.1f}), so the numbers will "
                  "be too low and uneven; measure on an idle one",
                  load));
}

Result<int> bench(const BenchArguments& arguments, Output& out) {
  Machine machine;
  machine.load_average = load_average();
  warn_when_busy(machine.load_average);
  const double start = now();
  CULET_TRY(const auto model, load_model(arguments.model));
  if (model->info().kind != ModelKind::kDecoder) {
    return tl::unexpected(Session::make(model, {}).error());  // which says why not
  }
  machine.load_seconds = now() - start;
  CULET_TRY_VOID(check(model->info(), arguments));
  std::vector<DepthResult> results;
  {
    Bench bench(model, arguments);
    for (const int64_t depth : arguments.depths) {
      CULET_TRY(DepthResult result, bench.run(depth));
      print_note(fmt::format("depth {}: prefill {}, decode {} tokens/s", depth,
                             cell(result.prefill), cell(result.decode)));
      results.push_back(std::move(result));
    }
  }
  CULET_TRY(machine.read_bytes_per_second, read_bandwidth(*model));
  if (!arguments.json) {
    out.write(printable(table(*model, arguments, machine, results)));
    return kExitOk;
  }
  Json array = Json::array();
  for (const DepthResult& result : results) {
    array.push_back(to_json(*model, arguments, machine, result));
  }
  out.write(array.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  return kExitOk;
}

}  // namespace

std::vector<Token> fixed_random_tokens(int64_t count, int64_t vocabulary) {
  std::vector<Token> tokens(static_cast<size_t>(count));
  uint64_t state = 1;
  for (Token& token : tokens) {  // the constants are Knuth's MMIX generator
    state = state * 6364136223846793005u + 1442695040888963407u;
    token = static_cast<Token>((state >> 33) % static_cast<uint64_t>(vocabulary));
  }
  return tokens;
}

Result<int> bench_command(const BenchArguments& arguments, Output& out) {
  auto status = bench(arguments, out);
  if (!status && status.error().code == ErrorCode::kCancelled) {
    print_note("stopped; nothing was printed because the measurement is not complete");
    return kExitInterrupted;
  }
  return status;
}

}  // namespace culet::cli
