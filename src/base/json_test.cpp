#include "base/json.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <cmath>

namespace culet::base {
namespace {

using Json = nlohmann::ordered_json;

std::string error_of(std::string_view text, int depth = kJsonDepth) {
  const auto got = parse_json(text, depth);
  return got ? "no error" : got.error().message;
}

TEST(JsonText, KeepsOrderAndKinds) {
  const auto got =
      parse_json(R"( {"z":1,"a":[true,null,-2,1.5,"\u00e9\ud83d\ude00"],"e":{},"f":[]} )");
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ(dump_json(*got),
            "{\"z\":1,\"a\":[true,null,-2,1.5,\"\xc3\xa9\xf0\x9f\x98\x80\"],\"e\":{},\"f\":[]}");
  EXPECT_TRUE((*got)["z"].is_number_unsigned());
  EXPECT_EQ((*got)["a"][3].get<double>(), 1.5);
  EXPECT_TRUE(parse_json("3")->is_number());
}

TEST(JsonText, ErrorsSayWhere) {
  EXPECT_NE(error_of(R"({"a":1,})").find("byte 8"), std::string::npos) << error_of(R"({"a":1,})");
  EXPECT_NE(error_of("").find("JSON error"), std::string::npos);
  EXPECT_NE(error_of(std::string("[1]\0[2]", 7)).find("byte 4: a NUL"), std::string::npos);
  EXPECT_NE(error_of("[1] 2").find("byte 5"), std::string::npos) << error_of("[1] 2");
  EXPECT_NE(error_of("[1e999]").find("byte"), std::string::npos) << error_of("[1e999]");
  EXPECT_NE(error_of("[\"\xff\"]").find("UTF-8"), std::string::npos) << error_of("[\"\xff\"]");
  EXPECT_NE(error_of("[NaN]"), "no error");
  EXPECT_NE(error_of(R"({"k":1,"j":2,"k":3})").find("\"k\""), std::string::npos);
}

TEST(JsonText, DepthAndLength) {
  EXPECT_EQ(error_of("[[]]", 2), "no error");
  EXPECT_NE(error_of("[[[]]]", 2).find("byte 3"), std::string::npos) << error_of("[[[]]]", 2);
  EXPECT_EQ(error_of(R"(["[[[[\"[[["])", 1), "no error");
  EXPECT_NE(error_of(std::string(10'000'000, '[')), "no error");
  EXPECT_EQ(parse_json("[1,2]", 4, 4).error().code, ErrorCode::kExhausted);
}

TEST(JsonText, ManyMembersAreNotQuadratic) {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i)
    text += "\"key" + std::to_string(i) + "\":" + std::to_string(i) + ",";
  text.back() = '}';
  const auto start = std::chrono::steady_clock::now();
  const auto got = parse_json(text);
  ASSERT_TRUE(got);
  EXPECT_EQ(got->size(), 200'000u);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(JsonText, DumpNeverFails) {
  EXPECT_EQ(dump_json(Json{{"a", "x\xff"}, {"b", std::nan("")}}),
            "{\"a\":\"x\xef\xbf\xbd\",\"b\":null}");
  EXPECT_EQ(dump_json(Json{{"a", 1}}, 2), "{\n  \"a\": 1\n}");
}

}  // namespace
}  // namespace culet::base
