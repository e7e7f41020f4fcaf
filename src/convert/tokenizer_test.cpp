#include "convert/tokenizer.h"

#include "convert/sentencepiece.h"
#include "format/gguf.h"
#include "text/pretokenizer.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <sstream>
#include <string>
#include <unistd.h>

namespace culet::convert {
namespace {

using Json = nlohmann::ordered_json;

// The keys that a tokenizer becomes, read back.
class Keys {
 public:
  Keys(const TokenizerFiles& files, const TokenizerOptions& options) {
    format::GgufMetadata metadata;
    const auto added = add_tokenizer(files, options, &metadata, &notes);
    if (!added) {
      error = added.error().message;
      return;
    }
    char name[] = "/tmp/culet-tokenizer-XXXXXX";
    path_ = ::mkdtemp(name);
    auto writer = format::GgufWriter::create(path_ + "/a.gguf", metadata, {});
    EXPECT_TRUE(writer) << writer.error().message;
    EXPECT_TRUE(writer->finish());
    auto file = format::GgufFile::open(path_ + "/a.gguf");
    EXPECT_TRUE(file) << file.error().message;
    file_ = *std::move(file);
  }
  ~Keys() {
    if (path_.empty()) return;
    ::unlink((path_ + "/a.gguf").c_str());
    ::rmdir(path_.c_str());
  }

  std::string text(const std::string& key) const {
    const auto* value = file_.find("tokenizer.ggml." + key);
    return value ? std::string(value->as_string().value_or("?")) : "";
  }
  int64_t number(const std::string& key) const {
    const auto* value = file_.find("tokenizer.ggml." + key);
    return value ? value->as_int().value_or(-2) : -1;
  }
  // The elements of an array between spaces.
  std::string list(const std::string& key) const {
    std::ostringstream out;
    const auto* value = file_.find("tokenizer.ggml." + key);
    for (uint64_t i = 0; value && i < value->size(); ++i) {
      const format::MetaValue element = value->at(i);
      if (i) out << " ";
      if (const auto string = element.as_string()) {
        out << *string;
      } else {
        out << *element.as_number();
      }
    }
    return out.str();
  }
  const format::MetaValue* find(const std::string& key) const { return file_.find(key); }

  std::string error;
  std::vector<std::string> notes;

 private:
  std::string path_;
  format::GgufFile file_;
};

Json byte_level() {
  return Json::parse(R"({
    "added_tokens": [{"id": 4, "content": "<end>", "special": true},
                     {"id": 5, "content": "<tool>", "special": false},
                     {"id": 6, "content": "<|x|>", "special": false}],
    "pre_tokenizer": {"type": "ByteLevel", "use_regex": true},
    "decoder": {"type": "ByteLevel"},
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<end>"}}, {"Sequence": {"id": "A"}}]},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "\u0120": 3},
              "merges": [["a", "b"], ["a", " "]]}})");
}

TEST(Tokenizers, ByteLevel) {
  const Json tokenizer = byte_level();
  const Json settings = Json::parse(R"({"bos_token": {"content": "<end>"}, "eos_token": "<end>",
    "chat_template": [{"name": "tool", "template": "t"}, {"name": "default", "template": "d"}]})");
  const Keys keys({.tokenizer = &tokenizer, .settings = &settings}, {.rows = 8});
  ASSERT_EQ(keys.error, "");
  EXPECT_EQ(keys.text("model"), "gpt2");
  EXPECT_EQ(keys.text("pre"), "gpt-2");
  EXPECT_EQ(keys.list("tokens"), "a b ab \xc4\xa0 <end> <tool> <|x|> [PAD7]");
  EXPECT_EQ(keys.list("token_type"), "1 1 1 1 3 4 3 5");
  EXPECT_EQ(keys.list("merges"), "a b a \xc4\xa0");
  EXPECT_EQ(keys.number("bos_token_id"), 4);
  EXPECT_EQ(keys.find("tokenizer.ggml.add_bos_token")->as_bool(), true);
  EXPECT_EQ(keys.find("tokenizer.ggml.scores"), nullptr);
  EXPECT_EQ(keys.find("tokenizer.chat_template")->as_string(), "d");
}

