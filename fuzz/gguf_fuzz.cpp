// Any bytes: the reader refuses them or gives an index that can be walked without a stray read.
#include "format/gguf.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

namespace {

using culet::format::GgufFile;
using culet::format::MetaValue;

uint64_t walk(const MetaValue& value) {
  uint64_t sum = uint64_t(value.as_int().value_or(0)) + value.as_bool().value_or(false);
  sum += value.as_number().value_or(0) > 0;
  for (char c : value.as_string().value_or("")) sum += uint8_t(c);
  for (uint64_t i = 0; i < value.size(); ++i) sum += walk(value.at(i));  // arrays do not nest
  return sum;
}

uint64_t walk(const GgufFile& file) {
  uint64_t sum = 0;
  for (const auto& entry : file.metadata()) {
    if (file.find(entry.key) != &entry.value) std::abort();
    sum += walk(entry.value);
  }
  for (const auto& tensor : file.tensors()) {
    if (file.tensor(tensor.name) != &tensor) std::abort();
    if (tensor.data == nullptr) continue;
    sum += uint8_t(tensor.data[0]) + uint8_t(tensor.data[tensor.bytes - 1]);
  }
  return sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static volatile uint64_t sink = 0;
  for (const bool header_only : {false, true}) {
    const auto file = GgufFile::parse(std::as_bytes(std::span(data, size)), "fuzz", header_only);
    sink = sink + (file ? walk(*file) : file.error().message.size());
  }
  return 0;
}
