#include "base/numbers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

namespace culet::base {
namespace {

// This program runs in the C locale, where strtod is right.
void expect_as_strtod(const std::string& text) {
  const std::optional<double> got = parse_double(text);
  ASSERT_TRUE(got) << text;
  const double want = std::strtod(text.c_str(), nullptr);
  EXPECT_EQ(*got, want) << text;
  EXPECT_EQ(std::signbit(*got), std::signbit(want)) << text;
}

TEST(Numbers, AreTheNearestDoubles) {
  for (const char* text :
       {"0", "-0", "1", "-1.5", "0.1", "1e-5", "0.00001", "1E+22", "9007199254740993", "1e308",
        "1.7976931348623157e308", "2.2250738585072014e-308", "5e-324", "0.30000000000000004"}) {
    expect_as_strtod(text);
  }
}

TEST(Numbers, TooLargeIsInfiniteTooSmallIsZero) {
  const std::string zeros(400, '0');
  const std::vector<std::string> large = {"1e309",
                                          "-1e309",
                                          "1" + zeros,
                                          "1" + zeros + "e-10",
                                          "0." + zeros + "1e800",
                                          "1e99999999999999999999",
                                          "-" + zeros + "1" + zeros + ".0"};
  for (const std::string& text : large) {
    expect_as_strtod(text);
    EXPECT_TRUE(std::isinf(*parse_double(text))) << text;
  }
  const std::vector<std::string> small = {"1e-400",
                                          "-1e-400",
                                          "0." + zeros + "1",
                                          "1" + zeros + "e-800",
                                          "1e-999999999999999",
                                          "0e999999999999999"};
  for (const std::string& text : small) {
    expect_as_strtod(text);
    EXPECT_EQ(*parse_double(text), 0) << text;
  }
}

TEST(Numbers, TheWholeTextIsOne) {
  for (const char* text : {"", "-", ".", "e5", "1,5", "1.5 ", " 1", "+1", "1.5x", "0x10", "--1"}) {
    EXPECT_FALSE(parse_double(text)) << text;
  }
  EXPECT_TRUE(std::isnan(*parse_double("nan")));
  EXPECT_EQ(*parse_double("-inf"), -std::numeric_limits<double>::infinity());
}

}  // namespace
}  // namespace culet::base
