// Which pages of the model file a process holds: none of a matrix that was repacked, all of those
// that were not, and those are the ones that other processes hold too.
#include "backend/cpu/test_model.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sys/wait.h>
#include <unistd.h>

namespace culet::backend::test {
namespace {

constexpr int32_t kChainVocabulary = 4096, kChainWidth = 2048, kChainLayers = 4;
// Of n outputs in Q8_0.
constexpr uint64_t bytes_of(int64_t n) { return static_cast<uint64_t>(n) * kChainWidth / 32 * 34; }
constexpr uint64_t kTable = bytes_of(kChainVocabulary),
                   kProducts = bytes_of(kChainWidth) * kChainLayers;
// What is touched comes with its surroundings: the kernel maps whole folios of the page cache,
// which may be of 2 MiB. One such at the header, one at a row of the table, and one to spare.
constexpr uint64_t kFew = uint64_t{6} << 20;
static_assert(kFew * 5 < kProducts * 2 && kFew * 5 < kTable * 4);

enum class ChainKind { kPlain, kTied, kGathers };

// x = embed; x = x * W, four times. 17 MiB of products, a table of 8.5 MiB. Tied: then x * table.
// Gathers: x = embed + gather of another such table.
class Chain {
 public:
  explicit Chain(ChainKind what = ChainKind::kPlain) {
    const bool tied = what == ChainKind::kTied;
    std::string pattern =
        (std::filesystem::temp_directory_path() / "culet-weights-XXXXXX").string();
    if (!::mkdtemp(pattern.data())) std::abort();
    folder_ = pattern;
    const TensorId table = model.matrix(TensorType::Q8_0, kChainVocabulary, kChainWidth);
    ValueId x = model.value({kChainWidth});
    model.op(OpKind::embed, {}, {x}, {table});
    if (what == ChainKind::kGathers) {
      const ValueId g = model.value({kChainWidth}), sum = model.value({kChainWidth});
      model.op(OpKind::gather, {}, {g},
               {model.matrix(TensorType::Q8_0, kChainVocabulary, kChainWidth)});
      model.op(OpKind::arithmetic, {x, g}, {sum});
      x = sum;
    }
    for (int layer = 0; layer < kChainLayers; ++layer) {
      const TensorId w = model.matrix(TensorType::Q8_0, kChainWidth, kChainWidth);
      const ValueId q = model.value({kChainWidth}, TokenSet::kAll, Form::kQuantized);
      model.op(OpKind::quantize, {x}, {q});
      x = model.value({kChainWidth});
      model.op(OpKind::linear, {q}, {x}, {w, plan::kNone});
    }
    if (tied) {  // the output matrix is the table
      const ValueId q = model.value({kChainWidth}, TokenSet::kAll, Form::kQuantized);
      model.op(OpKind::quantize, {x}, {q});
      x = model.value({kChainVocabulary});
      model.op(OpKind::linear, {q}, {x}, {table, plan::kNone});
    }
    const ValueId y = model.value({tied ? kChainVocabulary : kChainWidth}, TokenSet::kOutputs);
    model.op(OpKind::select_rows, {x}, {y});
    model.plan.outputs.push_back({"y", y});
    model.finish();
    model.map(folder_ + "/m.gguf");
  }
  ~Chain() { std::filesystem::remove_all(folder_); }
  Chain(const Chain&) = delete;
  Chain& operator=(const Chain&) = delete;

  std::unique_ptr<Executor> prepare(base::ThreadPool& pool, const kernels::Kernels& kernels,
                                    bool repack) const {
    PrepareOptions options;
    options.repack = repack;
    auto made = Executor::prepare(model.plan, model.file, kernels, pool, options);
    EXPECT_TRUE(made) << made.error().message;
    CULET_CHECK(made.has_value());
    return std::move(*made);
  }
  std::vector<float> run(const Executor& executor) const {
    const WorkspacePtr workspace = executor.make_workspace();
    return run(executor, *workspace, 7);
  }
  std::vector<float> run(const Executor& executor, Workspace& workspace, int32_t token) const {
    auto set = cache::CacheSet::make(model.plan, {});
    CULET_CHECK(set.has_value());
    const std::vector<int32_t> tokens{token}, wanted{0};
    const SequenceChunk sequence{set->get(), 0, tokens, wanted};
    CULET_CHECK(executor.run(workspace, {&sequence, 1}).has_value());
    const auto y = executor.output(workspace, "y");
    return {y.begin(), y.end()};
  }

  // A field of the mapping of the file in /proc/self/smaps, in bytes. Where parts of the file have
  // advice of their own: of the part that has the middle of this tensor.
  uint64_t mapped(const std::string& field, size_t tensor = 0) const {
    const format::TensorInfo& t = model.file.tensors()[tensor];
    const auto address = reinterpret_cast<uintptr_t>(t.data) + t.bytes / 2;
    std::ifstream maps("/proc/self/smaps");
    std::string line;
    bool inside = false;
    while (std::getline(maps, line)) {
      unsigned long long from = 0, to = 0, kibibytes = 0;
      if (std::sscanf(line.c_str(), "%llx-%llx ", &from, &to) == 2) {
        inside = from <= address && address < to;
      } else if (inside && line.rfind(field + ":", 0) == 0 &&
                 std::sscanf(line.c_str() + field.size() + 1, "%llu", &kibibytes) == 1) {
        return uint64_t{kibibytes} << 10;
      }
    }
    ADD_FAILURE() << "/proc/self/smaps has no " << field << " of the mapping";
    return 0;
  }

  TestModel model{21};