TEST(Tokenizers, TheFamilyChoosesAmongNamesOfOnePreTokenizer) {
  const Json tokenizer = byte_level();
  EXPECT_EQ(Keys({.tokenizer = &tokenizer}, {.rows = 8, .pre = "olmo"}).text("pre"), "olmo");
  EXPECT_EQ(Keys({.tokenizer = &tokenizer}, {.rows = 8, .pre = "qwen2"}).text("pre"), "gpt-2");
}

// Every name of the table is one that the tokenizers know.
TEST(Tokenizers, NamesOfPreTokenizersAreKnown) {
#define CULET_PRE(names, whole, ...)                   \
  {                                                    \
    std::istringstream words(names);                   \
    for (std::string name; words >> name;) {           \
      const auto* row = text::find_pretokenizer(name); \
      ASSERT_NE(row, nullptr) << name;                 \
      EXPECT_EQ(row->ignore_merges, whole) << name;    \
    }                                                  \
  }
#include "convert/tokenizers.def"
#undef CULET_PRE
}

TEST(Tokenizers, MergesOverCharacters) {
  Json tokenizer = Json::parse(R"({
    "added_tokens": [{"id": 0, "content": "<unk>", "special": true}],
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "_"}]},
    "model": {"type": "BPE", "byte_fallback": true, "unk_token": "<unk>",
              "vocab": {"<unk>": 0, "<0x41>": 1, "a": 2, "b": 3, "ab": 4, "ba": 5},
              "merges": ["b a", "a b"]}})");
  const Keys keys({.tokenizer = &tokenizer}, {.rows = 6});
  ASSERT_EQ(keys.error, "");
  EXPECT_EQ(keys.text("model"), "llama");
  EXPECT_EQ(keys.list("token_type"), "2 6 1 1 1 1");
  EXPECT_EQ(keys.list("scores"), "-1000 0 0 0 -1 -0");
  EXPECT_EQ(keys.find("tokenizer.ggml.add_space_prefix")->as_bool(), true);
  const Keys other({.tokenizer = &tokenizer}, {.rows = 6, .kind = "gemma4", .visible = {"<unk>"}});
  EXPECT_EQ(other.text("model"), "gemma4");
  EXPECT_EQ(other.list("merges"), "b a a b");
  EXPECT_EQ(other.list("token_type"), "4 6 1 1 1 1");
}

