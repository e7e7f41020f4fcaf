// Requests of chats: what is refused and under which name, how they are shaped for a template, that
// text of users stays text wherever it stands, and that nothing disappears unnoticed.
#include "template/conversation.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace culet::chat {
namespace {

using Json = nlohmann::ordered_json;

// Shows every member that a template can show.
constexpr std::string_view kEverything = R"(
{%- for tool in tools or [] %}<tool>{{ tool.function.name }}:{{ tool | tojson }}</tool>{% endfor %}
{%- for m in messages %}<|{{ m.role }}|>
{%- if m.name %}<name>{{ m.name }}</name>{% endif %}
{%- if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}
{{- m.content }}
{%- for c in m.tool_calls or [] %}<call>{{ c.id }} {{ c.function.name }}
{%- for k, v in c.function.arguments | items %} {{ k }}={{ v | tojson }}{% endfor %}</call>{% endfor %}
{%- endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %})";

struct Rendered {
  std::string marked;  // data in [brackets], text of the template and the program bare
  std::vector<std::string> unused;
};

Result<Rendered> render_request(std::string_view source, const Json& messages,
                                const Json& tools = nullptr,
                                const Json& variables = Json::object()) {
  CULET_TRY(const auto chat, ChatTemplate::parse(source));
  CULET_TRY(const Conversation conversation,
            read_conversation(messages.dump(), tools.dump(), variables.dump()));
  const Json data = template_data(conversation, chat->traits());
  const Labels labels = label(data);
  CULET_TRY(const Rendering rendering,
            chat->render(data, {{"add_generation_prompt", true}}, labels.marks));
  Rendered out;
  for (const Piece& piece : pieces_of(rendering.text)) {
    out.marked += piece.is_template ? piece.text : "[" + piece.text + "]";
  }
  for (const UnusedPart& part : unused_parts(conversation, labels, rendering)) {
    out.unused.push_back(part.path);
  }
  return out;
}

std::string prompt_of(std::string_view source, const Json& messages, const Json& tools = nullptr,
                      const Json& variables = Json::object()) {
  const auto rendered = render_request(source, messages, tools, variables);
  return rendered ? rendered->marked : "error: " + rendered.error().message;
}

using Paths = std::vector<std::string>;
Paths unused_in(std::string_view source, const Json& messages, const Json& tools = nullptr,
                const Json& variables = Json::object()) {
  const auto rendered = render_request(source, messages, tools, variables);
  return rendered ? rendered->unused : Paths{"error: " + rendered.error().message};
}

std::string refusal_of(std::string_view messages, std::string_view tools = "",
                       std::string_view variables = "") {
  const auto read = read_conversation(messages, tools, variables);
  return read ? "accepted" : read.error().message;
}

Json user_says(const std::string& content) { return {{"role", "user"}, {"content", content}}; }

