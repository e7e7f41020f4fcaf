// Takes the JSON of a request; gives the variables of a template and the marks of their text.
//
// Three steps: check (every member is known and of its kind, or an error names it), shape (what can
// be said in two ways is said as the template takes it; nothing is added or dropped) and label
// (which part of the request each text belongs to, and what counts as the program's text).
#include "template/conversation.h"

#include "base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

namespace culet::chat {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kRequestBytes = uint64_t{32} << 20;  // of each of the three texts

constexpr std::string_view kReasoningMembers[] = {"reasoning_content", "reasoning", "thinking"};
// Of answers as the API gives them; they say nothing when they are null or empty.
constexpr std::string_view kEmptyMembers[] = {"refusal", "audio", "function_call", "annotations"};

template <size_t N>
bool is_one_of(const std::string_view (&names)[N], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

tl::unexpected<Error> wrong(const std::string& path, const std::string& what,
                            ErrorCode code = ErrorCode::kInvalidArgument) {
  return fail(code, path + " " + what);
}

std::string kind_of(const Json& json) {
  if (json.is_null()) return "null";
  if (json.is_boolean()) return "a boolean";
  if (json.is_number()) return "a number";
  if (json.is_string()) return "a string";
  return json.is_array() ? "an array" : "an object";
}

std::string in_quotes(std::string_view text) {
  constexpr size_t kMost = 60;
  if (text.size() <= kMost) return fmt::format("\"{}\"", text);
  size_t end = kMost;
  while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80) --end;
  return fmt::format("\"{}...\"", text.substr(0, end));
}

const Json* member(const Json& object, std::string_view name) {
  const auto at = object.find(name);
  return at == object.end() ? nullptr : &*at;
}

const std::string& string_of(const Json& json) { return json.get_ref<const std::string&>(); }

bool is_role(const Json& message, std::string_view role) {
  return string_of(message["role"]) == role;
}

Result<void> check_string(const Json& json, const std::string& path) {
  if (json.is_string()) return {};
  return wrong(path, "must be a string, but is " + kind_of(json));
}

Result<void> check_word(const Json& json, const std::string& path, std::string_view what) {
  CULET_TRY_VOID(check_string(json, path));
  if (is_plain_word(string_of(json))) return {};
  return wrong(path, fmt::format("is {}, but {} is made of letters, digits, \"_\", \"-\" and \".\"",
                                 in_quotes(string_of(json)), what));
}

// The member, which must be there.
Result<const Json*> required(const Json& object, std::string_view name, const std::string& path) {
  const Json* found = member(object, name);
  if (found == nullptr) return wrong(fmt::format("{}.{}", path, name), "is missing");
  return found;
}

Result<void> check_object(const Json& json, const std::string& path) {
  if (json.is_object()) return {};
  return wrong(path, "must be an object, but is " + kind_of(json));
}

template <size_t N>
Result<void> check_known(const Json& object, const std::string_view (&names)[N],
                         const std::string& path) {
  for (auto at = object.begin(); at != object.end(); ++at) {
    if (is_one_of(names, at.key())) continue;
    return wrong(fmt::format("{}.{}", path, at.key()), "is not a known member");
  }
  return {};
}

Result<Json> parse_arguments(const std::string& text, const std::string& path) {
  auto parsed = base::parse_json(text);
  if (!parsed) return wrong(path, "is not JSON: " + parsed.error().message, parsed.error().code);
  if (parsed->is_object()) return parsed;
  return wrong(path, "must hold a JSON object, but holds " + kind_of(*parsed));
}

// ---------------------------------------------------------------- check

class Checker {
 public:
  explicit Checker(bool after_answer) : after_answer_(after_answer) {}

  Result<void> check_messages(const Json& messages) {
    if (!messages.is_array()) {
      return wrong("messages", "must be an array, but is " + kind_of(messages));
    }
    for (size_t i = 0; i < messages.size(); ++i) {
      CULET_TRY_VOID(check_message(messages[i], fmt::format("messages[{}]", i)));
    }
    return {};
  }

 private:
  Result<void> check_message(const Json& message, const std::string& path) {
    CULET_TRY_VOID(check_object(message, path));
    CULET_TRY(const Json* role, required(message, "role", path));
    CULET_TRY_VOID(check_word(*role, path + ".role", "a role"));
    for (auto at = message.begin(); at != message.end(); ++at) {
      CULET_TRY_VOID(check_member(message, at.key(), at.value(), path + "." + at.key()));
    }
    return check_says_something(message, path);
  }

