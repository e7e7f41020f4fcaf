// A real header, damaged at random: every truncation and every flipped byte is refused with a
// sentence, or the model loads and runs a token. No case may take longer than a second or allocate
// more than a small multiple of the file's size.
#include "format/gguf.h"
#include "support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <malloc.h>
#include <new>
#include <random>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CULET_COUNTS_ALLOCATIONS 0  // the sanitizer's own allocator must stay
#else
#define CULET_COUNTS_ALLOCATIONS 1
#endif

namespace {

std::atomic<size_t> live_bytes{0}, peak_bytes{0};

}  // namespace

#if CULET_COUNTS_ALLOCATIONS
namespace {

void* counted(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  const size_t now = live_bytes += malloc_usable_size(memory);
  size_t peak = peak_bytes;
  while (now > peak && !peak_bytes.compare_exchange_weak(peak, now)) {
  }
  return memory;
}

void uncounted(void* memory) {
  if (memory == nullptr) return;
  live_bytes -= malloc_usable_size(memory);
  std::free(memory);
}

}  // namespace

void* operator new(size_t size) { return counted(std::malloc(std::max<size_t>(size, 1))); }
void* operator new(size_t size, std::align_val_t alignment) {
  const auto a = static_cast<size_t>(alignment);
  return counted(std::aligned_alloc(a, (std::max<size_t>(size, 1) + a - 1) / a * a));
}
void operator delete(void* memory) noexcept { uncounted(memory); }
void operator delete(void* memory, size_t) noexcept { uncounted(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { uncounted(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { uncounted(memory); }
#endif

namespace culet::test {
namespace {

namespace fs = std::filesystem;

constexpr bool kPlain = CULET_COUNTS_ALLOCATIONS != 0;
constexpr int kTruncations = kPlain ? 1000 : 100;
constexpr int kFlips = kPlain ? 10000 : 500;
constexpr size_t kFileMultiple = 8;          // of the file's size
constexpr size_t kAnyway = size_t{8} << 20;  // architecture files, the plan, a pass

class Damaged : public testing::Test {
 protected:
  void SetUp() override {
    std::ifstream in(golden("tiny/llama/model-q8_0.gguf"), std::ios::binary);
    good_.assign(std::istreambuf_iterator<char>(in), {});
    const auto file = format::GgufFile::parse(std::as_bytes(std::span(good_)), "good");
    ASSERT_TRUE(file);
    for (const format::TensorInfo& tensor : file->tensors()) {
      header_ = std::min<size_t>(header_, static_cast<size_t>(tensor.data - as_bytes()));
    }
    ASSERT_LT(header_, good_.size());
    path_ = testing::TempDir() + "/damaged-" +
            testing::UnitTest::GetInstance()->current_test_info()->name() + ".gguf";
  }
  void TearDown() override { fs::remove(path_); }

  const std::byte* as_bytes() const { return reinterpret_cast<const std::byte*>(good_.data()); }
  void write(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
  }

  // Loads and runs; `what` describes the damage.
  void expect_survives(const std::string& what) {
    const auto start = std::chrono::steady_clock::now();
    const size_t before = live_bytes;
    peak_bytes = before;
    {
      const auto model = Model::load(path_, {.threads = 1, .ubatch_size = 16});
      if (model) {
        run(*model);
      } else {
        ++refused_;
        EXPECT_FALSE(model.error().message.empty()) << what;
        EXPECT_EQ(model.error().message.find('\n'), std::string::npos) << model.error().message;
      }
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    slowest_ = std::max(slowest_, seconds.count());
    most_ = std::max(most_, peak_bytes - before);
    EXPECT_LT(seconds.count(), kPlain ? 1 : 20) << what;
    EXPECT_LE(peak_bytes - before, kFileMultiple * good_.size() + kAnyway) << what;
  }

  void run(const std::shared_ptr<const Model>& model) {
    ++loaded_;
    EXPECT_LE(model->info().packed_bytes, 2 * good_.size());
    const auto made = Session::make(model, {});
    if (!made) return;
    const Token token = 5;
    const auto appended = (*made)->append({&token, 1});
    if (!appended) {
      EXPECT_FALSE(appended.error().message.empty());
    }
  }

  void report() const {
    std::printf("%d refused, %d loaded, slowest %.3f s, most memory %zu bytes, file %zu bytes\n",
                refused_, loaded_, slowest_, most_, good_.size());
  }

  std::string good_, path_;
  size_t header_ = SIZE_MAX;
  int refused_ = 0, loaded_ = 0;
  double slowest_ = 0;
  size_t most_ = 0;
};

// Verifies files.gguf-safety, reports-loading.ollama#17042.
TEST_F(Damaged, Truncations) {
  std::mt19937_64 random(1);
  for (int i = 0; i < kTruncations; ++i) {
    // Most of them inside the header, and all of its first bytes.
    const size_t most = i % 4 == 0 ? good_.size() : header_;
    const size_t length = i < kTruncations / 10 ? static_cast<size_t>(i) : random() % most;
    write(good_.substr(0, length));
    expect_survives("cut after " + std::to_string(length) + " bytes");
  }
  report();
  EXPECT_EQ(loaded_, 0);
}

// Requirement reports-loading.ollama#17042 "ollama/ollama#17042: an allocation from a field of the
// header": no allocation beyond a small multiple of the file
// Verifies files.gguf-safety.
TEST_F(Damaged, FlippedBytes) {
  std::mt19937_64 random(2);
  write(good_);
  for (int i = 0; i < kFlips; ++i) {
    std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
    std::string what;
    std::vector<size_t> flipped;
    for (uint64_t n = 1 + random() % 3; n > 0; --n) {
      const size_t at = random() % header_;
      const auto value = static_cast<char>(random());
      file.seekp(static_cast<std::streamoff>(at)).put(value);
      flipped.push_back(at);
      what += std::to_string(at) + "=" + std::to_string(static_cast<uint8_t>(value)) + " ";
    }
    file.flush();
    expect_survives(what);
    for (const size_t at : flipped) file.seekp(static_cast<std::streamoff>(at)).put(good_[at]);
  }
  report();
  EXPECT_GT(loaded_, 0);
  EXPECT_GT(refused_, 0);
}

}  // namespace
}  // namespace culet::test
