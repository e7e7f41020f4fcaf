// culet tokenize: text -> a JSON array of token ids.
#include "cli/commands.h"
#include "cli/input.h"

#include <nlohmann/json.hpp>

namespace culet::cli {

Result<int> tokenize_command(const TokenizeArguments& arguments, Output& out) {
  std::string text = arguments.text.value_or("-");
  if (text == "-") {
    CULET_TRY(text, read_standard_input());
  }
  ModelArguments text_only = arguments.model;
  text_only.options.text_only = true;
  CULET_TRY(const auto model, load_model(text_only));
  CULET_TRY(const std::vector<Token> ids,
            model->vocabulary().tokenize(text, arguments.add_special, arguments.parse_special));
  out.write(nlohmann::json(ids).dump() + "\n");
  return kExitOk;
}

}  // namespace culet::cli
