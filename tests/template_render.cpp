// Renders chat templates for scripts/check_templates.py, which compares the results with jinja2.
//
// Reads requests from stdin, one JSON object a line: {"template", "data", "constants"}. Writes for
// each one line: {"text", "user"} (user: the bytes that came from the data, one character a byte,
// as "u" or "t") or {"error"}.
#include "base/json.h"
#include "template/chat_template.h"

#include <nlohmann/json.hpp>

#include <iostream>
#include <string>

namespace {

using Json = nlohmann::ordered_json;

Json answer(const Json& request) {
  using culet::chat::ChatTemplate;
  const auto parsed = ChatTemplate::parse(request["template"].get<std::string>());
  if (!parsed) return {{"error", parsed.error().message}};
  const auto pieces = (*parsed)->render(request["data"], request["constants"]);
  if (!pieces) return {{"error", pieces.error().message}};
  std::string text, user;
  for (const auto& piece : *pieces) {
    text += piece.text;
    user += std::string(piece.text.size(), piece.is_template ? 't' : 'u');
  }
  return {{"text", text}, {"user", user}};
}

}  // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    const auto request = culet::base::parse_json(line);
    const Json reply = request ? answer(*request) : Json{{"error", request.error().message}};
    std::cout << culet::base::dump_json(reply) << std::endl;
  }
  return 0;
}
