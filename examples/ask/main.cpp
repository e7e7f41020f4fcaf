// The smallest useful program on culet: answers one question, a piece at a time.
#include "culet/culet.h"

#include <cstdio>
#include <variant>

namespace {

culet::Result<void> ask(const char* path, const char* question) {
  CULET_TRY(const auto model, culet::Model::load(path, {}));
  CULET_TRY(const auto session, culet::Session::make(model, {}));
  const culet::Message messages[] = {{"user", question}};
  CULET_TRY(const auto prompt, render_chat(*model, messages, {}));
  CULET_TRY(const auto finished,
            culet::generate(*session, prompt.tokens, {}, [](const culet::Event& event) {
              if (const auto* delta = std::get_if<culet::TextDelta>(&event)) {
                std::fwrite(delta->text.data(), 1, delta->text.size(), stdout);
                std::fflush(stdout);
              }
              return true;
            }));
  std::printf("\n%lld tokens\n", static_cast<long long>(finished.cost.generated_tokens));
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: ask MODEL.gguf QUESTION\n", stderr);
    return 2;
  }
  if (const auto done = ask(argv[1], argv[2]); !done) {
    std::fprintf(stderr, "ask: %s\n", done.error().message.c_str());
    return 1;
  }
}