  Result<void> check_member(const Json& message, const std::string& name, const Json& value,
                            const std::string& path) {
    if (name == "role") return {};
    if (name == "content") return check_content(value, path);
    if (name == "name") {
      return is_role(message, "tool") ? check_word(value, path, "a tool's name")
                                      : check_string(value, path);
    }
    if (name == "tool_call_id") return check_call_id(message, value, path);
    const bool reasoning = is_one_of(kReasoningMembers, name);
    const bool empty = is_one_of(kEmptyMembers, name);
    if (name != "tool_calls" && !reasoning && !empty) {
      return wrong(path, "is not a known member of a message");
    }
    if (!is_role(message, "assistant")) {
      return wrong(path, "belongs to messages of the role \"assistant\" only");
    }
    if (empty) {
      if (value.is_null() || (value.is_array() && value.empty())) return {};
      return wrong(path, "cannot be rendered; leave it out", ErrorCode::kUnsupported);
    }
    if (reasoning) return value.is_null() ? Result<void>() : check_string(value, path);
    return check_calls(value, path);
  }

  static Result<void> check_content(const Json& content, const std::string& path) {
    if (content.is_null() || content.is_string()) return {};
    if (!content.is_array()) {
      return wrong(path, "must be a string or an array of parts, but is " + kind_of(content));
    }
    for (size_t i = 0; i < content.size(); ++i) {
      CULET_TRY_VOID(check_part(content[i], fmt::format("{}[{}]", path, i)));
    }
    return {};
  }

  static Result<void> check_part(const Json& part, const std::string& path) {
    CULET_TRY_VOID(check_object(part, path));
    CULET_TRY(const Json* type, required(part, "type", path));
    CULET_TRY_VOID(check_string(*type, path + ".type"));
    if (string_of(*type) != "text") {
      return wrong(path + ".type",
                   fmt::format("is {}, but only parts of the type \"text\" can be "
                               "read",
                               in_quotes(string_of(*type))),
                   ErrorCode::kUnsupported);
    }
    constexpr std::string_view kMembers[] = {"type", "text"};
    CULET_TRY_VOID(check_known(part, kMembers, path));
    CULET_TRY(const Json* text, required(part, "text", path));
    return check_string(*text, path + ".text");
  }

  Result<void> check_call_id(const Json& message, const Json& id, const std::string& path) {
    if (!is_role(message, "tool")) {
      return wrong(path, "belongs to messages of the role \"tool\" only");
    }
    CULET_TRY_VOID(check_string(id, path));
    if (after_answer_ || ids_.count(string_of(id)) != 0) return {};
    return wrong(path, fmt::format("is {}, but no call in a message before it has this id",
                                   in_quotes(string_of(id))));
  }

  Result<void> check_calls(const Json& calls, const std::string& path) {
    if (calls.is_null()) return {};
    if (!calls.is_array()) return wrong(path, "must be an array, but is " + kind_of(calls));
    for (size_t i = 0; i < calls.size(); ++i) {
      CULET_TRY_VOID(check_call(calls[i], fmt::format("{}[{}]", path, i)));
    }
    return {};
  }

  Result<void> check_call(const Json& call, const std::string& path) {
    CULET_TRY_VOID(check_object(call, path));
    constexpr std::string_view kMembers[] = {"id", "type", "function", "index"};
    CULET_TRY_VOID(check_known(call, kMembers, path));
    if (const Json* id = member(call, "id")) {
      CULET_TRY_VOID(check_string(*id, path + ".id"));
      ids_.insert(string_of(*id));
    }
    if (const Json* index = member(call, "index"); index != nullptr && !index->is_number()) {
      return wrong(path + ".index", "must be a number, but is " + kind_of(*index));
    }
    if (const Json* type = member(call, "type"); type != nullptr && *type != "function") {
      return wrong(path + ".type", "must be \"function\"");
    }
    CULET_TRY(const Json* function, required(call, "function", path));
    return check_function(*function, path + ".function");
  }

  static Result<void> check_function(const Json& function, const std::string& path) {
    CULET_TRY_VOID(check_object(function, path));
    constexpr std::string_view kMembers[] = {"name", "arguments"};
    CULET_TRY_VOID(check_known(function, kMembers, path));
    CULET_TRY(const Json* name, required(function, "name", path));
    CULET_TRY_VOID(check_word(*name, path + ".name", "a tool's name"));
    CULET_TRY(const Json* arguments, required(function, "arguments", path));
    const std::string where = path + ".arguments";
    if (arguments->is_object()) return {};
    if (!arguments->is_string()) {
      return wrong(where,
                   "must be an object or a string that holds one, but is " + kind_of(*arguments));
    }
    CULET_TRY_VOID(parse_arguments(string_of(*arguments), where));
    return {};
  }

