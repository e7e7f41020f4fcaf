// Bytes up to the first zero byte are a template, the rest is text of messages: rendering ends in
// pieces that respect the limits, or in an error with a message; never in a crash or a hang.
#include "template/chat_template.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

using Json = nlohmann::ordered_json;
using culet::chat::ChatTemplate;
using culet::chat::Limits;
using culet::chat::Piece;

constexpr Limits kLimits = {.fuel = 100'000, .depth = 60, .output = 1 << 16};

void require(bool holds) {
  if (!holds) std::abort();
}

Json conversation(const std::string& text) {
  const Json call = {{"id", "1"},
                     {"type", "function"},
                     {"function", {{"name", text}, {"arguments", {{"a", text}, {"n", 2.5}}}}}};
  return {{"messages",
           {{{"role", "system"}, {"content", text}},
            {{"role", "user"}, {"content", text}},
            {{"role", "assistant"}, {"content", nullptr}, {"tool_calls", {call}}},
            {{"role", "tool"}, {"content", {{{"type", "text"}, {"text", text}}}}}}},
          {"tools", {{{"type", "function"}, {"function", {{"name", text}, {"x", 1}}}}}},
          {"documents", nullptr}};
}

void check(const std::vector<Piece>& pieces) {
  size_t bytes = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    bytes += pieces[i].text.size();
    require(!pieces[i].text.empty());
    require(i == 0 || pieces[i].is_template != pieces[i - 1].is_template);
  }
  require(bytes <= kLimits.output);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t split = std::min(input.find('\0'), size);
  const auto parsed = ChatTemplate::parse(input.substr(0, split), kLimits);
  if (!parsed) {
    require(!parsed.error().message.empty());
    return 0;
  }
  const std::string text(input.substr(std::min(split + 1, size)));
  const auto pieces = (*parsed)->render(conversation(text),
                                        {{"add_generation_prompt", true}, {"bos_token", "<s>"}});
  if (pieces) {
    check(*pieces);
  } else {
    require(!pieces.error().message.empty());
  }
  return 0;
}
