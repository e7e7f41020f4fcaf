// Speed of the kernels on the shapes of small models: Gop/s of matrix-matrix products, GB/s of
// matrix-vector products beside a plain read loop in the same run, attention, row kernels.
//
// The second argument of each matrix benchmark is the number of threads (CULET_THREADS, else 2);
// work is split over groups of outputs as the engine does. One thread is measured by its processor
// time, which a busy machine does not stretch. CULET_ISA forces a level, as in the engine.
#include "kernels/attention_test_data.h"

#include <benchmark/benchmark.h>

#include <atomic>
#include <cstdlib>
#include <thread>

namespace culet::kernels {
namespace {

using namespace test;  // NOLINT

const Kernels& table() {
  static const Kernels kernels = [] {
    Kernels k;
    const char* isa = std::getenv("CULET_ISA");
    if (const char* why = select_kernels(isa, &k)) {
      std::fprintf(stderr, "CULET_ISA=%s %s\n", isa, why);
      std::exit(2);
    }
    return k;
  }();
  return kernels;
}

// A pool that spins: a benchmark of microseconds must not measure how threads are started.
class Pool {
 public:
  explicit Pool(int threads) : threads_(threads) {
    for (int i = 1; i < threads; i++) workers_.emplace_back([this, i] { work(i); });
  }
  ~Pool() {
    stop_ = true;
    round_++;
    for (std::thread& t : workers_) t.join();
  }
  template <class F>
  void run(const F& f) {
    job_ = [](const void* p, int i, int n) { (*static_cast<const F*>(p))(i, n); };
    data_ = &f;
    left_ = threads_ - 1;
    round_++;
    f(0, threads_);
    while (left_.load() > 0) __builtin_ia32_pause();
  }

