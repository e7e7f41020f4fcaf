// Every vocabulary of the reference vectors: all texts give the reference ids.
//
// CULET_VECTORS names the folder that scripts/fetch_vectors fills. A vocabulary lies in
// ggml-vocab-NAME.gguf, its texts in NAME.gguf.inp (separated by a line kSeparator), their ids in
// NAME.gguf.out (a line a text); the ids are those of the published tokenizers, without BOS and
// EOS and with control tokens left as text. The tables below name every vocabulary that the folder
// may hold, so that a new one is either tested or left out with a reason.
#include "base/files.h"
#include "base/json.h"
#include "format/gguf.h"
#include "model/vocabulary.h"
#include "text/tokenizer.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace culet {
namespace {

using text::Token;
using text::Tokenizer;
using Ids = std::vector<Token>;

constexpr std::string_view kSeparator = "\n__ggml_vocab_test__\n";
constexpr std::string_view kPrefix = "ggml-vocab-";
constexpr std::string_view kHowToSet =
    "set CULET_VECTORS to the folder that scripts/fetch_vectors prints";

const char* const kVocabularies[] = {"bert-bge",  "command-r", "deepseek-coder", "deepseek-llm",
                                     "falcon",    "gemma-4",   "gpt-2",          "llama-bpe",
                                     "llama-spm", "mpt",       "phi-3",          "qwen2",
                                     "qwen35",    "refact",    "starcoder"};

// Files without texts and ids: there is nothing to compare, only to load.
struct WithoutVectors {
  const char* name;
  bool keeps_text;  // else: it rewrites characters and runs of spaces
};
const WithoutVectors kWithoutVectors[] = {
    {"aquila", true},
    {"baichuan", true},
    {"gpt-neox", true},
    {"nomic-bert-moe", false},  // unigram: UnigramGolden has its ids
};

std::string folder() {
  const char* set = std::getenv("CULET_VECTORS");
  return set == nullptr ? "" : set;
}

Result<std::shared_ptr<const Tokenizer>> load(const std::string& name) {
  const std::string path = folder() + "/" + std::string(kPrefix) + name + ".gguf";
  CULET_TRY(const format::GgufFile file, format::GgufFile::open(path));
  CULET_TRY(const text::Vocabulary vocabulary, model::read_vocabulary(file));
  return Tokenizer::make(vocabulary);
}

std::vector<std::string> texts_of(const std::string& input) {
  std::vector<std::string> texts;
  size_t begin = 0;
  for (;;) {
    const size_t end = input.find(kSeparator, begin);
    // In most files a separator follows the last text too.
    if (end != std::string::npos || begin < input.size()) {
      texts.push_back(input.substr(begin, end == std::string::npos ? end : end - begin));
    }
    if (end == std::string::npos) return texts;
    begin = end + kSeparator.size();
  }
}

std::vector<Ids> ids_of(const std::string& output) {
  std::vector<Ids> rows;
  const char* const end = output.data() + output.size();
  for (const char* at = output.data(); at != end; ++at) {
    Ids& row = rows.emplace_back();
    for (; at != end && *at != '\n';) {
      if (*at == ' ') {
        ++at;
        continue;
      }
      Token id = -1;
      const auto [next, error] = std::from_chars(at, end, id);
      if (error != std::errc()) return {};
      row.push_back(id);
      at = next;
    }
    if (at == end) break;
  }
  return rows;
}

class Vectors : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { ASSERT_FALSE(folder().empty()) << kHowToSet; }
};

