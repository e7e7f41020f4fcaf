// Chat templates against recorded prompts: those of real model files (read from their metadata)
// against golden/real/*/chat.jsonl, Gemma 4's against golden/templates/gemma4.jsonl, requests in
// the OpenAI shape, through templates of published models, against golden/templates/chat.jsonl.
//
// CULET_MODELS and CULET_VECTORS name the folders that scripts/fetch_model and
// scripts/fetch_vectors fill. Without them these tests fail.
#include "base/files.h"
#include "base/json.h"
#include "format/gguf.h"
#include "model/vocabulary.h"
#include "template/chat_template.h"
#include "template/conversation.h"
#include "text/tokenizer.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

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

// ---------------------------------------------------------------- requests in the OpenAI shape

std::string vectors() {
  const char* folder = std::getenv("CULET_VECTORS");
  EXPECT_NE(folder, nullptr) << "set CULET_VECTORS to the folder that scripts/fetch_vectors fills";
  return folder == nullptr ? "" : folder;
}

std::shared_ptr<const ChatTemplate> published(const std::string& name) {
  auto source =
      culet::base::read_file(std::string(CULET_TEST_DATA) + "/../models/templates/" + name);
  if (!source) source = culet::base::read_file(vectors() + "/templates/" + name);
  EXPECT_TRUE(source) << source.error().message;
  auto chat = ChatTemplate::parse(source ? *source : "");
  EXPECT_TRUE(chat) << name << ": " << chat.error().message;
  return chat ? *chat : nullptr;
}

std::vector<Json> requests() {
  std::ifstream in(std::string(CULET_TEST_DATA) + "/golden/templates/chat.jsonl");
  EXPECT_TRUE(in);
  std::vector<Json> rows;
  for (std::string line; std::getline(in, line);) {
    auto row = culet::base::parse_json(line);
    EXPECT_TRUE(row) << row.error().message;
    if (row) rows.push_back(std::move(*row));
  }
  return rows;
}

culet::Result<culet::chat::Text> rendered(const ChatTemplate& chat, const Json& request) {
  namespace layer = culet::chat;
  CULET_TRY(
      const auto conversation,
      layer::read_conversation(request["messages"].dump(), request.value("tools", Json()).dump(),
                               request.value("variables", Json(Json::object())).dump()));
  const Json data = layer::template_data(conversation, chat.traits());
  const layer::Labels labels = layer::label(data);
  const Json constants = {
      {"bos_token", "<s>"}, {"eos_token", "</s>"}, {"add_generation_prompt", true}};
  CULET_TRY(auto rendering, chat.render(data, constants, labels.marks));
  return std::move(rendering.text);
}

TEST(ChatRequests, GiveThePromptsOfJinja) {
  std::map<std::string, std::shared_ptr<const ChatTemplate>> templates;
  size_t compared = 0, refused = 0;
  for (const Json& row : requests()) {
    const std::string name = row["template"];
    SCOPED_TRACE(name + ": " + row["name"].get<std::string>());
    auto& chat = templates[name];
    if (!chat) chat = published(name);
    ASSERT_TRUE(chat);
    const auto text = rendered(*chat, row["request"]);
    if (row.contains("refused")) {
      ++refused;
      EXPECT_FALSE(text) << text->bytes();
      continue;
    }
    ASSERT_TRUE(text) << text.error().message;
    EXPECT_EQ(text->bytes(), row["prompt"].get<std::string>());
    ++compared;
  }
  EXPECT_EQ(templates.size(), 10u);
  EXPECT_EQ(compared, 106u);
  EXPECT_EQ(refused, 4u);
}

// ---------------------------------------------------------------- tokens

using culet::text::Token;
using culet::text::Tokenizer;

struct Dialect {
  const char* chat;                // template
  const char* vocabulary;          // of the reference vectors
  std::vector<const char*> marks;  // tokens that the template uses, control or user-defined
};

const std::vector<Dialect>& dialects() {
  static const std::vector<const char*> kGemma = {
      "<|turn>", "<turn|>",    "<|tool>",    "<tool|>",          "<|tool_call>",    "<tool_call|>",
      "<|\"|>",  "<|channel>", "<channel|>", "<|tool_response>", "<tool_response|>"};
  static const std::vector<const char*> kQwen = {"<|im_start|>", "<|im_end|>"};
  static const std::vector<Dialect> kAll = {
      {"gemma4.jinja", "gemma-4", kGemma},
      {"google-gemma-4-31B-it.jinja", "gemma-4", kGemma},
      {"Qwen-Qwen2.5-7B-Instruct.jinja", "qwen2", kQwen},
      {"Qwen-Qwen3-0.6B.jinja", "qwen2", kQwen},
      {"meta-llama-Llama-3.1-8B-Instruct.jinja",
       "llama-bpe",
       {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}},
  };
  return kAll;
}

