// Finds out what a template does by rendering conversations of a few words.
//
// A part counts as shown when a byte that came from it is in the text, which provenance tells;
// where the form matters (lists printed as Python writes them, a string quoted twice) the text is
// looked at too. A conversation that the template refuses shows nothing. Each rendering has small
// limits, so that a hostile template costs little.
#include "template/traits.h"

#include "template/chat_template.h"
#include "template/conversation.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

namespace culet::chat {

namespace {

using Json = nlohmann::ordered_json;

constexpr Limits kProbeLimits = {.fuel = 200'000, .depth = 200, .output = 1 << 18};

constexpr const char* kCallId = "call00001";  // nine letters and digits, as one family demands

Json said(std::string_view role, Json content) {
  return {{"role", role}, {"content", std::move(content)}};
}

Json user() { return said("user", "culetuser"); }

Json text_parts() {
  return Json::array(
      {{{"type", "text"}, {"text", "culetone"}}, {{"type", "text"}, {"text", "culettwo"}}});
}

Json tools() {
  const Json city = {{"type", "string"}, {"description", "culetcity"}};
  const Json parameters = {
      {"type", "object"}, {"properties", {{"culetfield", city}}}, {"required", {"culetfield"}}};
  return Json::array(
      {{{"type", "function"},
        {"function",
         {{"name", "culettool"}, {"description", "culettells"}, {"parameters", parameters}}}}});
}

Json call(Json arguments, const char* id = kCallId) {
  return {{"id", id},
          {"type", "function"},
          {"function", {{"name", "culettool"}, {"arguments", std::move(arguments)}}}};
}

Json result(Json content, const char* id = kCallId) {
  Json message = said("tool", std::move(content));
  message["name"] = "culettool";
  message["tool_call_id"] = id;
  return message;
}

Json calling(Json calls, Json content) {
  Json message = said("assistant", std::move(content));
  message["tool_calls"] = std::move(calls);
  return message;
}

Json one(const char* name, bool value) {
  Json object = Json::object();
  object[name] = value;
  return object;
}

bool has(const std::string& text, std::string_view what) { return text.find(what) != text.npos; }

std::string replaced(std::string text, std::string_view what, std::string_view with) {
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + with.size())) {
    text.replace(at, what.size(), with);
  }
  return text;
}

}  // namespace

class Prober {
 public:
  explicit Prober(const ChatTemplate& chat) : chat_(chat) {}

  ChatTraits probe() {
    contents();
    roles();
    calls();
    parts();
    reasoning();
    thinking();
    return traits_;
  }

 private:
  struct Shown {
    std::string text;
    std::vector<std::string> paths;
    bool types = false;  // the word "text" of a part's type
    bool shows(std::string_view path) const {
      return std::find(paths.begin(), paths.end(), path) != paths.end();
    }
  };

  std::optional<Shown> render(Json messages, Json tools = nullptr, const Json& variables = {}) {
    for (Json& message : messages) {  // its own choice, once that is known
      if (!traits_.text_content && message["content"].is_string()) {
        message["content"] = Json::array({{{"type", "text"}, {"text", message["content"]}}});
      }
    }
    Json data = variables.is_null() ? Json::object() : variables;
    data["messages"] = std::move(messages);
    data["tools"] = std::move(tools);
    data["documents"] = nullptr;
    Labels labels = label(data);
    const auto type = static_cast<uint32_t>(labels.parts.size() + 1);
    for (const Json& message : data["messages"]) {
      if (!message["content"].is_array()) continue;
      for (const Json& part : message["content"]) labels.marks[&part["type"]] = {.origin = type};
    }
    const Json constants = {{"bos_token", ""}, {"eos_token", ""}, {"add_generation_prompt", true}};
    const auto rendering = chat_.render(data, constants, labels.marks, kProbeLimits);
    if (!rendering) return std::nullopt;
    Shown shown{rendering->text.bytes(), {}};
    const std::vector<bool> parts = shown_parts(rendering->text, type);
    for (size_t i = 0; i + 1 < type; ++i) {
      if (parts[i]) shown.paths.push_back(labels.parts[i].path);
    }
    shown.types = parts[type - 1];
    return shown;
  }

  bool shows(const Json& messages, std::string_view path, const Json& with_tools = nullptr) {
    const auto shown = render(messages, with_tools);
    return shown && shown->shows(path);
  }

  // A list of parts whose texts are there and whose types are not.
  bool shows_parts(const Json& messages, const Json& with_tools = nullptr) {
    const auto shown = render(messages, with_tools);
    return shown && !shown->types && has(shown->text, "culetone") && has(shown->text, "culettwo");
  }

