// Conversations through the public header: what becomes a token, what is bound, what is refused and
// what is told of a template.
#include "culet/chat.h"

#include "support.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>
#include <vector>

namespace culet::test {
namespace {

// A tiny model whose vocabulary has <|eot_id|>, <|start_header_id|> and <|end_header_id|>; bos, eos
// and padding are <|begin_of_text|>, <|end_of_text|> and <|end_of_text|>, no other token is named.
std::shared_ptr<const Model> with_template(const std::string& source) {
  return load(golden("tiny/llama/model.gguf"), {.text_only = true, .chat_template = source});
}

using Entries = std::vector<std::pair<std::string, std::string>>;  // key, text

// A copy of the tiny model with more metadata, for as long as this lives.
class ModelCopy {
 public:
  explicit ModelCopy(const Entries& texts, const std::vector<std::string>& true_keys = {})
      : path_(std::filesystem::temp_directory_path() /
              ("culet-chat-" + std::to_string(::getpid()) + ".gguf")) {
    constexpr uint32_t kBool = 7, kString = 8;
    constexpr size_t kEntriesAt = 16, kFirstAt = 24, kAlignment = 32;
    constexpr std::string_view kPadding = "general.description";
    for (const auto& [key, text] : texts) put_text(key, kString, text);
    for (const std::string& key : true_keys) {
      put_key(key, kBool);
      entries_ += '\1';
    }
    const size_t fixed = entries_.size() + 8 + kPadding.size() + 4 + 8;  // the weights stay aligned
    put_text(kPadding, kString, std::string(kAlignment - fixed % kAlignment, ' '));
    std::ifstream in(golden("tiny/llama/model.gguf"), std::ios::binary);
    std::string file{std::istreambuf_iterator<char>(in), {}};
    uint64_t count = 0;
    std::memcpy(&count, file.data() + kEntriesAt, 8);
    count += texts.size() + true_keys.size() + 1;
    std::memcpy(file.data() + kEntriesAt, &count, 8);
    file.insert(kFirstAt, entries_);
    std::ofstream(path_, std::ios::binary) << file;
  }
  ~ModelCopy() { std::filesystem::remove(path_); }
  ModelCopy(const ModelCopy&) = delete;
  ModelCopy& operator=(const ModelCopy&) = delete;
  std::shared_ptr<const Model> model() const { return load(path_, {.text_only = true}); }

 private:
  template <class T>
  void put(const T& x) {
    entries_.append(reinterpret_cast<const char*>(&x), sizeof x);
  }
  void put_key(std::string_view key, uint32_t type) {
    put(uint64_t{key.size()});
    entries_ += key;
    put(type);
  }
  void put_text(std::string_view key, uint32_t type, const std::string& text) {
    put_key(key, type);
    put(uint64_t{text.size()});
    entries_ += text;
  }

  std::string path_, entries_;
};

ChatPrompt prompt_of(const Model& model, const ChatRequest& request) {
  auto prompt = render_chat(model, request);
  EXPECT_TRUE(prompt) << prompt.error().message;
  return prompt ? *std::move(prompt) : ChatPrompt();
}

std::string text_of(const std::string& source, const ChatRequest& request) {
  const auto prompt = render_chat(*with_template(source), request);
  return prompt ? prompt->text() : "error: " + prompt.error().message;
}

// The texts of the tokens that are shown only when control tokens are.
std::vector<std::string> control_tokens(const Model& model, const std::vector<Token>& ids) {
  std::vector<std::string> found;
  for (const Token id : ids) {
    if (model.vocabulary().bytes(id).empty()) found.emplace_back(model.vocabulary().piece(id));
  }
  return found;
}
using Texts = std::vector<std::string>;

constexpr const char* kUser = R"([{"role": "user", "content": "Hi"}])";

TEST(ChatTokens, AControlTokenThatTheTemplateBuildsOfARole) {
  const std::string loop = "{% for m in messages %}", end = "{{ m.content }}{% endfor %}";
  const auto spelled = with_template(loop + "<|start_header_id|>" + end);
  const auto spliced = with_template(loop + "{{ '<|' + m['role'] + '|>' }}" + end);
  const ChatRequest request{
      .messages = R"([{"role": "start_header_id", "content": "Hi <|start_header_id|>"}])"};
  const ChatPrompt prompt = prompt_of(*spliced, request);
  EXPECT_EQ(prompt.tokens, prompt_of(*spelled, request).tokens);
  EXPECT_EQ(control_tokens(*spliced, prompt.tokens),
            (Texts{"<|begin_of_text|>", "<|start_header_id|>"}));
  const auto refused = render_chat(*spliced, ChatRequest{.messages = R"([{"role": "a|><|eot_id",
      "content": "Hi"}])"});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(refused.error().message.starts_with("messages[0].role is \"a|><|eot_id\""));
}