// Requirement text.byte-level-bpe "byte-level BPE": splits by the pre-tokenizer that the file
// names; the reference's ids; text is not normalized (decision 0007)
// Requirement reports-bits.llama.cpp#21343 "ggml-org/llama.cpp#21343: Gemma 4 tokenized as
// SentencePiece; runs of newlines": the ids of all 46 texts, and newlines up to 31 in a row
// Requirement reports-bits.llama.cpp#8338 "ggml-org/llama.cpp#8338, #6809: tabs and double newlines
// split differently": the reference's ids, on every vocabulary
// Verifies text.sentencepiece.
TEST_P(Vectors, EveryTextGivesTheReferenceIds) {
  const auto tokenizer = load(GetParam());
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const std::string path = folder() + "/" + std::string(kPrefix) + GetParam() + ".gguf";
  const auto input = base::read_file(path + ".inp"), output = base::read_file(path + ".out");
  ASSERT_TRUE(input && output);
  const std::vector<std::string> texts = texts_of(*input);
  const std::vector<Ids> rows = ids_of(*output);
  ASSERT_GE(texts.size(), 40u);
  ASSERT_EQ(texts.size(), rows.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto ids =
        (*tokenizer)->tokenize(texts[i], {.begin = false, .end = false, .parse_special = false});
    ASSERT_TRUE(ids) << ids.error().message;
    EXPECT_EQ(*ids, rows[i]) << "text " << i << ": " << texts[i];
  }
}

std::string test_name(const testing::TestParamInfo<const char*>& vocabulary) {
  std::string name = vocabulary.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, Vectors, testing::ValuesIn(kVocabularies), test_name);

TEST(VectorsFolder, HoldsNothingThatIsNotListed) {
  ASSERT_FALSE(folder().empty()) << kHowToSet;
  std::set<std::string> with_texts, without;
  for (const auto& entry : std::filesystem::directory_iterator(folder())) {
    const std::string file = entry.path().filename().string();
    if (!file.starts_with(kPrefix) || !file.ends_with(".gguf")) continue;
    const std::string name = file.substr(kPrefix.size(), file.size() - kPrefix.size() - 5);
    (std::filesystem::exists(entry.path().string() + ".inp") ? with_texts : without).insert(name);
  }
  EXPECT_EQ(with_texts, std::set<std::string>(std::begin(kVocabularies), std::end(kVocabularies)));
  std::set<std::string> expected;
  for (const WithoutVectors& row : kWithoutVectors) expected.insert(row.name);
  EXPECT_EQ(without, expected);
}

TEST(VectorsFolder, FilesWithoutTextsTakeText) {
  ASSERT_FALSE(folder().empty()) << kHowToSet;
  for (const WithoutVectors& row : kWithoutVectors) {
    SCOPED_TRACE(row.name);
    const auto tokenizer = load(row.name);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    const std::string text = "The facet, 2026: d\xc3\xa9j\xc3\xa0 vu\n\n\xe4\xbd\xa0\xe5\xa5\xbd";
    const auto ids =
        (*tokenizer)->tokenize(text, {.begin = false, .end = false, .parse_special = false});
    ASSERT_TRUE(ids) << ids.error().message;
    const std::string back = (*tokenizer)->detokenize(*ids, false, false);
    EXPECT_EQ(back, row.keeps_text
                        ? text
                        : "The facet, 2026: d\xc3\xa9j\xc3\xa0 vu \xe4\xbd\xa0\xe5\xa5\xbd");
  }
}

// The published tokenizer merges newlines by its list; up to 31 of them are one token.
// Verifies reports-bits.llama.cpp#21343.
TEST(VectorsFolder, RunsOfNewlinesAreOneTokenInGemma4) {
  ASSERT_FALSE(folder().empty()) << kHowToSet;
  const auto tokenizer = load("gemma-4");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  for (size_t n = 1; n <= 31; ++n) {
    const std::string run(n, '\n');
    const auto token = (*tokenizer)->find(run);
    ASSERT_TRUE(token) << n;
    const auto ids =
        (*tokenizer)->tokenize(run, {.begin = false, .end = false, .parse_special = false});
    ASSERT_TRUE(ids);
    EXPECT_EQ(*ids, Ids{*token}) << n;
  }
}

