// The way of a tensor's values into a file: from the types of the source, a piece at a time.
#pragma once

#include "base/thread_pool.h"
#include "culet/result.h"
#include "format/gguf_writer.h"
#include "quant/tensor_type.h"

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace culet::convert {

// `count` values from the `first` on as float32; both are multiples of 256, or reach the end.
// Called on any thread.
using ReadValues = std::function<void(int64_t first, int64_t count, float* out)>;

struct Source {
  std::string_view name;  // for messages
  int64_t values;
  ReadValues read;
};

// Writes the next tensor of the file: `source` in the type `type`, into whose blocks its rows
// divide. done(values) after each piece; false stops with kCancelled. kNumeric: a value is not
// finite or too large for the type.
Result<void> write_values(format::GgufWriter* writer, base::ThreadPool* pool, const Source& source,
                          quant::TensorType type, const std::function<bool(int64_t)>& done);

// Writes the next tensor as it is.
Result<void> write_bytes(format::GgufWriter* writer, std::span<const std::byte> bytes,
                         const std::function<bool(int64_t)>& done);

}  // namespace culet::convert
