// The texts of arch check and arch diff, on headers of tiny models.
#include "plan/report.h"

#include "plan/plan_test_support.h"

namespace culet::plan::test {
namespace {

void expect_has(const std::string& text, std::initializer_list<const char*> words) {
  for (const char* word : words)
    EXPECT_NE(text.find(word), std::string::npos) << "'" << word << "' is not in:\n" << text;
}

std::string check(const char* arch, const char* header) {
  const ModelPtr model = fixture(header);
  const auto text = check_arch(builtin(), arch_file(arch), model->file);
  EXPECT_TRUE(text) << text.error().message;
  return text.value_or("");
}

ArchText changed(const char* arch, const std::string& from, const std::string& to) {
  ArchText text = arch_file(arch);
  const size_t at = text.text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  if (at != std::string::npos) text.text.replace(at, from.size(), to);
  text.name = "other", text.origin = "other.arch";
  return text;
}

TEST(Report, WithoutAModelItNamesWhatIsInTheText) {
  const auto text = describe_arch(builtin(), arch_file("qwen3"));
  ASSERT_TRUE(text) << text.error().message;
  expect_has(*text, {"qwen3", "decoder", "qwen3.arch on top of llama.arch", "sha256", "head_dim",
                     "meta.rope.freq_base", "kv", "layer (attention, ffn)", "logits"});
}

TEST(Report, MistakesHaveAPlace) {
  const auto wrong = describe_arch(builtin(), changed("llama", "model:", "mod:"));
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().message.rfind("other.arch:", 0), 0u) << wrong.error().message;
  const ModelPtr model = fixture("llama");
  const auto missing =
      check_arch(builtin(), changed("llama", "attn_norm, eps", "attn_nrm, eps"), model->file);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().message.rfind("other.arch:", 0), 0u) << missing.error().message;
  expect_has(missing.error().message, {"attn_nrm"});
}

TEST(Report, OfAModelOfOneKindOfLayer) {
  const std::string text = check("llama", "llama");
  expect_has(text,
             {"hyperparameters\n  layers = ", "  pairs = adjacent\n", "blk.{i}.attn_q.weight{",
              " F32", "cache=kv", "rope(", "caches\n  cache kv: global", "bytes a token",
              "optional, not in the file", "blk.*.attn_q.bias x "});
  size_t kinds = 0;
  for (size_t at = 0; (at = text.find("\nlayers ", at)) != std::string::npos; ++at) ++kinds;
  EXPECT_EQ(kinds, 1u) << text;
}

TEST(Report, LayersOfTwoKindsAreShownOnceEach) {
  const std::string text = check("gemma3", "gemma3");
  expect_has(text, {"window(8)", "layers 5 (1 of 7)", "layers 0-4, 6 (6 of 7)"});
}

TEST(Report, SaysWhatIsIgnoredAndWhichNameTheModelHas) {
  const ModelPtr model = fixture("qwen2");
  const auto text =
      check_arch(builtin(), changed("llama", "arch llama", "arch other"), fixture("llama")->file);
  ASSERT_TRUE(text) << text.error().message;
  expect_has(*text, {"the model says 'llama'"});
  expect_has(check("qwen2", "qwen2"), {"ignored (0): none"});
}

TEST(Diff, NothingDiffersFromItself) {
  const ModelPtr model = fixture("llama");
  EXPECT_EQ(diff_arch(builtin(), arch_file("llama"), arch_file("llama")).value(), "");
  EXPECT_EQ(diff_plans(builtin(), arch_file("llama"), arch_file("llama"), model->file).value(), "");
}

TEST(Diff, OfStatementsFollowsIncludes) {
  const auto text = diff_arch(builtin(), arch_file("llama"), arch_file("qwen3"));
  ASSERT_TRUE(text) << text.error().message;
  expect_has(*text,
             {"--- llama", "+++ qwen3", "- let pairs    = adjacent\n", "+ let pairs = halves\n",
              "+ layer.attention: q = rms_norm(linear(h, attn_q)"});
  EXPECT_EQ(text->find("layer.ffn"), std::string::npos) << *text;  // included, so the same
}

TEST(Diff, OfPlansNamesTheLayersAndIsPrintedOnce) {
  const ModelPtr model = fixture("llama");
  const auto text =
      diff_plans(builtin(), arch_file("llama"), changed("llama", "silu(", "relu("), model->file);
  ASSERT_TRUE(text) << text.error().message;
  expect_has(*text, {"layers 0-", "silu(", "relu("});
  EXPECT_EQ(text->find("rope"), std::string::npos) << *text;
  EXPECT_EQ(std::count(text->begin(), text->end(), '\n'), 5) << *text;
}

// Cosmetic changes of the text are no change of the plan.
TEST(Diff, OfPlansLooksThroughTheWriting) {
  const ModelPtr model = fixture("llama");
  const ArchText other = changed("llama", "let stretch", "let unused = 1\nlet stretch");
  EXPECT_EQ(diff_plans(builtin(), arch_file("llama"), other, model->file).value(), "");
  const std::string text = diff_arch(builtin(), arch_file("llama"), other).value();
  expect_has(text, {"+ let unused = 1\n"});
}

}  // namespace
}  // namespace culet::plan::test