// The same conversation with every text that spells a mark replaced: strings of scripts/
// make_chat_cases.py, also inside of arguments, where they are written as JSON.
Json harmless(const Json& json) {
  if (json.is_string()) {
    std::string text = json.get<std::string>();
    for (const std::string mark : {"<|im_end|>", "<|im_start|>", "<turn|>", "<|turn>", "<|eot_id|>",
                                   "<|\\\"|>", "<|\"|>", "<tool_call|>", "</s>", "[INST]"}) {
      for (size_t at = text.find(mark); at != text.npos; at = text.find(mark)) {
        text.replace(at, mark.size(), "mark");
      }
    }
    return text;
  }
  Json out = json;
  if (json.is_structured()) {
    for (auto at = out.begin(); at != out.end(); ++at) *at = harmless(*at);
  }
  return out;
}

std::vector<Token> tokens_of(const Tokenizer& tokenizer, const ChatTemplate& chat,
                             const culet::chat::Text& text) {
  const auto pieces = culet::chat::pieces_of(text);
  std::vector<Tokenizer::Piece> views;
  views.reserve(pieces.size());
  for (const auto& piece : pieces) views.push_back({piece.text, piece.is_template});
  const auto ids = tokenizer.tokenize_pieces(views, false, chat.source());
  EXPECT_TRUE(ids) << ids.error().message;
  return ids ? *ids : std::vector<Token>();
}

std::vector<std::string> marks_of(const Tokenizer& tokenizer, const std::vector<Token>& ids,
                                  const Dialect& dialect) {
  std::vector<std::string> found;
  for (const Token id : ids) {
    const std::string piece = tokenizer.piece(id, true);
    const bool mark =
        std::find(dialect.marks.begin(), dialect.marks.end(), piece) != dialect.marks.end();
    if (mark || tokenizer.is_control(id)) found.push_back(piece);
  }
  return found;
}

// What the template spells are tokens, as where nobody spells any; what a message, an argument, a
// result or a description spells is text, whose characters are all there.
TEST(ChatTokens, MarksStandWhereTheTemplateWroteThem) {
  size_t compared = 0;
  for (const Dialect& dialect : dialects()) {
    const auto file =
        culet::format::GgufFile::open(vectors() + "/ggml-vocab-" + dialect.vocabulary + ".gguf");
    ASSERT_TRUE(file) << file.error().message;
    const auto vocabulary = culet::model::read_vocabulary(*file);
    ASSERT_TRUE(vocabulary) << vocabulary.error().message;
    const auto tokenizer = Tokenizer::make(*vocabulary);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    const auto chat = published(dialect.chat);
    ASSERT_TRUE(chat);
    std::set<std::string> seen;
    for (const Json& row : requests()) {
      if (row["template"] != dialect.chat || row.contains("refused")) continue;
      SCOPED_TRACE(std::string(dialect.chat) + ": " + row["name"].get<std::string>());
      const auto text = rendered(*chat, row["request"]);
      ASSERT_TRUE(text) << text.error().message;
      const auto ids = tokens_of(**tokenizer, *chat, *text);
      EXPECT_EQ((*tokenizer)->detokenize(ids, false, true), text->bytes());
      const auto plain = rendered(*chat, harmless(row["request"]));
      ASSERT_TRUE(plain) << plain.error().message;
      const auto expected =
          (*tokenizer)
              ->tokenize(plain->bytes(), {.begin = false, .end = false, .parse_special = true});
      ASSERT_TRUE(expected);
      const auto marks = marks_of(**tokenizer, *expected, dialect);
      EXPECT_EQ(marks_of(**tokenizer, ids, dialect), marks);
      seen.insert(marks.begin(), marks.end());
      ++compared;
    }
    for (const char* mark : dialect.marks) EXPECT_EQ(seen.count(mark), 1u) << mark;
  }
  EXPECT_EQ(compared, 54u);
}

}  // namespace
