// Vocabulary, text stream and sampler of loaded models, through the public headers: against what
// the files themselves say, and against the text of generate().
#include "culet/culet.h"
#include "support.h"

#include <gtest/gtest.h>

#include <map>

namespace culet::test {
namespace {

constexpr const char* kModels[] = {"llama", "gemma3", "qwen2", "gemma4-dense"};

std::string tiny(const std::string& name) { return golden("tiny/" + name + "/model.gguf"); }

TEST(Vocabulary, KindsAndTextsAreThoseOfTheFile) {
  for (const char* name : kModels) {
    const auto model = load(tiny(name), {.text_only = true});
    const Vocabulary& v = model->vocabulary();
    const auto file = format::GgufFile::open(tiny(name));
    ASSERT_TRUE(file);
    const auto* tokens = file->find("tokenizer.ggml.tokens");
    const auto* kinds = file->find("tokenizer.ggml.token_type");
    ASSERT_TRUE(tokens && kinds);
    ASSERT_EQ(static_cast<int64_t>(tokens->size()), v.size());
    EXPECT_EQ(v.size(), model->info().vocabulary_size);
    std::map<TokenKind, int> seen;
    for (Token id = 0; id < v.size(); ++id) {
      EXPECT_EQ(static_cast<int64_t>(v.kind(id)), kinds->at(static_cast<uint64_t>(id)).as_int());
      EXPECT_EQ(v.text(id), tokens->at(static_cast<uint64_t>(id)).as_string());
      ++seen[v.kind(id)];
      const bool shown = v.kind(id) == TokenKind::kNormal || v.kind(id) == TokenKind::kByte ||
                         v.kind(id) == TokenKind::kUserDefined;
      EXPECT_EQ(v.bytes(id).empty(), !shown) << name << " " << id;
      if (shown) {
        const auto found = v.find_bytes(v.bytes(id));
        ASSERT_TRUE(found);
        EXPECT_EQ(v.bytes(*found), v.bytes(id));
      }
      if (v.kind(id) == TokenKind::kControl) {
        EXPECT_EQ(v.find_special(v.text(id)), id);
      }
    }
    EXPECT_GT(seen[TokenKind::kNormal], 0) << name;
    EXPECT_GT(seen[TokenKind::kControl], 0) << name;
    for (const Token id : v.end_of_generation()) EXPECT_TRUE(v.is_end_of_generation(id));
    EXPECT_FALSE(v.end_of_generation().empty());
  }
}

// Tokens and text are the golden tests' matter; here: parts and special tokens go through.
TEST(Vocabulary, TokenizesWholeTextsAndParts) {
  for (const char* name : kModels) {
    const auto model = load(tiny(name), {.text_only = true});
    const Vocabulary& v = model->vocabulary();
    for (const std::string text : {"Hello you", "a\nb\n\n\xc3\xa9 \xf0\x9f\x98\x80 end"}) {
      const auto whole = v.tokenize(text).value();
      EXPECT_EQ(v.tokenize(text, {.end = false}).value(), whole);
      const auto later = v.tokenize(text, {.end = false, .continued = true}).value();
      EXPECT_TRUE(std::equal(later.rbegin(), later.rend(), whole.rbegin()));
      EXPECT_EQ(v.detokenize(later, false), text);
    }
    const Token end = v.end_of_generation().front();
    const std::string spelled(v.text(end));
    EXPECT_EQ(v.tokenize(spelled, {.begin = false, .end = false, .parse_special = true}).value(),
              std::vector<Token>{end});
    EXPECT_NE(v.tokenize(spelled, {.begin = false, .end = false}).value(), std::vector<Token>{end});
  }
}

// The loop that generate() closes, in the caller's hands.
TEST(TextStream, ALoopOfTheCallersOwnGivesTheTextOfGenerate) {
  for (const char* name : kModels) {
    const auto model = load(tiny(name));
    const auto prompt = model->vocabulary().tokenize("Once upon a time").value();
    for (uint64_t seed = 0; seed < 4; ++seed) {
      GenerateOptions options;
      options.max_tokens = 30;
      options.stop = {"e", "qu"};
      options.sampling = {.temperature = 1.5f,
                          .top_k = 0,
                          .seed = seed,
                          .repeat_penalty = 1.1f,
                          .xtc_probability = 0.3f,
                          .dry_multiplier = 0.8f};
      std::string want;
      std::vector<Token> ids;
      const auto finished = generate(*session(model), prompt, options, [&](const Event& event) {
        if (const auto* delta = std::get_if<TextDelta>(&event)) {
          want += delta->text;
          if (delta->id >= 0) ids.push_back(delta->id);
        }
        return true;
      });
      ASSERT_TRUE(finished);

      const auto one = session(model);
      expect_ok(one->append(prompt));
      auto sampler = Sampler::make(model->vocabulary(), options.sampling);
      auto stream = TextStream::make(model->vocabulary(), {.stops = options.stop});
      ASSERT_TRUE(sampler && stream);
      std::string got;
      std::vector<Token> picked;
      while (picked.size() < 30 && stream->stop() < 0) {
        const Token token = sampler->pick(one->logits(), one->tokens()).value();
        if (model->vocabulary().is_end_of_generation(token)) break;
        picked.push_back(token);
        got += stream->push(token);
        expect_ok(one->append({&token, 1}));
      }
      got += stream->flush();
      EXPECT_EQ(picked, ids) << name;
      EXPECT_EQ(got, want) << name;
      const int stop = stream->stop();
      EXPECT_EQ(stop < 0 ? "" : options.stop[static_cast<size_t>(stop)], finished->stop);
    }
  }
}

// A mask of the caller's: only tokens whose bytes are digits.
TEST(Sampler, AMaskMadeOfBytesHolds) {
  const auto model = load(tiny("llama"));
  const Vocabulary& v = model->vocabulary();
  TokenMask digits(v.size());
  for (Token id = 0; id < v.size(); ++id) {
    const std::string_view bytes = v.bytes(id);
    if (!bytes.empty() && bytes.find_first_not_of("0123456789") == bytes.npos) digits.allow(id);
  }
  ASSERT_GE(digits.count(), 10);
  const auto one = session(model);
  expect_ok(one->append(v.tokenize("A number:").value()));
  auto sampler = Sampler::make(v, {.temperature = 2, .seed = 3});
  ASSERT_TRUE(sampler);
  auto stream = TextStream::make(v);
  std::string text;
  for (int i = 0; i < 20; ++i) {
    const Token token = sampler->pick(one->logits(), one->tokens(), &digits).value();
    text += stream->push(token);
    expect_ok(one->append({&token, 1}));
  }
  EXPECT_GE(text.size(), 20u);
  EXPECT_EQ(text.find_first_not_of("0123456789"), text.npos) << text;
}

}  // namespace
}  // namespace culet::test