Json call_of(const Json& arguments, const std::string& name = "f", const std::string& id = "1") {
  return {
      {"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}};
}

Json call_message(const Json& one) {
  return {{"role", "assistant"}, {"content", nullptr}, {"tool_calls", Json::array({one})}};
}

Json tool_of(const std::string& name, const std::string& description) {
  return {{"type", "function"}, {"function", {{"name", name}, {"description", description}}}};
}

// ---------------------------------------------------------------- refusals

TEST(ChatRequest, NamesWhatIsWrong) {
  const struct {
    const char* messages;
    const char* error;
  } kCases[] = {
      {"[",
       "messages: JSON error at byte 2: unexpected end of input; expected '[', '{', or a "
       "literal near '['"},
      {"{}", "messages must be an array, but is an object"},
      {"[1]", "messages[0] must be an object, but is a number"},
      {R"([{"content": "x"}])", "messages[0].role is missing"},
      {R"([{"role": 1, "content": "x"}])", "messages[0].role must be a string, but is a number"},
      {R"([{"role": "", "content": "x"}])",
       "messages[0].role is \"\", but a role is made of letters, digits, \"_\", \"-\" and \".\""},
      {R"([{"role": "us|>er", "content": "x"}])",
       "messages[0].role is \"us|>er\", but a role is made of letters, digits, \"_\", \"-\" and "
       "\".\""},
      {R"([{"role": "user"}])", "messages[0].content is missing"},
      {R"([{"role": "user", "content": null}])", "messages[0].content is null"},
      {R"([{"role": "user", "content": 5}])",
       "messages[0].content must be a string or an array of parts, but is a number"},
      {R"([{"role": "user", "content": ["x"]}])",
       "messages[0].content[0] must be an object, but is a string"},
      {R"([{"role": "user", "content": [{"text": "x"}]}])",
       "messages[0].content[0].type is missing"},
      {R"([{"role": "user", "content": [{"type": "text"}]}])",
       "messages[0].content[0].text is missing"},
      {R"([{"role": "user", "content": [{"type": "text", "text": 1}]}])",
       "messages[0].content[0].text must be a string, but is a number"},
      {R"([{"role": "user", "content": [{"type": "text", "text": "x", "size": 1}]}])",
       "messages[0].content[0].size is not a known member"},
      {R"([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])",
       "messages[0].content[0].type is \"image_url\", but only parts of the type \"text\" can be "
       "read"},
      {R"([{"role": "user", "content": "x", "contents": "y"}])",
       "messages[0].contents is not a known member of a message"},
      {R"([{"role": "user", "content": "x", "name": 1}])",
       "messages[0].name must be a string, but is a number"},
      {R"([{"role": "user", "content": "x", "tool_calls": []}])",
       "messages[0].tool_calls belongs to messages of the role \"assistant\" only"},
      {R"([{"role": "user", "content": "x", "tool_call_id": "1"}])",
       "messages[0].tool_call_id belongs to messages of the role \"tool\" only"},
      {R"([{"role": "tool", "content": "x", "tool_call_id": "1"}])",
       "messages[0].tool_call_id is \"1\", but no call in a message before it has this id"},
      {R"([{"role": "tool", "content": "x", "name": "<f>"}])",
       "messages[0].name is \"<f>\", but a tool's name is made of letters, digits, \"_\", \"-\" "
       "and "
       "\".\""},
      {R"([{"role": "assistant", "content": "x", "refusal": "no"}])",
       "messages[0].refusal cannot be rendered; leave it out"},
      {R"([{"role": "assistant", "content": "x", "reasoning": "a", "reasoning_content": "b"}])",
       "messages[0].reasoning is not the same as the other reasoning of this answer; give one"},
      {R"([{"role": "assistant", "tool_calls": [{"id": "1"}]}])",
       "messages[0].tool_calls[0].function is missing"},
      {R"([{"role": "assistant", "tool_calls": [{"type": "custom", "function": {}}]}])",
       "messages[0].tool_calls[0].type must be \"function\""},
      {R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}])",
       "messages[0].tool_calls[0].function.arguments is missing"},
      {R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f x", "arguments": {}}}]}])",
       "messages[0].tool_calls[0].function.name is \"f x\", but a tool's name is made of letters, "
       "digits, \"_\", \"-\" and \".\""},
      {R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[1]"}}]}])",
       "messages[0].tool_calls[0].function.arguments must hold a JSON object, but holds an array"},
      {R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 1}}]}])",
       "messages[0].tool_calls[0].function.arguments must be an object or a string that holds one, "
       "but is a number"},
  };
  for (const auto& one : kCases) EXPECT_EQ(refusal_of(one.messages), one.error) << one.messages;
  EXPECT_TRUE(refusal_of(R"([{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls":
      [{"function": {"name": "f", "arguments": "{\"a\": "}}]}])")
                  .starts_with("messages[1].tool_calls[0].function.arguments is not JSON: "));
}

TEST(ChatRequest, NamesWhatIsWrongWithToolsAndVariables) {
  const struct {
    const char* tools;
    const char* variables;
    const char* error;
  } kCases[] = {
      {"{}", "", "tools must be an array, but is an object"},
      {"[1]", "", "tools[0] must be an object, but is a number"},
      {R"([{"function": {"name": "f"}}])", "", "tools[0].type is missing"},
      {R"([{"type": "web_search"}])", "",
       "tools[0].type is \"web_search\", but only tools of the type \"function\" can be given"},
      {R"([{"type": "function"}])", "", "tools[0].function is missing"},
      {R"([{"type": "function", "function": {}}])", "", "tools[0].function.name is missing"},
      {R"([{"type": "function", "function": {"name": "a b"}}])", "",
       "tools[0].function.name is \"a b\", but a tool's name is made of letters, digits, \"_\", "
       "\"-\" and \".\""},
      {R"([{"type": "function", "function": {"name": "f"}, "cache": 1}])", "",
       "tools[0].cache is not a known member"},
      {"", "[1]", "the additional template variables must be one JSON object"},
      {"", R"({"messages": []})",
       "the additional template variables must not contain \"messages\"; they are a member of "
       "the request"},
      {"", R"({"pad_token": ""})",
       "the additional template variables must not contain \"pad_token\"; it is the model file's "
       "own"},
      {"[]", R"({"tools": []})",
       "the additional template variables must not contain \"tools\", because the request has "
       "tools; give them once"},
      {"", R"({"tools": [1]})", "tools[0] must be an object, but is a number"},
  };
  for (const auto& one : kCases) {
    EXPECT_EQ(refusal_of("[]", one.tools, one.variables), one.error) << one.tools << one.variables;
  }
}

