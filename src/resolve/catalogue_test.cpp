#include "resolve/catalogue.h"

#include "base/files.h"

#include <gtest/gtest.h>

namespace culet::resolve {
namespace {

TEST(CatalogueTest, TheBuiltInOneIsTheFile) {
  const auto text = base::read_file(CULET_SOURCE_DIR "/models/catalogue.json");
  ASSERT_TRUE(text);
  EXPECT_EQ(builtin_catalogue_text(), *text);
  const auto catalogue = parse_catalogue(*text);
  ASSERT_TRUE(catalogue) << catalogue.error().message;
  EXPECT_GE(catalogue->models.size(), 3u);
  ASSERT_TRUE(catalogue->find("SMOLLM2"));
  EXPECT_EQ(catalogue->find("smollm2")->sources[0].parts[0].version, "0.1.2");
  EXPECT_EQ(catalogue->find("nothing"), nullptr);
}

std::string with(const std::string& field, const std::string& value) {
  const std::string fields[][2] = {
      {"name", "\"tiny\""},
      {"file", "\"tiny.gguf\""},
      {"bytes", "10"},
      {"sha256", "\"" + std::string(64, '0') + "\""},
      {"aliases", "[\"t\"]"},
      {"sources", R"([{"kind": "url", "url": "https://example.org/x"}, {"kind": "later"}])"}};
  std::string out = R"({"format": "culet-catalogue 1", "default": "tiny", "models": [{)";
  for (const auto& [key, usual] : fields) {
    out += (out.back() == '{' ? "\"" : ", \"") + key + "\": " + (key == field ? value : usual);
  }
  return out + "}]}";
}

TEST(CatalogueTest, BrokenRulesNameTheField) {
  ASSERT_TRUE(parse_catalogue(with("", "")));
  const std::pair<std::string, std::string> cases[] = {
      {"name", "\"Tiny\""},
      {"name", "\"\""},
      {"name", "\"a/b\""},
      {"name", "7"},
      {"name", "\"x.gguf\""},
      {"file", "\"../x.gguf\""},
      {"file", "\"a/b.gguf\""},
      {"file", "\".x.gguf\""},
      {"file", "\"x.bin\""},
      {"bytes", "0"},
      {"bytes", "-1"},
      {"bytes", "1e3"},
      {"bytes", "\"10\""},
      {"sha256", "\"abc\""},
      {"aliases", "[\"A b\"]"},
      {"aliases", "[1]"},
      {"sources", R"([{}])"},
      {"sources", R"([{"kind": "url"}])"},
      {"sources", R"([{"kind": "pypi"}])"},
      {"sources", R"([{"kind": "pypi", "parts": [{"package": "a", "member": "b"}]}])"},
      {"sources", R"([{"kind": "pypi", "parts": [{"package": "../a==1", "member": "b"}]}])"},
      {"sources", R"([{"kind": "pypi", "parts": [{"package": "a==1", "member": "../b"}]}])"}};
  for (const auto& [field, value] : cases) {
    const auto catalogue = parse_catalogue(with(field, value));
    ASSERT_FALSE(catalogue) << field << " " << value;
    EXPECT_NE(catalogue.error().message.find(field), std::string::npos)
        << catalogue.error().message;
  }
  EXPECT_FALSE(parse_catalogue(with("aliases", "[\"tiny\"]")));  // twice
  EXPECT_FALSE(parse_catalogue("{}"));
  EXPECT_FALSE(parse_catalogue("["));
  EXPECT_FALSE(parse_catalogue(R"({"format": "culet-catalogue 1", "default": "x"})"));
}

}  // namespace
}  // namespace culet::resolve