TEST(Tokenizers, WhatCannotBeSaid) {
  const auto error = [](const char* path, const Json& value) {
    Json tokenizer = byte_level();
    tokenizer[Json::json_pointer(path)] = value;
    return Keys({.tokenizer = &tokenizer}, {.rows = 8}).error;
  };
  EXPECT_EQ(error("/model/type", "Unigram"),
            "a tokenizer of the type 'Unigram' is not read; BPE and WordPiece are");
  EXPECT_EQ(error("/pre_tokenizer", {{"type", "Punctuation"}}),
            "the pre-tokenizer has a step 'Punctuation', which a GGUF file cannot express");
  EXPECT_EQ(error("/normalizer", {{"type", "Lowercase"}}),
            "the tokenizer changes texts by 'Lowercase' first, which a GGUF file cannot express");
  EXPECT_EQ(error("/normalizer", {{"type", "NFC"}}), "");
  EXPECT_EQ(error("/pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", true}}),
            "the pre-tokenizer puts a space before every text, which a GGUF file cannot express");
  EXPECT_EQ(error("/model/vocab/b", 0u), "tokenizer.json gives 'a' and 'b' the same id 0");
  EXPECT_EQ(error("/model/vocab/b", 8u),
            "the tokenizer gives 'b' the id 8, but the embedding has 8 rows");
  EXPECT_EQ(error("/model/vocab/b", -1),
            "the tokenizer gives 'b' the id -1, but the embedding has 8 rows");
  EXPECT_EQ(error("/model/merges", {3}),
            "a merge of tokenizer.json is neither a text nor a pair of texts");
  EXPECT_EQ(error("/model", nullptr), "tokenizer.json has no model");
  EXPECT_EQ(error("/model/vocab", 3), "tokenizer.json has no vocab");
  EXPECT_EQ(error("/model/vocab", Json::object()), "");  // the added tokens are some
  EXPECT_EQ(error("/model/merges", 3), "tokenizer.json has no merges");
  EXPECT_EQ(error("/added_tokens/0/id", "4"),
            "the tokenizer gives '<end>' the id \"4\", but the embedding has 8 rows");
  EXPECT_EQ(error("/added_tokens/0/content", ""), "the added token 4 has no text");
  EXPECT_EQ(error("/added_tokens/1/id", 4u),
            "the added tokens '<end>' and '<tool>' have the same id 4");
  EXPECT_EQ(error("/pre_tokenizer", {{"type", "Split"},
                                     {"pattern", {{"Regex", "x+"}}},
                                     {"behavior", "Isolated"},
                                     {"invert", false}}),
            "no pre-tokenizer of GGUF files has these steps: x+");
  Json tokenizer = byte_level();
  tokenizer["pre_tokenizer"] = tokenizer["decoder"] = nullptr;
  EXPECT_EQ(Keys({.tokenizer = &tokenizer}, {.rows = 8}).error,
            "the tokenizer merges characters and has no tokens for bytes, which a GGUF file cannot "
            "express");
  tokenizer["model"]["byte_fallback"] = true;  // one of its merges has a space
  EXPECT_EQ(Keys({.tokenizer = &tokenizer}, {.rows = 8}).error,
            "a merge of tokenizer.json has a space in it");
  tokenizer = {{"model",
                {{"type", "BPE"},
                 {"byte_fallback", true},
                 {"vocab", Json::object()},
                 {"merges", Json::array()}}}};
  EXPECT_EQ(Keys({.tokenizer = &tokenizer}, {.rows = 8}).error, "the tokenizer has no tokens");
  tokenizer = byte_level();
  const Json config = {{"eos_token_id", 99}}, settings = {{"eos_token", "<nope>"}};
  EXPECT_EQ(Keys({.tokenizer = &tokenizer, .config = &config}, {.rows = 8}).error,
            "eos_token_id is 99, but the tokenizer has 8 tokens");
  EXPECT_EQ(Keys({.tokenizer = &tokenizer, .settings = &settings}, {.rows = 8}).error,
            "tokenizer_config.json names '<nope>' as eos_token, which is no token");
  EXPECT_NE(Keys({}, {.rows = 8}).error.find("neither tokenizer.json nor"), std::string::npos);
}

TEST(Tokenizers, WordPiece) {
  Json tokenizer = Json::parse(R"({
    "added_tokens": [{"id": 0, "content": "[CLS]", "special": true},
                     {"id": 1, "content": "[SEP]", "special": true}],
    "normalizer": {"type": "BertNormalizer", "lowercase": true, "strip_accents": false},
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "[CLS]"}}, {"Sequence": {"id": "A"}},
                 {"SpecialToken": {"id": "[SEP]"}}]},
    "model": {"type": "WordPiece", "continuing_subword_prefix": "##",
              "vocab": {"[CLS]": 0, "[SEP]": 1, "un": 2, "##do": 3}}})");
  const Json settings = {{"cls_token", "[CLS]"}, {"sep_token", "[SEP]"}};
  const Keys keys({.tokenizer = &tokenizer, .settings = &settings}, {.rows = 4});
  ASSERT_EQ(keys.error, "");
  EXPECT_EQ(keys.text("model"), "bert");
  EXPECT_EQ(keys.list("tokens"), "[CLS] [SEP] \xe2\x96\x81un do");
  EXPECT_EQ(keys.number("bos_token_id"), 0);  // encoders call it by what it is for
  EXPECT_EQ(keys.number("eos_token_id"), 1);
  EXPECT_EQ(keys.number("seperator_token_id"), 1);
  EXPECT_EQ(keys.find("tokenizer.ggml.normalizer.lowercase")->as_bool(), true);
  EXPECT_EQ(keys.find("tokenizer.ggml.normalizer.strip_accents")->as_bool(), false);
  tokenizer["model"]["continuing_subword_prefix"] = "@@";
  EXPECT_EQ(
      Keys({.tokenizer = &tokenizer}, {.rows = 4}).error,
      "the tokenizer does not mark continued pieces with ##, which a GGUF file cannot express");
}