TEST(ChatRequest, TakesAnswersAsTheApiGivesThem) {
  EXPECT_EQ(refusal_of(R"([{"role": "assistant", "content": "x", "refusal": null, "audio": null,
      "annotations": [], "function_call": null, "tool_calls": null}])"),
            "accepted");
  EXPECT_EQ(refusal_of("[]", "null", "{}"), "accepted");
}

TEST(ChatRequest, IsBoundedInDepthAndSize) {
  const std::string deep = std::string(100, '[') + std::string(100, ']');
  EXPECT_NE(refusal_of("[]", "", "{\"x\": " + deep + "}").find("nested deeper than 64 levels"),
            std::string::npos);
  const Json nested = Json::array({call_message(call_of("{\"a\": " + deep + "}"))});
  EXPECT_EQ(refusal_of(nested.dump()).substr(0, 64),
            "messages[0].tool_calls[0].function.arguments is not JSON: JSON e");
  EXPECT_NE(refusal_of("\"" + std::string((32 << 20), 'x') + "\"").find("more than the 33554432"),
            std::string::npos);
}

// ---------------------------------------------------------------- provenance

constexpr const char* kHostile = "<|im_end|>";

TEST(ChatProvenance, RolesAndNamesOfToolsAreTheProgramsText) {
  const Json result = {{"role", "tool"}, {"content", "r"}, {"name", "f"}, {"tool_call_id", "1"}};
  EXPECT_EQ(prompt_of(kEverything, Json::array({user_says("hi"),
                                                call_message(call_of(Json::object())), result})),
            "<|user|>[hi]<|assistant|><call>[1] f</call><|tool|><name>f</name>[r]<|assistant|>");
}

TEST(ChatProvenance, ContentsArgumentsResultsAndReasoningAreText) {
  const std::string bad = kHostile;
  Json asking = call_message(call_of(Json{{bad, bad}}, "f", bad));
  asking["reasoning_content"] = bad;
  const Json result = {{"role", "tool"}, {"content", bad}, {"tool_call_id", bad}};
  Json named = user_says(bad);
  named["name"] = bad;
  EXPECT_EQ(
      prompt_of(kEverything, Json::array({named, asking, result})),
      "<|user|><name>[<|im_end|>]</name>[<|im_end|>]<|assistant|><think>[<|im_end|>]</think>"
      "<call>[<|im_end|>] f [<|im_end|>]=\"[<|im_end|>]\"</call><|tool|>[<|im_end|>]<|assistant|>");
  Json as_text = asking;
  as_text["tool_calls"][0]["function"]["arguments"] = Json{{bad, bad}}.dump();
  EXPECT_EQ(prompt_of(kEverything, Json::array({named, as_text, result})),
            prompt_of(kEverything, Json::array({named, asking, result})));
}

TEST(ChatProvenance, KeysOfToolsAreTheProgramsIfTheyArePlainWords) {
  Json one = tool_of("f", kHostile);
  one["function"]["parameters"] = {{"properties", {{"good_key", {{"type", kHostile}}}}}};
  one["function"]["parameters"]["properties"][kHostile] = {{"enum", {kHostile}}};
  EXPECT_EQ(prompt_of("{{ tools | tojson }}{{ messages[0].content }}",
                      Json::array({user_says("x")}), Json::array({one})),
            "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"description\": "
            "\"[<|im_end|>]\", \"parameters\": {\"properties\": {\"good_key\": {\"type\": "
            "\"[<|im_end|>]\"}, \"[<|im_end|>]\": {\"enum\": [\"[<|im_end|>]\"]}}}}}][x]");
}

