// culet embed: a vector of each text, as one JSON line.
//
// All texts are read, cut into tokens and checked before the first one is computed. Then they go
// through in groups, so that vectors are printed as they are made and none is kept.
#include "cli/commands.h"
#include "cli/input.h"
#include "cli/interrupt.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <iterator>
#include <span>

namespace culet::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kGroup = 256;  // texts between two looks at the output

// Of a line of a file "\r\n" is an end, too; behind the last end no line begins.
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    if (lines.back().ends_with('\r')) lines.back().pop_back();
    at = end + 1;
  }
  return lines;
}

// The texts, and how a message calls them.
struct Texts {
  std::vector<std::string> all;
  std::string file;  // "": arguments

  std::string name(size_t i) const {
    return file.empty() ? fmt::format("text {}", i + 1) : fmt::format("line {} of {}", i + 1, file);
  }
};

Result<Texts> read_texts(const EmbedArguments& arguments) {
  const bool piped = arguments.texts.empty() || arguments.texts == std::vector<std::string>{"-"};
  if (!piped &&
      std::find(arguments.texts.begin(), arguments.texts.end(), "-") != arguments.texts.end()) {
    return fail(
        ErrorCode::kInvalidArgument,
        "\"-\" means standard input and cannot be combined with texts; give the texts, or \"-\"");
  }
  if (!arguments.file && !piped) return Texts{arguments.texts, ""};
  const std::string file = arguments.file.value_or("-");
  CULET_TRY(const std::string text, read_text_file(file));
  Texts texts{lines_of(text), file == "-" ? "standard input" : file};
  if (!texts.all.empty()) return texts;
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{} has no lines, so there is no text to make a vector of", texts.file));
}

Result<std::vector<std::vector<Token>>> tokens_of(const Texts& texts, const Model& model) {
  CULET_TRY(const std::vector<Token> nothing, model.vocabulary().tokenize(""));
  const int64_t most = model.info().sequence_length;
  std::vector<std::vector<Token>> all;
  for (size_t i = 0; i < texts.all.size(); ++i) {
    CULET_TRY(std::vector<Token> ids, model.vocabulary().tokenize(texts.all[i]));
    if (ids.size() <= nothing.size()) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} is empty (it has no tokens), so it has no vector; leave it out",
                              texts.name(i)));
    }
    if (static_cast<int64_t>(ids.size()) > most) {
      return fail(
          ErrorCode::kExhausted,
          fmt::format(
              "{} has {} tokens, but {} takes at most {} in one text; split it into shorter texts",
              texts.name(i), ids.size(), model.info().path, most));
    }
    all.push_back(std::move(ids));
  }
  return all;
}

// The shortest decimals that are these numbers.
std::string array_text(const std::vector<float>& vector) {
  return fmt::format("[{}]", fmt::join(vector, ","));
}

std::string object_text(size_t index, const std::string& text, size_t tokens,
                        const std::vector<float>& vector) {
  const Json head{{"index", index}, {"text", text}, {"tokens", tokens}};
  std::string line = head.dump(-1, ' ', false, Json::error_handler_t::replace);
  line.pop_back();  // "}"
  return line + ",\"vector\":" + array_text(vector) + "}";
}

// What the texts come from, where that is not standard input; "": it is.
std::string_view given_instead(const EmbedArguments& arguments) {
  if (arguments.file) return *arguments.file == "-" ? "" : "--file";
  const bool piped = arguments.texts.empty() || arguments.texts.front() == "-";
  return piped ? "" : "TEXT";
}

Result<int> embed_texts(const EmbedArguments& arguments, Output& out) {
  CULET_TRY(const Texts texts, read_texts(arguments));
  CULET_TRY(const auto model, load_model(arguments.model));
  CULET_TRY_VOID(embed(*model, {}));  // whether it makes vectors at all
  CULET_TRY(const auto tokens, tokens_of(texts, *model));
  const InterruptWatch interrupt;
  StatusLine status(true);
  const std::span<const std::vector<Token>> all(tokens);
  for (size_t at = 0; at < all.size(); at += kGroup) {
    const auto group = all.subspan(at, std::min(kGroup, all.size() - at));
    status.show(fmt::format("Embedding: {} of {} texts", at, all.size()));
    const auto vectors = embed(*model, group, {.normalize = arguments.normalize},
                               [&](const Progress&) { return !interrupt.interrupted(); });
    if (!vectors && interrupt.interrupted()) return kExitInterrupted;
    if (!vectors) return tl::unexpected(vectors.error());
    for (size_t i = 0; i < group.size(); ++i) {
      const std::vector<float>& vector = (*vectors)[i];
      out.write((arguments.json ? object_text(at + i, texts.all[at + i], group[i].size(), vector)
                                : array_text(vector)) +
                "\n");
    }
    status.clear();
    if (!out.flush()) return tl::unexpected(out.error());
  }
  return kExitOk;
}

}  // namespace

Result<int> embed_command(const EmbedArguments& arguments, Output& out) {
  return with_one_text(given_instead(arguments), [&] { return embed_texts(arguments, out); });
}

}  // namespace culet::cli
