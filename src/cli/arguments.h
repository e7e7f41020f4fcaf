// What the user asked for: the command line and the CULET_* environment variables, checked.
#pragma once

#include "cli/console.h"
#include "cli/kv.h"
#include "cli/memory.h"
#include "culet/convert.h"
#include "culet/culet.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace culet::cli {

// Every command that opens a model has these.
struct ModelArguments {
  std::string path;      // or a name, docs/models.md
  std::string target{};  // of a draft model, likewise; "": none
  ModelOptions options{};
};

// What the command line says of sampling, to lay over the model file's or the engine's defaults.
struct SamplingArguments {
  std::vector<std::function<void(SamplerOptions*)>> given;

  SamplerOptions over(SamplerOptions defaults) const;
};

struct RunArguments {
  ModelArguments model;
  std::optional<std::string> prompt;  // none or "-": standard input
  std::optional<std::string> system;
  std::string chat_template;       // path, "" = the model's own
  std::string template_variables;  // JSON object, "" = none
  std::string messages, tools;     // paths of JSON files, "-" = standard input, "" = none
  bool raw = false, parse_special = false, jsonl = false, quiet = false;
  bool show_prompt = false, json = false;  // json: with show_prompt
  MemoryArguments memory;
  GenerateOptions generate;  // but its sampling, which is
  SamplingArguments sampling;
};

struct TokenizeArguments {
  ModelArguments model;
  std::optional<std::string> text;  // none or "-": standard input
  bool add_special = true, parse_special = false;
};

struct DetokenizeArguments {
  ModelArguments model;
  std::vector<std::string> ids;  // none or one "-": standard input
  bool skip_special = false;
};

struct ScoreArguments {
  ModelArguments model;
  std::optional<std::string> file;  // none or "-": standard input
  bool ids = false, add_special = true;
  int top = 5;
  MemoryArguments memory;
};

struct EmbedArguments {
  ModelArguments model;
  std::vector<std::string> texts;   // none or one "-": standard input, a text a line
  std::optional<std::string> file;  // instead of texts; "-": standard input
  bool json = false, normalize = false;
};

struct ExplainArguments {
  ModelArguments model;
  bool profile = false, all = false;
  int64_t prompt = 128, generated = 32;  // tokens of the profile
};

struct BenchArguments {
  ModelArguments model;
  int64_t prompt = 512, generated = 128, repetitions = 5;
  std::vector<int64_t> depths{0, 4096};
  KvTypes kv;
  bool json = false;
};

struct ArchArguments {
  enum class Action { kList, kCheck, kDiff };
  Action action = Action::kList;
  std::vector<std::string> files;  // check: one; diff: two
  std::string arch_dir, model;     // model: "" = none
};

struct ShowArguments {
  ModelArguments model;
  bool json = false, sha256 = false;
  MemoryArguments memory;
};

struct ListArguments {
  bool json = false;
};

struct RemoveArguments {
  std::vector<std::string> names;
};

struct PullArguments {
  std::vector<std::string> names;
  bool quiet = false;
};

struct QuantizeArguments {
  ModelArguments model;  // the source; its options are those of the comparison
  std::string out, type;
  std::vector<TensorTypeRule> keep;
  std::string check;  // a text to compare the models on; "" = none
  bool json = false, quiet = false;
};

struct ConvertArguments {
  ModelArguments model;  // threads, and how the new file is looked at
  std::string folder, out, type, family;
  std::vector<TensorTypeRule> keep;
  std::vector<std::string> ignore_config;
  bool json = false, quiet = false;
};

// The internal command of the completion scripts (completion.h).
struct CompleteArguments {
  std::vector<std::string> words;
  std::string arch_dir;
};

// What the command line asks for, ready to be done; gives the exit status.
using Action = std::function<Result<int>(Output& out)>;

// Errors (all of them usage errors): one sentence that says which help to read.
Result<Action> parse_arguments(int argc, const char* const* argv);

}  // namespace culet::cli