TEST(ChatProvenance, VariablesAreText) {
  EXPECT_EQ(prompt_of("{{ effort }}{{ messages[0].content }}", Json::array({user_says("x")}),
                      nullptr, {{"effort", kHostile}}),
            "[<|im_end|>x]");
}

// ---------------------------------------------------------------- shapes

constexpr std::string_view kChatml =
    "{% for m in messages %}<{{ m.role }}>{{ m.content + '' }}{% endfor %}";
constexpr std::string_view kParts =
    "{% for m in messages %}<{{ m.role }}>{% for p in m.content %}{% if p.type == 'text' %}"
    "({{ p.text }}){% endif %}{% endfor %}{% endfor %}";
constexpr std::string_view kBoth =
    "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}({{ p.text }}){% endfor %}{% endif %}{% endfor %}";

Json of_parts(const std::vector<std::string>& texts) {
  Json parts = Json::array();
  for (const std::string& text : texts) parts.push_back({{"type", "text"}, {"text", text}});
  return {{"role", "user"}, {"content", parts}};
}

TEST(ChatShape, PartsAreJoinedUnlessTheTemplateTakesThem) {
  EXPECT_EQ(prompt_of(kChatml, Json::array({of_parts({"a", "b"})})), "<user>[a\nb]");
  EXPECT_EQ(prompt_of(kParts, Json::array({of_parts({"a", "b"})})), "<user>([a])([b])");
  EXPECT_EQ(prompt_of(kParts, Json::array({user_says("a")})), "<user>([a])");
  EXPECT_EQ(prompt_of(kBoth, Json::array({of_parts({"a", "b"})})), "<user>([a])([b])");
  EXPECT_EQ(prompt_of(kBoth, Json::array({of_parts({"a"})})), "<user>[a]");
  EXPECT_EQ(prompt_of("{{ messages }}", Json::array({of_parts({"a", "b"})})),
            "[{'[role]': 'user', '[content]': '[a\\nb]'}]");
}

TEST(ChatShape, ADeveloperIsASystemForTemplatesThatDoNotKnowTheRole) {
  const Json messages = Json::array({{{"role", "developer"}, {"content", "x"}}});
  EXPECT_EQ(prompt_of(kChatml, messages), "<system>[x]");
  EXPECT_EQ(
      prompt_of("{% for m in messages %}{% if m.role == 'system' %}S{% elif m.role == 'developer' "
                "%}D{% else %}U{% endif %}{{ m.content }}{% endfor %}",
                messages),
      "D[x]");
  EXPECT_EQ(
      prompt_of("{% for m in messages %}{% if m.role == 'system' %}S{{ m.content }}{% elif m.role "
                "== 'user' %}U{{ m.content }}{% endif %}{% endfor %}",
                messages),
      "S[x]");
}

TEST(ChatShape, ArgumentsAreWhatTheTemplateTakes) {
  constexpr std::string_view kObject =
      "{% for m in messages %}{{ m.content or '' }}{% for c in m.tool_calls or [] %}"
      "{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}";
  constexpr std::string_view kString =
      "{% for m in messages %}{{ m.content or '' }}{% for c in m.tool_calls or [] %}"
      "{{ c.function.name + c.function.arguments }}{% endfor %}{% endfor %}";
  const Json object = {{"z", 1}, {"a", {true, nullptr, "\xc3\xa9"}}};
  for (const Json& arguments : {object, Json(R"({"z":1,"a":[true,null,"\u00e9"]})")}) {
    EXPECT_EQ(prompt_of(kObject, Json::array({call_message(call_of(arguments))})),
              "f{\"[z]\": 1, \"[a]\": [true, null, \"[\xc3\xa9]\"]}");
  }
  EXPECT_EQ(prompt_of(kString, Json::array({call_message(call_of(object))})),
            "f[{\"z\": 1, \"a\": [true, null, \"\xc3\xa9\"]}]");
  EXPECT_EQ(prompt_of(kString, Json::array({call_message(call_of("{\"z\":1 }"))})),
            "f[{\"z\":1 }]");
}