 private:
  void work(int index) {
    for (int seen = 0;;) {
      while (round_.load() == seen) __builtin_ia32_pause();
      seen++;
      if (stop_) return;
      job_(data_, index, threads_);
      left_--;
    }
  }
  int threads_;
  std::atomic<int> round_{0}, left_{0};
  std::atomic<bool> stop_{false};
  void (*job_)(const void*, int, int) = nullptr;
  const void* data_ = nullptr;
  std::vector<std::thread> workers_;
};

// Each thread takes a contiguous run of groups.
void matmul(benchmark::State& state, TensorType type, int64_t k, int64_t n, bool precise) {
  const int64_t rows = state.range(0);
  std::mt19937 rng(1);
  const Matrix m(type, n, k, rng);
  const std::vector<float> x = random_floats(rows * k, rng);
  const Rows a(table(), x, rows, k);
  std::vector<float> out(rows * n);
  Pool pool(static_cast<int>(state.range(1)));
  const int64_t groups = (n + 15) / 16;
  for (auto _ : state)
    pool.run([&](int i, int count) {
      const int64_t g0 = groups * i / count, g1 = groups * (i + 1) / count;
      if (precise)
        table().matmul_f[m.view.type](&m.view, x.data(), k, 0, rows, g0, g1, out.data() + g0 * 16,
                                      n);
      else
        table().matmul_q[m.view.type](&m.view, &a.view, 0, rows, g0, g1, out.data() + g0 * 16, n);
    });
  const double runs = static_cast<double>(state.iterations());
  using benchmark::Counter;
  state.counters["Gop/s"] = Counter(2.0 * rows * k * n * runs / 1e9, Counter::kIsRate);
  state.counters["GB/s"] =
      Counter(double(groups) * m.view.group_bytes * runs / 1e9, Counter::kIsRate);
}

void read_loop(benchmark::State& state) {
  const size_t bytes = size_t{192} << 20;
  Buffer data(bytes);
  Pool pool(static_cast<int>(state.range(0)));
  for (auto _ : state)
    pool.run([&](int i, int count) {
      typedef uint64_t Vector __attribute__((vector_size(16)));
      const Vector* p = reinterpret_cast<const Vector*>(data.data());
      Vector s0 = {}, s1 = {}, s2 = {}, s3 = {};
      for (size_t j = bytes / 64 * i / count; j < bytes / 64 * (i + 1) / count; j++) {
        __builtin_prefetch(p + j * 4 + 512);
        s0 += p[j * 4];
        s1 += p[j * 4 + 1];
        s2 += p[j * 4 + 2];
        s3 += p[j * 4 + 3];
      }
      Vector sum = s0 + s1 + s2 + s3;
      benchmark::DoNotOptimize(sum);
    });
  state.counters["GB/s"] =
      benchmark::Counter(double(bytes) * state.iterations() / 1e9, benchmark::Counter::kIsRate);
}

// One layer's attention of one kv head: rows at the end of a context.
void attention(benchmark::State& state, int32_t heads, int32_t dim, KvType type) {
  const AttentionShape s{.rows = state.range(0),
                         .length = state.range(1),
                         .heads_per_kv = heads,
                         .kv_heads = 1,
                         .head_dim = dim,
                         .value_dim = dim,
                         .k_type = type,
                         .v_type = type};
  const AttentionCase c(s, 1);
  const int64_t pairs = s.rows * heads;
  std::vector<float> m(pairs), l(pairs), acc(pairs * dim);
  for (auto _ : state)
    for (int64_t part = 0; part * kPartKeys < s.length; part++)
      table().attend_part(&c.args, part, m.data(), l.data(), acc.data());
  double keys = 0;
  for (int64_t p : c.positions) keys += double(p + 1);
  state.counters["Gflop/s"] = benchmark::Counter(keys * heads * 4 * dim * state.iterations() / 1e9,
                                                 benchmark::Counter::kIsRate);
}

void rows(benchmark::State& state) {
  const int64_t n = state.range(0);
  std::mt19937 rng(1);
  const std::vector<float> x = random_floats(n, rng);
  std::vector<float> y(n);
  Rows a(table(), x, 1, n);
  double sum, weighted;
  for (auto _ : state) {
    switch (state.range(1)) {
      case 0:
        table().rms_norm(x.data(), x.data(), 1e-6f, n, y.data());
        break;
      case 1:
        table().quantize(x.data(), 1, n, 0, &a.view);
        break;
      case 2:
        table().unary(kSilu, x.data(), n, y.data());
        break;
      case 3:
        table().unary(kGelu, x.data(), n, y.data());
        break;
      case 4:
        table().exp_sums(x.data(), 3.0f, n, &sum, &weighted);
        break;
    }
  }
  static const char* const kNames[] = {"rms_norm", "quantize", "silu", "gelu", "exp_sums"};
  state.SetLabel(kNames[state.range(1)]);
  state.counters["Gvalue/s"] =
      benchmark::Counter(double(n) * state.iterations() / 1e9, benchmark::Counter::kIsRate);
}

void register_matmul(const std::string& name, TensorType type, int64_t k, int64_t n, bool precise,
                     std::vector<int64_t> row_counts) {
  auto* b = benchmark::RegisterBenchmark(
      (name + "/" + type_name(type) + "/" + std::to_string(k) + "x" + std::to_string(n)).c_str(),
      [=](benchmark::State& state) { matmul(state, type, k, n, precise); });
  const char* threads = std::getenv("CULET_THREADS");
  const int64_t count = threads ? std::max(1, std::atoi(threads)) : 2;
  for (int64_t r : row_counts) b->Args({r, count});
  if (count > 1) b->UseRealTime();
}

void register_all() {
  const std::vector<TensorType> types = {TensorType::Q4_K, TensorType::Q4_1, TensorType::Q4_0,
                                         TensorType::Q5_0, TensorType::Q6_K, TensorType::Q8_0};
  for (TensorType type : types)
    for (auto [k, n] : {std::pair{576, 1536}, {640, 2048}, {896, 4864}})
      register_matmul(
          "gemm", type,
          type == TensorType::Q4_K || type == TensorType::Q6_K ? (k + 255) / 256 * 256 : k, n,
          false, {512});
  for (TensorType type : {TensorType::Q4_K, TensorType::Q4_1, TensorType::Q5_0, TensorType::Q8_0})
    register_matmul("rows", type, 1024, 4864, false, {2, 3, 4, 5, 7, 8, 9, 12, 16, 32});
  benchmark::RegisterBenchmark("read_loop", read_loop)->Arg(1)->Arg(2)->UseRealTime();
  for (TensorType type : types) register_matmul("gemv", type, 2048, 131072, false, {1});
  register_matmul("precise", TensorType::F32, 640, 2048, true, {1, 512});
  register_matmul("precise", TensorType::Q4_K, 768, 2048, true, {1, 512});
  const struct {
    const char* name;
    int32_t heads, dim;
  } kHeads[] = {{"smollm2", 3, 64}, {"qwen2.5", 7, 64}, {"gemma3", 4, 256}};
  const struct {
    const char* name;
    KvType type;
  } kTypes[] = {{"", kKvF16}, {"/f32", kKvF32}, {"/bf16", kKvBf16}, {"/q8_0", kKvQ8}};
  for (auto [suffix, type] : kTypes)
    for (auto [name, heads, dim] : kHeads)
      benchmark::RegisterBenchmark(
          (std::string("attention/") + name + suffix).c_str(),
          [=](benchmark::State& state) { attention(state, heads, dim, type); })
          ->Args({512, 512})
          ->Args({1, 512})
          ->Args({1, 4096});
  benchmark::RegisterBenchmark("rows", rows)->ArgsProduct({{640, 2048, 262144}, {0, 1, 2, 3, 4}});
}

}  // namespace
}  // namespace culet::kernels

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  std::printf("level %s\n", culet::kernels::table().isa);
  culet::kernels::register_all();
  benchmark::RunSpecifiedBenchmarks();
}