// Older folders list added tokens in tokenizer_config.json, by id.
TEST(Tokenizers, AddedTokensOfTheSettings) {
  Json tokenizer = byte_level();
  tokenizer.erase("added_tokens");
  tokenizer.erase("post_processor");
  Json settings = Json::parse(R"({"added_tokens_decoder": {
    "5": {"content": "<tool>", "special": true}, "900": {"content": "<image>", "special": true}}})");
  const Keys keys({.tokenizer = &tokenizer, .settings = &settings}, {.rows = 8});
  ASSERT_EQ(keys.error, "");
  EXPECT_EQ(keys.list("tokens"), "a b ab \xc4\xa0 [PAD4] <tool> [PAD6] [PAD7]");
  EXPECT_EQ(keys.list("token_type"), "1 1 1 1 5 3 5 5");
  ASSERT_EQ(keys.notes.size(), 1u);
  EXPECT_EQ(keys.notes[0],
            "left out: '<image>', an added token, behind the last row of the embedding");
  settings["added_tokens_decoder"]["five"] = settings["added_tokens_decoder"]["5"];
  EXPECT_EQ(Keys({.tokenizer = &tokenizer, .settings = &settings}, {.rows = 8}).error,
            "the tokenizer gives '<tool>' the id null, but the embedding has 8 rows");
}

// ---------------------------------------------------------------- SentencePiece

// One piece, trained as BPE (2) or as something else.
std::string pieces(char trained) {
  return std::string("\x0a\x07\x0a\x05<unk>\x12\x02\x18") + trained;
}

TEST(Tokenizers, SentencePieces) {
  const Json settings = {{"add_prefix_space", true}};
  TokenizerFiles files{.settings = &settings};
  files.sentencepiece = pieces(2);
  const Keys keys(files, {.rows = 2});
  ASSERT_EQ(keys.error, "");
  EXPECT_EQ(keys.text("model"), "llama");
  EXPECT_EQ(keys.list("tokens"), "<unk> [PAD1]");
  EXPECT_EQ(keys.find("tokenizer.ggml.add_space_prefix")->as_bool(), true);
  EXPECT_EQ(Keys(files, {.rows = 0}).error,
            "tokenizer.model has 1 tokens, but the embedding has 0 rows");
  files.sentencepiece = pieces(1);
  EXPECT_EQ(Keys(files, {.rows = 2}).error,
            "tokenizer.model is a unigram model, which is not read yet");
}

std::span<const std::byte> bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

TEST(SentencePiece, IsRead) {
  std::string model(
      "\x0a\x0a\x0a\x01"
      "a\x15\x00\x00\x80\xbf\x18\x04",
      12);
  model += "\x0a\x07\x0a\x05<unk>";
  model += std::string("\x12\x02\x18\x02\x1a\x02\x18\x00", 8);
  model += std::string("\x21\x00\x00\x00\x00\x00\x00\x00\x00", 9);  // a field that nobody reads
  const auto read = parse_sentencepiece(bytes(model), "m");
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read->pieces.size(), 2u);
  EXPECT_EQ(read->pieces[0].text, "a");
  EXPECT_EQ(read->pieces[0].score, -1.f);
  EXPECT_EQ(read->pieces[0].kind, 4);
  EXPECT_EQ(read->pieces[1].kind, 1);
  EXPECT_TRUE(read->is_bpe);
  EXPECT_FALSE(read->add_space_prefix);
  for (size_t length = 0; length < 19; ++length) {
    const auto cut = parse_sentencepiece(bytes(model.substr(0, length)), "m");
    EXPECT_EQ(cut.has_value(), length == 12) << length;
  }
}

// Verifies files.conversion.
TEST(SentencePiece, DamageIsRefused) {
  for (const std::string& bad : {std::string("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
                                 std::string("\x0a\x02\x18\x07"), std::string("\x0b"),
                                 std::string(20, '\xff'), std::string()}) {
    const auto read = parse_sentencepiece(bytes(bad), "m.model");
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().code, ErrorCode::kCorrupt);
    EXPECT_EQ(read.error().message.find("m.model is not a SentencePiece model"), 0u);
  }
}

}  // namespace
}  // namespace culet::convert