  static Result<void> check_says_something(const Json& message, const std::string& path) {
    const Json* reasoning = nullptr;
    for (const std::string_view name : kReasoningMembers) {
      const Json* found = member(message, name);
      if (found == nullptr || found->is_null()) continue;
      if (reasoning != nullptr && *reasoning != *found) {
        return wrong(fmt::format("{}.{}", path, name),
                     "is not the same as the other reasoning of this answer; give one");
      }
      reasoning = found;
    }
    const Json* content = member(message, "content");
    if (content != nullptr && !content->is_null()) return {};
    const Json* calls = member(message, "tool_calls");
    if (reasoning != nullptr || (calls != nullptr && !calls->empty())) return {};
    return wrong(path + ".content", content != nullptr ? "is null" : "is missing");
  }

  bool after_answer_;
  std::set<std::string, std::less<>> ids_;  // of the calls so far
};

Result<void> check_tool(const Json& tool, const std::string& path) {
  CULET_TRY_VOID(check_object(tool, path));
  CULET_TRY(const Json* type, required(tool, "type", path));
  CULET_TRY_VOID(check_string(*type, path + ".type"));
  if (string_of(*type) != "function") {
    return wrong(path + ".type",
                 fmt::format("is {}, but only tools of the type \"function\" can be "
                             "given",
                             in_quotes(string_of(*type))),
                 ErrorCode::kUnsupported);
  }
  constexpr std::string_view kMembers[] = {"type", "function"};
  CULET_TRY_VOID(check_known(tool, kMembers, path));
  CULET_TRY(const Json* function, required(tool, "function", path));
  CULET_TRY_VOID(check_object(*function, path + ".function"));
  CULET_TRY(const Json* name, required(*function, "name", path + ".function"));
  return check_word(*name, path + ".function.name", "a tool's name");
}

Result<void> check_tools(const Json& tools) {
  if (tools.is_null()) return {};
  if (!tools.is_array()) return wrong("tools", "must be an array, but is " + kind_of(tools));
  for (size_t i = 0; i < tools.size(); ++i) {
    CULET_TRY_VOID(check_tool(tools[i], fmt::format("tools[{}]", i)));
  }
  return {};
}

// Variables that a request may not name, with where they come from instead.
constexpr struct {
  const char* name;
  const char* instead;
} kOwnVariables[] = {
    {"messages", "they are a member of the request"},
    {"add_generation_prompt", "it is an option of the request"},
    {"bos_token", "it is the model file's own"},
    {"eos_token", "it is the model file's own"},
    {"unk_token", "it is the model file's own"},
    {"pad_token", "it is the model file's own"},
    {"sep_token", "it is the model file's own"},
    {"cls_token", "it is the model file's own"},
    {"mask_token", "it is the model file's own"},
};

// Takes the tools out of the variables, where they may stand if they stand nowhere else.
Result<void> check_variables(Conversation* conversation) {
  Json& variables = conversation->variables;
  if (!variables.is_object()) {
    return fail(ErrorCode::kInvalidArgument,
                "the additional template variables must be one JSON object");
  }
  for (const auto& own : kOwnVariables) {
    if (!variables.contains(own.name)) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the additional template variables must not contain \"{}\"; {}",
                            own.name, own.instead));
  }
  const auto tools = variables.find("tools");
  if (tools == variables.end()) return {};
  if (!conversation->tools.is_null()) {
    return fail(ErrorCode::kInvalidArgument,
                "the additional template variables must not contain \"tools\", because the request "
                "has tools; give them once");
  }
  conversation->tools = *tools;
  variables.erase(tools);
  return {};
}

Result<void> check(Conversation* conversation, bool after_answer) {
  CULET_TRY_VOID(Checker(after_answer).check_messages(conversation->messages));
  CULET_TRY_VOID(check_variables(conversation));
  CULET_TRY_VOID(check_tools(conversation->tools));
  if (conversation->tools.empty()) conversation->tools = nullptr;
  return {};
}

Result<Json> parse(std::string_view text, std::string_view what) {
  auto parsed = base::parse_json(text, base::kJsonDepth, kRequestBytes);
  if (parsed) return parsed;
  return fail(parsed.error().code, fmt::format("{}: {}", what, parsed.error().message));
}

// ---------------------------------------------------------------- shape

Speaker speaker_of(std::string_view role) {
  if (role == "system" || role == "developer") return Speaker::kSystem;
  if (role == "assistant") return Speaker::kAssistant;
  return role == "tool" ? Speaker::kTool : Speaker::kUser;
}

