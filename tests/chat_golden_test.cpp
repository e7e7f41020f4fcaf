// Chat templates against recorded prompts: those of real model files (read from their metadata)
// against golden/real/*/chat.jsonl, Gemma 4's against golden/templates/gemma4.jsonl.
//
// CULET_MODELS and CULET_VECTORS name the folders that scripts/fetch_model and
// scripts/fetch_vectors fill. Without them these tests fail.
#include "base/files.h"
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

using culet::chat::ChatTemplate;

std::string render(const ChatTemplate& chat, const Json& data, const Json& constants) {
  const auto pieces = chat.render(data, constants);
  if (!pieces) return "error: " + pieces.error().message;
  std::string prompt;
  for (const auto& piece : *pieces) prompt += piece.text;
  return prompt;
}

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
    auto parsed = ChatTemplate::parse(source->as_string().value());
    ASSERT_TRUE(parsed) << parsed.error().message;
    template_ = std::move(*parsed);
  }

  std::shared_ptr<const ChatTemplate> template_;
};

// Verifies text.templates.
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
    EXPECT_EQ(render(*template_, data, constants), (*row)["prompt"].get<std::string>());
  }
  EXPECT_EQ(rows, GetParam().conversations);
}

INSTANTIATE_TEST_SUITE_P(
    Models, ChatGolden,
    testing::Values(Model{"SmolLM2-135M-Instruct.Q4_1.gguf", "smollm2-135m-instruct-q4_1", 13},
                    Model{"qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
                          "qwen2.5-coder-0.5b-instruct-q4_k_m", 17}),
    [](const auto& model) { return std::string(model.index == 0 ? "SmolLm2" : "Qwen25Coder"); });

// A row's "published" is what a template of spring 2026 says where it differs: it writes null as
// None, opens no thought behind a result, and knows no models whose prompts lack the empty thought.
void expect_gemma4(const std::string& path, const char* key) {
  const auto source = culet::base::read_file(path);
  ASSERT_TRUE(source) << source.error().message;
  const auto chat = ChatTemplate::parse(*source);
  ASSERT_TRUE(chat) << chat.error().message;
  std::ifstream in(std::string(CULET_TEST_DATA) + "/golden/templates/gemma4.jsonl");
  ASSERT_TRUE(in);
  int rows = 0;
  for (std::string line; std::getline(in, line); ++rows) {
    const auto row = culet::base::parse_json(line);
    ASSERT_TRUE(row) << row.error().message;
    SCOPED_TRACE((*row)["name"].get<std::string>());
    const Json data = {{"messages", (*row)["messages"]},
                       {"tools", row->contains("tools") ? (*row)["tools"] : Json()}};
    Json constants = (*row)["variables"];
    constants["bos_token"] = "<bos>";
    constants["add_generation_prompt"] = true;
    EXPECT_EQ(render(**chat, data, constants),
              (*row)[row->contains(key) ? key : "prompt"].get<std::string>());
  }
  EXPECT_EQ(rows, 16);
}

// Verifies text.templates.
TEST(Gemma4Chat, OurTemplateGivesTheWorkedExamples) {
  expect_gemma4(std::string(CULET_TEST_DATA) + "/../models/templates/gemma4.jinja", "prompt");
}

TEST(Gemma4Chat, APublishedTemplateGivesThemAsItsVintageDoes) {
  const char* folder = std::getenv("CULET_VECTORS");
  ASSERT_NE(folder, nullptr) << "set CULET_VECTORS to the folder that scripts/fetch_vectors fills";
  expect_gemma4(std::string(folder) + "/templates/google-gemma-4-31B-it.jinja", "published");
}

}  // namespace
