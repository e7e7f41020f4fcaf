// Four texts, separated by zero bytes: messages, tools and variables of a request, and a template.
// A request is refused with a message or rendered; whatever it holds, no byte of it that is not a
// plain word passes for text of a template that has none of these bytes itself.
#include "template/conversation.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

using Json = nlohmann::ordered_json;
namespace chat = culet::chat;

constexpr chat::Limits kLimits = {.fuel = 100'000, .depth = 60, .output = 1 << 16};

// Shows what there is without any of the bytes < > | [ ] in its own text.
constexpr std::string_view kPlainTemplate =
    "{% for t in tools or () %}T {{ t.function.name }} {{ t.function.description }}"
    "{% for k, v in (t.function.parameters or {}) | items %} {{ k }}: {{ v }}{% endfor %}{% endfor "
    "%}"
    "{% for m in messages %}M {{ m.role }} {{ m.name }} {{ m.content }} {{ m.reasoning_content }}"
    "{{ m.tool_call_id }}{% for c in m.tool_calls or () %}C {{ c.id }} {{ c.type }} "
    "{{ c.function.name }}{% for k, v in c.function.arguments | items %} {{ k ~ ': ' ~ v | string "
    "}}"
    "{% endfor %}{% endfor %}{% endfor %}{{ flag }}{{ documents }}";

void require(bool holds) {
  if (!holds) std::abort();
}

std::array<std::string_view, 4> split(std::string_view input) {
  std::array<std::string_view, 4> parts;
  for (std::string_view& part : parts) {
    const size_t end = std::min(input.find('\0'), input.size());
    part = input.substr(0, end);
    input.remove_prefix(std::min(end + 1, input.size()));
  }
  return parts;
}

void check(const chat::ChatTemplate& source, const chat::Conversation& conversation, bool plain) {
  const Json data = chat::template_data(conversation, source.traits());
  const chat::Labels labels = chat::label(data);
  const auto rendering = source.render(data, {{"add_generation_prompt", true}}, labels.marks);
  if (!rendering) return require(!rendering.error().message.empty());
  size_t bytes = 0;
  for (const chat::Piece& piece : chat::pieces_of(rendering->text)) {
    bytes += piece.text.size();
    // Python's brackets around lists and dicts are no bytes of the request.
    if (plain && piece.is_template) require(piece.text.find_first_of("<>|") == std::string::npos);
  }
  require(bytes == rendering->text.size());
  for (const culet::UnusedPart& part : chat::unused_parts(conversation, labels, *rendering)) {
    require(!part.path.empty());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 1 << 16) return 0;
  const auto [messages, tools, variables, source] =
      split({reinterpret_cast<const char*>(data), size});
  const auto conversation = chat::read_conversation(messages, tools, variables);
  if (!conversation) {
    require(!conversation.error().message.empty());
    return 0;
  }
  static const auto kPlain = chat::ChatTemplate::parse(kPlainTemplate, kLimits);
  require(kPlain.has_value());
  check(**kPlain, *conversation, true);
  if (const auto parsed = chat::ChatTemplate::parse(source, kLimits)) {
    check(**parsed, *conversation, false);
  }
  return 0;
}
