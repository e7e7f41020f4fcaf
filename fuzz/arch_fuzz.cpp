// Any text in the two languages that share expressions. As an architecture file it is compiled
// against the headers of three tiny models: it is refused with one printable line, or gives a plan
// that holds its promises (verify() inside compile). As a family file it is refused, or its
// expressions have values or are refused.
#include "base/json.h"
#include "convert/expression.h"
#include "convert/family.h"
#include "format/gguf.h"
#include "plan/compile.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>

namespace {

using namespace culet;

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) std::abort();
  return {std::istreambuf_iterator<char>(in), {}};
}

struct Header {
  explicit Header(const char* name)
      : bytes(read(std::string(CULET_TEST_DATA "/golden/headers/") + name + ".gguf")),
        file(*format::GgufFile::parse(std::as_bytes(std::span(bytes)), name, true)) {}
  std::string bytes;
  format::GgufFile file;
};

void check_message(const Error& error) {
  if (error.message.empty()) std::abort();
  for (char c : error.message)
    if (static_cast<unsigned char>(c) < 32) std::abort();
}

void check(const Result<plan::Compiled>& compiled, const plan::Tensors& tensors) {
  if (compiled) {
    if (plan::explain(compiled->plan, tensors, {}).empty()) std::abort();
    return;
  }
  check_message(compiled.error());
}

void read_family(std::string_view text) {
  const auto family = convert::parse_family("fuzz", text, convert::builtin_families());
  if (!family) return;
  static const auto config =
      *base::parse_json(R"({"a": 1, "b": "text", "c": [1, 2], "d": {"a": null}})");
  convert::Scope scope(&config);
  for (const auto& [name, value] : family->definitions) scope.define(name, value);
  for (const auto& row : family->metadata) static_cast<void>(scope.value(row.value, 0));
  for (const auto& row : family->requirements) static_cast<void>(scope.holds(row.condition));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const plan::ArchLibrary library = *plan::ArchLibrary::open("");
  static const Header llama("llama-q8_0"), gemma("gemma4-e-q8_0");
  static const Header draft_model("gemma4-assistant"), target("gemma3-q8_0");
  const plan::ArchText text{"fuzz", std::string(reinterpret_cast<const char*>(data), size),
                            "fuzz.arch"};
  check(plan::compile_text(library, text, llama.file, {}), llama.file);
  check(plan::compile_text(library, text, gemma.file, {}), gemma.file);
  check(plan::compile_text(library, text, draft_model.file, {.target = &target.file}),
        {draft_model.file, &target.file});
  read_family(text.text);
  return 0;
}
