// Flags of the commands that measure and that look at architecture files.
#include "cli/command_app.h"
#include "cli/flags.h"

#include <CLI/CLI.hpp>

#include <charconv>
#include <string_view>
#include <system_error>

namespace culet::cli {
namespace {

constexpr double kMostTokens = 1e7;
constexpr const char* kOfProfile = "With --profile";

Help arch_list_help() {
  return {{HelpText{"Prints a line per file: name, sha256 of its text with all includes, and where "
                    "it comes from."},
           examples({"culet arch list", "culet arch list --arch-dir my-archs"})}};
}

Help arch_check_help() {
  return {{HelpText{"A mistake is printed as FILE:LINE:COLUMN. With --model: hyperparameters, the "
                    "operations of one layer\nof each kind with shapes and types, caches, and the "
                    "tensors that are used, ignored and missing."},
           examples({"culet arch check llama",
                     "culet arch check my-archs/llama.arch --model model.gguf"})}};
}

Help arch_diff_help() {
  return {{HelpText{"Lines with - are only in A, lines with + only in B. The exit status is 0 if "
                    "nothing differs, 1 if\nsomething does, and 2 if they cannot be compared. With "
                    "--model, the operations that the two files\nmake of the model are compared."},
           examples({"culet arch diff llama qwen2",
                     "culet arch diff llama my-archs/llama.arch --model model.gguf"})}};
}

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
                          Help help, ArchArguments* arguments, ArchArguments::Action action) {
  CLI::App* command = add_command(arch, name, what, std::move(help));
  add_arch_dir(command, &arguments->arch_dir);
  command->callback([arguments, action] { arguments->action = action; });
  return command;
}

void add_arch_model(CLI::App* command, ArchArguments* arguments) {
  command->add_option("--model", arguments->model, "Path or name of a model to check it with");
}

}  // namespace

Help bench_help() {
  return {
      {HelpText{"Prints tokens per second: the median of the repetitions, and the lowest and "
                "highest. Prefill appends\n-p tokens at once and computes the logits of the last "
                "one. Decode appends -n tokens one by one, with\nlogits but without sampling. Both "
                "start with as many tokens in the context as the depth says. GB/s\ncounts the "
                "weights, keys and values that a token must read; \"of read\" is its share of what "
                "a plain\nloop reads with the same threads in the same run. Gop/s counts matrix "
                "products.\nbench/README.md says how to compare engines fairly."},
       examples({"culet bench model.gguf",
                 "culet bench model.gguf -p 128 -n 32 -d 0 -r 3 --threads 1",
                 "culet bench model.gguf --json | jq '.[] | {depth, decode_tokens_per_s}'"})}};
}

Help explain_help() {
  return {{HelpText{"Prints the plan: one line per operation, with shapes, types, kernel, memory "
                    "offsets and bytes. With\n--profile it runs the model on fixed random tokens "
                    "and prints the time of each line of the\narchitecture text over all layers. "
                    "Operations with the same input may run as one."},
           examples({"culet explain model.gguf", "culet explain model.gguf --profile",
                     "culet explain model.gguf --profile --all -p 512 -n 0",
                     "CULET_FUSE=off culet explain model.gguf | grep rope"})}};
}

Help arch_help() {
  return {{HelpText{"docs/formats/arch.md defines the language."},
           examples({"culet arch list", "culet arch check my-archs/llama.arch --model model.gguf",
                     "culet arch diff llama my-archs/llama.arch"})}};
}

void declare_bench(CLI::App* command, BenchArguments* bench) {
  add_model_to_run(command, &bench->model);
  add_counts(command, &bench->prompt, &bench->generated, "Options");
  command
      ->add_option_function<std::string>(
          "-d,--depth", [bench](const std::string& text) { bench->depths = parse_depths(text); },
          "List of depths: tokens in the context before the measured ones (default 0,4096)")
      ->type_name("LIST");
  command->add_option("-r,--repetitions", bench->repetitions, "Repetitions of each measurement")
      ->capture_default_str()
      ->check(number_in(1, 1000, "a number of repetitions from 1 to 1000"));
  add_kv(command, &bench->kv);
  command->add_flag("--json", bench->json, "Print a JSON array with one object per depth");
}

void declare_explain(CLI::App* command, ExplainArguments* explain) {
  add_model(command, &explain->model);
  add_target(command, &explain->model);
  add_precise(command, &explain->model);
  CLI::Option* profile = command->add_flag("--profile", explain->profile,
                                           "Run the model, and print the time of each line");
  command->add_flag("--all", explain->all, "Every operation of every layer")
      ->needs(profile)
      ->group(kOfProfile);
  add_counts(command, &explain->prompt, &explain->generated, kOfProfile);
  add_running(command, &explain->model, kOfProfile);
}

void declare_arch(CLI::App* arch, ArchArguments* arguments) {
  using Do = ArchArguments::Action;
  arch->require_subcommand(1);
  arch->get_formatter()->label("SUBCOMMAND", "COMMAND");
  add_arch_action(arch, "list", "Print the architecture files", arch_list_help(), arguments,
                  Do::kList);
  CLI::App* check = add_arch_action(arch, "check", "Check a file, alone or with a model",
                                    arch_check_help(), arguments, Do::kCheck);
  check->add_option("FILE", arguments->files, "Path of a .arch file, or a name of culet arch list")
      ->required()
      ->expected(1);
  add_arch_model(check, arguments);
  CLI::App* diff = add_arch_action(arch, "diff", "Print the differences between two files",
                                   arch_diff_help(), arguments, Do::kDiff);
  diff->add_option("FILE", arguments->files, "Two paths of .arch files, or names")
      ->required()
      ->expected(2);
  add_arch_model(diff, arguments);
}

}  // namespace culet::cli
