// The interpreter against jinja2's own answers (tests/golden/templates), then what jinja2 has no
// notion of: provenance, limits, places in messages.
#include "template/chat_template.h"

#include "base/json.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sstream>

namespace culet::chat {
namespace {

using Json = nlohmann::ordered_json;

std::string read_file(const std::string& name) {
  std::ifstream in(std::string(CULET_TEST_DATA) + "/golden/" + name, std::ios::binary);
  EXPECT_TRUE(in) << name << " is missing";
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<Json> read_lines(const std::string& name) {
  std::istringstream in(read_file(name));
  std::vector<Json> out;
  for (std::string line; std::getline(in, line);) {
    auto row = base::parse_json(line);
    EXPECT_TRUE(row) << name;
    if (row) out.push_back(std::move(*row));
  }
  return out;
}

Result<std::vector<Piece>> render(const std::string& source, const Json& data = Json::object(),
                                  const Json& constants = Json::object(), Limits limits = {}) {
  CULET_TRY(const auto parsed, ChatTemplate::parse(source, limits));
  return parsed->render(data, constants);
}

std::string joined(const std::vector<Piece>& pieces) {
  std::string text;
  for (const Piece& piece : pieces) text += piece.text;
  return text;
}

// User text in [brackets], template text bare; "error: ..." when rendering fails.
std::string marked(const std::string& source, const Json& data,
                   const Json& constants = Json::object()) {
  const auto pieces = render(source, data, constants);
  if (!pieces) return "error: " + pieces.error().message;
  std::string out;
  for (const Piece& piece : *pieces) {
    out += piece.is_template ? piece.text : "[" + piece.text + "]";
  }
  return out;
}

std::string error_of(const std::string& source, const Json& data = Json::object(),
                     Limits limits = {}) {
  const auto pieces = render(source, data, Json::object(), limits);
  return pieces ? "rendered: " + joined(*pieces).substr(0, 100) : pieces.error().message;
}

// Verifies text.templates.
TEST(ChatTemplate, SaysWhatJinjaSays) {
  const std::vector<Json> rows = read_lines("templates/cases.jsonl");
  ASSERT_GT(rows.size(), 400u);
  const Json& variables = rows[0]["variables"];
  for (size_t i = 1; i < rows.size(); ++i) {
    const Json& row = rows[i];
    const std::string source = row["template"].get<std::string>();
    SCOPED_TRACE(row["name"].get<std::string>() + ": " + source);
    const auto pieces = render(source, variables);
    if (row.contains("refused")) {
      EXPECT_FALSE(pieces) << "rendered: " << joined(*pieces);
      continue;
    }
    ASSERT_TRUE(pieces) << pieces.error().message;
    EXPECT_EQ(joined(*pieces), row["expected"].get<std::string>());
  }
}

// What no published template uses is not there, and says so; docs/formats/templates.md has the
// list.
TEST(ChatTemplate, NamesWhatItLeavesOut) {
  for (const char* filter :
       {"batch", "center", "forceescape", "groupby", "pprint", "slice", "striptags", "truncate",
        "urlencode", "urlize", "wordcount", "wordwrap", "xmlattr"}) {
    const auto pieces = render(std::string("{{ 'a'|") + filter + " }}");
    ASSERT_FALSE(pieces) << filter;
    EXPECT_NE(pieces.error().message.find(std::string("there is no filter named '") + filter + "'"),
              std::string::npos)
        << pieces.error().message;
  }
  for (const char* method : {"casefold", "center", "encode", "expandtabs", "isascii", "isdecimal",
                             "isnumeric", "istitle", "ljust", "rjust", "swapcase", "zfill"}) {
    const auto pieces = render(std::string("{{ 'a'.") + method + "(5) }}");
    ASSERT_FALSE(pieces) << method;
    EXPECT_NE(pieces.error().message.find(method), std::string::npos) << pieces.error().message;
  }
}

// Characters whose case or class is no matter of a table of single letters.
TEST(ChatTemplate, CharactersAreThoseOfPython) {
  const auto of = [](const std::string& what) {
    const auto pieces = render("{{ " + what + " }}");
    return pieces ? joined(*pieces) : "error: " + pieces.error().message;
  };
  EXPECT_EQ(of("'\u00df \ufb01 \u0149 \u1f80 \u1fb2'.upper()"),
            "SS FI \u02bcN \u1f08\u0399 \u1fba\u0399");
  EXPECT_EQ(of("'\u00df \ufb01 \u0149 \u1f80 \u1fb2 \u01c6'.title()"),
            "Ss Fi \u02bcN \u1f88 \u1fba\u0345 \u01c5");
  EXPECT_EQ(of("'\u0130 \u039f\u03a3 \u03a3 \u1e9e'.lower()"),
            "i\u0307 \u03bf\u03c2 \u03c3 \u00df");
  EXPECT_EQ(of("'\u1e9e\u0130'.upper()"), "\u1e9e\u0130");
  EXPECT_EQ(of("['\u2163'.isupper(), '\u2173'.islower(), '\u00aa'.islower(), '\u01c5'.isupper()]"),
            "[True, True, True, False]");
  EXPECT_EQ(of("['\u00b2'.isdigit(), '\u0663'.isdigit(), '\u00bd'.isdigit(), '\u4e00'.isdigit()]"),
            "[True, True, False, False]");
  EXPECT_EQ(of("'\u3000\u00a0\u2028x\u0085\u1680'.strip()"), "x");
  EXPECT_EQ(of("['\u00a0\u200b\ue000\u0378\u00e9\U0001F600']"),
            "['\\xa0\\u200b\\ue000\\u0378\u00e9\U0001F600']");
}

TEST(ChatTemplate, RendersSmolLm2Conversations) {
  const auto parsed = ChatTemplate::parse(read_file("templates/smollm2-135m-instruct.jinja"));
  ASSERT_TRUE(parsed) << parsed.error().message;
  const auto rows = read_lines("real/smollm2-135m-instruct-q4_1/chat.jsonl");
  ASSERT_FALSE(rows.empty());
  for (const Json& row : rows) {
    SCOPED_TRACE(row["name"].get<std::string>());
    const Json data = {{"messages", row["messages"]}, {"tools", nullptr}};
    const auto pieces =
        (*parsed)->render(data, {{"add_generation_prompt", row["add_generation_prompt"]}});
    ASSERT_TRUE(pieces) << pieces.error().message;
    EXPECT_EQ(joined(*pieces), row["prompt"].get<std::string>());
  }
}

// ---- provenance ----

const Json kUser = {{"u", "<|im_end|>"},        {"name", "bob"}, {"list", {"x", "y"}},
                    {"dict", {{"key", "val"}}}, {"n", 5},        {"text", "one two\nthree"}};

// Verifies text.templates.
TEST(Provenance, TellsDataFromTemplate) {
  EXPECT_EQ(marked("a{{ u }}b", kUser), "a[<|im_end|>]b");
  EXPECT_EQ(marked("{{ bos }}{{ u }}", kUser, {{"bos", "<s>"}}), "<s>[<|im_end|>]");
  EXPECT_EQ(marked("{{ u }}{{ name }}", kUser), "[<|im_end|>bob]");
  EXPECT_EQ(marked("{{ n }}{{ u|length }}{{ none }}", kUser), "510None");
  EXPECT_EQ(marked("{% for k in dict %}{{ k }}:{{ dict[k] }}{% endfor %}", kUser), "[key]:[val]");
}

TEST(Provenance, NeighboursAreJoined) {
  const auto pieces = render("a{{ 'b' }}{{ u }}{{ u }}{{ 'c' }}d", kUser);
  ASSERT_TRUE(pieces);
  ASSERT_EQ(pieces->size(), 3u);
  EXPECT_EQ((*pieces)[0].text, "ab");
  EXPECT_EQ((*pieces)[2].text, "cd");
}

TEST(Provenance, SurvivesOperators) {
  EXPECT_EQ(marked("{{ '<' + u + '>' }}", kUser), "<[<|im_end|>]>");
  EXPECT_EQ(marked("{{ '<' ~ u ~ 1 }}", kUser), "<[<|im_end|>]1");
  EXPECT_EQ(marked("{{ u[2:4] ~ u[0] ~ u[::-1] }}", kUser), "[im<>|dne_mi|<]");
  EXPECT_EQ(marked("{{ ('a' + name) * 2 }}", kUser), "a[bob]a[bob]");
  EXPECT_EQ(marked("{{ '%s-%5s' % (name, name) }}", kUser), "[bob]-  [bob]");
  EXPECT_EQ(marked("{{ (name ~ ' %s') % 'x' }}", kUser), "[bob] x");
}

TEST(Provenance, SurvivesFilters) {
  EXPECT_EQ(marked("{{ (' a' ~ name ~ ' ')|trim|upper }}", kUser), "A[BOB]");
  EXPECT_EQ(marked("{{ 'a-b'|replace('-', name) }}", kUser), "a[bob]b");
  EXPECT_EQ(marked("{{ name|replace('o', '-') }}", kUser), "[b]-[b]");
  EXPECT_EQ(marked("{{ list|join(', ') }}", kUser), "[x], [y]");
  EXPECT_EQ(marked("{{ name|default('x') ~ missing|default(name) }}", kUser), "[bobbob]");
  EXPECT_EQ(marked("{{ name|e ~ name|safe ~ name|string }}", kUser), "[bobbobbob]");
  EXPECT_EQ(marked("{{ text|indent(2) }}", kUser), "[one two\n]  [three]");
  EXPECT_EQ(marked("{{ list|map('upper')|first ~ list|last ~ list|reverse|first }}", kUser),
            "[Xyy]");
  EXPECT_EQ(marked("{{ name|title ~ name|capitalize }}", kUser), "[BobBob]");
  EXPECT_EQ(marked("{{ '%s!'|format(name) }}", kUser), "[bob]!");
}

TEST(Provenance, SurvivesJsonAndRepr) {
  EXPECT_EQ(marked("{{ dict|tojson }}", kUser), "{\"[key]\": \"[val]\"}");
  EXPECT_EQ(marked("{{ {'a': u, 'n': n}|tojson }}", kUser), "{\"a\": \"[<|im_end|>]\", \"n\": 5}");
  EXPECT_EQ(marked("{{ [name, 'b'] }}", kUser), "['[bob]', 'b']");
  EXPECT_EQ(marked("{{ text|tojson }}", kUser), "\"[one two\\nthree]\"");
}

TEST(Provenance, SurvivesMethods) {
  EXPECT_EQ(marked("{{ text.split('\n')[0] ~ '|' ~ text.split()[1] }}", kUser), "[one two]|[two]");
  EXPECT_EQ(marked("{{ (' ' ~ name).strip() ~ name.upper() ~ name.replace('b', 'X') }}", kUser),
            "[bobBOB]X[o]X");
  EXPECT_EQ(marked("{{ '-'.join(list) ~ name.join(['<', '>']) }}", kUser), "[x]-[y]<[bob]>");
  EXPECT_EQ(marked("{{ '{} {x:>5}'.format(name, x=name) }}", kUser), "[bob]   [bob]");
  EXPECT_EQ(marked("{{ name.partition('o')[2] }}", kUser), "[b]");
  EXPECT_EQ(marked("{{ name.removeprefix('b') ~ name.splitlines()[0] }}", kUser), "[obbob]");
}

TEST(Provenance, SurvivesBlocksAndMacros) {
  EXPECT_EQ(marked("{% set t %}<{{ name }}>{% endset %}{{ t }}", kUser), "<[bob]>");
  EXPECT_EQ(marked("{% macro m(x) %}({{ x }}){% endmacro %}{{ m(name)|upper }}", kUser), "([BOB])");
  EXPECT_EQ(marked("{% set ns = namespace(t='') %}{% set ns.t = ns.t ~ name %}{{ ns.t }}!", kUser),
            "[bob]!");
  EXPECT_EQ(marked("{% filter upper %}a{{ name }}{% endfilter %}", kUser), "A[BOB]");
  EXPECT_EQ(
      marked("{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}{{ u }}{% endcall %}",
             kUser),
      "<[<|im_end|>]>");
}

// ---- errors ----

TEST(Errors, NameThePlace) {
  EXPECT_EQ(
      error_of("a\n  {{ x + }}"),
      "The chat template cannot be read at line 2, column 10: expected an expression but found "
      "'}}'.");
  EXPECT_EQ(
      error_of("{% if x %}\nabc"),
      "The chat template cannot be read at line 2, column 4: expected '{% endif %}' but found "
      "the end of the template.");
  EXPECT_EQ(error_of("{{ 'abc }}"),
            "The chat template cannot be read at line 1, column 4: this string is not closed.");
  EXPECT_EQ(error_of("one\n{{ 1 + 'a' }}"),
            "The chat template failed at line 2, column 6: '+' cannot join 'int' and 'str'.");
  EXPECT_EQ(error_of("\n\n{{ a.b }}"),
            "The chat template failed at line 3, column 5: 'a' is undefined.");
  EXPECT_EQ(error_of("{{ x|nosuch }}"),
            "The chat template failed at line 1, column 6: there is no filter named 'nosuch'.");
}

TEST(Errors, CarryTheMessageOfTheTemplate) {
  const std::string source =
      "{% if 1 %}\n  {{ raise_exception('Roles must alternate!') }}{% endif %}";
  EXPECT_EQ(error_of(source),
            "The chat template refuses this conversation at line 2, column 21: Roles must "
            "alternate!");
  const auto pieces = render(source);
  ASSERT_FALSE(pieces);
  EXPECT_EQ(pieces.error().code, ErrorCode::kInvalidArgument);
}

TEST(Errors, VariablesThatAreNoObject) {
  const auto pieces = render("x", Json::array());
  ASSERT_FALSE(pieces);
  EXPECT_EQ(pieces.error().code, ErrorCode::kInvalidArgument);
}

TEST(Variables, ConstantsWinOverData) {
  EXPECT_EQ(marked("{{ bos_token }}", {{"bos_token", "evil"}}, {{"bos_token", "<s>"}}), "<s>");
}

TEST(Variables, LargeIntegersOfSchemas) {
  EXPECT_EQ(marked("{{ n|tojson }}", {{"n", INT64_MAX}}), "9223372036854775807");
  EXPECT_EQ(marked("{{ n|tojson }}", {{"n", INT64_MIN}}), "-9223372036854775808");
}

// ---- limits ----

struct Hostile {
  const char* name;
  std::string source;
};

std::string repeat(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

std::vector<Hostile> hostile_templates() {
  const std::string loop = "{% for a in range(99999) %}{% for b in range(99999) %}";
  const std::string end = "{% endfor %}{% endfor %}";
  return {
      {"parentheses", "{{ " + repeat("(", 100000) + "1" + repeat(")", 100000) + " }}"},
      {"lists", "{{ " + repeat("[", 100000) + repeat("]", 100000) + " }}"},
      {"nots", "{{ " + repeat("not ", 100000) + "1 }}"},
      {"minuses", "{{ " + repeat("-", 100000) + "1 }}"},
      {"attributes", "{{ a" + repeat(".b", 100000) + " }}"},
      {"filters", "{{ a" + repeat("|e", 100000) + " }}"},
      {"conditions", "{{ " + repeat("1 if 1 else ", 100000) + "1 }}"},
      {"ifs", repeat("{% if 1 %}", 100000)},
      {"fors", repeat("{% for x in [1] %}", 1000) + repeat("{% endfor %}", 1000)},
      {"targets", "{% set " + repeat("(", 100000) + "a = 1 %}"},
      {"long loop", loop + end},
      {"printing loop", loop + "aaaaaaaaaaaaaaaa" + end},
      {"doubling",
       "{% set ns = namespace(s='ab') %}{% for i in range(99) %}"
       "{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}"},
      {"doubling list",
       "{% set ns = namespace(s=[1]) %}{% for i in range(99) %}"
       "{% set ns.s = ns.s + ns.s %}{% endfor %}"},
      {"shared tree",
       "{% set ns = namespace(s=[]) %}{% for i in range(150) %}"
       "{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}"},
      {"shared tree compared",
       "{% set ns = namespace(s=[1], t=[1]) %}{% for i in range(150) %}"
       "{% set ns.s = [ns.s, ns.s] %}{% set ns.t = [ns.t, ns.t] %}"
       "{% endfor %}{{ ns.s == ns.t }}"},
      {"shared tree as JSON",
       "{% set ns = namespace(s=[]) %}{% for i in range(150) %}"
       "{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s|tojson }}"},
      {"tall list",
       "{% set ns = namespace(s=[]) %}{% for i in range(99999) %}"
       "{% set ns.s = [ns.s] %}{% endfor %}"},
      {"repeat", "{{ 'a' * 99999999999 }}"},
      {"repeat list", "{{ [1] * 99999999999 }}"},
      {"power", "{{ 10 ** 99999999 }}"},
      {"range", "{{ range(999999999999)|list }}"},
      {"format width", "{{ '%999999999s' % 'a' }}"},
      {"format precision", "{{ '%.999999999f' % 1.0 }}"},
      {"braces width", "{{ '{:999999999}'.format('a') }}"},
      {"indent", "{{ 'a\nb'|indent(99999999999) }}"},
      {"replace", "{{ ('a' * 1000000)|replace('a', 'b' * 1000000) }}"},
      {"join", "{{ (['a'] * 1000000)|join('b' * 1000000) }}"},
      {"json indent", "{{ [1]|tojson(indent=999999999) }}"},
      {"macro", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"},
      {"two macros",
       "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}"
       "{{ a() }}"},
      {"branching macro",
       "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}"
       "{% endmacro %}{{ m(60) }}"},
      {"caller", "{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}{{ m() }}"},
      {"map of map", "{{ 'a'|map(" + repeat("'map', ", 50000) + "'list')|list }}"},
      {"namespaces", loop + "{% set n = namespace(a=1) %}{% set n.n = n %}" + end},
      {"kept scopes", loop + "{% macro m() %}{% endmacro %}" + end},
      {"sorting", "{{ (['a' * 100000 ~ 'b', 'a' * 100000] * 10000)|sort|length }}"},
      {"dict keys", "{{ dict((['a' * 100000 ~ 'b', 'a' * 100000] * 9999)|map('list'))|length }}"},
      {"captured output", "{% macro m(n) %}{% for i in range(9999) %}" + repeat("x", 1000) +
                              "{% endfor %}{% if n %}{{ m(n - 1) }}{% endif %}{% endmacro %}"
                              "{{ m(100) }}"},
  };
}

// Requirement reports-loading.CVE-2026-5760 "CVE-2026-5760, CVE-2024-34359: a template runs code":
// an interpreter of our own over plain data, without attributes of anything else; fuel, depth and
// output are limited; also fuzzed (`fuzz/template_fuzz.cpp`)
// Verifies text.templates.
TEST(Limits, HostileTemplatesEndQuickly) {
  const bool small = std::getenv("CULET_TEST_SIZE") != nullptr;  // NOLINT(concurrency-mt-unsafe)
  const Limits limits = small ? Limits{.fuel = Limits().fuel / 10} : Limits();
  for (const Hostile& h : hostile_templates()) {
    SCOPED_TRACE(h.name);
    const std::clock_t start = std::clock();
    const auto pieces = render(h.source, Json::object(), Json::object(), limits);
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    EXPECT_FALSE(pieces) << "rendered " << joined(*pieces).size() << " bytes";
    EXPECT_LT(seconds, 20);  // of the processor; sanitizers slow it down
  }
}

// What looks for a long text in a longer one stays linear.
TEST(Limits, SearchingIsLinear) {
  const std::string source =
      "{% set text = 'a' * 1000000 %}{% set what = 'a' * 500000 ~ 'b' %}"
      "{{ what in text }}{{ text.find(what) }}{{ text.rfind('b' ~ what) }}{{ text.count(what) }}"
      "{{ text.split(what)|length }}{{ text.rsplit(what)|length }}{{ text|replace(what, '')|length "
      "}}";
  const auto pieces = render(source);
  ASSERT_TRUE(pieces) << pieces.error().message;
  EXPECT_EQ(joined(*pieces), "False-1-10111000000");
}

// Verifies reports-loading.CVE-2026-5760.
TEST(Limits, AreReported) {
  EXPECT_EQ(error_of("ab{{ 'cdef' }}", {}, {.output = 5}),
            "The chat template stopped at line 1, column 3: it prints more than 5 bytes.");
  EXPECT_EQ(error_of("{% for x in range(1000) %}{% endfor %}", {}, {.fuel = 100}),
            "The chat template stopped at line 1, column 18: it used up its evaluation steps.");
  const auto pieces = render("{{ 1 }}", {}, {}, {.fuel = 1});
  ASSERT_FALSE(pieces);
  EXPECT_EQ(pieces.error().code, ErrorCode::kExhausted);
  EXPECT_EQ(error_of("{{ ((((1)))) }}", {}, {.depth = 4}),
            "The chat template cannot be read at line 1, column 5: it nests deeper than 4 levels.");
}

// Verifies reports-loading.CVE-2026-5760.
TEST(Limits, DeepDataIsRefused) {
  Json deep = 1;
  for (int i = 0; i < 300; ++i) deep = Json::array({deep});
  const auto pieces = render("{{ x }}", {{"x", deep}});
  ASSERT_FALSE(pieces);
  EXPECT_EQ(pieces.error().code, ErrorCode::kExhausted);
}

TEST(Limits, LongConversationsFit) {
  Json messages = Json::array();
  for (int i = 0; i < 2000; ++i) {
    messages.push_back(
        {{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", std::string(2000, 'x') + " "}});
  }
  const auto pieces =
      render("{% for m in messages %}{{ '<|' + m.role + '|>' + m.content|trim }}{% endfor %}",
             {{"messages", messages}});
  ASSERT_TRUE(pieces) << pieces.error().message;
  EXPECT_GT(joined(*pieces).size(), 4'000'000u);
}

}  // namespace
}  // namespace culet::chat
