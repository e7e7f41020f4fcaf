// Any bytes: the reader of safetensors refuses them or gives tensors whose bytes are all there.
#include "format/safetensors.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static volatile uint64_t sink = 0;
  const auto file =
      culet::format::SafetensorsFile::parse(std::as_bytes(std::span(data, size)), "fuzz");
  if (!file) {
    sink = sink + file.error().message.size();
    return 0;
  }
  for (const auto& tensor : file->tensors()) {
    if (file->tensor(tensor.name) != &tensor) std::abort();
    uint64_t sum = tensor.elements();
    for (uint64_t i = 0; i < tensor.bytes; ++i) sum += uint8_t(tensor.data[i]);
    sink = sink + sum;
  }
  return 0;
}