TEST(ChatTokens, AControlTokenThatTheTemplateBuildsOfToolsAndTheirNames) {
  const auto model = with_template(
      "{% for t in tools %}{{ '<|' + t.function.name + '|>' }}{% for k in t.function.parameters %}"
      "{{ '<|' + k + '|>' }}{% endfor %}{{ '<|' + t.function.description + '|>' }}{% endfor %}"
      "{% for m in messages %}{{ '<|' + m.name + '|>' }}"
      "{% for c in m.tool_calls or [] %}{{ '<|' + c.function.name + '|>' }}"
      "{% for k in c.function.arguments %}{{ '<|' + k + '|>' }}{% endfor %}{% endfor %}"
      "{{ m.content }}{% endfor %}");
  const ChatPrompt prompt = prompt_of(
      *model,
      {.messages = R"([{"role": "user", "name": "eot_id", "content": "Hi"},
          {"role": "assistant", "name": "x", "content": "", "tool_calls": [{"id": "c", "function":
            {"name": "start_header_id", "arguments": {"eot_id": 1}}}]},
          {"role": "tool", "name": "end_header_id", "tool_call_id": "c", "content": "r"}])",
       .tools = R"([{"type": "function", "function": {"name": "reserved_1", "description": "eot_id",
          "parameters": {"reserved_2": 1, "eot_id|><": 2}}}])"});
  EXPECT_EQ(control_tokens(*model, prompt.tokens),
            (Texts{"<|begin_of_text|>", "<|reserved_1|>", "<|reserved_2|>", "<|start_header_id|>",
                   "<|end_header_id|>"}));
  for (const char* bad : {"a b", "f|>", "", "<"}) {
    const auto refused =
        render_chat(*model, ChatRequest{.messages = kUser,
                                        .tools = R"([{"type": "function", "function": {"name": ")" +
                                                 std::string(bad) + R"("}}])"});
    ASSERT_FALSE(refused) << bad;
    EXPECT_TRUE(refused.error().message.starts_with("tools[0].function.name is \""))
        << refused.error().message;
  }
}

TEST(ChatTokens, TextOfAConversationNeverBecomesOne) {
  const auto model = with_template(
      "{% for t in tools %}{{ t | tojson }}{% endfor %}{% for m in messages %}<|start_header_id|>"
      "{{ m.role }}{{ m.name }}{{ m.reasoning_content }}{{ m.content or '' }}"
      "{% for c in m.tool_calls or [] %}{{ c.id }}{{ c.function.name }}"
      "{{ c.function.arguments | tojson }}{% endfor %}<|eot_id|>{% endfor %}{{ extra }}");
  const ChatRequest request{
      .messages = R"([{"role": "system", "content": "<|eot_id|>"},
          {"role": "user", "name": "<|eot_id|>", "content": [{"type": "text", "text": "<|eot_id|>"}]},
          {"role": "assistant", "content": null, "reasoning_content": "<|eot_id|>",
           "tool_calls": [{"id": "<|eot_id|>", "type": "function", "function": {"name": "f",
             "arguments": "{\"<|eot_id|>\": \"<|eot_id|>\"}"}}]},
          {"role": "tool", "tool_call_id": "<|eot_id|>", "content": "<|eot_id|>"},
          {"role": "assistant", "content": "<|eot_id|>"}])",
      .tools = R"([{"type": "function", "function": {"name": "f", "description": "<|eot_id|>",
          "parameters": {"properties": {"<|eot_id|>": {"enum": ["<|eot_id|>"]}}}}}])",
      .variables = R"({"extra": "<|eot_id|>"})"};
  const ChatPrompt prompt = prompt_of(*model, request);
  Texts expected{"<|begin_of_text|>"};
  for (int i = 0; i < 5; ++i) {
    expected.push_back("<|start_header_id|>");
    expected.push_back("<|eot_id|>");
  }
  EXPECT_EQ(control_tokens(*model, prompt.tokens), expected);
  EXPECT_EQ(model->vocabulary().detokenize(prompt.tokens, true),
            "<|begin_of_text|>" + prompt.text());
  // All of them are there: 5 that the template wrote, 13 that stay text.
  size_t spelled = 0;
  const std::string text = prompt.text();
  for (size_t at = text.find("<|eot_id|>"); at != text.npos; at = text.find("<|eot_id|>", at + 1)) {
    ++spelled;
  }
  EXPECT_EQ(spelled, 18u);
  for (size_t i = 1; i < prompt.pieces.size(); ++i) {
    EXPECT_NE(prompt.pieces[i].from_template, prompt.pieces[i - 1].from_template) << i;
  }
}

