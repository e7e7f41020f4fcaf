// The tokenizers of three real models against reference ids, texts and rendered chats.
//
// CULET_MODELS names the folder with the model files (scripts/fetch_model fills it). Where the
// vectors hold two answers, `trust` says whether either is right or only the published tokenizer's.
#include "base/files.h"
#include "base/json.h"
#include "base/utf8.h"
#include "format/gguf.h"
#include "model/vocabulary.h"
#include "text/tokenizer.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

namespace culet {
namespace {

using Json = nlohmann::ordered_json;
using text::Token;
using text::Tokenizer;
using Ids = std::vector<Token>;

struct Model {
  const char* name;  // of the folder with the vectors
  const char* file;  // in CULET_MODELS
  bool has_chat;     // a base model has no vectors of chats
  // Ends of generation that the reference engine takes from the text alone and that are ordinary
  // tokens of the file (src/text/end_of_generation.cpp says why they are none here).
  Ids not_ends;
};

void PrintTo(const Model& model, std::ostream* out) { *out << model.name; }

const Model kModels[] = {
    {"smollm2-135m-instruct-q4_1", "SmolLM2-135M-Instruct.Q4_1.gguf", true, {}},
    {"gemma-3-270m-q4_k_m", "gemma-3-270m-q4_k_m.gguf", false, {212}},
    {"qwen2.5-coder-0.5b-instruct-q4_k_m",
     "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
     true,
     {128247}},
};

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

std::string bytes_of(const Json& row) {
  return row.contains("text") ? row["text"].get<std::string>()
                              : from_hex(row["bytes_hex"].get<std::string>());
}

std::string replaced(const std::string& bytes) {
  std::string out;
  for (size_t pos = 0; pos < bytes.size();) {
    const base::Utf8Step step = base::utf8_step(bytes, pos);
    base::utf8_append(step.code, &out);
    pos += static_cast<size_t>(step.length);
  }
  return out;
}

class TokensGolden : public testing::TestWithParam<Model> {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("CULET_MODELS");
    ASSERT_NE(folder, nullptr) << "set CULET_MODELS to the folder with the model files; "
                                  "scripts/fetch_model fetches them";
    auto file = format::GgufFile::open(std::string(folder) + "/" + GetParam().file);
    ASSERT_TRUE(file) << file.error().message;
    auto vocabulary = model::read_vocabulary(*file);
    ASSERT_TRUE(vocabulary) << vocabulary.error().message;
    auto tokenizer = Tokenizer::make(*vocabulary);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    tokenizer_ = *tokenizer;
  }

  // The rows of a .jsonl file, at least `expected` of them.
  std::vector<Json> rows(const std::string& name, size_t expected) {
    const std::string path = folder() + name;
    auto text = base::read_file(path);
    EXPECT_TRUE(text) << path;
    std::vector<Json> found;
    for (size_t begin = 0; text && begin < text->size();) {
      const size_t end = std::min(text->find('\n', begin), text->size());
      auto row = base::parse_json(std::string_view(*text).substr(begin, end - begin));
      EXPECT_TRUE(row) << path;
      if (row) found.push_back(std::move(*row));
      begin = end + 1;
    }
    EXPECT_GE(found.size(), expected) << path;
    return found;
  }