 private:
  std::string folder_;
};

// Requirement files.mapping "mapping": repacked weights replace their pages; with `--no-repack`
// processes share them
// Requirement reports-loading.llama.cpp#12149 "ggml-org/llama.cpp#12149, #16761, #19578: repacking
// beside a mapping doubles the memory": the source's pages are released tensor by tensor; what will
// be needed is told and checked before
TEST(Residency, PagesOfRepackedMatricesAreReleased) {
  const Chain chain;
  base::ThreadPool pool(2);
  const kernels::Kernels kernels = kernel_table();
  const auto executor = chain.prepare(pool, kernels, true);
  EXPECT_GE(executor->packed_bytes(), kProducts);
  EXPECT_LE(chain.mapped("Rss"), kFew);
  const std::vector<float> first = chain.run(*executor);
  EXPECT_LE(chain.mapped("Rss"), kFew);
  EXPECT_EQ(chain.mapped("Anonymous"), 0u);
  EXPECT_EQ(chain.run(*executor), first);
}

// Its table is packed for the products, and of its mapping only looked-up rows are there.
// Requirement reports-loading.llama.cpp#20396 "ggml-org/llama.cpp#20396: a tied embedding kept
// twice": packed once; of the mapping only the rows that are looked up come back, as pages that the
// system may drop
// Verifies language.alternative-tensor.
TEST(Residency, ATiedEmbeddingIsNotKeptTwice) {
  const Chain chain(ChainKind::kTied);
  base::ThreadPool pool(2);
  const kernels::Kernels kernels = kernel_table();
  const auto executor = chain.prepare(pool, kernels, true);
  EXPECT_GE(executor->packed_bytes(), kProducts + kTable);
  EXPECT_LE(chain.mapped("Rss"), kFew);
  const std::vector<float> first = chain.run(*executor);
  EXPECT_LE(chain.mapped("Rss"), kFew);
  EXPECT_EQ(chain.run(*executor), first);
}

// An endless text looks up every row of a table sooner or later; their pages do not add up.
// Verifies memory.memory-known-in-advance.
TEST(Residency, RowsOfALongTextDoNotStay) {
  const Chain chain;
  base::ThreadPool pool(2);
  const kernels::Kernels kernels = kernel_table();
  const auto executor = chain.prepare(pool, kernels, true);
  const WorkspacePtr workspace = executor->make_workspace();
  const std::vector<float> first = chain.run(*executor, *workspace, 7);
  uint64_t least = UINT64_MAX;
  for (int32_t i = 0; i < 600; ++i) {
    chain.run(*executor, *workspace, static_cast<int32_t>(i * 7919 % kChainVocabulary));
    if (i >= 300) least = std::min(least, chain.mapped("Rss"));
  }
  EXPECT_LE(least, kFew);
  EXPECT_EQ(chain.run(*executor, *workspace, 7), first);
}

// The second table has a mapping of its own from prepare() on, which is not read ahead.
TEST(Residency, OfAGatheredTableOnlyRowsAreThere) {
  const Chain chain(ChainKind::kGathers);
  base::ThreadPool pool(2);
  const kernels::Kernels kernels = kernel_table();
  for (const bool repack : {true, false}) {
    const auto executor = chain.prepare(pool, kernels, repack);
    EXPECT_LE(executor->packed_bytes(), repack ? kProducts + 4096 : 64u);
    EXPECT_LE(chain.mapped("Size", 1), kTable);
    EXPECT_GE(chain.mapped("Size", 1), kTable - 8192);
    const std::vector<float> first = chain.run(*executor);
    EXPECT_GT(chain.mapped("Rss", 1), 0u);
    EXPECT_LE(chain.mapped("Rss", 1), kFew);
    EXPECT_EQ(chain.run(*executor), first);
  }
}

// Verifies files.mapping.
TEST(Residency, WithoutRepackingNothingIsCopied) {
  const Chain chain;
  base::ThreadPool pool(2);
  const kernels::Kernels kernels = kernel_table();
  const auto packed = chain.prepare(pool, kernels, true);
  const auto executor = chain.prepare(pool, kernels, false);
  EXPECT_LE(executor->packed_bytes(), 64u);
  const std::vector<float> y = chain.run(*executor);
  EXPECT_GE(chain.mapped("Rss"), kProducts);
  EXPECT_EQ(chain.mapped("Anonymous"), 0u);
  EXPECT_EQ(chain.run(*packed), y);
}

// A child process runs the same model; while it lives, the pages here are counted as shared.
// Verifies files.mapping.
TEST(Residency, ProcessesShareThePagesOfWhatIsNotRepacked) {
  const Chain chain;
  const kernels::Kernels kernels = kernel_table();
  int ready[2], go[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::pipe(go), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  char byte = 0;
  if (child == 0) {
    ::close(go[1]);
    base::ThreadPool pool(1);
    const auto executor = chain.prepare(pool, kernels, false);
    chain.run(*executor);
    if (::write(ready[1], "r", 1) != 1) ::_exit(1);
    ::_exit(::read(go[0], &byte, 1) == 0 ? 0 : 1);  // until the parent is done
  }
  ::close(ready[1]);
  ::close(go[0]);
  EXPECT_EQ(::read(ready[0], &byte, 1), 1);
  {
    base::ThreadPool pool(1);
    const auto executor = chain.prepare(pool, kernels, false);
    chain.run(*executor);
    EXPECT_GE(chain.mapped("Shared_Clean") + chain.mapped("Shared_Dirty"), kProducts);
    EXPECT_LE(chain.mapped("Pss"), chain.mapped("Rss") * 6 / 10);
  }
  ::close(go[1]);
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ::close(ready[0]);
}

}  // namespace
}  // namespace culet::backend::test