// JSON with a space behind commas and colons, as templates write it.
void append_spaced(const Json& json, std::string* out) {
  if (!json.is_structured()) {
    *out += base::dump_json(json);
    return;
  }
  const bool object = json.is_object();
  *out += object ? '{' : '[';
  bool first = true;
  for (auto at = json.begin(); at != json.end(); ++at) {
    if (!std::exchange(first, false)) *out += ", ";
    if (object) *out += base::dump_json(Json(at.key())) + ": ";
    append_spaced(*at, out);
  }
  *out += object ? '}' : ']';
}

class Shaper {
 public:
  explicit Shaper(const ChatTraits& traits) : traits_(traits) {}

  Json message(const Json& given) const {
    Json out = Json::object();
    const Json* calls = member(given, "tool_calls");
    const bool has_calls = calls != nullptr && !calls->empty();
    out["role"] = role(string_of(given["role"]));
    out["content"] = content(given, has_calls);
    if (const Json* name = member(given, "name")) out["name"] = *name;
    if (const Json* id = member(given, "tool_call_id")) out["tool_call_id"] = *id;
    for (const std::string_view name : kReasoningMembers) {
      const Json* found = member(given, name);
      if (found != nullptr && !found->is_null()) out[traits_.reasoning_member] = *found;
    }
    if (!has_calls) return out;  // templates ask whether the member is there
    Json& list = out["tool_calls"] = *calls;
    for (Json& call : list) {
      call["type"] = "function";
      shape_arguments(&call["function"]["arguments"]);
    }
    return out;
  }

 private:
  std::string role(const std::string& given) const {
    return given == "developer" && !traits_.developer && traits_.system ? "system" : given;
  }

  Json content(const Json& given, bool has_calls) const {
    const Json* content = member(given, "content");
    const bool empty = content == nullptr || content->is_null() ||
                       (content->is_string() && string_of(*content).empty());
    if (empty) {
      return has_calls && traits_.null_content ? Json(nullptr) : text(std::string());
    }
    if (content->is_string()) return text(string_of(*content));
    const Speaker speaker = speaker_of(string_of(given["role"]));
    const bool parts = traits_.part_content[static_cast<size_t>(speaker)];
    if (!traits_.text_content || (parts && content->size() > 1)) return *content;
    std::string joined;
    for (size_t i = 0; i < content->size(); ++i) {
      if (i > 0) joined += '\n';
      joined += string_of((*content)[i]["text"]);
    }
    return joined;
  }

  Json text(const std::string& content) const {
    if (traits_.text_content) return content;
    return Json::array({Json{{"type", "text"}, {"text", content}}});
  }

  void shape_arguments(Json* arguments) const {
    if (arguments->is_string() && !traits_.text_arguments) {
      auto parsed = base::parse_json(string_of(*arguments));
      if (parsed) *arguments = *std::move(parsed);
    } else if (arguments->is_object() && traits_.text_arguments) {
      std::string text;
      append_spaced(*arguments, &text);
      *arguments = std::move(text);
    }
  }

  const ChatTraits& traits_;
};

// ---------------------------------------------------------------- label

class Labeler {
 public:
  explicit Labeler(size_t hidden) : hidden_(hidden) {}

  void message(const Json& message, size_t i) {
    const size_t before = labels_.parts.size();
    const std::string path = fmt::format("messages[{}]", i < hidden_ ? i : i - hidden_);
    const std::string& role = string_of(message["role"]);
    const Speaker speaker = speaker_of(role);
    labels_.marks[&message["role"]] = {.program = true};
    const ChatPart part = speaker == Speaker::kSystem      ? ChatPart::kSystem
                          : speaker == Speaker::kAssistant ? ChatPart::kAnswer
                                                           : ChatPart::kMessage;
    if (const Json* content = member(message, "content")) add(*content, part, path + ".content");
    if (const Json* name = member(message, "name")) {
      Mark mark = add(*name, ChatPart::kName, path + ".name");
      mark.program = speaker == Speaker::kTool;
      labels_.marks[name] = mark;
    }
    if (const Json* id = member(message, "tool_call_id")) {
      add(*id, ChatPart::kId, path + ".tool_call_id");
    }
    for (const std::string_view name : kReasoningMembers) {
      if (const Json* reasoning = member(message, name)) {
        add(*reasoning, ChatPart::kReasoning, path + "." + std::string(name));
      }
    }
    if (const Json* calls = member(message, "tool_calls")) {
      for (size_t k = 0; k < calls->size(); ++k) {
        call((*calls)[k], fmt::format("{}.tool_calls[{}]", path, k));
      }
    }
    for (size_t k = before; i < hidden_ && k < labels_.parts.size(); ++k) {
      labels_.parts[k].path.clear();
    }
  }