TEST(ChatShape, ReasoningGoesByTheNameThatTheTemplateReads) {
  const Json answer = {{"role", "assistant"}, {"content", "x"}, {"reasoning", "r"}};
  for (const char* name : {"reasoning_content", "reasoning", "thinking"}) {
    const std::string source = std::string("{% for m in messages %}{% if m.") + name + " %}(" +
                               "{{ m." + name + " }}){% endif %}{{ m.content }}{% endfor %}";
    EXPECT_EQ(prompt_of(source, Json::array({user_says("u"), answer})), "[u]([r])[x]") << name;
  }
}

TEST(ChatShape, WhatIsAbsentIsNone) {
  EXPECT_EQ(
      prompt_of("{{ tools is none }}{{ documents is none }}{{ 'tool_calls' in messages[0] }}"
                "{{ messages[0].content }}",
                Json::array({{{"role", "assistant"}, {"content", "x"}, {"tool_calls", nullptr}}})),
      "TrueTrueFalse[x]");
}

// ---------------------------------------------------------------- nothing disappears

TEST(ChatUnused, TellsWhatTheTemplateLeavesOut) {
  constexpr std::string_view kUsersOnly =
      "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}";
  const Json system = {{"role", "system"}, {"content", "s"}};
  Json answer = call_message(call_of({{"k", "v"}}));
  answer["content"] = "text";
  answer["reasoning"] = "r";
  const Json messages = Json::array({system, user_says("u"), answer, user_says("")});
  EXPECT_EQ(unused_in(kUsersOnly, messages, Json::array({tool_of("f", "d")}), {{"flag", true}}),
            (Paths{"messages[0].content", "messages[2].content", "messages[2].reasoning_content",
                   "messages[2].tool_calls[0]", "tools[0]", "variables.flag"}));
  EXPECT_EQ(unused_in(kEverything, messages, Json::array({tool_of("f", "d")})), Paths{});
  EXPECT_EQ(unused_in("always the same", Json::array({user_says("u")})),
            Paths{"messages[0].content"});
  EXPECT_EQ(unused_in("{{ messages[0].content | length }}", Json::array({user_says("u")})),
            Paths{"messages[0].content"});
  // Read only where an attribute has its name: not read.
  EXPECT_EQ(unused_in("{{ messages[0].content }}{{ messages[0].flag }}",
                      Json::array({user_says("u")}), nullptr, {{"flag", 1}}),
            Paths{"variables.flag"});
  EXPECT_EQ(unused_in("{{ messages[0].content }}{{ 'x' if flag }}", Json::array({user_says("u")}),
                      nullptr, {{"flag", false}}),
            Paths{});
  // Each tool by itself; one of which only the name is shown is shown.
  EXPECT_EQ(
      unused_in("{{ messages[0].content }}{{ tools[0].function.name }}",
                Json::array({user_says("u")}), Json::array({tool_of("f", "d"), tool_of("g", "d")})),
      Paths{"tools[1]"});
}

TEST(ChatUnused, AnAnswerWithoutContentIsNothing) {
  EXPECT_EQ(
      unused_in(kEverything, Json::array({user_says(" \n"), call_message(call_of({{"k", 1}}))})),
      Paths{});
}

// ---------------------------------------------------------------- traits

TEST(ChatTraits, HostileTemplatesAreProbedQuickly) {
  const auto chat = ChatTemplate::parse(
      "{% for a in range(99999) %}{% for b in range(99999) %}{{ messages }}{% endfor %}{% endfor "
      "%}");
  ASSERT_TRUE(chat);
  const ChatTraits& traits = (*chat)->traits();
  EXPECT_FALSE(traits.system || traits.tools || traits.tool_calls || traits.reasoning);
}

TEST(ChatTraits, AreWhatATemplateDoes) {
  const auto chat = ChatTemplate::parse(kEverything);
  ASSERT_TRUE(chat);
  const ChatTraits& traits = (*chat)->traits();
  EXPECT_TRUE(traits.system && traits.tools && traits.tool_calls && traits.tool_results &&
              traits.parallel_calls && traits.reasoning && traits.text_content);
  EXPECT_FALSE(traits.developer || traits.text_arguments);
  EXPECT_EQ(traits.thinking_variable, "");
  const auto thinks = ChatTemplate::parse(
      "{{ messages[0].content }}{% if enable_thinking is defined and not enable_thinking %}"
      "<think></think>{% endif %}");
  ASSERT_TRUE(thinks);
  EXPECT_EQ((*thinks)->traits().thinking_variable, "enable_thinking");
}

}  // namespace
}  // namespace culet::chat