  void contents() {
    if (shows(Json::array({user()}), "messages[0].content")) return;
    traits_.text_content = !shows_parts(Json::array({said("user", text_parts())}));
  }

  void roles() {
    traits_.system =
        shows(Json::array({said("system", "culetsystem"), user()}), "messages[0].content");
    // A template that knows the role says something else than of a word that it cannot know.
    const auto known = render(Json::array({said("developer", "culetsystem"), user()}));
    if (!known || !known->shows("messages[0].content")) return;
    const auto unknown = render(Json::array({said("delevoper", "culetsystem"), user()}));
    traits_.developer =
        !unknown || replaced(known->text, "developer", "delevoper") != unknown->text;
  }

  // The text, if the call and its arguments are there in the form that calls have.
  std::optional<Shown> call_shown(const Json& arguments, const Json& content) {
    auto shown = render(Json::array({user(), calling(Json::array({call(arguments)}), content),
                                     result("culetresult")}),
                        tools());
    if (!shown || !shown->shows("messages[1].tool_calls[0]")) return std::nullopt;
    if (!has(shown->text, "culetvalue")) return std::nullopt;
    const bool twice_quoted = has(shown->text, "\\\"culetkey");
    const bool as_python = arguments.is_object() && has(shown->text, "'culetkey': ");
    if (twice_quoted || as_python) return std::nullopt;
    return shown;
  }

  void calls() {
    traits_.tools = shows(Json::array({user()}), "tools[0]", tools());
    const Json object = {{"culetkey", "culetvalue"}};
    const Json text = R"({"culetkey": "culetvalue"})";
    for (const bool as_text : {false, true}) {
      arguments_ = as_text ? text : object;
      const auto null = call_shown(arguments_, nullptr);
      const auto empty = call_shown(arguments_, "");
      if (!null && !empty) continue;
      traits_.tool_calls = true;
      traits_.text_arguments = as_text;
      // Callers say null; some templates would print it.
      traits_.null_content = null && (!empty || !has(null->text, "None"));
      content_ = traits_.null_content ? Json() : Json("");
      const Shown& shown = traits_.null_content ? *null : *empty;
      traits_.tool_results = shown.shows("messages[2].content");
      traits_.parallel_calls = shows_two_calls();
      return;
    }
  }

  bool shows_two_calls() {
    const Json two = Json::array({call(arguments_), call(arguments_, "call00002")});
    const auto shown = render(Json::array({user(), calling(two, content_), result("culetone"),
                                           result("culettwo", "call00002")}),
                              tools());
    return shown && shown->shows("messages[1].tool_calls[0]") &&
           shown->shows("messages[1].tool_calls[1]");
  }

  void parts() {
    traits_.part_content = {
        shows_parts(Json::array({said("system", text_parts()), user()})),
        shows_parts(Json::array({said("user", text_parts())})),
        shows_parts(Json::array({user(), said("assistant", text_parts()), user()})),
        traits_.tool_calls &&
            shows_parts(Json::array({user(), calling(Json::array({call(arguments_)}), content_),
                                     result(text_parts())}),
                        tools()),
    };
  }

  void reasoning() {
    for (const char* name : {"reasoning_content", "reasoning", "thinking"}) {
      const std::string path = std::string("messages[1].") + name;
      Json answer = said("assistant", "culetanswer");
      answer[name] = "culetthought";
      Json asking = calling(Json::array({call(arguments_)}), content_);
      asking[name] = "culetthought";
      traits_.reasoning =
          shows(Json::array({user(), answer}), path) ||
          (traits_.tool_calls &&
           shows(Json::array({user(), asking, result("culetresult")}), path, tools()));
      if (!traits_.reasoning) continue;
      traits_.reasoning_member = name;
      return;
    }
  }

  void thinking() {
    for (const char* name : {"enable_thinking", "thinking"}) {
      const auto on = render(Json::array({user()}), nullptr, one(name, true));
      const auto off = render(Json::array({user()}), nullptr, one(name, false));
      if (!on || !off || on->text == off->text) continue;
      traits_.thinking_variable = name;
      return;
    }
  }

  const ChatTemplate& chat_;
  ChatTraits traits_;
  Json arguments_ = Json::object(), content_ = "";  // as calls() found them
};

ChatTraits probe(const ChatTemplate& chat) { return Prober(chat).probe(); }

}  // namespace culet::chat