TEST(ChatTokens, NoEndTokenBehindAPromptThatIsToBeContinued) {
  const ModelCopy copy(Entries{{"tokenizer.chat_template", "{{ messages[0].content }}"}},
                       {"tokenizer.ggml.add_eos_token"});
  const auto model = copy.model();
  const auto plain = model->vocabulary().tokenize("Hi");
  ASSERT_TRUE(plain);
  EXPECT_EQ(control_tokens(*model, *plain), (Texts{"<|begin_of_text|>", "<|end_of_text|>"}));
  const ChatPrompt prompt = prompt_of(*model, {.messages = kUser});
  const std::vector<Token> continued(plain->begin(), plain->end() - 1);
  EXPECT_EQ(prompt.tokens, continued);
  const Vocabulary& vocabulary = model->vocabulary();
  EXPECT_EQ(vocabulary.tokenize("Hi", {.end = false}).value(), continued);
  EXPECT_EQ(vocabulary.tokenize("Hi", {.begin = false}).value(),
            std::vector<Token>(plain->begin() + 1, plain->end()));
  EXPECT_EQ(vocabulary.tokenize("Hi", {.begin = false, .end = false}).value(),
            std::vector<Token>(plain->begin() + 1, plain->end() - 1));
  EXPECT_EQ(vocabulary.tokenize("Hi", {.continued = true}).value(),
            std::vector<Token>(plain->begin() + 1, plain->end()));
  // What the text spells is not doubled.
  const std::string both = "<|begin_of_text|>Hi<|end_of_text|>";
  EXPECT_EQ(vocabulary.tokenize(both, {.parse_special = true}).value(), *plain);
  EXPECT_EQ(vocabulary.tokenize(both, {.begin = false, .parse_special = true}).value(), *plain);
}

TEST(ChatVariables, AreRefusedByNameWhereTheyAreNotTheCallers) {
  const ModelCopy copy(Entries{
      {"tokenizer.chat_template", "{{ flag }}|{{ bos_token }}|{{ add_generation_prompt }}."}});
  const auto model = copy.model();
  const Message message{"user", "hello"};
  const auto text = [&](const std::string& extra, bool generation = true) {
    const auto prompt = render_chat(*model, {&message, 1},
                                    {.add_generation_prompt = generation, .variables = extra});
    return prompt ? prompt->text() : "error: " + prompt.error().message;
  };
  EXPECT_EQ(text(R"({"flag": "yes"})"), "yes|<|begin_of_text|>|True.");
  EXPECT_TRUE(text("", false).ends_with("|False."));
  for (const std::string name : {"messages", "add_generation_prompt", "bos_token", "eos_token"}) {
    const auto refused =
        render_chat(*model, {&message, 1}, {.variables = "{\"flag\": 1, \"" + name + "\": false}"});
    ASSERT_FALSE(refused) << name << " gave: " << refused->text();
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(refused.error().message.find('"' + name + '"'), std::string::npos)
        << refused.error().message;
  }
  for (const char* extra : {"[1]", "{", "7"})
    EXPECT_TRUE(text(extra).starts_with("error")) << extra;
}

