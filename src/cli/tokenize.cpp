// culet tokenize: text -> a JSON array of token ids. culet detokenize: the other way.
#include "cli/commands.h"
#include "cli/input.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <system_error>

namespace culet::cli {
namespace {

Result<std::shared_ptr<const Model>> load_text(const ModelArguments& arguments) {
  ModelArguments text_only = arguments;
  text_only.options.text_only = true;
  return load_model(text_only);
}

// "1, 504 33059": what is not a JSON array.
Result<std::vector<Token>> parse_list(std::string_view text) {
  constexpr std::string_view kBetween = " ,\t\r\n";
  std::vector<Token> ids;
  for (size_t at = text.find_first_not_of(kBetween); at != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of(kBetween, at), text.size());
    const std::string_view word = text.substr(at, end - at);
    Token id = -1;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || stop != word.data() + word.size() || id < 0) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("\"{}\" is not a token id; give ids as numbers, or as a JSON array "
                              "such as [1, 504, 33059]",
                              word));
    }
    ids.push_back(id);
    at = text.find_first_not_of(kBetween, end);
  }
  return ids;
}

Result<std::vector<Token>> parse_any_ids(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string::npos && text[first] == '[' ? parse_ids(text, "the list of ids")
                                                          : parse_list(text);
}

}  // namespace

Result<int> tokenize_command(const TokenizeArguments& arguments, Output& out) {
  const std::string given = arguments.text.value_or("-");
  const bool piped = given == "-";
  return with_one_text(piped ? "" : "TEXT", [&]() -> Result<int> {
    CULET_TRY(const std::string text, piped ? read_standard_input() : given);
    CULET_TRY(const auto model, load_text(arguments.model));
    CULET_TRY(const std::vector<Token> ids,
              model->vocabulary().tokenize(text, {.begin = arguments.add_special,
                                                  .end = arguments.add_special,
                                                  .parse_special = arguments.parse_special}));
    out.write(nlohmann::json(ids).dump() + "\n");
    return kExitOk;
  });
}

Result<int> detokenize_command(const DetokenizeArguments& arguments, Output& out) {
  const std::string given = fmt::format("{}", fmt::join(arguments.ids, " "));
  const bool piped = given.empty() || given == "-";
  return with_one_text(piped ? "" : "ID", [&]() -> Result<int> {
    CULET_TRY(const std::string text, piped ? read_standard_input() : given);
    CULET_TRY(const std::vector<Token> ids, parse_any_ids(text));
    CULET_TRY(const auto model, load_text(arguments.model));
    CULET_TRY_VOID(check_ids(ids, model->vocabulary().size()));
    out.write(model->vocabulary().detokenize(ids, !arguments.skip_special));
    out.end_line_on_terminal();
    return kExitOk;
  });
}

}  // namespace culet::cli
