// Dequantized values of real files against the reference (tests/golden/tiny/llama-quant): the first
// and last 64 values of a matrix to six digits, signs of zeros included, and the sums over all.
#include "base/files.h"
#include "base/json.h"
#include "format/gguf.h"
#include "quant/tensor_type.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace culet::format {
namespace {

const std::string kQuantFolder = CULET_TEST_DATA "/golden/tiny/llama-quant/";

// The number as the reference stores it.
double six_digits(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.6g", value);
  return std::strtod(text, nullptr);
}

void expect_values(const nlohmann::ordered_json& want, const float* got, const std::string& what) {
  ASSERT_EQ(want.size(), 64u) << what;
  for (size_t i = 0; i < 64; ++i) {
    const double w = want[i].get<double>(), g = six_digits(double(got[i]));
    ASSERT_TRUE(w == g && std::signbit(w) == std::signbit(g))
        << what << " [" << i << "] is " << g << ", not " << w;
  }
}

// Requirement files.quantized-types "quantized types": the types of `quant/formats.def`, bit for
// bit the reference's values; others refused by name
TEST(DequantizeGolden, EveryTypeOfTheReference) {
  const auto text = base::read_file(kQuantFolder + "dequant.json");
  ASSERT_TRUE(text) << text.error().message;
  const auto golden = base::parse_json(*text);
  ASSERT_TRUE(golden) << golden.error().message;
  int types = 0;
  for (const auto& [type, want] : (*golden)["types"].items()) {
    const auto file = GgufFile::open(kQuantFolder + want["file"].get<std::string>());
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_TRUE(file->warnings().empty()) << file->warnings()[0];
    const TensorInfo* tensor = file->tensor(want["tensor"].get<std::string>());
    ASSERT_NE(tensor, nullptr) << type;
    ASSERT_EQ(uint32_t(tensor->type), want["ggml_type"].get<uint32_t>()) << type;
    const quant::TypeInfo& info = quant::type_info(tensor->type);
    EXPECT_EQ(info.name, type);

    const auto n = size_t(tensor->elements());
    ASSERT_EQ(n, 256u * 256u);
    std::vector<float> values(n);
    quant::dequantize_fn(tensor->type)(tensor->data, int64_t(n) / info.block, values.data());
    expect_values(want["first_64"], values.data(), type + " first");
    expect_values(want["last_64"], values.data() + n - 64, type + " last");
    double sum = 0, sum_abs = 0;
    for (const float v : values) {
      sum += double(v);
      sum_abs += std::abs(double(v));
    }
    // The order of the reference's float64 sum is not ours, so the sixth digit may differ by one.
    EXPECT_NEAR(sum, want["sum"].get<double>(), 1e-5 * std::abs(sum)) << type;
    EXPECT_NEAR(sum_abs, want["sum_abs"].get<double>(), 1e-5 * sum_abs) << type;
    ++types;
  }
  EXPECT_EQ(types, 14);
}

}  // namespace
}  // namespace culet::format