// The vocabulary as a model's own vocab.txt spells it: what continues a word starts with "##".
struct VocabTxt {
  explicit VocabTxt(const text::Vocabulary& from) : vocabulary(from) {
    constexpr std::string_view kMark = "\xe2\x96\x81";
    for (size_t i = 0; i < from.tokens.size(); ++i) {
      if (from.kinds[i] != text::TokenKind::kNormal) continue;
      const std::string_view token = from.tokens[i];
      const bool begins = token.starts_with(kMark);
      spelled.push_back(begins ? std::string(token.substr(kMark.size()))
                               : "##" + std::string(token));
      vocabulary.tokens[i] = spelled.back();
    }
  }
  std::deque<std::string> spelled;
  text::Vocabulary vocabulary;
};

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

// The ids that SentencePiece itself gives with this vocabulary (tests/golden/unigram/SOURCE.md).
// Verifies text.unigram.
TEST(UnigramGolden, EveryTextGivesTheIdsOfSentencePiece) {
  ASSERT_FALSE(folder().empty()) << kHowToSet;
  const auto tokenizer = load("nomic-bert-moe");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const auto rows = base::read_file(std::string(CULET_TEST_DATA) + "/golden/unigram/tokens.jsonl");
  ASSERT_TRUE(rows) << rows.error().message;
  size_t seen = 0, ids_seen = 0;
  for (size_t begin = 0; begin < rows->size(); ++seen) {
    const size_t end = std::min(rows->find('\n', begin), rows->size());
    const auto row = base::parse_json(std::string_view(*rows).substr(begin, end - begin));
    ASSERT_TRUE(row);
    begin = end + 1;
    SCOPED_TRACE((*row)["name"].get<std::string>());
    const std::string text = row->contains("text")
                                 ? (*row)["text"].get<std::string>()
                                 : from_hex((*row)["bytes_hex"].get<std::string>());
    const auto ids =
        (*tokenizer)->tokenize(text, {.begin = false, .end = false, .parse_special = false});
    ASSERT_TRUE(ids) << ids.error().message;
    EXPECT_EQ(*ids, (*row)["ids"].get<Ids>());
    ids_seen += ids->size();
  }
  EXPECT_EQ(seen, 144u);
  EXPECT_GT(ids_seen, 1000u);
}

// all-MiniLM-L6-v2 has the vocabulary of bge (that of BERT, uncased), so its vectors, made by the
// published tokenizer from vocab.txt, are held against both spellings of it.
TEST(WordPieceGolden, EveryTextGivesTheIdsOfThePublishedTokenizer) {
  ASSERT_FALSE(folder().empty()) << kHowToSet;
  const auto file = format::GgufFile::open(folder() + "/ggml-vocab-bert-bge.gguf");
  ASSERT_TRUE(file) << file.error().message;
  const auto vocabulary = model::read_vocabulary(*file);
  ASSERT_TRUE(vocabulary) << vocabulary.error().message;
  const VocabTxt as_txt(*vocabulary);
  const auto rows =
      base::read_file(std::string(CULET_TEST_DATA) + "/golden/real/all-minilm-l6-v2/tokens.jsonl");
  ASSERT_TRUE(rows) << rows.error().message;
  for (const text::Vocabulary& form : {*vocabulary, as_txt.vocabulary}) {
    const auto tokenizer = Tokenizer::make(form);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    size_t seen = 0;
    for (size_t begin = 0; begin < rows->size(); ++seen) {
      const size_t end = std::min(rows->find('\n', begin), rows->size());
      const auto row = base::parse_json(std::string_view(*rows).substr(begin, end - begin));
      ASSERT_TRUE(row);
      begin = end + 1;
      SCOPED_TRACE((*row)["name"].get<std::string>());
      const std::string text = row->contains("text")
                                   ? (*row)["text"].get<std::string>()
                                   : from_hex((*row)["bytes_hex"].get<std::string>());
      const bool special = (*row)["add_special"].get<bool>();
      const auto ids = (*tokenizer)
                           ->tokenize(text, {.begin = special,
                                             .end = special,
                                             .parse_special = (*row)["parse_special"].get<bool>()});
      ASSERT_TRUE(ids) << ids.error().message;
      EXPECT_EQ(*ids, (*row)["ids"].get<Ids>());
    }
    EXPECT_EQ(seen, 144u);
  }
}

}  // namespace
}  // namespace culet
