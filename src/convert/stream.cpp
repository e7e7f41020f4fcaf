// Takes the values of a tensor, gives its blocks to a file: a few million values at a time are
// quantized by all threads, each task into its own place, then written in order. So memory stays
// the same for a tensor of any size, and the bytes do not depend on the threads.
#include "convert/stream.h"

#include "quant/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

namespace culet::convert {
namespace {

constexpr int64_t kTaskValues = 16384;  // a multiple of every block
constexpr int64_t kPieceValues = 128 * kTaskValues;
constexpr size_t kPieceBytes = size_t{8} << 20;

tl::unexpected<Error> stopped() { return fail(ErrorCode::kCancelled, "stopped on request"); }

// Why the values from `first` on cannot be quantized.
tl::unexpected<Error> bad_value(const Source& source, quant::TensorType type, int64_t first,
                                std::span<const float> values) {
  const auto bad =
      std::find_if(values.begin(), values.end(), [](float v) { return !std::isfinite(v); });
  if (bad != values.end()) {
    return fail(ErrorCode::kNumeric,
                fmt::format("value {} of '{}' is {}, which no type of weights can hold well; the "
                            "source may be damaged",
                            first + (bad - values.begin()), source.name, *bad));
  }
  const auto largest = std::max_element(
      values.begin(), values.end(), [](float a, float b) { return std::fabs(a) < std::fabs(b); });
  return fail(ErrorCode::kNumeric,
              fmt::format("value {} of '{}' is {}, too large for {}; use BF16 for this tensor",
                          first + (largest - values.begin()), source.name, *largest,
                          quant::type_info(type).name));
}

}  // namespace

Result<void> write_values(format::GgufWriter* writer, base::ThreadPool* pool, const Source& source,
                          quant::TensorType type, const std::function<bool(int64_t)>& done) {
  const quant::TypeInfo& info = quant::type_info(type);
  const quant::QuantizeFn quantize = quant::quantize_fn(type);
  std::vector<std::vector<float>> values(size_t(pool->size()), std::vector<float>(kTaskValues));
  std::vector<std::byte> blocks(size_t(kPieceValues / info.block * info.block_bytes));
  for (int64_t first = 0; first < source.values; first += kPieceValues) {
    const int64_t count = std::min(kPieceValues, source.values - first);
    std::atomic<int64_t> bad = std::numeric_limits<int64_t>::max();
    const auto task = [&](int64_t i, int worker) {
      const int64_t begin = i * kTaskValues, n = std::min(kTaskValues, count - begin);
      float* x = values[size_t(worker)].data();
      source.read(first + begin, n, x);
      std::byte* out = blocks.data() + begin / info.block * info.block_bytes;
      if (quantize(x, n / info.block, out)) return;
      int64_t least = bad;
      while (begin < least && !bad.compare_exchange_weak(least, begin)) {
      }
    };
    pool->run((count + kTaskValues - 1) / kTaskValues, task);
    if (bad < count) {
      const int64_t n = std::min(kTaskValues, count - bad);
      source.read(first + bad, n, values[0].data());
      return bad_value(source, type, first + bad, std::span(values[0]).first(size_t(n)));
    }
    CULET_TRY_VOID(
        writer->write(std::span(blocks).first(size_t(count / info.block * info.block_bytes))));
    if (!done(count)) return stopped();
  }
  return {};
}

Result<void> write_bytes(format::GgufWriter* writer, std::span<const std::byte> bytes,
                         const std::function<bool(int64_t)>& done) {
  while (!bytes.empty()) {
    const size_t count = std::min(kPieceBytes, bytes.size());
    CULET_TRY_VOID(writer->write(bytes.first(count)));
    bytes = bytes.subspan(count);
    if (!done(int64_t(count))) return stopped();
  }
  return {};
}

}  // namespace culet::convert
