// Flags of the commands that measure and that look at architecture files.
#include "cli/flags.h"

#include <CLI/CLI.hpp>

#include <charconv>
#include <string_view>
#include <system_error>

namespace culet::cli {
namespace {

constexpr double kMostTokens = 1e7;
constexpr const char* kOfProfile = "With --profile";

constexpr const char* kBenchFooter =
    "Prints tokens per second: the median of the repetitions, and the lowest and highest. Prefill\n"
    "is -p tokens at once with logits for the last; decode is -n tokens one by one, with logits "
    "but\n"
    "without sampling. Both start at the depth, that is with so many tokens in the context. GB/s\n"
    "counts the weights, keys and values that a token must read; \"of read\" is its share of what "
    "a\n"
    "plain loop reads with the same threads in the same run. Gop/s counts matrix products.\n"
    "bench/README.md says how to compare engines fairly.\n"
    "\nExamples:\n"
    "  culet bench model.gguf\n"
    "  culet bench model.gguf -p 128 -n 32 -d 0 -r 3 --threads 1\n"
    "  culet bench model.gguf --json | jq '.[] | {depth, decode_tokens_per_s}'";

constexpr const char* kExplainFooter =
    "Prints the plan: an operation a line with its shapes, types, kernel, slots and bytes. With\n"
    "--profile it runs the model on fixed random tokens and prints what each line of the\n"
    "architecture text costs over all layers; operations that share one input may run as one.\n"
    "\nExamples:\n"
    "  culet explain model.gguf\n"
    "  culet explain model.gguf --profile\n"
    "  culet explain model.gguf --profile --all -p 512 -n 0\n"
    "  CULET_FUSE=off culet explain model.gguf | grep rope";

constexpr const char* kArchFooter =
    "docs/formats/arch.md defines the language.\n"
    "\nExamples:\n"
    "  culet arch list\n"
    "  culet arch check my-archs/llama.arch --model model.gguf\n"
    "  culet arch diff llama my-archs/llama.arch";

constexpr const char* kArchListFooter =
    "A line a file: name, sha256 of its text with all it includes, where it is from.\n"
    "\nExamples:\n"
    "  culet arch list\n"
    "  culet arch list --arch-dir my-archs";

constexpr const char* kArchCheckFooter =
    "A mistake is printed as FILE:LINE:COLUMN. With --model: the facts, the operations of one "
    "layer\n"
    "of each kind with shapes and types, the caches, and the tensors used, ignored and not there.\n"
    "\nExamples:\n"
    "  culet arch check llama\n"
    "  culet arch check my-archs/llama.arch --model model.gguf";

constexpr const char* kArchDiffFooter =
    "Lines with - are only in A, with + only in B. The exit status is 0 when nothing differs, "
    "1 when\n"
    "something does, 2 when they cannot be compared. With --model the operations that both make "
    "of\n"
    "the model are compared.\n"
    "\nExamples:\n"
    "  culet arch diff llama qwen2\n"
    "  culet arch diff llama my-archs/llama.arch --model model.gguf";

// "0,4096"
std::vector<int64_t> parse_depths(const std::string& text) {
  std::vector<int64_t> depths;
  const char* at = text.data();
  const char* end = at + text.size();
  while (true) {
    int64_t depth = -1;
    const auto [next, error] = std::from_chars(at, end, depth);
    const bool more = next != end && *next == ',';
    if (error != std::errc() || depth < 0 || depth > static_cast<int64_t>(kMostTokens) ||
        (next != end && !more)) {
      throw CLI::ValidationError("--depth",
                                 "\"" + text + "\" is not a list of numbers of tokens, as 0,4096");
    }
    depths.push_back(depth);
    if (!more) return depths;
    at = next + 1;
  }
}

void add_counts(CLI::App* command, int64_t* prompt, int64_t* generated, const char* group) {
  command->add_option("-p,--prompt", *prompt, "Tokens to append at once; 0: none")
      ->capture_default_str()
      ->check(number_in(0, kMostTokens, "a number of tokens"))
      ->group(group);
  command->add_option("-n,--generate", *generated, "Tokens to decode one by one; 0: none")
      ->capture_default_str()
      ->check(number_in(0, kMostTokens, "a number of tokens"))
      ->group(group);
}

CLI::App* add_arch_action(CLI::App* arch, const std::string& name, const std::string& what,
                          ArchArguments* arguments, ArchArguments::Action action) {
  CLI::App* command = arch->add_subcommand(name, what);
  add_arch_dir(command, &arguments->arch_dir);
  command->callback([arguments, action] { arguments->action = action; });
  return command;
}

void add_arch_model(CLI::App* command, ArchArguments* arguments) {
  command->add_option("--model", arguments->model, "Path or name of a model to look at it with");
}

}  // namespace

CLI::App* add_bench(CLI::App* app, BenchArguments* bench) {
  CLI::App* command = add_command(app, "bench", "Measure tokens per second");
  add_model_to_run(command, &bench->model);
  add_counts(command, &bench->prompt, &bench->generated, "Options");
  command
      ->add_option_function<std::string>(
          "-d,--depth", [bench](const std::string& text) { bench->depths = parse_depths(text); },
          "Tokens in the context before the measured ones, a list (default 0,4096)")
      ->type_name("LIST");
  command->add_option("-r,--repetitions", bench->repetitions, "Repetitions of each measurement")
      ->capture_default_str()
      ->check(number_in(1, 1000, "a number of repetitions from 1 to 1000"));
  add_kv(command, &bench->kv);
  command->add_flag("--json", bench->json, "Print a JSON array, an object for each depth");
  command->footer(kBenchFooter);
  return command;
}

CLI::App* add_explain(CLI::App* app, ExplainArguments* explain) {
  CLI::App* command = add_command(app, "explain", "Print the plan that runs the model");
  add_model(command, &explain->model);
  add_target(command, &explain->model);
  add_precise(command, &explain->model);
  CLI::Option* profile =
      command->add_flag("--profile", explain->profile, "Run it, and print what each line costs");
  command->add_flag("--all", explain->all, "Every operation of every layer")
      ->needs(profile)
      ->group(kOfProfile);
  add_counts(command, &explain->prompt, &explain->generated, kOfProfile);
  add_running(command, &explain->model, kOfProfile);
  command->footer(kExplainFooter);
  return command;
}

CLI::App* add_arch(CLI::App* app, ArchArguments* arguments) {
  using Action = ArchArguments::Action;
  CLI::App* arch = add_command(app, "arch", "Look at architecture files");
  arch->require_subcommand(1);
  arch->get_formatter()->label("SUBCOMMAND", "COMMAND");
  arch->footer(kArchFooter);
  CLI::App* list = add_arch_action(arch, "list", "Print the architecture files there are",
                                   arguments, Action::kList);
  list->footer(kArchListFooter);
  CLI::App* check = add_arch_action(arch, "check", "Check a file, alone or on a model", arguments,
                                    Action::kCheck);
  check->add_option("FILE", arguments->files, "Path of a .arch file, or a name of culet arch list")
      ->required()
      ->expected(1);
  add_arch_model(check, arguments);
  check->footer(kArchCheckFooter);
  CLI::App* diff =
      add_arch_action(arch, "diff", "Print in what two files differ", arguments, Action::kDiff);
  diff->add_option("FILE", arguments->files, "Two paths of .arch files, or names")
      ->required()
      ->expected(2);
  add_arch_model(diff, arguments);
  diff->footer(kArchDiffFooter);
  return arch;
}

}  // namespace culet::cli