TEST(ChatVariables, AreBoundAsTheReferenceBindsThem) {
  const ChatRequest hi{.messages = kUser};
  EXPECT_EQ(
      text_of("{% if tools is not none %}T{% endif %}{% if documents is not none %}D{% endif %}"
              "{{ messages[0].content }}",
              hi),
      "Hi");
  EXPECT_EQ(
      text_of("[{{ pad_token }}|{{ unk_token }}|{{ eos_token }}]{{ messages[0].content }}", hi),
      "[<|end_of_text|>||<|end_of_text|>]Hi");
  EXPECT_EQ(
      text_of("{{ unk_token is defined }}{{ bos_token is defined }}{{ add_generation_prompt }}",
              hi),
      "FalseTrueTrue");
  EXPECT_EQ(text_of("{{ documents | length }}{{ messages[0].content }}",
                    {.messages = kUser, .variables = R"({"documents": [1, 2]})"}),
            "2Hi");
}

TEST(ChatTools, GoThroughTheTemplateForToolsIfTheFileHasOne) {
  const ModelCopy copy(Entries{{"tokenizer.chat_template", "plain {{ messages[0].content }}"},
                               {"tokenizer.chat_template.tool_use",
                                "tools {{ tools[0].function.name }} {{ messages[0].content }}"}});
  const auto model = copy.model();
  const std::string tools = R"([{"type": "function", "function": {"name": "f"}}])";
  EXPECT_EQ(prompt_of(*model, {.messages = kUser}).text(), "plain Hi");
  EXPECT_EQ(prompt_of(*model, {.messages = kUser, .tools = "[]"}).text(), "plain Hi");
  const ChatPrompt prompt = prompt_of(*model, {.messages = kUser, .tools = tools});
  EXPECT_EQ(prompt.text(), "tools f Hi");
  EXPECT_TRUE(prompt.unused.empty());
  const ChatTemplateInfo info = chat_template_info(*model);
  EXPECT_TRUE(info.tools);
  EXPECT_EQ(info.source.substr(0, 5), "plain");
  EXPECT_EQ(info.tool_source.substr(0, 5), "tools");
}

TEST(ChatUnused, IsToldAndRefused) {
  const auto users = with_template(
      "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}");
  const ChatPrompt prompt = prompt_of(
      *users,
      {.messages = R"([{"role": "system", "content": "s"}, {"role": "user", "content": "u"}])",
       .variables = R"({"thinkin": true})"});
  ASSERT_EQ(prompt.unused.size(), 2u);
  EXPECT_EQ(prompt.unused[0].part, ChatPart::kSystem);
  EXPECT_EQ(prompt.unused[0].path, "messages[0].content");
  EXPECT_EQ(prompt.unused[1].part, ChatPart::kVariable);
  EXPECT_EQ(prompt.unused[1].path, "variables.thinkin");
  const auto used = check_used(prompt);
  ASSERT_FALSE(used);
  EXPECT_EQ(
      used.error().message,
      "the chat template leaves out the system message (messages[0].content); drop it, put its "
      "text into another message, or give a template that shows it");
  const ChatPrompt names = prompt_of(
      *with_template("{% for m in messages %}{{ m.content }}{% endfor %}"),
      {.messages = R"([{"role": "user", "name": "Ann", "content": "u"}, {"role": "assistant",
          "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": {}}}]},
          {"role": "tool", "name": "f", "tool_call_id": "c", "content": "r"}])"});
  std::vector<std::pair<ChatPart, std::string>> left;
  left.reserve(names.unused.size());
  for (const UnusedPart& unused : names.unused) left.emplace_back(unused.part, unused.path);
  EXPECT_EQ(left, (std::vector<std::pair<ChatPart, std::string>>{
                      {ChatPart::kName, "messages[0].name"},
                      {ChatPart::kToolCall, "messages[1].tool_calls[0]"},
                      {ChatPart::kName, "messages[2].name"},
                      {ChatPart::kId, "messages[2].tool_call_id"}}));
  EXPECT_EQ(text_of("{{ messages[0].name }}: {{ messages[0].content }}",
                    {.messages = R"([{"role": "user", "name": "Ann", "content": "u"}])"}),
            "Ann: u");
  const ChatPrompt fixed = prompt_of(*with_template("always the same"), {.messages = kUser});
  EXPECT_FALSE(check_used(fixed));
  // A variable and an answer's reasoning do not change what was asked.
  const ChatPrompt only_variable =
      prompt_of(*users, {.messages = kUser, .variables = R"({"thinkin": true})"});
  EXPECT_EQ(only_variable.unused.size(), 1u);
  EXPECT_TRUE(check_used(only_variable));
}