  void tool(const Json& tool, size_t i) {
    const Mark mark = add(tool, ChatPart::kTool, fmt::format("tools[{}]", i), true);
    name_of_function(tool, mark);
  }

  Labels take() { return std::move(labels_); }

 private:
  Mark add(const Json& node, ChatPart part, std::string path, bool program_keys = false) {
    labels_.parts.push_back({part, std::move(path)});
    const Mark mark{static_cast<uint32_t>(labels_.parts.size()), false, program_keys};
    labels_.marks[&node] = mark;
    return mark;
  }

  void call(const Json& call, const std::string& path) {
    const Json* function = member(call, "function");
    if (function == nullptr) return;
    name_of_function(call, add(*function, ChatPart::kToolCall, path));
  }

  // Of a call or a tool: its type and the function's name are the program's.
  void name_of_function(const Json& owner, Mark mark) {
    mark.program = true;
    if (const Json* type = member(owner, "type")) labels_.marks[type] = mark;
    if (const Json* name = member(owner["function"], "name")) labels_.marks[name] = mark;
  }

  size_t hidden_;
  Labels labels_;
};

// Content that is nothing but white space.
bool is_blank(const Json& json) {
  if (json.is_null()) return true;
  if (json.is_string())
    return string_of(json).find_first_not_of(" \t\r\n\v\f") == std::string::npos;
  return json.is_array() && std::all_of(json.begin(), json.end(), [](const Json& part) {
           return part.is_object() && part.contains("text") && is_blank(part["text"]);
         });
}

}  // namespace

Result<Conversation> read_conversation(std::string_view messages, std::string_view tools,
                                       std::string_view variables, bool after_answer) {
  Conversation out;
  CULET_TRY(out.messages, parse(messages, "messages"));
  if (!tools.empty()) {
    CULET_TRY(out.tools, parse(tools, "tools"));
  }
  if (!variables.empty()) {
    CULET_TRY(out.variables, parse(variables, "the additional template variables"));
  }
  CULET_TRY_VOID(check(&out, after_answer));
  return out;
}

Result<Conversation> make_conversation(Json messages, std::string_view variables) {
  Conversation out;
  out.messages = std::move(messages);
  if (!variables.empty()) {
    CULET_TRY(out.variables, parse(variables, "the additional template variables"));
  }
  CULET_TRY_VOID(check(&out, false));
  return out;
}

Json template_data(const Conversation& conversation, const ChatTraits& traits) {
  Json data = conversation.variables;
  Json& messages = data["messages"] = Json::array();
  const Shaper shaper(traits);
  for (const Json& message : conversation.messages) messages.push_back(shaper.message(message));
  data["tools"] = conversation.tools;
  if (!data.contains("documents")) data["documents"] = nullptr;
  return data;
}

Labels label(const Json& data, size_t hidden) {
  Labeler labeler(hidden);
  const Json& messages = data["messages"];
  for (size_t i = 0; i < messages.size(); ++i) labeler.message(messages[i], i);
  const Json& tools = data["tools"];
  for (size_t i = 0; i < tools.size(); ++i) labeler.tool(tools[i], i);
  return labeler.take();
}

std::vector<bool> shown_parts(const Text& text, size_t parts) {
  std::vector<bool> shown(parts, false);
  for (const Text::Run& run : text.runs()) {
    const uint32_t origin = run.source.origin;
    if (origin > 0 && origin <= parts) shown[origin - 1] = true;
  }
  return shown;
}

std::vector<UnusedPart> unused_parts(const Conversation& conversation, const Labels& labels,
                                     const Rendering& rendering) {
  const size_t parts = labels.parts.size();
  const std::vector<bool> shown = shown_parts(rendering.text, parts);
  std::vector<bool> blank(parts, false);
  for (const auto& [node, mark] : labels.marks) {
    if (mark.origin > 0 && !mark.program) blank[mark.origin - 1] = is_blank(*node);
  }
  std::vector<UnusedPart> unused;
  for (size_t i = 0; i < parts; ++i) {
    if (!shown[i] && !blank[i] && !labels.parts[i].path.empty()) unused.push_back(labels.parts[i]);
  }
  for (const std::string& name : rendering.unread) {
    if (!conversation.variables.contains(name)) continue;
    unused.push_back({ChatPart::kVariable, "variables." + name});
  }
  return unused;
}

}  // namespace culet::chat
