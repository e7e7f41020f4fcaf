// Renders chat templates for scripts/check_templates.py, which compares the results with jinja2's.
//
// Reads from stdin, one JSON object a line, and writes for each one line, {"error"} on failure:
// - {"template", "data", "constants"}: {"text", "user"} (user: the bytes that came from the data,
//   one character a byte, as "u" or "t");
// - {"template", "request": {"messages", "tools", "variables"}, "constants"}: a conversation in the
//   OpenAI shape; the same, and "data": what the template was given, "unused": paths;
// - {"template", "traits": true}: what the template does with a conversation.
#include "base/json.h"
#include "template/chat_template.h"
#include "template/conversation.h"

#include <nlohmann/json.hpp>

#include <iostream>
#include <string>

namespace {

using Json = nlohmann::ordered_json;
using culet::Result;
using culet::chat::ChatTemplate;

Json rendered(const culet::chat::Text& text) {
  Json reply = {{"text", text.bytes()}, {"user", ""}};
  std::string& user = reply["user"].get_ref<std::string&>();
  for (const auto& run : text.runs()) user.resize(run.end, run.source.user ? 'u' : 't');
  return reply;
}

Result<Json> render_request(const ChatTemplate& chat, const Json& request, const Json& constants) {
  namespace chat_layer = culet::chat;
  CULET_TRY(const auto conversation,
            chat_layer::read_conversation(request["messages"].dump(),
                                          request.value("tools", Json()).dump(),
                                          request.value("variables", Json(Json::object())).dump()));
  const Json data = chat_layer::template_data(conversation, chat.traits());
  const chat_layer::Labels labels = chat_layer::label(data);
  CULET_TRY(const auto rendering, chat.render(data, constants, labels.marks));
  Json reply = rendered(rendering.text);
  reply["data"] = data;
  reply["unused"] = Json::array();
  for (const auto& part : chat_layer::unused_parts(conversation, labels, rendering)) {
    reply["unused"].push_back(part.path);
  }
  return reply;
}

Json traits_of(const ChatTemplate& chat) {
  const culet::chat::ChatTraits& traits = chat.traits();
  return {{"system", traits.system},
          {"developer", traits.developer},
          {"tools", traits.tools},
          {"tool_calls", traits.tool_calls},
          {"tool_results", traits.tool_results},
          {"parallel_calls", traits.parallel_calls},
          {"reasoning", traits.reasoning ? traits.reasoning_member : ""},
          {"thinking_variable", traits.thinking_variable},
          {"text_content", traits.text_content},
          {"part_content", traits.part_content},
          {"null_content", traits.null_content},
          {"text_arguments", traits.text_arguments}};
}

Result<Json> answer(const Json& request) {
  CULET_TRY(const auto chat, ChatTemplate::parse(request["template"].get<std::string>()));
  if (request.contains("traits")) return traits_of(*chat);
  if (request.contains("request")) {
    return render_request(*chat, request["request"], request["constants"]);
  }
  CULET_TRY(const auto rendering, chat->render(request["data"], request["constants"], {}));
  return rendered(rendering.text);
}

}  // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    const auto request = culet::base::parse_json(line);
    const auto reply = request ? answer(*request) : tl::unexpected(request.error());
    std::cout << culet::base::dump_json(reply ? *reply : Json{{"error", reply.error().message}})
              << std::endl;
  }
  return 0;
}