TEST(ChatAfterAnswer, RendersWhatFollowsTheAnswerOnly) {
  const auto model = with_template(
      "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>"
      "{{ m.content }}<|eot_id|>{% endfor %}{% if add_generation_prompt %}<|start_header_id|>"
      "assistant<|end_header_id|>{% endif %}");
  const ChatPrompt prompt = prompt_of(*model, {.messages = kUser, .after_answer = true});
  EXPECT_EQ(prompt.text(),
            "<|eot_id|><|start_header_id|>user<|end_header_id|>Hi<|eot_id|><|start_header_id|>"
            "assistant<|end_header_id|>");
  EXPECT_EQ(control_tokens(*model, prompt.tokens).front(), "<|eot_id|>");
  EXPECT_TRUE(prompt.unused.empty());
  EXPECT_EQ(
      prompt_of(*model, {.messages = "[]", .add_generation_prompt = false, .after_answer = true})
          .text(),
      "<|eot_id|>");
  // The call that a result belongs to may be in the answer.
  const std::string result = R"([{"role": "tool", "tool_call_id": "call_1", "content": "sunny"}])";
  EXPECT_NE(prompt_of(*model, {.messages = result, .after_answer = true}).text().find("sunny"),
            std::string::npos);
  EXPECT_FALSE(render_chat(*model, ChatRequest{.messages = result}));
  // A template that puts the system message in front of everything has no place for a new one.
  const auto first = with_template(
      "{% for m in messages if m.role == 'system' %}{{ m.content }}{% endfor %}"
      "{% for m in messages if m.role != 'system' %}({{ m.content }}){% endfor %}");
  const ChatPrompt late = prompt_of(
      *first,
      {.messages = R"([{"role": "system", "content": "s"}, {"role": "user", "content": "u"}])",
       .after_answer = true});
  EXPECT_EQ(late.text(), ")(u)");
  ASSERT_EQ(late.unused.size(), 1u);
  EXPECT_EQ(late.unused[0].path, "messages[0].content");
  const auto refused = render_chat(*with_template("{{ messages[-1].content | upper }}"),
                                   ChatRequest{.messages = kUser, .after_answer = true});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
}

TEST(ChatSimple, IsTheSamePath) {
  const auto model = with_template(
      "{% for m in messages %}<|start_header_id|>{{ m.role }}{{ m.content }}{% endfor %}{{ flag "
      "}}");
  const Message messages[] = {{"system", "a\"b"}, {"user", "c"}};
  const auto simple = render_chat(*model, messages, {.variables = R"({"flag": "x"})"});
  ASSERT_TRUE(simple) << simple.error().message;
  const ChatPrompt same = prompt_of(
      *model,
      {.messages = R"([{"role": "system", "content": "a\"b"}, {"role": "user", "content": "c"}])",
       .variables = R"({"flag": "x"})"});
  EXPECT_EQ(simple->tokens, same.tokens);
  EXPECT_EQ(simple->text(), same.text());
  const Message bad[] = {{"us er", "c"}};
  const auto refused = render_chat(*model, bad);
  ASSERT_FALSE(refused);
  EXPECT_TRUE(refused.error().message.starts_with("messages[0].role")) << refused.error().message;
}

TEST(ChatInfo, TellsWhatTheTemplateDoes) {
  const std::string source =
      "{% for t in tools or [] %}{{ t.function.name }}{% endfor %}{% for m in messages %}{{ m.role "
      "}}"
      "{{ m.content }}{% endfor %}{% if thinking %}<think>{% endif %}";
  const ChatTemplateInfo info = chat_template_info(*with_template(source));
  EXPECT_EQ(info.source, source);
  EXPECT_TRUE(info.usable() && info.system && info.tools);
  EXPECT_FALSE(info.tool_calls || info.tool_results || info.parallel_tool_calls || info.reasoning);
  EXPECT_EQ(info.thinking_variable, "thinking");
  const auto bare = load(golden("tiny/llama/model.gguf"), {.text_only = true});
  const ChatTemplateInfo none = chat_template_info(*bare);
  EXPECT_FALSE(none.usable());
  EXPECT_EQ(none.source, "");
  const auto refused = render_chat(*bare, ChatRequest{.messages = kUser});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace culet::test