  static std::string folder() {
    return std::string(CULET_TEST_DATA) + "/golden/real/" + GetParam().name + "/";
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
};

// Verifies text.sentencepiece, reports-bits.notorch#44.
TEST_P(TokensGolden, EveryTextGivesTheReferenceIds) {
  for (const Json& row : rows("tokens.jsonl", 144)) {
    SCOPED_TRACE(row["name"].get<std::string>());
    const std::string text = bytes_of(row);
    const bool special = row["add_special"].get<bool>();
    const auto ids = tokenizer_->tokenize(
        text,
        {.begin = special, .end = special, .parse_special = row["parse_special"].get<bool>()});
    ASSERT_TRUE(ids) << ids.error().message;
    if (row["ids"].is_null()) {  // the reference refuses the bytes; we must only not lose them
      EXPECT_FALSE(ids->empty());
      continue;
    }
    const std::string trust = row.value("trust", "");
    if (trust == "either" && *ids == row["ids_hf"].get<Ids>()) continue;
    EXPECT_EQ(*ids, row[trust == "hf" ? "ids_hf" : "ids"].get<Ids>());
  }
}

TEST_P(TokensGolden, DetokenizedBytesAreTheReferences) {
  for (const Json& row : rows("detokenize.jsonl", 107)) {
    SCOPED_TRACE(row["name"].get<std::string>());
    const Ids ids = row["ids"].get<Ids>();
    const bool special = row["unparse_special"].get<bool>();
    const std::string expected = bytes_of(row);
    EXPECT_EQ(tokenizer_->detokenize(ids, row["remove_special"].get<bool>(), special), expected);
    if (!row.contains("pieces_hex")) continue;
    const auto pieces = row["pieces_hex"].get<std::vector<std::string>>();
    ASSERT_EQ(pieces.size(), ids.size());
    text::Detokenizer stream(*tokenizer_, special);
    std::string streamed;
    for (size_t i = 0; i < ids.size(); ++i) {
      EXPECT_EQ(tokenizer_->piece(ids[i], special), from_hex(pieces[i])) << "token " << ids[i];
      streamed += stream.push(ids[i]);
      EXPECT_TRUE(base::utf8_valid(streamed));
    }
    streamed += stream.flush();
    EXPECT_EQ(streamed, replaced(expected));
  }
}

// The prompt of a chat cut into what the template wrote and what the messages say, as far as the
// contents appear in it literally.
std::vector<Tokenizer::Piece> pieces_of(const std::string& prompt,
                                        const std::vector<std::string>& contents) {
  std::vector<Tokenizer::Piece> pieces;
  size_t done = 0;
  for (const std::string& content : contents) {
    const size_t at = prompt.find(content, done);
    if (content.empty() || at == std::string::npos) continue;
    pieces.push_back({std::string_view(prompt).substr(done, at - done), true});
    pieces.push_back({std::string_view(prompt).substr(at, content.size()), false});
    done = at + content.size();
  }
  pieces.push_back({std::string_view(prompt).substr(done), true});
  return pieces;
}

class ChatsGolden : public TokensGolden {};

TEST_P(ChatsGolden, PromptsGiveTheReferenceIdsAndUsersCannotSpellControlTokens) {
  int innocent = 0, hostile = 0;
  for (const Json& row : rows("chat.jsonl", 13)) {
    SCOPED_TRACE(row["name"].get<std::string>());
    const std::string prompt = row["prompt"].get<std::string>();
    const Ids expected = row["ids"].get<Ids>();
    const auto whole =
        tokenizer_->tokenize(prompt, {.begin = true, .end = true, .parse_special = true});
    ASSERT_TRUE(whole) << whole.error().message;
    EXPECT_EQ(*whole, expected);

    std::vector<std::string> contents;
    for (const Json& message : row["messages"]) {
      if (message.contains("content") && message["content"].is_string()) {
        contents.push_back(message["content"].get<std::string>());
      }
    }
    const auto controls = [&](std::string_view text) {
      const auto ids =
          tokenizer_->tokenize(text, {.begin = false, .end = false, .parse_special = true});
      return std::count_if(ids->begin(), ids->end(),
                           [&](Token t) { return tokenizer_->is_control(t); });
    };
    const auto pieces = pieces_of(prompt, contents);
    const auto ids = tokenizer_->tokenize_pieces(pieces, true);
    ASSERT_TRUE(ids) << ids.error().message;
    EXPECT_EQ(tokenizer_->detokenize(*ids, false, true), prompt);
    std::ptrdiff_t in_template = 0, in_messages = 0;
    for (const Tokenizer::Piece& piece : pieces) {
      (piece.is_template ? in_template : in_messages) += controls(piece.text);
    }
    EXPECT_EQ(
        std::count_if(ids->begin(), ids->end(), [&](Token t) { return tokenizer_->is_control(t); }),
        in_template);
    if (in_messages == 0) {
      EXPECT_EQ(*ids, expected);
      ++innocent;
    } else {
      EXPECT_NE(*ids, expected);
      ++hostile;
    }
  }
  EXPECT_GE(innocent, 10);
  EXPECT_GE(hostile, 1);
}

TEST_P(TokensGolden, TheSameTokensEndGeneration) {
  auto text = base::read_file(folder() + "model.json");
  ASSERT_TRUE(text) << text.error().message;
  auto facts = base::parse_json(*text);
  ASSERT_TRUE(facts) << facts.error().message;
  Ids expected;
  for (const Json& row : (*facts)["tokenizer"]["end_of_generation_llama_cpp"]) {
    const Token t = row[0].get<Token>();
    const Ids& without = GetParam().not_ends;
    if (std::find(without.begin(), without.end(), t) == without.end()) expected.push_back(t);
  }
  Ids ends;
  for (Token t = 0; t < tokenizer_->size(); ++t) {
    if (tokenizer_->is_end_of_generation(t)) ends.push_back(t);
  }
  EXPECT_EQ(ends, expected);
  EXPECT_EQ(tokenizer_->size(), (*facts)["vocabulary"].get<int32_t>());
  EXPECT_EQ(tokenizer_->bos(), (*facts)["tokenizer"]["bos"].get<Token>());
  EXPECT_EQ(tokenizer_->eos(), (*facts)["tokenizer"]["eos"].get<Token>());
}

std::string test_name(const testing::TestParamInfo<Model>& model) {
  std::string name = model.param.name;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<uint8_t>(c)); }, '_');
  return name;
}

std::vector<Model> chat_models() {
  std::vector<Model> models;
  std::copy_if(std::begin(kModels), std::end(kModels), std::back_inserter(models),
               [](const Model& model) { return model.has_chat; });
  return models;
}

INSTANTIATE_TEST_SUITE_P(Real, TokensGolden, testing::ValuesIn(kModels), test_name);
INSTANTIATE_TEST_SUITE_P(Real, ChatsGolden, testing::ValuesIn(chat_models()), test_name);

}  // namespace
}  // namespace culet
