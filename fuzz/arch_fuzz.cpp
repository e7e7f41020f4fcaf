// Any text as an architecture file, compiled against the headers of three tiny models: it is
// refused with one printable line, or gives a plan that holds its promises (verify() inside
// compile).
#include "format/gguf.h"
#include "plan/compile.h"

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <span>
#include <string>

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

void check(const Result<plan::Compiled>& compiled, const plan::Tensors& tensors) {
  if (compiled) {
    if (plan::explain(compiled->plan, tensors, {}).empty()) std::abort();
    return;
  }
  if (compiled.error().message.empty()) std::abort();
  for (char c : compiled.error().message)
    if (static_cast<unsigned char>(c) < 32) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const plan::ArchLibrary library = *plan::ArchLibrary::open("");
  static const Header llama("llama-q8_0"), gemma("gemma4-e-q8_0");
  static const Header drafter("gemma4-assistant"), target("gemma3-q8_0");
  const plan::ArchText text{"fuzz", std::string(reinterpret_cast<const char*>(data), size),
                            "fuzz.arch"};
  check(plan::compile_text(library, text, llama.file, {}), llama.file);
  check(plan::compile_text(library, text, gemma.file, {}), gemma.file);
  check(plan::compile_text(library, text, drafter.file, {.target = &target.file}),
        {drafter.file, &target.file});
  return 0;
}
