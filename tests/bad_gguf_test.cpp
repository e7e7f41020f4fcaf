// Malformed and odd model files through the public API: each is refused for the stated reason, or
// loaded, with a warning that says what is odd (tests/golden/bad-gguf/cases.json).
#include "culet/culet.h"
#include "support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>

namespace culet::test {
namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

bool contains(const std::string& text, const std::string& part) {
  return lower(text).find(lower(part)) != std::string::npos;
}

void expect_refused(const std::string& path, const std::string& reason) {
  const auto model = Model::load(path, {.threads = 1});
  ASSERT_FALSE(model) << path << " must be refused";
  const std::string& message = model.error().message;
  EXPECT_TRUE(contains(message, reason)) << "no \"" << reason << "\" in: " << message;
  EXPECT_TRUE(contains(message, path)) << "no file name in: " << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

void expect_runs(const std::string& path, const std::string& reason) {
  const auto model = load(path, {.threads = 1});
  const std::vector<std::string>& warnings = model->info().warnings;
  if (reason.empty()) {
    EXPECT_EQ(testing::PrintToString(warnings), "{}");
  } else {
    EXPECT_TRUE(std::any_of(warnings.begin(), warnings.end(),
                            [&](const std::string& w) { return contains(w, reason); }))
        << path << ": " << testing::PrintToString(warnings);
  }
  const Token token = 5;
  expect_ok(session(model)->append({&token, 1}));
}

// Verifies files.gguf-safety, reports-loading.llama.cpp#18674.
TEST(BadGguf, EveryCaseIsRefusedOrLoadedAsStated) {
  const auto cases = read_json(golden("bad-gguf/cases.json"));
  ASSERT_GE(cases.size(), 50u);
  for (const auto& one : cases) {
    const std::string path = golden("bad-gguf/" + one["file"].get<std::string>());
    SCOPED_TRACE(one["wrong"].get<std::string>());
    const std::string reason = one["reason"].get<std::string>();
    if (one["expected"] == "refuse") {
      expect_refused(path, reason);
    } else {
      expect_runs(path, reason);
    }
  }
}

TEST(BadGguf, NoSuchFile) {
  const auto model = Model::load(golden("bad-gguf/not-there.gguf"), {});
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(contains(model.error().message, "not-there.gguf")) << model.error().message;
}

TEST(BadGguf, OptionsThatMakeNoSense) {
  const std::string good = golden("bad-gguf/good.gguf");
  EXPECT_FALSE(Model::load(good, {.threads = -1}));
  EXPECT_FALSE(Model::load(good, {.ubatch_size = -1}));
  EXPECT_FALSE(Model::load(good, {.arch_dir = "/no/such/folder"}));
  const auto isa = Model::load(good, {.isa = "abacus"});
  ASSERT_FALSE(isa);
  EXPECT_TRUE(contains(isa.error().message, "abacus")) << isa.error().message;
  EXPECT_TRUE(contains(isa.error().message, "scalar")) << isa.error().message;
}

}  // namespace
}  // namespace culet::test
