// Chat templates of real model files against the prompts recorded in golden/real/*/chat.jsonl.
//
// The templates are read from the files' own metadata: CULET_MODELS names the folder that holds
// them (scripts/fetch_model fills it). Without it these tests fail.
#include "base/json.h"
#include "format/gguf.h"
#include "template/chat_template.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>

namespace {

using Json = nlohmann::ordered_json;

struct Model {
  const char* file;    // in CULET_MODELS
  const char* golden;  // folder in tests/golden/real
  size_t conversations;
};

class ChatGolden : public testing::TestWithParam<Model> {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("CULET_MODELS");
    ASSERT_NE(folder, nullptr) << "set CULET_MODELS to the folder with the model files; "
                                  "scripts/fetch_model fills it";
    auto file = culet::format::GgufFile::open(std::string(folder) + "/" + GetParam().file);
    ASSERT_TRUE(file) << file.error().message;
    const auto* source = file->find("tokenizer.chat_template");
    ASSERT_NE(source, nullptr);
    auto parsed = culet::chat::ChatTemplate::parse(source->as_string().value());
    ASSERT_TRUE(parsed) << parsed.error().message;
    template_ = std::move(*parsed);
  }

  std::shared_ptr<const culet::chat::ChatTemplate> template_;
};

TEST_P(ChatGolden, PromptsAreEqual) {
  const std::string path =
      std::string(CULET_TEST_DATA) + "/golden/real/" + GetParam().golden + "/chat.jsonl";
  std::ifstream in(path);
  ASSERT_TRUE(in) << path;
  size_t rows = 0;
  for (std::string line; std::getline(in, line); ++rows) {
    const auto row = culet::base::parse_json(line);
    ASSERT_TRUE(row) << row.error().message;
    SCOPED_TRACE((*row)["name"].get<std::string>());
    Json data = {{"messages", (*row)["messages"]}, {"tools", nullptr}, {"documents", nullptr}};
    if (row->contains("tools")) data["tools"] = (*row)["tools"];
    const Json constants = {{"add_generation_prompt", (*row)["add_generation_prompt"]}};
    const auto pieces = template_->render(data, constants);
    ASSERT_TRUE(pieces) << pieces.error().message;
    std::string prompt;
    for (const auto& piece : *pieces) prompt += piece.text;
    EXPECT_EQ(prompt, (*row)["prompt"].get<std::string>());
  }
  EXPECT_EQ(rows, GetParam().conversations);
}

INSTANTIATE_TEST_SUITE_P(
    Models, ChatGolden,
    testing::Values(Model{"SmolLM2-135M-Instruct.Q4_1.gguf", "smollm2-135m-instruct-q4_1", 13},
                    Model{"qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
                          "qwen2.5-coder-0.5b-instruct-q4_k_m", 17}),
    [](const auto& model) { return std::string(model.index == 0 ? "SmolLm2" : "Qwen25Coder"); });

}  // namespace
