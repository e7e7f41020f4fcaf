#include "cli/written.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace culet::cli {
namespace {

using Json = nlohmann::ordered_json;

double bits_of(const WrittenModel& written) {
  uint64_t bytes = 0;
  for (const TypeShare& share : written.types) bytes += share.bytes;
  return 8 * static_cast<double>(bytes) /
         static_cast<double>(std::max<uint64_t>(written.parameters, 1));
}

double megabytes(uint64_t bytes) { return static_cast<double>(bytes) / 1e6; }

}  // namespace

Json written_json(const WrittenModel& written) {
  Json types = Json::array();
  for (const TypeShare& share : written.types) {
    types.push_back({{"type", share.type}, {"tensors", share.tensors}, {"bytes", share.bytes}});
  }
  return {{"path", written.path},
          {"type", written.type},
          {"bytes", written.bytes},
          {"source_bytes", written.source_bytes},
          {"bits_per_weight", bits_of(written)},
          {"types", types},
          {"notes", written.notes}};
}

std::string written_text(const WrittenModel& written) {
  std::string text = fmt::format("{}: {}, {:.1f} MB of {:.1f} MB, {:.2f} bits per weight\n",
                                 written.path, written.type, megabytes(written.bytes),
                                 megabytes(written.source_bytes), bits_of(written));
  for (const TypeShare& share : written.types) {
    text += fmt::format("  {:<7} {:>5} tensors  {:>9.1f} MB\n", share.type, share.tensors,
                        megabytes(share.bytes));
  }
  return text;
}

}  // namespace culet::cli
