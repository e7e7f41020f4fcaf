// What the library reads and computes inside a program whose locale writes 1.5 as "1,5": the same,
// bit for bit, as in the C locale.
//
// The locales are made here, with localedef of the C library from the definitions of the package
// `locales` (scripts/packages.txt). Where that fails, so does the test.
#include "base/json.h"
#include "base/numbers.h"
#include "convert/expression.h"
#include "plan/compile.h"
#include "support.h"
#include "template/chat_template.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <locale>
#include <numeric>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>

namespace culet {
namespace {

using Json = nlohmann::ordered_json;

// A comma of one byte, and one of two bytes (U+066B).
constexpr const char* kLocales[] = {"de_DE", "ps_AF"};

// Makes the locale and gives the process it, C and C++; the C locale again at its end.
class HostLocale {
 public:
  explicit HostLocale(const std::string& name)
      : folder_(std::filesystem::temp_directory_path() /
                ("culet-locale-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
    const std::string made = (folder_ / (name + ".UTF-8")).string();
    const std::string command =
        "localedef --no-archive --quiet --force -i " + name + " -f UTF-8 " + made + " 2>&1";
    std::string said;
    if (FILE* const run = popen(command.c_str(), "r")) {
      for (int c = 0; (c = std::fgetc(run)) != EOF;) said += static_cast<char>(c);
      pclose(run);
    }
    setenv("LOCPATH", folder_.c_str(), 1);
    if (std::setlocale(LC_ALL, (name + ".UTF-8").c_str()) == nullptr) {
      ADD_FAILURE() << "no locale " << name
                    << ": install the package 'locales'; localedef says: " << said;
      return;
    }
    std::locale::global(std::locale(name + ".UTF-8"));
  }
  ~HostLocale() {
    std::locale::global(std::locale::classic());
    unsetenv("LOCPATH");
    std::filesystem::remove_all(folder_);
  }
  HostLocale(const HostLocale&) = delete;
  HostLocale& operator=(const HostLocale&) = delete;

 private:
  std::filesystem::path folder_;
};

// ---- what is compared

std::string bits(double number) { return fmt::format("{:016x}", std::bit_cast<uint64_t>(number)); }

std::string parsed_json() {
  const auto json = base::parse_json(
      R"({"eps": 0.00001, "theta": 1e-5, "list": [1.5, -0.25, 1234567.875, 12345678, 5e-324]})");
  if (!json) return json.error().message;
  std::string out = base::dump_json(*json);
  for (const Json& value : (*json)["list"]) out += " " + bits(value.get<double>());
  return out + " " + bits((*json)["eps"].get<double>()) + " " +
         bits((*json)["theta"].get<double>());
}

std::string wrong_json() { return base::parse_json("[1,5.5,]").error().message; }

std::string family_expression() {
  const auto config = base::parse_json(R"({"rope_theta": 10000.5, "factor": 0.00001})");
  if (!config) return config.error().message;
  convert::Scope scope(&*config);
  const auto expression = convert::Expression::parse("rope_theta * 1.25 + factor / 0.5");
  if (!expression) return expression.error().message;
  const auto value = scope.number(*expression);
  return value ? bits(*value) : value.error().message;
}

std::string rendered_template() {
  const auto parsed = chat::ChatTemplate::parse(
      "{{ 0.00001 * 3 }} {{ '1.5' | float }} {{ 2.675 | round(2) }} {{ '%.3f' % 1234567.5 }} "
      "{{ x }} {{ x | tojson }} {{ 'e' in strftime_now('%A %B') }}");
  if (!parsed) return parsed.error().message;
  const auto pieces = (*parsed)->render(Json{{"x", 0.00001}}, Json::object());
  if (!pieces) return pieces.error().message;
  std::string out;
  for (const chat::Piece& piece : *pieces) out += piece.text;
  return out;
}

std::string month_and_day() {
  const auto parsed = chat::ChatTemplate::parse("{{ strftime_now('%A %B %d %p') }}");
  if (!parsed) return parsed.error().message;
  const auto pieces = (*parsed)->render(Json::object(), Json::object());
  return pieces ? pieces->front().text : pieces.error().message;
}

// A text of ours with numbers that strtod cuts at the point.
std::string compiled_plan() {
  const std::string path = test::golden("tiny/llama/model.gguf");
  const auto model = format::GgufFile::open(path);
  if (!model) return model.error().message;
  const auto library = plan::ArchLibrary::open("");
  if (!library) return library.error().message;
  const plan::ArchText text{
      "llama",
      "arch-lang 1\narch llama\ninclude llama\nlet base = 10000.0625 + 0.00001\n"
      "let stretch = 1.5e-1\nignore meta.rope.freq_base, meta.rope.scaling.factor\n",
      "test"};
  const auto compiled = plan::compile_text(*library, text, *model, {});
  if (!compiled) return compiled.error().message;
  return plan::explain(compiled->plan, {*model, nullptr}, {}) + bits(compiled->plan.ropes[0].base) +
         " " + bits(compiled->plan.ropes[0].scale);
}

// Gemma 3n's text has 0.00001, every model an epsilon; the answers depend on both.
std::string logits_of(const std::string& model) {
  std::vector<Token> tokens(12);
  std::iota(tokens.begin(), tokens.end(), 3);
  const std::string path = test::golden("tiny/" + model + "/model.gguf");
  std::string out = test::load(path)->explain();
  for (const auto& row : test::rows_of(path, {}, KvType::kF16, tokens))
    out.append(reinterpret_cast<const char*>(row.data()), row.size() * sizeof(float));
  return out;
}

std::vector<std::string> everything() {
  return {parsed_json(),        wrong_json(),       family_expression(),
          rendered_template(),  month_and_day(),    compiled_plan(),
          logits_of("gemma3n"), logits_of("llama"), logits_of("qwen3")};
}

class LocaleTest : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, LocaleTest, testing::ValuesIn(kLocales), test::test_name);

// The locale does to others what we must not let it do to us.
TEST_P(LocaleTest, IsReallyOneWithADecimalComma) {
  const HostLocale host(GetParam());
  EXPECT_STRNE(std::localeconv()->decimal_point, ".");
  EXPECT_EQ(std::strtod("0.00001", nullptr), 0);
  char printed[32];
  std::snprintf(printed, sizeof printed, "%.1f", 1.5);
  EXPECT_STRNE(printed, "1.5");
  if (std::string(GetParam()) != "de_DE") return;
  std::ostringstream stream;
  stream << 1234567;
  EXPECT_EQ(stream.str(), "1.234.567");
}

TEST_P(LocaleTest, ChangesNothing) {
  const std::vector<std::string> before = everything();
  std::vector<std::string> inside;
  {
    const HostLocale host(GetParam());
    inside = everything();
    EXPECT_STRNE(std::localeconv()->decimal_point, ".");  // it is still the program's own
  }
  ASSERT_EQ(before.size(), inside.size());
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(before[i] == inside[i]) << i;
  EXPECT_EQ(before[0], inside[0]);
  EXPECT_EQ(before[2], inside[2]);
  EXPECT_EQ(before[3], inside[3]);
}

// The values themselves, so that the C locale cannot be wrong along with the other one.
TEST_P(LocaleTest, NumbersAreWhatTheTextSays) {
  const HostLocale host(GetParam());
  EXPECT_EQ(base::parse_double("0.00001"), 0.00001);
  EXPECT_EQ((*base::parse_json("[0.00001]"))[0].get<double>(), 0.00001);
  EXPECT_EQ(base::dump_json(Json(1234.5)), "1234.5");
  EXPECT_EQ(family_expression(), bits(10000.5 * 1.25 + 0.00001 / 0.5));
  EXPECT_EQ(rendered_template().substr(0, 45), "3.0000000000000004e-05 1.5 2.67 1234567.500 1");
}

}  // namespace
}  // namespace culet
