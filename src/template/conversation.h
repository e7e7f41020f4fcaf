// The request of a chat: JSON in the OpenAI shape, checked member by member, then given the form
// that a template takes, with every text marked by the part of the request that it belongs to.
#pragma once

#include "culet/chat.h"
#include "culet/result.h"
#include "template/chat_template.h"
#include "template/traits.h"

#include <nlohmann/json.hpp>

#include <string_view>
#include <vector>

namespace culet::chat {

// As include/culet/chat.h describes it: arrays, null for no tools, an object.
struct Conversation {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  nlohmann::ordered_json tools = nullptr;
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();
};

// Reads and checks JSON texts; an empty `tools` or `variables` is none. after_answer: the messages
// follow an answer that is not among them, so results may name calls that are not there.
// Errors: kInvalidArgument, kUnsupported (parts that are not text), kExhausted; they begin with the
// path of the member.
Result<Conversation> read_conversation(std::string_view messages, std::string_view tools,
                                       std::string_view variables, bool after_answer = false);
// The same checks for messages that the program made and the text of variables.
Result<Conversation> make_conversation(nlohmann::ordered_json messages, std::string_view variables);

// The variables of a template: messages, tools and documents (null when absent) and the others.
// The conversation must have been checked.
nlohmann::ordered_json template_data(const Conversation& conversation, const ChatTraits& traits);

// Marks of data that template_data made, and the parts that the origins of its text stand for:
// origin k is parts[k - 1].
struct Labels {
  Marks marks;
  std::vector<UnusedPart> parts;
};
// The first `hidden` messages are not the caller's own: their parts have no path, and the paths of
// the others count from behind them.
Labels label(const nlohmann::ordered_json& data, size_t hidden = 0);

// For each part whether a byte of it is in the text. [parts]
std::vector<bool> shown_parts(const Text& text, size_t parts);

// The parts of which no byte was shown, less those that are only white space, and the variables of
// the conversation that were not read.
std::vector<UnusedPart> unused_parts(const Conversation& conversation, const Labels& labels,
                                     const Rendering& rendering);

}  // namespace culet::chat
